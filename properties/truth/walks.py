"""How errors of a record's entries reach its outputs: walks back, with a column for each output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .recording import TINY, Record, Recorded

__all__ = ["Moves", "carried", "moves_of"]

Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]

ROOM = 1000  # of the 1,023 binary exponents of a double: sums over all entries have the rest


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """What an error of each entry moves an output by at most, and what it does by itself.

    weights: the former, times 2^exponents, one for each output
    """

    weights: Array
    adjoints: Array
    exponents: Indices


def moves_of(record: Record, border: int, outputs: Sequence[int], count: int) -> Moves:
    """By errors of the first entries, and of no other.

    The product of slopes on a path may lie below all doubles, and the error that it multiplies far
    above one: where anything underflows, all is taken times a power of two per output, as large as
    the output's largest parts allow, and what underflows then is rounded away from zero. A slope
    that is 0 as a double stays 0: it is the value of an entry, which eta lets be off by all of it.
    """
    exponents = np.zeros(len(outputs), dtype=np.intp)
    with _underflow() as lost:
        weights, adjoints = _weights(record, border, outputs, count, exponents)
    if not lost:
        return Moves(weights, adjoints, exponents)
    largest = np.maximum(1.0, np.maximum(record.sizes[:count], record.counts[:count]))
    most = np.log2(np.maximum(1.0, (weights * largest[:, None]).max(axis=0)))
    exponents = np.where(most < ROOM, ROOM - most, 0.0).astype(np.intp)
    weights, _ = _weights(record, border, outputs, count, exponents, away=True)
    return Moves(weights, adjoints, exponents)


@contextmanager
def _underflow() -> Iterator[list[str]]:
    """A list that is empty as long as numpy met no underflow."""
    lost: list[str] = []

    def first(kind: str, _: int) -> None:
        lost.append(kind)
        np.seterr(under="ignore")  # until the end of this context

    with np.errstate(under="call", call=first):
        yield lost


def _weights(
    record: Record,
    border: int,
    outputs: Sequence[int],
    count: int,
    exponents: Indices,
    away: bool = False,
) -> tuple[Array, Array]:
    """Weights and adjoints, both times 2^exponents.

    What an output of the reverse pass reads of the forward pass may have been computed again:
    |what comes from these reads| + |the rest|.
    """
    adjoints = np.zeros((count, len(outputs)))
    for column, output in enumerate(outputs):
        if output >= 0:
            adjoints[output, column] += 2.0 ** exponents[column]
    _walk(record, adjoints, count, border, away)
    late = [column for column, output in enumerate(outputs) if output >= border]
    if not late:
        _walk(record, adjoints, min(count, border), 0, away)
        return np.abs(adjoints), adjoints
    among = slice(late[0], late[-1] + 1)
    reads = adjoints[:border, among].copy()
    reads[:, [output < border for output in outputs[among]]] = 0.0  # forward themselves
    _walk(record, adjoints, border, 0, away)
    weights = np.abs(adjoints)
    rest = np.subtract(adjoints[:border, among], reads, out=weights[:border, among])
    np.add(np.abs(rest, out=rest), np.abs(reads, out=reads), out=rest)
    return weights, adjoints


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


def _walk(record: Record, adjoints: Array, start: int, end: int, away: bool = False) -> None:
    """Hands the adjoints of entries end .. start - 1 on to what they came from.

    away: what underflows to zero is the smallest number instead
    """
    reached: list[bool] = np.any(adjoints[:start], axis=1).tolist()
    for index in range(start - 1, end - 1, -1):
        if reached[index]:
            row = adjoints[index]
            for source, slope in zip(record.operands[index][0], record.slopes[index], strict=True):
                adjoints[source] += _away_from_zero(slope, row) if away else slope * row
                reached[source] = True


def _away_from_zero(slope: float, row: Array) -> Array:
    part = slope * row
    lost = (part == 0.0) & (row != 0.0) & (slope != 0.0)
    return np.where(lost, np.copysign(TINY, part), part)
