"""Numbers that remember how they were made, so that a program can be differentiated backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import mpmath
from mpmath import mp

Real: TypeAlias = Any  # mpmath.mpf, which has no types


class Recorded:
    """A value with the operands it came from and its slope in each of them.

    The rules are those of the primitives alone: sum - * / exp log log1p.
    """

    __slots__ = ("order", "sources", "tape", "value")

    def __init__(
        self, value: Real, tape: list[Recorded], sources: tuple[tuple[Recorded, Real], ...] = ()
    ) -> None:
        self.value = value
        self.sources = sources
        self.tape = tape
        self.order = len(tape)
        tape.append(self)

    def __add__(self, other: object) -> Recorded:
        right = self._taken(other)
        return Recorded(self.value + right.value, self.tape, ((self, 1), (right, 1)))

    def __sub__(self, other: object) -> Recorded:
        right = self._taken(other)
        return Recorded(self.value - right.value, self.tape, ((self, 1), (right, -1)))

    def __mul__(self, other: object) -> Recorded:
        right = self._taken(other)
        slopes = ((self, right.value), (right, self.value))
        return Recorded(self.value * right.value, self.tape, slopes)

    def __truediv__(self, other: object) -> Recorded:
        right = self._taken(other)
        quotient = self.value / right.value
        slopes = ((self, 1 / right.value), (right, -quotient / right.value))
        return Recorded(quotient, self.tape, slopes)

    def __radd__(self, other: object) -> Recorded:
        return self._taken(other) + self

    def __rtruediv__(self, other: object) -> Recorded:
        return self._taken(other) / self

    def __neg__(self) -> Recorded:
        return Recorded(-self.value, self.tape, ((self, -1),))

    def exp(self) -> Recorded:
        """e to this power."""
        value = mp.exp(self.value)
        return Recorded(value, self.tape, ((self, value),))

    def log(self) -> Recorded:
        """The natural logarithm."""
        return Recorded(mp.log(self.value), self.tape, ((self, 1 / self.value),))

    def log1p(self) -> Recorded:
        """The natural logarithm of 1 + this number."""
        return Recorded(mp.log1p(self.value), self.tape, ((self, 1 / (1 + self.value)),))

    def _taken(self, other: object) -> Recorded:
        return other if isinstance(other, Recorded) else Recorded(mpmath.mpf(other), self.tape)


def added(terms: Sequence[Any]) -> Any:
    """The sum of the terms, exact up to one rounding at the precision in force."""
    recorded = [term for term in terms if isinstance(term, Recorded)]
    total = mp.fsum(term.value if isinstance(term, Recorded) else term for term in terms)
    if not recorded:
        return total
    return Recorded(total, recorded[0].tape, tuple((term, 1) for term in recorded))


def slopes(outputs: Sequence[Any], seeds: Sequence[Real], inputs: Sequence[Recorded]) -> list[Real]:
    """d(sum of seed * output) / d(input) for every input, by one walk back over the record."""
    arrived: dict[int, list[Real]] = {}
    for output, seed in zip(outputs, seeds, strict=True):
        if isinstance(output, Recorded):  # a plain number depends on nothing
            arrived.setdefault(output.order, []).append(seed)
    tape = inputs[0].tape if inputs else []
    for node in reversed(tape):
        if node.sources and node.order in arrived:
            adjoint = mp.fsum(arrived.pop(node.order))
            for source, slope in node.sources:
                arrived.setdefault(source.order, []).append(adjoint * slope)
    return [mp.fsum(arrived.get(node.order, [])) for node in inputs]
