"""The number format that a decoder declares: what it is given, and what it may answer in."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from logitproof.properties.truth import BINARY32, BINARY64, Format

from .difference import Values
from .protocol import DecoderUnderTest

__all__ = ["answered", "dtype_of", "format_of"]

FORMATS: Mapping[str, Format] = {"float64": BINARY64, "float32": BINARY32}


def dtype_of(implementation: DecoderUnderTest) -> str:
    """The convention `dtype`: "float64" where nothing is declared. Its weights hold such numbers.

    Raises ValueError for another type than float64 and float32.
    """
    return _known("dtype", implementation.conventions.get("dtype", "float64"))


def format_of(implementation: DecoderUnderTest) -> Format:
    """The format of its roundings: the convention `arithmetic`, or else its dtype.

    A decoder of float64 arrays with steps in float32 declares `arithmetic` "float32".
    """
    return FORMATS[_arithmetic(implementation)]


def answered(implementation: DecoderUnderTest, values: Values) -> NDArray[np.float64]:
    """An answer as float64. Raises TypeError where it is of another type than declared."""
    array, dtype = np.asarray(values), dtype_of(implementation)
    if str(array.dtype) not in (dtype, _arithmetic(implementation)):
        raise TypeError(f"{dtype} is wanted, not {array.dtype}")
    return array.astype(np.float64)


def _arithmetic(implementation: DecoderUnderTest) -> str:
    dtype = dtype_of(implementation)
    return _known("arithmetic", implementation.conventions.get("arithmetic", dtype))


def _known(name: str, value: str) -> str:
    if value not in FORMATS:
        raise ValueError(f"{name} {value!r} is none of {', '.join(FORMATS)}")
    return value
