"""How far results lie from what they should be, counted in units in the last place."""

from __future__ import annotations

from itertools import zip_longest
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["EDGES", "Counts", "added", "ulp_counts"]

Counts: TypeAlias = tuple[int, ...]
"""Entries per bin: a bin ends at its edge; one more holds what lies beyond them all."""

# Half an ulp is as near as a double gets to a real number; 2^52 ulps are the number itself.
EDGES = (0.5, *(2.0**k for k in range(8)), 2.0**10, 2.0**20, 2.0**30, 2.0**52)


def ulp_counts(errors: NDArray[np.float64], expected: NDArray[np.float64]) -> Counts:
    """Entries by their error over the spacing of doubles at what was expected.

    An error that is no number, or beside an expectation that is none, lies beyond all edges.
    """
    with np.errstate(all="ignore"):
        ulps = np.abs(errors) / np.spacing(np.abs(expected))
    ulps = np.where(np.isnan(ulps), np.inf, ulps).reshape(-1)
    bins = np.searchsorted(EDGES, ulps)
    return tuple(int(n) for n in np.bincount(bins, minlength=len(EDGES) + 1))


def added(first: Counts, second: Counts) -> Counts:
    """Both together; no counts are none of any."""
    return tuple(a + b for a, b in zip_longest(first, second, fillvalue=0))
