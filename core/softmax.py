"""Softmax rows, their logarithms, the losses on them and the causal form."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import floats
from .arrays import as_integers, check_bounds
from .errors import Code, IndexRefusal, NumericRefusal, ShapeRefusal, check_equal, check_not_zero
from .floats import Array, Ids
from .vjp import Contributions, Result, Shape, Vjp, check_axis, named

__all__ = [
    "RowStatistics",
    "allowed_probabilities",
    "causal_softmax",
    "indexed_mean_nll",
    "indexed_sum_nll",
    "log_softmax",
]


class RowStatistics:
    """One row per group: maximum, exponentials, tail, log-sum over 1 (numerics.md section 7)."""

    __slots__ = ("_log_sum", "exponentials", "maximum", "shifted", "tail")

    def __init__(self, rows: Array) -> None:  # [G, C], C >= 1
        self.maximum = rows.max(axis=1)
        self.shifted = rows - self.maximum[:, None]
        self.exponentials = floats.exp(self.shifted)
        others = self.exponentials.copy()
        others[np.arange(len(rows)), (self.shifted == 0).argmax(axis=1)] = 0.0
        self.tail = floats.total(others, axis=1)
        self._log_sum: Array | None = None

    @property
    def log_sum(self) -> Array:
        """log1p of the tail, taken when first asked for."""
        if self._log_sum is None:
            self._log_sum = floats.log1p(self.tail)
        return self._log_sum

    def probabilities(self) -> Array:
        """exp(z - m) / (1 + tail), every -0.0 made +0.0."""
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


@named("log_softmax")
def log_softmax(a: Array, *, axis: int) -> Result:
    """(z_c - m) - log1p(tail) along `axis`, with m the maximum and tail the other terms.

    Returns: the log-probabilities in nats and their vjp, R = sum_c u_c; u_c - p_c * R
    Refuses: shape/ragged-ids, index/not-an-integer, index/axis-out-of-bounds,
        shape/empty-normalization-axis, numeric/normalization-not-finite
    Source:  numerics.md section 7
    """
    axis = _check_class_axis(a, axis, what="log_softmax")
    rows = _rows_along(a, axis)
    bad = ~np.isfinite(rows)
    if bad.any():
        at = int(bad.reshape(-1).argmax())
        group, index = divmod(at, rows.shape[1])
        raise NumericRefusal(
            code=Code.NORMALIZATION_NOT_FINITE,
            what="log_softmax",
            at=at,
            value=float(rows[group, index]),
            details={"group": group, "class": index},
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
        check_equal(Code.TARGET_COUNT_MISMATCH, f"{op} targets", self.groups, given.size)
        check_not_zero(Code.EMPTY_TARGETS, op, self.groups)
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
        shape, axis, targets, groups = self.shape, self.axis, self.targets, self.groups

        def rule(upstream: Array) -> Contributions:
            k = upstream / divisor
            gradient = probabilities.copy()
            gradient[np.arange(groups), targets] -= 1.0
            return (_rows_back(floats.clean_zeros(gradient * k), shape, axis),)

        saved = {
            "probabilities": _rows_back(probabilities, shape, axis),
            "targets": targets,
            "axis": axis,
            "groups": groups,
        }
        return Vjp(rule, saved)


@named("indexed_mean_nll")
def indexed_mean_nll(logits: Array, *, axis: int, targets: object) -> Result:
    """The mean over groups of (m - z_target) + log1p(tail), in nats.

    targets: flat, one per group, groups in row-major order of the axes other than `axis`
    Returns: rank 0 and its vjp, (P - [target]) * (u / G)
    Refuses: shape/ragged-ids, index/not-an-integer, index/axis-out-of-bounds,
        shape/empty-normalization-axis, shape/ragged-ids, index/not-an-integer (targets),
        shape/target-count-mismatch, shape/empty-targets, index/target-out-of-bounds,
        numeric/nan-logit, numeric/positive-infinity-logit, numeric/negative-infinity-logit
    Source:  numerics.md section 8
    """
    nll = _Nll(logits, axis, targets, op="indexed_mean_nll")
    G = float(nll.groups)
    mean = nll.raw_sum() / G if nll.first_non_finite() is None else nll.scaled_mean()
    return np.asarray(floats.clean_zeros(mean)), nll.vjp(G)


@named("indexed_sum_nll")
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


@named("causal_softmax")
def causal_softmax(
    scores: Array, *, range_starts: Ids | None = None, lengths: Ids | None = None
) -> Result:
    """Row probabilities over the allowed keys start .. t of each active query t, else +0.0.

    scores: [..., T, T]; range_starts: [..., T], default 0; lengths: [...], default T
    Returns: [..., T, T] and its vjp, w = sum over allowed k of u_k * p_k; p_k * (u_k - w)
    Refuses: shape/causal-rank, shape/causal-not-square, shape/empty-tokens, then for range
        starts and for lengths shape/ragged-ids, index/not-an-integer,
        shape/causal-range-shape, index/causal-range
    Source:  numerics.md section 12
    """
    starts, active = _checked_ranges(scores, range_starts, lengths)
    shape = scores.shape
    allowed = _allowed_keys(shape, starts, active)
    probabilities = allowed_probabilities(scores, allowed)

    def rule(upstream: Array) -> Contributions:
        keys = _allowed_keys(shape, starts, active)
        weighted = np.multiply(upstream, probabilities, out=np.zeros(shape), where=keys)
        w = floats.total(weighted, axis=len(shape) - 1, keep=True)
        inner = np.subtract(upstream, w, out=np.zeros(shape), where=keys)
        return (floats.clean_zeros(probabilities * inner),)

    return probabilities, Vjp(rule, {"probabilities": probabilities})


def allowed_probabilities(scores: Array, allowed: np.ndarray[Any, np.dtype[np.bool_]]) -> Array:
    """Softmax of every row over its allowed keys alone, +0.0 at the others.

    scores: [..., Q, K]; allowed: the same shape; a row that allows no key is all +0.0
    Source: numerics.md section 12
    """
    shape = scores.shape
    maximum = np.where(allowed, scores, -np.inf).max(axis=-1, keepdims=True)
    shifted = np.subtract(scores, maximum, out=np.full(shape, -np.inf), where=allowed)
    exponentials = np.zeros(shape)
    exponentials[allowed] = floats.exp(shifted[allowed])
    others = exponentials.copy()
    first = (shifted == 0).argmax(axis=-1).reshape(-1)
    others.reshape(-1, shape[-1])[np.arange(first.size), first] = 0.0
    tail = floats.total(others, axis=len(shape) - 1, keep=True)
    return floats.clean_zeros(exponentials / (1.0 + tail))


def _checked_ranges(
    scores: Array, range_starts: Ids | None, lengths: Ids | None
) -> tuple[Ids | None, Ids | None]:
    """Range starts [..., T] and lengths [...] as given, checked; None is the default."""
    if scores.ndim < 2:
        raise ShapeRefusal(
            code=Code.CAUSAL_RANK, what="causal_softmax", expected=2, actual=scores.ndim
        )
    queries, T = scores.shape[-2:]
    check_equal(Code.CAUSAL_NOT_SQUARE, "causal_softmax", queries, T)
    check_not_zero(Code.EMPTY_TOKENS, "causal_softmax", T)
    starts = _key_range(range_starts, scores.shape[:-1], "range_starts", bounds=np.arange(T))
    return starts, _key_range(lengths, scores.shape[:-2], "lengths", bounds=np.asarray(T))


def _allowed_keys(
    shape: Shape, starts: Ids | None, lengths: Ids | None
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True where query t may read key j; made for one call, kept by nothing."""
    t = np.arange(shape[-1])
    allowed: np.ndarray[Any, np.dtype[np.bool_]] = t <= t[:, None]
    if starts is not None:
        allowed = allowed & (t >= starts[..., None])
    if lengths is not None:
        allowed = allowed & (t < lengths[..., None])[..., :, None]
    return np.broadcast_to(allowed, shape)


def _key_range(given: object, shape: Shape, name: str, *, bounds: Ids) -> Ids | None:
    if given is None:
        return None
    integers = as_integers(given, what=f"causal_softmax {name}")
    check_equal(Code.CAUSAL_RANGE_SHAPE, f"causal_softmax {name}", shape, integers.shape)
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
