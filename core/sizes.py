"""Sizes: checked unsigned integers, and the quantity that is not known."""

from collections.abc import Iterable
from enum import Enum
from typing import Final, Literal

from .codes import Code
from .errors import CapacityRefusal, RecordRefusal, ShapeRefusal

LARGEST: Final = 2**64 - 1  # a size that is kept
LARGEST_PRODUCT: Final = 2**128 - 1  # a size on the way to one


class Unknown(Enum):
    """The one quantity that cannot be computed here; never zero, never a remainder."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
Quantity = int | Literal[Unknown.UNKNOWN]


def check(size: object, *, what: str, least: int = 0) -> None:
    """Refuses what is no size: another type than int itself, or an integer below `least`.

    Refuses: record/field-range
    """
    if type(size) is not int or size < least:
        shown = size if type(size) is int else f"a {type(size).__name__}"
        raise RecordRefusal(
            code=Code.FIELD_RANGE, what=what, expected=f"an integer from {least}", actual=shown
        )


def product(factors: Iterable[int], *, what: str, label: str) -> int:
    """The product of non-negative integers.

    what:    where the product belongs
    label:   the name of the product, told when it is too large
    Refuses: capacity/plan-overflow (above 2^128 - 1 at any step)
    """
    result = 1
    for factor in factors:
        result = _checked(result * factor, LARGEST_PRODUCT, what, label)
    return result


def total(terms: Iterable[int], *, what: str, label: str) -> int:
    """The sum of non-negative integers.

    Refuses: capacity/plan-overflow (above 2^128 - 1 at any step)
    """
    result = 0
    for term in terms:
        result = _checked(result + term, LARGEST_PRODUCT, what, label)
    return result


def kept(size: int, *, what: str, label: str) -> int:
    """The size itself, once it fits 64 bits.

    Refuses: capacity/plan-overflow
    """
    return _checked(size, LARGEST, what, label)


def payload(factors: Iterable[int], *, what: str, label: str) -> int:
    """A product that is kept."""
    return kept(product(factors, what=what, label=label), what=what, label=label)


def payload_sum(*terms: int, what: str, label: str = "live bytes") -> int:
    """A sum of bytes that is kept."""
    return kept(total(terms, what=what, label=label), what=what, label=label)


def ceiling_quotient(size: int, divisor: int) -> int:
    """The least integer not below size / divisor, for a positive divisor."""
    return -(-size // divisor)


def round_up(size: int, alignment: int) -> int:
    """The least multiple of a positive alignment that is not below size."""
    return ceiling_quotient(size, alignment) * alignment


def exact_quotient(size: int, divisor: int, *, what: str) -> int:
    """size / divisor, which must be an integer.

    Refuses: shape/inexact-division
    """
    if size % divisor:
        raise ShapeRefusal(code=Code.INEXACT_DIVISION, what=what, expected=divisor, actual=size)
    return size // divisor


def add(*terms: Quantity) -> Quantity:
    """The sum, unknown as soon as one term is."""
    result = 0
    for term in terms:
        if isinstance(term, Unknown):
            return UNKNOWN
        result += term
    return result


def known(*terms: Quantity) -> int:
    """The sum of the terms that are known."""
    result = 0
    for term in terms:
        result += 0 if isinstance(term, Unknown) else term
    return result


def _checked(size: int, limit: int, what: str, label: str) -> int:
    if size > limit:
        raise CapacityRefusal(
            code=Code.PLAN_OVERFLOW,
            what=what,
            required=size,
            limit=limit,
            details={"reason": label},
        )
    return size
