"""Faults of nodes, contexts and reverse passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from logitproof.core import backward, floats, ops, retained, tape
from logitproof.core.backbone import DecoderBackbone
from logitproof.core.backward import ReversePass
from logitproof.core.floats import Array
from logitproof.core.tape import Context, Parameter, Tensor

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")


@mistake((ReversePass, "_deliver"), source="cases: ad-reused-node")
def reused_node_overwrites(right: Any) -> Any:
    """The last use of a node decides its gradient."""

    def deliver(self: Any, contribution: Array, parent: Tensor) -> None:
        self.adjoints.pop(id(parent), None)
        right(self, contribution, parent)

    return deliver


@mistake((backward, "topology"), source="cases: ad-reused-node")
def walk_before_all_children(right: Any) -> Any:
    """Nodes are visited in the order of discovery, some before all of their uses."""

    def topology(output: Tensor) -> list[Tensor]:
        order: list[Tensor] = []
        waiting = [output]
        while waiting:
            node = waiting.pop(0)
            if not any(node is other for other in order):
                order.append(node)
                waiting.extend(node._parents)
        return order[::-1]

    return topology


@mistake((backward, "_checked_seed"), source="numerics_vjp.md section 1")
def seed_taken_for_ones(right: Any) -> Any:
    """A pass starts from ones, whatever the seed."""
    return lambda output, seed: np.ones_like(right(output, seed))


@mistake((tape, "_release"), source="tape.md section 5")
def release_forgets_nothing(_: Any) -> Any:
    """retain=False keeps the graph."""
    return lambda nodes: None


@mistake((tape, "_release"), source="tape.md section 5")
def release_keeps_inner_nodes(right: Any) -> Any:
    """retain=False releases the output alone."""
    return lambda nodes: right(nodes[-1:])


@mistake((Context, "apply"), source="cases: ad-mode-restore")
def no_grad_records(right: Any) -> Any:
    """A context that does not record records all the same."""
    recording = Context(recording=True)
    return lambda self, op, *tensors, **given: right(recording, op, *tensors, **given)


@mistake((Tensor, "backward_with_trace"), source="tape.md section 5")
def traced_graph_kept(right: Any) -> Any:
    """A traced pass keeps its graph, whatever it is told."""

    def backward_with_trace(self: Tensor, seed: object = None, *, retain: bool = True) -> Any:
        return replace(right(self, seed), retain=retain)

    return backward_with_trace


@mistake((Tensor, "detach"), source="tape.md section 1")
def detached_parameter_tracked(right: Any) -> Any:
    """A detached parameter is tracked, as parameters are."""

    def detach(self: Tensor) -> Tensor:
        cut: Tensor = right(self)
        cut.tracked = self.is_parameter
        return cut

    return detach


@mistake((Tensor, "detach"), source="tape.md section 1")
def detach_keeps_graph(_: Any) -> Any:
    """Detaching gives the node itself."""
    return lambda self: self


@mistake((ReversePass, "_check_revisions"), source="tape.md section 2")
def stale_operand_accepted(_: Any) -> Any:
    """A pass mixes values from before and after an assignment."""
    return lambda self: None


@mistake((Parameter, "assign"), source="tape.md section 2")
def assign_keeps_revision(right: Any) -> Any:
    """An assignment of the same value is no new revision."""

    def assign(self: Parameter, array: object) -> None:
        before = self.value.tobytes()
        right(self, array)
        if self.value.tobytes() == before:
            self._revision -= 1

    return assign


@mistake((Parameter, "assign"), source="tape.md section 2")
def assign_while_read(right: Any) -> Any:
    """Readers do not keep a value from being assigned."""

    def assign(self: Parameter, array: object) -> None:
        readers, self._readers = self._readers, 0
        try:
            right(self, array)
        finally:
            self._readers = readers

    return assign


@mistake((Parameter, "check_gradient_free"), source="tape.md section 2")
def gradient_written_while_read(_: Any) -> Any:
    """Readers do not keep a gradient from being written."""
    return lambda self: None


@mistake((ReversePass, "_refuse_contribution"), source="numerics_vjp.md section 1")
def untracked_slopes_unseen(right: Any) -> Any:
    """A slope that overflows toward what is not tracked is dropped without a look."""

    def refuse(self: Any, contribution: Array, child: Tensor, parent: Tensor, operand: int) -> None:
        if parent.tracked:
            right(self, contribution, child, parent, operand)

    return refuse


@mistake((Parameter, "hold"), (Parameter, "let_go"), source="tape.md section 2")
def one_reader_closes_all(_: Any, __: Any) -> Any:
    """The end of one reader is the end of all."""

    def hold(self: Parameter) -> None:
        self._readers = 0 if self._readers else 1

    def let_go(self: Parameter) -> None:
        self._readers = 0

    return hold, let_go


@mistake((Parameter, "reading_gradient"), source="tape.md section 2")
def gradient_reader_closes_all(_: Any) -> Any:
    """The end of one reader of a gradient is the end of all."""

    @contextmanager
    def reading_gradient(self: Parameter) -> Iterator[Array]:
        self._gradient_readers = 1
        yield self._gradient.view()
        self._gradient_readers = 0

    return reading_gradient


@mistake((Parameter, "reading_gradient"), source="tape.md section 2")
def gradient_read_as_zeros(right: Any) -> Any:
    """A reader of a gradient is given zeros."""

    @contextmanager
    def reading_gradient(self: Parameter) -> Iterator[Array]:
        with right(self) as gradient:
            yield np.zeros_like(gradient)

    return reading_gradient


@mistake((Parameter, "gradient"), source="STYLE.md section 5")
def gradient_is_live(_: Any) -> Any:
    """The gradient that is read is the one that is stored."""

    def gradient(self: Parameter) -> Array:
        if not self._gradient.flags.writeable:
            self._gradient = self._gradient.copy()
        return self._gradient

    return property(gradient)


@mistake((Parameter, "assign"), source="STYLE.md section 5")
def assigned_array_shared(right: Any) -> Any:
    """An assigned array is kept, not copied."""

    def assign(self: Parameter, array: Any) -> None:
        right(self, array)
        if isinstance(array, np.ndarray) and array.dtype == np.float64:
            self._value = array

    return assign


@mistake((tape, "sealed"), source="STYLE.md section 5")
def value_writable(_: Any) -> Any:
    """Values are handed out writable."""
    return lambda array: array


@mistake((Parameter, "assign"), source="STYLE.md section 1")
def revision_raised_before_check(right: Any) -> Any:
    """An assignment counts before its value is checked."""

    def assign(self: Parameter, array: object) -> None:
        self._revision += 1
        right(self, array)
        self._revision -= 1

    return assign


@mistake((ops, "_evidence"), source="numerics_vjp.md section 4")
def trace_forgets_reduced_axes(right: Any) -> Any:
    """A trace shows no axis along which an operand was repeated."""
    return lambda operand, shape: {**right(operand, shape), "reduced_axes": ()}


@mistake((floats, "unbroadcast"), source="numerics_vjp.md section 2")
def contribution_with_zeros_below(right: Any) -> Any:
    """Where shapes are equal nothing is added up, and -0 stays."""

    def unbroadcast(upstream: Array, shape: tuple[int, ...]) -> Array:
        same = upstream.shape == tuple(shape)
        summed: Array = upstream if same else right(upstream, shape)
        return summed

    return unbroadcast


@mistake((ReversePass, "_deliver"), source="numerics_vjp.md section 1")
def first_arrival_as_it_is(right: Any) -> Any:
    """What arrives first is the adjoint, not added to +0."""

    def deliver(self: Any, contribution: Array, parent: Tensor) -> None:
        if id(parent) in self.adjoints:
            right(self, contribution, parent)
        else:
            self.adjoints[id(parent)] = contribution.copy()

    return deliver


def _shown(right: Any, change: Any) -> Any:
    """Evidence of which one array or number is another."""
    return lambda child, operand: {**right(child, operand), **change(child, right(child, operand))}


@mistake((backward, "_evidence"), source="numerics_vjp.md section 4")
def probabilities_shown_as_logarithms(right: Any) -> Any:
    """A traced log-softmax shows what it gave, not the probabilities that its rule reads."""

    def change(child: Tensor, saved: Any) -> dict[str, Any]:
        return {"probabilities": child.value} if child.op == "log_softmax" else {}

    return _shown(right, change)


@mistake((backward, "_evidence"), source="numerics_vjp.md section 4")
def divisor_shown_as_one(right: Any) -> Any:
    """A traced mean shows the divisor of a sum."""
    return _shown(right, lambda _, saved: {"divisor": 1.0} if "divisor" in saved else {})


@mistake((backward, "_before"), source="tape.md section 5")
def trace_adjoint_before_arrival(right: Any) -> Any:
    """A trace shows zeros before every contribution, not before the first alone."""
    return lambda before, parent: right(None, parent)


@mistake((DecoderBackbone, "forward_recomputed"), source="numerics_vjp.md section 6")
def recomputation_keeps_all(_: Any) -> Any:
    """Recomputation is asked for and everything is kept all the same."""
    return lambda self, prepared: self.forward(prepared)


@mistake((Tensor, "is_same_node"), source="tape.md section 1")
def equal_values_one_node(_: Any) -> Any:
    """Nodes of equal values are one node."""
    return lambda self, other: bool(np.array_equal(self._value, other._value))


@mistake((retained, "_held"), source="numerics_vjp.md section 4")
def closures_not_counted(_: Any) -> Any:
    """Only what a rule shows as saved is counted, not what it closes over."""
    return lambda vjp: iter([a for saved in getattr(vjp, "saved", ()) for a in saved.values()
                             if isinstance(a, np.ndarray)])  # fmt: skip


FAULTS = tuple(_FOUND.values())
