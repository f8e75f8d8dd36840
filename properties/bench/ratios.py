"""The table of ratios: what a kernel may cost, what it costs, and which line is missed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .contenders import DECODE, TRAINING
from .timing import Timing, ratio

__all__ = ["ROWS", "Cell", "Row", "Timings", "cell", "facts", "table"]

# By size, task and contender.
Timings: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Timing]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One task of two contenders, and the largest ratio wanted for each size that has one."""

    title: str
    task: str
    over: str
    under: str
    targets: Mapping[str, float]


def _targets(*wanted: float | None) -> dict[str, float]:
    names = ("reference", "bridge", "mid", "laptop-like")
    return {name: most for name, most in zip(names, wanted, strict=True) if most is not None}


ROWS = (
    Row(
        title="blas forward+backward ÷ eager PyTorch",
        task=TRAINING, over="blas", under="torch", targets=_targets(0.45, 0.45, 0.90, 0.90),
    ),
    Row(
        title="blas forward+backward ÷ same-shape products",
        task=TRAINING, over="blas", under="products", targets=_targets(None, 6.0, 1.7, 1.2),
    ),
    Row(
        title="ordered forward+backward ÷ eager PyTorch",
        task=TRAINING, over="ordered", under="torch", targets=_targets(1.0, 1.3, 6.0, None),
    ),
    Row(
        title="ordered decode ÷ blas decode",
        task=DECODE, over="ordered", under="blas", targets=_targets(3.0, 3.0, 4.0, None),
    ),
    Row(
        title="blas decode ÷ eager PyTorch decode",
        task=DECODE, over="blas", under="torch", targets=_targets(0.8, 0.8, 0.8, None),
    ),
    Row(
        title="blas forward+backward ÷ jitted JAX",
        task=TRAINING, over="blas", under="jax", targets={},
    ),
    Row(
        title="ordered forward+backward ÷ HIPS autograd",
        task=TRAINING, over="ordered", under="autograd", targets={},
    ),
    Row(
        title="ordered forward+backward ÷ jitted JAX",
        task=TRAINING, over="ordered", under="jax", targets={},
    ),
    Row(
        title="ordered decode ÷ eager PyTorch decode",
        task=DECODE, over="ordered", under="torch", targets={},
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The ratio of one row at one size: median and range over the rounds, and its target."""

    median: float
    lowest: float
    highest: float
    target: float | None

    @property
    def is_missed(self) -> bool:
        """Whether the median lies above the target."""
        return self.target is not None and self.median > self.target

    def __str__(self) -> str:
        wanted = "" if self.target is None else f" of {self.target:g}"
        return f"{self.median:.3g}{wanted}{' MISSED' if self.is_missed else ''}"


def cell(row: Row, size: str, timings: Timings) -> Cell | None:
    """The row's cell at a size, or None where one of the two was not timed."""
    timed = timings.get(size, {}).get(row.task, {})
    if row.over not in timed or row.under not in timed:
        return None
    median, lowest, highest = ratio(timed[row.over], timed[row.under])
    return Cell(median=median, lowest=lowest, highest=highest, target=row.targets.get(size))


def table(timings: Timings) -> list[list[str]]:
    """A heading, then one line per row of which anything was measured."""
    lines = [["CPU time as a ratio, of its target", *timings]]
    for row in ROWS:
        cells = [cell(row, size, timings) for size in timings]
        if any(cells):
            lines.append([row.title, *("-" if c is None else str(c) for c in cells)])
    return lines


def facts(timings: Timings) -> list[dict[str, Any]]:
    """Every cell as plain values."""
    return [
        {
            "row": row.title,
            "size": size,
            "median": found.median,
            "lowest": found.lowest,
            "highest": found.highest,
            "target": found.target,
            "missed": found.is_missed,
        }
        for row in ROWS
        for size in timings
        if (found := cell(row, size, timings)) is not None
    ]
