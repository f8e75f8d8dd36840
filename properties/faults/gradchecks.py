"""Faults of the check of gradients against differences."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from logitproof.core import gradcheck

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake", source="tape.md section 6")


@mistake((gradcheck, "_spacing"))
def spacings_taken_as_equal(right: Any) -> Any:
    """Both spacings are the step, which no double beside the point need be away."""

    def spacing(x: float, h: float, *, at: int) -> Any:
        return replace(right(x, h, at=at), minus=h, plus=h)

    return spacing


@mistake((gradcheck, "_stencil"))
def weights_exchanged(right: Any) -> Any:
    """The slope over the longer spacing has the larger weight."""

    def stencil(f: Any, spacing: Any) -> Any:
        made = right(f, spacing)
        slope = made.weight_right * made.left + made.weight_left * made.right
        return replace(made, derivative=slope)

    return stencil


@mistake((gradcheck, "sampled_indices"))
def last_coordinate_not_probed(right: Any) -> Any:
    """Samples are spread over all coordinates but the last."""
    return lambda n, samples: right(max(n - 1, 1), samples) if n else right(n, samples)


@mistake((gradcheck, "compare"))
def error_not_scaled(right: Any) -> Any:
    """The error is the plain difference."""

    def compare(analytic: float, numeric: float, tolerance: float) -> Any:
        made = right(analytic, numeric, tolerance)
        error = abs(made.analytic - made.numeric)
        return replace(made, scaled_error=error, passed=error <= tolerance)

    return compare


@mistake((gradcheck, "compare"))
def tolerance_exclusive(right: Any) -> Any:
    """An error equal to the tolerance fails."""

    def compare(analytic: float, numeric: float, tolerance: float) -> Any:
        made = right(analytic, numeric, tolerance)
        return replace(made, passed=made.scaled_error < made.tolerance)

    return compare


FAULTS = tuple(_FOUND.values())
