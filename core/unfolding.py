"""Reverse passes over graphs with fused nodes: the short way, and the steps where it must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .backward import ReversePass, topology
from .errors import Refusal
from .floats import Array, is_finite
from .kernels import OutOfRange
from .trace import TraceEdge

if TYPE_CHECKING:
    from .tape import Tensor

__all__ = ["committed", "pull_back", "unfolded"]


def committed(output: Tensor, seed: object, edges: list[TraceEdge] | None = None) -> ReversePass:
    """A pass that has written every gradient; with edges over the steps of fused nodes.

    What a fused node refuses, or cannot vouch for, the steps decide: a refusal names the
    operation, the operand and the indices of the composed graph.
    Refuses: as `Tensor.backward`
    """
    if edges is not None:
        return _commit(ReversePass(_shown(output), seed, edges))
    try:
        return _commit(ReversePass(output, seed))
    except (OutOfRange, Refusal):
        steps = _shown(output)
        if steps is output:
            raise
    return _commit(ReversePass(steps, seed))


def pull_back(output: Tensor, upstream: Array, sources: Sequence[Tensor]) -> tuple[Array, ...]:
    """The adjoints of `sources` in one local pass from +0.0 that writes no gradient.

    Refuses: as `Tensor.backward` up to its commit
    """
    try:
        found = _adjoints(ReversePass(output, upstream), sources)
        if all(map(is_finite, found)):
            return found
    except (OutOfRange, Refusal):
        pass
    return _adjoints(ReversePass(_shown(output), upstream), sources)


def _adjoints(done: ReversePass, sources: Sequence[Tensor]) -> tuple[Array, ...]:
    return tuple(
        np.zeros(source.shape) if adjoint is None else adjoint
        for source, adjoint in ((s, done.adjoints.get(id(s))) for s in sources)
    )


def _commit(done: ReversePass) -> ReversePass:
    done.commit()
    return done


def _shown(output: Tensor) -> Tensor:
    """`unfolded`, or the output itself where the steps cannot be made any more.

    A graph with a released node is refused before its steps are needed; one whose parameter
    was assigned since may refuse to be computed again.
    """
    try:
        return unfolded(output)
    except Refusal:
        return output


def unfolded(output: Tensor) -> Tensor:
    """The output of the same graph with the steps of every fused node in its place.

    Leaves are the same nodes, and every edge keeps the revision that was read. A graph without
    fused nodes, or with a released one, is returned as it is.
    Refuses: what a step refuses, for values other than those it had
    """
    order = topology(output)
    if any(node._released for node in order):
        return output
    twins: dict[int, Tensor] = {}
    for node in order:
        parents = tuple([twins[id(parent)] for parent in node._parents])
        steps = getattr(node._vjp, "steps", None)
        if steps is not None:
            twins[id(node)] = steps(*parents)
            _keep_revisions(twins[id(node)], dict(zip(parents, node._read_revisions, strict=True)))
        elif all(a is b for a, b in zip(parents, node._parents, strict=True)):
            twins[id(node)] = node
        else:
            twins[id(node)] = _over(parents, node)
    return twins[id(output)]


def _over(parents: tuple[Tensor, ...], node: Tensor) -> Tensor:
    """The node over other parents, which have the same values."""
    twin = type(node)(node._value, node.op, tracked=node.tracked)
    twin._parents, twin._read_revisions, twin._vjp = parents, node._read_revisions, node._vjp
    return twin


def _keep_revisions(output: Tensor, read: dict[Tensor, int]) -> None:
    """The edges of the steps from `output` up to the operands say what the fused node read."""
    waiting, seen = [output], set(map(id, read))
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        node._read_revisions = tuple(
            read.get(parent, revision)
            for parent, revision in zip(node._parents, node._read_revisions, strict=True)
        )
        waiting.extend(node._parents)
