"""`logitproof verify`: tries the laws on a decoder, writes the facts, prints the report."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hypothesis import settings

from logitproof.properties import laws, profiles
from logitproof.properties.adapters.known import Known, known_for, read_known
from logitproof.properties.cli import UsageError
from logitproof.properties.laws import Law

from .environment import Environment, check_subnormals
from .files import check_place, write
from .jobs import processes
from .levels import level_verdicts
from .matrix import KillMatrix, read_matrix
from .page import page
from .plain import NotPlain
from .replay import Replay, text_of
from .report import (
    FAILS,
    HOLDS,
    KNOWN,
    NOT_APPLICABLE,
    UNDECIDED,
    UNEXPECTED,
    Report,
    Verdict,
    lines,
)
from .running import Part, Plan, Progress, tried
from .subject import SECONDS, SHIPPED, Make, adapter_complaint, check_adapter, maker

__all__ = ["add_arguments", "add_outputs", "checked_outputs", "concluded", "run", "verify"]

FALSE = 1  # something is false, or not decided
PROFILES = ("quick", "ci", "soak")
WIDTHS = (60, 140)
UNDECIDABLE = 0.01  # of a law's entries; beyond that its verdict is none
SEEDS = 1 << 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares which cases, which laws, which decoder, and where the facts go."""
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        default=PROFILES[0],
        help="how many drawn cases each law is tried on (default: %(default)s)",
    )
    parser.add_argument(
        "--law", metavar="GLOB", default="*", help="only the laws whose id matches, as in decoder.*"
    )
    parser.add_argument(
        "--decoder",
        metavar="NAME",
        default="core",
        help=f"{', '.join(SHIPPED)}, package.module:factory, or exec:COMMAND, a program that speaks"
        " the protocol (default: %(default)s)",
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=_whole(1, 86_401),
        default=int(SECONDS),
        help="that one answer of your decoder may take (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs", metavar="N", type=_whole(1, 1025), default=1, help="processes (default: 1)"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="of a Dask scheduler: its workers try the laws"
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=_whole(0, SEEDS),
        help="draw other cases than the fixed ones; the same seed draws the same",
    )
    add_outputs(parser)


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Declares what is known to fail, and where the facts go."""
    parser.add_argument(
        "--known", metavar="FILE", type=Path, help="laws that are known to fail, and why"
    )
    for name, what in (("json", "the facts"), ("html", "a page for a browser")):
        parser.add_argument(
            f"--{name}", metavar="FILE", type=Path, help=f"write {what} to FILE too"
        )
    parser.add_argument(
        "--kill-matrix",
        metavar="FILE",
        type=Path,
        help="written by `logitproof faults run --json`: shown in the page",
    )
    parser.add_argument(
        "--replays",
        metavar="DIR",
        type=Path,
        default=Path(),
        help="where the cases that fail are written (default: here)",
    )


def run(args: argparse.Namespace) -> int:
    """Tries the laws, writes the files, prints the report. 0, or 1 on a failure.

    Raises, before any law is tried: UsageError for a GLOB without a law, a decoder that is none
    or a matrix that is none; OSError where a FILE cannot be written; HarnessError, at any time,
    where subnormals are flushed to zero.
    """
    chosen = {id_: law for id_, law in laws.REGISTRY.items() if fnmatchcase(id_, args.law)}
    if not chosen:
        raise UsageError(f"logitproof verify: no law matches {args.law!r}")
    check_subnormals("at the start")
    outputs = checked_outputs(args)
    make = maker(args.decoder, args.time_limit)
    plan = _plan(args)
    check_adapter(args.decoder, _complaint(plan))
    return concluded(chosen, make, plan, args, outputs)


def _complaint(plan: Plan) -> str | None:
    """What the self-test says; where processes were asked for, a decoder may end one of them."""
    named = (plan.decoder, plan.seconds)
    if plan.jobs == 1 or plan.decoder in SHIPPED:
        return adapter_complaint(named)
    with processes(1, [named], adapter_complaint) as complaint:
        return complaint(named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What was asked for beside the table, read and looked at before any law is tried."""

    matrix: KillMatrix | None
    known: tuple[Known, ...]


def checked_outputs(args: argparse.Namespace) -> Outputs:
    """Raises UsageError for files that make no sense, OSError where one cannot be written."""
    _check_files(args)
    matrix = None if args.kill_matrix is None else read_matrix(args.kill_matrix)
    today = datetime.now(UTC).date()
    known = () if args.known is None else read_known(args.known, laws.REGISTRY, today)
    for path in filter(None, (args.json, args.html)):
        check_place(path)
    return Outputs(matrix=matrix, known=known)


def concluded(
    chosen: Mapping[str, Law],
    make: Make,
    plan: Plan,
    args: argparse.Namespace,
    outputs: Outputs,
) -> int:
    """Tries the laws, writes the files, prints the report. 0, or 1 on a failure."""
    profile, matrix = args.profile, outputs.matrix
    report = verify(chosen, make, plan, profile, args.replays, _progress(), outputs.known)
    _write(report, matrix, args.json, args.html)
    columns = min(max(shutil.get_terminal_size().columns, WIDTHS[0]), WIDTHS[1])
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print("\n".join(lines(report, width=columns, colour=colour)))
    return 0 if report.holds else FALSE


def verify(
    chosen: Mapping[str, Law],
    make: Make,
    plan: Plan,
    profile: str,
    replays: Path,
    progress: Progress,
    known: tuple[Known, ...] = (),
) -> Report:
    """Tries every law chosen, in order; the cases that fail go into the folder `replays`."""
    start = time.perf_counter()
    verdicts = [
        _verdict(law, missing, part, _kept(law, part, plan.decoder, replays), known)
        for law, missing, part in tried(chosen, make, plan, progress)
    ]
    judged = zip(chosen.values(), verdicts, strict=True)
    return Report(
        subject=plan.decoder,
        profile=profile,
        seed=plan.seed,
        environment=Environment.here(),
        verdicts=tuple(verdicts),
        levels=level_verdicts(judged, make, plan.examples, plan.seed),
        seconds=round(time.perf_counter() - start, 3),
    )


def _check_files(args: argparse.Namespace) -> None:
    """That the files asked for make sense together."""
    if args.kill_matrix is not None and args.html is None:
        raise UsageError("logitproof verify: --kill-matrix is for the page of --html")
    if args.json is not None and args.json == args.html:
        raise UsageError(f"logitproof verify: {args.json} cannot hold the facts and the page")
    if not args.replays.is_dir():
        raise UsageError(f"logitproof verify: --replays {args.replays}: no such folder")


def _plan(args: argparse.Namespace) -> Plan:
    """A profile that varies, without a seed of the caller's, has one of its own."""
    profiles.register()
    profile = settings.get_profile(args.profile)
    seed = args.seed
    if seed is None and not profile.derandomize:
        seed = profiles.new_seed()
    return Plan(
        decoder=args.decoder,
        examples=profile.max_examples,
        seed=seed,
        jobs=args.jobs,
        scheduler=args.scheduler,
        seconds=args.time_limit,
    )


def _verdict(
    law: Law,
    missing: tuple[str, ...],
    part: Part,
    replay: str | None,
    known: tuple[Known, ...],
) -> Verdict:
    failed = part.failure
    entry = None if missing else known_for(law.id, known)
    word = NOT_APPLICABLE if missing else _word(part)
    if entry is not None:
        word = UNEXPECTED if word == HOLDS else KNOWN
    return Verdict(
        id=law.id,
        statement=law.statement,
        source=law.source,
        verdict=word,
        cases=part.cases,
        seconds=round(part.seconds, 3),
        entries=part.entries,
        undecidable=part.undecidable,
        ratios=part.ratios,
        ulps=part.ulps,
        regimes=part.regimes,
        missing=missing,
        case=None if failed is None else str(part.case),
        difference=None if failed is None else failed.words,
        place=None if failed is None else failed.place,
        away=() if failed is None else failed.ulps,
        grants=law.grants,
        replay=replay,
        known=None if entry is None else str(entry),
    )


def _word(part: Part) -> str:
    if part.failure is not None:
        return FAILS
    return UNDECIDED if part.undecidable > UNDECIDABLE * part.entries else HOLDS


def _kept(law: Law, part: Part, decoder: str, replays: Path) -> str | None:
    """The file with the failing case; None where none failed or it cannot be written."""
    if part.failure is None:
        return None
    path = replays / f"{law.id}.replay.json"
    replay = Replay(law=law.id, decoder=decoder, case=part.case, found=part.failure.words)
    try:
        write(path, text_of(replay))
    except (NotPlain, OSError) as fact:
        print(f"no replay file: {path}: {fact}", file=sys.stderr)
        return None
    return str(path)


def _write(
    report: Report, matrix: KillMatrix | None, facts: Path | None, html: Path | None
) -> None:
    """Both texts first: where one cannot be made, neither file is there."""
    texts: list[tuple[Path, str]] = []
    if facts is not None:
        texts.append((facts, json.dumps(report.facts(), indent=2, allow_nan=False) + "\n"))
    if html is not None:
        texts.append((html, page(report, matrix)))
    for path, text in texts:
        write(path, text)


def _whole(least: int, below: int) -> Any:
    """An argument's type: a whole number from `least`, under `below`."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) < below):
            raise argparse.ArgumentTypeError(f"{text}: a whole number from {least} is wanted")
        return int(text)

    return number


def _progress() -> Progress:
    """Overwrites one line of a terminal on standard error; elsewhere says nothing."""
    if not sys.stderr.isatty():
        return lambda _: None

    def show(text: str) -> None:
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    return show
