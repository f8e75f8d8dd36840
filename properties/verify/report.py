"""The report of a verification: facts for a file, lines for a person."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from logitproof.properties.detected import FOLLOWS, PARTLY, Detected, detected, facts
from logitproof.properties.detective import Examination
from logitproof.properties.laws.ulps import EDGES, Counts

from .environment import Environment

__all__ = [
    "CONVENTIONS",
    "FAILS",
    "HOLDS",
    "KNOWN",
    "NOT_APPLICABLE",
    "UNDECIDED",
    "UNEXPECTED",
    "Report",
    "Verdict",
    "again",
    "conclusion",
    "failure_facts",
    "legend",
    "lines",
]

FORMAT = "logitproof-verify-v3"
HOLDS, FAILS, UNDECIDED, NOT_APPLICABLE = "holds", "FAILS", "undecided", "not applicable"
KNOWN, UNEXPECTED = "known failure", "unexpected pass"
SHORT = {NOT_APPLICABLE: "n/a", KNOWN: "known", UNEXPECTED: "PASSES"}  # where a column is narrow
COLOURS = {HOLDS: "32", FAILS: "1;31", UNDECIDED: "1;33", NOT_APPLICABLE: "33",
           KNOWN: "33", UNEXPECTED: "1;31"}  # fmt: skip
DIM = "2"
CONVENTIONS = "Conventions"
HUNDREDS = 100.0  # from here on only how many digits a ratio has is told
IN_FULL = 3  # failures told part by part on a screen; of the others what was found, and how again
WIDE = 110  # columns from which a statement stands beside its law
LABELS = {"cpu_features": "cpu features", "c_library": "c library"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one law.

    ratios: per case measured, the largest error over its bound
    ulps:   entries measured, by how far they lie from the truth (`ulp_edges` of the facts)
    away:   entries of the array that failed, by how far they lie from what was expected
    grants: the declared class of programs that the bound covers, part by part
    place:  the first place that differs, as far as it is known
    replay: the file that holds the failing case
    known:  why it was expected to fail, where that was told
    """

    id: str
    statement: str
    source: str
    verdict: str
    cases: int
    seconds: float
    entries: int = 0
    undecidable: int = 0
    ratios: tuple[float, ...] = ()
    ulps: Counts = ()
    regimes: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    case: str | None = None
    difference: str | None = None
    place: str | None = None
    away: Counts = ()
    grants: Mapping[str, str] = field(default_factory=dict)
    replay: str | None = None
    known: str | None = None

    @property
    def worst(self) -> float | None:
        """The largest error over its bound."""
        return max(self.ratios, default=None)

    @property
    def median(self) -> float | None:
        """The median over the cases of the largest error over its bound."""
        return sorted(self.ratios)[len(self.ratios) // 2] if self.ratios else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that one run found.

    levels:     what became of each level
    detective:  what the decoder answered when it was asked for its conventions
    """

    subject: str
    profile: str
    seed: int | None
    environment: Environment
    verdicts: tuple[Verdict, ...]
    seconds: float
    levels: Mapping[str, str] = field(default_factory=dict)
    detective: Examination | None = None

    @property
    def conventions(self) -> Detected | None:
        """What the detective's questions come to."""
        return None if self.detective is None else detected(self.detective)

    @property
    def applicable(self) -> tuple[Verdict, ...]:
        """The laws that were tried."""
        return tuple(v for v in self.verdicts if v.verdict != NOT_APPLICABLE)

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The laws that do not hold, those expected not to left aside."""
        return tuple(v for v in self.verdicts if v.verdict == FAILS)

    @property
    def known(self) -> tuple[Verdict, ...]:
        """The laws that do not hold, as expected."""
        return tuple(v for v in self.verdicts if v.verdict == KNOWN)

    @property
    def unexpected(self) -> tuple[Verdict, ...]:
        """The laws that hold although they are listed as failing."""
        return tuple(v for v in self.verdicts if v.verdict == UNEXPECTED)

    @property
    def undecided(self) -> tuple[Verdict, ...]:
        """The laws whose bounds were too wide too often."""
        return tuple(v for v in self.verdicts if v.verdict == UNDECIDED)

    @property
    def holds(self) -> bool:
        """True when every law tried holds or fails as expected, and one was tried."""
        wrong = self.failed or self.undecided or self.unexpected
        return bool(self.applicable) and not wrong

    @property
    def title(self) -> str:
        """Which decoder, how many cases, from where."""
        drawn = "the fixed cases" if self.seed is None else f"seed {self.seed}"
        return f"logitproof verify: {self.subject}, profile {self.profile}, {drawn}"

    def facts(self) -> dict[str, Any]:
        """The report as JSON values."""
        laws = [{**asdict(v), "worst": v.worst, "median": v.median} for v in self.verdicts]
        return {
            "format": FORMAT,
            "subject": self.subject,
            "profile": self.profile,
            "seed": self.seed,
            "environment": asdict(self.environment),
            "ulp_edges": list(EDGES),
            "laws": laws,
            "levels": dict(self.levels),
            "conventions": None if self.detective is None else facts(self.detective),
            "holds": self.holds,
            "seconds": self.seconds,
        }


def again(report: Report, verdict: Verdict) -> str:
    """The command that repeats the finding: the replay, or else the run of this law."""
    if verdict.replay is not None:
        return f"logitproof replay {shlex.quote(verdict.replay)}"
    seed = "" if report.seed is None else f" --seed {report.seed}"
    decoder = "" if report.subject == "core" else f" --decoder {shlex.quote(report.subject)}"
    return f"logitproof verify --profile {report.profile} --law {verdict.id}{decoder}{seed}"


def failure_facts(report: Report, verdict: Verdict) -> dict[str, str]:
    """What there is to know about a law that fails, part by part."""
    parts = {
        "law": f"{verdict.statement} ({verdict.source})",
        "known": verdict.known,
        "place": verdict.place,
        "found": verdict.difference,
        "input": verdict.case,
        "passed": f"{verdict.cases} cases before this one" if verdict.case else None,
        "covers": ". ".join(_parts(verdict)),
        "again": again(report, verdict),
    }
    return {name: text for name, text in parts.items() if text}


def legend(report: Report) -> str:
    """What the verdicts mean, and how much they rest on."""
    cases = f"{sum(v.cases for v in report.applicable)} cases"
    measured = any(v.entries for v in report.verdicts)
    bound = (
        ' "worst" is the largest error over the bound derived for its entry: above 1 is wrong.'
        if measured
        else ""
    )
    return (
        f'"{HOLDS}" means: no difference, bit for bit where bits are stated, in {cases} run in'
        f" {report.seconds:.1f} s. Published figures are all compared; the other laws were tried on"
        f" as many drawn cases as the profile says, which is no proof.{bound}"
    )


def conclusion(report: Report) -> tuple[str, str]:
    """One sentence, and the verdict that it is."""
    tried = len(report.applicable)
    skipped = len(report.verdicts) - tried
    rest = f"; {skipped} not applicable" if skipped else ""
    known = len(report.known)
    rest = (f"; {known} known to fail" if known else "") + rest
    if not tried:
        return "No law is applicable: nothing was tried.", UNDECIDED
    if report.failed:
        word = "FAILS" if len(report.failed) == 1 else "FAIL"
        rest = (f"; {len(report.undecided)} undecided" if report.undecided else "") + rest
        return f"{len(report.failed)} of {_laws(tried)} {word}{rest}.", FAILS
    if report.unexpected:
        count = len(report.unexpected)
        return f"{count} of {_laws(tried)} listed as failing but not{rest}.", UNEXPECTED
    if report.undecided:
        return f"{len(report.undecided)} of {_laws(tried)} undecided{rest}.", UNDECIDED
    tried -= known
    if not tried:
        return f"No law holds that was tried{rest}.", KNOWN
    word = "The one law tried holds" if tried == 1 else f"All {tried} laws hold"
    return f"{word}{rest}.", HOLDS


def lines(report: Report, *, width: int, colour: bool) -> Iterator[str]:
    """The report for a screen of `width` columns."""
    yield from _hanging("", report.title, width)
    yield ""
    for name, fact in asdict(report.environment).items():
        yield from _hanging(f"  {LABELS.get(name, name):<14}", fact, width)
    yield ""
    yield from _table(report, width, colour=colour)
    told: set[str] = set()
    shown = (*report.failed, *report.unexpected, *report.known)
    for number, verdict in enumerate(shown):
        yield ""
        word = verdict.verdict
        yield _painted(f"{verdict.id} {word}", COLOURS[word], colour=colour)
        for name, text in failure_facts(report, verdict).items():
            if name == "again":
                yield f"  {name:<8}{text}"  # whole, to be copied
            elif name == "covers" and number < IN_FULL:
                yield from _covered(_parts(verdict), width, again=text in told)
                told.add(text)
            elif number < IN_FULL or name == "found":
                yield from _hanging(f"  {name:<8}", text, width)
    yield ""
    if report.levels:
        levels = ", ".join(f"{name} {word}" for name, word in report.levels.items())
        yield from _hanging("levels: ", f"{levels}.", width)
        yield ""
    yield from textwrap.wrap(legend(report), width)
    yield ""
    if len(report.failed) > 1:
        yield from textwrap.wrap(f"Fail: {', '.join(_failing_families(report))}.", width)
    if report.conventions is not None:
        yield from _conventions(report.conventions, width, colour=colour)
    sentence, verdict_word = conclusion(report)
    yield _painted(sentence, COLOURS[verdict_word], colour=colour)


def _conventions(found: Detected, width: int, *, colour: bool) -> Iterator[str]:
    """It stands out where it names something."""
    label = f"{CONVENTIONS}:"
    first, *rest = textwrap.wrap(f"{label} {found.sentence}", width, break_on_hyphens=False)
    code = COLOURS[UNDECIDED] if found.word in (FOLLOWS, PARTLY) else DIM
    yield _painted(label, code, colour=colour) + first[len(label) :]
    yield from rest


def _parts(verdict: Verdict) -> list[str]:
    """The declared class of programs, of which a right one never fails; none where bits count."""
    return [f"{part}: {forms}" for part, forms in verdict.grants.items()]


def _covered(parts: Sequence[str], width: int, *, again: bool) -> Iterator[str]:
    """A line or more for each part of the declared class; once is enough."""
    if again:
        yield f"  {'covers':<8}the same programs as above"
        return
    for number, part in enumerate(parts):
        yield from _hanging(f"  {'' if number else 'covers':<8}", part, width)


def _failing_families(report: Report) -> Iterator[str]:
    """`norm 2 of 3`"""
    tried = Counter(v.id.partition(".")[0] for v in report.applicable)
    failed = Counter(v.id.partition(".")[0] for v in report.failed)
    yield from (f"{family} {count} of {tried[family]}" for family, count in failed.items())


def _ratio(worst: float | None) -> str:
    if worst is None:
        return ""
    return f"{worst:.3f}" if worst < HUNDREDS else f"{worst:.0e}"


def _table(report: Report, width: int, *, colour: bool) -> Iterator[str]:
    """A row for each law that was tried, then the others by what they need."""
    if report.applicable:
        yield from _tried(report, width, colour=colour)
    yield from _not_tried(report, width, colour=colour)


def _not_tried(report: Report, width: int, *, colour: bool) -> Iterator[str]:
    by_need: dict[str, list[str]] = {}
    for verdict in report.verdicts:
        if verdict.verdict == NOT_APPLICABLE:
            by_need.setdefault(", ".join(verdict.missing), []).append(verdict.id)
    if not by_need:
        return
    word = f"{SHORT[NOT_APPLICABLE]:<9}"
    count = sum(map(len, by_need.values()))
    named = "1 law needs" if count == 1 else f"{count} laws need"
    shown = _painted(word, COLOURS[NOT_APPLICABLE], colour=colour)
    yield f"  {shown}  {named} what is not claimed:"
    indent = " " * (2 + 9 + 2)
    for need, ids in by_need.items():
        for text in _hanging(indent, f"{need}: {', '.join(ids)}", width):
            yield indent + _painted(text.strip(), DIM, colour=colour)


def _tried(report: Report, width: int, *, colour: bool) -> Iterator[str]:
    longest = max(len(v.id) for v in report.applicable)
    measured = any(v.ratios for v in report.verdicts)
    worst = f"  {'worst':>6}" if measured else ""
    head = f"  {'verdict':<9}  {'law':<{longest}}  {'cases':>5}{worst}"
    timed = len(head) + 9 <= width
    head += f"  {'time':>7}" if timed else ""
    yield f"{head}  statement" if width >= WIDE else head
    for verdict in report.applicable:
        word = SHORT.get(verdict.verdict, verdict.verdict)
        shown = _painted(f"{word:<9}", COLOURS[verdict.verdict], colour=colour)
        ratio = f"  {_ratio(verdict.worst):>6}" if measured else ""
        seconds = f"{verdict.seconds:.2f} s"
        time = f"  {seconds:>7}" if timed else ""
        start = f"  {shown}  {verdict.id:<{longest}}  {verdict.cases:>5}{ratio}{time}"
        indent = " " * (len(head) + 2 if width >= WIDE else 2 + 9 + 2)
        wrapped = list(_hanging(indent, _statement(verdict), width))
        if width >= WIDE:
            yield f"{start}  {_painted(wrapped.pop(0).strip(), DIM, colour=colour)}"
        else:
            yield start
        for text in wrapped:
            yield indent + _painted(text.strip(), DIM, colour=colour)


def _statement(verdict: Verdict) -> str:
    if verdict.undecidable:
        counted = f"{verdict.undecidable} of {verdict.entries} entries undecidable"
        return f"{verdict.statement} ({counted})"
    return verdict.statement


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


def _painted(text: str, code: str, *, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
