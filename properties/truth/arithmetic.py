"""The arithmetic with which the scalar decoder writes a record of itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import mp

from logitproof.properties.scalar import Arithmetic

from .recording import FORMS, FUNCTION_ULP, Record, Recorded

__all__ = ["Recording", "recording"]

SINGLE = 2.0**29  # a rounding of float32 in units of float64's


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording(Arithmetic):
    """Recorded numbers; dot products and sums are one entry each, zeros keep their slopes."""

    record: Record

    def clean(self, x: Recorded) -> Recorded:
        """x itself: which zero it is moves nothing, and its slopes count."""
        return x

    def single(self, x: Recorded, roundings: int = 1) -> Recorded:
        """x, with so many roundings of float32 counted in those of float64."""
        if x.index < 0:  # known exactly, and so after no rounding or only before it
            kept = float(np.float32(x.near)) == x.value
            return x if kept else self.record.rounded(x.value, roundings * SINGLE)
        operands = ((x, 1, 1.0),)
        return self.record.entry(x.value, operands, roundings * SINGLE)

    def dot(
        self, left: list[Recorded], right: list[Recorded], *, among: int = 1, swaps: bool = False
    ) -> Recorded:
        """One entry."""
        return self.record.dot(left, right, among, swaps)

    def total(self, terms: list[Recorded], *, beside: Recorded | None = None) -> Recorded:
        """One entry."""
        return self.record.total(terms, beside)


def recording() -> Recording:
    """An arithmetic over a new record."""
    record = Record()
    count = 2 * FUNCTION_ULP + FORMS

    def exp(x: Recorded) -> Recorded:
        value = mp.exp(x.value)
        at, near = x.near, float(value)

        def excess(b: float) -> float:  # where exp x is nothing, e^b may be all
            return _in_doubles(math.exp, at + b) - near * (1.0 + b)

        return record.function(x, value, value, 1.0, excess)

    def log(x: Recorded) -> Recorded:
        return record.function(x, mp.log(x.value), 1 / x.value, x.near, _logarithm(x.near))

    def log1p(x: Recorded) -> Recorded:
        value, slope, one = mp.log1p(x.value), 1 / (1 + x.value), 1.0 + x.near
        return record.function(x, value, slope, one, _logarithm(one))

    def sin(x: Recorded) -> Recorded:
        return record.function(x, mp.sin(x.value), mp.cos(x.value), 1.0, _turn)

    def cos(x: Recorded) -> Recorded:
        return record.function(x, mp.cos(x.value), -mp.sin(x.value), 1.0, _turn)

    def power(base: Recorded, exponent: Recorded) -> Recorded:
        """base^exponent, of constants alone; the exponent was rounded, maybe twice."""
        if not exponent.value:
            return record.exact(1)
        moved = 2 * float(abs(exponent.value * mp.log(base.value)))
        return record.rounded(mp.power(base.value, exponent.value), count + moved)

    return Recording(
        name=f"real numbers to {mp.dps} digits, recorded",
        number=record.exact,
        exp=exp,
        log=log,
        log1p=log1p,
        sin=sin,
        cos=cos,
        pow=power,
        sqrt=lambda x: record.exact(mp.sqrt(x.value)),
        is_finite=lambda x: bool(mpmath.isfinite(x.value)),
        record=record,
    )


def _in_doubles(function: Callable[[float], float], x: float) -> float:
    """A function's value; NaN where doubles have nothing."""
    try:
        return function(x)
    except (ValueError, OverflowError):
        return math.nan


def _logarithm(x: float) -> Callable[[float], float]:
    """How far log(x - b) lies below the tangent at x."""
    return lambda b: -_in_doubles(math.log1p, -b / x) - b / x


def _turn(b: float) -> float:
    """The slope of a sine turns by no more than b."""
    return b * b / 2.0
