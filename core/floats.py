"""Where bits are decided: ordered sums, ordered contractions, correctly rounded functions.

Every result depends on IEEE 754 alone: one rounding per written operation, terms added one
at a time in ascending index order from +0.0, nothing fused and nothing reassociated. The
memory layout, the rows beside a row, the processor's vector units and numpy's version
change no bit.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .rounded import cos, exp, log, log1p, pow, sin

__all__ = [
    "Array",
    "Ids",
    "add_rows",
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
    "reduction_is_ordered",
    "row_dots",
    "row_major",
    "row_products",
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
# From so many terms on a transposed copy and a sum of its rows cost less than running sums.
TRANSPOSED_SUM_TERMS = 256
# A transposed matrix of so many values is copied in strips of so many columns.
STRIPPED_COPY, STRIP = 16_384, 64
# From so many left values on a lane with few columns is contracted the other way round.
TURNED_LANE = 4096
# An operand without dimensions costs an array operation half of what a Python number does.
ZERO = np.array(0.0)
# Up to so many values a scan over Python floats costs less than numpy's calls.
FEW = 24


def is_finite(values: Array) -> bool:
    """True where no value is NaN or infinite."""
    if values.size <= FEW and math.isfinite(sum(values.ravel().tolist())):
        return True  # a sum of finite values may overflow: then the array is looked at
    return bool(np.count_nonzero(np.isfinite(values)) == values.size)


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
        return result if keep else result.squeeze(axis)
    if values.size >= TRANSPOSED_SUM_TERMS and reduction_is_ordered():
        if axis == values.ndim - 1 and values.size >= 8 * values.shape[axis]:
            rows = values.reshape(-1, values.shape[axis])
            result = _sum_of_rows(row_major(rows.T)).reshape(values.shape[:-1])
            return result[..., None] if keep else result
        if axis == 0 and values.size > len(values):
            rows = np.ascontiguousarray(values).reshape(len(values), -1)
            result = _sum_of_rows(rows).reshape(values.shape[1:])
            return result[None] if keep else result
    sums = np.add.accumulate(values, axis=axis)
    if axis == values.ndim - 1:
        result = sums[..., -1:] if keep else sums[..., -1]
    else:
        last = (slice(None),) * axis
        result = sums[(*last, slice(-1, None) if keep else -1)]
    return np.asarray(result + ZERO)


def _sum_of_rows(rows: Array) -> Array:
    """The sum over the first axis of [n, at least 2], C-contiguous: one row after another."""
    result: Array = np.add.reduce(rows, axis=0)
    result += 0.0
    return result


@cache
def reduction_is_ordered() -> bool:
    """True where this process's numpy adds the rows of a matrix one after another, tried once."""
    return all(_reduction_keeps_order(R, K) for R, K, _ in CHECKED_SHAPES if R > 1)


def _reduction_keeps_order(columns: int, terms: int) -> bool:
    rows = _mixed_signs(terms, columns)
    want: Array = running(rows, axis=0)[-1] + 0.0
    return _sum_of_rows(rows).tobytes() == want.tobytes()


def row_major(values: Array) -> Array:
    """The values in C order: themselves where they are so, else a copy.

    A large transposed matrix is copied in strips that the cache holds.
    """
    if values.flags.c_contiguous:
        return values
    if values.ndim != 2 or values.size < STRIPPED_COPY:
        return np.ascontiguousarray(values)
    copy = np.empty(values.shape)
    for start in range(0, values.shape[1], STRIP):
        copy[:, start : start + STRIP] = values[:, start : start + STRIP]
    return copy


def mean(values: Array, *, axis: int, keep: bool = False) -> Array:
    """`total` along a non-empty axis, then one division by its length."""
    return total(values, axis=axis, keep=keep) / float(values.shape[axis])


def unbroadcast(upstream: Array, shape: tuple[int, ...]) -> Array:
    """The sum of `upstream` over what broadcasting repeated, in row-major order.

    r = +0.0; walk upstream row-major: r[mapped cell] += value. Equal shapes add to +0.0 too.
    Source: numerics_vjp.md section 2.
    """
    if upstream.shape == shape:
        return upstream + 0.0
    padding = upstream.ndim - len(shape)
    reduced = [
        axis
        for axis, size in enumerate(upstream.shape)
        if axis < padding or (shape[axis - padding] == 1 and size != 1)
    ]
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
    table = np.zeros((count, rows.shape[1]))
    add_rows(table, rows, indices=indices)
    return table


def add_rows(table: Array, rows: Array, *, indices: Ids) -> None:
    """Adds rows[p] to row indices[p] of the table, in place, p ascending."""
    width = rows.shape[1]
    if rows.size < FLAT_SCATTER_SCALARS or not table.flags.c_contiguous:
        np.add.at(table, indices, rows)
    else:
        cells = indices[:, None] * width + np.arange(width)
        np.add.at(table.reshape(-1), cells.reshape(-1), rows.reshape(-1))


def contract(left: Array, right: Array) -> Array:
    """out[..., r, c] = sum over k ascending, from +0.0, of left[..., r, k] * right[..., k, c].

    left: [..., R, K]; right: [..., K, C], batch axes broadcast. Returns: [..., R, C]
    Source: numerics.md section 4.
    """
    R, K, C = left.shape[-2], left.shape[-1], right.shape[-1]
    if right.ndim == left.ndim == 2 and left.size and right.size:
        return _contract_matrix(left, right)
    if right.ndim == 2 and left.size and right.size:
        # One matrix for all rows: rows do not see each other.
        return _contract_matrix(left.reshape(-1, K), right).reshape(*left.shape[:-1], C)
    batch = left.shape[:-2]
    if batch != right.shape[:-2]:
        batch = np.broadcast_shapes(batch, right.shape[:-2])
        left = np.broadcast_to(left, (*batch, R, K))
        right = np.broadcast_to(right, (*batch, K, C))
    if 0 in (*batch, R, K, C):
        return np.zeros((*batch, R, C))
    lefts, rights = left.reshape(-1, R, K), right.reshape(-1, K, C)
    if len(lefts) == 1:
        return _contract_matrix(lefts[0], rights[0]).reshape(*batch, R, C)
    if C == 1 or not contraction_is_ordered():
        return contract_steps(lefts, rights).reshape(*batch, R, C)
    if 2 * C <= R and R * K >= TURNED_LANE:  # long runs over r cost less than short ones over c
        out = np.empty((len(lefts), R, C))
        for lane in range(len(lefts)):
            out[lane] = _einsum(rights[lane].T, lefts[lane].T).T
        return out.reshape(*batch, R, C)
    return _einsum_lanes(lefts, rights).reshape(*batch, R, C)


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
    product: Array = np.einsum("ik,kj->ij", row_major(left), row_major(right))
    product += ZERO
    return product


def _einsum_lanes(left: Array, right: Array) -> Array:
    product: Array = np.einsum(
        "nik,nkj->nij", np.ascontiguousarray(left), np.ascontiguousarray(right)
    )
    product += ZERO
    return product


def _einsum_rows(rows: Array, matrices: Array) -> Array:
    product: Array = np.einsum("nk,nkj->nj", rows, matrices)
    product += 0.0
    return product


def row_products(rows: Array, matrices: Array) -> Array:
    """out[n, c] = sum over k ascending, from +0.0, of rows[n, k] * matrices[n, k, c].

    rows: [N, K]; matrices: [N, K, C], neighbours along c in neighbouring cells, not copied.
    Returns: [N, C]
    """
    K, C = matrices.shape[1:]
    if not (K and C):
        return np.zeros((len(rows), C))
    if C == 1:
        return row_dots(rows, matrices[:, :, 0])[:, None]
    if not contraction_is_ordered():
        return contract_steps(rows[:, None], matrices)[:, 0]
    return _einsum_rows(rows, matrices)


def row_dots(left: Array, right: Array) -> Array:
    """out[n] = sum over k ascending, from +0.0, of left[n, k] * right[n, k]."""
    return total(left * right, axis=1)


def weighted_rows(weights: Array, rows: Array) -> Array:
    """out[h, d] = sum over j ascending, from +0.0, of weights[h, j] * rows[h, j, d].

    weights: [H, J]; rows: [H, at least J, D], not copied. Returns: [H, D]
    Source:  numerics.md section 14
    """
    return row_products(weights, rows[:, : weights.shape[1]])


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
    """All three forms, and a row over matrices whose rows lie apart, as a cache's do."""
    left, right = _mixed_signs(R, K), _mixed_signs(K, C)
    want = contract_steps(left, right)
    lanes = _einsum_lanes(np.stack([left, left]), np.stack([right, right]))
    apart = np.zeros((R, K + 1, C + 3))
    apart[:, :K, :C] = right
    rows = _einsum_rows(left, apart[:, :K, :C])
    seen = (_einsum(left, right), lanes[0], lanes[1], rows)
    return all(form.tobytes() == want.tobytes() for form in seen)


def _mixed_signs(rows: int, columns: int) -> Array:
    """Full-length mantissas of both signs from a multiplicative hash."""
    words = np.arange(1, rows * columns + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (words.astype(np.float64) * 2.0**-63 - 1.0).reshape(rows, columns)
