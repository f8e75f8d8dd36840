"""What callers may pass: real values become float64, ids become int64, nothing is repaired."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import Code, IndexRefusal, NumericRefusal, RecordRefusal, ShapeRefusal
from .floats import Array, Ids, is_finite

__all__ = [
    "as_booleans",
    "as_float64",
    "as_integers",
    "as_real",
    "as_values",
    "check_bounds",
    "check_reservable",
    "first_non_finite",
    "not_an_integer",
    "sealed",
    "shown",
]

SIZE_LIMIT = 2**64 - 1  # the reference's sizes are unsigned 64-bit integers
RESERVABLE = 2**58  # more 8-byte elements than any address space holds
MAX_RANK = 32  # numpy's own limit is 64, and operations add axes


def sealed(array: Any) -> Any:
    """The array as a view that nobody can write, or make writable, from now on."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    owner.setflags(write=False)
    array.setflags(write=False)
    return array.view()


def check_reservable(*sizes: int) -> None:
    """MemoryError where numpy would call the sizes invalid: memory is no fact about the input."""
    count = 1
    for size in sizes:
        count *= size or 1  # numpy bounds the other sizes of an empty array too
    if count > RESERVABLE:
        raise MemoryError(f"no memory for an array of sizes {list(sizes)}")


def first_non_finite(values: Array) -> tuple[int, float] | None:
    """Flat index and value of the first NaN or infinity, or None."""
    if is_finite(values):
        return None
    at = int(np.argmin(np.isfinite(values.reshape(-1))))
    return at, float(values.reshape(-1)[at])


def as_float64(given: object, *, what: str) -> Array:
    """The array itself where it is one of float64, else `as_values` of it. Refuses: as that"""
    if type(given) is np.ndarray and given.dtype == np.float64:
        return given
    return as_values(given, what=what)


def as_values(given: object, *, what: str) -> Array:
    """A new C-ordered float64 array of the same numbers.

    Taken: float64, float32 and float16 arrays, integer arrays and (nested lists of) Python
    numbers whose values float64 holds exactly.
    Refuses: shape/ragged-ids, numeric/not-real (complex, longdouble, object, text, bool, masked
        arrays, inexact integers)
    """
    if isinstance(given, np.ndarray):
        _check_array(given, what)
        if isinstance(given, np.ma.MaskedArray):
            raise NumericRefusal(code=Code.NOT_REAL, what=what, value="a masked array")
        taken = given.dtype.kind in "iu" or given.dtype.char in "edf"
        if not taken:
            raise NumericRefusal(code=Code.NOT_REAL, what=what, value=f"{given.dtype} array")
        with np.errstate(all="ignore"):  # a signalling NaN is told by the finite rule
            values = np.array(given, dtype=np.float64, order="C", subok=False)
        if given.dtype.kind in "iu" and not _holds(values, given):
            raise NumericRefusal(code=Code.NOT_REAL, what=what, value="integers beyond 2**53")
        return values
    if type(given) is float:
        return np.array(given)
    flat, shape = _flatten(given, what)
    numbers = [_as_float(item, at, what) for at, item in enumerate(flat)]
    return np.array(numbers, dtype=np.float64).reshape(shape)


def _holds(values: Array, given: np.ndarray[Any, Any]) -> bool:
    """True where every integer survived its conversion."""
    flat = zip(values.reshape(-1).tolist(), given.reshape(-1).tolist(), strict=True)
    return all(int(value) == integer for value, integer in flat)


def _as_float(item: object, at: int, what: str) -> float:
    number = as_real(item)
    if number is None:
        raise NumericRefusal(code=Code.NOT_REAL, what=what, at=at, value=shown(item))
    return number


def as_real(item: object) -> float | None:
    """A Python or numpy number as the float64 of exactly its value, or None.

    None: bool, longdouble, complex, text, and integers that no float64 equals.
    """
    real = isinstance(item, int | float | np.integer | np.floating)
    if not real or isinstance(item, bool | np.timedelta64 | np.longdouble):
        return None
    try:
        number = float(item)  # type: ignore[arg-type]
    except OverflowError:
        return None
    inexact = isinstance(item, int | np.integer) and int(number) != int(item)
    return None if inexact else number


def as_integers(given: object, *, what: str, bound: int = SIZE_LIMIT + 1) -> np.ndarray[Any, Any]:
    """The integers in a new C-ordered array: int64, or object where one does not fit.

    Taken: integer arrays of any width and order, Python integers, nested lists of them.
    Refuses: shape/ragged-ids, index/not-an-integer (bool, float, text, None, object and masked
        arrays)
    """
    if isinstance(given, np.ndarray):
        _check_array(given, what)
        if isinstance(given, np.ma.MaskedArray):
            raise not_an_integer("a masked array", 0, what, bound)
        if given.dtype.kind not in "iu":  # not timedelta64, which numpy counts as integers
            first = given.reshape(-1)[0] if given.size else f"an empty {given.dtype} array"
            raise not_an_integer(first, 0, what, bound)
        if given.dtype.kind == "u" and given.size and int(given.max()) >= 2**63:
            return np.array(given, dtype=object, order="C", subok=False)
        return np.array(given, dtype=np.int64, order="C", subok=False)
    flat, shape = _flatten(given, what)
    for at, item in enumerate(flat):
        if not isinstance(item, int | np.integer) or isinstance(item, bool | np.timedelta64):
            raise not_an_integer(item, at, what, bound)
    integers = [int(item) for item in flat]  # type: ignore[call-overload]
    fits = all(-(2**63) <= integer < 2**63 for integer in integers)
    return np.array(integers, dtype=np.int64 if fits else object).reshape(shape)


def as_booleans(given: object, *, what: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Booleans in a new C-ordered array.

    Taken: boolean arrays, (nested lists of) bools.
    Refuses: shape/ragged-ids, record/valid-not-boolean
    """
    if isinstance(given, np.ndarray):
        _check_array(given, what)
        if given.dtype != np.bool_ or isinstance(given, np.ma.MaskedArray):
            raise _not_boolean(f"{type(given).__name__} of {given.dtype}", what)
        return np.array(given, dtype=np.bool_, order="C", subok=False)
    flat, shape = _flatten(given, what)
    for item in flat:
        if not isinstance(item, bool | np.bool_):
            raise _not_boolean(repr(shown(item)), what)
    return np.array(flat, dtype=np.bool_).reshape(shape)


def _not_boolean(found: str, what: str) -> RecordRefusal:
    return RecordRefusal(code=Code.VALID_NOT_BOOLEAN, what=what, expected="booleans", actual=found)


def not_an_integer(item: object, at: int, what: str, bound: int) -> IndexRefusal:
    """The refusal of what is no integer, though it may equal one."""
    return IndexRefusal(code=Code.NOT_AN_INTEGER, what=what, at=at, index=shown(item), bound=bound)


def shown(item: object) -> object:
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


def _flatten(given: object, what: str) -> tuple[list[object], tuple[int, ...]]:
    """The leaves of nested lists in row-major order, and their shape.

    Refuses: shape/ragged-ids (items of unequal shapes, nesting no array has)
    """
    shape = _nested_shape(given, what, depth=0, known={})
    level: list[Any] = [given]
    for _ in shape:
        level = [leaf for item in level for leaf in item]
    return [leaf[()] if _is_scalar(leaf) else leaf for leaf in level], shape


def _is_scalar(leaf: object) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.ndim == 0


def _nested_shape(
    item: object, what: str, *, depth: int, known: dict[int, tuple[int, ...] | None]
) -> tuple[int, ...]:
    """The shape of one nested item; each list is looked at once, however often it occurs."""
    if isinstance(item, np.ndarray):  # one of objects is no nest: its caller refuses it whole
        plain = item.dtype != object and not isinstance(item, np.ma.MaskedArray)
        return item.shape if plain else ()
    if not isinstance(item, list | tuple):
        return ()
    if id(item) in known:
        shape = known[id(item)]
        if shape is None:
            raise _ragged(what, "lists", "a list that contains itself")
        return shape
    if depth == MAX_RANK:
        raise _ragged(what, f"{MAX_RANK} levels or less", "deeper nesting")
    known[id(item)] = None
    shapes = [_nested_shape(part, what, depth=depth + 1, known=known) for part in item]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise _ragged(what, _described(shapes[0]), f"{_described(shape)} as item {index}")
    shape = known[id(item)] = (len(item), *(shapes[0] if shapes else ()))
    if len(shape) > MAX_RANK:
        raise _ragged(what, f"{MAX_RANK} levels or less", "deeper nesting")
    return shape


def _described(shape: tuple[int, ...]) -> str:
    return f"shape {list(shape)}" if shape else "a scalar"


def _check_array(given: np.ndarray[Any, Any], what: str) -> None:
    """Refuses: shape/ragged-ids (more axes than operations can add to)"""
    if given.ndim > MAX_RANK:
        raise _ragged(what, f"rank {MAX_RANK} or less", f"rank {given.ndim}")


def _ragged(what: str, expected: str, actual: str) -> ShapeRefusal:
    return ShapeRefusal(code=Code.RAGGED_IDS, what=what, expected=expected, actual=actual)
