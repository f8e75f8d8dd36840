"""`logitproof detect --decoder NAME`: which conventions a decoder follows."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logitproof.properties.cli import deliver
from logitproof.properties.detective import Answered, Examination, Match, examined
from logitproof.properties.scalar.conventions import CHOICES
from logitproof.properties.verify.subject import maker

__all__ = ["add_arguments", "lines", "run"]

WIDTHS = (60, 140)
INDENT = "    "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares which decoder, and where the facts go."""
    parser.add_argument(
        "--decoder",
        metavar="NAME",
        default="core",
        help="as for `logitproof verify` (default: %(default)s)",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the facts to FILE too")


def run(args: argparse.Namespace) -> int:
    """Asks the decoder and tells what explains its answers. 0 where the specification does.

    Raises: UsageError for a decoder that is none
    """
    found = examined(maker(args.decoder))
    width = min(max(shutil.get_terminal_size().columns, WIDTHS[0]), WIDTHS[1])
    facts = {"decoder": args.decoder, **_facts(found)}
    report = "\n".join(lines(args.decoder, found, width))
    deliver(report, file=args.json, facts=json.dumps(facts, indent=2, allow_nan=False) + "\n")
    return 0 if found.as_specified else 1


def lines(decoder: str, found: Examination, width: int) -> Iterator[str]:
    """One paragraph per question, then the probes, then what it all comes to."""
    yield f"What {decoder} follows, told from its answers:"
    for answer in found.answers:
        yield ""
        yield answer.question
        for told in _told(answer):
            yield from textwrap.wrap(
                told, width, initial_indent=INDENT, subsequent_indent=2 * INDENT
            )
    yield ""
    for probe in found.probes:
        told = f"{probe.question}: {probe.answer} (specified: {probe.specified})"
        yield from textwrap.wrap(told, width, subsequent_indent=INDENT)
    yield ""
    yield from textwrap.wrap(_summary(found), width)


def _told(answer: Answered) -> Iterator[str]:
    if answer.refused is not None:
        yield answer.refused
        return
    if not answer.explained:
        yield (
            f"none of {answer.tried} alternatives, alone or in pairs, gives these numbers;"
            " the nearest:"
        )
    for match in answer.matches:
        yield f"{_named(match)} [{_closeness(match)}]"


def _named(match: Match) -> str:
    told = [
        f"{name}: {choice}, {CHOICES[name][choice]}" for name, choice in match.conventions.changes
    ]
    return "; ".join(told) or "as specified"


def _closeness(match: Match) -> str:
    if match.explains:
        return f"error {match.ratio:.2g} of its derived bound"
    return f"off by {match.distance:.2g} of the largest"


def _summary(found: Examination) -> str:
    if found.as_specified:
        return "Everything asked is answered as specified."
    conventions: dict[str, str] = {}
    for answer in found.answers:
        if answer.explained:
            conventions |= dict(answer.explained[0].conventions.changes)
    open_ = [answer.question for answer in found.answers if not answer.explained]
    parts = []
    if conventions:
        told = ", ".join(f"{name}: {choice}" for name, choice in conventions.items())
        parts.append(f"Other conventions explain it: {told}.")
    if open_:
        parts.append(f"Not explained: {', '.join(open_)}.")
    return " ".join(parts)


def _facts(found: Examination) -> dict[str, Any]:
    return {
        "as_specified": found.as_specified,
        "answers": [
            {
                "question": answer.question,
                "tried": answer.tried,
                "refused": answer.refused,
                "explained": bool(answer.explained),
                "matches": [
                    {
                        "conventions": dict(match.conventions.changes),
                        "distance": match.distance,
                        "ratio": match.ratio,
                    }
                    for match in answer.matches
                ],
            }
            for answer in found.answers
        ],
        "probes": [
            {"question": p.question, "answer": p.answer, "specified": p.specified}
            for p in found.probes
        ],
    }
