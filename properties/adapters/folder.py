"""The folder of an offline judgement: a manifest, the requests, and the answers when they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from logitproof.properties import laws
from logitproof.properties.cli import UsageError

from .arrays import ENCODINGS, Malformed, parsed
from .calls import FORMAT as PROTOCOL
from .hello import FUNCTIONS, claims
from .offline import Requests

__all__ = ["ANSWERS", "MANIFEST", "REQUESTS", "Folder", "Manifest", "files_of", "read_folder"]

FORMAT = "logitproof-requests-v1"
MANIFEST, REQUESTS, ANSWERS = "manifest.json", "requests.jsonl", "answers.jsonl"
MOST_BYTES = 1 << 32  # of a file of answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What was asked, so that it can be asked again: which laws, how many cases, which claims."""

    law: str
    profile: str
    examples: int
    seed: int | None
    capabilities: Mapping[str, bool]
    conventions: Mapping[str, str]
    encoding: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The manifest, the ids asked with their calls, and the answers by id."""

    manifest: Manifest
    asked: Mapping[str, str]
    answers: Mapping[str, bytes]

    @property
    def missing(self) -> list[str]:
        """The ids that have no answer."""
        return [id_ for id_ in self.asked if id_ not in self.answers]


def files_of(manifest: Manifest, requests: Requests) -> Mapping[str, bytes]:
    """Name -> content; the manifest binds the requests by their SHA-256."""
    content = "".join(requests.lines).encode("utf-8")
    facts = {
        "format": FORMAT,
        "protocol": PROTOCOL,
        "laws": {"version": laws.VERSION, "sha256": laws.digest()},
        "requests": {"count": len(requests.lines), "sha256": hashlib.sha256(content).hexdigest()},
        **asdict(manifest),
    }
    text = json.dumps(facts, indent=2, allow_nan=False) + "\n"
    return {MANIFEST: text.encode("utf-8"), REQUESTS: content}


def read_folder(folder: Path) -> Folder:
    """The folder, with answers that fit its requests, one for one.

    Raises UsageError for another law set, requests that are not those of the manifest, and
    answers that are malformed, given twice or to requests not made here. Some may be missing.
    """
    try:
        manifest, digest = _manifest(_read(folder / MANIFEST))
        content = _read(folder / REQUESTS)
        if hashlib.sha256(content).hexdigest() != digest:
            raise Malformed(f"{REQUESTS} is not the file that the manifest knows")
        asked = {m["id"]: m["call"] for m in map(parsed, content.splitlines())}
        return Folder(manifest=manifest, asked=asked, answers=_answers(folder / ANSWERS, asked))
    except (Malformed, OSError) as wrong:
        raise UsageError(f"{folder}: {wrong}") from wrong


def _read(path: Path) -> bytes:
    if path.stat().st_size > MOST_BYTES:
        raise Malformed(f"{path.name} has more than {MOST_BYTES} bytes")
    return path.read_bytes()


def _manifest(content: bytes) -> tuple[Manifest, str]:
    facts = parsed(content)
    if (facts.get("format"), facts.get("protocol")) != (FORMAT, PROTOCOL):
        raise Malformed(f"{MANIFEST} is not of format {FORMAT} for {PROTOCOL}")
    if facts.get("laws") != {"version": laws.VERSION, "sha256": laws.digest()}:
        raise Malformed(f"exported for another set of laws than {laws.VERSION}, which is here")
    own = {name: facts.get(name) for name in Manifest.__dataclass_fields__}
    kinds = {"law": str, "profile": str, "examples": int, "conventions": dict}
    wrong = [name for name, kind in kinds.items() if type(own[name]) is not kind]
    if type(own["seed"]) not in (int, type(None)) or own["encoding"] not in ENCODINGS:
        wrong.append("seed or encoding")
    if not wrong and own["conventions"].get("functions") not in FUNCTIONS:  # type: ignore[union-attr]
        wrong.append("conventions")
    if wrong or not isinstance(facts.get("requests"), dict):
        raise Malformed(f"{MANIFEST}: {', '.join(wrong) or 'requests'} cannot be read")
    claims(own["capabilities"], "capabilities")
    digest: str = facts["requests"].get("sha256", "")
    return Manifest(**own), digest  # type: ignore[arg-type]


def _answers(path: Path, asked: Mapping[str, str]) -> Mapping[str, bytes]:
    answers: dict[str, bytes] = {}
    foreign: list[str] = []
    for number, line in enumerate(_read(path).splitlines(), 1):
        id_ = _id(line, number)
        if id_ not in asked:
            foreign.append(id_)
        elif answers.setdefault(id_, line) != line:
            raise Malformed(f"{ANSWERS}, line {number}: another answer to {id_} than before")
    if foreign:
        count = f"{len(foreign)} answers are" if len(foreign) > 1 else "1 answer is"
        raise Malformed(f"{ANSWERS}: {count} to requests not made here, the first to {foreign[0]}")
    return answers


def _id(line: bytes, number: int) -> str:
    try:
        id_: Any = parsed(line).get("id")
    except Malformed as wrong:
        raise Malformed(f"{ANSWERS}, line {number}: {wrong}") from wrong
    if not isinstance(id_, str):
        raise Malformed(f"{ANSWERS}, line {number}: no id")
    return id_
