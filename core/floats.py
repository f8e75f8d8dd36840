"""Where bits are decided: ordered sums, ordered contractions, correctly rounded functions.

Every result depends on IEEE 754 alone: one rounding per written operation, terms added one
at a time in ascending index order from +0.0, nothing fused and nothing reassociated. The
memory layout, the rows beside a row, the processor's vector units and numpy's version
change no bit.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .rounded import cos, exp, log, log1p, pow, sin

__all__ = [
    "Array",
    "Ids",
    "clean_zeros",
    "contract",
    "contract_steps",
    "contraction_is_ordered",
    "cos",
    "exp",
    "is_finite",
    "log",
    "log1p",
    "mean",
    "pow",
    "running",
    "scatter_add",
    "sin",
    "total",
    "unbroadcast",
    "weighted_rows",
]

Array: TypeAlias = npt.NDArray[np.float64]
Ids: TypeAlias = npt.NDArray[np.int64]

# Shapes of the self-check: one row, odd tails beside the vector width, long inner axes.
CHECKED_SHAPES = ((1, 3, 2), (2, 17, 3), (5, 64, 33), (16, 16, 16), (3, 129, 8))
# Below this many scattered scalars the two-dimensional scatter costs less than the flat one.
FLAT_SCATTER_SCALARS = 300


def is_finite(values: Array) -> bool:
    """True where no value is NaN or infinite."""
    return bool(np.isfinite(values).all())


def clean_zeros(values: Array) -> Array:
    """The values with every -0.0 replaced by +0.0 (the specification's pz)."""
    return values + 0.0


def running(values: Array, *, axis: int) -> Array:
    """The partial sums along `axis`, ascending, without the leading +0.0."""
    return np.add.accumulate(values, axis=axis)


def total(values: Array, *, axis: int, keep: bool = False) -> Array:
    """t = +0.0; for i ascending: t = t + x_i, along `axis`; +0.0 over an empty axis.

    axis: not negative. The running sum starts at x_0; the last addition of +0.0 gives the bits
    of a start at +0.0, for no other sum of the two ends in -0.0.
    """
    if values.shape[axis] == 0:
        result = np.zeros([1 if i == axis else n for i, n in enumerate(values.shape)])
    else:
        result = running(values, axis=axis)[(*(slice(None),) * axis, slice(-1, None))] + 0.0
    return result if keep else result.squeeze(axis)


def mean(values: Array, *, axis: int, keep: bool = False) -> Array:
    """`total` along a non-empty axis, then one division by its length."""
    return total(values, axis=axis, keep=keep) / float(values.shape[axis])


def unbroadcast(upstream: Array, shape: tuple[int, ...]) -> Array:
    """The sum of `upstream` over what broadcasting repeated, in row-major order.

    r = +0.0; walk upstream row-major: r[mapped cell] += value. Equal shapes add to +0.0 too.
    Source: numerics_vjp.md section 2.
    """
    padding = upstream.ndim - len(shape)
    reduced = [
        axis
        for axis, size in enumerate(upstream.shape)
        if axis < padding or (shape[axis - padding] == 1 and size != 1)
    ]
    if not reduced:
        return upstream + 0.0
    kept = [axis for axis in range(upstream.ndim) if axis not in reduced]
    repeats = 1
    for axis in reduced:
        repeats *= upstream.shape[axis]
    lead = upstream.transpose(*reduced, *kept).reshape(
        repeats, *(upstream.shape[axis] for axis in kept)
    )
    return total(lead, axis=0).reshape(shape)


def scatter_add(rows: Array, *, indices: Ids, count: int) -> Array:
    """A zero table of `count` rows with rows[p] added to row indices[p], p ascending.

    rows: [n, D]; indices: [n], each below `count`. Returns: [count, D]
    Source: numerics_vjp.md section 3, gather.
    """
    width = rows.shape[1]
    table = np.zeros((count, width))
    if rows.size < FLAT_SCATTER_SCALARS:
        np.add.at(table, indices, rows)
    else:
        cells = indices[:, None] * width + np.arange(width)
        np.add.at(table.reshape(-1), cells.reshape(-1), rows.reshape(-1))
    return table


def contract(left: Array, right: Array) -> Array:
    """out[..., r, c] = sum over k ascending, from +0.0, of left[..., r, k] * right[..., k, c].

    left: [..., R, K]; right: [..., K, C], batch axes broadcast. Returns: [..., R, C]
    Source: numerics.md section 4.
    """
    R, K, C = left.shape[-2], left.shape[-1], right.shape[-1]
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    if 0 in (*batch, R, K, C):
        return np.zeros((*batch, R, C))
    if right.ndim == 2:  # one matrix for all rows: rows do not see each other
        flat = _contract_matrix(left.reshape(-1, K), right)
        return flat.reshape(*left.shape[:-1], C)
    lefts = np.broadcast_to(left, (*batch, R, K)).reshape(-1, R, K)
    rights = np.broadcast_to(right, (*batch, K, C)).reshape(-1, K, C)
    if len(lefts) > K or not contraction_is_ordered():
        return contract_steps(lefts, rights).reshape(*batch, R, C)
    out = np.empty((len(lefts), R, C))
    for lane in range(len(lefts)):
        out[lane] = _contract_matrix(lefts[lane], rights[lane])
    return out.reshape(*batch, R, C)


def _contract_matrix(left: Array, right: Array) -> Array:
    """[R, K] x [K, C], by einsum where this process's einsum keeps the order."""
    if right.shape[1] == 1:  # a single column would be summed pairwise: give it a neighbour
        widened = np.zeros((right.shape[0], 2))
        widened[:, :1] = right
        return _contract_matrix(left, widened)[:, :1].copy()  # the neighbour goes
    if not contraction_is_ordered():
        return contract_steps(left, right)
    return _einsum(left, right)


def _einsum(left: Array, right: Array) -> Array:
    product: Array = np.einsum("ik,kj->ij", np.ascontiguousarray(left), np.ascontiguousarray(right))
    return product + 0.0


def weighted_rows(weights: Array, rows: Array) -> Array:
    """out[h, d] = sum over j ascending, from +0.0, of weights[h, j] * rows[h, j, d].

    weights: [H, J]; rows: [H, at least J, D], not copied. Returns: [H, D]
    Source:  numerics.md section 14
    """
    J = weights.shape[1]
    out = np.zeros((rows.shape[0], rows.shape[2]))
    for h in range(len(out) if J else 0):
        out[h] = _contract_matrix(weights[h : h + 1], rows[h, :J])[0]
    return out


def contract_steps(left: Array, right: Array) -> Array:
    """`contract` by its definition: one rounded product and one rounded sum per step k.

    Operands may be views of any layout; nothing is copied.
    """
    out = np.zeros((*left.shape[:-1], right.shape[-1]))
    product = np.empty_like(out)
    for k in range(left.shape[-1]):
        np.multiply(left[..., k, None], right[..., k, None, :], out=product)
        out += product
    return out


@cache
def contraction_is_ordered() -> bool:
    """True where this process's einsum neither fuses nor reorders, tried once.

    A fused multiply-add or another order changes the last bits of most of these sums; on
    such a machine every contraction takes the steps above.
    """
    return all(_einsum_keeps_order(*shape) for shape in CHECKED_SHAPES)


def _einsum_keeps_order(R: int, K: int, C: int) -> bool:
    left, right = _mixed_signs(R, K), _mixed_signs(K, C)
    return _einsum(left, right).tobytes() == contract_steps(left, right).tobytes()


def _mixed_signs(rows: int, columns: int) -> Array:
    """Full-length mantissas of both signs from a multiplicative hash."""
    words = np.arange(1, rows * columns + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (words.astype(np.float64) * 2.0**-63 - 1.0).reshape(rows, columns)
