"""The few keywords of JSON Schema that the case format uses, each of them enforced."""

import re
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["faults"]

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: type(v) is int,
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}
PROSE = {"$schema", "$id", "title", "description", "$defs"}


def faults(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str) -> Iterator[str]:
    """Where a value is not as a schema says; a keyword that is not known here is an error."""
    for keyword, wanted in schema.items():
        if keyword in PROSE:
            continue
        yield from KEYWORDS[keyword](value, wanted, schema, root, path)


def _ref(value: Any, wanted: str, _: Any, root: dict[str, Any], path: str) -> Iterator[str]:
    yield from faults(value, root["$defs"][wanted.removeprefix("#/$defs/")], root, path)


def _type(value: Any, wanted: str, _: Any, __: Any, path: str) -> Iterator[str]:
    if not TYPES[wanted](value):
        yield f"{path}: {wanted} is wanted, not {value!r:.60}"


def _const(value: Any, wanted: Any, _: Any, __: Any, path: str) -> Iterator[str]:
    if value != wanted or type(value) is not type(wanted):
        yield f"{path}: {wanted!r} is wanted, not {value!r:.60}"


def _enum(value: Any, wanted: list[Any], _: Any, __: Any, path: str) -> Iterator[str]:
    if value not in wanted:
        yield f"{path}: one of {wanted} is wanted, not {value!r:.60}"


def _pattern(value: Any, wanted: str, _: Any, __: Any, path: str) -> Iterator[str]:
    if isinstance(value, str) and not re.search(wanted, value):
        yield f"{path}: {wanted} does not match {value!r:.60}"


def _minimum(value: Any, wanted: int, _: Any, __: Any, path: str) -> Iterator[str]:
    if type(value) is int and value < wanted:
        yield f"{path}: {value} is less than {wanted}"


def _min_size(value: Any, wanted: int, _: Any, __: Any, path: str) -> Iterator[str]:
    if isinstance(value, str | dict | list) and len(value) < wanted:
        yield f"{path}: {wanted} at least are wanted"


def _required(value: Any, wanted: list[str], _: Any, __: Any, path: str) -> Iterator[str]:
    missing = [name for name in wanted if isinstance(value, dict) and name not in value]
    yield from (f"{path}: {name} is missing" for name in missing)


def _properties(
    value: Any, wanted: dict[str, Any], _: Any, root: dict[str, Any], path: str
) -> Iterator[str]:
    for name, inner in wanted.items() if isinstance(value, dict) else ():
        if name in value:
            yield from faults(value[name], inner, root, f"{path}.{name}")


def _additional(
    value: Any, wanted: Any, schema: dict[str, Any], root: dict[str, Any], path: str
) -> Iterator[str]:
    known = schema.get("properties", {})
    for name in value if isinstance(value, dict) else ():
        if name in known:
            continue
        if wanted is False:
            yield f"{path}: {name} is unknown"
        else:
            yield from faults(value[name], wanted, root, f"{path}.{name}")


def _items(
    value: Any, wanted: dict[str, Any], _: Any, root: dict[str, Any], path: str
) -> Iterator[str]:
    for i, item in enumerate(value if isinstance(value, list) else []):
        yield from faults(item, wanted, root, f"{path}[{i}]")


def _one_of(
    value: Any, wanted: list[dict[str, Any]], _: Any, root: dict[str, Any], path: str
) -> Iterator[str]:
    found = [list(faults(value, choice, root, path)) for choice in wanted]
    fitting = sum(not each for each in found)
    if fitting != 1:
        nearest = min(found, key=len)
        yield f"{path}: {fitting} of the forms fit; {nearest[0] if nearest else 'say which'}"


KEYWORDS: dict[str, Callable[..., Iterator[str]]] = {
    "$ref": _ref,
    "type": _type,
    "const": _const,
    "enum": _enum,
    "pattern": _pattern,
    "minimum": _minimum,
    "minLength": _min_size,
    "minProperties": _min_size,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "oneOf": _one_of,
}
