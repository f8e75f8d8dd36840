"""Changes that look wrong and are not: they change no bit, and why."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from logitproof.core import floats, ops
from logitproof.core.backward import ReversePass
from logitproof.core.floats import Array
from logitproof.core.tape import Tensor
from logitproof.core.vjp import Result, Vjp, named

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
TABLE = "notes/peers.md section 1, table of order changes"
equivalent = partial(planted, _FOUND, kind="equivalent")


@equivalent((floats, "weighted_rows"), source=TABLE)
def hidden_zeros_mixed_in(right: Any) -> Any:
    """A mixture also adds a weight of +0.0 times a value: a finite sum from +0.0 keeps its bits."""

    def weighted_rows(weights: Array, rows: Array) -> Array:
        more = np.concatenate([np.zeros((len(weights), 1)), weights], axis=1)
        first = rows[:, :1] if rows.shape[1] else np.zeros((len(rows), 1, rows.shape[2]))
        result: Array = right(more, np.concatenate([first, rows], axis=1))
        return result

    return weighted_rows


@equivalent((floats, "total"), source=TABLE)
def sums_start_at_first_term(right: Any) -> Any:
    """A sum starts at its first term and cleans a -0.0 at the end: no other sum of two is -0.0."""

    def total(values: Array, *, axis: int, keep: bool = False) -> Array:
        if values.shape[axis] == 0:
            empty: Array = right(values, axis=axis, keep=keep)
            return empty
        terms = np.moveaxis(values, axis, 0)
        result = terms[0].copy()
        for term in terms[1:]:
            result = result + term
        result = np.asarray(result + 0.0)
        return np.expand_dims(result, axis) if keep else result

    return total


@equivalent((ops, "mul"), source="notes/peers.md section 1: products commute")
def factors_exchanged(right: Any) -> Any:
    """A product of the second and the first operand: IEEE products commute."""

    @named("mul")
    def mul(a: Array, b: Array) -> Result:
        value, vjp = right(b, a)
        return value, Vjp(lambda u: vjp.rule(u)[::-1], *vjp.saved[::-1])

    return mul


@equivalent((ReversePass, "_deliver"), source=TABLE)
def gate_before_up(right: Any) -> Any:
    """Of exactly two contributions the second is added first: IEEE sums of two commute."""

    def deliver(self: Any, contribution: Array, parent: Tensor) -> None:
        first = self.adjoints.get(id(parent))
        right(self, contribution, parent)
        if first is not None:
            self.adjoints[id(parent)] = np.asarray(contribution + first)

    return deliver


FAULTS = tuple(_FOUND.values())
