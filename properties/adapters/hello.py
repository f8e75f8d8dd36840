"""The first question to a program: which protocol, which claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .arrays import ENCODINGS, refuse
from .calls import CARRIED, FORMAT

__all__ = ["FUNCTIONS", "HELLO", "Hello", "claims", "hello_line", "read_hello"]

HELLO = "hello"
FUNCTIONS = ("correctly-rounded", "c-library")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a decoder says of itself; arrays are written to it in `encoding`."""

    capabilities: Mapping[str, bool]
    conventions: Mapping[str, str]
    encoding: str = ENCODINGS[0]


def hello_line(id_: str) -> str:
    """The question."""
    return json.dumps({"id": id_, "call": HELLO, "protocol": FORMAT}, separators=(",", ":")) + "\n"


def read_hello(message: Mapping[str, Any]) -> Hello:
    """The answer. Raises Malformed for anything else, and for a claim that nothing here judges."""
    facts = message.get("result")
    keys = {"protocol", "capabilities", "conventions"}
    if not isinstance(facts, dict) or set(facts) - {"encoding"} != keys:
        refuse("hello", ", ".join(sorted(keys)), facts)
    if facts["protocol"] != FORMAT:
        refuse("hello.protocol", FORMAT, facts["protocol"])
    encoding = facts.get("encoding", ENCODINGS[0])
    if encoding not in ENCODINGS:
        refuse("hello.encoding", " or ".join(ENCODINGS), encoding)
    return Hello(
        capabilities=claims(facts["capabilities"], "hello.capabilities"),
        conventions=_conventions(facts["conventions"]),
        encoding=encoding,
    )


def claims(plain: Any, at: str) -> Mapping[str, bool]:
    """Name -> whether it is claimed. Raises Malformed for a name that no call carries."""
    if not isinstance(plain, dict) or not all(isinstance(able, bool) for able in plain.values()):
        refuse(at, "names, each true or false", plain)
    unknown = [name for name in plain if name not in CARRIED]
    if unknown:
        refuse(at, f"some of {', '.join(CARRIED)}", unknown[0])
    return plain


def _conventions(plain: Any) -> Mapping[str, str]:
    if not isinstance(plain, dict) or not all(isinstance(text, str) for text in plain.values()):
        refuse("hello.conventions", "names and words", plain)
    if plain.get("functions") not in FUNCTIONS:
        refuse("hello.conventions.functions", " or ".join(FUNCTIONS), plain.get("functions"))
    return plain
