"""How far the roundings of a record move its outputs, to first order.

    |y_float - y| <= sum over entries i of |dy/dv_i| (k_i u |v_i| + k_i eta) + higher orders

u is the unit of rounding, eta half the smallest number. All outputs are walked back at once, a
column each. What the reverse pass reads of the forward pass may have been computed again there,
with roundings of its own: a forward entry counts |what comes from reverse reads| + |the rest|.

Where rounding leaves few digits of a slope, its own error is not small beside it, and what it
does to the roundings that it multiplies is no longer of higher order. |v_i| and the slopes are the
larger of the true ones and those that a run of the record in doubles meets; how far what is beyond
the first order may go is added to the bound where SAFETY does not cover it (`_straighten`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .recording import Bend, Record, Recorded

__all__ = [
    "BFLOAT16", "BINARY16", "BINARY32", "BINARY64", "SAFETY", "Format", "Roundings", "carried",
    "roundings",
]  # fmt: skip

Array: TypeAlias = NDArray[np.float64]

SAFETY = 2.0  # for the higher orders; ample while bound / |y| < 1e-4. Source: notes/bounds.md
STRAIGHT = 2.0**-10  # of a function's scale, or of a number: SAFETY covers what is beyond
PART = 0.125  # of an error: with this much more it is still within SAFETY
ROUNDS = 16  # of looking again; what grows still has no bound
AHEAD = 2.0  # more is granted than is needed, so that looking again comes to an end
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


def roundings(
    record: Record, border: int, outputs: Sequence[int], format: Format
) -> tuple[Roundings, Array]:
    """For every output, and d output / d entry, [entries, outputs]. Widens the record.

    outputs: entries, -1 for what is known exactly
    border:  entries from here on are those of the reverse pass
    """
    with np.errstate(all="ignore"):  # an infinite bound decides nothing
        weights, adjoints = _weights(record, border, outputs)
        _straighten(record, border, weights, format)
        return _summed(record, weights), adjoints


def _weights(record: Record, border: int, outputs: Sequence[int]) -> tuple[Array, Array]:
    """What an error of an entry moves an output by at most, and what it does by itself."""
    adjoints = np.zeros((len(record), len(outputs)))
    for column, output in enumerate(outputs):
        if output >= 0:
            adjoints[output, column] += 1.0
    _walk(record, adjoints, len(record), border)
    reads = adjoints[:border].copy()
    reads[:, [output < border for output in outputs]] = 0.0  # outputs of the forward pass itself
    _walk(record, adjoints, border, 0)
    weights = np.abs(adjoints)
    weights[:border] = np.abs(reads) + np.abs(adjoints[:border] - reads)
    return weights, adjoints


def _summed(record: Record, weights: Array) -> Roundings:
    bounds = (np.array(v) @ weights for v in (record.sizes, record.counts))
    relative, absolute = (np.where(np.isnan(bound), np.inf, bound) for bound in bounds)
    own = np.zeros(len(relative))  # the same sum with a unit that is nothing beside the format's
    return Roundings(relative=relative, absolute=absolute, own=own)


def _straighten(record: Record, border: int, weights: Array, format: Format) -> None:
    """Widens entries by what errors of their operands do to them beyond the slopes.

    Where rounding leaves so little of a score that another one may win, exp is no straight line;
    a product of two numbers that are off is off by one error times the other; and what is nothing
    in truth, but not in a program, is rounded there. Errors are added up first, whichever way
    their paths point. Where that would be seen in an output, they are asked for one by one.
    What one entry is widened by may reach others, so they are all looked at again.
    """
    granted, found = np.zeros(len(record)), _Found(record, border, format)
    for turn in range(ROUNDS):
        errors = _errors(record, format)
        needed, operands = _needed(record, format, errors)
        seen = np.flatnonzero(_is_seen(record, weights, needed, format)).tolist()
        if seen:
            exact = found.bounds({x for index in seen for x in operands[index]})
            needed, _ = _needed(record, format, {**errors, **exact})
        if not (needed > granted).any():
            return
        more = np.full(len(record), UNBOUNDED) if turn == ROUNDS - 1 else AHEAD * needed
        more = np.where(needed > granted, more - granted, 0.0)
        for index in np.flatnonzero(more).tolist():
            record.sizes[index] += float(more[index])
        granted += more


class _Found:
    """Bounds of entries; their columns stay as they are while the record is widened."""

    def __init__(self, record: Record, border: int, format: Format) -> None:
        self.record, self.border, self.format = record, border, format
        self.asked: list[int] = []
        self.weights: Array = np.zeros((len(record), 0))

    def bounds(self, entries: set[int]) -> dict[int, float]:
        more = sorted(entries.difference(self.asked))
        if more:
            columns, _ = _weights(self.record, self.border, more)
            self.asked += more
            self.weights = np.concatenate([self.weights, columns], axis=1)
        bounds = _summed(self.record, self.weights).bounds(self.format).tolist()
        return dict(zip(self.asked, bounds, strict=True))


def _errors(record: Record, format: Format) -> dict[int, float]:
    """No entry is off by more: all errors before it, whichever way their paths point."""
    errors: dict[int, float] = {}
    for index, (sources, _) in enumerate(record.operands):
        local = format.unit * record.sizes[index] + format.eta * record.counts[index]
        error = SAFETY * local
        for source, slope in zip(sources, record.steep[index], strict=True):
            error += abs(slope) * errors[source] if slope else 0.0
        errors[index] = error
    return errors


def _needed(
    record: Record, format: Format, bounds: Mapping[int, float]
) -> tuple[Array, Mapping[int, set[int]]]:
    """What each entry is to be widened by, in units, for these bounds; whose bounds it came from.

    SAFETY covers what one does that is off by a small part of itself, and what is little beside the
    error that the entry has anyway.
    """
    needed, operands = np.zeros(len(record)), defaultdict[int, set[int]](set)
    off = {i: e for i, e in bounds.items() if not e <= STRAIGHT * record.values[i]}
    for bend in record.bends:
        excess = _excess(bend, bounds[bend.argument.index])
        if excess:
            needed[bend.result.index] += excess
            operands[bend.result.index].add(bend.argument.index)
    for product, x, y in record.pairs if off else ():
        if x in off and y in off:
            needed[product] += off[x] * off[y]
            operands[product] |= {x, y}
    for index, (sources, _) in enumerate(record.operands if off else ()):
        rounded = record.counts[index] * format.unit
        for source, slope in zip(sources, record.steep[index], strict=True):
            if source in off and slope and rounded:
                needed[index] += rounded * abs(slope) * off[source]
                operands[index].add(source)
    needed = np.where(np.isnan(needed), np.inf, needed) / format.unit
    local = np.array(record.sizes) + format.eta / format.unit * np.array(record.counts)
    small = AHEAD * needed <= PART * local
    return np.where(small, 0.0, np.minimum(needed, UNBOUNDED)), operands


def _is_seen(record: Record, weights: Array, needed: Array, format: Format) -> NDArray[np.bool_]:
    """Which entries have more than their share in what would widen an output by more than PART."""
    first = _summed(record, weights)
    most = PART * (first.relative + format.eta / format.unit * first.absolute)
    wide = ~(AHEAD * needed @ weights <= most)
    share = most[wide] / (AHEAD * len(record))
    return np.asarray((weights[:, wide] * needed[:, None] > share).any(axis=1))


def _excess(bend: Bend, bound: float) -> float:
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
