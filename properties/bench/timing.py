"""Calls timed in turns: what disturbs one disturbs its rivals, and ratios are taken per round."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

__all__ = ["Timing", "interleaved", "primed", "ratio"]

HEAP_PRIME_BYTES = 31 * 2**20  # just below the largest block that glibc keeps on its heap
MOST_CALLS = 20_000  # in one round


@dataclass(frozen=True, slots=True)
class Timing:
    """Process CPU seconds per call, one figure for each round."""

    rounds: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median round."""
        return median(self.rounds)


def primed() -> None:
    """Take and give back one large block, so that the heap keeps later temporaries."""
    block = np.ones(HEAP_PRIME_BYTES // 8)
    del block


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    least: float,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, Timing]:
    """Every call in every round, beginning with another one each time.

    rounds: 1 or more
    least:  seconds that the repetitions of one call take in a round, at the least
    clock:  process CPU time, which counts the work of every thread and no waiting
    Returns: a timing per name
    """
    primed()
    repetitions = {name: _repetitions(call, least, clock) for name, call in calls.items()}
    seen: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for first in range(rounds):
        turn = first % max(len(names), 1)
        for name in names[turn:] + names[:turn]:
            seen[name].append(_timed(calls[name], repetitions[name], clock))
    return {name: Timing(tuple(figures)) for name, figures in seen.items()}


def _repetitions(call: Callable[[], object], least: float, clock: Callable[[], float]) -> int:
    """How many calls take `least` seconds; the first one compiles and fills caches, uncounted."""
    call()
    count = 1
    while (taken := _timed(call, count, clock) * count) < least / 4 and count < MOST_CALLS:
        count *= 4
    return max(1, min(MOST_CALLS, round(count * least / taken))) if taken else count


def _timed(call: Callable[[], object], repetitions: int, clock: Callable[[], float]) -> float:
    """Seconds per call."""
    start = clock()
    for _ in range(repetitions):
        call()
    return (clock() - start) / repetitions


def ratio(over: Timing, under: Timing) -> tuple[float, float, float]:
    """Median, lowest and highest ratio of two timings of the same rounds."""
    shares = [a / b for a, b in zip(over.rounds, under.rounds, strict=True)]
    return median(shares), min(shares), max(shares)
