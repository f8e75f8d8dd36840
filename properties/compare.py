"""Whether two results agree: bit for bit, within ulps, or within a bound of the truth."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import mpmath
import numpy as np
from mpmath import mp
from numpy.typing import ArrayLike

__all__ = ["Exact", "Verdict", "same_bits", "ulps_apart", "within_bound", "within_ulps"]

AnyArray: TypeAlias = np.ndarray[Any, Any]
DIGITS = 120  # of a difference from the truth, which is taken before anything is rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """True where two results agree; otherwise the reason and the first place that differs."""

    holds: bool
    reason: str = ""
    at: tuple[int, ...] | None = None
    seen: object = None
    wanted: object = None
    ratio: float = 0.0  # the largest error as a share of its bound, where there is one

    def __bool__(self) -> bool:
        return self.holds


class Exact(Protocol):
    """Unrounded numbers in row-major order."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""

    @property
    def cells(self) -> Sequence[Any]:
        """The numbers."""


def same_bits(a: ArrayLike, b: ArrayLike, *, nan: bool = False, empty: bool = False) -> Verdict:
    """Equal dtype, shape and bits, so that -0.0 is not 0.0.

    nan:   declares that equal NaN bits agree; otherwise every NaN is a failure
    empty: declares that nothing is to be compared; otherwise two empty arrays are a failure
    """
    left, right = np.asarray(a), np.asarray(b)
    form = _form(left, right, empty=empty)
    if form is not None:
        return form
    words = f"V{left.dtype.itemsize}"
    differs = _flat(left).view(words) != _flat(right).view(words)
    if not nan and left.dtype.kind == "f":
        differs = differs | np.isnan(_flat(left)) | np.isnan(_flat(right))
    return _first(differs, left, right, "bits")


def within_ulps(
    a: ArrayLike, b: ArrayLike, n: int, *, nan: bool = False, empty: bool = False
) -> Verdict:
    """Equal shapes of float64, every pair at most n doubles apart, an infinity equal to itself.

    n = 0 takes -0.0 for 0.0; `same_bits` does not.
    """
    left, right = np.asarray(a), np.asarray(b)
    for form in (_form(left, right, empty=empty), _float64(left)):
        if form is not None:
            return form
    pairs = zip(left.reshape(-1).tolist(), right.reshape(-1).tolist(), strict=True)
    differs = np.array([not _is_near(x, y, n, nan=nan) for x, y in pairs], dtype=np.bool_)
    return _first(differs, left, right, f"more than {n} ulp apart")


def within_bound(value: ArrayLike, truth: Exact, bound: Exact, *, empty: bool = False) -> Verdict:
    """|value - truth| <= bound in every cell, the truth unrounded, the value finite float64.

    The truth is the named reference: exchanging the arguments is another question.
    """
    seen = np.asarray(value)
    form = _float64(seen)
    if form is not None:
        return form
    if not seen.shape == truth.shape == bound.shape:
        shapes = (truth.shape, bound.shape)
        return Verdict(holds=False, reason="shape", seen=seen.shape, wanted=shapes)
    if seen.size == 0 and not empty:
        return Verdict(holds=False, reason="empty")
    worst = 0.0
    for flat, x in enumerate(seen.reshape(-1).tolist()):
        within, ratio = _share(x, truth.cells[flat], bound.cells[flat])
        if not within:
            at, true = _place(flat, seen), truth.cells[flat]
            return Verdict(holds=False, reason="bound", at=at, seen=x, wanted=true, ratio=ratio)
        worst = max(worst, ratio)
    return Verdict(holds=True, ratio=worst)


def ulps_apart(a: float, b: float) -> int:
    """How many steps from double to double lie between the two; -0.0 and 0.0 are one place.

    Refuses: NaN, which has no place
    """
    if a != a or b != b:
        raise ValueError("NaN has no place among the doubles")
    return abs(_ordinal(a) - _ordinal(b))


def _ordinal(x: float) -> int:
    magnitude = int(struct.unpack("<q", struct.pack("<d", abs(x)))[0])
    return -magnitude if x < 0 else magnitude


def _share(x: float, true: Any, limit: Any) -> tuple[bool, float]:
    """Whether an error is within its limit, and their ratio."""
    with mp.workdps(DIGITS):
        error = abs(mpmath.mpf(x) - true)
        ratio = float(error / limit) if limit else float("inf")
        return bool(error <= limit), ratio if error else 0.0  # a NaN is within nothing


def _is_near(x: float, y: float, n: int, *, nan: bool) -> bool:
    if x != x or y != y:
        return nan and x != x and y != y
    if np.inf in (abs(x), abs(y)):
        return x == y
    return ulps_apart(x, y) <= n


def _float64(array: AnyArray) -> Verdict | None:
    if array.dtype == np.float64:
        return None
    return Verdict(holds=False, reason="dtype", seen=array.dtype, wanted=np.dtype(np.float64))


def _form(left: AnyArray, right: AnyArray, *, empty: bool) -> Verdict | None:
    if left.dtype != right.dtype:
        return Verdict(holds=False, reason="dtype", seen=left.dtype, wanted=right.dtype)
    if left.shape != right.shape:
        return Verdict(holds=False, reason="shape", seen=left.shape, wanted=right.shape)
    if left.size == 0 and not empty:
        return Verdict(holds=False, reason="empty")
    return None


def _first(differs: AnyArray, left: AnyArray, right: AnyArray, reason: str) -> Verdict:
    if not differs.any():
        return Verdict(holds=True)
    flat = int(differs.argmax())
    seen, wanted = _flat(left)[flat], _flat(right)[flat]
    at = _place(flat, left)
    return Verdict(holds=False, reason=reason, at=at, seen=seen, wanted=wanted)


def _place(flat: int, array: AnyArray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, array.shape))


def _flat(array: AnyArray) -> AnyArray:
    return np.ascontiguousarray(array).reshape(-1)
