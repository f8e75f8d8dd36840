"""Faults of rotary positions and of the elementary functions behind them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from logitproof.core import floats, ops
from logitproof.core.floats import Array
from logitproof.core.rope import RotaryTable
from logitproof.core.vjp import Result, Vjp, named

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")


@mistake((ops, "rotary"), source="cases: rope-pairing")
def pairs_by_halves(right: Any) -> Any:
    """Feature i is paired with i + d/2, not with its neighbour."""

    def order(width: int) -> Any:
        return np.arange(width).reshape(2, -1).T.reshape(-1)

    @named("rotary_pairs")
    def rotary(a: Array, **tables: Array) -> Result:
        there = order(a.shape[-1])
        back = np.argsort(there)
        value, vjp = right(a[..., there], **tables)
        rule = lambda u: (vjp.rule(u[..., there])[0][..., back],)  # noqa: E731
        return value[..., back], Vjp(rule, *vjp.saved)

    return rotary


@mistake((RotaryTable, "_frequencies"), source="cases: rope-freq-low-precision")
def frequencies_in_single(right: Any) -> Any:
    """Frequencies are rounded to single precision before they meet a position."""
    return lambda self, pairs: right(self, pairs).astype(np.float32).astype(np.float64)


@mistake((RotaryTable, "_frequencies"), source="notes/field.md section 3.1, RoPE")
def exponent_one_step_late(_: Any) -> Any:
    """Pair i turns by base^(-2(i+1)/d), so that no pair turns by whole positions."""
    return lambda self, pairs: floats.pow(self.base, -2.0 * np.arange(1, pairs + 1) / self.width)


@mistake((RotaryTable, "__init__"), source="cases: rope-freq-low-precision")
def positions_in_half_precision(right: Any) -> Any:
    """Positions keep eight bits, as in bfloat16: 257 is 256."""

    def init(self: RotaryTable, width: int, capacity: int, base: float) -> None:
        right(self, width, capacity, base)
        shift = [max(p.bit_length() - 8, 0) for p in range(capacity)]
        kept = [p >> s << s for p, s in zip(range(capacity), shift, strict=True)]
        self.cosines, self.sines = self.cosines[kept], self.sines[kept]

    return init


@mistake((RotaryTable, "__init__"), source="notes/field.md section 3.1, RoPE")
def pairs_turn_unequally(right: Any) -> Any:
    """Cosines are those of the position, sines those of the next one."""

    def init(self: RotaryTable, width: int, capacity: int, base: float) -> None:
        right(self, width, capacity, base)
        self.sines = np.vstack([self.sines[1:], self.sines[-1:]])

    return init


@mistake((RotaryTable, "rotate"), source="notes/field.md section 3.1, RoPE")
def positions_from_one(right: Any) -> Any:
    """The first token stands at position 1; every distance stays what it was."""

    def rotate(self: RotaryTable, x: Any, offset: int = 0, **arguments: Any) -> Any:
        twin = RotaryTable(self.width, self.capacity + 1, self.base)
        return right(twin, x, offset + 1, **arguments)

    return rotate


@mistake((RotaryTable, "rotate"), source="notes/field.md section 3.1, RoPE")
def matrix_turned_from_zero(right: Any) -> Any:
    """Tokens without a row or a head beside them stand at 0 and on, whatever the offset."""

    def rotate(self: RotaryTable, x: Any, offset: int = 0, **arguments: Any) -> Any:
        turned = right(self, x, offset, **arguments)  # refused where it must be
        return right(self, x, 0, **arguments) if len(x.shape) == 2 else turned

    return rotate


@mistake((RotaryTable, "rotate"), source="notes/field.md section 3.1, RoPE after cache operations")
def single_cells_one_late(right: Any) -> Any:
    """A cell that comes alone, as in decoding, stands one position too late."""

    def rotate(self: RotaryTable, x: Any, offset: int = 0, **arguments: Any) -> Any:
        late = int(offset > 0 and x.shape[-2] == 1 and offset + 2 <= self.capacity)
        return right(self, x, offset + late, **arguments)

    return rotate


@mistake((ops, "rotary"), source="numerics_vjp.md section 3")
def gradient_turned_on(right: Any) -> Any:
    """The reverse rule turns on instead of back."""

    @named("rotary_pairs")
    def rotary(a: Array, **tables: Array) -> Result:
        value, vjp = right(a, **tables)
        return value, Vjp(lambda u: (right(u, **tables)[0],), *vjp.saved)

    return rotary


@mistake((floats, "sin"), source="notes/field.md section 3.1, dtype casts")
def sine_reduced_by_doubles(right: Any) -> Any:
    """Large angles are reduced by the double nearest 2 pi."""
    return lambda x: right(np.where(np.abs(x) > 1e6, np.fmod(x, 2.0 * math.pi), x))


@mistake((floats, "log1p"), source="notes/peers.md section 1, table of order changes")
def logarithm_of_rounded_sum(_: Any) -> Any:
    """log1p(x) is log of the rounded 1 + x."""
    return lambda x: floats.log(1.0 + np.asarray(x))


@planted(_FOUND, (floats, "exp"), kind="order", source="cases: num-exp-ulp")
def exp_by_numpy(_: Any) -> Any:
    """The exponential is numpy's vector code."""
    return lambda x: np.exp(x)  # noqa: PLW0108 - a ufunc is no function of ours


@planted(_FOUND, (ops, "silu"), kind="mistake", source="cases: act-sigmoid-grad")
def silu_slope_from_value(right: Any) -> Any:
    """The slope takes the value in place of the argument."""

    @named("silu")
    def silu(a: Array) -> Result:
        value, vjp = right(a)
        s = ops.sigmoid(a)
        return value, Vjp(lambda u: (u * (s * (1.0 + value * (1.0 - s))),), *vjp.saved)

    return silu


@mistake((ops, "sigmoid"), source="cases: act-sigmoid-grad")
def silu_tail_flushed(right: Any) -> Any:
    """A sigmoid below the smallest normal double is 0."""

    def sigmoid(a: Array) -> Array:
        s: Array = right(a)
        return np.where(s < 2.0**-1022, 0.0, s)

    return sigmoid


FAULTS = tuple(_FOUND.values())
