"""The kinds of values that the protocol carries, into JSON and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, NamedTuple

import numpy as np

from logitproof.properties.scalar import Config, Layout

from .arrays import from_json, refuse, to_json

__all__ = ["FORMS", "STEPS", "Form", "Output"]

STEPS = ("prefill", "extend", "decode")


class Output(NamedTuple):
    """What one step of a session gives: the newest position's logits [V], and that position."""

    logits: Any
    position: int


class Form(NamedTuple):
    """One kind of value: into JSON, given an encoding for arrays, and back, given its place."""

    write: Callable[[Any, str], Any]
    read: Callable[[Any, str], Any]


def _same(value: Any, _: str) -> Any:
    return value


def _rows(value: Any, _: str) -> Any:
    return [[int(i) for i in row] for row in value]


def _read_rows(value: Any, at: str) -> Any:
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        refuse(at, "a list of lists", value)
    return value


def _layout(value: Layout | None, _: str) -> Any:
    return None if value is None else asdict(value)


def _read_layout(value: Any, at: str) -> Layout | None:
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) != {f.name for f in fields(Layout)}:
        refuse(at, "lengths, range_starts, positions", value)
    tuples = {name: _read_rows(value[name], at) for name in ("range_starts", "positions")}
    return Layout(
        lengths=tuple(value["lengths"]),
        **{name: tuple(tuple(row) for row in rows) for name, rows in tuples.items()},
    )


def _read_config(value: Any, at: str) -> Config:
    if not isinstance(value, dict) or set(value) != {f.name for f in fields(Config)}:
        refuse(at, "the fields of a configuration", value)
    return Config(**value)


def _valid(value: Any, _: str) -> Any:
    return None if value is None else [[bool(v) for v in row] for row in value]


def _read_kind(kind: type) -> Callable[[Any, str], Any]:
    def read(value: Any, at: str) -> Any:
        return value if type(value) is kind else refuse(at, kind.__name__, value)

    return read


def _read_number(value: Any, at: str) -> Any:
    array = from_json(value, at)
    if array.shape != ():
        refuse(f"{at}.shape", "[]", list(array.shape))
    return array[()]


def _read_named(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def named(value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            refuse(at, "an object by name", value)
        return {name: read(item, f"{at}.{name}") for name, item in value.items()}

    return named


def _read_word(value: Any, at: str) -> int:
    if not isinstance(value, str) or len(value) != 16 or not set(value) <= set("0123456789abcdef"):
        refuse(at, "16 hex digits", value)
    return int(value, 16)


def _read_step(value: Any, at: str) -> Any:
    if not isinstance(value, list) or len(value) != 2 or value[0] not in STEPS:
        refuse(at, f"one of {', '.join(STEPS)} and its ids", value)
    return value[0], value[1]


def _read_bytes(value: Any, at: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        refuse(at, "bytes in hex", value)


def _read_list(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def listed(value: Any, at: str) -> Any:
        if not isinstance(value, list):
            refuse(at, "a list", value)
        return [read(item, f"{at}[{i}]") for i, item in enumerate(value)]

    return listed


def _keyed(**forms: Form) -> Form:
    """An object with one key for each; a tuple on this side."""

    def write(value: Any, encoding: str) -> Any:
        pairs = zip(forms.items(), value, strict=True)
        return {name: form.write(item, encoding) for (name, form), item in pairs}

    def read(value: Any, at: str) -> Any:
        if not isinstance(value, dict) or set(value) != set(forms):
            refuse(at, " and ".join(forms), value)
        return tuple(form.read(value[name], f"{at}.{name}") for name, form in forms.items())

    return Form(write, read)


def _write_array(value: Any, encoding: str) -> Any:
    return to_json(value, encoding)


ARRAY = Form(_write_array, from_json)
NUMBER = Form(_write_array, _read_number)
ARRAYS = Form(
    lambda value, encoding: {name: _write_array(item, encoding) for name, item in value.items()},
    _read_named(from_json),
)
WORD = Form(lambda value, _: f"{value:016x}", _read_word)
COUNT = Form(_same, _read_kind(int))
OUTPUT = _keyed(logits=ARRAY, position=COUNT)

FORMS: Mapping[str, Form] = {
    "nothing": Form(lambda *_: None, lambda *_: None),
    "array": ARRAY,
    "number": NUMBER,
    "arrays": ARRAYS,
    "config": Form(lambda value, _: asdict(value), _read_config),
    "ids": Form(_rows, _read_rows),
    "layout": Form(_layout, _read_layout),
    "valid": Form(_valid, lambda value, at: value if value is None else _read_rows(value, at)),
    "floats": Form(lambda value, encoding: to_json(np.array(value, dtype=np.float64), encoding),
                   lambda value, at: [float(v) for v in from_json(value, at)]),
    "word": WORD,
    "count": COUNT,
    "flag": Form(_same, _read_kind(bool)),
    "words": Form(lambda value, _: [f"{v:016x}" for v in value], _read_list(_read_word)),
    "steps": Form(lambda value, _: [[name, [int(i) for i in ids]] for name, ids in value],
                  _read_list(_read_step)),
    "loss and gradients": _keyed(loss=NUMBER, gradients=ARRAYS),
    "parameters and state": _keyed(parameters=ARRAYS, state=WORD),
    "total, lookup and head": _keyed(total=ARRAY, lookup=ARRAY, head=ARRAY),
    "bytes": Form(lambda value, _: {name: item.hex() for name, item in value.items()},
                  _read_named(_read_bytes)),
    "outputs": Form(lambda value, encoding: [OUTPUT.write(item, encoding) for item in value],
                    _read_list(lambda value, at: Output(*OUTPUT.read(value, at)))),
}  # fmt: skip
