"""`logitproof bench`: what the decoder costs here, against peers timed in the same run."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from logitproof.properties.cli import UsageError, deliver

from . import machine
from .law_costs import read
from .lines import report
from .measuring import PARTS, measure
from .sizes import SIZES

__all__ = ["add_arguments", "arguments", "run"]

ROUNDS = 7
MOST_ROUNDS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what to measure and where to put it."""
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="only this part; may be given again"
    )
    parser.add_argument(
        "--size", action="append", choices=list(SIZES), help="only this size; may be given again"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds; default {ROUNDS}")
    parser.add_argument("--slow", action="store_true", help="also what takes minutes")
    parser.add_argument(
        "--laws",
        action="append",
        type=Path,
        metavar="FILE",
        help="written by `logitproof verify --json`: the cost of each law; a second FILE is later",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round to FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also draw FILE, an SVG")


def run(args: argparse.Namespace) -> int:
    """Measures in a process of one thread without settings of BLAS, this one if it is such."""
    _check(args)
    laws = tuple(map(read, args.laws or ()))
    if not machine.is_pinned():
        return machine.run_pinned("logitproof", ["bench", *arguments(args)])
    parts = args.part or PARTS
    names = [name for name in SIZES if name in (args.size or SIZES)]
    measured = measure(parts, names, rounds=args.rounds, slow=args.slow, laws=laws)
    deliver(report(measured), file=args.json, facts=json.dumps(measured.facts(), indent=1) + "\n")
    if args.picture is not None:
        pictures: Any = importlib.import_module(f"{__package__}.pictures")
        pictures.draw(measured, args.picture)
    return 0


def arguments(args: argparse.Namespace) -> list[str]:
    """The command line that says the same."""
    words = ["--rounds", str(args.rounds), *(["--slow"] if args.slow else [])]
    for option in ("part", "size", "laws"):
        for given in getattr(args, option) or ():
            words += [f"--{option}", str(given)]
    for option in ("json", "picture"):
        given = getattr(args, option)
        words += [] if given is None else [f"--{option}", str(given)]
    return words


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError before anything is measured."""
    if not 1 <= args.rounds <= MOST_ROUNDS:
        raise UsageError(f"logitproof bench: --rounds is 1 to {MOST_ROUNDS}, not {args.rounds}")
    if args.laws and len(args.laws) > 2:
        raise UsageError("logitproof bench: --laws takes one report, or one before and one after")
    for path in filter(None, (args.json, args.picture)):
        if not path.absolute().parent.is_dir():
            raise UsageError(f"logitproof bench: {path}: there is no such folder")
    if args.picture is not None and importlib.util.find_spec("matplotlib") is None:
        raise UsageError("logitproof bench: --picture needs matplotlib, which is not installed")
