"""Single operations on float16 and bfloat16 numbers: every step rounded, or float32 ones once.

Arrays are float64 and hold numbers of the format alone: numpy has no bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIGITS", "NarrowOps", "NarrowSubject", "flushed", "nearest"]

Array: TypeAlias = NDArray[np.float64]
Rule: TypeAlias = Callable[[Array], tuple[Array, ...]]
Result: TypeAlias = tuple[Array, Rule]

# Format -> bits of the significand, exponent of the smallest normal number, and of the largest.
DIGITS: Mapping[str, tuple[int, int, int]] = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
}


def nearest(x: Array, digits: int, lowest: int, highest: int) -> Array:
    """The nearest numbers of a format, ties to even; infinite beyond the largest."""
    _, exponents = np.frexp(x)  # x = m 2^e, 1/2 <= m < 1
    spacing = np.ldexp(1.0, np.maximum(exponents - 1, lowest) - (digits - 1))
    return overflowed(np.rint(x / spacing) * spacing, digits, highest)


def overflowed(x: Array, digits: int, highest: int) -> Array:
    """What is beyond the largest number becomes infinite."""
    largest = np.ldexp(2.0 - np.ldexp(1.0, 1 - digits), highest)
    return np.where(np.abs(x) > largest, np.copysign(np.inf, x), x)


def flushed(x: Array, lowest: int) -> Array:
    """Zero in place of what is smaller than the smallest normal number."""
    return np.where(np.abs(x) < np.ldexp(1.0, lowest), 0.0 * x, x)


class NarrowOps:
    """Each operation by its name: arrays in, value and reverse rule out.

    accumulation: "format" rounds every step to the format; "float32" takes the steps in float32
                  and rounds what is handed out once
    """

    def __init__(self, format: str, accumulation: str) -> None:
        self.format, self.accumulation = format, accumulation

    def stored(self, x: Any) -> Array:
        """What is handed out."""
        return nearest(np.asarray(x, dtype=np.float64), *DIGITS[self.format])

    def step(self, x: Any) -> Array:
        """The result of one step."""
        inner = self.format if self.accumulation == "format" else self.accumulation
        return nearest(np.asarray(x, dtype=np.float64), *DIGITS[inner])

    def added(self, terms: Array, axis: int) -> Array:
        """The sum in ascending order."""
        total = np.zeros(np.delete(terms.shape, axis))
        for term in np.moveaxis(terms, axis, 0):
            total = self.step(total + term)
        return total

    def add(self, a: Array, b: Array) -> Result:
        """a + b"""
        return self.stored(self.step(a + b)), lambda u: (u, u)

    def mul(self, a: Array, b: Array) -> Result:
        """a b"""
        value = self.stored(self.step(a * b))
        return value, lambda u: (self.stored(self.step(u * b)), self.stored(self.step(u * a)))

    def sum(self, a: Array, *, axis: int) -> Result:
        """The sum along an axis."""
        wide = np.expand_dims
        return self.stored(self.added(a, axis)), lambda u: (wide(u, axis) + np.zeros_like(a),)

    def mean(self, a: Array, *, axis: int) -> Result:
        """The sum over n."""
        n, value = a.shape[axis], self.stored(self.step(self.added(a, axis) / a.shape[axis]))
        share = np.expand_dims
        return value, lambda u: (self.stored(self.step(share(u, axis) / n)) + np.zeros_like(a),)

    def matmul(self, a: Array, b: Array) -> Result:
        """[R, K] by [K, C]."""
        return self._product(a, b), lambda u: (self._product(u, b.T), self._product(a.T, u))

    def _product(self, a: Array, b: Array) -> Array:
        return self.stored(self.added(self.step(a[:, :, None] * b[None]), 1))

    def exp(self, a: Array) -> Result:
        """e^a; the reverse rule reads it as it was handed out."""
        y = self.stored(self.step(np.exp(a)))
        return y, lambda u: (self.stored(self.step(u * y)),)

    def log(self, a: Array) -> Result:
        """ln a"""
        return self.stored(self.step(np.log(a))), lambda u: (self.stored(self.step(u / a)),)

    def silu(self, a: Array) -> Result:
        """a s, s = 1/(1 + e^-a); its slope s (1 + a (1 - s))."""
        step = self.step
        e = step(np.exp(-np.abs(a)))
        s = step(np.where(a >= 0.0, 1.0, e) / step(1.0 + e))
        slope = step(s * step(1.0 + step(a * step(1.0 - s))))
        return self.stored(step(a * s)), lambda u: (self.stored(step(u * slope)),)

    def softmax(self, a: Array, *, axis: int) -> Result:
        """e^(a - m) over their sum."""
        step = self.step
        e = self._exponentials(a, axis)
        p = self.stored(step(e / np.expand_dims(self.added(e, axis), axis)))

        def rule(u: Array) -> tuple[Array, ...]:
            w = np.expand_dims(self.added(step(u * p), axis), axis)
            return (self.stored(step(p * step(u - w))),)

        return p, rule

    def _exponentials(self, a: Array, axis: int) -> Array:
        return self.step(np.exp(self.step(a - a.max(axis=axis, keepdims=True))))

    def log_softmax(self, a: Array, *, axis: int) -> Result:
        """(a - m) - ln of the sum; the reverse rule reads p as its exponential."""
        step = self.step
        total = np.expand_dims(self.added(self._exponentials(a, axis), axis), axis)
        shifted = step(a - a.max(axis=axis, keepdims=True))
        value = self.stored(step(shifted - step(np.log(total))))

        def rule(u: Array) -> tuple[Array, ...]:
            whole = np.expand_dims(self.added(u, axis), axis)
            return (self.stored(step(u - step(step(np.exp(value)) * whole))),)

        return value, rule

    def rotary(self, a: Array, *, cosines: Array, sines: Array) -> Result:
        """Features 2i and 2i + 1 turned."""
        return self._turned(a, cosines, sines), lambda u: (self._turned(u, cosines, -sines),)

    def _turned(self, a: Array, cosines: Array, sines: Array) -> Array:
        step, out = self.step, np.empty_like(a)
        left, right = a[..., 0::2], a[..., 1::2]
        out[..., 0::2] = step(step(left * cosines) - step(right * sines))
        out[..., 1::2] = step(step(left * sines) + step(right * cosines))
        return self.stored(out)

    def rms_norm(self, a: Array, gain: Array, *, epsilon: float) -> Array:
        """a / sqrt(mean of squares + epsilon) * gain along the last axis: the value alone."""
        step = self.step
        mean = step(self.added(step(a * a), a.ndim - 1) / a.shape[-1])
        inverse = step(1.0 / step(np.sqrt(step(mean + epsilon))))
        return self.stored(step(step(a * inverse[..., None]) * gain))


class NarrowSubject:
    """Its operations under test; a decoder it is not.

    Refuses: an accumulation that is none (ValueError)
    """

    capabilities: Mapping[str, bool] = {
        "operations:float16": True,
        "operations:bfloat16": True,
        "forward": False,
        "loss": False,
        "gradients": False,
        "padded": False,
        "packed": False,
        "row-bits": False,
    }

    def __init__(self, accumulation: str = "format") -> None:
        if accumulation not in ("format", "float32"):
            raise ValueError(f"accumulation {accumulation!r} is neither format nor float32")
        self.conventions: Mapping[str, str] = {
            "functions": "c-library",
            "accumulation": accumulation,
        }

    def narrow(self, format: str) -> Any:
        """The operations of one format."""
        return NarrowOps(format, self.conventions["accumulation"])

    def load(self, *_: Any) -> None:
        """Nothing: no operation depends on a decoder's weights."""

    def logits(self, *_: Any) -> NoReturn:
        """Refuses: it has no decoder (ValueError)"""
        raise ValueError("single operations alone: there are no logits")

    def loss_and_gradients(self, *_: Any) -> NoReturn:
        """Refuses: it has no decoder (ValueError)"""
        raise ValueError("single operations alone: there is no loss")
