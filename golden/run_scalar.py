"""Published cases done by the scalar decoder; the derived ones are compared as they are derived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logitproof.properties.scalar import operations
from logitproof.properties.subjects import ScalarSubject

from . import run_figures
from .derive import layers, values
from .figures import Figures
from .load import Case, cells

__all__ = ["KINDS", "outcome"]

Object = dict[str, Any]


def outcome(case: Case, held: Figures | None = None) -> Object:
    """What the scalar decoder answers to a case of one of KINDS, which it refuses nothing of.

    held: the figures that stand beside the cases, by default those shipped
    """
    if case.kind == "figure":
        return run_figures.figure(case, ScalarSubject, held)
    return KINDS[case.kind](case)


def _operation(case: Case) -> Object:
    """By the written rules; an input that must be refused is not asked."""
    operands = [_array(operand) for operand in case.input["operands"]]
    arguments: Object = {
        name: _array(value) if isinstance(value, dict) else value
        for name, value in case.input["arguments"].items()
    }
    op = case.setup["op"]
    value = operations.value(op, *operands, **arguments)
    found: Object = {"value": values.doubles(value.shape, value.cells)}
    if "upstream" in case.input:
        parts = operations.contributions(op, _array(case.input["upstream"]), *operands, **arguments)
        found["contributions"] = [values.doubles(part.shape, part.cells) for part in parts]
    return found


def _array(held: Object) -> operations.Array:
    return operations.Array(tuple(held["shape"]), cells(held, "i64" if "i64" in held else "f64"))


KINDS: dict[str, Callable[[Case], Object]] = {
    "figure": run_figures.figure,
    "operation": _operation,
    "layer": layers.outcome,
}
