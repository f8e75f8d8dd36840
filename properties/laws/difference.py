"""The first place at which two results are not the same doubles, in words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from logitproof.properties.compare import same_bits, ulps_apart

from .ulps import Counts, ulp_counts

__all__ = [
    "Difference",
    "Values",
    "digest",
    "doubles",
    "first_difference",
    "first_named_difference",
]

Values: TypeAlias = ArrayLike
FEW_ULPS = 10**6  # further apart, the plain difference says more


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs, where, and both values as a person reads them.

    ulps: how many entries of the array lie how far away (`ulps.EDGES`), where that was counted
    """

    what: str
    expected: str
    actual: str
    at: tuple[int, ...] = ()
    ulps: Counts = field(default=(), compare=False)

    def __str__(self) -> str:
        place = f"[{', '.join(str(i) for i in self.at)}]" if self.at else ""
        return f"{self.what}{place}: expected {self.expected}, got {self.actual}"


def doubles(values: Values) -> NDArray[np.float64]:
    """The values as an array; TypeError where they are of another type than binary64."""
    array = np.asarray(values)
    if array.dtype != np.float64:
        raise TypeError(f"binary64 is wanted, not {array.dtype}")
    return array


def digest(arrays: Iterable[Values]) -> str:
    """SHA-256 over the arrays' elements as little-endian binary64, row-major, end to end."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(doubles(array).astype("<f8").tobytes())
    return total.hexdigest()


def first_difference(what: str, expected: Values, actual: Values) -> Difference | None:
    """The first place, row-major, at which two arrays differ in a bit, or None."""
    left, right = doubles(expected), doubles(actual)
    verdict = same_bits(left, right, empty=True)
    if verdict:
        return None
    if left.shape != right.shape:
        return Difference(
            what=f"{what}, shape", expected=str(list(left.shape)), actual=str(list(right.shape))
        )
    at = verdict.at or ()
    wanted, got = float(left[at]), float(right[at])
    differing = sum(a.hex() != b.hex() for a, b in zip(left.flat, right.flat, strict=True))
    rest = f" ({differing} of {left.size} differ)" if left.size > 1 else ""
    return Difference(
        what=what,
        at=at,
        expected=_shown(wanted),
        actual=f"{_shown(got)}, {_distance(wanted, got)}{rest}",
        ulps=_counted(left, right),
    )


def first_named_difference(
    what: str, expected: Mapping[str, Values], actual: Mapping[str, Values]
) -> Difference | None:
    """`first_difference` over arrays by name, in the order expected."""
    if list(expected) != list(actual):
        return Difference(
            what=f"{what}, names", expected=", ".join(expected), actual=", ".join(actual)
        )
    differences = (
        first_difference(f"{what} of {name}", value, actual[name])
        for name, value in expected.items()
    )
    return next((d for d in differences if d is not None), None)


def _counted(left: NDArray[np.float64], right: NDArray[np.float64]) -> Counts:
    with np.errstate(all="ignore"):
        return ulp_counts(right - left, left)


def _shown(value: float) -> str:
    return f"{value!r} ({np.float64(value).view(np.uint64):016x})"


def _distance(wanted: float, got: float) -> str:
    if not np.isfinite([wanted, got]).all():
        return "not finite"
    ulps = ulps_apart(wanted, got)
    if ulps == 0:
        return "the other zero"
    return f"{ulps} ulp away" if ulps < FEW_ULPS else f"off by {got - wanted:.3g}"
