"""Faults that round in another order or form: what is computed is the same real number."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from logitproof.core import attention, floats, layers, ops, rope, softmax
from logitproof.core.backward import ReversePass
from logitproof.core.floats import Array
from logitproof.core.tape import Context, Parameter, Tensor
from logitproof.core.vjp import Result, Vjp, named

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
TABLE = "notes/peers.md section 1, table of order changes"
order = partial(planted, _FOUND, kind="order", source=TABLE)

Terms = list[Array]
RESIDUALS = ("add", "gather_rows", "reshape")  # the operations whose results norms read


@order((floats, "contract"))
def contraction_descending(right: Any) -> Any:
    """Dot products add their terms from the last to the first."""
    return lambda a, b: right(a[..., ::-1], b[..., ::-1, :])


@planted(_FOUND, (floats, "contract"), kind="order", source="notes/peers.md section 3b")
def contraction_by_blas(_: Any) -> Any:
    """Dot products are numpy's: blocked, fused, and other bits per number of rows."""
    return lambda a, b: np.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b))


@planted(_FOUND, (floats, "_mixed_signs"), kind="order", source="notes/field.md section 5.2")
def product_tried_on_tame_numbers(_: Any) -> Any:
    """Whether numpy's products keep the order is tried on ones, whose sums no order changes."""
    return lambda rows, columns: np.ones((rows, columns))


@order((ops, "matmul"))
def flat_weight_gradient(right: Any) -> Any:
    """A weight gradient is one sum over rows and tokens, not one per row and then their sum."""

    @named("matmul")
    def matmul(a: Array, b: Array) -> Result:
        value, vjp = right(a, b)

        def rule(upstream: Array) -> tuple[Array, ...]:
            left, weight = vjp.rule(upstream)
            if a.ndim == 3 and b.ndim == 2:
                flat = a.reshape(-1, a.shape[-1]).swapaxes(0, 1)
                weight = floats.contract(flat, upstream.reshape(-1, b.shape[-1]))
            return left, weight

        return value, Vjp(rule, *vjp.saved)

    return matmul


def _reordered(right: Any, operations: tuple[str, ...], change: Callable[[Terms], Terms]) -> Any:
    """A delivery that adds all contributions of such a node again, in a changed order."""

    def deliver(self: Any, contribution: Array, parent: Tensor) -> None:
        right(self, contribution, parent)
        if parent.op not in operations:
            return
        arrived = self.__dict__.setdefault("arrived", {}).setdefault(id(parent), [])
        arrived.append(contribution)
        total = np.zeros(parent.shape)
        for term in change(arrived):
            total = total + term
        self.adjoints[id(parent)] = total

    return deliver


@order((ReversePass, "_deliver"))
def query_key_value_order(right: Any) -> Any:
    """The normed input collects query, key, value, not value, key, query."""
    return _reordered(right, ("mul",), lambda terms: terms[::-1])


@order((ReversePass, "_deliver"))
def norm_square_doubled(right: Any) -> Any:
    """A norm's two equal square terms arrive as one doubled term."""
    return _reordered(
        right,
        RESIDUALS,
        lambda terms: [*terms[:-2], 2.0 * terms[-1]] if len(terms) > 2 else terms,
    )


@order((ReversePass, "_deliver"))
def norm_squares_first(right: Any) -> Any:
    """A norm's square terms arrive before the scaled one."""
    return _reordered(
        right,
        RESIDUALS,
        lambda terms: [*terms[:-3], *terms[-2:], terms[-3]] if len(terms) > 2 else terms,
    )


@order((ReversePass, "_deliver"))
def residual_adjoint_last(right: Any) -> Any:
    """What lies on a residual is added after the norm's terms."""
    return _reordered(
        right, RESIDUALS, lambda terms: [*terms[1:], terms[0]] if len(terms) == 4 else terms
    )


@order((ops, "log"), (ops, "exp"))
def inverse_root_by_sqrt(right_log: Any, _: Any) -> Any:
    """The norm's inverse root is 1 / sqrt(st), not exp(-0.5 * log(st))."""

    @named("log")
    def log(a: Array) -> Result:  # hands st on; the norm halves and negates it, exactly
        return a.copy(), right_log(a)[1]

    @named("exp")
    def exp(a: Array) -> Result:
        value = 1.0 / np.sqrt(-2.0 * a)
        return value, Vjp(lambda upstream: (upstream * value,), {"output": value})

    return log, exp


@order((floats, "mean"))
def mean_by_reciprocal(_: Any) -> Any:
    """A mean is multiplied by 1/n, not divided by n: seen where n is no power of two."""
    return lambda values, *, axis, keep=False: (
        floats.total(values, axis=axis, keep=keep) * (1.0 / values.shape[axis])
    )


@order((ops, "_spread"))
def mean_slope_by_reciprocal(right: Any) -> Any:
    """A mean's gradient is multiplied by 1/n, not divided by n."""

    def spread(shape: Any, axis: int, *, keep: bool, divisor: float) -> Vjp:
        vjp: Vjp = right(shape, axis, keep=keep, divisor=1.0)
        return Vjp(lambda upstream: (vjp.rule(upstream)[0] * (1.0 / divisor),), *vjp.saved)

    return spread


@order((layers.RmsNorm, "inspect"))
def gain_before_scaling(right: Any) -> Any:
    """A norm is x * (inverse * gain), not (x * inverse) * gain: seen with gains other than 1."""

    def inspect(self: layers.RmsNorm, x: Tensor, *, context: Context) -> dict[str, Tensor]:
        steps: dict[str, Tensor] = right(self, x, context=context)
        factor = context.apply(ops.mul, steps["inverse_rms"], self.gain)
        return {**steps, "output": context.apply(ops.mul, x, factor)}

    return inspect


def _probabilities(right: Any, normalise: Callable[[Array], Array]) -> Any:
    """The causal softmax with other probabilities from the same scores."""

    @named("causal_softmax")
    def causal_softmax(scores: Array, **ranges: Any) -> Result:
        value, vjp = right(scores, **ranges)
        shown = np.where(value > 0.0, scores, -np.inf)  # hidden keys stay hidden
        wrong = np.where(value > 0.0, normalise(shown), 0.0)

        def rule(upstream: Array) -> tuple[Array, ...]:
            w = floats.total(upstream * wrong, axis=scores.ndim - 1, keep=True)
            return (wrong * (upstream - w) + 0.0,)

        return wrong, Vjp(rule, *vjp.saved)

    return causal_softmax


@order((ops, "causal_softmax"))
def softmax_sum_with_maximum(right: Any) -> Any:
    """The attention's row sum takes in the maximum, not 1 + the others."""

    def normalise(scores: Array) -> Array:
        e = floats.exp(scores - np.maximum(scores.max(axis=-1, keepdims=True), -1e300))
        return e / np.maximum(floats.total(e, axis=scores.ndim - 1, keep=True), 1e-300)

    return _probabilities(right, normalise)


@planted(_FOUND, (ops, "causal_softmax"), kind="order", source="notes/peers.md section 3b")
def softmax_maximum_of_batch(right: Any) -> Any:
    """Scores are shifted by the largest of the batch: a row's bits depend on its neighbours."""

    def normalise(scores: Array) -> Array:
        e = floats.exp(scores - scores.max())
        return e / floats.total(e, axis=scores.ndim - 1, keep=True)

    return _probabilities(right, normalise)


@order((ops, "causal_softmax"))
def softmax_slope_expanded(right: Any) -> Any:
    """The attention's reverse rule is p*u - p*w, not p * (u - w)."""

    @named("causal_softmax")
    def causal_softmax(scores: Array, **ranges: Any) -> Result:
        p, vjp = right(scores, **ranges)

        def rule(upstream: Array) -> tuple[Array, ...]:
            w = floats.total(upstream * p, axis=scores.ndim - 1, keep=True)
            return (p * upstream - p * w + 0.0,)

        return p, Vjp(rule, *vjp.saved)

    return causal_softmax


@order((softmax.RowStatistics, "__init__"))
def log_of_one_plus_tail(right: Any) -> Any:
    """The log-sum is log(1 + tail), not log1p(tail): 0 where the model is sure."""

    def init(self: softmax.RowStatistics, rows: Array) -> None:
        right(self, rows)
        self._log_sum = floats.log(1.0 + self.tail)

    return init


@order((softmax._Nll, "__init__"))
def maximum_plus_log_minus_target(right: Any) -> Any:
    """A loss is (m + log-sum) - z, not (m - z) + log-sum."""

    def init(self: Any, *operands: Any, **arguments: Any) -> None:
        right(self, *operands, **arguments)
        self.losses = (self.statistics.maximum + self.statistics.log_sum) - self._chosen()

    return init


@order((ops, "indexed_mean_nll"))
def mean_loss_by_reciprocal(right: Any) -> Any:
    """The mean loss is the sum times 1/n, not the sum over n."""

    @named("indexed_mean_nll")
    def mean(logits: Array, *, axis: int, targets: Any) -> Result:
        total, _ = ops.indexed_sum_nll(logits, axis=axis, targets=targets)
        return total * (1.0 / np.size(targets)), right(logits, axis=axis, targets=targets)[1]

    return mean


@order((softmax._Nll, "vjp"))
def logit_gradient_divided(right: Any) -> Any:
    """The logit gradient is (P - target) / n, not (P - target) * (1/n)."""

    def vjp(self: Any, divisor: float) -> Vjp:
        undivided: Vjp = right(self, 1.0)
        return Vjp(lambda u: (undivided.rule(u)[0] / divisor,), *undivided.saved)

    return vjp


@order((softmax.RowStatistics, "probabilities"))
def probability_by_reciprocal(_: Any) -> Any:
    """The loss's probabilities are e * (1/S), not e / S."""
    return lambda self: self.exponentials * (1.0 / (1.0 + self.tail))[:, None] + 0.0


@order((attention, "constant"), (ops, "mul"))
def score_divided_by_root(_: Any, right: Any) -> Any:
    """A score is divided by sqrt(d_h), not multiplied by 1/sqrt(d_h)."""
    marked: list[Array] = []

    def scale(value: float) -> Tensor:
        root = Tensor(np.array(math.sqrt(round(1.0 / value**2))), "constant")
        marked[:] = [root._value]  # the array itself, which operations get; `value` is a view
        return root

    @named("mul")
    def mul(a: Array, b: Array) -> Result:
        if not (marked and b is marked[0]):
            result: Result = right(a, b)
            return result
        rule = lambda u: (u / b, np.zeros(()))  # noqa: E731
        return a / b, Vjp(rule)

    return scale, mul


@order((ops, "sigmoid"))
def one_branch_sigmoid(_: Any) -> Any:
    """The sigmoid is 1 / (1 + exp(-x)) for negative x too."""
    return lambda a: 1.0 / (1.0 + floats.exp(-a))


@order((ops, "silu"))
def silu_slope_expanded(right: Any) -> Any:
    """The slope of SiLU is s + x*s*(1-s), not s * (1 + x*(1-s))."""

    @named("silu")
    def silu(a: Array) -> Result:
        value, vjp = right(a)
        s = ops.sigmoid(a)
        return value, Vjp(lambda u: (u * (s + a * s * (1.0 - s)),), *vjp.saved)

    return silu


@order((rope.RotaryTable, "_frequencies"))
def frequency_by_reciprocal(_: Any) -> Any:
    """A frequency is 1 / base^(2i/d_h), not base^(-2i/d_h)."""
    return lambda self, pairs: 1.0 / floats.pow(self.base, 2.0 * np.arange(pairs) / self.width)


@order((rope.RotaryTable, "_frequencies"))
def frequency_by_exp_log(_: Any) -> Any:
    """A frequency is exp(-log(base) * 2i/d_h), not base^(-2i/d_h)."""
    return lambda self, pairs: floats.exp(
        -floats.log(np.array(self.base)) * (2.0 * np.arange(pairs) / self.width)
    )


@order((floats, "scatter_add"), (ReversePass, "_deliver"))
def gather_into_head_gradient(right_scatter: Any, right: Any) -> Any:
    """Looked-up rows are added one by one to the head's gradient, not summed before."""
    last: dict[str, Any] = {}

    def scatter_add(rows: Array, *, indices: Any, count: int) -> Any:
        last.update(rows=rows, indices=indices)
        return right_scatter(rows, indices=indices, count=count)

    def deliver(self: Any, contribution: Array, parent: Tensor) -> None:
        previous = self.adjoints.get(id(parent))
        right(self, contribution, parent)
        scattered = last.copy()
        last.clear()  # else the next pass would find the rows of this one
        if isinstance(parent, Parameter) and previous is not None and scattered:
            added = previous.copy()
            np.add.at(added, scattered["indices"], scattered["rows"])
            self.adjoints[id(parent)] = added

    return scatter_add, deliver


@planted(_FOUND, (floats, "total"), kind="order", source="cases: num-sum-layout")
def sum_pairwise(_: Any) -> Any:
    """Sums are numpy's, in eight accumulators from eight terms on."""
    return lambda values, *, axis, keep=False: np.asarray(
        np.sum(np.ascontiguousarray(values), axis=axis, keepdims=keep) + 0.0
    )


@planted(_FOUND, (layers, "xavier"), kind="order", source="numerics_init.md section 2")
def xavier_other_association(right: Any) -> Any:
    """An element is 2 * limit * u - limit, not limit * (2u - 1)."""

    def xavier(name: str, fan_in: int, fan_out: int, rng: Any) -> Parameter:
        draft = rng.copy()
        right(name, fan_in, fan_out, rng)
        limit = math.sqrt(6.0 / float(fan_in + fan_out))
        drawn = draft.uniforms(fan_in * fan_out).reshape(fan_in, fan_out)
        return Parameter(name, 2.0 * limit * drawn - limit)

    return xavier


FAULTS = tuple(_FOUND.values())
