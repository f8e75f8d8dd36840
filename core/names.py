"""Parameter names: dotted paths of non-empty segments over a-z, 0-9 and the underscore."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import Code, RecordRefusal

__all__ = ["check_distinct", "check_name"]

ALLOWED = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_")


def check_name(name: object) -> None:
    """Refuses: record/field-type, record/empty-name, then by byte record/empty-name-segment
    (at the dot, or at the end) and record/invalid-name-character

    Source: numerics_init.md section 3
    """
    if not isinstance(name, str):
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what="parameter name",
            expected="text",
            actual=type(name).__name__,
        )
    if not name:
        raise RecordRefusal(code=Code.EMPTY_NAME, what="name", expected="a name", actual="")
    data = name.encode("utf-8", "surrogatepass")
    segment = 0
    for index, byte in enumerate(data):
        if byte == ord("."):
            if index == segment:
                raise _empty_segment(name, index)
            segment = index + 1
        elif byte not in ALLOWED:
            raise RecordRefusal(
                code=Code.INVALID_NAME_CHARACTER,
                what="name",
                expected="a-z, 0-9, _ and .",
                actual=name,
                details={"index": index, "byte": f"0x{byte:02x}"},
            )
    if segment == len(data):
        raise _empty_segment(name, len(data))


def _empty_segment(name: str, index: int) -> RecordRefusal:
    return RecordRefusal(
        code=Code.EMPTY_NAME_SEGMENT,
        what="name",
        expected="non-empty segments",
        actual=name,
        details={"index": index},
    )


def check_distinct(names: Iterable[str]) -> None:
    """Refuses: record/duplicate-parameter-name (first repetition, with its first index)"""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            raise RecordRefusal(
                code=Code.DUPLICATE_PARAMETER_NAME,
                what="parameters",
                expected="distinct names",
                actual=name,
                details={"index": index, "first": first[name]},
            )
        first[name] = index
