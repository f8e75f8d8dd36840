"""What the scalar decoder computes with: a kind of number and its functions."""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from . import rounded

__all__ = ["C_LIBRARY", "EXACT", "Arithmetic", "Number"]

# Anything with + - * / and comparisons that rounds (or records, or does not round) as it likes.
Number: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """A number type and its functions; `number` takes every double and integer exactly."""

    name: str
    number: Callable[[float], Number]
    exp: Callable[[Number], Number]
    log: Callable[[Number], Number]
    log1p: Callable[[Number], Number]
    sin: Callable[[Number], Number]
    cos: Callable[[Number], Number]
    pow: Callable[[Number, Number], Number]
    sqrt: Callable[[Number], Number]
    is_finite: Callable[[Number], bool]
    erf: Callable[[Number], Number] = math.erf  # of other decoders' activations alone

    def clean(self, x: Number) -> Number:
        """x, or +0 for either zero (the specification's pz)."""
        return self.number(0.0) if x == 0 else x

    def single(self, x: Number, roundings: int = 1) -> Number:
        """x rounded to float32, of decoders that compute some steps in it.

        roundings: how many such steps the result stands for, where they are counted
        """
        del roundings  # the last one alone is taken here
        try:
            return struct.unpack("f", struct.pack("f", x))[0]
        except OverflowError:
            return math.copysign(math.inf, x)

    def dot(
        self, left: list[Number], right: list[Number], *, among: int = 1, swaps: bool = False
    ) -> Number:
        """s = +0; s = s + l_k * r_k, k ascending. Source: numerics.md section 4

        among: so many such sums are added up afterwards; other programs take them as one
        swaps: each l_k is such a sum itself; other programs take the two sums the other way round
        """
        del among, swaps  # here each is a sum of its own
        s = self.number(0.0)
        for x, y in zip(left, right, strict=True):
            s = s + x * y
        return s

    def total(self, terms: list[Number], *, beside: Number | None = None) -> Number:
        """t = +0; t = t + x_i, i ascending. Source: numerics.md section 3

        beside: is added afterwards; other programs have it among the terms
        """
        del beside  # here it comes last
        t = self.number(0.0)
        for x in terms:
            t = t + x
        return t


EXACT = Arithmetic(
    name="binary64, functions correctly rounded",
    number=float,
    exp=rounded.exp,
    log=rounded.log,
    log1p=rounded.log1p,
    sin=rounded.sin,
    cos=rounded.cos,
    pow=rounded.pow,
    sqrt=math.sqrt,
    is_finite=math.isfinite,
)

C_LIBRARY = Arithmetic(
    name="binary64, functions of the C library",
    number=float,
    exp=math.exp,
    log=math.log,
    log1p=math.log1p,
    sin=math.sin,
    cos=math.cos,
    pow=math.pow,
    sqrt=math.sqrt,
    is_finite=math.isfinite,
)
