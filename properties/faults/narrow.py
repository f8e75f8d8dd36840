"""Faults of single operations in float16 and bfloat16, planted in the shipped ones."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from logitproof.properties import narrow_ops
from logitproof.properties.narrow_ops import DIGITS, NarrowOps

from .fault import Fault, planted

__all__ = ["FAULTS"]

Array: TypeAlias = NDArray[np.float64]
_FOUND: dict[str, Fault] = {}
SOURCE = "notes/field.md (conventions)"
each = partial(planted, _FOUND, kind="mistake", form="narrow", source=SOURCE)
once = partial(planted, _FOUND, kind="mistake", form="narrow-once", source=SOURCE)


def _cut(x: Array, digits: int, lowest: int, highest: int) -> Array:
    """Digits too many are left away."""
    _, exponents = np.frexp(x)
    spacing = np.ldexp(1.0, np.maximum(exponents - 1, lowest) - (digits - 1))
    return narrow_ops.overflowed(np.trunc(x / spacing) * spacing, digits, highest)


@each((narrow_ops, "nearest"))
def narrow_truncated(_: Any) -> Any:
    """Results are cut, not rounded to the nearest."""
    return _cut


@each((narrow_ops, "nearest"))
def bfloat16_cut_from_float32(right: Any) -> Any:
    """A bfloat16 number is the upper half of a float32 number."""
    return lambda x, *format: (_cut if format == DIGITS["bfloat16"] else right)(x, *format)


@each((narrow_ops, "overflowed"))
def float16_saturates(right: Any) -> Any:
    """What is beyond 65504 becomes 65504."""

    def overflowed(x: Array, digits: int, highest: int) -> Array:
        return np.clip(x, -65504.0, 65504.0) if highest == 15 else right(x, digits, highest)

    return overflowed


@each((narrow_ops, "nearest"))
def narrow_subnormals_flushed(right: Any) -> Any:
    """What is smaller than the smallest normal number becomes zero."""
    return lambda x, *format: narrow_ops.flushed(right(x, *format), format[1])


@each((NarrowOps, "softmax"))
def narrow_softmax_not_shifted(right: Any) -> Any:
    """The maximum is not taken off before the exponentials, which overflow beyond 11 or 88."""

    def softmax(self: Any, a: Array, *, axis: int) -> Any:
        e = self.step(np.exp(a))
        p = self.stored(self.step(e / np.expand_dims(self.added(e, axis), axis)))
        return p, right(self, a, axis=axis)[1]

    return softmax


@once((NarrowOps, "rms_norm"))
def float16_squares_in_format(_: Any) -> Any:
    """A norm squares in the format, where squares of 256 overflow, and adds in float32."""

    def rms_norm(self: Any, a: Array, gain: Array, *, epsilon: float) -> Any:
        mean = self.step(self.added(self.stored(a * a), a.ndim - 1) / a.shape[-1])
        inverse = self.step(1.0 / self.step(np.sqrt(self.step(mean + epsilon))))
        return self.stored(self.step(self.step(a * inverse[..., None]) * gain))

    return rms_norm


@once((NarrowOps, "added"))
def narrow_sums_in_format(right: Any) -> Any:
    """Sums are kept in the format, where float32 is declared."""
    return lambda self, terms, axis: right(NarrowOps(self.format, "format"), terms, axis)


@each((NarrowOps, "mul"), (NarrowOps, "exp"))
def narrow_slopes_in_float32(mul: Any, exp: Any) -> Any:
    """Reverse rules hand out float32 numbers."""

    def times(self: Any, a: Array, b: Array) -> Any:
        return mul(self, a, b)[0], lambda u: (u * b, u * a)

    def power(self: Any, a: Array) -> Any:
        y = exp(self, a)[0]
        return y, lambda u: (u * y,)

    return times, power


@each((NarrowOps, "softmax"))
def narrow_slope_by_coarse_sum(right: Any) -> Any:
    """The mean slope of a softmax row is kept with four digits."""

    def softmax(self: Any, a: Array, *, axis: int) -> Any:
        p, _ = right(self, a, axis=axis)

        def rule(u: Array) -> tuple[Array, ...]:
            w = narrow_ops.nearest(np.sum(u * p, axis=axis, keepdims=True), 4, -14, 15)
            return (self.stored(self.step(p * self.step(u - w))),)

        return p, rule

    return softmax


FAULTS = tuple(_FOUND.values())
