"""The record of one committed backward pass; every value in it is a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import Code, StateRefusal
from .floats import Array

__all__ = ["Trace", "TraceEdge", "TraceNode"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceNode:
    """One ancestor of the output, in topology order."""

    index: int
    op: str
    shape: tuple[int, ...]
    tracked: bool
    parameter: str | None
    adjoint: Array | None
    gradient: Array | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceEdge:
    """One operand use, in visit order: what came down and what it did to the parent."""

    reverse_index: int
    child: int
    parent: int
    operand: int
    saved: Mapping[str, object]
    upstream: Array
    contribution: Array
    parent_tracked: bool
    adjoint_before: Array | None
    adjoint_after: Array | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Seed, retention, nodes and edges of one pass. Source: tape.md section 5"""

    seed: Array
    retain: bool
    nodes: tuple[TraceNode, ...]
    edges: tuple[TraceEdge, ...]

    def adjoint(self, op: str) -> Array:
        """The pass adjoint of the output of the one node with that operation.

        Refuses: state/ambiguous-trace-node (no such node, or several)
        """
        found = [node.adjoint for node in self.nodes if node.op == op]
        if len(found) != 1 or found[0] is None:
            raise StateRefusal(
                code=Code.AMBIGUOUS_TRACE_NODE,
                what=op,
                expected=1,
                actual=len(found),
            )
        return found[0]
