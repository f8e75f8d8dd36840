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

from . import floats
from .errors import Refusal
from .floats import Array, Ids
from .kernels import Kernel, Mask, OutOfRange
from .vjp import Contributions, Result, Vjp, is_quiet

if TYPE_CHECKING:
    from .tape import Context, Tensor

__all__ = ["Folded", "block", "either", "feed_forward_residual", "mean_nll", "norm",
           "norm_uses", "rows", "tied_head"]  # fmt: skip

ONE, MINUS_HALF = np.array(1.0), np.array(-0.5)  # cheaper operands than Python numbers
Steps: TypeAlias = "Callable[..., Tensor]"
Reverse: TypeAlias = Callable[[Array], Contributions]


class Folded(Vjp):
    """The reverse rule of a fused operation; `steps` makes the same node of composed ones.

    rule:   as of every operation; what it gives for a parameter is its caller's to change
    steps:  the operand nodes -> the output node of their composed operations
    first:  the operation of the first of them, which a released graph is named by
    add_to: the only operand's adjoint so far, upstream: adds the contribution in place
    """

    __slots__ = ("add_to", "first", "steps")

    def __init__(
        self,
        rule: Reverse,
        steps: Steps,
        *,
        first: str,
        add_to: Callable[[Array, Array], None] | None = None,
    ) -> None:
        super().__init__(rule)
        self.steps = steps
        self.first = first
        self.add_to = add_to


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


def norm_uses(x: Tensor, kernel: Kernel) -> tuple[Tensor, ...]:
    """The operands that tell a norm's uses of x: the contributions of all three come apart, in
    their order, where bits are claimed. Elsewhere one operand is given their sum.
    """
    return (x, x, x) if kernel.claims_bits else ()


def _delivered(first: Array, parts: Contributions, kernel: Kernel) -> tuple[Array, Contributions]:
    """The contribution of the first operand, and those of `norm_uses`. `first` may be reused."""
    if kernel.claims_bits:
        return first, parts
    for part in parts:
        first += part
    return first, ()


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

        The root's constants, epsilon and -0.5, have contributions too, dropped and sure to be
        finite: sums of `stabilised`, below 1e150 each, and of `scaled` times logarithms of the
        stabilised means s, below 746 each. A finite dot product leaves |scaled| below
        1.8e308 / sqrt(s), the check below 2e150 * s: its cube is below 7e766, itself below 1e256.
        """
        gain_gradient = kernel.column_dots(upstream, normalised)
        inner = upstream * gain
        scaled = kernel.row_dots(inner, x)
        inner *= inverse
        scaled *= inverse
        stabilised = scaled * MINUS_HALF
        stabilised /= stable
        kernel.check(stabilised)
        stabilised /= width
        squared = stabilised * x
        return gain_gradient, inner, squared, squared

    return normalised * gain, reverse


def _attended(
    n: Array,
    weights: tuple[Array, Array, Array, Array],
    rows: int,
    heads: int,
    turns: tuple[Array, Array],
    allowed: tuple[Mask, Mask],
    kernel: Kernel,
) -> tuple[Array, Callable[[Array], tuple[Array, Contributions]]]:
    """Rotated causal attention of n [B * T, D], and u -> (n's gradient, the weights').

    A non-finite n, projection, query or key makes its whole row or column of scores non-finite;
    a non-finite value or mixture reaches the output, for masked weights are 0 and 0 * inf is NaN.
    """
    query, key, value, output = weights
    cells, D = n.shape
    lanes = rows, cells // rows, heads, D // heads  # [B, T, H, d_h]
    turn, turn_back, scale = kernel.rotation(*turns, 1.0 / math.sqrt(float(D // heads)))
    projected = kernel.projections(n, (query, key, value))
    q, k, v = [each.reshape(lanes).swapaxes(1, 2) for each in projected]
    q, k = turn(q, k)
    scores = kernel.product(q, k.swapaxes(-1, -2))
    kernel.check(scores)
    if scale != 1.0:
        scores *= scale
    weight = kernel.causal(scores, *allowed)
    merged = kernel.product(weight, v).swapaxes(1, 2).reshape(cells, D)

    def reverse(upstream: Array) -> tuple[Array, Contributions]:
        """The scale's contribution, dropped but checked, is a sum of inner * scores: both are
        below 1e150, which leaves room for 1e8 of their products; if the scores have the scale in
        them already, for 1e8 of them times the scale.
        """
        output_gradient = kernel.weight_gradient(merged, upstream, rows)
        mixed = kernel.product(upstream, output.T).reshape(lanes).swapaxes(1, 2)
        inner = kernel.product(mixed, v.swapaxes(-1, -2))
        kernel.check(inner)
        inner -= kernel.row_dots(inner, weight)
        inner *= weight
        kernel.check(inner)
        if scale != 1.0:
            inner *= scale
        split = (
            *turn_back(kernel.product(inner, k), kernel.product(inner.swapaxes(-1, -2), q)),
            kernel.product(weight.swapaxes(-1, -2), mixed),
        )
        back = [each.swapaxes(1, 2).reshape(cells, D) for each in split]
        gradients = kernel.weight_gradients(n, back, rows)
        arrived = kernel.input_gradient(back, weights[:3], (2, 1, 0))  # value, key, query
        return arrived, (*gradients, output_gradient)

    return kernel.product(merged, output), reverse


def _gated(
    n: Array, gate: Array, up: Array, down: Array, rows: int, kernel: Kernel
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
        down_gradient = kernel.weight_gradient(product, upstream, rows)
        inner = kernel.product(upstream, down.T)
        raised_back = inner * activated
        slope = ONE - s
        slope *= g
        slope += ONE
        slope *= s
        inner *= raised
        inner *= slope
        back = (inner, raised_back)
        gradients = kernel.weight_gradients(n, back, rows)
        arrived = kernel.input_gradient(back, (gate, up), (1, 0))  # up, then gate
        return arrived, (*gradients, down_gradient)

    return kernel.product(product, down), reverse


@_ends_with("mul")
def norm(x: Array, gain: Array, *_: Array, epsilon: float, kernel: Kernel, steps: Steps) -> Result:
    """RMSNorm. Operands: x, gain, then what is left of `norm_uses` after the first."""
    value, reverse = _normalised(x, gain, epsilon, kernel)

    def rule(upstream: Array) -> Contributions:
        gain_gradient, product, *squares = reverse(upstream)
        product, left = _delivered(product, tuple(squares), kernel)
        return (product, gain_gradient, *left)

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

    Operands: x, the nine parameters in block order, then `norm_uses` of x.
    """
    gain, query, key, value, output, last_gain, gate, up, down = operands[:9]
    rows, shape = x.shape[0], x.shape
    x = x.reshape(-1, shape[-1])
    n, norm_reverse = _normalised(x, gain, epsilons[0], kernel)
    weights = (query, key, value, output)
    residual, reverse = _attended(n, weights, rows, heads, turns, allowed, kernel)
    residual += x
    result, last = _residual_feed_forward(
        residual, gate, up, down, last_gain, epsilons[1], rows, kernel
    )

    def rule(upstream: Array) -> Contributions:
        upstream = upstream.reshape(x.shape)
        (first, second, third), last_gain_gradient, gradients = last(upstream)
        adjoint = upstream + first
        adjoint += second
        adjoint += third
        inner, attention_gradients = reverse(adjoint)
        gain_gradient, *parts = norm_reverse(inner)
        adjoint, left = _delivered(adjoint, tuple(parts), kernel)
        return (
            adjoint.reshape(shape), gain_gradient, *attention_gradients, last_gain_gradient,
            *gradients, *[part.reshape(shape) for part in left],
        )  # fmt: skip

    return result.reshape(shape), Folded(rule, steps, first="mul")


def _residual_feed_forward(
    x: Array,
    gate: Array,
    up: Array,
    down: Array,
    gain: Array,
    epsilon: float,
    rows: int,
    kernel: Kernel,
) -> tuple[Array, Callable[[Array], tuple[Contributions, Array, Contributions]]]:
    """x + swiglu(norm(x)), and u -> (what x gets beside u, the gain's, the weights').

    x: [B * T, D], of B rows
    """
    n, norm_reverse = _normalised(x, gain, epsilon, kernel)
    branch, reverse = _gated(n, gate, up, down, rows, kernel)

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
    """x + swiglu(norm(x)). Operands: x, the three weights, the gain, then `norm_uses` of x."""
    shape = x.shape
    x = x.reshape(-1, shape[-1])
    rows = math.prod(shape[:-2])
    value, reverse = _residual_feed_forward(x, gate, up, down, gain, epsilon, rows, kernel)

    def rule(upstream: Array) -> Contributions:
        parts, gain_gradient, gradients = reverse(upstream.reshape(x.shape))
        residual, left = _delivered(upstream.reshape(x.shape).copy(), parts, kernel)
        left = tuple([part.reshape(shape) for part in left])
        return (residual.reshape(shape), *gradients, gain_gradient, *left)

    return value.reshape(shape), Folded(rule, steps, first="mul")


@_ends_with("gather_rows")
def rows(table: Array, *, selectors: Ids, steps: Steps) -> Result:
    """The table's rows [*shape, D] where no bits are claimed: each occurrence is added in place."""
    flat, count = selectors.reshape(-1), len(table)

    def add_to(gradient: Array, upstream: Array) -> None:
        floats.add_rows(gradient, upstream.reshape(len(flat), -1), indices=flat)

    def rule(upstream: Array) -> Contributions:
        return (floats.scatter_add(upstream.reshape(len(flat), -1), indices=flat, count=count),)

    value = table[flat].reshape(*selectors.shape, table.shape[1])
    return value, Folded(rule, steps, first="gather_rows", add_to=add_to)


@_ends_with("matmul")
def tied_head(hidden: Array, table: Array, *, kernel: Kernel, steps: Steps) -> Result:
    """hidden [B, T, D] times the transposed table [V, D]."""
    B, T, D = hidden.shape
    x = hidden.reshape(-1, D)

    def rule(upstream: Array) -> Contributions:
        u = upstream.reshape(-1, len(table))
        return kernel.product(u, table).reshape(B, T, D), kernel.table_gradient(u, x, B)

    return kernel.product(x, table.T).reshape(B, T, -1), Folded(rule, steps, first="transpose")


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
