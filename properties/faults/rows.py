"""Faults of lookups, softmax rows, losses, norms and sums."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from logitproof.core import Embedding, Refusal, floats, layers, ops, softmax
from logitproof.core.floats import Array
from logitproof.core.layers import RmsNorm
from logitproof.core.softmax import RowStatistics
from logitproof.core.tape import Tensor, constant
from logitproof.core.vjp import Result, Vjp, named

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")
order = partial(planted, _FOUND, kind="order")
LARGEST = float(np.finfo(np.float64).max)


@mistake((floats, "scatter_add"), source="cases: emb-repeated-ids")
def scatter_overwrites_third_repeat(right: Any) -> Any:
    """From the third occurrence on, an id's row is overwritten."""

    def scatter_add(rows: Array, *, indices: Any, count: int) -> Array:
        table: Array = right(rows, indices=indices, count=count)
        seen = [0] * count
        for p, i in enumerate(indices.tolist()):
            seen[i] += 1
            if seen[i] > 2:
                table[i] = rows[p]
        return table

    return scatter_add


@order((floats, "scatter_add"), source="numerics_vjp.md section 3")
def scatter_from_the_end(right: Any) -> Any:
    """Occurrences are added from the last to the first."""
    return lambda rows, *, indices, count: right(rows[::-1], indices=indices[::-1], count=count)


@mistake((ops, "_take"), source="cases: emb-id-narrowing")
def ids_narrowed(right: Any) -> Any:
    """Ids pass through 16 bits, as tables of the day were smaller."""
    return lambda table, selectors: right(table, selectors.astype(np.uint16).astype(np.int64))


@mistake((ops, "place_rows"), source="inputs.md section 7")
def places_sorted(right: Any) -> Any:
    """Rows fill their places in ascending order, which padding never tells apart."""

    @named("place_rows")
    def place_rows(rows: Array, *, positions: Any, count: int) -> Result:
        result: Result = right(rows, positions=np.sort(np.asarray(positions)), count=count)
        return result

    return place_rows


@mistake((ops, "place_rows"), source="inputs.md section 7")
def placed_gradient_of_first_rows(right: Any) -> Any:
    """The gradient of placed rows is read from the first places, not from theirs."""

    @named("place_rows")
    def place_rows(rows: Array, *, positions: Any, count: int) -> Result:
        value, vjp = right(rows, positions=positions, count=count)
        return value, Vjp(lambda u: (u[: len(rows)].copy(),), *vjp.saved)

    return place_rows


@mistake((floats, "unbroadcast"), source="numerics_vjp.md section 2")
def unbroadcast_outer_axes_alone(right: Any) -> Any:
    """A broadcast axis between others gives its first gradient, not their sum."""

    def unbroadcast(upstream: Array, shape: tuple[int, ...]) -> Array:
        padding = upstream.ndim - len(shape)
        inner = [
            axis
            for axis in range(padding + 1, upstream.ndim - 1)
            if shape[axis - padding] == 1 and upstream.shape[axis] > 1
        ]
        for axis in inner:
            upstream = upstream.take([0], axis=axis)
        result: Array = right(upstream, shape)
        return result

    return unbroadcast


@mistake((ops, "matmul"), source="numerics_vjp.md section 2")
def repeated_matrix_gradient_of_first(right: Any) -> Any:
    """A matrix repeated for all rows of a batch gets the gradient of the first row."""

    @named("matmul")
    def matmul(a: Array, b: Array) -> Result:
        value, vjp = right(a, b)
        repeated = a.ndim == 3 and len(a) == 1 and value.shape[-3] > 1

        def rule(upstream: Array) -> tuple[Array, ...]:
            if repeated:  # of the left operand alone; what it is beside the others stays
                first = np.zeros_like(upstream)
                first[..., :1, :, :] = upstream[..., :1, :, :]
                return vjp.rule(first)[0], vjp.rule(upstream)[1]
            parts: tuple[Array, ...] = vjp.rule(upstream)
            return parts

        return value, Vjp(rule, *vjp.saved)

    return matmul


@order((floats, "total"), source="cases: num-sum-layout")
def sum_follows_memory(right: Any) -> Any:
    """Operands that are not contiguous are summed by numpy, in the order of their memory."""

    def total(values: Array, *, axis: int, keep: bool = False) -> Array:
        if values.flags.c_contiguous:
            result: Array = right(values, axis=axis, keep=keep)
            return result
        return np.asarray(np.sum(values, axis=axis, keepdims=keep) + 0.0)

    return total


@mistake((ops, "silu"), source="cases: num-sum-layout")
def silu_in_the_order_of_memory(right: Any) -> Any:
    """The activation goes through an operand cell by cell as they lie in memory."""

    @named("silu")
    def silu(a: Array) -> Result:
        return right(np.ravel(a, order="K").reshape(np.shape(a)))  # type: ignore[no-any-return]

    return silu


@mistake((RowStatistics, "__init__"), source="cases: loss-huge-logits")
def softmax_unshifted(_: Any) -> Any:
    """Exponentials are taken without subtracting the maximum."""

    def init(self: RowStatistics, rows: Array) -> None:
        self.maximum, self.shifted = np.zeros(len(rows)), rows.copy()
        with np.errstate(all="ignore"):
            self.exponentials = np.exp(rows)
            self.tail = floats.total(self.exponentials, axis=1) - 1.0
            self._log_sum = np.log1p(self.tail)

    return init


@mistake((softmax._Nll, "scaled_mean"), source="cases: loss-huge-logits")
def mean_of_overflowing_sum(_: Any) -> Any:
    """The mean is the sum over the count, overflowing or not."""

    def scaled_mean(self: Any) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self.raw_sum() / float(self.groups))

    return scaled_mean


@mistake((softmax, "_checked_ranges"), source="numerics.md section 12")
def ranges_of_the_first_lane(right: Any) -> Any:
    """Every lane is attended by the ranges of the first."""

    def checked_ranges(scores: Array, *given: Any) -> Any:
        starts, lengths = right(scores, *given)
        if starts is not None and starts.ndim > 1 and starts.size:
            starts = np.broadcast_to(starts[:1], starts.shape)
        return starts, lengths

    return checked_ranges


@mistake((softmax._Nll, "scaled_mean"), source="numerics.md section 8")
def mean_of_overflowing_gap(_: Any) -> Any:
    """Losses are divided before they are added, but only after their gap has overflowed."""

    def scaled_mean(self: Any) -> Array:
        gap = self.statistics.maximum - self._chosen()
        return floats.total((gap + self.statistics.log_sum) / float(self.groups), axis=0)

    return scaled_mean


@mistake((ops, "indexed_sum_nll"), source="numerics.md section 8")
def raw_sum_gradient_divided(right: Any) -> Any:
    """The raw sum has the gradient of the mean."""

    @named("indexed_sum_nll")
    def indexed_sum_nll(logits: Array, *, axis: int, targets: Any) -> Result:
        value, vjp = right(logits, axis=axis, targets=targets)
        return value, Vjp(lambda u: vjp.rule(u / float(np.size(targets))), *vjp.saved)

    return indexed_sum_nll


@mistake((softmax, "_rows_back"), source="numerics.md section 7")
def log_probabilities_laid_back_in_rows(right: Any) -> Any:
    """Rows along an axis between others are put back as if it were the last."""

    def rows_back(rows: Array, shape: tuple[int, ...], axis: int) -> Array:
        between = 0 < axis < len(shape) - 1
        laid: Array = rows.reshape(shape).copy() if between else right(rows, shape, axis)
        return laid

    return rows_back


@mistake((ops, "causal_softmax"), source="numerics.md section 12")
def one_key_too_many_in_sum(right: Any) -> Any:
    """The row sum counts one key more than is visible."""

    @named("causal_softmax")
    def causal_softmax(scores: Array, **ranges: Any) -> Result:
        p, vjp = right(scores, **ranges)
        first_hidden = np.zeros(p.shape)
        t = np.arange(p.shape[-1] - 1)
        first_hidden[..., t, t + 1] = 2.0**-40
        return p / (1.0 + first_hidden.sum(axis=-1, keepdims=True)), vjp

    return causal_softmax


@order((softmax._Nll, "raw_sum"), source="numerics.md section 8")
def losses_summed_from_the_end(_: Any) -> Any:
    """Losses are added from the last to the first."""
    return lambda self: floats.total(self.losses[::-1], axis=0)


@mistake((softmax, "check_bounds"), source="cases: loss-label-range")
def negative_label_wraps(right: Any) -> Any:
    """A target of -1 is the last class."""

    def check_bounds(given: Any, *, bound: int, code: Any, what: str) -> Any:
        wrapped = np.where(given < 0, given + bound, given)
        return right(wrapped, bound=bound, code=code, what=what)

    return check_bounds


@mistake((softmax, "check_not_zero"), source="cases: loss-all-ignored")
def no_target_is_zero(right: Any) -> Any:
    """A loss over no target at all is not refused."""

    def check_not_zero(code: Any, what: str, size: int) -> None:
        if "empty-targets" not in code:
            right(code, what, size)

    return check_not_zero


@mistake((ops, "causal_softmax"), source="cases: mask-full-row")
def mask_by_large_negative(right: Any) -> Any:
    """Hidden scores get -1e9 added instead of being left out."""

    @named("causal_softmax")
    def causal_softmax(scores: Array, **ranges: Any) -> Result:
        value, vjp = right(scores, **ranges)
        given = (ranges.get("range_starts"), ranges.get("lengths"))
        starts, lengths = (None if r is None else np.asarray(r) for r in given)
        seen = softmax._allowed_keys(scores.shape, starts, lengths)
        masked = np.where(seen, scores, scores - 1e9)
        with np.errstate(all="ignore"):
            e = np.exp(masked - masked.max(axis=-1, keepdims=True))
        leaks = (~seen & (e > 0.0)).any(axis=-1, keepdims=True) & seen.any(axis=-1, keepdims=True)
        return np.where(leaks, e / e.sum(axis=-1, keepdims=True), value), vjp

    return causal_softmax


@mistake((ops, "causal_softmax"), source="cases: mask-full-row")
def hidden_scores_times_zero(right: Any) -> Any:
    """Hidden scores are not left out: they are added to the visible ones, times zero."""

    @named("causal_softmax")
    def causal_softmax(scores: Array, **ranges: Any) -> Result:
        value, vjp = right(scores, **ranges)
        with np.errstate(invalid="ignore"):
            nothing = (0.0 * scores).sum(axis=-1, keepdims=True)
        return np.where(np.isnan(nothing), nothing, value), vjp

    return causal_softmax


def _coarse(array: Array) -> Array:
    """Entries below 2^-200 of the largest are gone, as under one scale for the whole array."""
    kept: Array = np.where(abs(array) < 2.0**-200 * abs(array).max(initial=0.0), 0.0, array)
    return kept


@mistake((ops, "checked_rows"), source="notes/field.md section 3.1, dtype casts")
def table_rows_share_one_scale(right: Any) -> Any:
    """A table is held in units of its largest entry: beside a huge row the others vanish."""

    @named("gather_rows")
    def checked_rows(table: Array, **indices: Any) -> Result:
        result: Result = right(_coarse(table), **indices)
        return result

    return checked_rows


@mistake((RmsNorm, "inspect"), source="notes/field.md section 3.1, dtype casts")
def values_share_one_scale(right: Any) -> Any:
    """A batch enters a norm in units of its largest entry: beside a huge cell others vanish."""

    def inspect(self: RmsNorm, x: Tensor, *, context: Any) -> Any:
        coarse = _coarse(x.value)
        same = np.array_equal(coarse, x.value)
        return right(self, x if same else constant(coarse), context=context)

    return inspect


def _norm(right: Any, change: Any) -> Any:
    """A norm over the same input whose inverse root is another number."""

    def inspect(self: RmsNorm, x: Tensor, *, context: Any) -> dict[str, Tensor]:
        steps: dict[str, Tensor] = right(self, x, context=context)
        factor = change(self, steps["mean_square"].value)
        inverse = context.apply(ops.mul, steps["inverse_rms"], constant(factor))
        normalized = context.apply(ops.mul, x, inverse)
        output = context.apply(ops.mul, normalized, self.gain)
        return {**steps, "inverse_rms": inverse, "normalized": normalized, "output": output}

    return inspect


@mistake(
    (RmsNorm, "inspect"), source="notes/field.md section 3.1, RMSNorm; cases: norm-eps-rescale"
)
def epsilon_outside_root(right: Any) -> Any:
    """A row is divided by root(ms) + epsilon, not by root(ms + epsilon)."""

    def change(self: RmsNorm, square: Array) -> Array:
        root = np.sqrt(square) + self.epsilon
        return np.sqrt(square + self.epsilon) / np.where(root > 0.0, root, 1.0)

    return _norm(right, change)


@mistake((RmsNorm, "inspect"), source="notes/field.md section 3.1, RMSNorm (meta-llama 771)")
def epsilon_fixed(right: Any) -> Any:
    """Epsilon is 1e-6, whatever the configuration says."""
    return _norm(
        right, lambda self, square: np.sqrt(square + self.epsilon) / np.sqrt(square + 1e-6)
    )


@mistake((ops, "mean"), source="cases: norm-eps-rescale")
def tiny_squares_flushed(right: Any) -> Any:
    """Mean squares below 1e-12 count as nothing."""

    @named("mean")
    def mean(a: Array, *, axis: int, keep: bool = False) -> Result:
        value, vjp = right(a, axis=axis, keep=keep)
        return np.where(np.abs(value) < 1e-12, 0.0, value), vjp

    return mean


@mistake((ops, "mul"), source="cases: norm-huge-row")
def huge_squares_clamped(right: Any) -> Any:
    """Products that overflow become the largest double."""

    @named("mul")
    def mul(a: Array, b: Array) -> Result:
        with np.errstate(all="ignore"):
            value, vjp = right(a, b)
        return np.clip(value, -LARGEST, LARGEST), vjp

    return mul


@mistake((RmsNorm, "_check_energy"), source="cases: norm-eps-rescale")
def zero_row_accepted(_: Any) -> Any:
    """A row without energy is not refused by its own rule."""
    return lambda self, mean_square: None


@mistake((layers, "check_equal"), source="STYLE.md section 7")
def width_before_rank(right: Any) -> Any:
    """A layer that finds a wrong rank reports a wrong width."""

    def check_equal(code: Any, what: str, expected: Any, actual: Any, **details: Any) -> None:
        if "rank" in code and expected != actual:
            code = type(code)("shape/input-width-mismatch")
        right(code, what, expected, actual, **details)

    return check_equal


@mistake((Embedding, "new"), source="numerics_init.md section 3")
def refused_draw_moves_generator(right: Any) -> Any:
    """A refused constructor has drawn already."""

    def new(cls: Any, name: str, V: int, D: int, rng: Any) -> Any:
        try:
            return right.__func__(cls, name, V, D, rng)
        except Refusal:
            rng.next_u64()
            raise

    return classmethod(new)


FAULTS = tuple(_FOUND.values())
