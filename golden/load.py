"""Golden cases, read strictly: nothing unknown, missing, twice, or of another form or length."""

import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from .kinds import KINDS, Object, check_form, check_keys

__all__ = [
    "KINDS",
    "ORIGINS",
    "STRENGTHS",
    "Case",
    "Object",
    "case_digest",
    "entry",
    "cells",
    "check_keys",
    "flags",
    "folder",
    "manifest",
    "parse",
    "read",
    "read_one",
    "subjects",
    "unique_json",
    "walk",
]

FORMAT = "logitproof-cases-v1"
FLAGS_FORMAT = "logitproof-flags-v1"
MANIFEST_FORMAT = "logitproof-manifest-v2"
DATA = "cases-v1"
DEEPEST = 64  # brackets inside brackets
FLAGS, MANIFEST = "flags.json", "manifest.json"

ORIGINS = ("published", "derived", "worked")
STRENGTHS = ("exact", "ulps", "bound")

_CASE = ("id", "origin", "source", "why", "flags", "strength", "setup", "input", "expect")
_IDENTIFIER = re.compile(r"[a-z0-9-]+/[a-z0-9-]+")
_ENTRY = re.compile(r"(published|derived|worked) [0-9a-f]{64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[0-9a-f]{16}")
_WORDS = ("nan", "inf", "infinity")  # no value is spelled so; a fault may be called so
_LEAVES = {"f64", "hi", "lo", "i64"}
_ARRAY_FORMS = ({"shape", "f64"}, {"shape", "hi", "lo"}, {"shape", "i64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One fact: what is set up, what goes in, what must come out, and where that comes from."""

    id: str
    origin: str
    source: str
    why: str
    flags: tuple[str, ...]
    strength: str
    setup: Object
    input: Object
    expect: Object

    @property
    def kind(self) -> str:
        """Which sort of call the case describes."""
        return str(self.setup["kind"])

    @property
    def subject(self) -> str:
        """The file it stands in."""
        return self.id.partition("/")[0]

    @property
    def refusal(self) -> Object | None:
        """Code and fields of the refusal expected, or None."""
        return self.expect.get("refusal")

    def as_object(self) -> Object:
        """The case as it is written."""
        held = {name: getattr(self, name) for name in _CASE}
        return {**held, "flags": list(self.flags)}

    def __str__(self) -> str:
        return self.id


def folder() -> Path:
    """Where the cases lie."""
    with resources.as_file(resources.files(__package__).joinpath(DATA)) as path:
        return path


def subjects(root: Path | None = None) -> tuple[str, ...]:
    """The subjects that have a file, in order of their names."""
    reserved = {FLAGS, MANIFEST}
    found = (root or folder()).glob("*.json")
    return tuple(sorted(path.stem for path in found if path.name not in reserved))


def read(*chosen: str, root: Path | None = None) -> list[Case]:
    """The cases of some subjects, by default of all.

    Raises ValueError with the path of the first thing that is not of the format.
    """
    place = root or folder()
    known = flags(place)
    cases: list[Case] = []
    for subject in chosen or subjects(place):
        name = f"{subject}.json"
        found = read_one(place, subject)
        for i, case in enumerate(found):
            unknown = sorted(set(case.flags) - set(known))
            if unknown:
                raise ValueError(f"{name}: cases[{i}].flags: unknown {', '.join(unknown)}")
        cases += found
    return cases


def read_one(place: Path, subject: str) -> list[Case]:
    """The cases of one file, its flags not asked for."""
    return parse(_text(place / f"{subject}.json"), f"{subject}.json")


def parse(text: str, name: str) -> list[Case]:
    """The cases of one file's text; its name, without an ending or with it, is its subject."""
    held = unique_json(text, name)
    check_keys(held, ("format", "subject", "cases"), name)
    if held["format"] != FORMAT:
        raise ValueError(f"{name}: format: {FORMAT} is wanted, not {held['format']!r}")
    subject = name.removesuffix(".json")
    if held["subject"] != subject:
        raise ValueError(f"{name}: subject: {subject} is wanted, not {held['subject']!r:.60}")
    if not isinstance(held["cases"], list):
        raise ValueError(f"{name}: cases: a list is wanted")
    found = [_case(item, f"{name}: cases[{i}]") for i, item in enumerate(held["cases"])]
    seen: set[str] = set()
    for i, case in enumerate(found):
        if case.subject != subject:
            raise ValueError(f"{name}: cases[{i}].id: {case.id} belongs elsewhere")
        if case.id in seen:
            raise ValueError(f"{name}: cases[{i}].id: {case.id} occurs twice")
        seen.add(case.id)
    return found


def flags(root: Path | None = None) -> dict[str, Object]:
    """Flag -> the mistake it exposes, its effect, and a link."""
    place = (root or folder()) / FLAGS
    held = unique_json(_text(place), FLAGS)
    check_keys(held, ("format", "flags"), FLAGS)
    if held["format"] != FLAGS_FORMAT:
        raise ValueError(f"{FLAGS}: format: {FLAGS_FORMAT} is wanted")
    found: dict[str, Object] = _object(held["flags"], f"{FLAGS}: flags")
    for flag, story in found.items():
        check_keys(story, ("mistake", "effect", "link"), f"{FLAGS}: flags.{flag}")
        for part, said in story.items():
            if not isinstance(said, str) or not said:
                raise ValueError(f"{FLAGS}: flags.{flag}.{part}: text is wanted, not {said!r:.60}")
    return found


def manifest(root: Path | None = None) -> Object:
    """The version of the set, the digests of files, and origin and digest of cases."""
    place = (root or folder()) / MANIFEST
    held = unique_json(_text(place), MANIFEST)
    check_keys(held, ("format", "version", "files", "cases"), MANIFEST)
    if held["format"] != MANIFEST_FORMAT or type(held["version"]) is not int:
        raise ValueError(f"{MANIFEST}: format {MANIFEST_FORMAT} and a whole version are wanted")
    for part, form, what in (("files", _DIGEST, "64 hex digits"),
                             ("cases", _ENTRY, "an origin and 64 hex digits")):  # fmt: skip
        for name, entered in _object(held[part], f"{MANIFEST}: {part}").items():
            if not isinstance(entered, str) or not form.fullmatch(entered):
                raise ValueError(f"{MANIFEST}: {part}.{name}: {what} are wanted")
    return held


def _object(value: Any, path: str) -> Object:
    if not isinstance(value, dict):
        raise ValueError(f"{path}: an object is wanted, not {type(value).__name__}")
    return value


def case_digest(case: Case) -> str:
    """The SHA-256 of the case in canonical JSON."""
    text = json.dumps(case.as_object(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(text.encode("ascii")).hexdigest()


def entry(case: Case) -> str:
    """What the manifest says of a case: where it comes from, and its digest."""
    return f"{case.origin} {case_digest(case)}"


def cells(array: Object, name: str = "f64") -> list[Any]:
    """The doubles (f64, hi, lo) or integers (i64) of an array, row-major."""
    words = [word for row in array[name] for word in row.split()]
    if name == "i64":
        return [int(word) for word in words]
    return [struct.unpack(">d", bytes.fromhex(word))[0] for word in words]


def unique_json(text: str, name: str) -> Object:
    """An object from JSON text without floats, keys given twice or words for numbers."""

    def refuse(token: str) -> None:
        raise ValueError(f"{name}: {token}: floats are written as 16 hex digits")

    def unique(pairs: list[tuple[str, Any]]) -> Object:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = sorted(key for key in found if [k for k, _ in pairs].count(key) > 1)
            raise ValueError(f"{name}: {', '.join(twice)}: a key occurs twice")
        return found

    try:
        held = json.loads(text, object_pairs_hook=unique, parse_float=refuse, parse_constant=refuse)
    except json.JSONDecodeError as fault:
        raise ValueError(f"{name}: line {fault.lineno}: {fault.msg}") from None
    except RecursionError:
        raise ValueError(f"{name}: brackets are nested too deeply") from None
    except ValueError as fault:
        told = str(fault) if str(fault).startswith(f"{name}: ") else f"{name}: {fault}"
        raise ValueError(told) from None
    if not isinstance(held, dict):
        raise ValueError(f"{name}: an object is wanted")
    if _depth(held) > DEEPEST:
        raise ValueError(f"{name}: brackets are nested too deeply")
    return held


def _depth(value: Any) -> int:
    """How deep objects and lists are nested, without a call per level."""
    level, depth = [value], 0
    while level:
        depth += 1
        holders = [v for v in level if isinstance(v, dict | list)]
        level = [x for v in holders for x in (v.values() if isinstance(v, dict) else v)]
    return depth


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as fault:
        raise ValueError(f"{path.name}: {fault.strerror or fault}") from None
    for mark, what in ((b"\r", "a carriage return; lines end in a line feed alone"),
                       (b"\xef\xbb\xbf", "a byte order mark")):  # fmt: skip
        if mark in raw:
            raise ValueError(f"{path.name}: line {_line(raw, raw.index(mark))}: {what}")
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError as fault:
        line = _line(raw, fault.start)
        raise ValueError(f"{path.name}: line {line}: a byte that is not ASCII") from None


def _line(raw: bytes, at: int) -> int:
    return raw.count(b"\n", 0, at) + 1


def _case(item: Any, path: str) -> Case:
    check_keys(item, _CASE, path)
    for name in ("id", "origin", "source", "why", "strength"):
        if not isinstance(item[name], str) or not item[name]:
            raise ValueError(f"{path}.{name}: text is wanted, not {item[name]!r:.60}")
        if not item[name].isprintable():
            raise ValueError(f"{path}.{name}: a character that cannot be printed")
    if not _IDENTIFIER.fullmatch(item["id"]):
        raise ValueError(f"{path}.id: subject/name is wanted, not {item['id']!r}")
    for name, allowed in (("origin", ORIGINS), ("strength", STRENGTHS)):
        if item[name] not in allowed:
            raise ValueError(f"{path}.{name}: one of {', '.join(allowed)}, not {item[name]!r}")
    if not isinstance(item["flags"], list) or not all(isinstance(f, str) for f in item["flags"]):
        raise ValueError(f"{path}.flags: a list of names is wanted")
    check_form(item, path)
    for name in ("setup", "input", "expect"):
        _check_value(item[name], f"{path}.{name}")
    return Case(**{**item, "flags": tuple(item["flags"])})


def _check_value(value: Any, path: str) -> None:
    """Arrays anywhere inside: exact keys, whole rows, 16 hex digits."""
    if isinstance(value, dict) and _LEAVES & set(value):
        _check_array(value, path)
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            name = f"{path}.{key}" if isinstance(value, dict) else f"{path}[{key}]"
            _check_value(inner, name)
    elif isinstance(value, str) and value.lower().lstrip("+-") in _WORDS and path[-6:] != ".fault":
        raise ValueError(f"{path}: {value}: floats are written as 16 hex digits")


def _check_array(array: Object, path: str) -> None:
    if set(array) not in _ARRAY_FORMS:
        raise ValueError(f"{path}: no form of an array has the keys {sorted(array)}")
    shape = array["shape"]
    if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"{path}.shape: sizes are wanted, not {shape!r}")
    width = shape[-1] if shape else 1
    count = math.prod(shape[:-1]) if math.prod(shape) else 0
    for name in sorted(set(array) - {"shape"}):
        rows = array[name]
        if not isinstance(rows, list) or len(rows) != count:
            raise ValueError(f"{path}.{name}: {count} rows are wanted")
        for i, row in enumerate(rows):
            _check_row(row, width, name, f"{path}.{name}[{i}]")


def _check_row(row: Any, width: int, name: str, path: str) -> None:
    words = row.split(" ") if isinstance(row, str) else []
    if len(words) != width:
        raise ValueError(f"{path}: {width} words are wanted")
    form = re.compile(r"0|-?[1-9][0-9]{0,18}") if name == "i64" else _WORD
    for word in words:
        if not form.fullmatch(word):
            raise ValueError(f"{path}: {word!r} is no {'integer' if name == 'i64' else 'double'}")


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path; an array's row is a leaf."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and not all(type(v) is int for v in value):
        for i, inner in enumerate(value):
            yield from walk(inner, f"{path}[{i}]")
    else:
        yield path, value
