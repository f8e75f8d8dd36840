"""Arrays as JSON: element type, shape, and the bytes of little-endian floats in hex or base64."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

__all__ = ["ENCODINGS", "TYPES", "Malformed", "from_json", "parsed", "to_json"]

ENCODINGS = ("base64", "hex")
TYPES: Mapping[str, str] = {"float64": "<f8", "float32": "<f4"}
SHOWN = 60  # characters of what is no message


class Malformed(ValueError):
    """A message that the protocol does not know; the words say where."""


def to_json(values: Any, encoding: str) -> dict[str, Any]:
    """The array, row-major. Raises Malformed for elements that are neither float64 nor float32."""
    array = np.asarray(values)
    name = str(array.dtype)
    if name not in TYPES:
        raise Malformed(f"an array of {name}: float64 or float32 is wanted")
    content = array.astype(TYPES[name]).tobytes()
    text = content.hex() if encoding == "hex" else base64.b64encode(content).decode("ascii")
    return {"dtype": name, "shape": list(array.shape), encoding: text}


def from_json(plain: Any, at: str) -> NDArray[Any]:
    """The array; of float64 or float32, as it says. Raises Malformed for anything else."""
    if not isinstance(plain, dict):
        refuse(at, "an array", plain)
    encoding = next((name for name in ENCODINGS if name in plain), "base64")
    if set(plain) != {"dtype", "shape", encoding}:
        refuse(at, "dtype, shape, and hex or base64", sorted(plain))
    kind = TYPES.get(plain["dtype"]) if isinstance(plain["dtype"], str) else None
    if kind is None:
        refuse(f"{at}.dtype", " or ".join(TYPES), plain["dtype"])
    shape = plain["shape"]
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        refuse(f"{at}.shape", "a list of sizes", shape)
    content = _content(plain[encoding], encoding, f"{at}.{encoding}")
    wanted = math.prod(shape) * np.dtype(kind).itemsize
    if len(content) != wanted:
        refuse(f"{at}.{encoding}", f"{wanted} bytes for shape {shape}", f"{len(content)} bytes")
    return np.frombuffer(content, dtype=kind).astype(plain["dtype"]).reshape(shape)


def _content(text: Any, encoding: str, at: str) -> bytes:
    if not isinstance(text, str):
        refuse(at, "a string", text)
    try:
        if encoding == "hex":
            return bytes.fromhex(text)
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as wrong:
        raise Malformed(f"{at}: no {encoding}: {wrong}") from wrong


def parsed(line: str | bytes) -> dict[str, Any]:
    """The JSON object of one line. Raises Malformed for anything else, and for a key twice."""
    try:
        text = line.decode("utf-8") if isinstance(line, bytes) else line
        message = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError) as wrong:
        shown = repr(line if isinstance(line, str) else line.decode("utf-8", "replace"))
        raise Malformed(f"no line of JSON ({wrong}): {shown[:SHOWN]}") from wrong
    if not isinstance(message, dict):
        refuse("the line", "a JSON object", message)
    return message


def refuse(at: str, expected: str, actual: Any) -> NoReturn:
    """Raises Malformed."""
    raise Malformed(f"{at}: expected {expected}, got {repr(actual)[:SHOWN]}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")
