"""How far the roundings of a record move its outputs, to first order.

    |y_float - y| <= sum over entries i of |dy/dv_i| (k_i u |v_i| + k_i eta) + higher orders

u is the unit of rounding, eta half the smallest number.

Where rounding leaves few digits of a slope, its own error is not small beside it, and what it
does to the roundings that it multiplies is no longer of higher order. How far what is beyond the
first order may go is added to the bound where SAFETY does not cover it (`_straightened`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .recording import TINY, Record
from .walks import Moves, moves_of

__all__ = [
    "BFLOAT16", "BINARY16", "BINARY32", "BINARY64", "SAFETY", "Format", "Roundings",
    "roundings",
]  # fmt: skip

Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]

SAFETY = 2.0  # for the higher orders; ample while bound / |y| < 1e-4. Source: notes/bounds.md
STRAIGHT = 2.0**-10  # of a function's scale, or of a number: SAFETY covers what is beyond
PART = 0.125  # of an error: with this much more it is still within SAFETY
ROUNDS = 16  # of looking again; what grows still has no bound
AHEAD = 2.0  # more is granted than is needed, so that looking again comes to an end
UNBOUNDED = 1e300  # times nothing, it is nothing
AT_ONCE = 512  # columns of a matrix with a row for every entry


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
    """For every output, and d output / d entry, [entries, outputs].

    outputs: entries, -1 for what is known exactly
    border:  entries from here on are those of the reverse pass
    """
    with np.errstate(all="ignore"):  # an infinite bound decides nothing
        moves = moves_of(record, border, outputs, len(record))
        local = _straightened(record, border, moves, format)
        return local.moving(moves), moves.adjoints


@dataclass(frozen=True, slots=True, eq=False)
class _Local:
    """Of every entry: the size of its own roundings, their number, and the format they are of."""

    sizes: Array
    counts: Array
    format: Format

    @property
    def errors(self) -> Array:
        """What they come to."""
        return self.format.unit * self.sizes + self.format.eta * self.counts

    def moving(self, moves: Moves) -> Roundings:
        """What moves an output, by what an error of each entry moves it."""
        bounds = (np.ldexp(v @ moves.weights, -moves.exponents) for v in (self.sizes, self.counts))
        relative, absolute = (np.where(np.isnan(bound), np.inf, bound) for bound in bounds)
        own = np.zeros(len(relative))  # the same sum with a unit that is nothing beside this one
        return Roundings(relative=relative, absolute=absolute, own=own)


class _Steps:
    """A record in arrays: of each step its result, its operand and its slope; products; bends."""

    def __init__(self, record: Record) -> None:
        sources = [sources for sources, _ in record.operands]
        many = np.array([len(entry) for entry in sources], dtype=np.intp)
        self.results = np.repeat(np.arange(len(record)), many)
        self.sources = np.array([*chain.from_iterable(sources)], dtype=np.intp)
        self.slopes = np.abs([*chain.from_iterable(record.slopes)])
        pairs = np.array(record.pairs, dtype=np.intp).reshape(-1, 3)
        self.products, self.left, self.right = pairs.T
        self.values, self.bends = np.array(record.values), record.bends
        self.bent = np.array([bend.argument for bend in record.bends], dtype=np.intp)
        self.curved = np.array([bend.result for bend in record.bends], dtype=np.intp)
        self.scales = np.array([bend.scale for bend in record.bends])


def _straightened(record: Record, border: int, moves: Moves, format: Format) -> _Local:
    """Entries widened by what errors of their operands do to them beyond the slopes.

    Where rounding leaves so little of a score that another one may win, exp is no straight line;
    a product of two numbers that are off is off by one error times the other; and what is nothing
    in truth, but not in a program, is rounded there. Errors are added up first, whichever way
    their paths point. Where that would be seen in an output, they are asked for one by one.
    What one entry is widened by may reach others, so they are all looked at again.
    """
    counts, steps = np.array(record.counts), _Steps(record)
    local, granted = _Local(np.array(record.sizes), counts, format), np.zeros(len(record))
    errors = _errors(record, local)
    for turn in range(ROUNDS):
        needed, results, operands = _needed(steps, local, errors)
        seen = _seen(local, moves.weights, np.where(needed > granted, needed, 0.0))
        if len(seen):
            asked = np.unique(operands[np.isin(results, seen)])
            errors[asked] = _bounds(record, border, local, asked.tolist())
            needed, *_ = _needed(steps, local, errors)
        wider = needed > granted
        if not wider.any():
            break
        more = np.full(len(record), UNBOUNDED) if turn == ROUNDS - 1 else AHEAD * needed
        more = np.where(wider, more - granted, 0.0)
        local, granted = _Local(local.sizes + more, counts, format), granted + more
        errors += _errors(record, _Local(more, np.zeros(len(record)), format))
    return local


def _bounds(record: Record, border: int, local: _Local, entries: Sequence[int]) -> Array:
    """No entry of these, in ascending order, is off by more: some of them at a time."""
    found = [np.zeros(0)]
    for start in range(0, len(entries), AT_ONCE):
        some = entries[start : start + AT_ONCE]
        moves = moves_of(record, border, some, some[-1] + 1)
        moved = local.errors[: some[-1] + 1] @ moves.weights
        found.append(SAFETY * np.ldexp(moved, -moves.exponents))
    return np.where(np.isnan(bounds := np.concatenate(found)), np.inf, bounds)


def _errors(record: Record, local: _Local) -> Array:
    """No entry is off by more: all errors before it, whichever way their paths point."""
    errors: list[float] = []
    entries = zip(record.operands, record.slopes, (SAFETY * local.errors).tolist(), strict=True)
    for (sources, _), slopes, error in entries:
        for source, slope in zip(sources, slopes, strict=True):
            if slope and errors[source]:
                error += abs(slope) * errors[source] or TINY
        errors.append(error)
    return np.array(errors)


def _needed(steps: _Steps, local: _Local, bounds: Array) -> tuple[Array, Indices, Indices]:
    """What each entry is to be widened by, in units, for these bounds; results, operands: why.

    SAFETY covers what one does that is off by a small part of itself, and what is little beside the
    error that the entry has anyway.
    """
    format, off = local.format, ~(bounds <= STRAIGHT * steps.values)
    rounded = format.unit * local.counts
    bent = np.flatnonzero(~(bounds[steps.bent] < STRAIGHT * steps.scales))
    squared = off[steps.left] & off[steps.right]
    noisy = off[steps.sources] & (steps.slopes > 0.0) & (rounded[steps.results] > 0.0)
    product, x, y = steps.products[squared], steps.left[squared], steps.right[squared]
    result, source = steps.results[noisy], steps.sources[noisy]
    results = np.concatenate([steps.curved[bent], product, product, result])
    operands = np.concatenate([steps.bent[bent], x, y, source])
    half = 0.5 * bounds[x] * bounds[y]  # one half for either
    bends = [steps.bends[i].excess(float(bounds[steps.bent[i]])) for i in bent]
    noise = rounded[result] * (steps.slopes[noisy] * bounds[source])
    excess = np.concatenate([bends, half, half, noise])
    needed = np.bincount(results, excess, minlength=len(bounds)) / format.unit
    needed = np.where(np.isnan(needed), np.inf, needed)
    small = AHEAD * needed <= PART * local.errors / format.unit
    return np.where(small, 0.0, np.minimum(needed, UNBOUNDED)), results, operands


def _seen(local: _Local, weights: Array, needed: Array) -> Indices:
    """The entries with more than their share in what would widen an output by more than PART."""
    entries = np.flatnonzero(needed)
    most = PART * ((local.errors / local.format.unit) @ weights)
    wide = ~(AHEAD * needed @ weights <= most)
    share = most[wide] / (AHEAD * len(needed))
    parts = weights[np.ix_(entries, wide)] * needed[entries, None]
    return entries[(parts > share).any(axis=1)]
