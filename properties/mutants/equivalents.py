"""Changes of core that nothing can see: which line becomes which other one, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EQUIVALENTS", "Equivalent", "reason_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """One change of one line, without the space at either end, and why it changes nothing."""

    module: str
    before: str
    after: str
    reason: str


def _read(text: str) -> Iterator[Equivalent]:
    """Blocks of three lines: `module: reason`, `- before`, `+ after`."""
    for block in text.split("\n\n")[1:]:  # what comes first says what the text is
        head, before, after = block.strip().splitlines()
        module, _, reason = head.partition(": ")
        yield Equivalent(module=module, before=before[2:], after=after[2:], reason=reason)


EQUIVALENTS = tuple(_read(Path(__file__).with_name("equivalents.txt").read_text(encoding="utf-8")))


def reason_of(module: str, diff: str) -> str | None:
    """Why this change is no loss where nothing sees it, if that is known."""
    change = (module, *_changed(diff))
    known = (e for e in EQUIVALENTS if (e.module, e.before, e.after) == change)
    return next((e.reason for e in known), None)


def _changed(diff: str) -> Iterator[str]:
    """The lines that a difference takes away, then those that it adds, where they say anything."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    for sign in "-+":
        yield from (line[1:].strip() for line in lines if line[:1] == sign and line[1:].strip())
