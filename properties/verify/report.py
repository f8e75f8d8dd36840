"""The report of a verification: facts for a file, lines for a person."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .environment import Environment

__all__ = ["Report", "Verdict", "lines"]

FORMAT = "logitproof-verify-v1"
HOLDS, FAILS, NOT_ASKED = "holds", "FAILS", "not asked"
COLOURS = {HOLDS: "32", FAILS: "1;31", NOT_ASKED: "33"}  # green, bold red, yellow
WIDE = 110  # columns from which a statement stands beside its law
LABELS = {"cpu_features": "cpu features", "c_library": "c library"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one law."""

    id: str
    statement: str
    source: str
    verdict: str
    cases: int
    seconds: float
    missing: tuple[str, ...] = ()
    case: str | None = None
    difference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that one run found."""

    subject: str
    profile: str
    environment: Environment
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The laws that do not hold."""
        return tuple(v for v in self.verdicts if v.verdict == FAILS)

    @property
    def holds(self) -> bool:
        """True when arithmetic can be relied on here, and every law asked holds."""
        return not self.failed and self.environment.subnormals == "kept"

    def facts(self) -> dict[str, Any]:
        """The report as JSON values."""
        laws = [asdict(v) for v in self.verdicts]
        return {
            "format": FORMAT,
            "subject": self.subject,
            "profile": self.profile,
            "environment": asdict(self.environment),
            "laws": laws,
            "holds": self.holds,
            "seconds": self.seconds,
        }


def lines(report: Report, *, width: int, colour: bool) -> Iterator[str]:
    """The report for a screen of `width` columns."""
    yield f"logitproof verify: {report.subject}, profile {report.profile}"
    yield ""
    for name, fact in asdict(report.environment).items():
        yield from _hanging(f"  {LABELS.get(name, name):<14}", fact, width)
    yield ""
    longest = max(len(v.id) for v in report.verdicts)
    head = f"  {'verdict':<9}  {'law':<{longest}}  {'cases':>5}  {'time':>6}"
    yield f"{head}  statement" if width >= WIDE else head
    for verdict in report.verdicts:
        yield from _row(verdict, longest, width, colour=colour)
    for verdict in report.failed:
        yield ""
        yield from _failure(verdict, report.profile, width, colour=colour)
    yield ""
    yield from textwrap.wrap(_legend(report), width)
    yield ""
    yield _painted(*_conclusion(report), colour=colour)


def _row(verdict: Verdict, longest: int, width: int, *, colour: bool) -> Iterator[str]:
    word = _painted(f"{verdict.verdict:<9}", verdict.verdict, colour=colour)
    seconds = f"{verdict.seconds:.2f} s"
    start = f"  {word}  {verdict.id:<{longest}}  {verdict.cases:>5}  {seconds:>6}"
    needs = f" (needs {', '.join(verdict.missing)})" if verdict.missing else ""
    indent = 2 + 9 + 2
    if width < WIDE:
        yield start
        yield from _hanging(" " * indent, verdict.statement + needs, width)
        return
    shift = indent + longest + 2 + 5 + 2 + 6 + 2
    wrapped = list(_hanging(" " * shift, verdict.statement + needs, width))
    yield f"{start}  {wrapped[0].strip()}"
    yield from wrapped[1:]


def _failure(verdict: Verdict, profile: str, width: int, *, colour: bool) -> Iterator[str]:
    yield _painted(f"{verdict.id} {FAILS}", FAILS, colour=colour)
    parts = {
        "law": f"{verdict.statement} ({verdict.source})",
        "input": verdict.case or "",
        "found": verdict.difference or "",
        "passed": f"{verdict.cases} cases before this one",
        "again": f"logitproof verify --profile {profile} --law {verdict.id}",
    }
    for name, text in parts.items():
        yield from _hanging(f"  {name:<8}", text, width)


def _legend(report: Report) -> str:
    asked = [v for v in report.verdicts if v.verdict != NOT_ASKED]
    cases = f"{sum(v.cases for v in asked)} cases"
    return (
        f'"{HOLDS}" means: no difference, bit for bit where bits are stated, in {cases} run in'
        f" {report.seconds:.1f} s. Published figures are all compared; the other laws were tried on"
        " as many drawn cases as the profile says, which is no proof."
    )


def _conclusion(report: Report) -> tuple[str, str]:
    asked = [v for v in report.verdicts if v.verdict != NOT_ASKED]
    skipped = len(report.verdicts) - len(asked)
    rest = f"; {skipped} not asked" if skipped else ""
    if report.environment.subnormals != "kept":
        return "This process flushes subnormal numbers to zero: nothing is decided.", FAILS
    if report.failed:
        word = "FAILS" if len(report.failed) == 1 else "FAIL"
        return f"{len(report.failed)} of {_laws(len(asked))} {word}{rest}.", FAILS
    word = "The one law asked holds" if len(asked) == 1 else f"All {len(asked)} laws hold"
    return f"{word}{rest}.", HOLDS


def _laws(count: int) -> str:
    return "1 law" if count == 1 else f"{count} laws"


def _hanging(label: str, text: str, width: int) -> Iterator[str]:
    yield from textwrap.wrap(
        text,
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
    )


def _painted(text: str, verdict: str, *, colour: bool) -> str:
    return f"\x1b[{COLOURS[verdict]}m{text}\x1b[0m" if colour else text
