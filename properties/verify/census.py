"""Which kinds of input were tried: what a case of ours shows by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logitproof.properties.laws.cases import Case

__all__ = ["cells"]

WEIGHTS = {0.25: "cold", 1.0: "as drawn", 4.0: "warm", 12.0: "hot"}


def cells(case: Any) -> tuple[str, ...]:
    """`kind=cell` for each kind of input that the case is one of."""
    return tuple(_cells(case)) if isinstance(case, Case) else ()


def _cells(case: Case) -> Iterator[str]:
    yield f"weights={WEIGHTS.get(case.scale, 'others')}"
    yield f"layers={case.config.layers}"
    yield f"heads={case.config.heads}"
    yield f"rows={len(case.ids)}"
    yield f"layout={_layout(case)}"
    yield f"repeated ids={'yes' if _repeats(case) else 'no'}"


def _layout(case: Case) -> str:
    if case.segments is None:
        return "full"
    if any(len(sizes) > 1 for sizes in case.segments):
        return "packed"
    return "padded" if any(row[-1] < 0 for row in case.ids) else "full"


def _repeats(case: Case) -> bool:
    active = [v for row in case.ids for v in row if v >= 0]
    return len(active) > len({*active})
