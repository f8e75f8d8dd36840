"""What callers may pass: real values become float64, ids become int64, nothing is repaired."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import Code, IndexRefusal, NumericRefusal, ShapeRefusal
from .floats import Array, Ids, is_finite

__all__ = ["as_ids", "as_integers", "as_values", "check_bounds", "first_non_finite", "sealed"]

SIZE_LIMIT = 2**64 - 1  # the reference's sizes are unsigned 64-bit integers
MAX_NESTING = 32


def sealed(array: Any) -> Any:
    """The array, which nobody may write from now on."""
    array.flags.writeable = False
    return array


def first_non_finite(values: Array) -> tuple[int, float] | None:
    """Flat index and value of the first NaN or infinity, or None."""
    if is_finite(values):
        return None
    at = int(np.argmin(np.isfinite(values.reshape(-1))))
    return at, float(values.reshape(-1)[at])


def as_values(given: object, *, what: str) -> Array:
    """A new C-ordered float64 array of the same numbers.

    Taken: float64, float32 and float16 arrays, integer arrays and (nested lists of) Python
    numbers whose values float64 holds exactly.
    Refuses: numeric/not-real (complex, longdouble, object, text, bool, inexact integers),
        shape/ragged-ids
    """
    if isinstance(given, np.ndarray):
        taken = given.dtype.kind in "iu" or given.dtype.char in "edf"
        if not taken:
            raise NumericRefusal(code=Code.NOT_REAL, what=what, value=f"{given.dtype} array")
        values = np.array(given, dtype=np.float64, order="C", subok=False)
        if given.dtype.kind in "iu" and not _holds(values, given):
            raise NumericRefusal(code=Code.NOT_REAL, what=what, value="integers beyond 2**53")
        return values
    flat, shape = _flatten(given, what)
    numbers = [_as_float(item, at, what) for at, item in enumerate(flat)]
    return np.array(numbers, dtype=np.float64).reshape(shape)


def _holds(values: Array, given: np.ndarray[Any, Any]) -> bool:
    """True where every integer survived its conversion."""
    flat = zip(values.reshape(-1).tolist(), given.reshape(-1).tolist(), strict=True)
    return all(int(value) == integer for value, integer in flat)


def _as_float(item: object, at: int, what: str) -> float:
    real = isinstance(item, int | float | np.integer | np.floating)
    if not real or isinstance(item, bool | np.timedelta64 | np.longdouble):
        raise NumericRefusal(code=Code.NOT_REAL, what=what, at=at, value=repr(item))
    try:
        number = float(item)  # type: ignore[arg-type]
    except OverflowError:
        number = float("nan")
    if isinstance(item, int | np.integer) and number != int(item):
        raise NumericRefusal(code=Code.NOT_REAL, what=what, at=at, value=item)
    return number


def as_integers(given: object, *, what: str, bound: int | None = None) -> np.ndarray[Any, Any]:
    """The integers in a new C-ordered array: int64, or object where one does not fit.

    Taken: integer arrays of any width and order, Python integers, nested lists of them.
    Refuses: index/not-an-integer (bool, float, text, None, object arrays), shape/ragged-ids
    """
    if isinstance(given, np.ndarray):
        if given.dtype.kind not in "iu":  # not timedelta64, which numpy counts as integers
            first = given.reshape(-1)[0] if given.size else f"an empty {given.dtype} array"
            raise _not_an_integer(first, 0, what, bound)
        if given.dtype.kind == "u" and given.size and int(given.max()) >= 2**63:
            return np.array(given, dtype=object, order="C", subok=False)
        return np.array(given, dtype=np.int64, order="C", subok=False)
    flat, shape = _flatten(given, what)
    for at, item in enumerate(flat):
        if not isinstance(item, int | np.integer) or isinstance(item, bool | np.timedelta64):
            raise _not_an_integer(item, at, what, bound)
    integers = [int(item) for item in flat]  # type: ignore[call-overload]
    fits = all(-(2**63) <= integer < 2**63 for integer in integers)
    return np.array(integers, dtype=np.int64 if fits else object).reshape(shape)


def _not_an_integer(item: object, at: int, what: str, bound: int | None) -> IndexRefusal:
    return IndexRefusal(code=Code.NOT_AN_INTEGER, what=what, at=at, index=_shown(item), bound=bound)


def _shown(item: object) -> object:
    """A Python value for a refusal: numpy scalars become plain, long texts become short."""
    plain = item.item() if isinstance(item, np.generic) else item
    return plain if isinstance(plain, bool | int | float | None) else repr(plain)[:80]


def check_bounds(integers: np.ndarray[Any, Any], *, bound: int, code: Code, what: str) -> Ids:
    """The integers as int64, every one in 0 .. bound - 1.

    Refuses: `code` at the first flat position outside
    """
    outside = (integers < 0) | (integers >= bound)
    if outside.any():
        at = int(np.argmax(outside.reshape(-1)))
        index = int(integers.reshape(-1)[at])
        raise IndexRefusal(code=code, what=what, at=at, index=index, bound=bound)
    return integers.astype(np.int64)


def as_ids(given: object, *, bound: int, code: Code, what: str) -> Ids:
    """Integers of any shape, every one in 0 .. bound - 1.

    Refuses: index/not-an-integer, shape/ragged-ids, then `code` at the first position outside
    """
    return check_bounds(
        as_integers(given, what=what, bound=bound), bound=bound, code=code, what=what
    )


def _flatten(given: object, what: str) -> tuple[list[object], tuple[int, ...]]:
    """The leaves of nested lists in row-major order, and their shape.

    Refuses: shape/ragged-ids (unequal lengths, or nesting no array has)
    """
    level: list[Any] = [given]
    shape: tuple[int, ...] = ()
    while any(isinstance(item, list | tuple | np.ndarray) for item in level):
        lengths = [_length(item) for item in level]
        first = lengths[0]
        other = next((length for length in lengths if length != first), None)
        if other is not None or not isinstance(first, int) or len(shape) == MAX_NESTING:
            raise ShapeRefusal(
                code=Code.RAGGED_IDS,
                what=what,
                expected=f"{first} items everywhere",
                actual="deeper nesting" if other is None else other,
            )
        shape = (*shape, first)
        level = [leaf for item in level for leaf in item]
    return level, shape


def _length(item: object) -> int | str:
    """The length of a list or array; a scalar beside lists has none."""
    if isinstance(item, list | tuple):
        return len(item)
    if isinstance(item, np.ndarray) and item.ndim:
        return len(item)
    return "a scalar"
