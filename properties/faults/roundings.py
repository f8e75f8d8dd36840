"""Faults of the elementary functions that only their hardest arguments show."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from logitproof.core import exact

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")
order = partial(planted, _FOUND, kind="order")


@order((exact, "nearest"), source="numerics.md section 1")
def half_way_powers_rounded_up(right: Any) -> Any:
    """What lies half way between two doubles goes to the larger one."""

    def nearest(man: int, exp: int) -> float:
        shift = max(man.bit_length() + exp - 53, -1074) - exp
        half = shift > 0 and man & ((1 << shift) - 1) == 1 << (shift - 1)
        return float(right(man + 1, exp) if half else right(man, exp))

    return nearest


@order((exact, "exp"), source="notes/speed.md section 6")
def exp_hard_cases_by_c_library(_: Any) -> Any:
    """What the quick path leaves undecided is asked of the C library."""
    return math.exp


@mistake((exact, "log1p"), source="numerics.md section 1")
def logarithm_of_infinity_undefined(right: Any) -> Any:
    """log(1 + x) of an infinity is no number."""
    return lambda x: math.nan if x == math.inf else right(x)


@mistake((exact, "sin"), source="numerics.md section 1")
def negative_zero_lost(right: Any) -> Any:
    """The sine of -0.0 is +0.0."""
    return lambda x: right(x) + 0.0


FAULTS = tuple(_FOUND.values())
