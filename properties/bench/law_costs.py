"""What one example of each law costs, from the facts of `logitproof verify --json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from logitproof.properties.cli import UsageError

__all__ = ["LawCost", "read", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LawCost:
    """The cases that one law was tried on, and their seconds together."""

    law: str
    cases: int
    seconds: float

    @property
    def milliseconds(self) -> float:
        """Per case."""
        return 1e3 * self.seconds / self.cases if self.cases else 0.0


def read(path: Path) -> dict[str, LawCost]:
    """The costs in a report, by law. Raises UsageError: the file is none; OSError."""
    try:
        laws = json.loads(path.read_bytes())["laws"]
        costs = [
            LawCost(law=str(law["id"]), cases=int(law["cases"]), seconds=float(law["seconds"]))
            for law in laws
        ]
    except (ValueError, KeyError, TypeError) as wrong:
        raise UsageError(f"logitproof bench: {path} is no report of verify: {wrong!r}") from None
    return {cost.law: cost for cost in costs}


def table(reports: Sequence[dict[str, LawCost]]) -> list[list[str]]:
    """Laws by what they cost in the last report, beside the first one where there are two."""
    *earlier, last = reports
    before = earlier[0] if earlier else {}
    heading = ["law", "cases", "ms per case", "seconds", "share"]
    lines = [[*heading, "ms before", "now ÷ before"] if earlier else heading]
    total = sum(cost.seconds for cost in last.values())
    for cost in sorted(last.values(), key=lambda cost: -cost.seconds):
        line = [
            cost.law, str(cost.cases), f"{cost.milliseconds:.2f}", f"{cost.seconds:.2f}",
            f"{cost.seconds / total:.1%}" if total else "-",
        ]  # fmt: skip
        lines.append(line + (_beside(before.get(cost.law), cost) if earlier else []))
    cases = sum(cost.cases for cost in last.values())
    whole = LawCost(law="all", cases=cases, seconds=total)
    line = ["all", str(cases), f"{whole.milliseconds:.2f}", f"{total:.2f}", ""]
    first = LawCost(
        law="all",
        cases=sum(cost.cases for cost in before.values()),
        seconds=sum(cost.seconds for cost in before.values()),
    )
    return [*lines, line + (_beside(first, whole) if earlier else [])]


def _beside(before: LawCost | None, now: LawCost) -> list[str]:
    """Milliseconds per case before, and the ratio."""
    if before is None or not before.milliseconds:
        return ["-", "-"]
    return [f"{before.milliseconds:.2f}", f"{now.milliseconds / before.milliseconds:.2f}"]
