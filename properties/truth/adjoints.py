"""How far the roundings of a record move its outputs, to first order.

    |y_float - y| <= sum over entries i of |dy/dv_i| (k_i u |v_i| + k_i eta) + higher orders

u is the unit of rounding, eta half the smallest number. All outputs are walked back at once, a
column each. What the reverse pass reads of the forward pass may have been computed again there,
with roundings of its own: a forward entry counts |what comes from reverse reads| + |the rest|.

Where rounding leaves few digits of a slope, its own error is not small beside it, and what it
does to the roundings that it multiplies is no longer of higher order. There |v_i| and the slopes
are the larger of the true ones and those that a run of the record in doubles meets. One run shows
how large such noise is, not how large it can be: SAFETY stands for the others, except where the
argument of an elementary function is off by more than a small part of its scale (`straighten`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .recording import Bend, Record, Recorded

__all__ = [
    "BFLOAT16", "BINARY16", "BINARY32", "BINARY64", "SAFETY", "Format", "Roundings", "carried",
    "roundings", "straighten",
]  # fmt: skip

Array: TypeAlias = NDArray[np.float64]

SAFETY = 2.0  # for the higher orders; ample while bound / |y| < 1e-4. Source: notes/bounds.md
STRAIGHT = 2.0**-10  # of a function's scale: SAFETY holds for its bend
ROUNDS = 16  # of looking at functions again; what grows still has no bound
UNBOUNDED = 1e300  # times nothing, it is nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A binary number format: half its relative spacing, half its smallest number, its largest."""

    unit: float
    eta: float
    largest: float

    @property
    def low(self) -> float:
        """log2 of 2^22 times the smallest normal number, eta / u: products above keep their u."""
        return math.log2(self.eta / self.unit) + 22.0


BINARY64 = Format(  # eta is 2^-1075, which is no double
    unit=2.0**-53, eta=2.0**-1074, largest=float(np.finfo(np.float64).max)
)
BINARY32 = Format(unit=2.0**-24, eta=2.0**-150, largest=(2.0 - 2.0**-23) * 2.0**127)
BFLOAT16 = Format(unit=2.0**-8, eta=2.0**-134, largest=(2.0 - 2.0**-7) * 2.0**127)
BINARY16 = Format(unit=2.0**-11, eta=2.0**-25, largest=(2.0 - 2.0**-10) * 2.0**15)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Roundings:
    """Per output what multiplies the unit, what multiplies eta, and the truth's own error."""

    relative: Array
    absolute: Array
    own: Array

    @classmethod
    def none(cls, count: int) -> Roundings:
        """Nothing known: unbounded."""
        nothing = np.zeros((2, count))
        return cls(relative=np.full(count, np.inf), absolute=nothing[0], own=nothing[1])

    def part(self, start: int, end: int) -> Roundings:
        """Some outputs."""
        kept = slice(start, end)
        return Roundings(
            relative=self.relative[kept], absolute=self.absolute[kept], own=self.own[kept]
        )

    def bounds(self, format: Format = BINARY64) -> Array:
        """How far each output may lie from the truth, second order included by SAFETY."""
        rounded = format.unit * self.relative + format.eta * self.absolute
        return SAFETY * rounded + self.own


def roundings(record: Record, border: int, outputs: Sequence[Recorded]) -> tuple[Roundings, Array]:
    """For every output, and d output / d entry, [entries, outputs].

    Entries from `border` on are those of the reverse pass.
    """
    adjoints = np.zeros((len(record), len(outputs)))
    for column, output in enumerate(outputs):
        if output.index >= 0:
            adjoints[output.index, column] += 1.0
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite bound decides nothing
        _walk(record, adjoints, len(record), border)
        reads = adjoints[:border].copy()
        reads[:, [o.index < border for o in outputs]] = 0.0  # outputs of the forward pass itself
        _walk(record, adjoints, border, 0)
        weights = np.abs(adjoints)
        weights[:border] = np.abs(reads) + np.abs(adjoints[:border] - reads)
        bounds = (np.array(v) @ weights for v in (record.sizes, record.counts))
        relative, absolute = (np.where(np.isnan(bound), np.inf, bound) for bound in bounds)
    own = np.zeros(len(outputs))  # the same sum with a unit that is nothing beside the format's
    return Roundings(relative=relative, absolute=absolute, own=own), adjoints


def straighten(record: Record, format: Format, border: int | None = None) -> None:
    """Widens elementary functions by what a rounded argument does to them beyond their slope.

    Where rounding leaves so little of a score that another one may win, exp is no straight line.
    What one function is widened by may bend those after it, so they are all looked at again.
    """
    arguments, granted = [b.argument for b in record.bends], np.zeros(len(record.bends))
    border = len(record) if border is None else border
    with np.errstate(all="ignore"):  # an infinite bound decides nothing
        if _all_straight(record, format):
            return
        for turn in range(ROUNDS):
            bounds = roundings(record, border, arguments)[0].bounds(format).tolist()
            needed = np.array([_needed(b, x) for b, x in zip(record.bends, bounds, strict=True)])
            needed = np.minimum(needed / format.unit, UNBOUNDED)
            if not (needed > granted).any():
                return
            if turn == ROUNDS - 1:
                needed[needed > 0.0] = UNBOUNDED
            needed = np.maximum(needed, granted)
            for bend, more in zip(record.bends, (needed - granted).tolist(), strict=True):
                record.sizes[bend.result.index] += more
            granted = needed


def _all_straight(record: Record, format: Format) -> bool:
    """Whether all arguments together move by next to nothing, whichever way their paths point."""
    weights = [0.0] * len(record)
    for bend in record.bends:
        weights[bend.argument.index] += 1.0 / bend.scale
    for index in range(len(record) - 1, -1, -1):
        weight = weights[index]
        if weight:
            for source, slope in zip(record.operands[index][0], record.steep[index], strict=True):
                weights[source] += weight * abs(slope)
    unit, eta = (float(np.dot(weights, x)) for x in (record.sizes, record.counts))
    return SAFETY * (format.unit * unit + format.eta * eta) < STRAIGHT  # not so where it is NaN


def _needed(bend: Bend, bound: float) -> float:
    if bound < STRAIGHT * bend.scale:
        return 0.0
    excess = bend.excess(bound)
    return math.inf if math.isnan(excess) else excess


def carried(
    record: Record, border: int, losses: Mapping[int, float], inputs: Sequence[Recorded]
) -> Array:
    """What losses at forward entries amount to in the gradient of every input.

    sum over entries v of |dv / d input| losses[v]: a contribution to the adjoint of v is
    multiplied by that on its way.
    """
    entries = list(losses)
    adjoints = np.zeros((border, len(entries)))
    adjoints[entries, range(len(entries))] = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        _walk(record, adjoints, border, 0)
        slopes = np.abs(adjoints[[x.index for x in inputs]])
        parts = np.where(slopes == 0.0, 0.0, slopes * np.array([losses[v] for v in entries]))
        total = parts.sum(axis=1)
    return np.where(np.isnan(total), np.inf, total)


def _walk(record: Record, adjoints: Array, start: int, end: int) -> None:
    """Hands the adjoints of entries end .. start - 1 on to what they came from."""
    for index in range(start - 1, end - 1, -1):
        sources, row = record.operands[index][0], adjoints[index]
        if sources and row.any():
            for source, slope in zip(sources, record.steep[index], strict=True):
                adjoints[source] += slope * row
