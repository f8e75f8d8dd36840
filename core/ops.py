"""Differentiable operations: arrays in, (value, vjp) out; no operation knows a tape.

A `Vjp` is the operation's reverse rule: called with the upstream gradient it gives one
contribution per array operand; `saved` is what the rule reads, per operand, and was all
computed by the forward itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeAlias

import numpy as np

from . import floats
from .arrays import SIZE_LIMIT, as_ids, as_integers, check_bounds
from .errors import CapacityRefusal, Code, IndexRefusal, NumericRefusal, ShapeRefusal
from .floats import Array, Ids

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

Shape: TypeAlias = tuple[int, ...]
Contributions: TypeAlias = tuple[Array, ...]


class Vjp:
    """A reverse rule with the evidence it saved: upstream -> one contribution per operand."""

    __slots__ = ("rule", "saved")

    def __init__(
        self, rule: Callable[[Array], Contributions], *saved: Mapping[str, object]
    ) -> None:
        self.rule = rule
        self.saved = saved

    def __call__(self, upstream: Array) -> Contributions:
        """The contribution to every operand, in operand order."""
        with np.errstate(all="ignore"):
            return tuple(np.asarray(part) for part in self.rule(upstream))


Result: TypeAlias = tuple[Array, Vjp]
Operation: TypeAlias = Callable[..., Result]


def _named(op_name: str) -> Callable[[Operation], Operation]:
    """Give an operation the name that traces and refusals show."""

    def name(operation: Operation) -> Operation:
        @wraps(operation)
        def quiet(*operands: Array, **arguments: Any) -> Result:
            with np.errstate(all="ignore"):  # overflow is the finite rule's business
                value, vjp = operation(*operands, **arguments)
            return np.asarray(value), vjp

        quiet.op_name = op_name  # type: ignore[attr-defined]
        return quiet

    return name


# --- elementwise and shape -------------------------------------------------------------------


def broadcast_shape(left: Shape, right: Shape, *, what: str) -> Shape:
    """The common shape under trailing alignment.

    Refuses: shape/incompatible-broadcast (leftmost axis of the output first),
        capacity/size-overflow
    """
    rank = max(len(left), len(right))
    lefts = (1,) * (rank - len(left)) + left
    rights = (1,) * (rank - len(right)) + right
    for axis, (a, b) in enumerate(zip(lefts, rights, strict=True)):
        if a != b and 1 not in (a, b):
            raise ShapeRefusal(
                code=Code.INCOMPATIBLE_BROADCAST,
                what=what,
                expected=a,
                actual=b,
                details={"axis": axis},
            )
    shape = tuple(b if a == 1 else a for a, b in zip(lefts, rights, strict=True))
    check_element_count(shape, what=what)
    return shape


def check_element_count(shape: Sequence[int], *, what: str) -> int:
    """The product of the sizes. Refuses: capacity/size-overflow above 2**64 - 1."""
    count = 1
    for size in shape:
        count *= size
    if count > SIZE_LIMIT:
        raise CapacityRefusal(code=Code.SIZE_OVERFLOW, what=what, required=count, limit=SIZE_LIMIT)
    return count


def _evidence(operand: Array, shape: Shape) -> dict[str, object]:
    """What an unbroadcast rule saves: both shapes and the axes that broadcasting repeated."""
    padding = len(shape) - operand.ndim
    reduced = tuple(
        axis
        for axis, size in enumerate(shape)
        if axis < padding or (operand.shape[axis - padding] == 1 and size != 1)
    )
    return {"input_shape": operand.shape, "output_shape": shape, "reduced_axes": reduced}


@_named("add")
def add(a: Array, b: Array) -> Result:
    """a + b with trailing broadcasting.

    Returns: the sum and its vjp, u -> (unbroadcast(u), unbroadcast(u))
    Refuses: shape/incompatible-broadcast, capacity/size-overflow
    Source:  numerics.md section 2
    """
    shape = broadcast_shape(a.shape, b.shape, what="add")

    def rule(upstream: Array) -> Contributions:
        return floats.unbroadcast(upstream, a.shape), floats.unbroadcast(upstream, b.shape)

    return a + b, Vjp(rule, _evidence(a, shape), _evidence(b, shape))


@_named("mul")
def mul(a: Array, b: Array) -> Result:
    """a * b with trailing broadcasting.

    Returns: the product and its vjp, u -> (unbroadcast(u * b), unbroadcast(u * a))
    Refuses: shape/incompatible-broadcast, capacity/size-overflow
    Source:  numerics.md section 2
    """
    shape = broadcast_shape(a.shape, b.shape, what="mul")

    def rule(upstream: Array) -> Contributions:
        return (
            floats.unbroadcast(upstream * b, a.shape),
            floats.unbroadcast(upstream * a, b.shape),
        )

    saved_a = {**_evidence(a, shape), "other": b}
    return a * b, Vjp(rule, saved_a, {**_evidence(b, shape), "other": a})


@_named("broadcast")
def broadcast_to(a: Array, *, shape: Sequence[int]) -> Result:
    """`a` repeated to exactly `shape`.

    Returns: the repeated value and its vjp, u -> unbroadcast(u)
    Refuses: record/field-type (shape), shape/incompatible-broadcast, capacity/size-overflow,
        shape/broadcast-target-mismatch
    Source:  numerics.md section 2
    """
    target = as_shape(shape, what="broadcast")
    inferred = broadcast_shape(a.shape, target, what="broadcast")
    if inferred != target:
        raise ShapeRefusal(
            code=Code.BROADCAST_TARGET_MISMATCH, what="broadcast", expected=target, actual=inferred
        )

    def rule(upstream: Array) -> Contributions:
        return (floats.unbroadcast(upstream, a.shape),)

    return np.broadcast_to(a, target).copy(), Vjp(rule, _evidence(a, target))


def as_shape(shape: object, *, what: str) -> Shape:
    """A shape given by a caller, every size a non-negative integer.

    Refuses: index/not-an-integer, shape/ragged-ids, record/field-range
    """
    sizes = as_integers(shape, what=f"{what} shape")
    if sizes.ndim != 1 or (sizes < 0).any():
        raise ShapeRefusal(
            code=Code.TOKEN_SHAPE, what=what, expected="sizes of 0 or more", actual=shape
        )
    return tuple(int(size) for size in sizes)


@_named("reshape")
def reshape(a: Array, *, shape: Sequence[int]) -> Result:
    """The same elements in the same flat order under another shape.

    Returns: a copy and its vjp, u -> u in the shape of a
    Refuses: capacity/size-overflow, shape/reshape-count-mismatch
    Source:  numerics.md section 2
    """
    target = as_shape(shape, what="reshape")
    count = check_element_count(target, what="reshape")
    if count != a.size:
        raise ShapeRefusal(
            code=Code.RESHAPE_COUNT_MISMATCH, what="reshape", expected=count, actual=a.size
        )

    def rule(upstream: Array) -> Contributions:
        return (upstream.reshape(a.shape).copy(),)

    return a.reshape(target).copy(), Vjp(rule, {"input_shape": a.shape, "output_shape": target})


@_named("transpose")
def transpose(a: Array, *, axes: tuple[int, int]) -> Result:
    """The axes i and j swapped, as a copy.

    Returns: the copy and its vjp, u -> u with the same axes swapped
    Refuses: index/axis-out-of-bounds (first axis, then second)
    Source:  numerics.md section 2
    """
    first, second = (check_axis(axis, rank=a.ndim, what="transpose") for axis in axes)

    def rule(upstream: Array) -> Contributions:
        return (np.ascontiguousarray(upstream.swapaxes(first, second)),)

    value = a.swapaxes(first, second).copy(order="C")
    return value, Vjp(rule, {"input_shape": a.shape, "axes": (first, second)})


def check_axis(axis: object, *, rank: int, what: str) -> int:
    """An axis in 0 .. rank - 1; negative axes are not counted from the end.

    Refuses: index/not-an-integer, index/axis-out-of-bounds
    """
    given = as_integers(axis, what=f"{what} axis", bound=rank)
    index = int(given.reshape(-1)[0])
    if given.ndim or not 0 <= index < rank:
        raise IndexRefusal(code=Code.AXIS_OUT_OF_BOUNDS, what=what, index=index, bound=rank)
    return index


# --- reductions ------------------------------------------------------------------------------


@_named("sum")
def sum(a: Array, *, axis: int, keep: bool = False) -> Result:  # noqa: A001 - API.md's name
    """t = +0.0; t = t + a_i for i ascending along `axis`; +0.0 over an empty axis.

    Returns: the sums and their vjp, u -> u / 1.0 copied along the axis
    Refuses: index/axis-out-of-bounds
    Source:  numerics.md section 3
    """
    axis = check_axis(axis, rank=a.ndim, what="sum")
    return floats.total(a, axis=axis, keep=keep), _spread(a.shape, axis, keep=keep, divisor=1.0)


@_named("mean")
def mean(a: Array, *, axis: int, keep: bool = False) -> Result:
    """The sum along `axis`, then one division by its length n.

    Returns: the means and their vjp, u -> u / n copied along the axis
    Refuses: index/axis-out-of-bounds, shape/empty-mean-axis
    Source:  numerics.md section 3
    """
    axis = check_axis(axis, rank=a.ndim, what="mean")
    n = a.shape[axis]
    if n == 0:
        raise ShapeRefusal(code=Code.EMPTY_MEAN_AXIS, what="mean", expected=1, actual=0)
    value = floats.mean(a, axis=axis, keep=keep)
    return value, _spread(a.shape, axis, keep=keep, divisor=float(n))


def _spread(shape: Shape, axis: int, *, keep: bool, divisor: float) -> Vjp:
    def rule(upstream: Array) -> Contributions:
        share = (upstream if keep else np.expand_dims(upstream, axis)) / divisor
        return (np.broadcast_to(share, shape).copy(),)

    return Vjp(rule, {"input_shape": shape, "axis": axis, "keep": keep, "divisor": divisor})


# --- contraction and lookup ------------------------------------------------------------------


@_named("matmul")
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
    if a.shape[-1] != b.shape[-2]:
        raise ShapeRefusal(
            code=Code.MATMUL_INNER_MISMATCH,
            what="matmul",
            expected=a.shape[-1],
            actual=b.shape[-2],
        )
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2], what="matmul")
    check_element_count((*batch, a.shape[-2], b.shape[-1]), what="matmul")

    def rule(upstream: Array) -> Contributions:
        left = floats.contract(upstream, b.swapaxes(-1, -2))
        right = floats.contract(a.swapaxes(-1, -2), upstream)  # per batch row, then b ascending
        return floats.unbroadcast(left, a.shape), floats.unbroadcast(right, b.shape)

    saved = ({"right": b, "input_shape": a.shape}, {"left": a, "input_shape": b.shape})
    return floats.contract(a, b), Vjp(rule, *saved)


@_named("gather_rows")
def gather_rows(table: Array, *, indices: object, shape: object = None) -> Result:
    """The table rows named by `indices`, in the index shape.

    table: [rows, width]; indices: flat selectors with `shape`, or an array of that shape
    Returns: [*shape, width] and its vjp: zero table; for each flat position ascending, add
        the row of u into the selected row
    Refuses: shape/gather-table-rank, index/not-an-integer, capacity/size-overflow,
        shape/gather-index-count-mismatch, index/gather-index-out-of-bounds
    Source:  numerics.md section 5, tape.md section 4
    """
    if table.ndim != 2:
        raise ShapeRefusal(
            code=Code.GATHER_TABLE_RANK, what="gather_rows", expected=2, actual=table.ndim
        )
    selectors = as_integers(indices, what="gather_rows indices", bound=table.shape[0])
    if shape is None:
        target = selectors.shape
    else:
        target = as_shape(shape, what="gather_rows")
        count = check_element_count(target, what="gather_rows index shape")
        if count != selectors.size:
            raise ShapeRefusal(
                code=Code.GATHER_INDEX_COUNT_MISMATCH,
                what="gather_rows",
                expected=count,
                actual=selectors.size,
            )
    checked = check_bounds(
        selectors,
        bound=table.shape[0],
        code=Code.GATHER_INDEX_OUT_OF_BOUNDS,
        what="gather_rows",
    )
    return _take(table, checked.reshape(target))


@_named("gather_rows")
def checked_rows(table: Array, *, selectors: Ids) -> Result:
    """`gather_rows` for a layer that has established every fact itself."""
    return _take(table, selectors)


def _take(table: Array, selectors: Ids) -> Result:
    rows, width = table.shape
    flat = selectors.reshape(-1)
    check_element_count((*selectors.shape, width), what="gather_rows")

    def rule(upstream: Array) -> Contributions:
        return (floats.scatter_add(upstream.reshape(-1, width), indices=flat, count=rows),)

    value = table[flat].reshape(*selectors.shape, width)
    saved = {
        "indices": flat,
        "index_shape": selectors.shape,
        "table_shape": table.shape,
        "output_shape": value.shape,
    }
    return value, Vjp(rule, saved)


@_named("place_rows")
def place_rows(rows: Array, *, positions: Ids, count: int) -> Result:
    """`count` rows, zero but for rows[p] at positions[p]; the positions differ.

    rows: [n, width]
    Returns: [count, width] and its vjp, u -> u[positions]
    Source:  inputs.md section 7: a padded cell is a zero vector without a gradient
    """

    def rule(upstream: Array) -> Contributions:
        return (upstream[positions],)

    value = np.zeros((count, rows.shape[1]))
    value[positions] = rows
    return value, Vjp(rule, {"positions": positions, "output_shape": value.shape})


# --- elementary functions --------------------------------------------------------------------


@_named("exp")
def exp(a: Array) -> Result:
    """exp, elementwise. Returns: y and its vjp, u -> u * y. Source: numerics.md section 2"""
    value = floats.exp(a)

    def rule(upstream: Array) -> Contributions:
        return (upstream * value,)

    return value, Vjp(rule, {"output": value})


@_named("log")
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


@_named("silu")
def silu(a: Array) -> Result:
    """a * s with s the sigmoid of a.

    Returns: the value and its vjp, u -> u * (s * (1 + a * (1 - s)))
    Source:  numerics.md section 6
    """
    s = sigmoid(a)

    def rule(upstream: Array) -> Contributions:
        return (upstream * (s * (1.0 + a * (1.0 - s))),)

    return a * s, Vjp(rule, {"input": a, "sigmoid": s})


# --- softmax and loss ------------------------------------------------------------------------


class RowStatistics:
    """One row per group: maximum, exponentials, tail, log-sum over 1 (numerics.md section 7)."""

    __slots__ = ("exponentials", "log_sum", "maximum", "shifted", "tail")

    def __init__(self, rows: Array) -> None:  # [G, C], C >= 1
        self.maximum = rows.max(axis=1)
        self.shifted = rows - self.maximum[:, None]
        self.exponentials = floats.exp(self.shifted)
        others = self.exponentials.copy()
        others[np.arange(len(rows)), (self.shifted == 0).argmax(axis=1)] = 0.0
        self.tail = floats.total(others, axis=1)
        self.log_sum = floats.log1p(self.tail)

    def probabilities(self) -> Array:
        return floats.clean_zeros(self.exponentials / (1.0 + self.tail)[:, None])


def _rows_along(a: Array, axis: int) -> Array:
    """[G, C]: one group per row, groups in row-major order of the remaining axes."""
    moved = np.moveaxis(a, axis, -1)
    return np.ascontiguousarray(moved).reshape(-1, a.shape[axis])


def _rows_back(rows: Array, shape: Shape, axis: int) -> Array:
    rest = [size for i, size in enumerate(shape) if i != axis]
    moved = np.moveaxis(rows.reshape(*rest, shape[axis]), -1, axis)
    return np.ascontiguousarray(moved)


def _check_class_axis(a: Array, axis: object, *, what: str) -> int:
    checked = check_axis(axis, rank=a.ndim, what=what)
    if a.shape[checked] == 0:
        raise ShapeRefusal(
            code=Code.EMPTY_NORMALIZATION_AXIS,
            what=what,
            expected=1,
            actual=0,
            details={"axis": checked},
        )
    return checked


@_named("log_softmax")
def log_softmax(a: Array, *, axis: int) -> Result:
    """(z_c - m) - log1p(tail) along `axis`, with m the maximum and tail the other terms.

    Returns: the log-probabilities in nats and their vjp, R = sum_c u_c; u_c - p_c * R
    Refuses: index/axis-out-of-bounds, shape/empty-normalization-axis,
        numeric/normalization-not-finite
    Source:  numerics.md section 7
    """
    axis = _check_class_axis(a, axis, what="log_softmax")
    rows = _rows_along(a, axis)
    bad = ~np.isfinite(rows)
    if bad.any():
        at = int(bad.reshape(-1).argmax())
        raise NumericRefusal(
            code=Code.NORMALIZATION_NOT_FINITE,
            what="log_softmax",
            at=at,
            value=float(rows.reshape(-1)[at]),
        )
    statistics = RowStatistics(rows)
    probabilities = statistics.probabilities()
    value = floats.clean_zeros(statistics.shifted - statistics.log_sum[:, None])

    def rule(upstream: Array) -> Contributions:
        u = _rows_along(upstream, axis)
        R = floats.total(u, axis=1, keep=True)
        return (_rows_back(u - probabilities * R, a.shape, axis),)

    saved = {"probabilities": _rows_back(probabilities, a.shape, axis), "axis": axis}
    return _rows_back(value, a.shape, axis), Vjp(rule, saved)


class _Nll:
    """Checked logits rows with one target each, and the statistics both losses read."""

    __slots__ = ("axis", "groups", "losses", "op", "rows", "shape", "statistics", "targets")

    def __init__(self, logits: Array, axis: object, targets: object, *, op: str) -> None:
        self.op = op
        self.axis = _check_class_axis(logits, axis, what=op)
        self.shape = logits.shape
        self.rows = _rows_along(logits, self.axis)
        self.groups, classes = self.rows.shape
        given = as_integers(targets, what=f"{op} targets", bound=classes)
        if given.size != self.groups:
            raise ShapeRefusal(
                code=Code.TARGET_COUNT_MISMATCH,
                what=f"{op} targets",
                expected=self.groups,
                actual=given.size,
            )
        if self.groups == 0:
            raise ShapeRefusal(code=Code.EMPTY_TARGETS, what=op, expected=1, actual=0)
        self.targets = check_bounds(
            given.reshape(-1), bound=classes, code=Code.TARGET_OUT_OF_BOUNDS, what=op
        )
        self._check_finite()
        self.statistics = RowStatistics(self.rows)
        self.losses = (self.statistics.maximum - self._chosen()) + self.statistics.log_sum

    def _chosen(self) -> Array:
        return self.rows[np.arange(self.groups), self.targets]

    def _check_finite(self) -> None:
        bad = ~np.isfinite(self.rows)
        if not bad.any():
            return
        at = int(bad.reshape(-1).argmax())
        group, index = divmod(at, self.rows.shape[1])
        value = float(self.rows[group, index])
        code = Code.POSITIVE_INFINITY_LOGIT if value > 0 else Code.NEGATIVE_INFINITY_LOGIT
        raise NumericRefusal(
            code=Code.NAN_LOGIT if value != value else code,
            what=self.op,
            at=at,
            value=value,
            details={"group": group, "class": index},
        )

    def first_non_finite(self) -> tuple[int, float] | None:
        """Group and value at which a loss or the running total stops being finite."""
        for partial in (self.losses, floats.running(self.losses, axis=0)):
            if not floats.is_finite(partial):
                at = int(np.isfinite(partial).argmin())
                return at, float(partial[at])
        return None

    def raw_sum(self) -> Array:
        return floats.total(self.losses, axis=0)

    def scaled_mean(self) -> Array:
        """Every loss divided before it is added: finite where the raw sum overflows."""
        G = float(self.groups)
        gap = self.statistics.maximum - self._chosen()
        share = np.where(
            np.isfinite(gap), gap / G, self.statistics.maximum / G - self._chosen() / G
        )
        return floats.total(share + self.statistics.log_sum / G, axis=0)

    def vjp(self, divisor: float) -> Vjp:
        """P with 1.0 subtracted at each target, times k = u / divisor."""
        probabilities = self.statistics.probabilities()

        def rule(upstream: Array) -> Contributions:
            k = upstream / divisor
            gradient = probabilities.copy()
            gradient[np.arange(self.groups), self.targets] -= 1.0
            gradient = floats.clean_zeros(gradient * k)
            return (_rows_back(gradient, self.shape, self.axis),)

        saved = {
            "probabilities": _rows_back(probabilities, self.shape, self.axis),
            "targets": self.targets,
            "axis": self.axis,
            "groups": self.groups,
        }
        return Vjp(rule, saved)


@_named("indexed_mean_nll")
def indexed_mean_nll(logits: Array, *, axis: int, targets: object) -> Result:
    """The mean over groups of (m - z_target) + log1p(tail), in nats.

    targets: flat, one per group, groups in row-major order of the axes other than `axis`
    Returns: rank 0 and its vjp, (P - [target]) * (u / G)
    Refuses: index/axis-out-of-bounds, shape/empty-normalization-axis, index/not-an-integer,
        shape/target-count-mismatch, shape/empty-targets, index/target-out-of-bounds,
        numeric/nan-logit, numeric/positive-infinity-logit, numeric/negative-infinity-logit
    Source:  numerics.md section 8
    """
    nll = _Nll(logits, axis, targets, op="indexed_mean_nll")
    G = float(nll.groups)
    mean = nll.raw_sum() / G if nll.first_non_finite() is None else nll.scaled_mean()
    return np.asarray(floats.clean_zeros(mean)), nll.vjp(G)


@_named("indexed_sum_nll")
def indexed_sum_nll(logits: Array, *, axis: int, targets: object) -> Result:
    """The sum over groups of (m - z_target) + log1p(tail), in nats, not divided.

    Returns: rank 0 and its vjp, (P - [target]) * u
    Refuses: as `indexed_mean_nll`, then numeric/raw-sum-not-finite
    Source:  numerics.md section 8
    """
    nll = _Nll(logits, axis, targets, op="indexed_sum_nll")
    broken = nll.first_non_finite()
    if broken is not None:
        at, value = broken
        raise NumericRefusal(
            code=Code.RAW_SUM_NOT_FINITE, what="indexed_sum_nll", at=at, value=value
        )
    return np.asarray(nll.raw_sum()), nll.vjp(1.0)


# --- attention -------------------------------------------------------------------------------


@_named("causal_softmax")
def causal_softmax(
    scores: Array, *, range_starts: Ids | None = None, lengths: Ids | None = None
) -> Result:
    """Row probabilities over the allowed keys start .. t of each active query t, else +0.0.

    scores: [..., T, T]; range_starts: [..., T], default 0; lengths: [...], default T
    Returns: [..., T, T] and its vjp, w = sum over allowed k of u_k * p_k; p_k * (u_k - w)
    Refuses: shape/causal-rank, shape/causal-not-square, shape/empty-tokens,
        shape/causal-range-shape, index/causal-range
    Source:  numerics.md section 12
    """
    allowed = _allowed_keys(scores, range_starts, lengths)
    maximum = np.where(allowed, scores, -np.inf).max(axis=-1, keepdims=True)
    shifted = np.subtract(scores, maximum, out=np.full_like(scores, -np.inf), where=allowed)
    exponentials = np.zeros_like(scores)
    exponentials[allowed] = floats.exp(shifted[allowed])
    others = exponentials.copy()
    first = (shifted == 0).argmax(axis=-1)[..., None]
    np.put_along_axis(others, first, 0.0, axis=-1)
    tail = floats.total(others, axis=scores.ndim - 1, keep=True)
    probabilities = floats.clean_zeros(exponentials / (1.0 + tail))

    def rule(upstream: Array) -> Contributions:
        weighted = np.multiply(
            upstream, probabilities, out=np.zeros_like(upstream), where=allowed
        )
        w = floats.total(weighted, axis=scores.ndim - 1, keep=True)
        inner = np.subtract(upstream, w, out=np.zeros_like(upstream), where=allowed)
        return (floats.clean_zeros(probabilities * inner),)

    return probabilities, Vjp(rule, {"probabilities": probabilities})


def _allowed_keys(
    scores: Array, range_starts: Ids | None, lengths: Ids | None
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True where query t may read key j; a transient of the call, stored nowhere."""
    if scores.ndim < 2:
        raise ShapeRefusal(
            code=Code.CAUSAL_RANK, what="causal_softmax", expected=2, actual=scores.ndim
        )
    queries, T = scores.shape[-2:]
    if queries != T:
        raise ShapeRefusal(
            code=Code.CAUSAL_NOT_SQUARE, what="causal_softmax", expected=queries, actual=T
        )
    if T == 0:
        raise ShapeRefusal(code=Code.EMPTY_TOKENS, what="causal_softmax", expected=1, actual=0)
    t = np.arange(T)
    starts = _key_range(range_starts, scores.shape[:-1], "range_starts", bounds=t)
    active = _key_range(lengths, scores.shape[:-2], "lengths", bounds=np.asarray(T))
    allowed: np.ndarray[Any, np.dtype[np.bool_]] = t <= t[:, None]
    if starts is not None:
        allowed = allowed & (t >= starts[..., None])
    if active is not None:
        allowed = allowed & (t < active[..., None])[..., :, None]
    return np.broadcast_to(allowed, scores.shape)


def _key_range(given: object, shape: Shape, name: str, *, bounds: Ids) -> Ids | None:
    if given is None:
        return None
    integers = as_integers(given, what=f"causal_softmax {name}")
    if integers.shape != shape:
        raise ShapeRefusal(
            code=Code.CAUSAL_RANGE_SHAPE,
            what=f"causal_softmax {name}",
            expected=shape,
            actual=integers.shape,
        )
    limits = np.broadcast_to(bounds, shape)
    outside = (integers < 0) | (integers > limits)
    if outside.any():
        at = int(outside.reshape(-1).argmax())
        raise IndexRefusal(
            code=Code.CAUSAL_RANGE,
            what=f"causal_softmax {name}",
            at=at,
            index=int(integers.reshape(-1)[at]),
            bound=int(limits.reshape(-1)[at]),
        )
    return integers.astype(np.int64)


@_named("rotary_pairs")
def rotary(a: Array, *, cosines: Array, sines: Array) -> Result:
    """Adjacent feature pairs (l, r) turned by their cell's angle.

    l' = l*c - r*s; r' = l*s + r*c, each -0.0 made +0.0

    a: [..., T, d_h]; cosines, sines: broadcast to [..., T, d_h / 2]
    Returns: the rotated value and its vjp, the inverse rotation of u
    Refuses: shape/rotation-rank, shape/rotation-width-mismatch, shape/incompatible-broadcast
    Source:  numerics.md section 11
    """
    if a.ndim < 2:
        raise ShapeRefusal(
            code=Code.ROTATION_RANK, what="rotary_pairs", expected=2, actual=a.ndim
        )
    if a.shape[-1] != 2 * cosines.shape[-1]:
        raise ShapeRefusal(
            code=Code.ROTATION_WIDTH_MISMATCH,
            what="rotary_pairs",
            expected=2 * cosines.shape[-1],
            actual=a.shape[-1],
        )
    pairs = (*a.shape[:-1], cosines.shape[-1])
    if broadcast_shape(cosines.shape, pairs, what="rotary_pairs") != pairs:
        raise ShapeRefusal(
            code=Code.BROADCAST_TARGET_MISMATCH,
            what="rotary_pairs",
            expected=pairs,
            actual=cosines.shape,
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
