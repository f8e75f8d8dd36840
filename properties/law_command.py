"""`logitproof laws list` and `logitproof laws explain ID`."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logitproof.properties import faults, laws
from logitproof.properties.cli import UsageError
from logitproof.properties.laws import Law
from logitproof.properties.subjects import CoreSubject

__all__ = ["add_arguments", "run"]

WIDTHS = (60, 140)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the two actions and what they take."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="every law with its statement")
    explaining = actions.add_parser("explain", help="one law: source, needs, faults, cost")
    explaining.add_argument("id", metavar="ID", help="the id of a law, as decoder.scalar-bits")
    for action in (listing, explaining):
        action.add_argument("--json", metavar="FILE", type=Path, help="write the facts to FILE too")


def run(args: argparse.Namespace) -> int:
    """Prints what the laws state; tries one of them on the core to tell its cost.

    Raises UsageError for an unknown ID.
    """
    width = min(max(shutil.get_terminal_size().columns, WIDTHS[0]), WIDTHS[1])
    if args.action == "list":
        facts: Any = [_facts(law) for law in laws.REGISTRY.values()]
        text = "\n".join(_listed(width))
    else:
        if args.id not in laws.REGISTRY:
            raise UsageError(f"logitproof laws: no law is called {args.id!r}")
        law = laws.REGISTRY[args.id]
        facts = {**_facts(law), **_cost(law)}
        text = "\n".join(_explained(law, facts, width))
    if args.json is not None:
        written = json.dumps(facts, indent=2, allow_nan=False) + "\n"
        args.json.write_text(written, encoding="utf-8", newline="\n")
    print(text)
    return 0


def _facts(law: Law) -> dict[str, Any]:
    return {
        "id": law.id,
        "statement": law.statement,
        "source": law.source,
        "needs": list(law.needs),
        "levels": list(law.levels),
        "faults": list(law.faults),
        "grants": dict(law.grants),
    }


def _cost(law: Law) -> dict[str, Any]:
    """Cases and seconds of one run on the core."""
    start = time.perf_counter()
    outcome = law(CoreSubject())
    return {"cases": outcome.cases, "seconds": round(time.perf_counter() - start, 3)}


def _listed(width: int) -> Iterator[str]:
    for law in laws.REGISTRY.values():
        yield law.id
        yield from _hanging("", law.statement, width)
    yield ""
    yield f"{len(laws.REGISTRY)} laws; `logitproof laws explain ID` tells more of one."


def _explained(law: Law, facts: dict[str, Any], width: int) -> Iterator[str]:
    yield law.id
    yield from _hanging("states", law.statement, width)
    yield from _hanging("source", law.source, width)
    yield from _hanging("needs", ", ".join(law.needs) or "nothing beyond the protocol", width)
    if law.levels:
        yield from _hanging("levels", ", ".join(law.levels), width)
    yield from _hanging(
        "cost", f"{facts['cases']} cases in {facts['seconds']:.2f} s on the core", width
    )
    if law.grants:
        yield "    covers"
    for part, forms in law.grants.items():
        yield from _hanging("", f"- {part}: {forms}", width)
    yield "    must see"
    for id_ in law.faults:
        statement = " ".join(faults.REGISTRY[id_].statement.split())
        yield from _hanging("", f"- {id_}: {statement}", width)


def _hanging(label: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=f"    {label:<8}" if label else "    ",
        subsequent_indent=" " * (12 if label else 6), break_on_hyphens=False,
    )  # fmt: skip
