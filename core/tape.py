"""Nodes, contexts and the reverse pass: the tape runs any operation and knows none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from .arrays import as_float64, as_values, first_non_finite, sealed
from .backward import topology
from .errors import Code, NumericRefusal, RecordRefusal, StateRefusal, check_equal, check_kind
from .floats import Array, is_finite
from .names import check_name
from .trace import Trace, TraceEdge
from .unfolding import committed

__all__ = ["NO_GRAD", "RECORDING", "Binding", "Context", "Parameter", "Tensor", "constant"]

Operation: TypeAlias = Callable[..., tuple[Array, Any]]


LEAVES = ("parameter", "constant", "detached")  # never released


class _Releases:
    """How many graphs were released so far.

    A node that was found free of released ancestors at the present count need not be walked
    again, so the check costs one comparison per operand while nothing is released.
    """

    count = 0


class Tensor:
    """A value on the tape: a leaf, or the result of one operation.

    A handle is the node itself; equal values never make two nodes the same.
    Source: tape.md section 1
    """

    is_parameter = False

    __slots__ = (
        "__weakref__",
        "_checked_at",
        "_parents",
        "_read_revisions",
        "_released",
        "_revision",
        "_value",
        "_vjp",
        "op",
        "tracked",
    )

    def __init__(self, value: Array, op: str, *, tracked: bool = False) -> None:
        self._value: Array = sealed(value)
        self.op = op
        self.tracked = tracked
        self._parents: tuple[Tensor, ...] = ()
        self._read_revisions: tuple[int, ...] = ()
        self._vjp: Any = None
        self._released = False
        self._revision = 0
        self._checked_at = _Releases.count

    @property
    def value(self) -> Array:
        """The float64 array, read-only."""
        return self._value.view()

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the value."""
        return self._value.shape

    @property
    def revision(self) -> int:
        """How often the value was assigned; 0 for everything but parameters."""
        return self._revision

    def is_same_node(self, other: Tensor) -> bool:
        """True for the node itself, never for equal values."""
        return self is other

    def detach(self) -> Tensor:
        """An untracked leaf with the same value. Source: tape.md section 1"""
        return Tensor(self._value, "detached")

    def zero_gradient(self) -> None:
        """Only a parameter has a gradient. Refuses: state/not-a-parameter"""
        raise StateRefusal(
            code=Code.NOT_A_PARAMETER,
            what=self.op,
            expected="parameter",
            actual=self.op,
            details={"op": self.op},
        )

    def backward(self, seed: object = None, *, retain: bool = True) -> None:
        """Add d(sum(seed * self))/d(parameter) to the gradient of every ancestor parameter.

        seed:    exact output shape; None is 1.0 for a rank-0 output
        retain:  False releases every non-leaf node of the graph after the commit
        Refuses: state/graph-released (this node), state/untracked-output,
            shape/seed-shape-mismatch (no seed), state/graph-released (an ancestor),
            shape/ragged-ids, numeric/not-real, shape/seed-shape-mismatch,
            numeric/non-finite-seed, binding/stale-operand-value, numeric/not-real (a
            contribution), shape/contribution-mismatch, numeric/non-finite-vjp,
            numeric/non-finite-pass-adjoint,
            numeric/non-finite-accumulated-gradient, state/gradient-borrowed (in this order;
            nothing is changed by a refused call)
        Source:  tape.md section 5, numerics_vjp.md section 1
        """
        committed(self, seed)
        if not retain:
            _release(topology(self))

    def backward_with_trace(self, seed: object = None, *, retain: bool = True) -> Trace:
        """`backward`, with the record of that one committed pass. Refuses: as `backward`."""
        edges: list[TraceEdge] = []
        done = committed(self, seed, edges)
        nodes = done.described()
        if not retain:
            _release(topology(self))
        return Trace(seed=sealed(done.seed.copy()), retain=retain, nodes=nodes, edges=tuple(edges))

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"a {self.op} node belongs to its graph and cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"<{self.op} {list(self.shape)}{' tracked' if self.tracked else ''}>"


class Parameter(Tensor):
    """A named leaf with a gradient of its shape; the only tensor whose value changes.

    Refuses: record/field-type (name), record/empty-name, record/empty-name-segment,
        record/invalid-name-character, shape/ragged-ids, numeric/not-real, numeric/non-finite-leaf
    Source:  tape.md sections 1-2, numerics_init.md section 3
    """

    __slots__ = ("_gradient", "_gradient_readers", "_readers", "name")
    is_parameter = True

    def __init__(self, name: str, array: object) -> None:
        check_name(name)
        value = _leaf_value(array, op="parameter", what=name)
        super().__init__(value, "parameter", tracked=True)
        self.name = name
        self._gradient: Array = sealed(np.zeros_like(value))
        self._readers = 0
        self._gradient_readers = 0

    @property
    def gradient(self) -> Array:
        """The accumulated gradient, a read-only copy."""
        copy: Array = sealed(self._gradient.copy())
        return copy

    def zero_gradient(self) -> None:
        """Set the gradient to +0.0. Refuses: state/gradient-borrowed"""
        self.check_gradient_free()
        self._gradient = sealed(np.zeros_like(self._value))

    def assign(self, array: object) -> None:
        """Install a new value of the same shape; the revision grows by one.

        Refuses: state/value-borrowed, shape/ragged-ids, numeric/not-real,
            shape/assign-shape-mismatch, numeric/non-finite-leaf
        Source:  tape.md section 2
        """
        if self._readers:
            raise StateRefusal(
                code=Code.VALUE_BORROWED, what=self.name, expected=0, actual=self._readers
            )
        value = as_values(array, what=self.name)
        check_equal(Code.ASSIGN_SHAPE_MISMATCH, self.name, self.shape, value.shape)
        _check_leaf_finite(value, op="parameter", what=self.name)
        self._value = sealed(value)
        self._revision += 1

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While open, assignment is refused; any number of readers may coexist."""
        self.hold()
        try:
            yield
        finally:
            self.let_go()

    def hold(self) -> None:
        """Count one more reader, for a reader that outlives a with-block."""
        self._readers += 1

    def let_go(self) -> None:
        """Count one reader less: the end of one `hold`."""
        assert self._readers > 0, "a reader let go that held nothing"
        self._readers -= 1

    @contextmanager
    def reading_gradient(self) -> Iterator[Array]:
        """While open, gradient writes are refused; gives the gradient, read-only."""
        self._gradient_readers += 1
        try:
            yield self._gradient.view()
        finally:
            self._gradient_readers -= 1

    def commit_gradient(self, gradient: Array) -> None:
        """Install an accumulated gradient, an array of its own; only a backward pass calls this."""
        gradient.setflags(write=False)  # who reads it is given a copy or a view
        self._gradient = gradient

    def check_gradient_free(self) -> None:
        """Refuses: state/gradient-borrowed"""
        if self._gradient_readers:
            raise StateRefusal(
                code=Code.GRADIENT_BORROWED,
                what=self.name,
                expected=0,
                actual=self._gradient_readers,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or pickle is another node with the same value and gradient, at revision 0."""
        return _restored, (self.name, self._value, self._gradient)


def _restored(name: str, value: Array, gradient: Array) -> Parameter:
    twin = Parameter(name, value)
    twin.commit_gradient(gradient.copy())
    return twin


class _Readers:
    """One more reader of each parameter while open: what `hold` and `let_go` do, all at once."""

    __slots__ = ("_parameters",)

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._parameters = parameters

    def __enter__(self) -> None:
        for parameter in self._parameters:
            parameter._readers += 1

    def __exit__(self, *raised: object) -> None:
        for parameter in self._parameters:
            parameter._readers -= 1


def reading_all(parameters: Sequence[Parameter]) -> AbstractContextManager[None]:
    """`Parameter.reading` of every one of them at once."""
    return _Readers(parameters)


def constant(array: object) -> Tensor:
    """An untracked leaf.

    Refuses: shape/ragged-ids, numeric/not-real, numeric/non-finite-leaf
    Source:  tape.md section 1
    """
    return Tensor(_leaf_value(array, op="constant", what="value"), "constant")


def _leaf_value(array: object, *, op: str, what: str) -> Array:
    value = as_values(array, what=what)
    _check_leaf_finite(value, op=op, what=what)
    return value


def _check_leaf_finite(value: Array, *, op: str, what: str) -> None:
    bad = first_non_finite(value)
    if bad is not None:
        raise NumericRefusal(
            code=Code.NON_FINITE_LEAF, what=what, at=bad[0], value=bad[1], details={"op": op}
        )


@dataclass(frozen=True, slots=True)
class Binding:
    """A node and its revision at one moment; both must still hold. Source: tape.md section 2"""

    node: Tensor
    revision: int

    @classmethod
    def of(cls, node: Tensor) -> Binding:
        """The binding to a node as it is now."""
        return cls(node, node.revision)

    def node_matches(self, other: Tensor) -> bool:
        """True when `other` is the bound node."""
        return self.node is other

    def revision_matches(self, other: Tensor) -> bool:
        """True when the bound revision is the present one of `other`."""
        return self.revision == other.revision


@dataclass(frozen=True, slots=True)
class Context:
    """Whether operations leave edges behind: an immutable argument, never ambient state.

    Source: tape.md section 3
    """

    recording: bool

    def apply(self, op: Operation, *tensors: Tensor, **arguments: Any) -> Tensor:
        """The result of one operation as a node.

        Refuses: record/field-type (the operation), record/field-type (an operand is no tensor),
            state/released-operand (operands ascending), what the operation refuses,
            numeric/not-real (a result that is no float64), numeric/non-finite-forward
        Source:  tape.md section 4
        """
        _check_operation(op)
        name: str = getattr(op, "op_name", getattr(op, "__name__", "operation"))
        present = _Releases.count
        for operand, tensor in enumerate(tensors):
            if type(tensor) not in TENSORS or tensor._checked_at != present:
                _check_operand(tensor, operand, name)
        revisions = tuple([tensor._revision for tensor in tensors])
        given, vjp = op(*[tensor._value for tensor in tensors], **arguments)
        value = given if type(given) is np.ndarray else np.asarray(given)
        if value.dtype != np.float64:
            value = as_float64(value, what=f"{name} result")
        if not is_finite(value):
            _refuse_result(value, name)
        result = Tensor(value, name)
        if self.recording:
            result._parents = tensors
            result._read_revisions = revisions
            result._vjp = vjp
            result.tracked = True in [tensor.tracked for tensor in tensors]
        return result


TENSORS = (Tensor, Parameter)
RECORDING = Context(recording=True)
NO_GRAD = Context(recording=False)


def _refuse_result(value: Array, name: str) -> None:
    at, found = cast("tuple[int, float]", first_non_finite(value))
    raise NumericRefusal(
        code=Code.NON_FINITE_FORWARD, what=name, at=at, value=found, details={"op": name}
    )


def _check_operation(op: object) -> None:
    """Refuses: record/field-type"""
    if not callable(op):
        check_kind(op, Callable, "operation")  # type: ignore[arg-type]


def _check_operand(tensor: object, operand: int, name: str) -> None:
    """Refuses: record/field-type, state/released-operand"""
    if not isinstance(tensor, Tensor):
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what=f"{name} operand {operand}",
            expected="a Tensor",
            actual=type(tensor).__name__,
        )
    if tensor._checked_at != _Releases.count and _released_ancestor(tensor) is not None:
        raise StateRefusal(
            code=Code.RELEASED_OPERAND,
            what=name,
            expected="a live graph",
            actual="released",
            details={"op": name, "operand": operand},
        )


def _released_ancestor(output: Tensor) -> Tensor | None:
    """The first released node at or above `output`, or None; clean nodes are marked so."""
    nodes = topology(output)
    for node in nodes:
        if node._released:
            return node
    for node in nodes:
        node._checked_at = _Releases.count
    return None


def _release(nodes: list[Tensor]) -> None:
    """Every operation result loses its edges; leaves stay."""
    _Releases.count += 1
    for node in nodes:
        if node.op not in LEAVES:
            node._parents = ()
            node._read_revisions = ()
            node._vjp = getattr(node._vjp, "first", None)  # what is left of a fused node: a name
            node._released = True
        else:
            node._checked_at = _Releases.count
