"""Known failures: which laws, why, where it is told, and until when that counts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from logitproof.properties.cli import UsageError

__all__ = ["Known", "known_for", "read_known"]

KEYS = {"law": str, "reason": str, "link": str, "expires": date}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One entry: laws by GLOB that are expected to fail until the day after `expires`."""

    law: str
    reason: str
    link: str
    expires: date

    def __str__(self) -> str:
        return f"{self.reason} ({self.link}, until {self.expires})"


def read_known(path: Path, laws: Iterable[str], today: date) -> tuple[Known, ...]:
    """The entries of a TOML file, `[[known]]` with law, reason, link and expires.

    Raises UsageError for another form, a GLOB that no law matches, and an entry that is expired.
    """
    try:
        facts = tomllib.loads(path.read_bytes().decode("utf-8"))
    except ValueError as wrong:
        raise UsageError(f"{path}: {wrong}") from wrong
    entries = facts.get("known")
    if set(facts) - {"known"} or not isinstance(entries, list):
        raise UsageError(f"{path}: a list [[known]] is wanted, and nothing else")
    ids = tuple(laws)
    return tuple(
        _entry(plain, f"{path}: entry {i}", ids, today) for i, plain in enumerate(entries, 1)
    )


def _entry(plain: Any, at: str, laws: tuple[str, ...], today: date) -> Known:
    if not isinstance(plain, dict) or set(plain) != set(KEYS):
        raise UsageError(f"{at}: {', '.join(KEYS)} are wanted, all of them")
    for key, kind in KEYS.items():
        if type(plain[key]) is not kind or plain[key] == "":
            raise UsageError(f"{at}: {key} must be a {'date' if kind is date else 'text'}")
    entry = Known(**plain)
    if not any(fnmatchcase(id_, entry.law) for id_ in laws):
        raise UsageError(f"{at}: no law matches {entry.law!r}")
    if entry.expires < today:
        raise UsageError(f"{at}: {entry.law} expired on {entry.expires}: {entry.reason}")
    return entry


def known_for(law: str, entries: Iterable[Known]) -> Known | None:
    """The first entry that matches a law."""
    return next((entry for entry in entries if fnmatchcase(law, entry.law)), None)
