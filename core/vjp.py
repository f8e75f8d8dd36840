"""What an operation is: a function of arrays to a value and the reverse rule of that value."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from .arrays import MAX_RANK, SIZE_LIMIT, as_float64, as_integers, not_an_integer
from .errors import CapacityRefusal, Code, IndexRefusal, RecordRefusal, ShapeRefusal
from .floats import Array

__all__ = [
    "Contributions",
    "Operation",
    "Result",
    "Shape",
    "Vjp",
    "as_shape",
    "broadcast_shape",
    "check_axis",
    "check_element_count",
    "is_quiet",
    "named",
    "quiet_pass",
]

Shape: TypeAlias = tuple[int, ...]
Contributions: TypeAlias = tuple[Array, ...]


class _Thread(threading.local):
    """Whether this thread is inside `quiet_pass`."""

    quiet = False


_THREAD = _Thread()


class _Quiet:
    """Saves a generator for each pass, which would cost more than what it does."""

    __slots__ = ("_before", "_errors")

    def __enter__(self) -> None:
        self._before = _THREAD.quiet
        self._errors = np.errstate(all="ignore")
        self._errors.__enter__()
        _THREAD.quiet = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _THREAD.quiet = self._before
        self._errors.__exit__(kind, raised, trace)


def quiet_pass() -> AbstractContextManager[None]:
    """While open, no operation or reverse rule warns of an overflow, or pays for saying so."""
    return _Quiet()


def is_quiet() -> bool:
    """True inside `quiet_pass`."""
    return _THREAD.quiet


class Vjp:
    """A reverse rule with the evidence it saved: upstream -> one contribution per operand.

    `saved` is what the rule reads, per operand; the operation's own forward computed it all.
    """

    __slots__ = ("rule", "saved")

    def __init__(
        self, rule: Callable[[Array], Contributions], *saved: Mapping[str, object]
    ) -> None:
        self.rule = rule
        self.saved = saved

    def __call__(self, upstream: Array) -> Contributions:
        """The contribution to every operand, in operand order."""
        if _THREAD.quiet:
            parts = tuple(self.rule(upstream))
        else:
            with np.errstate(all="ignore"):
                parts = tuple(self.rule(upstream))
        for part in parts:
            if type(part) is not np.ndarray:
                return tuple([np.asarray(part) for part in parts])
        return parts


Result: TypeAlias = tuple[Array, Vjp]
Operation: TypeAlias = Callable[..., Result]


def named(op_name: str, *, rounds: bool = True) -> Callable[[Operation], Operation]:
    """Give an operation the name that traces and refusals show.

    rounds: False where values are only moved, so that nothing can overflow
    """

    what = f"{op_name} operand"

    def name(operation: Operation) -> Operation:
        @wraps(operation)
        def quiet(*operands: Array, **arguments: Any) -> Result:
            for x in operands:
                if type(x) is not np.ndarray or x.dtype != np.float64:
                    operands = tuple([as_float64(x, what=what) for x in operands])
                    break
            if not rounds or _THREAD.quiet:
                value, vjp = operation(*operands, **arguments)
            else:
                with np.errstate(all="ignore"):  # overflow is the finite rule's business
                    value, vjp = operation(*operands, **arguments)
            return np.asarray(value), vjp

        quiet.op_name = op_name  # type: ignore[attr-defined]
        return quiet

    return name


def broadcast_shape(left: Shape, right: Shape, *, what: str) -> Shape:
    """The common shape under trailing alignment.

    Refuses: shape/incompatible-broadcast (leftmost axis of the output first),
        capacity/size-overflow
    """
    if left == right:
        check_element_count(left, what=what)
        return left
    rank = max(len(left), len(right))
    lefts = (1,) * (rank - len(left)) + left
    rights = (1,) * (rank - len(right)) + right
    for axis, (a, b) in enumerate(zip(lefts, rights, strict=True)):
        if a != b and 1 not in (a, b):
            raise ShapeRefusal(
                code=Code.INCOMPATIBLE_BROADCAST,
                what=what,
                expected=a,
                actual=b,
                details={"axis": axis},
            )
    shape = tuple(b if a == 1 else a for a, b in zip(lefts, rights, strict=True))
    check_element_count(shape, what=what)
    return shape


def check_element_count(shape: Sequence[int], *, what: str) -> int:
    """The product of the sizes.

    Sizes of 0 hide no overflow of the others.

    Refuses: capacity/size-overflow above 2**64 - 1
    """
    count = 1
    for size in shape:
        count *= size or 1
    if count > SIZE_LIMIT:
        raise CapacityRefusal(code=Code.SIZE_OVERFLOW, what=what, required=count, limit=SIZE_LIMIT)
    return 0 if 0 in shape else count


def as_shape(shape: object, *, what: str) -> Shape:
    """A shape given by a caller, every size a non-negative integer.

    Refuses: shape/ragged-ids, index/not-an-integer, record/field-range
    """
    if type(shape) is tuple and len(shape) <= MAX_RANK:
        for size in shape:
            if type(size) is not int or not 0 <= size < 2**63:
                break
        else:
            return shape
    sizes = as_integers(shape, what=f"{what} shape")
    if sizes.ndim != 1 or (sizes < 0).any() or sizes.size > MAX_RANK:
        raise RecordRefusal(
            code=Code.FIELD_RANGE,
            what=f"{what} shape",
            expected=f"{MAX_RANK} sizes or less, each 0 or more",
            actual=shape,
        )
    return tuple(int(size) for size in sizes)


def check_axis(axis: object, *, rank: int, what: str) -> int:
    """An axis in 0 .. rank - 1; negative axes are not counted from the end.

    Refuses: shape/ragged-ids, index/not-an-integer, index/axis-out-of-bounds
    """
    if type(axis) is int and 0 <= axis < rank:
        return axis
    given = as_integers(axis, what=f"{what} axis", bound=rank)
    if given.ndim:
        raise not_an_integer(axis, 0, f"{what} axis", rank)
    index = int(given[()])
    if not 0 <= index < rank:
        raise IndexRefusal(code=Code.AXIS_OUT_OF_BOUNDS, what=what, index=index, bound=rank)
    return index
