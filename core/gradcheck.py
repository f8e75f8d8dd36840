"""Gradients against central differences: real spacings, sampled coordinates, scaled errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .codes import Code
from .errors import NumericRefusal, RecordRefusal, ShapeRefusal, check_equal

__all__ = [
    "Comparison",
    "Coordinate",
    "GradientCheck",
    "Stencil",
    "central_difference",
    "check_gradient",
    "compare",
    "compare_sides",
    "sampled_indices",
]

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stencil:
    """Three evaluations around a point, and the slopes between them."""

    minus: float
    centre: float
    plus: float
    left: float
    right: float
    derivative: float
    symmetric: bool
    spacing_minus: float
    spacing_plus: float
    weight_left: float
    weight_right: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """|analytic - numeric|, both divided by max(1, |analytic|, |numeric|), and the verdict."""

    analytic: float
    numeric: float
    scale: float
    scaled_error: float
    tolerance: float
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinate:
    """One probed coordinate, by flat index."""

    at: int
    stencil: Stencil
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCheck:
    """The probed coordinates in ascending order: samples of a gradient, not a proof of it."""

    coordinates: tuple[Coordinate, ...]

    @property
    def passed(self) -> bool:
        """True when every probed coordinate is within the tolerance."""
        return all(coordinate.comparison.passed for coordinate in self.coordinates)

    @property
    def largest_scaled_error(self) -> float:
        """The greatest scaled error over the probed coordinates."""
        return max(coordinate.comparison.scaled_error for coordinate in self.coordinates)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spacing:
    """Where a coordinate is probed, and how far that really is from it."""

    low: float
    point: float
    high: float
    minus: float
    plus: float


def central_difference(f: Callable[[float], float], x: float, step: float) -> Stencil:
    """The derivative of f at x from three evaluations, in the order minus, centre, plus.

    hm = x - (x - h); hp = (x + h) - x; s = max(hm, hp); a = hm / s; b = hp / s
    derivative = b / (a + b) * (f(x) - f(x - h)) / hm + a / (a + b) * (f(x + h) - f(x)) / hp

    step:    h, finite and above 0
    Refuses: numeric/not-real, numeric/invalid-step, numeric/invalid-point, per side
             numeric/non-finite-perturbation and numeric/collapsed-step, then per evaluation
             numeric/non-finite-evaluation, then numeric/non-finite-slope
    Source:  tape.md section 6
    """
    h = _checked_step(step)
    return _stencil(f, _spacing(_real(x, "point"), h, at=0))


def compare(analytic: float, numeric: float, tolerance: float) -> Comparison:
    """The scaled difference of two slopes; passed when it is at most the tolerance.

    Refuses: numeric/not-real, numeric/invalid-tolerance, numeric/non-finite-analytic,
             numeric/non-finite-slope
    Source:  tape.md section 6
    """
    limit = _checked_tolerance(tolerance)
    a = _checked_analytic(_real(analytic, "analytic"), at=0)
    n = _checked_slope(_real(numeric, "numeric"), side="numeric")
    scale = max(1.0, abs(a), abs(n))
    scaled_error = abs(a / scale - n / scale)
    return Comparison(
        analytic=a,
        numeric=n,
        scale=scale,
        scaled_error=scaled_error,
        tolerance=limit,
        passed=scaled_error <= limit,
    )


def compare_sides(stencil: Stencil, tolerance: float) -> Comparison:
    """The left slope against the right one: they part where f has a kink.

    Refuses: numeric/invalid-tolerance
    Source:  tape.md section 6
    """
    return compare(stencil.left, stencil.right, tolerance)


def check_gradient(
    f: Callable[[Array], float],
    point: Array,
    analytic: Array,
    *,
    step: float,
    tolerance: float,
    samples: int,
) -> GradientCheck:
    """An analytic gradient against central differences at sampled coordinates.

    f:       called with one copy of the point, in which the probed entry is restored after
             every call; three calls per coordinate
    samples: how many coordinates, all when there are fewer; see sampled_indices
    Refuses: numeric/invalid-step, numeric/invalid-tolerance, numeric/not-real,
             shape/gradient-shape-mismatch, shape/zero-samples, shape/empty-point; then, per
             selected coordinate before any call, those of central_difference and
             numeric/non-finite-analytic; then those of the evaluations
    Source:  tape.md section 6
    """
    h = _checked_step(step)
    limit = _checked_tolerance(tolerance)
    probed = _real_array(point, "point")
    gradient = _real_array(analytic, "analytic").reshape(-1)
    check_equal(Code.GRADIENT_SHAPE_MISMATCH, "gradient check", np.shape(point), np.shape(analytic))
    entries = probed.reshape(-1)
    planned = []
    for at in sampled_indices(probed.size, samples):
        spacing = _spacing(float(entries[at]), h, at=at)
        planned.append((at, spacing, _checked_analytic(float(gradient[at]), at=at)))
    coordinates = []
    for at, spacing, slope in planned:
        stencil = _stencil(_probe(f, probed, at), spacing)
        comparison = compare(slope, stencil.derivative, limit)
        coordinates.append(Coordinate(at=at, stencil=stencil, comparison=comparison))
    return GradientCheck(coordinates=tuple(coordinates))


def sampled_indices(n: int, samples: int) -> tuple[int, ...]:
    """Flat indices of n elements, first and last among them: floor(k (n - 1) / (m - 1)).

    m = min(samples, n); m = 1 takes the middle, n // 2.

    Refuses: record/field-type, shape/zero-samples, shape/empty-point
    Source:  tape.md section 6
    """
    if type(samples) is not int:  # True is no count
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what="samples",
            expected="an integer",
            actual=type(samples).__name__,
        )
    if samples < 1:
        raise ShapeRefusal(
            code=Code.ZERO_SAMPLES, what="gradient check", expected=1, actual=samples
        )
    if n < 1:
        raise ShapeRefusal(code=Code.EMPTY_POINT, what="gradient check", expected=1, actual=n)
    m = min(samples, n)
    return (n // 2,) if m == 1 else tuple(k * (n - 1) // (m - 1) for k in range(m))


def _probe(f: Callable[[Array], float], point: Array, at: int) -> Callable[[float], float]:
    entries = point.reshape(-1)

    def along(x: float) -> float:
        original = entries[at]
        entries[at] = x
        try:
            return f(point)
        finally:
            entries[at] = original

    return along


def _stencil(f: Callable[[float], float], spacing: _Spacing) -> Stencil:
    hm, hp = spacing.minus, spacing.plus
    minus = _evaluated(f, spacing.low, side="minus")
    centre = _evaluated(f, spacing.point, side="centre")
    plus = _evaluated(f, spacing.high, side="plus")
    longer = max(hm, hp)
    a, b = hm / longer, hp / longer
    weight_left, weight_right = b / (a + b), a / (a + b)
    left = _checked_slope((centre - minus) / hm, side="left")
    right = _checked_slope((plus - centre) / hp, side="right")
    derivative = weight_left * left + weight_right * right
    return Stencil(
        minus=minus,
        centre=centre,
        plus=plus,
        left=left,
        right=right,
        derivative=_checked_slope(derivative, side="weighted"),
        symmetric=hm == hp,
        spacing_minus=hm,
        spacing_plus=hp,
        weight_left=weight_left,
        weight_right=weight_right,
    )


def _spacing(x: float, h: float, *, at: int) -> _Spacing:
    what = "gradient check"
    if not math.isfinite(x):
        raise NumericRefusal(code=Code.INVALID_POINT, what=what, at=at, value=x)
    low, high = x - h, x + h
    for side, probe in (("minus", low), ("plus", high)):
        facts = {"side": side}
        if not math.isfinite(probe):
            code = Code.NON_FINITE_PERTURBATION
            raise NumericRefusal(code=code, what=what, at=at, value=probe, details=facts)
        if probe == x:
            code = Code.COLLAPSED_STEP
            raise NumericRefusal(code=code, what=what, at=at, value=x, details=facts)
    minus, plus = x - low, high - x
    # Follows from the above: a difference of unequal doubles is never 0, and h bounds it.
    assert 0.0 < minus < math.inf, minus
    assert 0.0 < plus < math.inf, plus
    return _Spacing(low=low, point=x, high=high, minus=minus, plus=plus)


def _evaluated(f: Callable[[float], float], x: float, *, side: str) -> float:
    value = _real(f(x), f"{side} evaluation")
    if not math.isfinite(value):
        raise NumericRefusal(
            code=Code.NON_FINITE_EVALUATION,
            what="gradient check",
            value=value,
            details={"side": side},
        )
    return value


def _checked_slope(slope: float, *, side: str) -> float:
    if not math.isfinite(slope):
        raise NumericRefusal(
            code=Code.NON_FINITE_SLOPE,
            what="gradient check",
            value=slope,
            details={"side": side},
        )
    return slope


def _checked_analytic(slope: float, *, at: int) -> float:
    if not math.isfinite(slope):
        raise NumericRefusal(
            code=Code.NON_FINITE_ANALYTIC, what="gradient check", at=at, value=slope
        )
    return slope


def _checked_step(step: float) -> float:
    h = _real(step, "step")
    if not 0.0 < h < math.inf:
        raise NumericRefusal(code=Code.INVALID_STEP, what="gradient check", value=h)
    return h


def _checked_tolerance(tolerance: float) -> float:
    limit = _real(tolerance, "tolerance")
    if not 0.0 <= limit < math.inf:
        raise NumericRefusal(code=Code.INVALID_TOLERANCE, what="gradient check", value=limit)
    return limit


def _real(value: object, what: str) -> float:
    """A float64 or an integer that one holds. Refuses: numeric/not-real"""
    number = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if isinstance(number, float | np.float32 | np.float16):
        return float(number)
    if isinstance(number, int) and not isinstance(number, bool) and abs(number) <= 1 << 53:
        return float(number)
    raise NumericRefusal(code=Code.NOT_REAL, what=what, value=repr(value))


def _real_array(values: object, what: str) -> Array:
    """A row-major copy of a float64 array. Refuses: numeric/not-real"""
    if not isinstance(values, np.ndarray) or values.dtype != np.float64:
        kind = f"{values.dtype} array" if isinstance(values, np.ndarray) else type(values).__name__
        raise NumericRefusal(code=Code.NOT_REAL, what=what, value=kind)
    return np.array(values, order="C")
