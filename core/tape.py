"""Nodes, contexts and the reverse pass: the tape runs any operation and knows none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .arrays import as_values, first_non_finite, sealed
from .errors import (
    BindingRefusal,
    Code,
    NumericRefusal,
    RecordRefusal,
    ShapeRefusal,
    StateRefusal,
)
from .floats import Array
from .names import check_name
from .trace import Trace, TraceEdge, TraceNode

__all__ = ["NO_GRAD", "RECORDING", "Binding", "Context", "Parameter", "Tensor", "constant"]

Operation: TypeAlias = Callable[..., tuple[Array, Any]]


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
        Refuses: state/graph-released, state/untracked-output, shape/seed-shape-mismatch,
            numeric/non-finite-seed, binding/stale-operand-value, numeric/non-finite-vjp,
            numeric/non-finite-pass-adjoint, numeric/non-finite-accumulated-gradient,
            state/gradient-borrowed (in this order; nothing is changed by a refused call)
        Source:  tape.md section 5, numerics_vjp.md section 1
        """
        _Pass(self, seed).commit(retain=retain)

    def backward_with_trace(self, seed: object = None, *, retain: bool = True) -> Trace:
        """`backward`, with the record of that one committed pass. Refuses: as `backward`."""
        edges: list[TraceEdge] = []
        done = _Pass(self, seed, edges)
        nodes = done.commit(retain=retain)
        return Trace(seed=done.seed.copy(), retain=retain, nodes=nodes, edges=tuple(edges))

    def __repr__(self) -> str:
        return f"<{self.op} {list(self.shape)}{' tracked' if self.tracked else ''}>"


class Parameter(Tensor):
    """A named leaf with a gradient of its shape; the only tensor whose value changes.

    Refuses: record/empty-name, record/empty-name-segment, record/invalid-name-character,
        numeric/not-real, shape/ragged-ids, numeric/non-finite-leaf
    Source:  tape.md sections 1-2, numerics_init.md section 3
    """

    __slots__ = ("_gradient", "_gradient_readers", "_readers", "name")

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
        self._check_gradient_free()
        self._gradient = sealed(np.zeros_like(self._value))

    def assign(self, array: object) -> None:
        """Install a new value of the same shape; the revision grows by one.

        Refuses: state/value-borrowed, numeric/not-real, shape/ragged-ids,
            shape/assign-shape-mismatch, numeric/non-finite-leaf
        Source:  tape.md section 2
        """
        if self._readers:
            raise StateRefusal(
                code=Code.VALUE_BORROWED, what=self.name, expected=0, actual=self._readers
            )
        value = as_values(array, what=self.name)
        if value.shape != self.shape:
            raise ShapeRefusal(
                code=Code.ASSIGN_SHAPE_MISMATCH,
                what=self.name,
                expected=self.shape,
                actual=value.shape,
            )
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
        """Count one reader less."""
        self._readers -= 1

    @contextmanager
    def reading_gradient(self) -> Iterator[Array]:
        """While open, gradient writes are refused; gives the gradient, read-only."""
        self._gradient_readers += 1
        try:
            yield self._gradient.view()
        finally:
            self._gradient_readers -= 1

    def _check_gradient_free(self) -> None:
        if self._gradient_readers:
            raise StateRefusal(
                code=Code.GRADIENT_BORROWED,
                what=self.name,
                expected=0,
                actual=self._gradient_readers,
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        twin = Parameter(self.name, self._value)
        twin._gradient = sealed(self._gradient.copy())
        memo[id(self)] = twin
        return twin


@contextmanager
def reading_all(parameters: Sequence[Parameter]) -> Iterator[None]:
    """`Parameter.reading` of every one of them at once."""
    for parameter in parameters:
        parameter.hold()
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.let_go()


def constant(array: object) -> Tensor:
    """An untracked leaf.

    Refuses: numeric/not-real, shape/ragged-ids, numeric/non-finite-leaf
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

        Refuses: record/field-type (an operand is no tensor), state/released-operand (operands
            ascending), what the operation refuses, numeric/non-finite-forward
        Source:  tape.md section 4
        """
        name: str = getattr(op, "op_name", getattr(op, "__name__", "operation"))
        for operand, tensor in enumerate(tensors):
            _check_operand(tensor, operand, name)
        value, vjp = op(*[tensor._value for tensor in tensors], **arguments)
        bad = first_non_finite(value)
        if bad is not None:
            raise NumericRefusal(
                code=Code.NON_FINITE_FORWARD,
                what=name,
                at=bad[0],
                value=bad[1],
                details={"op": name},
            )
        result = Tensor(value, name)
        if self.recording:
            result._parents = tensors
            result._read_revisions = tuple([tensor._revision for tensor in tensors])
            result._vjp = vjp
            result.tracked = any([tensor.tracked for tensor in tensors])
        return result


RECORDING = Context(recording=True)
NO_GRAD = Context(recording=False)


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
    topology = _topology(output)
    for node in topology:
        if node._released:
            return node
    for node in topology:
        node._checked_at = _Releases.count
    return None


def _topology(output: Tensor) -> list[Tensor]:
    """Depth-first post-order, parents in operand order, every node once."""
    order: list[Tensor] = []
    seen = {id(output)}
    stack = [(output, iter(output._parents))]
    while stack:
        node, parents = stack[-1]
        for parent in parents:
            if id(parent) not in seen:
                seen.add(id(parent))
                stack.append((parent, iter(parent._parents)))
                break
        else:
            order.append(node)
            stack.pop()
    return order


class _Pass:
    """One reverse pass: everything is checked and computed here, and written by `commit`."""

    def __init__(self, output: Tensor, seed: object, edges: list[TraceEdge] | None = None) -> None:
        _check_output(output, seed)
        self.topology = _topology(output)
        for node in self.topology:
            if node._released:
                raise _graph_released(node)
        self.seed = _checked_seed(output, seed)
        self._index = {id(node): i for i, node in enumerate(self.topology)}
        self._check_revisions()
        self.adjoints: dict[int, Array] = {id(output): self.seed}
        self._edges = edges
        self._walk()
        self._gradients = self._accumulated()

    def _check_revisions(self) -> None:
        """Refuses: binding/stale-operand-value (nodes from last to first, operands ascending)"""
        for node in reversed(self.topology):
            for operand, parent in enumerate(node._parents):
                recorded = node._read_revisions[operand]
                if parent._revision != recorded:
                    raise BindingRefusal(
                        code=Code.STALE_OPERAND_VALUE,
                        what=node.op,
                        expected=recorded,
                        actual=parent._revision,
                        details={
                            "child": self._index[id(node)],
                            "parent": self._index[id(parent)],
                            "operand": operand,
                        },
                    )

    def _walk(self) -> None:
        for reverse_index, child in enumerate(reversed(self.topology)):
            upstream = self.adjoints.get(id(child))
            if upstream is None or not child._parents:
                continue
            for operand, contribution in enumerate(child._vjp(upstream)):
                parent = child._parents[operand]
                self._check_contribution(contribution, child, parent, operand)
                before = self.adjoints.get(id(parent)) if parent.tracked else None
                if parent.tracked:
                    self._deliver(contribution, parent)
                if self._edges is not None:
                    self._edges.append(
                        TraceEdge(
                            reverse_index=reverse_index,
                            child=self._index[id(child)],
                            parent=self._index[id(parent)],
                            operand=operand,
                            saved=_evidence(child, operand),
                            upstream=upstream.copy(),
                            contribution=contribution.copy(),
                            parent_tracked=parent.tracked,
                            adjoint_before=_before(before, parent),
                            adjoint_after=(
                                self.adjoints[id(parent)].copy() if parent.tracked else None
                            ),
                        )
                    )

    def _check_contribution(
        self, contribution: Array, child: Tensor, parent: Tensor, operand: int
    ) -> None:
        bad = first_non_finite(contribution)
        if bad is not None:
            raise NumericRefusal(
                code=Code.NON_FINITE_VJP,
                what=child.op,
                at=bad[0],
                value=bad[1],
                details={
                    "child": self._index[id(child)],
                    "parent": self._index[id(parent)],
                    "operand": operand,
                },
            )

    def _deliver(self, contribution: Array, parent: Tensor) -> None:
        """next = previous + contribution, with +0.0 before the first arrival."""
        previous = self.adjoints.get(id(parent))
        if previous is None:
            self.adjoints[id(parent)] = np.asarray(contribution + 0.0)
            return
        after = np.asarray(_plus(previous, contribution))
        bad = first_non_finite(after)
        if bad is not None:
            raise NumericRefusal(
                code=Code.NON_FINITE_PASS_ADJOINT,
                what=parent.op,
                at=bad[0],
                value=bad[1],
                details={
                    "node": self._index[id(parent)],
                    "previous": float(previous.reshape(-1)[bad[0]]),
                    "contribution": float(contribution.reshape(-1)[bad[0]]),
                },
            )
        self.adjoints[id(parent)] = after

    def _accumulated(self) -> list[tuple[Parameter, Array]]:
        """Every parameter in topology order with its prospective gradient."""
        prospective = []
        for index, node in enumerate(self.topology):
            if not isinstance(node, Parameter):
                continue
            adjoint = self.adjoints.get(id(node))
            after = node._gradient if adjoint is None else _plus(node._gradient, adjoint)
            bad = first_non_finite(np.asarray(after))
            if bad is not None and adjoint is not None:
                raise NumericRefusal(
                    code=Code.NON_FINITE_ACCUMULATED_GRADIENT,
                    what=node.name,
                    at=bad[0],
                    value=bad[1],
                    details={
                        "node": index,
                        "stored": float(node._gradient.reshape(-1)[bad[0]]),
                        "pass_adjoint": float(adjoint.reshape(-1)[bad[0]]),
                    },
                )
            prospective.append((node, np.asarray(after)))
        return prospective

    def commit(self, *, retain: bool) -> tuple[TraceNode, ...]:
        """Write every gradient, then release the graph where asked; describe the nodes."""
        for parameter, _ in self._gradients:
            parameter._check_gradient_free()
        for parameter, gradient in self._gradients:
            parameter._gradient = sealed(gradient)
        nodes = self._described() if self._edges is not None else ()
        if not retain:
            _release(self.topology)
        return nodes

    def _described(self) -> tuple[TraceNode, ...]:
        return tuple(
            TraceNode(
                index=index,
                op=node.op,
                shape=node.shape,
                tracked=node.tracked,
                parameter=node.name if isinstance(node, Parameter) else None,
                adjoint=_copied(self.adjoints.get(id(node))),
                gradient=node.gradient if isinstance(node, Parameter) else None,
            )
            for index, node in enumerate(self.topology)
        )


def pull_back(output: Tensor, upstream: Array, sources: Sequence[Tensor]) -> tuple[Array, ...]:
    """The adjoints of `sources` in one local pass from +0.0 that writes no gradient.

    Refuses: as `Tensor.backward` up to its commit
    """
    done = _Pass(output, upstream)
    return tuple(
        np.zeros(source.shape) if adjoint is None else adjoint
        for source, adjoint in ((s, done.adjoints.get(id(s))) for s in sources)
    )


def _copied(array: Array | None) -> Array | None:
    return None if array is None else array.copy()


def _before(before: Array | None, parent: Tensor) -> Array | None:
    """The adjoint a tracked parent had: zeros before the first arrival."""
    if not parent.tracked:
        return None
    return np.zeros(parent.shape) if before is None else before.copy()


def _evidence(child: Tensor, operand: int) -> Mapping[str, object]:
    saved = getattr(child._vjp, "saved", ())
    return dict(saved[operand]) if operand < len(saved) else {}


def _plus(left: Array, right: Array) -> Array:
    with np.errstate(all="ignore"):
        return left + right


def _release(topology: list[Tensor]) -> None:
    """Every operation result loses its edges; leaves stay."""
    _Releases.count += 1
    for node in topology:
        if node._vjp is not None:
            node._parents = ()
            node._read_revisions = ()
            node._vjp = None
            node._released = True
        else:
            node._checked_at = _Releases.count


def _graph_released(node: Tensor) -> StateRefusal:
    return StateRefusal(
        code=Code.GRAPH_RELEASED,
        what=node.op,
        expected="a live graph",
        actual="released",
        details={"op": node.op},
    )


def _check_output(output: Tensor, seed: object) -> None:
    """Refuses: state/graph-released, state/untracked-output, shape/seed-shape-mismatch"""
    if output._released:
        raise _graph_released(output)
    if not output.tracked:
        raise StateRefusal(
            code=Code.UNTRACKED_OUTPUT,
            what=output.op,
            expected="tracked",
            actual="untracked",
            details={"op": output.op},
        )
    if seed is None and output.shape != ():
        raise ShapeRefusal(
            code=Code.SEED_SHAPE_MISMATCH, what=output.op, expected=output.shape, actual=()
        )


def _checked_seed(output: Tensor, seed: object) -> Array:
    """Refuses: numeric/not-real, shape/seed-shape-mismatch, numeric/non-finite-seed"""
    if seed is None:
        return np.ones(())
    values = as_values(seed, what="seed")
    if values.shape != output.shape:
        raise ShapeRefusal(
            code=Code.SEED_SHAPE_MISMATCH,
            what=output.op,
            expected=output.shape,
            actual=values.shape,
        )
    bad = first_non_finite(values)
    if bad is not None:
        raise NumericRefusal(code=Code.NON_FINITE_SEED, what="seed", at=bad[0], value=bad[1])
    return values
