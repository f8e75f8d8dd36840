"""Arrays in a safetensors file: names sorted, data aligned, no byte between or after them."""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Tensor", "encode", "floats", "integers"]

ALIGNMENT = 8  # of the data, which begins after an eight-byte length and a header of spaces
KINDS = {"F64": "d", "I64": "q"}  # the format's name of a type, and that of `struct`


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A type, a shape and the elements row-major."""

    kind: str
    shape: tuple[int, ...]
    elements: Sequence[float]

    def data(self) -> bytes:
        """The elements as little-endian words."""
        if len(self.elements) != math.prod(self.shape):
            raise ValueError(f"{len(self.elements)} elements do not fill the shape {self.shape}")
        return struct.pack(f"<{len(self.elements)}{KINDS[self.kind]}", *self.elements)


def floats(nested: Any) -> Tensor:
    """Nested lists of binary64, or one, as a tensor."""
    return Tensor(kind="F64", shape=_shape(nested), elements=_flat(nested))


def integers(nested: Any) -> Tensor:
    """Nested lists of integers as a tensor."""
    return Tensor(kind="I64", shape=_shape(nested), elements=_flat(nested))


def encode(tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of the file: the same for the same tensors, in whatever order they come.

    Eight bytes, little-endian: the length of the header. The header, JSON, filled up with
    spaces: per name type, shape, and where its data begin and end, counted from the header's
    end. The data, in the order of the names.
    """
    header, data = {}, b""
    for name in sorted(tensors):
        start = len(data)
        data += tensors[name].data()
        header[name] = {
            "dtype": tensors[name].kind,
            "shape": list(tensors[name].shape),
            "data_offsets": [start, len(data)],
        }
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % ALIGNMENT)
    return struct.pack("<Q", len(text)) + text + data


def _shape(nested: Any) -> tuple[int, ...]:
    if not isinstance(nested, list):
        return ()
    return (len(nested), *_shape(nested[0])) if nested else (0,)


def _flat(nested: Any) -> list[float]:
    if not isinstance(nested, list):
        return [nested]
    return [element for item in nested for element in _flat(item)]
