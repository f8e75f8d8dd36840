"""Boundaries of the gradient check."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from logitproof.core.codes import Code
from logitproof.core.gradcheck import central_difference, check_gradient, compare

from .boundary import Apart, Boundary, Situation, fault
from .making import MAX

__all__ = ["BOUNDARIES"]

INF, NAN = float("inf"), float("nan")
STEPS = (
    fault(Code.NOT_REAL, "text as step", lambda s: s.set(step="1e-3"), what="step"),
    fault(Code.INVALID_STEP, "step of 0", lambda s: s.set(step=0.0), value=0.0),
    fault(Code.INVALID_STEP, "infinite step", lambda s: s.set(step=INF), value=INF),
)
TOLERANCES = (
    fault(Code.NOT_REAL, "bool as tolerance", lambda s: s.set(tolerance=True), what="tolerance"),
    fault(Code.INVALID_TOLERANCE, "tolerance of -1", lambda s: s.set(tolerance=-1.0), value=-1.0),
)
ONE_STEP = Apart("one step is given", {f.name for f in STEPS})
ONE_TOLERANCE = Apart("one tolerance is given", {f.name for f in TOLERANCES})


difference = Boundary(
    name="central_difference",
    order=(
        Code.NOT_REAL,
        Code.INVALID_STEP,
        Code.NOT_REAL,
        Code.INVALID_POINT,
        Code.NON_FINITE_PERTURBATION,
        Code.COLLAPSED_STEP,
        Code.NON_FINITE_PERTURBATION,
        Code.NOT_REAL,
        Code.NON_FINITE_EVALUATION,
        Code.NON_FINITE_SLOPE,
    ),
    build=lambda: Situation(step=0.5, point=1.0, values={}),
    call=lambda s: central_difference(lambda x: s.values.get(x - s.point, x), s.point, s.step),
    faults=(
        *STEPS,
        fault(Code.NOT_REAL, "text as point", lambda s: s.set(point="1"), what="point"),
        fault(Code.INVALID_POINT, "point nan", lambda s: s.set(point=NAN), value=NAN),
        fault(
            Code.NON_FINITE_PERTURBATION,
            "lower probe overflows",
            lambda s: s.set(point=-MAX, step=MAX),
            side="minus",
            value=-INF,
            coordinate=0,
        ),
        fault(
            Code.COLLAPSED_STEP,
            "point 2**60",
            lambda s: s.set(point=2.0**60),
            side="minus",
            value=2.0**60,
            coordinate=0,
        ),
        fault(
            Code.NON_FINITE_PERTURBATION,
            "upper probe overflows",
            lambda s: s.set(point=MAX, step=MAX),
            side="plus",
            value=INF,
        ),
        fault(
            Code.NOT_REAL,
            "complex value",
            lambda s: s.values.update({-0.5: 1j}),
            what="minus evaluation",
        ),
        fault(
            Code.NON_FINITE_EVALUATION,
            "infinite value",
            lambda s: s.values.update({0.0: INF}),
            side="centre",
            value=INF,
        ),
        fault(
            Code.NON_FINITE_SLOPE,
            "values far apart",
            lambda s: s.values.update({0.5: -MAX, 0.0: MAX}),
            side="left",
            value=INF,
        ),
    ),
    apart=(
        ONE_STEP,
        Apart(
            "one point is given",
            {"text as point", "point nan", "lower probe overflows", "point 2**60",
             "upper probe overflows"},
        ),
        Apart("the probes need their step", {f.name for f in STEPS},
              {"lower probe overflows", "upper probe overflows"}),
        Apart("one centre value", {"infinite value"}, {"values far apart"}),
    ),
)  # fmt: skip


def _entry(name: str, at: int, value: float) -> Callable[[Situation], object]:
    def plant(s: Situation) -> None:
        spoiled = np.array(getattr(s, name))
        spoiled[at] = value
        s.set(**{name: spoiled})

    return plant


sampled = Boundary(
    name="check_gradient",
    order=(
        Code.NOT_REAL,
        Code.INVALID_STEP,
        Code.NOT_REAL,
        Code.INVALID_TOLERANCE,
        Code.NOT_REAL,
        Code.GRADIENT_SHAPE_MISMATCH,
        Code.FIELD_TYPE,
        Code.ZERO_SAMPLES,
        Code.EMPTY_POINT,
        Code.INVALID_POINT,
        Code.COLLAPSED_STEP,
        Code.NON_FINITE_ANALYTIC,
        Code.NON_FINITE_EVALUATION,
    ),
    build=lambda: Situation(
        step=1e-3, tolerance=1e-6, point=np.ones(4), analytic=np.ones(4), samples=4, infinite=False
    ),
    call=lambda s: check_gradient(
        lambda p: INF if s.infinite else float(p[3]),
        s.point,
        s.analytic,
        step=s.step,
        tolerance=s.tolerance,
        samples=s.samples,
    ),
    faults=(
        *STEPS,
        *TOLERANCES,
        fault(
            Code.NOT_REAL,
            "list as point",
            lambda s: s.set(point=s.point.tolist()),
            what="point",
            value="list",
        ),
        fault(
            Code.NOT_REAL,
            "single precision gradient",
            lambda s: s.set(analytic=s.analytic.astype("f4")),
            what="analytic",
        ),
        fault(
            Code.GRADIENT_SHAPE_MISMATCH,
            "gradient of rank 2",
            lambda s: s.set(analytic=s.analytic[None]),
        ),
        fault(Code.FIELD_TYPE, "bool samples", lambda s: s.set(samples=True), actual="bool"),
        fault(Code.ZERO_SAMPLES, "no sample", lambda s: s.set(samples=0), actual=0),
        fault(
            Code.EMPTY_POINT,
            "no coordinate",
            lambda s: s.set(point=s.point[:0], analytic=s.analytic[:0]),
        ),
        fault(Code.INVALID_POINT, "coordinate 0 nan", _entry("point", 0, NAN), value=NAN),
        fault(
            Code.COLLAPSED_STEP,
            "coordinate 1 huge",
            _entry("point", 1, 1e30),
            coordinate=1,
            side="minus",
        ),
        fault(
            Code.NON_FINITE_ANALYTIC,
            "gradient 2 infinite",
            _entry("analytic", 2, INF),
            coordinate=2,
            value=INF,
        ),
        fault(
            Code.NON_FINITE_EVALUATION,
            "infinite value",
            lambda s: s.set(infinite=True),
            side="minus",
            value=INF,
        ),
    ),
    apart=(ONE_STEP, ONE_TOLERANCE, Apart("one count is given", {"bool samples", "no sample"})),
)

comparison = Boundary(
    name="compare",
    order=(
        Code.NOT_REAL,
        Code.INVALID_TOLERANCE,
        Code.NOT_REAL,
        Code.NON_FINITE_ANALYTIC,
        Code.NOT_REAL,
        Code.NON_FINITE_SLOPE,
    ),
    build=lambda: Situation(analytic=1.0, numeric=1.0, tolerance=0.0),
    call=lambda s: compare(s.analytic, s.numeric, s.tolerance),
    faults=(
        *TOLERANCES,
        fault(Code.NOT_REAL, "text gradient", lambda s: s.set(analytic="1"), what="analytic"),
        fault(Code.NON_FINITE_ANALYTIC, "nan gradient", lambda s: s.set(analytic=NAN), value=NAN),
        fault(Code.NOT_REAL, "no slope", lambda s: s.set(numeric=None), what="numeric"),
        fault(Code.NON_FINITE_SLOPE, "infinite slope", lambda s: s.set(numeric=INF), value=INF),
    ),
    apart=(
        ONE_TOLERANCE,
        Apart("one gradient is given", {"text gradient", "nan gradient"}),
        Apart("one slope is given", {"no slope", "infinite slope"}),
    ),
)

BOUNDARIES = (difference, sampled, comparison)
