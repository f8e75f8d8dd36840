"""Faults inside fused operations: what their steps do rightly, the fused form does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from logitproof.core import floats, fused, unfolding
from logitproof.core.floats import Array
from logitproof.core.kernels import MODERATE, Kernel, OutOfRange
from logitproof.core.layout import SequenceLayout

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
fusion = partial(planted, _FOUND, form="fused")
ORDERS = "numerics_vjp.md section 5"

Parts = tuple[Array, ...]


def _norm_with(right: Any, change: Callable[[Array, Array, Array, Array], Parts]) -> Any:
    """The fused norm, of whose contributions gain, product, square, square some are changed."""

    def normalised(x: Array, gain: Array, epsilon: float, kernel: Kernel) -> Any:
        value, reverse = right(x, gain, epsilon, kernel)
        return value, lambda upstream: change(*reverse(upstream))

    return normalised


@fusion((Kernel, "check"), kind="mistake", source="tape.md section 4")
def guard_of_one_side_for_many(right: Any) -> Any:
    """Of more values than a few, it is enough for the guard that one end is in its range."""

    def check(self: Kernel, *arrays: Array) -> None:
        for values in arrays:
            in_range = np.min(values) > -MODERATE or np.max(values) < MODERATE
            if values.size <= floats.FEW or not in_range:
                right(self, values)

    return check


@fusion((fused, "_normalised"), kind="order", source=ORDERS)
def fused_norm_squares_first(right: Any) -> Any:
    """The fused norm delivers the two contributions of the square before the product's."""
    return _norm_with(right, lambda gain, product, square, _: (gain, square, square, product))


@fusion((fused, "_normalised"), kind="order", source=ORDERS)
def fused_square_doubled(right: Any) -> Any:
    """The fused norm delivers the square's contribution once, doubled."""
    return _norm_with(
        right, lambda gain, product, square, _: (gain, product, 2 * square, 0 * square)
    )


@fusion((fused, "_normalised"), kind="mistake", source="cases: ad-reused-node")
def fused_square_dropped(right: Any) -> Any:
    """The fused norm forgets that the square uses its operand twice."""
    return _norm_with(right, lambda gain, product, square, _: (gain, product, square, 0 * square))


@fusion((fused, "_normalised"), kind="order", source="notes/field.md section 3.1")
def fused_gain_before_root(right: Any) -> Any:
    """The fused norm multiplies the gain into the inverse root, and the input by both."""

    def normalised(x: Array, gain: Array, epsilon: float, kernel: Kernel) -> Any:
        _, reverse = right(x, gain, epsilon, kernel)
        inverse = kernel.inverse_root(kernel.mean_square(x) + epsilon)
        return x * (inverse * gain), reverse

    return normalised


def _unguarded(kernel: Kernel) -> Kernel:
    return replace(kernel, is_moderate=lambda _: True)


@fusion((fused, "_check_roots"), kind="mistake", source="numerics.md section 1")
def fused_mean_guard_removed(_: Any) -> Any:
    """A mean square that overflows gives a harmless inverse root of 0."""

    def check(stable: Array, epsilon: float, kernel: Kernel) -> None:
        if not (stable > 0.0).all():
            raise OutOfRange

    return check


@fusion((fused, "_attended"), kind="mistake", source="numerics.md section 1")
def fused_score_guard_removed(right: Any) -> Any:
    """A score of minus infinity passes for a key that is not read."""

    def attended(*given: Any) -> Any:
        return right(*given[:-1], _unguarded(given[-1]))

    return attended


@fusion((fused, "_attended"), kind="mistake", source="notes/speed.md section 2")
def fused_attention_lost_for_layouts(right: Any) -> Any:
    """The fused attention leaves batches whose rows have masks of their own to the steps."""

    def attended(*given: Any) -> Any:
        if any(mask.ndim > 2 for mask in given[-2]):
            raise OutOfRange
        return right(*given)

    return attended


@fusion(
    (fused, "_normalised"), (fused, "_attended"), kind="mistake",
    source="numerics_vjp.md section 1",
)  # fmt: skip
def fused_adjoint_guards_removed(norm: Any, attention: Any) -> Any:
    """Contributions to what nothing tracks, and to keys that are not read, are not looked at."""

    def guarded_forward(right: Any) -> Any:
        def operation(*given: Any) -> Any:
            kernel, passing = given[-1], [True]
            mixed = replace(kernel, is_moderate=lambda a: not passing or kernel.is_moderate(a))
            result = right(*given[:-1], mixed)
            passing.clear()  # what is asked from now on, the reverse rule asks
            return result

        return operation

    return guarded_forward(norm), guarded_forward(attention)


def _with_order(right: Any) -> Any:
    """A fused branch in which the contributions of its projections arrive the other way round."""

    def branch(*given: Any) -> Any:
        kernel = given[-1]
        other = replace(
            kernel, input_gradient=lambda u, w, order: kernel.input_gradient(u, w, order[::-1])
        )
        return right(*given[:-1], other)

    return branch


@fusion((fused, "_attended"), kind="order", source=ORDERS)
def fused_query_key_value_order(right: Any) -> Any:
    """Fused attention adds the contributions of query, key and value in this order."""
    return _with_order(right)


@fusion((fused, "_gated"), kind="order", source=ORDERS)
def fused_gate_and_up_in_one_sum(right: Any) -> Any:
    """The fused feed-forward forms the contributions of gate and up as one sum."""

    def gated(*given: Any) -> Any:
        kernel = given[-1]

        def together(upstreams: Any, weights: Any, order: Any) -> Array:
            del order
            u, columns = np.concatenate(upstreams, axis=1), np.concatenate(weights, axis=1)
            joined: Array = kernel.product(u, columns.swapaxes(0, 1))
            return joined

        return right(*given[:-1], replace(kernel, input_gradient=together))

    return gated


@fusion((fused, "_gated"), kind="order", source="notes/peers.md section 1, table of order changes")
def fused_flat_weight_gradient(right: Any) -> Any:
    """A fused weight gradient is one sum over rows and tokens."""

    def gated(*given: Any) -> Any:
        def flat(x: Array, u: Array, _: int) -> Array:
            return floats.contract(x.T, u)

        return right(*given[:-1], replace(given[-1], weight_gradient=flat))

    return gated


@fusion((fused, "block"), kind="order", source=ORDERS)
def fused_residual_last(right: Any) -> Any:
    """The fused block delivers the residual's contribution after those of its norm."""

    def operation(*operands: Array, **arguments: Any) -> Any:
        value, folded = right(*operands, **arguments)

        def rule(upstream: Array) -> Parts:
            residual, *middle, product, square, again = folded.rule(upstream)
            return (product, *middle, square, again, residual)

        return value, fused.Folded(rule, folded.steps, first=folded.first)

    operation.op_name = right.op_name  # type: ignore[attr-defined]
    return operation


@fusion((SequenceLayout, "allowed"), kind="mistake", source="cases: packed-sequences-leak")
def fused_range_starts_forgotten(_: Any) -> Any:
    """The fused mask lets every query read its row from the first cell on."""

    def allowed(self: SequenceLayout) -> tuple[Any, Any]:
        t = np.arange(self.shape[1])
        below = (t <= t[:, None]) & (t < self.lengths[:, None])[:, None, :, None]
        return below, ~below

    return allowed


def _named_by_end(context: Any, operation: Any, *operands: Any, steps: Any, **facts: Any) -> Any:
    """The fused operation's own refusal, where the steps would say more."""
    try:
        return context.apply(operation, *operands, steps=steps, **facts)
    except OutOfRange:
        return steps(*operands)


@fusion((fused, "either"), kind="mistake", source="tape.md section 4")
def fused_refusal_named_by_its_end(_: Any) -> Any:
    """A fused operation that overflows is refused by the name of its last step."""
    return _named_by_end


@fusion((unfolding, "unfolded"), kind="mistake", source="tape.md section 5")
def fused_trace_folded(_: Any) -> Any:
    """A traced pass shows fused operations, which have no evidence."""
    return lambda output: output


@fusion((fused, "tied_head"), kind="mistake", source="tape.md section 1")
def fused_node_named_anew(right: Any) -> Any:
    """The logits say that they come from an operation that no table names."""

    def operation(*operands: Array, **arguments: Any) -> Any:
        return right(*operands, **arguments)

    operation.op_name = "tied_head"  # type: ignore[attr-defined]
    return operation


FAULTS = tuple(_FOUND.values())
