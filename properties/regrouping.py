"""How far two sums of the same terms may lie apart when only their grouping differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from logitproof.core import Trace
from logitproof.core.floats import Array

__all__ = ["gradient_terms", "regrouping_bound"]

UNIT = 2.0**-53


def regrouping_bound(terms: Array, additions: int) -> Array:
    """2 gamma_n sum|terms|: each of two groupings errs by at most gamma_n sum|terms|.

    terms:     sums of the terms' absolute values, one per coordinate
    additions: the most additions that any term takes part in, in either grouping
    Source:    Higham, Accuracy and Stability of Numerical Algorithms, section 4.2; the factor
        1 + 2^-10 covers that `terms` is itself a rounded sum of fewer than 2^40 terms
    """
    gamma = additions * UNIT / (1.0 - additions * UNIT)
    return 2.0 * gamma * (1.0 + 2.0**-10) * np.asarray(terms)


def gradient_terms(trace: Trace) -> Mapping[str, Array]:
    """Per parameter the sums over cells of the absolute terms that its gradient adds up."""
    found: dict[str, Array] = {}
    for name, terms in _terms(trace):
        found[name] = found.get(name, 0.0) + terms
    return found


def _terms(trace: Trace) -> Iterator[tuple[str, Array]]:
    names = {node.index: node.parameter for node in trace.nodes if node.parameter is not None}
    turned = {  # a parameter that is transposed before it is used
        edge.child: names[edge.parent]
        for edge in trace.edges
        if edge.parent in names and trace.nodes[edge.child].op == "transpose"
    }
    for edge in trace.edges:
        op, up = trace.nodes[edge.child].op, np.abs(edge.upstream)
        if edge.parent in names and op == "gather_rows":
            table = np.zeros(trace.nodes[edge.parent].shape)
            indices = np.asarray(edge.saved["indices"])
            np.add.at(table, indices, up.reshape(-1, table.shape[1]))
            yield names[edge.parent], table
        elif edge.parent in names and op == "mul":
            cells = up * np.abs(np.asarray(edge.saved["other"]))
            yield names[edge.parent], cells.reshape(-1, cells.shape[-1]).sum(axis=0)
        elif op == "matmul" and edge.operand == 1 and edge.parent in {*names, *turned}:
            left = np.abs(np.asarray(edge.saved["left"]))
            sums = np.einsum("btk,btc->kc", left, up)
            turn = edge.parent in turned
            yield (turned if turn else names)[edge.parent], sums.T if turn else sums
