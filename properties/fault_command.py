"""`logitproof faults list` and `logitproof faults run [--all] [--fault GLOB] [--law GLOB]`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from logitproof.properties import faults, laws
from logitproof.properties.cli import UsageError

from . import kill_table, reach
from .killing import Kill, Matrix, declared, every, rows
from .laws.law import EXAMPLES

__all__ = ["add_arguments", "run"]

FALSE = 1  # a fault survives
WIDTHS = (60, 140)
TENTHS = 10  # of a run, after each of which a file or a pipe gets a line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the two actions and what they take."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="every planted fault, where it was seen, who sees it")
    running = actions.add_parser("run", help="plant faults and see whether the laws notice")
    for action in (listing, running):
        action.add_argument("--fault", metavar="GLOB", default="*", help="only these faults")
        action.add_argument("--json", metavar="FILE", type=Path, help="write the facts to FILE too")
    running.add_argument("--law", metavar="GLOB", default="*", help="only these laws")
    running.add_argument(
        "--all", action="store_true", help="every law on every fault, not the declared pairs alone"
    )
    running.add_argument(
        "--every-cell",
        action="store_true",
        help="with --all: try the cells too that cannot differ, whose law calls nothing of what the"
        " fault replaces",
    )
    running.add_argument(
        "--examples",
        metavar="N",
        type=_positive,
        default=EXAMPLES,
        help="drawn cases per cell (default: %(default)s)",
    )
    running.add_argument(
        "--jobs", metavar="N", type=_positive, default=1, help="processes (default: 1)"
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def run(args: argparse.Namespace) -> int:
    """Prints the list, or the kill matrix. 1 when a fault survives or a promise is broken.

    Raises UsageError for a GLOB that matches nothing and for options that do not go together, and
    OSError before anything is planted where FILE cannot be written.
    """
    chosen = _matching(faults.REGISTRY, args.fault, "fault")
    columns = min(max(shutil.get_terminal_size().columns, WIDTHS[0]), WIDTHS[1])
    if args.action == "list":
        _write(args.json, [_facts(faults.REGISTRY[f]) for f in chosen])
        print("\n".join(_listed(chosen, columns)))
        return 0
    law_ids = _matching(laws.REGISTRY, args.law, "law")
    pairs = (every if args.all else declared)(chosen, law_ids)
    if not pairs:
        what = "concerns the decoder of" if args.all else "declares"
        raise UsageError(f"logitproof faults: none of these laws {what} one of these faults")
    if args.every_cell and not args.all:
        raise UsageError("logitproof faults: --every-cell goes with --all")
    if args.json is not None:
        args.json.open("a", encoding="utf-8").close()
    looks = args.all and not args.every_cell
    matrix = _computed(pairs, args.examples, args.jobs, looks=looks)
    _write(args.json, matrix.facts())
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print("\n".join(kill_table.lines(matrix, width=columns, colour=colour)))
    return FALSE if matrix.survivors or matrix.broken_promises else 0


def _matching(registry: Mapping[str, Any], pattern: str, kind: str) -> list[str]:
    found = [id_ for id_ in registry if fnmatchcase(id_, pattern)]
    if not found:
        raise UsageError(f"logitproof faults: no {kind} matches {pattern!r}")
    return found


def _computed(pairs: Mapping[str, list[str]], examples: int, jobs: int, *, looks: bool) -> Matrix:
    start = time.perf_counter()
    tried = _reaching(pairs, examples, jobs, start) if looks else pairs
    kills = [
        Kill(fault=fault, law=law, killed=False, examples=0, seconds=0.0, reached=False)
        for fault, some in pairs.items()
        for law in some
        if law not in tried[fault]
    ]
    show = _progress(len(pairs), "faults", start)
    found = rows(tried, examples=examples, jobs=jobs)
    for number, (fault, row) in enumerate(zip(pairs, found, strict=True), 1):
        kills += row
        show(number, fault)
    return Matrix(kills=tuple(kills), seconds=round(time.perf_counter() - start, 1))


def _reaching(
    pairs: Mapping[str, list[str]], examples: int, jobs: int, start: float
) -> Mapping[str, list[str]]:
    some = reach.asked(pairs)
    show = _progress(len(some), "laws watched", start)
    called: dict[reach.Asked, reach.Calls] = {}
    found = reach.calls(some, examples=examples, jobs=jobs)
    for number, (asked, calls) in enumerate(zip(some, found, strict=True), 1):
        called[asked] = calls
        show(number, asked[1])
    return reach.reaching(pairs, called)


def _progress(total: int, what: str, start: float) -> Callable[[int, str], None]:
    """On a terminal one line that is overwritten and goes; elsewhere a line for every tenth."""
    if sys.stderr.isatty():

        def overwrite(number: int, name: str) -> None:
            text = f"[{number}/{total}] {name}" if number < total else ""
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

        return overwrite

    def tell(number: int, _: str) -> None:
        if number * TENTHS // total > (number - 1) * TENTHS // total:
            took = time.perf_counter() - start
            print(f"{number} of {total} {what} in {took:.0f} s", file=sys.stderr, flush=True)

    return tell


def _facts(fault: faults.Fault) -> dict[str, Any]:
    return {
        "id": fault.id,
        "kind": fault.kind,
        "source": fault.source,
        "statement": fault.statement,
        "places": [f"{owner.__name__}.{name}" for owner, name in fault.places],
        "killed_by": list(fault.killed_by),
    }


def _listed(chosen: list[str], width: int) -> Iterator[str]:
    for fault in (faults.REGISTRY[f] for f in chosen):
        yield fault.id
        yield from _hanging(fault.statement, width)
        yield from _hanging(f"{fault.kind}; {fault.source}", width)
        yield from _hanging(f"seen by {', '.join(fault.killed_by)}", width)
    yield ""
    yield "Known equivalents: these change no bit, so no law may see them."
    for fault in faults.EQUIVALENTS.values():
        yield fault.id
        yield from _hanging(f"{fault.statement} ({fault.source})", width)
    linked = sum("peers.md" in f.source or "cases:" in f.source for f in faults.REGISTRY.values())
    yield ""
    yield (
        f"{len(chosen)} of {len(faults.REGISTRY)} faults; {linked} come from the measured order"
        " changes or from reported cases."
    )


def _hanging(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()), width, initial_indent="    ", subsequent_indent="    "
    )


def _write(path: Path | None, facts: object) -> None:
    if path is not None:
        text = json.dumps(facts, indent=2, allow_nan=False) + "\n"
        path.write_text(text, encoding="utf-8", newline="\n")
