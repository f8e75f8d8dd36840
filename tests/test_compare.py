import math
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest

from logitproof.properties.compare import same_bits, ulps_apart, within_bound, within_ulps

NAN, INF = math.nan, math.inf
ONE_UP = math.nextafter(1.0, 2.0)
EMPTY = np.zeros((2, 0))


def exact(*cells: Any, shape: tuple[int, ...] | None = None) -> Any:
    return SimpleNamespace(shape=(len(cells),) if shape is None else shape, cells=list(cells))


# https://github.com/numpy/numpy/issues/8145
@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (NAN, NAN, "bits"),
        (0.0, -0.0, "bits"),
        (INF, INF, ""),
        (INF, -INF, "bits"),
        (1.0, 1.1, "bits"),
        (1.1, 1.0, "bits"),
        (np.ones(3), 1.0, "shape"),
        (EMPTY, EMPTY, "empty"),
        (np.float32(1.0), np.float64(1.0), "dtype"),
        (1.0, ONE_UP, "bits"),
        (np.zeros((1, 3)), np.zeros(3), "shape"),
        (np.int64(1), np.float64(1.0), "dtype"),
    ],
)
def test_same_bits_says_where_two_arrays_differ(a: Any, b: Any, reason: str) -> None:
    verdict = same_bits(a, b)
    assert (bool(verdict), verdict.reason) == (not reason, reason)


def test_equal_nan_bits_agree_where_declared() -> None:
    assert same_bits(np.array([1.0, NAN]), np.array([1.0, NAN]), nan=True)


def test_other_nan_bits_differ_where_nan_is_declared() -> None:
    other = np.array([0x7FF8000000000001]).view(np.float64)
    assert not same_bits(np.array([NAN]), other, nan=True)


@pytest.mark.parametrize("agree", [same_bits, lambda a, b, **k: within_ulps(a, b, 0, **k)])
def test_empty_arrays_agree_where_declared(agree: Any) -> None:
    assert agree(EMPTY, EMPTY, empty=True)
    assert not agree(EMPTY, np.zeros((0, 2)), empty=True)


def test_bits_of_integers_are_compared() -> None:
    assert same_bits(np.arange(3), np.arange(3))
    assert same_bits(np.arange(3), np.array([0, 1, 3])).at == (2,)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_first_difference_is_named_in_row_major_order(order: Any) -> None:
    a = np.arange(6.0).reshape(2, 3)
    b = np.array(a, order=order)
    b[0, 2], b[1, 0] = -2.0, -3.0
    verdict = same_bits(a, b)
    assert (verdict.at, verdict.seen, verdict.wanted) == ((0, 2), 2.0, -2.0)


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        (1.0, 1.0, 0),
        (0.0, -0.0, 0),
        (1.0, ONE_UP, 1),
        (1.0, math.nextafter(1.0, 0.0), 1),
        (-5e-324, 5e-324, 2),
        (1.0, 2.0, 2**52),
        (1.7976931348623157e308, INF, 1),
    ],
)
def test_ulps_count_the_steps_between_doubles(a: Any, b: Any, apart: int) -> None:
    assert ulps_apart(a, b) == ulps_apart(b, a) == ulps_apart(-a, -b) == apart


@pytest.mark.parametrize("pair", [(NAN, 1.0), (1.0, NAN), (NAN, NAN)])
def test_nan_has_no_distance(pair: Any) -> None:
    with pytest.raises(ValueError, match="NaN"):
        ulps_apart(*pair)


@pytest.mark.parametrize(
    ("a", "b", "n", "reason"),
    [
        (1.0, ONE_UP, 1, ""),
        (1.0, ONE_UP, 0, "more than 0 ulp apart"),
        (ONE_UP, 1.0, 0, "more than 0 ulp apart"),
        (0.0, -0.0, 0, ""),
        (NAN, NAN, 9, "more than 9 ulp apart"),
        (1.7976931348623157e308, INF, 9, "more than 9 ulp apart"),
        (INF, INF, 0, ""),
        (np.ones(3), 1.0, 9, "shape"),
        (EMPTY, EMPTY, 9, "empty"),
        (np.float32(1.0), np.float64(1.0), 9, "dtype"),
        (np.float32(1.0), np.float32(1.0), 9, "dtype"),
    ],
)
def test_ulps_see_every_seeded_difference(a: Any, b: Any, n: int, reason: str) -> None:
    verdict = within_ulps(a, b, n)
    assert (bool(verdict), verdict.reason) == (not reason, reason)


def test_declared_nan_is_near_nan_alone() -> None:
    assert within_ulps(NAN, NAN, 0, nan=True)
    assert not within_ulps(NAN, 1.0, 9, nan=True)


@pytest.mark.parametrize(
    ("value", "truth", "bound", "reason"),
    [
        (np.array([1.0]), exact(1), exact(0), ""),
        (np.array([1.0]), exact(mpmath.mpf(2) ** -60 + 1), exact(mpmath.mpf(2) ** -60), ""),
        (np.array([ONE_UP]), exact(1), exact(0), "bound"),
        (np.array([NAN]), exact(1), exact(INF), "bound"),
        (np.array([INF]), exact(1), exact(1), "bound"),
        (np.array([1.0]), exact(NAN), exact(1), "bound"),
        (np.array([1.0, 1.0]), exact(1), exact(1), "shape"),
        (np.array(1.0), exact(1), exact(1), "shape"),
        (np.array([1.0]), exact(1), exact(1, shape=()), "shape"),
        (np.array([1.0], dtype=np.float32), exact(1), exact(1), "dtype"),
        (np.array([1]), exact(1), exact(1), "dtype"),
        (np.zeros(0), exact(), exact(), "empty"),
    ],
)
def test_the_bound_sees_every_seeded_difference(
    value: Any, truth: Any, bound: Any, reason: str
) -> None:
    verdict = within_bound(value, truth, bound)
    assert (bool(verdict), verdict.reason) == (not reason, reason)


def test_the_truth_is_not_rounded_before_the_bound_is_applied() -> None:
    with mpmath.workdps(60):
        truth = exact(1 + mpmath.mpf(10) ** -50)
    assert not within_bound(np.array([1.0]), truth, exact(mpmath.mpf(10) ** -51))
    assert within_bound(np.array([1.0]), truth, exact(mpmath.mpf(10) ** -49))


def test_the_largest_share_of_a_bound_is_reported() -> None:
    verdict = within_bound(np.array([1.0, 2.0, 3.0]), exact(1, 2.25, 3.5), exact(1, 1, 1))
    assert verdict.ratio == 0.5
    assert within_bound(np.array([1.0, 2.0]), exact(1, 5), exact(1, 1)).at == (1,)


def test_declared_empty_values_are_within_their_bound() -> None:
    assert within_bound(np.zeros(0), exact(), exact(), empty=True)
