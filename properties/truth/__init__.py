"""Whole-decoder truth to 50 digits, and the derived bound of every answer."""

from .adjoints import BFLOAT16, BINARY16, BINARY32, BINARY64, SAFETY, Format, Roundings
from .decoder import DECLARED_CLASS, Answer, Truth, logits_of, truth_of

__all__ = [
    "BFLOAT16", "BINARY16", "BINARY32", "BINARY64", "DECLARED_CLASS", "SAFETY", "Answer", "Format",
    "Roundings", "Truth", "logits_of", "truth_of",
]  # fmt: skip
