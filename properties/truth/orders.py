"""What a product may lose where its factors meet in another order than the record's.

A product of m factors a_i is m - 1 roundings in every order. One that forms the partial product
p gives p (1 + d) + h with |d| <= u and |h| <= eta, and h = 0 unless p is subnormal. The factors
that come later multiply h, so that it moves the product by

    eta prod |a_i| over these <= eta W,      W = prod max(1, |a_i|) over all,

and (m - 1) eta W covers every order. The d are the record's own k u |v|. Where no product of some
of the factors is subnormal, no h is; nothing is granted then. `Format.low` leaves 2^22 between:
a factor that is itself off by so much that p becomes subnormal has moved the product by more than
2^20 eta W already, which is in the bound. A sum of products counts term by term: where terms
cancel to something subnormal, u |term| is more than eta W.

W is taken within one operation of the declared class, whose forms multiply these factors; values
between operations are the record's own entries, rounded there with their eta.

In the reverse pass an operation hands contributions to the adjoints of its inputs. A contribution
to the adjoint of v is multiplied by dv/d leaf on its way into the gradient of a leaf, whichever
program goes there: what it may lose is stated at v, in the forward part of the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from logitproof.properties.scalar.forward import Block, Head, Norm, Row, Weights

from .recording import Record, Recorded

__all__ = ["grant_forward_orders", "reverse_losses"]

Array: TypeAlias = NDArray[np.float64]
Loss: TypeAlias = tuple[Recorded, float]  # at an entry, so many eta


def grant_forward_orders(record: Record, rows: Sequence[Row], weights: Weights, low: float) -> None:
    """Widens the values of norm, attention and SwiGLU by what another order may lose.

    low: log2 of the size that partial products must keep for nothing to be lost
    """
    with np.errstate(all="ignore"):  # log 0 is below all; an infinite bound decides nothing
        for row in rows:
            _grant_row(record, row, weights, low)


def reverse_losses(
    rows: Sequence[Row], weights: Weights, slopes: Array, low: float
) -> dict[int, float]:
    """Entry -> how many eta the contributions to its adjoint may lose in another order.

    slopes: d loss / d entry, which the reverse pass multiplies by
    """
    found: dict[int, float] = {}
    with np.errstate(all="ignore"):
        losses = [loss for row in rows for loss in _reverse(row, weights, slopes, low)]
    for entry, lost in losses:
        if lost and entry.index >= 0:
            found[entry.index] = found.get(entry.index, 0.0) + float(lost)
    return found


def _grant_row(record: Record, row: Row, weights: Weights, low: float) -> None:
    for norm, gain in _norms(row, weights):
        for cell, r, out in zip(norm.x, norm.inverse, norm.out, strict=True):
            _grant(record, out, _lost(low, _logs(cell), _logs([r]), _logs(gain)))
    for block in row.blocks:
        for gate, s, up, out in zip(
            block.gate, block.sigmoid, block.up, block.product, strict=True
        ):
            _grant(record, out, _lost(low, _logs(gate), _logs(s), _logs(up)))
        for head in block.heads:
            _grant_scores(record, row, head, low)


def _reverse(row: Row, weights: Weights, slopes: Array, low: float) -> Iterator[Loss]:
    for norm, gain in _norms(row, weights):
        yield from _norm(norm, gain, slopes, low)
    for block in row.blocks:
        yield from _swiglu(block, slopes, low)
        for head in block.heads:
            yield from _attention(row, head, slopes, low)


def _norms(row: Row, weights: Weights) -> Iterator[tuple[Norm, list[Recorded]]]:
    for block in row.blocks:
        yield block.norm, weights[f"{block.prefix}.attention_norm.gain"][0]
        yield block.ffn_norm, weights[f"{block.prefix}.ffn_norm.gain"][0]
    yield row.final, weights["final_norm.gain"][0]


def _norm(norm: Norm, gain: Sequence[Recorded], slopes: Array, low: float) -> Iterator[Loss]:
    """u x r by the gain; u g r - sum over j of x_i x_j u_j g_j r^3 / D by x_i.

    The class leaves out r^3 without an x beside it: r^3 is subnormal where x is merely large, and
    no program that means to work forms it. So either one r comes later, or x_i or x_j is among
    the factors of p. A half on the way is made up by a two: twice the roundings cover it.
    """
    g = _logs(gain)
    for cell, inverse, out in zip(norm.x, norm.inverse, norm.out, strict=True):
        u, x, r = _adjoints(slopes, out), _logs(cell), _logs([inverse])
        if np.isneginf(u).all():  # no loss comes from here
            continue
        yield from zip(gain, _lost(low, u, x, r), strict=True)
        own = _lost(low, u, g, r)
        rest = 3 * _over(r) + _over(u) + _over(g)
        among = rest + np.maximum(_over(x)[:, None], _over(x))  # x_i or x_j came earlier
        later = rest - _over(r) + r + _over(x)[:, None] + _over(x)
        least = _under(x)[:, None] + _under(x) + _under(u) + _under(g) + 3 * _under(r)
        least = least - np.log2(len(cell))
        lost = np.where(least < low, 2.0 * 7 * np.exp2(np.maximum(among, later)), 0.0)
        yield from zip(cell, own + lost.sum(axis=1), strict=True)


def _swiglu(block: Block, slopes: Array, low: float) -> Iterator[Loss]:
    """d up s (1 + x (1 - s)) by the gate x, in every expansion; d x s by up."""
    for gate, sigmoid, up, out in zip(
        block.gate, block.sigmoid, block.up, block.product, strict=True
    ):
        d, x, s, y = _adjoints(slopes, out), _logs(gate), _logs(sigmoid), _logs(up)
        rest = _log(np.array([float(1 - v.value) for v in sigmoid]))
        terms = ((d, y, s), (d, y, s, x), (d, y, s, x, s), (d, y, s, x, rest))
        lost = np.sum([_lost(low, *term) for term in terms], axis=0)
        yield from zip(gate, lost, strict=True)
        yield from zip(up, _lost(low, d, x, s), strict=True)


def _grant_scores(record: Record, row: Row, head: Head, low: float) -> None:
    """q k / sqrt(d_h): a score off by e moves a probability by at most 2 e p."""
    root = _root(head)
    for t, (q, start) in enumerate(zip(head.query, row.cells.starts, strict=True)):
        probabilities = head.probabilities[t]
        keys = head.key[start : start + len(probabilities)]
        lost = max((float(_lost(low, _logs(q), _logs(k), root).sum()) for k in keys), default=0.0)
        _grant(record, probabilities, np.array([2.0 * lost * abs(p.near) for p in probabilities]))


def _attention(row: Row, head: Head, slopes: Array, low: float) -> Iterator[Loss]:
    """s = p (u - sum p u) / sqrt(d_h) by a score q k, so s k by q and s q by k.

    The root stands on either side of the product with k or q.
    """
    root = _root(head)
    for t, (query, start) in enumerate(zip(head.query, row.cells.starts, strict=True)):
        probabilities = head.probabilities[t]
        if not probabilities:
            continue
        u, p = _adjoints(slopes, probabilities), _logs(probabilities)
        if np.isneginf(u).all():
            continue
        lost = _lost(low, p, u, root) + _lost(low, p[:, None], p, u, root).sum(axis=1)
        plain, upstream = np.exp2(p), _slopes(slopes, probabilities)
        s = _log(plain * (upstream - plain @ upstream))
        q = np.array([x.near for x in query])
        for j, key in enumerate(head.key[start : start + len(probabilities)]):
            k = np.array([x.near for x in key])
            yield from zip(
                query, lost[j] * np.abs(k) + _lost(low, s[j], _log(k), root), strict=True
            )
            yield from zip(key, lost[j] * np.abs(q) + _lost(low, s[j], _log(q), root), strict=True)


def _root(head: Head) -> Array:
    return np.array([-0.5 * np.log2(len(head.query[0]))])


def _lost(low: float, *factors: Array) -> Array:
    """(m - 1) W, cell by cell, from the factors' log2; 0 where nothing is subnormal."""
    least, most = np.zeros(()), np.zeros(())
    for factor in factors:
        least, most = least + _under(factor), most + _over(factor)
    return np.where(least < low, (len(factors) - 1) * np.exp2(most), 0.0)


def _over(logs: Array) -> Array:
    return np.maximum(logs, 0.0)


def _under(logs: Array) -> Array:
    return np.minimum(logs, 0.0)


def _log(x: Array) -> Array:
    return np.asarray(np.log2(np.abs(x)))


def _logs(numbers: Sequence[Recorded]) -> Array:
    """log2 of sizes; of a zero that was given, NaN, below nothing: no product with it rounds."""
    logs = _log(np.array([x.near for x in numbers]))
    for place in np.flatnonzero(np.isneginf(logs)).tolist():
        if numbers[place].is_given:
            logs[place] = np.nan
    return logs


def _slopes(slopes: Array, entries: Sequence[Recorded]) -> Array:
    return np.array([slopes[x.index] if x.index >= 0 else 0.0 for x in entries])


def _adjoints(slopes: Array, entries: Sequence[Recorded]) -> Array:
    return _log(_slopes(slopes, entries))


def _grant(record: Record, entries: Sequence[Recorded], lost: Array) -> None:
    for entry, count in zip(entries, lost.tolist(), strict=True):
        if count and entry.index >= 0:
            record.counts[entry.index] += count
