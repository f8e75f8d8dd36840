"""`logitproof detect --decoder NAME`: which conventions a decoder follows."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

from logitproof.properties.cli import deliver
from logitproof.properties.detected import closeness, detected, facts, told
from logitproof.properties.detective import Answered, Examination, examined
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
    own = {"decoder": args.decoder, **facts(found)}
    report = "\n".join(lines(args.decoder, found, width))
    deliver(report, file=args.json, facts=json.dumps(own, indent=2, allow_nan=False) + "\n")
    return 0 if found.as_specified else 1


def lines(decoder: str, found: Examination, width: int) -> Iterator[str]:
    """One paragraph per question, then the probes, then what it all comes to."""
    yield f"What {decoder} follows, told from its answers:"
    for answer in found.answers:
        yield ""
        yield answer.question
        for text in _told(answer):
            yield from textwrap.wrap(
                text, width, initial_indent=INDENT, subsequent_indent=2 * INDENT
            )
    yield ""
    for probe in found.probes:
        text = f"{probe.question}: {probe.answer} (specified: {probe.specified})"
        yield from textwrap.wrap(text, width, subsequent_indent=INDENT)
    yield ""
    if found.as_specified:
        yield "Everything asked is answered as specified."
    else:
        yield from textwrap.wrap(detected(found).sentence, width)


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
        yield f"{told(match)} [{closeness(match)}]"
