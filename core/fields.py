"""Typed fields of records: keys, types and ranges, checked in the order of their tables."""

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from . import sizes
from .canonical import described, dotted
from .codes import Code
from .errors import RecordRefusal

MAX_TEXT_BYTES: Final = 65_536
_BITS = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a record.

    kind:    integer, text, object, or bits (a float64 as 16 hex digits)
    least:   of an integer
    above:   the bound of a float, and whether the bound itself is out
    choices: the values allowed, if not all; code says what another value is
    members: the fields of an object
    """

    name: str
    kind: Literal["integer", "text", "bits", "object"]
    least: int = 1
    positive: bool = False
    choices: tuple[str | int, ...] = ()
    code: Code = Code.UNKNOWN_POLICY
    members: tuple["Field", ...] = ()


def check_keys(value: object, fields: Sequence[Field], *, path: tuple[str, ...]) -> None:
    """Refuses the first unknown key, textual order, inner objects last, then a missing one.

    Refuses: record/field-type (no object), record/unknown-key, record/missing-key
    """
    if not isinstance(value, Mapping):
        raise _type_fault(path, "an object", value)
    for inner, members, where in _objects(value, fields, path):
        names = [field.name for field in members]
        for key in inner:
            if type(key) is not str or key not in names:
                raise RecordRefusal(
                    code=Code.UNKNOWN_KEY,
                    what=dotted((*where, str(key))),
                    expected=", ".join(names),
                    actual=str(key)[:MAX_TEXT_BYTES],
                )
    for inner, members, where in _objects(value, fields, path):
        for field in members:
            if field.name not in inner:
                raise RecordRefusal(
                    code=Code.MISSING_KEY, what=dotted((*where, field.name)), expected=_kind(field)
                )


def check_types(
    values: Mapping[str, object], fields: Sequence[Field], *, path: tuple[str, ...]
) -> None:
    """Refuses the first value of another type.

    Refuses: record/field-type
    """
    for field in fields:
        value = values[field.name]
        where = (*path, field.name)
        if not _has_kind(value, field):
            raise _type_fault(where, _kind(field), value)
        if isinstance(value, Mapping):
            check_types(value, field.members, path=where)


def check_ranges(
    values: Mapping[str, object], fields: Sequence[Field], *, path: tuple[str, ...]
) -> None:
    """Refuses the first value outside its range.

    Refuses: record/field-range, or the field's own code for a value that is no choice
    """
    for field in fields:
        value = values[field.name]
        where = (*path, field.name)
        if isinstance(value, Mapping):
            check_ranges(value, field.members, path=where)
        elif field.choices:
            check_choice(value, field.choices, code=field.code, what=dotted(where))
        elif isinstance(value, int):
            if not field.least <= value <= sizes.LARGEST:
                raise _range_fault(where, f"in {field.least} .. {sizes.LARGEST}", value)
        elif field.kind == "bits":
            check_float(str(value), positive=field.positive, path=where)
        else:
            check_text(str(value), path=where)


def check_instance(value: object, kind: type, *, what: str) -> None:
    """Refuses a value of another class.

    Refuses: record/field-type
    """
    if not isinstance(value, kind):
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what=what,
            expected=f"a {kind.__name__}",
            actual=f"a {type(value).__name__}",
        )


def check_choice(value: object, choices: Sequence[str | int], *, code: Code, what: str) -> None:
    """Refuses a value that is none of the choices, by the code given.

    The types are compared first: a foreign `==` is never asked.
    """
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        allowed = ", ".join(map(str, choices))
        raise RecordRefusal(
            code=code,
            what=what,
            expected=f"one of {allowed}" if len(choices) > 1 else allowed,
            actual=described(value),
        )


def check_float(bits: str, *, positive: bool, path: tuple[str, ...]) -> None:
    """Refuses bits of a float64 that is not finite, negative, or zero where it must be positive."""
    value = float_of(bits)
    if not math.isfinite(value) or value < 0 or (positive and value == 0):
        expected = "the bits of a finite float " + ("above 0" if positive else "not below 0")
        raise _range_fault(path, expected, bits)


def check_text(text: str, *, path: tuple[str, ...]) -> None:
    """Refuses empty text, text beyond the bound, and text that no UTF-8 can hold."""
    for character in text[: MAX_TEXT_BYTES + 1]:
        if "\ud800" <= character <= "\udfff":
            raise RecordRefusal(
                code=Code.LONE_SURROGATE, what=dotted(path), actual=f"U+{ord(character):04X}"
            )
    if not 1 <= len(text) <= MAX_TEXT_BYTES or len(text.encode()) > MAX_TEXT_BYTES:
        raise _range_fault(path, f"text of 1 .. {MAX_TEXT_BYTES} bytes", described(text))


def float_of(bits: str) -> float:
    """The float64 of 16 hex digits."""
    value: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return value


def bits_of(value: float) -> str:
    """The 16 hex digits of a float64."""
    return struct.pack(">d", value).hex()


def _objects(
    value: Mapping[str, object], fields: Sequence[Field], path: tuple[str, ...]
) -> list[tuple[Mapping[str, object], Sequence[Field], tuple[str, ...]]]:
    """The object and, as far as they are objects, those it holds."""
    inner = [
        (held, field.members, (*path, field.name))
        for field in fields
        if field.members and isinstance(held := value.get(field.name), Mapping)
    ]
    return [(value, fields, path), *inner]


def _has_kind(value: object, field: Field) -> bool:
    """Whether the value has the field's type itself: a subclass may write other bytes."""
    match field.kind:
        case "integer":
            return type(value) is int
        case "text":
            return type(value) is str
        case "bits":
            return type(value) is str and _BITS.fullmatch(value) is not None
        case _:
            return isinstance(value, Mapping)


def _kind(field: Field) -> str:
    return {
        "integer": "an unsigned integer",
        "text": "text",
        "bits": "16 lowercase hex digits as text",
        "object": "an object",
    }[field.kind]


def _type_fault(path: tuple[str, ...], expected: str, value: object) -> RecordRefusal:
    return RecordRefusal(
        code=Code.FIELD_TYPE, what=dotted(path), expected=expected, actual=described(value)
    )


def _range_fault(path: tuple[str, ...], expected: str, actual: object) -> RecordRefusal:
    return RecordRefusal(code=Code.FIELD_RANGE, what=dotted(path), expected=expected, actual=actual)
