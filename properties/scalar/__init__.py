"""A second decoder in plain Python, written from the specification alone."""

from .arithmetic import C_LIBRARY, EXACT, Arithmetic
from .decoder import Result, ScalarDecoder
from .generator import Generator, initial_weights
from .shapes import Config, Layout

__all__ = [
    "C_LIBRARY",
    "EXACT",
    "Arithmetic",
    "Config",
    "Generator",
    "Layout",
    "Result",
    "ScalarDecoder",
    "initial_weights",
]
