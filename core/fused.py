"""Parts of a block as single operations, written once over the primitives of a kernel.

The composed operations of the layers are the definition: their order of additions and of
contributions is what a fused form repeats, and what it refuses is theirs to say. A fused form
therefore checks only what every non-finite step must have reached; where that is non-finite or
immoderate it raises `OutOfRange`, and the steps themselves are run in its place. A traced pass
runs the steps too, so that a trace shows them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .errors import Refusal
from .floats import Array, Ids
from .kernels import Kernel, Mask, OutOfRange
from .vjp import Contributions, Result, Vjp, is_quiet

if TYPE_CHECKING:
    from .tape import Context, Tensor

__all__ = ["Folded", "block", "either", "feed_forward_residual", "mean_nll", "norm",
           "tied_head"]  # fmt: skip

MANY_ROWS = 100_000
Steps: TypeAlias = "Callable[..., Tensor]"
Reverse: TypeAlias = Callable[[Array], Contributions]


class Folded(Vjp):
    """The reverse rule of a fused operation; `steps` makes the same node of composed ones.

    steps: the operand nodes -> the output node of their composed operations
    first: the operation of the first of them, which a released graph is named by
    """

    __slots__ = ("first", "steps")

    def __init__(self, rule: Reverse, steps: Steps, *, first: str) -> None:
        super().__init__(rule)
        self.steps = steps
        self.first = first


def either(
    context: Context, fused: Any, *operands: Tensor, steps: Steps, **arguments: Any
) -> Tensor:
    """The fused operation where it can vouch for its steps, else the steps.

    Refuses: as the steps
    """
    try:
        return context.apply(fused, *operands, steps=steps, **arguments)
    except (OutOfRange, Refusal):
        return steps(*operands)


def _ends_with(op_name: str) -> Callable[[Any], Any]:
    """Gives a fused operation the name of its last step, and silence while it computes."""

    def name(operation: Callable[..., Result]) -> Any:
        def quiet(*operands: Array, **arguments: Any) -> Result:
            if is_quiet():
                return operation(*operands, **arguments)
            with np.errstate(all="ignore"):
                return operation(*operands, **arguments)

        quiet.op_name = op_name  # type: ignore[attr-defined]
        quiet.__doc__ = operation.__doc__
        return quiet

    return name


def _check_roots(stable: Array, epsilon: float, kernel: Kernel) -> None:
    """Raises: OutOfRange, where a stabilised mean square is 0 or not moderate"""
    kernel.check(stable)
    if epsilon == 0.0 and not stable.all():  # else it is no less than epsilon
        raise OutOfRange


def _normalised(x: Array, gain: Array, epsilon: float, kernel: Kernel) -> tuple[Array, Reverse]:
    """x * inverse_root(mean(x^2) + epsilon) * gain, and dn -> (gain, x, x, x).

    Any square or sum beyond the range makes its mean infinite, so that the mean vouches for
    both. A root of such a mean would be a harmless 0: the mean itself is looked at. What the
    last two products make of the rest is for whoever reads the result.
    """
    stable = kernel.mean_square(x)
    stable += epsilon
    _check_roots(stable, epsilon, kernel)
    inverse = kernel.inverse_root(stable)
    normalised = x * inverse
    width = x.shape[-1]

    def reverse(upstream: Array) -> Contributions:
        """The steps back: gain, product with the root, root, logarithm, mean, square.

        The root's constants, epsilon and -0.5, have contributions too, dropped but checked: sums
        of `stabilised`, and of `scaled` times logarithms. Where a mean is 1 or more, `scaled` is
        below 2e300 with its logarithm below 346, else below 2e150: 1e5 rows fit into the range.
        """
        gain_gradient = kernel.column_dots(upstream, normalised)
        inner = upstream * gain
        scaled = kernel.row_dots(inner, x)
        inner *= inverse
        scaled *= inverse
        stabilised = scaled * -0.5
        stabilised /= stable
        kernel.check(stabilised)
        if stabilised.size > MANY_ROWS:
            kernel.check(scaled)
        stabilised /= width
        squared = stabilised * x
        return gain_gradient, inner, squared, squared

    return normalised * gain, reverse


def _attended(
    n: Array,
    weights: tuple[Array, Array, Array, Array],
    heads: int,
    turns: tuple[Array, Array],
    allowed: tuple[Mask, Mask],
    kernel: Kernel,
) -> tuple[Array, Callable[[Array], tuple[Array, Contributions]]]:
    """Rotated causal attention of n [B, T, D], and u -> (n's gradient, the weights').

    A non-finite n, projection, query or key makes its whole row or column of scores non-finite;
    a non-finite value or mixture reaches the output, for masked weights are 0 and 0 * inf is NaN.
    """
    query, key, value, output = weights
    B, T, D = n.shape
    width = D // heads
    turn, turn_back = kernel.rotation(*turns)
    projected = kernel.projections(n, (query, key, value))
    q, k, v = [rows.reshape(B, T, heads, width).swapaxes(1, 2) for rows in projected]
    q, k = turn(q), turn(k)
    scores = kernel.product(q, k.swapaxes(-1, -2))
    kernel.check(scores)
    scale = 1.0 / math.sqrt(float(width))
    scores *= scale
    weight = kernel.causal(scores, *allowed)
    merged = kernel.product(weight, v).transpose(0, 2, 1, 3).reshape(B, T, D)

    def reverse(upstream: Array) -> tuple[Array, Contributions]:
        """The scale's contribution, dropped but checked, is a sum of inner * scores: both are
        below 1e150, which leaves room for 1e8 of their products.
        """
        output_gradient = kernel.weight_gradient(merged, upstream)
        mixed = kernel.product(upstream, output.T).reshape(B, T, heads, width).swapaxes(1, 2)
        inner = kernel.product(mixed, v.swapaxes(-1, -2))
        kernel.check(inner)
        inner -= kernel.row_dots(inner, weight)
        inner *= weight
        kernel.check(inner)
        inner *= scale
        lanes = (
            turn_back(kernel.product(inner, k)),
            turn_back(kernel.product(inner.swapaxes(-1, -2), q)),
            kernel.product(weight.swapaxes(-1, -2), mixed),
        )
        back = [lane.swapaxes(1, 2).reshape(B, T, D) for lane in lanes]
        gradients = kernel.weight_gradients(n, back)
        arrived = kernel.input_gradient(back, weights[:3], (2, 1, 0))  # value, key, query
        return arrived, (*gradients, output_gradient)

    return kernel.product(merged, output), reverse


def _gated(
    n: Array, gate: Array, up: Array, down: Array, kernel: Kernel
) -> tuple[Array, Callable[[Array], tuple[Array, Contributions]]]:
    """(silu(n @ gate) * (n @ up)) @ down, and u -> (n's gradient, the weights').

    Every non-finite step reaches the output: inf * 0 is NaN in each product and each sum.
    """
    g, raised = kernel.projections(n, (gate, up))
    s = kernel.sigmoid(g)
    activated = g * s
    product = activated * raised

    def reverse(upstream: Array) -> tuple[Array, Contributions]:
        """A non-finite adjoint reaches a weight's gradient, which the tape looks at."""
        down_gradient = kernel.weight_gradient(product, upstream)
        inner = kernel.product(upstream, down.T)
        raised_back = inner * activated
        slope = 1.0 - s
        slope *= g
        slope += 1.0
        slope *= s
        inner *= raised
        inner *= slope
        back = (inner, raised_back)
        gradients = kernel.weight_gradients(n, back)
        arrived = kernel.input_gradient(back, (gate, up), (1, 0))  # up, then gate
        return arrived, (*gradients, down_gradient)

    return kernel.product(product, down), reverse


@_ends_with("mul")
def norm(
    x: Array, gain: Array, _: Array, __: Array, *, epsilon: float, kernel: Kernel, steps: Steps
) -> Result:
    """RMSNorm. Operands: x, gain, x, x: the contributions to x come in the order of its uses."""
    value, reverse = _normalised(x, gain, epsilon, kernel)

    def rule(upstream: Array) -> Contributions:
        gain_gradient, *parts = reverse(upstream)
        return parts[0], gain_gradient, parts[1], parts[2]

    return value, Folded(rule, steps, first="mul")


@_ends_with("add")
def block(
    x: Array,
    *operands: Array,
    epsilons: tuple[float, float],
    heads: int,
    turns: tuple[Array, Array],
    allowed: tuple[Mask, Mask],
    kernel: Kernel,
    steps: Steps,
) -> Result:
    """a = x + attention(norm(x)); a + swiglu(norm(a)).

    Operands: x, the nine parameters in block order, then x three times.
    """
    gain, query, key, value, output, last_gain, gate, up, down = operands[:9]
    n, norm_reverse = _normalised(x, gain, epsilons[0], kernel)
    weights = (query, key, value, output)
    residual, reverse = _attended(n, weights, heads, turns, allowed, kernel)
    residual += x
    result, last = _residual_feed_forward(residual, gate, up, down, last_gain, epsilons[1], kernel)

    def rule(upstream: Array) -> Contributions:
        (first, second, third), last_gain_gradient, gradients = last(upstream)
        adjoint = upstream + first
        adjoint += second
        adjoint += third
        inner, attention_gradients = reverse(adjoint)
        gain_gradient, *parts = norm_reverse(inner)
        return (
            adjoint, gain_gradient, *attention_gradients, last_gain_gradient, *gradients, *parts,
        )  # fmt: skip

    return result, Folded(rule, steps, first="mul")


def _residual_feed_forward(
    x: Array, gate: Array, up: Array, down: Array, gain: Array, epsilon: float, kernel: Kernel
) -> tuple[Array, Callable[[Array], tuple[Contributions, Array, Contributions]]]:
    """x + swiglu(norm(x)), and u -> (what x gets beside u, the gain's, the weights')."""
    n, norm_reverse = _normalised(x, gain, epsilon, kernel)
    branch, reverse = _gated(n, gate, up, down, kernel)

    def back(upstream: Array) -> tuple[Contributions, Array, Contributions]:
        arrived, gradients = reverse(upstream)
        gain_gradient, *parts = norm_reverse(arrived)
        return tuple(parts), gain_gradient, gradients

    branch += x
    return branch, back


@_ends_with("add")
def feed_forward_residual(
    x: Array,
    gate: Array,
    up: Array,
    down: Array,
    gain: Array,
    *_: Array,
    epsilon: float,
    kernel: Kernel,
    steps: Steps,
) -> Result:
    """x + swiglu(norm(x)). Operands: x, the three weights, the gain, then x three times."""
    value, reverse = _residual_feed_forward(x, gate, up, down, gain, epsilon, kernel)

    def rule(upstream: Array) -> Contributions:
        parts, gain_gradient, gradients = reverse(upstream)
        return (upstream, *gradients, gain_gradient, *parts)

    return value, Folded(rule, steps, first="mul")


@_ends_with("matmul")
def tied_head(hidden: Array, table: Array, *, kernel: Kernel, steps: Steps) -> Result:
    """hidden [B, T, D] times the transposed table [V, D]."""

    def rule(upstream: Array) -> Contributions:
        return kernel.product(upstream, table), kernel.table_gradient(upstream, hidden)

    return kernel.product(hidden, table.T), Folded(rule, steps, first="transpose")


@_ends_with("indexed_mean_nll")
def mean_nll(
    logits: Array, *, cells: Ids | None, targets: Ids, kernel: Kernel, steps: Steps
) -> Result:
    """The mean loss of the flat cells of logits [B, T, V], None for all, one target for each."""
    shape = logits.shape
    rows = logits.reshape(-1, shape[-1])
    if cells is not None:
        rows = rows[cells]
    groups = float(len(rows))
    losses, gradients = kernel.row_losses(rows, targets)
    kernel.check(losses)

    def rule(upstream: Array) -> Contributions:
        gradient = gradients(upstream / groups)
        if cells is not None:
            table = np.zeros((shape[0] * shape[1], shape[2]))
            table[cells] = gradient
            gradient = table
        return (gradient.reshape(shape),)

    first = "indexed_mean_nll" if cells is None else "reshape"
    return np.asarray(kernel.total(losses) / groups + 0.0), Folded(rule, steps, first=first)
