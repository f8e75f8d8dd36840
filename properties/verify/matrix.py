"""The kill matrix that `logitproof faults run --json` writes: which law saw which fault."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from logitproof.properties.cli import UsageError

__all__ = ["Cell", "KillMatrix", "read_matrix"]

Cell: TypeAlias = bool | None  # killed, survived, not run


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMatrix:
    """One row per fault, one column per law.

    examples: as many as the law needed to see the fault, where that was counted
    """

    faults: tuple[str, ...]
    laws: tuple[str, ...]
    killed: tuple[tuple[Cell, ...], ...]
    examples: tuple[tuple[int | None, ...], ...] | None = None

    def examples_at(self, fault: int, law: int) -> int | None:
        """The count in one cell."""
        return None if self.examples is None else self.examples[fault][law]


def read_matrix(path: Path) -> KillMatrix:
    """The matrix in a file; other facts in it are left aside.

    Raises UsageError for a file without one.
    """
    try:
        facts = json.loads(path.read_bytes())
        faults, columns = (tuple(_names(facts, key)) for key in ("faults", "laws"))
        killed = tuple(tuple(map(_cell, row)) for row in facts["killed"])
        counted = facts.get("examples")
        examples = None if counted is None else tuple(tuple(map(_count, row)) for row in counted)
    except (ValueError, KeyError, TypeError, RecursionError) as wrong:
        named = f"{type(wrong).__name__}: {wrong}"
        raise UsageError(f"logitproof verify: {path}: no kill matrix: {named}") from wrong
    grids: list[tuple[tuple[object, ...], ...]] = [killed, *([examples] if examples else [])]
    if any([len(row) for row in grid] != [len(columns)] * len(faults) for grid in grids):
        sizes = f"{len(faults)} faults and {len(columns)} laws"
        raise UsageError(f"logitproof verify: {path}: the rows do not fit {sizes}")
    return KillMatrix(faults=faults, laws=columns, killed=killed, examples=examples)


def _names(facts: Any, key: str) -> list[str]:
    names = facts[key]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{key} is no list of ids")
    return names


def _cell(value: Any) -> Cell:
    if value is None or isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is neither true, false nor null")


def _count(value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    raise TypeError(f"{value!r} is neither a count nor null")
