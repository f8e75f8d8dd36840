"""One reverse pass over a graph: everything is checked and computed before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np

from .arrays import as_float64, as_values, first_non_finite, sealed
from .errors import Code, NumericRefusal, ShapeRefusal, StateRefusal, check_equal
from .floats import Array, is_finite
from .kernels import OutOfRange
from .trace import TraceEdge, TraceNode
from .vjp import quiet_pass

if TYPE_CHECKING:
    from .tape import Parameter, Tensor

__all__ = ["ReversePass", "topology"]


def topology(output: Tensor) -> list[Tensor]:
    """Depth-first post-order, parents in operand order, every node once."""
    order: list[Tensor] = []
    seen = {output}  # nodes are equal only to themselves
    open_nodes = [output]
    waiting = [iter(output._parents)]  # of each open node
    while waiting:
        for node in waiting[-1]:
            if node in seen:
                continue
            seen.add(node)
            if node._parents:
                open_nodes.append(node)
                waiting.append(iter(node._parents))
                break
            order.append(node)
        else:  # all above the newest open node are in order
            order.append(open_nodes.pop())
            waiting.pop()
    return order


class ReversePass:
    """One reverse pass: every adjoint is computed and checked here, none written."""

    def __init__(self, output: Tensor, seed: object, edges: list[TraceEdge] | None = None) -> None:
        _check_output(output, seed)
        self.topology = topology(output)
        for node in self.topology:
            if node._released:
                raise _graph_released(node._vjp or node.op)  # of a fused node its first step
        self.seed = _checked_seed(output, seed)
        self._check_revisions()
        self.adjoints: dict[int, Array] = {id(output): self.seed}
        self._edges = edges
        self._unlooked: set[int] = set()  # nodes to which fused ones have delivered
        self._has_fused = False
        self._walk()

    @cached_property
    def _index(self) -> dict[int, int]:
        """The place of every node in the topology, for refusals and traces."""
        return {id(node): i for i, node in enumerate(self.topology)}

    def _check_revisions(self) -> None:
        """Refuses: binding/stale-operand-value (nodes from last to first, operands ascending)"""
        for node in reversed(self.topology):
            now = tuple([parent._revision for parent in node._parents])
            if node._read_revisions != now:
                self._refuse_stale(node, now)

    def _refuse_stale(self, node: Tensor, now: tuple[int, ...]) -> None:
        operand = [a != b for a, b in zip(node._read_revisions, now, strict=True)].index(True)
        check_equal(
            Code.STALE_OPERAND_VALUE,
            node.op,
            node._read_revisions[operand],
            now[operand],
            child=self._index[id(node)],
            parent=self._index[id(node._parents[operand])],
            operand=operand,
        )

    def _walk(self) -> None:
        with quiet_pass():
            for reverse_index, child in enumerate(reversed(self.topology)):
                upstream = self.adjoints.get(id(child))
                if upstream is None or not child._parents:
                    continue
                if self._edges is None and getattr(child._vjp, "steps", None) is not None:
                    self._visit_fused(child, upstream)
                    continue
                if id(child) in self._unlooked and not is_finite(upstream):
                    raise OutOfRange
                self._visit(child, upstream, reverse_index)

    def _visit_fused(self, child: Tensor, upstream: Array) -> None:
        """The contributions of a fused node, delivered without a look at each.

        What is not finite stays so in every sum, and in all that fused rules make of it: it is
        found where an ordinary node reads it, or in a parameter's gradient, and then the steps
        are walked in place of the fused nodes. What nothing tracks is looked at here.
        A parameter's only contribution is taken as it is: the stored gradient, which is no
        -0.0, gives both zeros one sum.
        """
        adjoints = self.adjoints
        self._has_fused = True
        if child._vjp.add_to is not None and id(child._parents[0]) in adjoints:
            child._vjp.add_to(adjoints[id(child._parents[0])], upstream)
            return
        for parent, contribution in zip(child._parents, child._vjp.rule(upstream), strict=True):
            key = id(parent)
            previous = adjoints.get(key)
            if previous is None and parent.is_parameter:
                adjoints[key] = contribution
            elif not parent.tracked:
                if not is_finite(contribution):
                    raise OutOfRange
            elif previous is not None and key in self._unlooked:  # an array of this pass alone
                np.add(previous, contribution, out=previous)
            else:
                before = 0.0 if previous is None else previous
                adjoints[key] = np.asarray(before + contribution)
                self._unlooked.add(key)

    def _visit(self, child: Tensor, upstream: Array, reverse_index: int) -> None:
        """Every contribution of one node, checked and delivered, operands ascending."""
        adjoints, parents = self.adjoints, child._parents
        for operand, contribution in enumerate(_contributions(child, upstream)):
            parent = parents[operand]
            if not is_finite(contribution):
                self._refuse_contribution(contribution, child, parent, operand)
            before = adjoints.get(id(parent)) if self._edges is not None else None
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
                        upstream=_copied(upstream),
                        contribution=_copied(contribution),
                        parent_tracked=parent.tracked,
                        adjoint_before=_before(before, parent),
                        adjoint_after=_copied(adjoints[id(parent)]) if parent.tracked else None,
                    )
                )

    def _refuse_contribution(
        self, contribution: Array, child: Tensor, parent: Tensor, operand: int
    ) -> None:
        at, value = cast("tuple[int, float]", first_non_finite(contribution))
        raise NumericRefusal(
            code=Code.NON_FINITE_VJP,
            what=child.op,
            at=at,
            value=value,
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
            first = contribution + 0.0
            self.adjoints[id(parent)] = first if first.ndim else np.asarray(first)
            return
        after = np.asarray(previous + contribution)
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
        """Every parameter in topology order with its prospective gradient.

        Refuses: numeric/non-finite-accumulated-gradient
        """
        adjoints = self.adjoints
        parameters = cast("list[Parameter]", [node for node in self.topology if node.is_parameter])
        with np.errstate(all="ignore"):
            return [
                (p, self._sum(p, adjoints[id(p)]) if id(p) in adjoints else p._gradient)
                for p in parameters
            ]

    def _sum(self, node: Parameter, adjoint: Array) -> Array:
        """The stored gradient and the pass's, where that has fused nodes in the latter's storage.

        Nobody else has it; of a sum that overflows the steps tell both terms.
        Refuses: numeric/non-finite-accumulated-gradient
        """
        if self._has_fused and adjoint.base is None:
            np.add(node._gradient, adjoint, out=adjoint)
            if not is_finite(adjoint):
                raise OutOfRange
            return adjoint
        after = np.asarray(node._gradient + adjoint)
        if not is_finite(after):
            self._refuse_accumulated(after, node, adjoint)
        return after

    def _refuse_accumulated(self, after: Array, node: Parameter, adjoint: Array) -> None:
        at, value = cast("tuple[int, float]", first_non_finite(after))
        raise NumericRefusal(
            code=Code.NON_FINITE_ACCUMULATED_GRADIENT,
            what=node.name,
            at=at,
            value=value,
            details={
                "node": self._index[id(node)],
                "stored": float(node._gradient.reshape(-1)[at]),
                "pass_adjoint": float(adjoint.reshape(-1)[at]),
            },
        )

    def commit(self) -> None:
        """Write every gradient.

        Refuses: numeric/non-finite-accumulated-gradient, state/gradient-borrowed, and then
            writes none
        """
        gradients = self._accumulated()
        for parameter, _ in gradients:
            parameter.check_gradient_free()
        for parameter, gradient in gradients:
            parameter.commit_gradient(gradient)

    def described(self) -> tuple[TraceNode, ...]:
        """The nodes in topology order, as a trace shows them."""
        return tuple(
            TraceNode(
                index=index,
                op=node.op,
                shape=node.shape,
                tracked=node.tracked,
                parameter=cast("Parameter", node).name if node.is_parameter else None,
                adjoint=_copied_if(self.adjoints.get(id(node))),
                gradient=cast("Parameter", node).gradient if node.is_parameter else None,
            )
            for index, node in enumerate(self.topology)
        )


def _copied(array: Array) -> Array:
    copy: Array = sealed(array.copy())
    return copy


def _copied_if(array: Array | None) -> Array | None:
    return None if array is None else _copied(array)


def _before(before: Array | None, parent: Tensor) -> Array | None:
    """The adjoint a tracked parent had: zeros before the first arrival."""
    if not parent.tracked:
        return None
    return _copied(np.zeros(parent.shape) if before is None else before)


def _contributions(child: Tensor, upstream: Array) -> list[Array]:
    """One contribution per operand, of its shape; a user's own rule may not keep to that.

    Refuses: numeric/not-real, shape/contribution-mismatch
    """
    contributions = []
    for part in child._vjp(upstream):
        if type(part) is not np.ndarray or part.dtype != np.float64:
            part = as_float64(np.asarray(part), what=f"{child.op} contribution")
        contributions.append(part)
    parents = child._parents
    fits = len(contributions) == len(parents)
    for part, parent in zip(contributions, parents, strict=False):
        fits = fits and part.shape == parent._value.shape
    if not fits:
        shapes, wanted = [p.shape for p in contributions], [p.shape for p in parents]
        check_equal(Code.CONTRIBUTION_MISMATCH, child.op, wanted, shapes)
    return contributions


def _evidence(child: Tensor, operand: int) -> Mapping[str, object]:
    saved = getattr(child._vjp, "saved", ())
    evidence = saved[operand] if operand < len(saved) else {}
    copies = {
        name: sealed(fact.copy()) if isinstance(fact, np.ndarray) else fact
        for name, fact in evidence.items()
    }
    return MappingProxyType(copies)


def _graph_released(op: str) -> StateRefusal:
    return StateRefusal(
        code=Code.GRAPH_RELEASED,
        what=op,
        expected="a live graph",
        actual="released",
        details={"op": op},
    )


def _check_output(output: Tensor, seed: object) -> None:
    """Refuses: state/graph-released, state/untracked-output, shape/seed-shape-mismatch"""
    if output._released:
        raise _graph_released(output.op)
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
    """Refuses: shape/ragged-ids, numeric/not-real, shape/seed-shape-mismatch,
    numeric/non-finite-seed
    """
    if seed is None:
        return np.ones(())
    values = as_values(seed, what="seed")
    check_equal(Code.SEED_SHAPE_MISMATCH, output.op, output.shape, values.shape)
    bad = first_non_finite(values)
    if bad is not None:
        raise NumericRefusal(code=Code.NON_FINITE_SEED, what="seed", at=bad[0], value=bad[1])
    return values
