"""Faults of what is taken from a caller: numbers, integers, documents."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from logitproof import core
from logitproof.core import arrays, batches, layers, ops, vjp

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")


@mistake((vjp, "as_float64"), source="STYLE.md section 5")
def single_precision_kept(right: Any) -> Any:
    """An operand of single precision is computed with as it is."""

    def as_float64(given: object, *, what: str) -> Any:
        single = isinstance(given, np.ndarray) and given.dtype == np.float32
        return given if single else right(given, what=what)

    return as_float64


@mistake((arrays, "_holds"), source="STYLE.md section 7")
def integers_rounded_down(_: Any) -> Any:
    """An array of integers is taken where float64 made some of them smaller."""
    return lambda values, given: bool((values.astype(object) <= given.astype(object)).all())


@mistake((ops, "as_integers"), source="cases: emb-id-narrowing")
def whole_floats_are_integers(right: Any) -> Any:
    """Indices in an array of whole floats are taken."""

    def as_integers(given: object, **facts: Any) -> Any:
        if isinstance(given, np.ndarray) and given.dtype.kind == "f":
            given = given.astype(np.int64)
        return right(given, **facts)

    return as_integers


@mistake((layers, "_shaped"), source="layers.md section 1")
def flat_ids_in_column_order(right: Any) -> Any:
    """Flat ids fill their shape column by column."""
    return lambda ids, shape: ids.reshape(right(ids, shape).shape, order="F")


@mistake((core, "pack_documents"), source="inputs.md section 8")
def packed_by_first_fit(right: Any) -> Any:
    """A document goes into the first row that has room, though that one was closed."""

    def pack_documents(documents: Any, *, vocabulary_size: int, capacity: int) -> Any:
        free: list[int] = []
        rows: list[list[Any]] = []
        for ids in documents:
            room = [row for row, cells in enumerate(free) if len(ids) - 1 <= cells]
            if not room:
                free, rows, room = [*free, capacity], [*rows, []], [len(rows)]
            free[room[0]] -= len(ids) - 1
            rows[room[0]].append(ids)
        sorted_by_row = [ids for row in rows for ids in row]
        return right(sorted_by_row, vocabulary_size=vocabulary_size, capacity=capacity)

    return pack_documents


@mistake((batches, "_batch"), source="inputs.md section 7")
def targets_not_shifted(right: Any) -> Any:
    """The target of a cell is the token in it."""

    def batch(ranges: Any, rows: Any, *, T: int) -> Any:
        made = right(ranges, rows, T=T)
        return replace(made, targets=made.ids)

    return batch


FAULTS = tuple(_FOUND.values())
