"""Which kinds of input were tried: what a law counts, and what a case shows by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from logitproof.properties.laws.cases import Case
from logitproof.properties.laws.drawn import Draw
from logitproof.properties.laws.larger import LargerCase, WiderCase
from logitproof.properties.laws.regimes import CELLS, TruthCase

__all__ = ["by_kind", "cells", "layout_of"]

WEIGHTS = {0.25: "cold", 1.0: "as drawn", 4.0: "warm", 12.0: "hot"}


def cells(case: Any, counted: Collection[str] = ()) -> tuple[str, ...]:
    """`kind=cell` for each kind of input that the case is one of, those counted by a law first."""
    kinds = {_kind(cell) for cell in counted}
    return (*counted, *(cell for cell in _cells(case) if _kind(cell) not in kinds))


def by_kind(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Kind -> cell -> cases; a cell that was never tried counts 0 where its kind was counted."""
    kinds = {_kind(cell) for cell in counts}
    empty = {cell: 0 for cell in CELLS if _kind(cell) in kinds}
    found: dict[str, dict[str, int]] = {}
    for cell, count in sorted((empty | dict(counts)).items()):
        found.setdefault(_kind(cell), {})[cell.partition("=")[2]] = count
    return found


def _kind(cell: str) -> str:
    return cell.partition("=")[0]


def _cells(case: Any) -> Iterator[str]:
    if isinstance(case, Draw):
        yield f"values of parts={case.regime}"
    if not isinstance(case, Case):
        return
    if not isinstance(case, TruthCase):
        yield f"weights={WEIGHTS.get(case.scale, 'others')}"
    if isinstance(case, LargerCase | WiderCase):
        yield f"large={case.larger}"
    yield f"layers={case.config.layers}"
    yield f"heads={case.config.heads}"
    yield f"rows={len(case.ids)}"
    yield f"layout={layout_of(case)}"
    yield f"repeated ids={'yes' if _repeats(case) else 'no'}"


def layout_of(case: Case) -> str:
    """The kind of its layout: full, padded, packed, or ranges that no documents describe."""
    if case.segments is None:
        return "full" if case.layout is None else "ranges"
    if any(len(sizes) > 1 for sizes in case.segments):
        return "packed"
    return "padded" if any(row[-1] < 0 for row in case.ids) else "full"


def _repeats(case: Case) -> bool:
    active = [v for row in case.ids for v in row if v >= 0]
    return len(active) > len({*active})
