"""Published cases done by the scalar decoder; the derived ones are compared as they are derived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logitproof.properties.scalar import operations
from logitproof.properties.subjects import ScalarSubject

from . import run_figures
from .derive import values
from .load import Case, cells

__all__ = ["KINDS"]

Object = dict[str, Any]


def _figure(case: Case) -> Object:
    return run_figures.figure(case, ScalarSubject)


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


KINDS: dict[str, Callable[[Case], Object]] = {"figure": _figure, "operation": _operation}
