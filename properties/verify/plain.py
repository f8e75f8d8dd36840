"""Frozen dataclasses as JSON values and back: floats as hex bits, nothing guessed, nothing lost."""

from __future__ import annotations

import math
import struct
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeAlias, Union

__all__ = ["NotPlain", "from_plain", "to_plain"]

Json: TypeAlias = "dict[str, Any] | list[Any] | str | int | bool | None"

# Where the dataclasses lie that may be read back; no name outside them is ever looked up.
PACKAGES = ("logitproof.properties.laws", "logitproof.properties.scalar", "logitproof.golden")
TAG = "type"


class NotPlain(ValueError):
    """A value that has no plain form, or a plain form that is no value."""


def to_plain(value: Any, hint: Any = Any) -> Json:
    """The value as JSON; the dataclass around it says, field by field, of which type it is."""
    if is_dataclass(value) and not isinstance(value, type):
        name = _name(type(value))
        if known().get(name) is not type(value):
            raise NotPlain(f"{name} is no dataclass of the laws")
        hints = typing.get_type_hints(type(value))
        own = {f.name: to_plain(getattr(value, f.name), hints[f.name]) for f in fields(value)}
        return {TAG: name, **own}
    if hint is float and isinstance(value, int | float):
        return bits(float(value))
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"f64": bits(value)} if hint is Any else bits(value)
    if isinstance(value, Mapping):
        inner = _arguments(hint, 2)[1]
        return {str(key): to_plain(item, inner) for key, item in value.items()}
    if isinstance(value, list | tuple):
        hints_ = _items(hint, len(value))
        return [to_plain(item, h) for item, h in zip(value, hints_, strict=True)]
    raise NotPlain(f"a {type(value).__name__} has no plain form")


def from_plain(plain: Any, hint: Any = Any, at: str = "case") -> Any:
    """The value that a plain form stands for.

    Raises NotPlain, with the place, for anything that `to_plain` does not write.
    """
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _first_that_reads(plain, typing.get_args(hint), at)
    if hint is float:
        return _double(plain, at)
    if hint in (int, str, bool):
        return plain if type(plain) is hint else _refuse(at, hint.__name__, plain)
    if hint in (None, type(None)):
        return None if plain is None else _refuse(at, "null", plain)
    if isinstance(hint, type) and is_dataclass(hint):
        return _record(plain, at, hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(plain, dict):
            _refuse(at, "an object", plain)
        inner = _arguments(hint, 2)[1]
        return {key: from_plain(item, inner, f"{at}.{key}") for key, item in plain.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return _sequence(plain, hint, at, tuple if origin is tuple else list)
    if hint is not Any:
        raise NotPlain(f"{at}: nothing is read as {hint}")
    return _untyped(plain, at)


def known() -> dict[str, type[Any]]:
    """The dataclasses that may be read, by the last part of their module and their own name."""
    modules = [m for name, m in list(sys.modules.items()) if name.startswith(PACKAGES)]
    classes = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__
    ]
    return {_name(value): value for value in classes}


def bits(value: float) -> str:
    """16 hex digits."""
    return struct.pack(">d", value).hex()


def _name(kind: type) -> str:
    return f"{kind.__module__.removeprefix('logitproof.')}.{kind.__name__}"


def _double(plain: Any, at: str) -> float:
    digits = set("0123456789abcdef")
    if not isinstance(plain, str) or len(plain) != 16 or not set(plain) <= digits:
        _refuse(at, "16 hex digits", plain)
    value: float = struct.unpack(">d", bytes.fromhex(plain))[0]
    return value if not math.isnan(value) else _refuse(at, "a number", plain)


def _record(plain: Any, at: str, expected: type[Any] | None = None) -> Any:
    if not isinstance(plain, dict) or not isinstance(plain.get(TAG), str):
        _refuse(at, "an object that names its type", plain)
    kind = known().get(plain[TAG])
    if kind is None or (expected and kind is not expected):
        _refuse(f"{at}.{TAG}", _name(expected) if expected else "a known type", plain[TAG])
    names, given = {f.name for f in fields(kind)}, set(plain) - {TAG}
    needed = {f.name for f in fields(kind) if f.default is MISSING}  # others came later
    if not needed <= given <= names:
        wrong = ", ".join(sorted((given - names) | (needed - given)))
        raise NotPlain(f"{at}: unknown or missing: {wrong}")
    hints = typing.get_type_hints(kind)
    return kind(**{n: from_plain(plain[n], hints[n], f"{at}.{n}") for n in sorted(given)})


def _sequence(plain: Any, hint: Any, at: str, kind: type[Any]) -> Any:
    if not isinstance(plain, list):
        _refuse(at, "a list", plain)
    hints = _items(hint, len(plain))
    if len(hints) != len(plain):
        _refuse(at, f"{len(hints)} items", plain)
    pairs = enumerate(zip(plain, hints, strict=True))
    return kind(from_plain(item, h, f"{at}[{i}]") for i, (item, h) in pairs)


def _untyped(plain: Any, at: str) -> Any:
    if isinstance(plain, dict) and set(plain) == {"f64"}:
        return _double(plain["f64"], at)
    if isinstance(plain, dict):
        return _record(plain, at)
    if isinstance(plain, list):
        return [_untyped(item, f"{at}[{i}]") for i, item in enumerate(plain)]
    return plain if not isinstance(plain, float) else _refuse(at, "hex bits", plain)


def _first_that_reads(plain: Any, hints: Sequence[Any], at: str) -> Any:
    reasons = []
    for hint in hints:
        try:
            return from_plain(plain, hint, at)
        except NotPlain as reason:
            reasons.append(str(reason))
    raise NotPlain(max(reasons, key=len))  # the reading that went furthest


def _items(hint: Any, count: int) -> list[Any]:
    """The hint of each item of a sequence."""
    arguments = typing.get_args(_sequence_of(hint))
    if not arguments:
        return [Any] * count
    open_ended = len(arguments) == 1 or arguments[-1] is Ellipsis
    return [arguments[0]] * count if open_ended else list(arguments)


def _sequence_of(hint: Any) -> Any:
    """The sequence in `X | None`."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        return next((h for h in typing.get_args(hint) if typing.get_args(h)), Any)
    return hint


def _arguments(hint: Any, count: int) -> tuple[Any, ...]:
    found = typing.get_args(_sequence_of(hint))
    return found if len(found) == count else (Any,) * count


def _refuse(at: str, expected: str, actual: Any) -> typing.NoReturn:
    shown = repr(actual)
    raise NotPlain(f"{at}: expected {expected}, got {shown[:40]}")
