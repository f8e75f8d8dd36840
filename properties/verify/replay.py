"""`logitproof replay FILE [--decoder NAME]`: one stored case, tried again."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from logitproof.properties import laws
from logitproof.properties.cli import UsageError
from logitproof.properties.laws import Law
from logitproof.properties.laws.levels import claimed, layout_levels

from .divergence import place
from .plain import NotPlain, from_plain, to_plain
from .possible import check_case
from .shrinking import failure
from .subject import maker

__all__ = ["Replay", "add_arguments", "read", "run", "text_of"]

FORMAT = "logitproof-replay-v1"
KEYS = {"format": str, "laws": int, "law": str, "decoder": str, "found": str}
FALSE = 1  # the case fails


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A law, the decoder that failed it, and the case; `found` is what was seen then."""

    law: str
    decoder: str
    case: Any
    found: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the file, and a decoder in place of the stored one."""
    parser.add_argument("file", metavar="FILE", type=Path, help="written by `logitproof verify`")
    parser.add_argument(
        "--decoder", metavar="NAME", help="another decoder than the file names: try a repaired one"
    )


def run(args: argparse.Namespace) -> int:
    """Tries the case and says what came of it. 0 where the law holds, 1 where it fails.

    Raises UsageError for a file that is no replay, and for a decoder that is none or lacks what
    the law needs or the case is laid out in.
    """
    stored = read(args.file)
    decoder = args.decoder or stored.decoder
    law, make = laws.REGISTRY[stored.law], maker(decoder)
    subject = make()
    lacking = (n for n in layout_levels(stored.case) if not claimed(subject, n))
    if missing := (*law.missing(subject), *lacking):
        raise UsageError(f"logitproof replay: {decoder} lacks {', '.join(missing)}")
    failed = failure(law, make, stored.case)
    found = {"found": failed.words} if failed else {}
    where = place(make, stored.case, failed) if failed else None
    placed = {"place": where} if where else {}
    facts = {"law": law.statement, "decoder": decoder, **placed, **found, "input": str(stored.case)}
    print(f"{law.id} {'FAILS' if failed else 'holds'} in this case")
    for name, fact in facts.items():
        print(f"  {name:<8}{fact}")
    return FALSE if failed else 0


def text_of(replay: Replay) -> str:
    """The file. Raises NotPlain for a case that is not made of plain values."""
    case = to_plain(replay.case)
    if from_plain(case) != replay.case:
        raise NotPlain("the case does not survive being written")
    facts = {
        "format": FORMAT,
        "laws": laws.VERSION,
        "law": replay.law,
        "decoder": replay.decoder,
        "case": case,
        "found": replay.found,
    }
    return json.dumps(facts, indent=2, allow_nan=False) + "\n"


def read(path: Path) -> Replay:
    """The replay in a file. Raises UsageError for anything that `text_of` does not write."""
    try:
        facts = json.loads(
            path.read_bytes().decode("utf-8", errors="strict"),
            object_pairs_hook=_object,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
        _check_facts(facts)
        return Replay(
            law=facts["law"],
            decoder=facts["decoder"],
            case=_case(laws.REGISTRY[facts["law"]], facts["case"]),
            found=facts["found"],
        )
    except (ValueError, RecursionError) as wrong:
        raise UsageError(f"logitproof replay: {path}: {wrong}") from wrong


def _check_facts(facts: Any) -> None:
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(f"not of format {FORMAT}")
    if different := set(facts) ^ {*KEYS, "case"}:
        raise ValueError(f"unknown or missing: {', '.join(sorted(different))}")
    wrong = [key for key, kind in KEYS.items() if type(facts[key]) is not kind]
    if wrong:
        raise ValueError(f"{wrong[0]} is no {KEYS[wrong[0]].__name__}")
    if not 1 <= facts["laws"] <= laws.VERSION:
        raise ValueError(f"law set {facts['laws']} is not known here, where it is {laws.VERSION}")
    if facts["law"] not in laws.REGISTRY:
        raise ValueError(f"no law {facts['law']}")


def _case(law: Law, plain: Any) -> Any:
    """The case; one that the law can be tried on."""
    case = from_plain(plain)
    check_case(law, case)
    return case


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text}: a number that is not whole is written as bits")
