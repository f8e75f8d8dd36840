import math
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitproof.core import ops
from logitproof.core.errors import Code, NumericRefusal, RecordRefusal, Refusal, ShapeRefusal
from logitproof.core.gradcheck import (
    central_difference,
    check_gradient,
    compare,
    compare_sides,
    sampled_indices,
)

INF = math.inf
NAN = math.nan
MAX = 1.7976931348623157e308
STEPS_THAT_ARE_NONE = [0.0, -0.0, -1e-6, INF, -INF, NAN]
NOT_REAL = [True, "1", None, 1j, np.longdouble(1), np.ones(2), 2**60 + 1]


def noted(notes: list[Any], note: object, answer: Any = 0.0) -> Any:
    """The answer, once the note is taken: what a lambda cannot say itself."""
    notes.append(note)
    return answer


def square(x: float) -> float:
    return x * x


def sum_of_squares(point: np.ndarray[Any, Any]) -> float:
    return float(math.fsum((point * point).reshape(-1)))


# the published figures
def test_square_at_3_has_the_published_stencil() -> None:
    stencil = central_difference(square, 3.0, 0.1)
    shown = [f"{v:.12g}" for v in (stencil.minus, stencil.plus, stencil.left, stencil.right)]
    assert shown == ["8.41", "9.61", "5.9", "6.1"]
    assert f"{stencil.derivative:.12f}" == "6.000000000000"
    assert stencil.centre == 9.0


def test_wrong_candidate_of_the_square_has_the_published_error() -> None:
    stencil = central_difference(square, 3.0, 0.1)
    wrong = compare(5.5, stencil.derivative, 2e-6)
    assert f"{wrong.scaled_error:.12e}" == "8.333333333333e-02"
    assert not wrong.passed
    assert compare(6.0, stencil.derivative, 2e-6).passed


def test_unequal_spacings_of_the_identity_at_1_are_weighted() -> None:
    stencil = central_difference(lambda x: x, 1.0, 1.33226762955018780e-16)
    assert stencil.spacing_minus == 1.11022302462515654e-16
    assert stencil.spacing_plus == 2.22044604925031308e-16
    assert (stencil.weight_left, stencil.weight_right) == (2 / 3, 1 / 3)
    assert (stencil.derivative, stencil.symmetric) == (1.0, False)


def test_sides_of_the_absolute_value_at_0_are_inconsistent() -> None:
    stencil = central_difference(abs, 0.0, 0.1)
    sides = compare_sides(stencil, 2e-6)
    assert (stencil.left, stencil.right, stencil.derivative) == (-1.0, 1.0, 0.0)
    assert (sides.scaled_error, sides.passed) == (2.0, False)
    assert stencil.symmetric


def test_a_step_below_the_spacing_of_doubles_collapses() -> None:
    with pytest.raises(NumericRefusal) as caught:
        central_difference(square, 1.0, 1e-20)
    assert caught.value.code is Code.COLLAPSED_STEP
    assert (caught.value.side, caught.value.value, caught.value.coordinate) == ("minus", 1.0, 0)


def nll_of_two_rows(logits: np.ndarray[Any, Any]) -> Any:
    """The loss as the operation returns it: an array of rank 0."""
    return ops.indexed_mean_nll(logits, axis=1, targets=[0, 2])[0]


def test_published_nll_gradient_agrees_with_differences() -> None:
    logits = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, -2.0]])
    loss, vjp = ops.indexed_mean_nll(logits, axis=1, targets=[0, 2])
    (analytic,) = vjp(np.ones(()))
    checked = check_gradient(
        nll_of_two_rows,
        logits, analytic, step=1e-6, tolerance=2e-6, samples=4,
    )  # fmt: skip
    assert f"{loss:.12f}" == "2.775268796472"
    assert [c.at for c in checked.coordinates] == [0, 1, 3, 5]
    assert [f"{c.comparison.analytic:.12f}" for c in checked.coordinates] == [
        "-0.377635764473", "0.332620477887", "0.433406666099", "-0.492061880012",
    ]  # fmt: skip
    assert checked.passed


@pytest.mark.parametrize(
    ("n", "samples", "indices"),
    [
        (6, 4, (0, 1, 3, 5)),
        (4, 4, (0, 1, 2, 3)),
        (3, 4, (0, 1, 2)),
        (1, 4, (0,)),
        (5, 1, (2,)),
        (6, 1, (3,)),
        (2**60, 3, (0, (2**60 - 1) // 2, 2**60 - 1)),
    ],
)
def test_sampled_indices_are_the_published_ones(
    n: int, samples: int, indices: tuple[int, ...]
) -> None:
    assert sampled_indices(n, samples) == indices


# behaviour
@pytest.mark.property
@given(st.integers(1, 200), st.integers(2, 200))
def test_samples_ascend_from_first_to_last(n: int, samples: int) -> None:
    indices = sampled_indices(n, samples)
    assert list(indices) == sorted(set(indices))
    assert len(indices) == min(n, samples)
    assert (indices[0], indices[-1]) == (0, n - 1)


@pytest.mark.property
@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e3))
def test_spacings_are_those_of_the_points_evaluated(x: float, h: float) -> None:
    evaluated: list[float] = []
    stencil = central_difference(lambda at: noted(evaluated, at, at), x, h)
    low, centre, high = evaluated
    assert centre == x
    assert (stencil.spacing_minus, stencil.spacing_plus) == (x - low, high - x)
    assert (low, high) == (x - h, x + h)


@pytest.mark.property
@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
def test_compare_is_symmetric_and_scaled(analytic: float, numeric: float) -> None:
    one, other = compare(analytic, numeric, 0.5), compare(numeric, analytic, 0.5)
    assert one.scaled_error == other.scaled_error <= 2.0
    assert one.scale == max(1.0, abs(analytic), abs(numeric))
    assert one.passed == (one.scaled_error <= 0.5)


def test_compare_passes_at_the_tolerance_itself() -> None:
    assert compare(0.75, 0.5, 0.25).passed
    assert not compare(0.75, 0.5, math.nextafter(0.25, 0)).passed
    assert compare(2.0, 2, 0.0).passed


def test_f_is_called_three_times_per_coordinate_in_order() -> None:
    calls: list[list[float]] = []
    point = np.array([[1.0, 2.0], [3.0, 4.0]])
    check_gradient(
        lambda p: noted(calls, p.reshape(-1).tolist()),
        point, np.zeros((2, 2)), step=0.5, tolerance=0.0, samples=2,
    )  # fmt: skip
    assert calls == [
        [0.5, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], [1.5, 2.0, 3.0, 4.0],
        [1.0, 2.0, 3.0, 3.5], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.5],
    ]  # fmt: skip


def test_the_probed_entry_is_restored_after_every_call() -> None:
    seen: list[np.ndarray[Any, Any]] = []
    point = np.array([-0.0, 1.0, 2.0])
    check_gradient(lambda p: noted(seen, p), point, np.zeros(3), step=0.5, tolerance=0.0, samples=3)
    assert all(array.tobytes() == point.tobytes() for array in seen)
    assert not any(np.shares_memory(array, point) for array in seen)


def test_the_probed_entry_is_restored_when_a_call_raises() -> None:
    seen: list[np.ndarray[Any, Any]] = []
    with pytest.raises(ZeroDivisionError):
        check_gradient(
            lambda p: noted(seen, p) / 0,
            np.array([1.0, 2.0]), np.zeros(2), step=0.5, tolerance=0.0, samples=1,
        )  # fmt: skip
    assert seen[0].tolist() == [1.0, 2.0]


def test_a_scalar_point_stays_a_scalar() -> None:
    shapes: list[tuple[int, ...]] = []
    checked = check_gradient(
        lambda p: noted(shapes, p.shape, p * p),
        np.array(3.0), np.array(6.0), step=1e-6, tolerance=2e-6, samples=4,
    )  # fmt: skip
    assert checked.passed
    assert shapes == [(), (), ()]


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_order_of_the_point_changes_nothing(order: Literal["C", "F"]) -> None:
    point = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], order=order)
    checked = check_gradient(sum_of_squares, point, 2 * point, step=1e-6, tolerance=2e-6, samples=6)
    assert checked.passed
    assert [c.stencil.centre for c in checked.coordinates] == [91.0] * 6
    assert [c.comparison.analytic for c in checked.coordinates] == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


def test_one_wrong_coordinate_fails_the_check() -> None:
    point = np.array([1.0, 2.0, 3.0])
    wrong = np.array([2.0, 4.0, 5.5])
    checked = check_gradient(sum_of_squares, point, wrong, step=1e-6, tolerance=2e-6, samples=3)
    assert [c.comparison.passed for c in checked.coordinates] == [True, True, False]
    assert not checked.passed
    assert checked.largest_scaled_error == checked.coordinates[2].comparison.scaled_error


# refusals
@pytest.mark.parametrize("step", STEPS_THAT_ARE_NONE)
def test_central_difference_refuses_invalid_steps(step: float) -> None:
    with pytest.raises(NumericRefusal) as caught:
        central_difference(square, 1.0, step)
    assert caught.value.code is Code.INVALID_STEP
    assert caught.value.value == step or step != step


@pytest.mark.parametrize("point", [INF, -INF, NAN])
def test_central_difference_refuses_points_that_are_not_finite(point: float) -> None:
    with pytest.raises(NumericRefusal) as caught:
        central_difference(square, point, 0.1)
    assert caught.value.code is Code.INVALID_POINT


@pytest.mark.parametrize(
    ("point", "step", "side", "value"),
    [(-MAX, MAX, "minus", -INF), (MAX, MAX, "plus", INF)],
)
def test_central_difference_refuses_perturbations_that_overflow(
    point: float, step: float, side: str, value: float
) -> None:
    with pytest.raises(NumericRefusal) as caught:
        central_difference(square, point, step)
    assert caught.value.code is Code.NON_FINITE_PERTURBATION
    assert (caught.value.side, caught.value.value) == (side, value)


@pytest.mark.parametrize(("point", "side"), [(2.0, "plus"), (-2.0, "minus"), (3.0, "minus")])
def test_central_difference_refuses_collapsed_steps(point: float, side: str) -> None:
    step = 2.0**-53 * 1.5  # moves from 2 down to the next double, but not up
    with pytest.raises(NumericRefusal) as caught:
        central_difference(square, point, step)
    assert (caught.value.code, caught.value.side) == (Code.COLLAPSED_STEP, side)


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
@pytest.mark.parametrize(("at", "side"), [(0.5, "minus"), (1.0, "centre"), (1.5, "plus")])
def test_central_difference_refuses_evaluations_that_are_not_finite(
    at: float, side: str, bad: float
) -> None:
    with pytest.raises(NumericRefusal) as caught:
        central_difference(lambda x: {at: bad}.get(x, x), 1.0, 0.5)
    assert (caught.value.code, caught.value.side) == (Code.NON_FINITE_EVALUATION, side)


@pytest.mark.parametrize(
    ("values", "side"),
    [
        ({0.5: -MAX, 1.0: MAX, 1.5: MAX}, "left"),
        ({0.5: MAX, 1.0: MAX, 1.5: -MAX}, "right"),
    ],
)
def test_central_difference_refuses_slopes_that_are_not_finite(
    values: dict[float, float], side: str
) -> None:
    with pytest.raises(NumericRefusal) as caught:
        central_difference(lambda at: values[at], 1.0, 0.5)
    assert (caught.value.code, caught.value.side) == (Code.NON_FINITE_SLOPE, side)


@pytest.mark.parametrize("bad", NOT_REAL, ids=repr)
def test_what_is_no_real_number_is_refused(bad: Any) -> None:
    with pytest.raises(NumericRefusal) as step:
        central_difference(square, 1.0, bad)
    with pytest.raises(NumericRefusal) as point:
        central_difference(square, bad, 0.1)
    with pytest.raises(NumericRefusal) as value:
        central_difference(lambda _: bad, 1.0, 0.1)
    refused = [(caught.value.code, caught.value.what) for caught in (step, point, value)]
    assert refused == [(Code.NOT_REAL, w) for w in ("step", "point", "minus evaluation")]


@pytest.mark.parametrize("tolerance", [-1e-300, INF, NAN])
def test_compare_refuses_invalid_tolerances(tolerance: float) -> None:
    with pytest.raises(NumericRefusal) as caught:
        compare(1.0, 1.0, tolerance)
    assert caught.value.code is Code.INVALID_TOLERANCE


@pytest.mark.parametrize(
    ("analytic", "numeric", "tolerance", "code"),
    [
        (NAN, INF, NAN, Code.INVALID_TOLERANCE),
        (NAN, INF, 0.1, Code.NON_FINITE_ANALYTIC),
        (1.0, INF, 0.1, Code.NON_FINITE_SLOPE),
    ],
)
def test_compare_reports_the_first_fault(
    analytic: float, numeric: float, tolerance: float, code: Code
) -> None:
    with pytest.raises(NumericRefusal) as caught:
        compare(analytic, numeric, tolerance)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("point", "step", "code"),
    [
        (INF, 0.0, Code.INVALID_STEP),
        (INF, 1e-300, Code.INVALID_POINT),
        (-MAX, MAX, Code.NON_FINITE_PERTURBATION),  # and f is not finite anywhere
        (1.0, 1e-20, Code.COLLAPSED_STEP),
        (1.0, 0.1, Code.NON_FINITE_EVALUATION),
    ],
)
def test_central_difference_reports_the_first_fault(point: float, step: float, code: Code) -> None:
    with pytest.raises(NumericRefusal) as caught:
        central_difference(lambda _: INF, point, step)
    assert caught.value.code is code


POINT = np.array([1.0, 2.0, 3.0])
EMPTY = np.zeros((0, 2))


@pytest.mark.parametrize(
    ("point", "analytic", "step", "tolerance", "samples", "code"),
    [
        ([1.0], EMPTY, 0.0, -1.0, 0, Code.INVALID_STEP),
        ([1.0], EMPTY, 1e-6, -1.0, 0, Code.INVALID_TOLERANCE),
        ([1.0], EMPTY, 1e-6, 0.1, 0, Code.NOT_REAL),
        (POINT, EMPTY, 1e-6, 0.1, 0, Code.GRADIENT_SHAPE_MISMATCH),
        (EMPTY, EMPTY, 1e-6, 0.1, 0, Code.ZERO_SAMPLES),
        (EMPTY, EMPTY, 1e-6, 0.1, 1, Code.EMPTY_POINT),
        (np.array([NAN]), np.array([NAN]), 1e-6, 0.1, 1, Code.INVALID_POINT),
        (np.array([1.0]), np.array([NAN]), 1e-20, 0.1, 1, Code.COLLAPSED_STEP),
        (np.array([1.0]), np.array([NAN]), 1e-6, 0.1, 1, Code.NON_FINITE_ANALYTIC),
        (np.array([1.0]), np.array([1.0]), 1e-6, 0.1, 1, Code.NON_FINITE_EVALUATION),
    ],
)
def test_check_gradient_reports_the_first_of_several_faults(
    point: Any, analytic: Any, step: float, tolerance: float, samples: int, code: Code
) -> None:
    with pytest.raises(Refusal) as caught:
        check_gradient(
            lambda _: NAN, point, analytic, step=step, tolerance=tolerance, samples=samples
        )
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("point", "analytic", "code", "at"),
    [
        ([1.0, 1e20, NAN], [0.0, 0.0, 0.0], Code.COLLAPSED_STEP, 1),
        ([1.0, 2.0, NAN], [0.0, INF, 0.0], Code.NON_FINITE_ANALYTIC, 1),
        ([1.0, 2.0, NAN], [0.0, 0.0, 0.0], Code.INVALID_POINT, 2),
    ],
)
def test_coordinates_are_checked_in_order_before_any_call(
    point: list[float], analytic: list[float], code: Code, at: int
) -> None:
    calls: list[object] = []
    with pytest.raises(NumericRefusal) as caught:
        check_gradient(
            lambda p: noted(calls, p),
            np.array(point),
            np.array(analytic),
            step=1e-6,
            tolerance=0.1,
            samples=3,
        )
    assert (caught.value.code, caught.value.at, calls) == (code, at, [])


def test_coordinates_that_are_not_sampled_are_not_checked() -> None:
    point = np.array([1.0, NAN, 3.0])
    checked = check_gradient(
        lambda p: p[0] + p[2], point, np.array([1.0, NAN, 1.0]), step=0.5, tolerance=0, samples=2
    )
    assert checked.passed


@pytest.mark.parametrize("array", [POINT.astype("f4"), POINT.astype("i8"), POINT.tolist(), None])
def test_check_gradient_takes_float64_arrays_alone(array: Any) -> None:
    with pytest.raises(NumericRefusal) as point:
        check_gradient(sum_of_squares, array, POINT, step=1e-6, tolerance=0.1, samples=1)
    with pytest.raises(NumericRefusal) as analytic:
        check_gradient(sum_of_squares, POINT, array, step=1e-6, tolerance=0.1, samples=1)
    assert (point.value.code, point.value.what) == (Code.NOT_REAL, "point")
    assert (analytic.value.code, analytic.value.what) == (Code.NOT_REAL, "analytic")


@pytest.mark.parametrize("samples", [True, 2.0, "2", None])
def test_samples_that_are_no_count_are_refused(samples: Any) -> None:
    with pytest.raises(RecordRefusal) as caught:
        sampled_indices(3, samples)
    assert (caught.value.code, caught.value.what) == (Code.FIELD_TYPE, "samples")


@pytest.mark.parametrize(
    ("n", "samples", "code"),
    [(0, 0, Code.ZERO_SAMPLES), (3, -1, Code.ZERO_SAMPLES), (0, 1, Code.EMPTY_POINT)],
)
def test_sampling_refuses_nothing_to_sample(n: int, samples: int, code: Code) -> None:
    with pytest.raises(ShapeRefusal) as caught:
        sampled_indices(n, samples)
    assert caught.value.code is code
