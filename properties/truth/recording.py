"""Numbers to 50 digits that write down how they were made, and how far rounding moves each.

A record is a program: one entry per operation, with its operands, its slope in each of them, and
its local error, k u |v| + k eta, where u is the unit of rounding and eta half the smallest number.
The rules are those of the primitives alone: + - * /, sums of products, elementary functions.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import mpmath
from mpmath import mp

__all__ = [
    "DIGITS", "FORMS", "FUNCTION_ULP", "LOST", "TINY", "WRITTEN_OUT", "Bend", "Real", "Record",
    "Recorded", "slopes", "uncollected",
]  # fmt: skip

Real: TypeAlias = Any  # mpmath.mpf, which has no types

# Fifty are wanted of every answer, eighty more are carried: the slopes of primitives cancel where
# the written rules, and so the bounds, have nothing to cancel.
DIGITS = 130
LOST = 30  # digits of a sum, beside the magnitudes of its terms, left to what made the terms
TINY = 2.0**-1074
FORMS = 4  # roundings granted to each operation of the record: its other textbook forms have them
FUNCTION_ULP = 4.0  # of exp log log1p sin cos pow, as vector libraries declare; 1 ulp <= 2 u |v|

# Forms that do not shift by the maximum, or multiply out u - w, are granted their roundings as far
# as this size; beyond it they lose every digit of the difference, which is a mistake, not a form.
WRITTEN_OUT = 2.0**20


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for garbage: a record is without cycles, and is searched again as it grows."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Recorded:
    """A number of a record; `index` is -1 for what is known exactly.

    near: the value as a double
    """

    __slots__ = ("index", "near", "record", "value")

    def __init__(self, record: Record, value: Real, index: int = -1) -> None:
        self.record = record
        self.value = value
        self.near = float(value)
        self.index = index

    @property
    def is_nothing(self) -> bool:
        """Whether it is an exact zero: of a cell that is not active, or of an empty sum."""
        return self.index < 0 and not self.value

    @property
    def is_given(self) -> bool:
        """Whether it came from no other entry: a weight, a constant."""
        return self.index < 0 or not self.record.operands[self.index][0]

    def __add__(self, other: Recorded) -> Recorded:
        if other.is_nothing:
            return self
        if self.is_nothing:
            return other
        return self.record.entry(self.value + other.value, ((self, 1, 1.0), (other, 1, 1.0)), FORMS)

    def __sub__(self, other: Recorded) -> Recorded:
        """A difference counts its operands too: some forms multiply it out, or shift it."""
        difference, operands = self.value - other.value, ((self, 1, 1.0), (other, -1, -1.0))
        beside = min(abs(self.near) + abs(other.near), WRITTEN_OUT)
        return self.record.entry(difference, operands, FORMS, abs(float(difference)) + beside)

    def __mul__(self, other: Recorded) -> Recorded:
        if self.is_nothing or other.is_nothing:
            return self.record.exact(0)
        operands = ((self, other.value, other.near), (other, self.value, self.near))
        result = self.record.entry(self.value * other.value, operands, FORMS)
        self.record.pair(result, self, other)
        return result

    def __truediv__(self, other: Recorded) -> Recorded:
        quotient = self.value / other.value
        by_self, by_other = 1 / other.value, -quotient / other.value
        operands = ((self, by_self, float(by_self)), (other, by_other, float(by_other)))
        return self.record.entry(quotient, operands, FORMS)

    def __neg__(self) -> Recorded:
        return self.record.entry(-self.value, ((self, -1, -1.0),), 0)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Recorded) else other))

    def __lt__(self, other: Recorded) -> bool:
        return bool(self.value < other.value)

    def __gt__(self, other: Recorded) -> bool:
        return bool(self.value > other.value)

    def __ge__(self, other: int) -> bool:
        return bool(self.value >= other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bend:
    """A function of one number that is no straight line: the entries of argument and result.

    scale:  of the argument: moved by a small part of it, the function is straight
    excess: beyond |slope| b, what moving the argument by b may move the result; NaN: any way
    """

    argument: int
    result: int
    scale: float
    excess: Callable[[float], float]


class Record:
    """A program in the order in which it ran; what is exact alone leaves no entry.

    operands: per entry the entries it came from, and the slope in each
    slopes:   these slopes as doubles
    counts:   per entry k, its roundings
    sizes:    per entry the magnitude that they are relative to, times k
    values:   per entry its magnitude
    bends:    its elementary functions
    pairs:    its products of two numbers that are not exact: the entries of product and factors
    """

    def __init__(self) -> None:
        self.operands: list[tuple[tuple[int, ...], tuple[Real, ...]]] = []
        self.slopes: list[tuple[float, ...]] = []
        self.counts: list[float] = []
        self.sizes: list[float] = []
        self.values: list[float] = []
        self.bends: list[Bend] = []
        self.pairs: list[tuple[int, int, int]] = []
        self.largest = 0.0

    def __len__(self) -> int:
        return len(self.counts)

    def exact(self, value: Real) -> Recorded:
        """A number without an error."""
        return Recorded(self, mpmath.mpf(value))

    def parameter(self, value: Real) -> Recorded:
        """A number without an error that slopes are asked for."""
        return self._written(mpmath.mpf(value), (), (), (), 0)

    def entry(
        self,
        value: Real,
        operands: Sequence[tuple[Recorded, Real, float]],
        count: float,
        size: float | None = None,
    ) -> Recorded:
        """The result of one operation; exact where all its operands are.

        operands: with the slope in each, and that as a double
        size:     the result's own magnitude, if no other
        """
        known = [(x.index, slope, near) for x, slope, near in operands if x.index >= 0]
        if not known:
            return Recorded(self, value)
        indices, slopes, near = zip(*known, strict=True)
        if len(indices) == 2 and indices[0] == indices[1]:  # x * x
            indices, slopes, near = indices[:1], (slopes[0] + slopes[1],), (near[0] + near[1],)
        return self._written(value, indices, slopes, near, count, size)

    def rounded(self, value: Real, count: float) -> Recorded:
        """A number that depends on no parameter, but is not known exactly."""
        return self._written(value, (), (), (), count)

    def widen(self, number: Recorded, count: float, size: float | None = None) -> None:
        """Grants an entry more roundings: for what other forms of a whole operation do."""
        if number.index >= 0:
            self.counts[number.index] += count
            self.sizes[number.index] += count * (abs(number.near) if size is None else size)

    def pair(self, result: Recorded, x: Recorded, y: Recorded) -> None:
        """Remembers that a result has x y in it."""
        if x.index >= 0 and y.index >= 0:
            self.pairs.append((result.index, x.index, y.index))

    def dot(
        self,
        left: Sequence[Recorded],
        right: Sequence[Recorded],
        among: int = 1,
        swaps: bool = False,
    ) -> Recorded:
        """sum l r in any order, fused or not: (n + FORMS) u sum |l r|.

        among: so many sums of n terms are one elsewhere, in any order: each term then meets that
               many times n roundings
        swaps: where each l is a sum of m terms a, the two sums the other way round:
               (m + n + 2 FORMS) u sum |r| sum |a|
        """
        pairs = [
            (x, y) for x, y in zip(left, right, strict=True) if not (x.is_nothing or y.is_nothing)
        ]
        value = mp.fdot((x.value, y.value) for x, y in pairs)
        size = sum(abs(x.near * y.near) for x, y in pairs)
        operands = [step for x, y in pairs for step in ((x, y.value, y.near), (y, x.value, x.near))]
        result = self.entry(value, operands, among * len(left) + FORMS, size)
        for x, y in pairs:
            self.pair(result, x, y)
        for x, y in pairs if swaps else ():
            if x.index >= 0:
                m, whole = self.counts[x.index], self.sizes[x.index]  # m and m times sum |a|
                self.widen(result, m + len(left) + FORMS, abs(y.near) * whole / m)
        return result

    def total(self, terms: Sequence[Recorded], beside: Recorded | None = None) -> Recorded:
        """The sum in any order: (n + FORMS) u sum |x|.

        beside: a number that is among the terms elsewhere
        """
        value = mp.fsum(x.value for x in terms)
        elsewhere = [*terms, *([] if beside is None else [beside])]
        size = sum(abs(x.near) for x in elsewhere)
        return self.entry(value, [(x, 1, 1.0) for x in terms], len(elsewhere) + FORMS, size)

    def function(
        self,
        x: Recorded,
        value: Real,
        slope: Real,
        scale: float,
        excess: Callable[[float], float],
    ) -> Recorded:
        """An elementary function of a recorded number."""
        count = 2 * FUNCTION_ULP + FORMS
        if x.index < 0:  # of an exact argument exact where it is 0 or 1: all others are irrational
            return self.exact(value) if value in (0, 1) else self.rounded(value, count)
        result = self.entry(value, ((x, slope, float(slope)),), count)
        self.bends.append(Bend(argument=x.index, result=result.index, scale=scale, excess=excess))
        return result

    def _written(
        self,
        value: Real,
        indices: tuple[int, ...],
        slopes: tuple[Real, ...],
        near: tuple[float, ...],
        count: float,
        size: float | None = None,
    ) -> Recorded:
        number = Recorded(self, value, len(self.counts))
        magnitude = abs(number.near)
        size = magnitude if size is None else size
        self.operands.append((indices, slopes))
        self.slopes.append(near)
        self.counts.append(count)
        self.sizes.append(count * size)
        self.values.append(magnitude)
        self.largest = max(self.largest, magnitude, size)
        return number


def slopes(
    record: Record, output: Recorded, inputs: Sequence[Recorded]
) -> tuple[list[Real], list[float]]:
    """d output / d input for every input, by one walk back over the record, and its error.

    An input's slope is a sum over all paths to it. Where they cancel, what is left of it is no
    better than 10^(LOST - digits) times the sum of their magnitudes, which the same walk adds up:
    never too small, as what underflows there is rounded away from zero.
    """
    zero = mpmath.mpf(0)
    adjoints: list[Real] = [zero] * (output.index + 1)
    magnitudes = [0.0] * (output.index + 1)
    if output.index >= 0:
        adjoints[output.index], magnitudes[output.index] = mpmath.mpf(1), 1.0
    for index in range(output.index, -1, -1):
        adjoint, magnitude = adjoints[index], magnitudes[index]
        if not magnitude:
            continue
        (sources, slopes), doubles = record.operands[index], record.slopes[index]
        for source, slope, near in zip(sources, slopes, doubles, strict=True):
            adjoints[source] += adjoint * slope
            magnitudes[source] += magnitude * (abs(near) or TINY) or TINY
    own = 10.0 ** (LOST - mp.dps)
    errors = [magnitude and (magnitude * own or TINY) for magnitude in magnitudes]
    reached = [x.index if x.index <= output.index else -1 for x in inputs]
    return (
        [adjoints[i] if i >= 0 else zero for i in reached],
        [errors[i] if i >= 0 else 0.0 for i in reached],
    )
