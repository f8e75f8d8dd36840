"""`logitproof verify [--profile quick|ci] [--law GLOB] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from hypothesis import settings

from logitproof.properties import laws, profiles
from logitproof.properties.cli import UsageError
from logitproof.properties.laws import DecoderUnderTest, Law, Outcome
from logitproof.properties.subjects import CoreSubject

from .environment import Environment
from .report import FAILS, HOLDS, NOT_ASKED, Report, Verdict, lines

__all__ = ["add_arguments", "run", "verify"]

FALSE = 1  # something is false
PROFILES = ("quick", "ci")
WIDTHS = (60, 140)

Progress = Callable[[str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how many cases, which laws, and where the facts go."""
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        default=PROFILES[0],
        help="how many drawn cases each law is tried on (default: %(default)s)",
    )
    parser.add_argument(
        "--law", metavar="GLOB", default="*", help="only the laws whose id matches, as in decoder.*"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the facts to FILE too")


def run(args: argparse.Namespace) -> int:
    """Tries the laws on the core, writes the facts, prints the report. 0, or 1 on a failure.

    Raises UsageError for a GLOB that matches no law, and OSError before any law is tried
    where FILE cannot be written.
    """
    chosen = {id_: law for id_, law in laws.REGISTRY.items() if fnmatchcase(id_, args.law)}
    if not chosen:
        raise UsageError(f"logitproof verify: no law matches {args.law!r}")
    if args.json is not None:
        args.json.open("a", encoding="utf-8").close()
    profiles.register()
    examples = settings.get_profile(args.profile).max_examples
    report = verify(CoreSubject(), "core", chosen, args.profile, examples, _progress())
    if args.json is not None:
        text = json.dumps(report.facts(), indent=2, allow_nan=False) + "\n"
        args.json.write_text(text, encoding="utf-8", newline="\n")
    columns = min(max(shutil.get_terminal_size().columns, WIDTHS[0]), WIDTHS[1])
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print("\n".join(lines(report, width=columns, colour=colour)))
    return 0 if report.holds else FALSE


def verify(
    implementation: DecoderUnderTest,
    name: str,
    chosen: Mapping[str, Law],
    profile: str,
    examples: int,
    progress: Progress,
) -> Report:
    """Tries every law chosen, in order."""
    start = time.perf_counter()
    verdicts = []
    for number, law in enumerate(chosen.values(), 1):
        verdicts.append(
            _tried(law, implementation, examples, f"[{number}/{len(chosen)}] {law.id}", progress)
        )
    progress("")
    return Report(
        subject=name,
        profile=f"{profile}",
        environment=Environment.here(),
        verdicts=tuple(verdicts),
        seconds=round(time.perf_counter() - start, 3),
    )


def _tried(
    law: Law, implementation: DecoderUnderTest, examples: int, label: str, progress: Progress
) -> Verdict:
    start = time.perf_counter()
    missing = law.missing(implementation)
    outcome = Outcome(cases=0)
    progress(label)
    for outcome in () if missing else law.steps(implementation, examples):
        progress(f"{label}: {outcome.cases} cases")
    return Verdict(
        id=law.id,
        statement=law.statement,
        source=law.source,
        verdict=NOT_ASKED if missing else HOLDS if outcome.holds else FAILS,
        cases=outcome.cases,
        seconds=round(time.perf_counter() - start, 3),
        missing=missing,
        case=outcome.case,
        difference=outcome.difference,
    )


def _progress() -> Progress:
    """Overwrites one line of a terminal on standard error; elsewhere says nothing."""
    if not sys.stderr.isatty():
        return lambda _: None

    def show(text: str) -> None:
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    return show
