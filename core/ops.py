"""The differentiable operations: arrays in, (value, vjp) out; none of them knows a tape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import floats
from .arrays import as_integers, as_values, check_bounds, check_reservable
from .errors import Code, IndexRefusal, RecordRefusal, ShapeRefusal, check_equal, check_not_zero
from .floats import Array, Ids
from .softmax import causal_softmax, indexed_mean_nll, indexed_sum_nll, log_softmax
from .vjp import (
    Contributions,
    Result,
    Shape,
    Vjp,
    as_shape,
    broadcast_shape,
    check_axis,
    check_element_count,
    named,
)

__all__ = [
    "add",
    "broadcast_to",
    "causal_softmax",
    "exp",
    "gather_rows",
    "indexed_mean_nll",
    "indexed_sum_nll",
    "log",
    "log_softmax",
    "matmul",
    "mean",
    "mul",
    "place_rows",
    "reshape",
    "rotary",
    "silu",
    "sum",
    "transpose",
]


def _evidence(operand: Array, shape: Shape) -> dict[str, object]:
    """What an unbroadcast rule saves: both shapes and the axes that broadcasting repeated."""
    if operand.shape == shape:
        return {"input_shape": shape, "output_shape": shape, "reduced_axes": ()}
    padding = len(shape) - operand.ndim
    reduced = tuple(
        axis
        for axis, size in enumerate(shape)
        if axis < padding or (operand.shape[axis - padding] == 1 and size != 1)
    )
    return {"input_shape": operand.shape, "output_shape": shape, "reduced_axes": reduced}


@named("add")
def add(a: Array, b: Array) -> Result:
    """a + b with trailing broadcasting.

    Returns: the sum and its vjp, u -> (unbroadcast(u), unbroadcast(u))
    Refuses: shape/incompatible-broadcast, capacity/size-overflow
    Source:  numerics.md section 2
    """
    shape = a.shape if a.shape == b.shape else broadcast_shape(a.shape, b.shape, what="add")

    def rule(upstream: Array) -> Contributions:
        return floats.unbroadcast(upstream, a.shape), floats.unbroadcast(upstream, b.shape)

    return a + b, Vjp(rule, _evidence(a, shape), _evidence(b, shape))


@named("mul")
def mul(a: Array, b: Array) -> Result:
    """a * b with trailing broadcasting.

    Returns: the product and its vjp, u -> (unbroadcast(u * b), unbroadcast(u * a))
    Refuses: shape/incompatible-broadcast, capacity/size-overflow
    Source:  numerics.md section 2
    """
    shape = a.shape if a.shape == b.shape else broadcast_shape(a.shape, b.shape, what="mul")

    def rule(upstream: Array) -> Contributions:
        return (
            floats.unbroadcast(upstream * b, a.shape),
            floats.unbroadcast(upstream * a, b.shape),
        )

    saved_a = {**_evidence(a, shape), "other": b}
    return a * b, Vjp(rule, saved_a, {**_evidence(b, shape), "other": a})


@named("broadcast", rounds=False)
def broadcast_to(a: Array, *, shape: Sequence[int]) -> Result:
    """`a` repeated to exactly `shape`.

    Returns: the repeated value and its vjp, u -> unbroadcast(u)
    Refuses: shape/ragged-ids, index/not-an-integer, record/field-range (shape),
        shape/incompatible-broadcast, capacity/size-overflow,
        shape/broadcast-target-mismatch
    Source:  numerics.md section 2
    """
    target = as_shape(shape, what="broadcast")
    inferred = broadcast_shape(a.shape, target, what="broadcast")
    check_equal(Code.BROADCAST_TARGET_MISMATCH, "broadcast", target, inferred)
    check_reservable(*target)

    def rule(upstream: Array) -> Contributions:
        return (floats.unbroadcast(upstream, a.shape),)

    return np.broadcast_to(a, target).copy(), Vjp(rule, _evidence(a, target))


@named("reshape", rounds=False)
def reshape(a: Array, *, shape: Sequence[int]) -> Result:
    """The same elements in the same flat order under another shape.

    Returns: a copy and its vjp, u -> u in the shape of a
    Refuses: shape/ragged-ids, index/not-an-integer, record/field-range (shape),
        capacity/size-overflow, shape/reshape-count-mismatch
    Source:  numerics.md section 2
    """
    target = as_shape(shape, what="reshape")
    count = check_element_count(target, what="reshape")
    check_equal(Code.RESHAPE_COUNT_MISMATCH, "reshape", count, a.size)
    check_reservable(*target)

    def rule(upstream: Array) -> Contributions:
        return (upstream.reshape(a.shape).copy(),)

    return a.reshape(target).copy(), Vjp(rule, {"input_shape": a.shape, "output_shape": target})


@named("transpose", rounds=False)
def transpose(a: Array, *, axes: Sequence[int]) -> Result:
    """The axes i and j swapped, as a copy.

    Returns: the copy and its vjp, u -> u with the same axes swapped
    Refuses: record/field-type (not two axes), then per axis shape/ragged-ids,
        index/not-an-integer, index/axis-out-of-bounds
    Source:  numerics.md section 2
    """
    if not isinstance(axes, list | tuple) or len(axes) != 2:
        raise RecordRefusal(
            code=Code.FIELD_TYPE, what="transpose axes", expected="a pair", actual=repr(axes)[:80]
        )
    first, second = (check_axis(axis, rank=a.ndim, what="transpose") for axis in axes)

    def rule(upstream: Array) -> Contributions:
        return (upstream.swapaxes(first, second).copy(order="C"),)

    value = floats.row_major(a.swapaxes(first, second))
    if value.base is not None:  # a view of the operand
        value = value.copy(order="C")
    return value, Vjp(rule, {"input_shape": a.shape, "axes": (first, second)})


@named("sum")
def sum(a: Array, *, axis: int, keep: bool = False) -> Result:
    """t = +0.0; t = t + a_i for i ascending along `axis`; +0.0 over an empty axis.

    Returns: the sums and their vjp, u -> u / 1.0 copied along the axis
    Refuses: shape/ragged-ids, index/not-an-integer, index/axis-out-of-bounds
    Source:  numerics.md section 3
    """
    axis = check_axis(axis, rank=a.ndim, what="sum")
    return floats.total(a, axis=axis, keep=keep), _spread(a.shape, axis, keep=keep, divisor=1.0)


@named("mean")
def mean(a: Array, *, axis: int, keep: bool = False) -> Result:
    """The sum along `axis`, then one division by its length n.

    Returns: the means and their vjp, u -> u / n copied along the axis
    Refuses: shape/ragged-ids, index/not-an-integer, index/axis-out-of-bounds,
        shape/empty-mean-axis
    Source:  numerics.md section 3
    """
    axis = check_axis(axis, rank=a.ndim, what="mean")
    n = a.shape[axis]
    check_not_zero(Code.EMPTY_MEAN_AXIS, "mean", n)
    value = floats.mean(a, axis=axis, keep=keep)
    return value, _spread(a.shape, axis, keep=keep, divisor=float(n))


def _spread(shape: Shape, axis: int, *, keep: bool, divisor: float) -> Vjp:
    def rule(upstream: Array) -> Contributions:
        share = (upstream if keep else np.expand_dims(upstream, axis)) / divisor
        return (np.broadcast_to(share, shape).copy(),)

    return Vjp(rule, {"input_shape": shape, "axis": axis, "keep": keep, "divisor": divisor})


@named("matmul")
def matmul(a: Array, b: Array) -> Result:
    """out[..., r, c] = sum_k a[..., r, k] * b[..., k, c], k ascending, batch axes broadcast.

    a: [..., R, K]; b: [..., K, C]
    Returns: [..., R, C] and its vjp, u -> (unbroadcast(u b^T), unbroadcast(a^T u))
    Refuses: shape/matmul-left-rank, shape/matmul-right-rank, shape/matmul-inner-mismatch,
        shape/incompatible-broadcast, capacity/size-overflow
    Source:  numerics.md section 4
    """
    if a.ndim < 2:
        raise ShapeRefusal(code=Code.MATMUL_LEFT_RANK, what="matmul", expected=2, actual=a.ndim)
    if b.ndim < 2:
        raise ShapeRefusal(code=Code.MATMUL_RIGHT_RANK, what="matmul", expected=2, actual=b.ndim)
    check_equal(Code.MATMUL_INNER_MISMATCH, "matmul", a.shape[-1], b.shape[-2])
    batch = a.shape[:-2]
    if b.ndim > 2:
        batch = broadcast_shape(batch, b.shape[:-2], what="matmul")
    check_element_count((*batch, a.shape[-2], b.shape[-1]), what="matmul")

    def rule(upstream: Array) -> Contributions:
        left = floats.contract(upstream, b.swapaxes(-1, -2))
        right = floats.contract(a.swapaxes(-1, -2), upstream)  # per batch row, then b ascending
        return floats.unbroadcast(left, a.shape), floats.unbroadcast(right, b.shape)

    saved = ({"right": b, "input_shape": a.shape}, {"left": a, "input_shape": b.shape})
    return floats.contract(a, b), Vjp(rule, *saved)


@named("gather_rows", rounds=False)
def gather_rows(table: Array, *, indices: object, shape: object = None) -> Result:
    """The table rows named by `indices`, in the index shape.

    table: [rows, width]; indices: flat selectors with `shape`, or an array of that shape
    Returns: [*shape, width] and its vjp: zero table; for each flat position ascending, add
        the row of u into the selected row
    Refuses: shape/gather-table-rank, shape/ragged-ids, index/not-an-integer, then for a shape
        shape/ragged-ids, index/not-an-integer, record/field-range, capacity/size-overflow,
        shape/gather-index-count-mismatch, at last index/gather-index-out-of-bounds
    Source:  numerics.md section 5, tape.md section 4
    """
    check_equal(Code.GATHER_TABLE_RANK, "gather_rows", 2, table.ndim)
    selectors = as_integers(indices, what="gather_rows indices", bound=table.shape[0])
    if shape is None:
        target = selectors.shape
    else:
        target = as_shape(shape, what="gather_rows")
        count = check_element_count(target, what="gather_rows index shape")
        check_equal(Code.GATHER_INDEX_COUNT_MISMATCH, "gather_rows", count, selectors.size)
    checked = check_bounds(
        selectors,
        bound=table.shape[0],
        code=Code.GATHER_INDEX_OUT_OF_BOUNDS,
        what="gather_rows",
    )
    check_reservable(*target, table.shape[1])
    return _take(table, checked.reshape(target))


@named("gather_rows", rounds=False)
def checked_rows(table: Array, *, selectors: Ids) -> Result:
    """`gather_rows` for a layer that has established every fact itself."""
    return _take(table, selectors)


def _take(table: Array, selectors: Ids) -> Result:
    rows, width = table.shape
    flat = selectors.reshape(-1)
    check_element_count((*selectors.shape, width), what="gather_rows")

    def rule(upstream: Array) -> Contributions:
        return (floats.scatter_add(upstream.reshape(flat.size, width), indices=flat, count=rows),)

    value = table[flat].reshape(*selectors.shape, width)
    saved = {
        "indices": flat,
        "index_shape": selectors.shape,
        "table_shape": table.shape,
        "output_shape": value.shape,
    }
    return value, Vjp(rule, saved)


@named("place_rows", rounds=False)
def place_rows(rows: Array, *, positions: object, count: int) -> Result:
    """`count` rows, zero but for rows[p] at positions[p]; the positions differ.

    rows: [n, width]; positions: [n]
    Returns: [count, width] and its vjp, u -> u[positions]
    Refuses: shape/gather-table-rank, record/field-range (count), shape/ragged-ids,
        index/not-an-integer, shape/gather-index-count-mismatch,
        index/gather-index-out-of-bounds, index/repeated-row-position
    Source:  inputs.md section 7: a padded cell is a zero vector without a gradient
    """

    check_equal(Code.GATHER_TABLE_RANK, "place_rows", 2, rows.ndim)
    (bound,) = as_shape((count,), what="place_rows")
    given = as_integers(positions, what="place_rows positions", bound=bound)
    if given.shape != rows.shape[:1]:
        raise ShapeRefusal(
            code=Code.GATHER_INDEX_COUNT_MISMATCH,
            what="place_rows",
            expected=len(rows),
            actual=given.size,
        )
    places = check_bounds(
        given, bound=bound, code=Code.GATHER_INDEX_OUT_OF_BOUNDS, what="place_rows"
    )
    _check_distinct(places)

    def rule(upstream: Array) -> Contributions:
        return (upstream[places],)

    check_element_count((bound, rows.shape[1]), what="place_rows")
    check_reservable(bound, rows.shape[1])
    value = np.zeros((bound, rows.shape[1]))
    value[places] = rows
    return value, Vjp(rule, {"positions": places, "output_shape": value.shape})


def _check_distinct(places: Ids) -> None:
    """Refuses: index/repeated-row-position"""
    kept = np.unique(places, return_index=True)[1]
    repeated = np.setdiff1d(np.arange(len(places)), kept)
    if len(repeated):
        at = int(repeated[0])
        raise IndexRefusal(
            code=Code.REPEATED_ROW_POSITION, what="place_rows", at=at, index=int(places[at])
        )


@named("exp")
def exp(a: Array) -> Result:
    """exp, elementwise. Returns: y and its vjp, u -> u * y. Source: numerics.md section 2"""
    value = floats.exp(a)

    def rule(upstream: Array) -> Contributions:
        return (upstream * value,)

    return value, Vjp(rule, {"output": value})


@named("log")
def log(a: Array) -> Result:
    """log, elementwise; 0 and negative values fail the finite rule.

    Returns: y and its vjp, u -> u / a
    Source:  numerics.md section 2
    """

    def rule(upstream: Array) -> Contributions:
        return (upstream / a,)

    return floats.log(a), Vjp(rule, {"input": a})


def sigmoid(a: Array) -> Array:
    """1 / (1 + exp(-a)) for a >= 0, else exp(a) / (1 + exp(a)): no exponential overflows."""
    e = floats.exp(-np.abs(a))
    return np.where(a >= 0, 1.0, e) / (1.0 + e)


@named("silu")
def silu(a: Array) -> Result:
    """a * s with s the sigmoid of a.

    Returns: the value and its vjp, u -> u * (s * (1 + a * (1 - s)))
    Source:  numerics.md section 6
    """
    s = sigmoid(a)

    def rule(upstream: Array) -> Contributions:
        return (upstream * (s * (1.0 + a * (1.0 - s))),)

    return a * s, Vjp(rule, {"input": a, "sigmoid": s})


@named("rotary_pairs")
def rotary(a: Array, *, cosines: Array, sines: Array) -> Result:
    """Adjacent feature pairs (l, r) turned by their cell's angle.

    l' = l*c - r*s; r' = l*s + r*c, each -0.0 made +0.0

    a: [..., T, d_h]; cosines, sines: broadcast to [..., T, d_h / 2]
    Returns: the rotated value and its vjp, the inverse rotation of u
    Refuses: shape/ragged-ids, numeric/not-real, shape/rotation-rank,
        shape/rotation-width-mismatch, then per table (cosines, sines)
        shape/incompatible-broadcast, shape/broadcast-target-mismatch
    Source:  numerics.md section 11
    """
    cosines = as_values(cosines, what="rotary_pairs cosines")
    sines = as_values(sines, what="rotary_pairs sines")
    if a.ndim < 2:
        raise ShapeRefusal(code=Code.ROTATION_RANK, what="rotary_pairs", expected=2, actual=a.ndim)
    width = 2 * cosines.shape[-1] if cosines.ndim else 0
    check_equal(Code.ROTATION_WIDTH_MISMATCH, "rotary_pairs", width, a.shape[-1])
    pairs = (*a.shape[:-1], width // 2)
    for table in (cosines, sines):
        if broadcast_shape(table.shape, pairs, what="rotary_pairs") != pairs:
            raise ShapeRefusal(
                code=Code.BROADCAST_TARGET_MISMATCH,
                what="rotary_pairs",
                expected=pairs,
                actual=table.shape,
            )

    def turn(x: Array, s: Array) -> Array:
        left, right = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = floats.clean_zeros(left * cosines - right * s)
        out[..., 1::2] = floats.clean_zeros(left * s + right * cosines)
        return out

    def rule(upstream: Array) -> Contributions:
        return (turn(upstream, -sines),)

    return turn(a, sines), Vjp(rule, {"cosines": cosines, "sines": sines})
