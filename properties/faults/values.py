"""Faults that move values beyond rounding, forward or in the reverse pass alone.

Most are conventions taken from another architecture, or casts; a fixture with tiny weights, gains
of one, or one position sees few of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from logitproof.core import attention, floats, ops, softmax, text
from logitproof.core.attention import Attention
from logitproof.core.block import DecoderBlock
from logitproof.core.floats import Array
from logitproof.core.layers import RmsNorm, SwiGlu
from logitproof.core.rope import RotaryTable
from logitproof.core.tape import RECORDING, Context, Tensor, constant
from logitproof.core.text import Decoder, TextOutputHead
from logitproof.core.vjp import Result, Vjp, named

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")

BUGS = "notes/field.md section 3.1"
HARD_CODED_BASE, LOGIT_LIMIT, SMALLEST_NORMAL = 10000.0, 1e5, 2.0**-1022


def _single(values: Array) -> Array:
    """Rounded to 24 bits on the way."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _with_slope(right: Any, slope: Callable[[Array, Array], Array]) -> Any:
    """An elementwise operation with another reverse rule: the slope, from operand and value."""

    def operation(a: Array, **arguments: Any) -> Result:
        value, vjp = right(a, **arguments)
        return value, Vjp(lambda upstream: (upstream * slope(a, value),), *vjp.saved)

    return named(right.op_name)(operation)


def _norm(inverse: Callable[[Context, Tensor, float], Tensor]) -> Any:
    """RMSNorm whose inverse root follows from input and epsilon in another way."""

    def inspect(self: RmsNorm, x: Tensor, *, context: Context = RECORDING) -> dict[str, Tensor]:
        root = inverse(context, x, self.epsilon)
        normalized = context.apply(ops.mul, x, root)
        output = context.apply(ops.mul, normalized, self.gain)
        return {"inverse_rms": root, "normalized": normalized, "output": output}

    return inspect


def _mean_square(context: Context, x: Tensor) -> Tensor:
    square = context.apply(ops.mul, x, x)
    return context.apply(ops.mean, square, axis=len(x.shape) - 1, keep=True)


def _power(context: Context, x: Tensor, exponent: float) -> Tensor:
    scaled = context.apply(ops.mul, context.apply(ops.log, x), constant(exponent))
    return context.apply(ops.exp, scaled)


@mistake((RmsNorm, "inspect"), source=f"{BUGS}: eps, ipex-llm #9529")
def epsilon_added_to_sum(_: Any) -> Any:
    """Epsilon is added to the sum of squares, before it is divided by the width."""

    def inverse(context: Context, x: Tensor, epsilon: float) -> Tensor:
        small = constant(epsilon / x.shape[-1])
        return _power(context, context.apply(ops.add, _mean_square(context, x), small), -0.5)

    return _norm(inverse)


@mistake((RmsNorm, "inspect"), source=f"{BUGS}: no upcast of squares, minimind #301")
def squares_in_single_precision(_: Any) -> Any:
    """The inverse root is rounded to 24 bits, as after squares in float32."""

    @named("exp")
    def rounded(a: Array) -> Result:
        value, vjp = ops.exp(a)
        return _single(value), vjp

    def inverse(context: Context, x: Tensor, epsilon: float) -> Tensor:
        st = context.apply(ops.add, _mean_square(context, x), constant(epsilon))
        halved = context.apply(ops.mul, context.apply(ops.log, st), constant(-0.5))
        return context.apply(rounded, halved)

    return _norm(inverse)


@mistake((RmsNorm, "inspect"), source=f"{BUGS}: RMSNorm, Liger #89")
def norm_root_held_fixed(_: Any) -> Any:
    """The reverse pass takes the root mean square for a constant."""

    def inverse(context: Context, x: Tensor, epsilon: float) -> Tensor:
        st = context.apply(ops.add, _mean_square(context, x), constant(epsilon))
        return _power(context, st, -0.5).detach()

    return _norm(inverse)


@mistake((RmsNorm, "inspect"), source=f"{BUGS}: 1 + w, Liger #74")
def gain_plus_one(right: Any) -> Any:
    """The gain is an offset from one, as in another family of models."""

    def inspect(self: RmsNorm, x: Tensor, *, context: Context = RECORDING) -> dict[str, Tensor]:
        steps: dict[str, Tensor] = right(self, x, context=context)
        moved = context.apply(ops.add, steps["output"], steps["normalized"])
        return {**steps, "output": moved}

    return inspect


@mistake((RmsNorm, "inspect"), source=f"{BUGS}: RMSNorm")
def norm_subtracts_mean(right: Any) -> Any:
    """The norm subtracts the mean, as LayerNorm does."""

    def inspect(self: RmsNorm, x: Tensor, *, context: Context = RECORDING) -> dict[str, Tensor]:
        mean = context.apply(ops.mean, x, axis=len(x.shape) - 1, keep=True)
        minus = context.apply(ops.mul, mean, constant(-1.0))
        centred: dict[str, Tensor] = right(self, context.apply(ops.add, x, minus), context=context)
        return centred

    return inspect


def _scores_times(right: Any, factor: Callable[[int], float]) -> Any:
    """Attention whose scores are multiplied by one factor more."""

    def scaled_dot_product(query: Tensor, *rest: Tensor, context: Context, **ranges: Any) -> Any:
        moved = context.apply(ops.mul, query, constant(factor(query.shape[2])))
        return right(moved, *rest, context=context, **ranges)

    return scaled_dot_product


@mistake((attention, "scaled_dot_product"), source="numerics.md section 12")
def score_scale_missing(right: Any) -> Any:
    """Scores are not divided by sqrt(d_h)."""
    return _scores_times(right, lambda d_h: float(np.sqrt(d_h)))


@mistake((attention, "scaled_dot_product"), source="numerics.md section 12")
def score_scale_without_root(right: Any) -> Any:
    """Scores are divided by d_h, not by its root."""
    return _scores_times(right, lambda d_h: float(1.0 / np.sqrt(d_h)))


@mistake((RotaryTable, "rotate"), (RotaryTable, "rotate_at"), source="notes/field.md section 0")
def rotation_missing(*_: Any) -> Any:
    """Queries and keys are not turned: below the noise of a common fixture."""

    def unturned(_: RotaryTable, x: Tensor, *__: Any, **___: Any) -> Tensor:
        return x

    return unturned, unturned


@mistake((RotaryTable, "_frequencies"), source=f"{BUGS}: RoPE, tt-metal #26844")
def frequency_without_two(_: Any) -> Any:
    """Frequencies are base^(-i / d_h), not base^(-2i / d_h)."""

    def frequencies(self: RotaryTable, pairs: int) -> Array:
        return floats.pow(self.base, -np.arange(pairs, dtype=np.float64) / float(self.width))

    return frequencies


@mistake((RotaryTable, "_frequencies"), source=f"{BUGS}: RoPE, lattice #96")
def rotary_base_hard_coded(_: Any) -> Any:
    """The base is 10000, whatever the configuration says."""

    def frequencies(self: RotaryTable, pairs: int) -> Array:
        exponents = -2.0 * np.arange(pairs, dtype=np.float64) / float(self.width)
        return floats.pow(HARD_CODED_BASE, exponents)

    return frequencies


@mistake((Attention, "_attend"), source=f"{BUGS}: offset after the advance, mlx-lm #1396")
def query_one_position_on(right: Any) -> Any:
    """Queries are turned by one position more than the keys beside them."""

    def attend(self: Attention, query: Tensor, *rest: Any) -> Any:
        angles = self.rotation.frequencies[None, :]
        tables = {"cosines": np.cos(angles), "sines": np.sin(angles)}
        return right(self, rest[-1].apply(ops.rotary, query, **tables), *rest)

    return attend


@mistake((attention, "split_heads"), source="cases: mask-gqa-head-map")
def heads_interleaved(right: Any) -> Any:
    """Head h reads features h, h + H, h + 2H, ..., not the h-th run of them."""

    def split_heads(x: Tensor, heads: int, *, context: Context) -> Tensor:
        B, T, D = x.shape
        split = context.apply(ops.reshape, x, shape=(B, T, D // heads, heads))
        turned = context.apply(ops.transpose, split, axes=(2, 3))
        return right(  # type: ignore[no-any-return]
            context.apply(ops.reshape, turned, shape=(B, T, D)), heads, context=context
        )

    return split_heads


@mistake((softmax, "_allowed_keys"), source=f"{BUGS}: masks, onnxruntime #29020")
def own_key_masked(right: Any) -> Any:
    """A query does not read its own key, unless it has no other."""

    def allowed(shape: Any, starts: Any, lengths: Any) -> Any:
        keys = right(shape, starts, lengths).copy()
        t = np.arange(shape[-1])
        own = keys[..., t, t]
        keys[..., t, t] = own & (keys.sum(axis=-1) == 1)
        return keys

    return allowed


@mistake((ops, "causal_softmax"), source="numerics.md section 7")
def softmax_off_by_one(right: Any) -> Any:
    """One more is added to the sum of exponentials: weights no longer sum to one."""

    @named("causal_softmax")
    def causal_softmax(scores: Array, **ranges: Any) -> Result:
        p, vjp = right(scores, **ranges)
        top = p.max(axis=-1, keepdims=True)  # e^0 / sum
        return p / (1.0 + top), vjp

    return causal_softmax


@mistake((ops, "log_softmax"), source="numerics_vjp.md section 3")
def log_slopes_without_probabilities(right: Any) -> Any:
    """The gradient of log-probabilities subtracts the mean of what arrives, whatever they are."""

    @named("log_softmax")
    def log_softmax(a: Array, *, axis: int) -> Result:
        value, _ = right(a, axis=axis)
        return value, Vjp(lambda u: (u - u.mean(axis=axis, keepdims=True),))

    return log_softmax


@mistake((ops, "causal_softmax"), source="cases: ad-reused-node")
def softmax_slope_without_mean(right: Any) -> Any:
    """The reverse rule of the weights leaves out that they sum to one."""
    return _with_slope(right, lambda _, value: value)


@mistake((ops, "causal_softmax"), source=f"{BUGS}: dtype casts, Liger #1313")
def probabilities_in_single_precision(right: Any) -> Any:
    """Attention weights are rounded to 24 bits before they meet the values."""

    @named("causal_softmax")
    def causal_softmax(scores: Array, **ranges: Any) -> Result:
        value, vjp = right(scores, **ranges)
        return _single(value), vjp

    return causal_softmax


@mistake((ops, "silu"), source="cases: act-sigmoid-grad")
def silu_slope_is_sigmoid(right: Any) -> Any:
    """The slope of SiLU leaves out the slope of the sigmoid."""
    return _with_slope(right, lambda a, _: ops.sigmoid(a))


@mistake((ops, "silu"), source="numerics.md section 6")
def gelu_by_sigmoid(right: Any) -> Any:
    """The gate's activation is x sigmoid(1.702 x), another model's."""

    @named("silu")
    def silu(a: Array) -> Result:
        value, vjp = right(a * 1.702)
        return value / 1.702, Vjp(vjp.rule, *vjp.saved)

    return silu


@mistake((SwiGlu, "forward"), source="layers.md section 4")
def gate_and_up_exchanged(_: Any) -> Any:
    """SiLU is applied to the up projection."""

    def forward(self: SwiGlu, x: Tensor, *, context: Context = RECORDING) -> Tensor:
        up = context.apply(ops.silu, self.up.forward(x, context=context))
        gate = self.gate.forward(x, context=context)
        return self.down.forward(context.apply(ops.mul, gate, up), context=context)

    return forward


@mistake((DecoderBlock, "feed_forward"), source="numerics.md section 13")
def residual_after_norm(_: Any) -> Any:
    """The feed-forward branch is added to its normed input."""

    def feed_forward(self: DecoderBlock, residual: Tensor, *, context: Context) -> Tensor:
        normed = self.ffn_norm.forward(residual, context=context)
        return context.apply(ops.add, normed, self.ffn.forward(normed, context=context))

    return feed_forward


@mistake((DecoderBlock, "_residual"), source="cases: ad-reused-node")
def residual_slope_dropped(right: Any) -> Any:
    """The reverse pass forgets the path around the attention."""
    return lambda self, x, attended, context: right(self, x.detach(), attended, context)


@mistake((text, "_embed"), source=f"{BUGS}: conventions of other families")
def embeddings_times_root(right: Any) -> Any:
    """Embeddings are multiplied by sqrt(D) before the first block."""

    def embed(decoder: Any, cells: Any, layout: Any, context: Context) -> Tensor:
        x: Tensor = right(decoder, cells, layout, context)
        return context.apply(ops.mul, x, constant(float(np.sqrt(x.shape[-1]))))

    return embed


@mistake((ops, "indexed_mean_nll"), source=f"{BUGS}: loss normalisation, HF #34191")
def logit_gradient_not_divided(right: Any) -> Any:
    """The mean's gradient is the sum's: not divided by the count of targets."""

    @named("indexed_mean_nll")
    def mean(logits: Array, *, axis: int, targets: Any) -> Result:
        value, vjp = right(logits, axis=axis, targets=targets)
        count = float(np.size(targets))
        return value, Vjp(lambda upstream: vjp.rule(upstream * count), *vjp.saved)

    return mean


@mistake((Decoder, "_loss"), source=f"{BUGS}: loss normalisation, trl #2175")
def mean_of_row_means(right: Any) -> Any:
    """Each row's losses are averaged first, then the rows."""

    def loss(
        self: Decoder, op: Any, ids: Any, targets: Any, layout: Any, _: Any, context: Context
    ) -> Tensor:
        cells = np.asarray(targets) >= 0
        rows = [b for b in range(len(cells)) if cells[b].any()]
        parts = []
        for b in rows:
            alone = np.zeros_like(cells)
            alone[b] = cells[b]
            chosen = np.where(alone, np.asarray(targets), -1)
            parts.append(right(self, op, ids, chosen, layout, alone, context))
        total = parts[0]
        for part in parts[1:]:
            total = context.apply(ops.add, total, part)
        return context.apply(ops.mul, total, constant(1.0 / len(rows)))

    return loss


@mistake((Decoder, "_loss"), source=f"{BUGS}: loss normalisation, HF #35203")
def targets_of_previous_cell(right: Any) -> Any:
    """Every valid cell but a row's first is judged by the target of the cell before."""

    def loss(self: Decoder, op: Any, ids: Any, targets: Any, *rest: Any) -> Tensor:
        given = np.asarray(targets)
        before = np.concatenate([given[:, :1], given[:, :-1]], axis=1)
        moved = np.where((given >= 0) & (before >= 0), before, given)
        return right(self, op, ids, moved, *rest)  # type: ignore[no-any-return]

    return loss


@mistake((ops, "transpose"), source="cases: tied-grad-two-paths")
def head_gradient_halved(right: Any) -> Any:
    """The head's share of the table gradient is halved, as by averaging two tied copies."""

    @named("transpose")
    def transpose(a: Array, *, axes: Any) -> Result:
        value, vjp = right(a, axes=axes)
        table = a.ndim == 2
        rule = (lambda u: (0.5 * vjp.rule(u)[0],)) if table else vjp.rule
        return value, Vjp(rule, *vjp.saved)

    return transpose


def _clamped(right: Any, limit: float) -> Any:
    """A method of one tensor whose input is cut off at a limit, with slope 0 beyond."""

    @named("clamp")
    def clamp(a: Array) -> Result:
        inside = np.abs(a) <= limit
        return np.clip(a, -limit, limit), Vjp(lambda upstream: (upstream * inside,))

    def method(self: Any, x: Tensor, *, context: Context = RECORDING) -> Any:
        return right(self, context.apply(clamp, x), context=context)

    return method


@mistake((RmsNorm, "inspect"), source="cases: norm-huge-row")
def norm_input_clamped(right: Any) -> Any:
    """Norm inputs are cut off at 65504, as half precision would have it."""
    return _clamped(right, 65504.0)


@mistake((TextOutputHead, "forward"), source="cases: loss-huge-logits")
def logits_clamped(right: Any) -> Any:
    """Logits are cut off at 10^5, lest exponentials overflow."""

    @named("clamp")
    def clamp(a: Array) -> Result:
        inside = np.abs(a) <= LOGIT_LIMIT
        return np.clip(a, -LOGIT_LIMIT, LOGIT_LIMIT), Vjp(lambda u: (u * inside,))

    return lambda self, context, hidden: context.apply(clamp, right(self, context, hidden))


@mistake((TextOutputHead, "forward"), source="cases: num-ftz")
def hidden_subnormals_flushed(right: Any) -> Any:
    """Subnormal hidden features are zero before the head."""

    @named("flush")
    def flush(a: Array) -> Result:
        return np.where(np.abs(a) < SMALLEST_NORMAL, 0.0, a), Vjp(lambda upstream: (upstream,))

    return lambda self, context, hidden: right(self, context, context.apply(flush, hidden))


@mistake((RotaryTable, "rotate_at"), source="cases: rope-freq-low-precision")
def positions_wrap_at_512(right: Any) -> Any:
    """Positions of a layout are taken modulo 512, the length that a model was trained on."""
    return lambda self, x, positions, *, context: right(self, x, positions % 512, context=context)


FAULTS = tuple(_FOUND.values())
