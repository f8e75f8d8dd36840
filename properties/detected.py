"""What an examination of a decoder's conventions comes to: a sentence or two, and the facts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .detective import Answered, Examination, Match, Rejudged
from .scalar.conventions import CHOICES

__all__ = [
    "FOLLOWS", "NONE", "NOT_ASKED", "PARTLY", "SPECIFIED", "Detected", "closeness", "detected",
    "facts", "told",
]  # fmt: skip

FOLLOWS, PARTLY, NONE = "follows", "follows in part", "no convention explains it"
SPECIFIED, NOT_ASKED = "as specified", "no answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """What it comes to in a word, and in one or two sentences."""

    word: str
    sentence: str


def detected(found: Examination) -> Detected:
    """Which conventions explain which answers, how closely, and what is nearest to the others."""
    refused = [answer for answer in found.answers if answer.refused is not None]
    asked = [answer for answer in found.answers if answer.refused is None]
    explained = [answer for answer in asked if answer.explained]
    unexplained = [answer for answer in asked if not answer.explained]
    changes = dict(found.followed.changes)
    parts = [
        *_followed(changes),
        *_unexplained(unexplained),
        *_refused(refused),
        *_explained(explained, changes, alone=len(explained) == len(found.answers)),
        *_as_well(explained),
        *_rejudged(found.rejudged),
    ]
    more = any(not batch.followed <= 1.0 for batch in found.rejudged)
    if unexplained:
        word = PARTLY if changes else NONE
    elif changes:
        word = PARTLY if refused or more else FOLLOWS
    else:
        word = SPECIFIED if explained and not refused else NOT_ASKED
    nothing = "It claims nothing that the questions ask for."
    return Detected(word=word, sentence=" ".join(parts) or nothing)


def _followed(changes: dict[str, str]) -> Iterator[str]:
    if changes:
        named = (
            f"{name}: {choice}, not {next(iter(CHOICES[name]))} ({CHOICES[name][choice]})"
            for name, choice in changes.items()
        )
        yield f"It follows {'; '.join(named)}."


def _unexplained(answers: list[Answered]) -> Iterator[str]:
    """The first one; the others are among the facts."""
    if answers:
        first, nearest = answers[0], answers[0].matches[0]
        more = f", nor to {len(answers) - 1} other questions" if len(answers) > 1 else ""
        yield (
            f"No convention or pair of conventions ({first.tried} tried) reproduces its answer to"
            f" {first.question}{more}. Nearest: {nearest.conventions}, {closeness(nearest)}."
        )


def _explained(answers: list[Answered], changes: dict[str, str], *, alone: bool) -> Iterator[str]:
    if not answers:
        return
    worst = max(answer.explained[0].ratio or 0.0 for answer in answers)
    within = f"within {worst:.2g} of the derived bound"
    which = answers[0].question if len(answers) == 1 else f"{len(answers)} answers"
    if alone and len(answers) > 1:
        which = f"all {len(answers)} answers"
    if changes:
        yield f"This reproduces {which}, {within}."
    elif alone:
        yield f"As specified in {which}, {within}: what fails is no convention known here."
    else:
        yield f"As specified: {which}."


def _as_well(answers: list[Answered]) -> Iterator[str]:
    """What explains the first answer too: steps in float32 are told apart by their size alone."""
    others = [str(match.conventions) for match in answers[0].explained[1:]] if answers else []
    if others:
        yield f"Just as well explained by {'; or by '.join(others)}."


def _refused(answers: list[Answered]) -> Iterator[str]:
    if answers:
        more = f"; nor to {len(answers) - 1} more" if len(answers) > 1 else ""
        told_ = (answers[0].refused or "").rstrip(".")
        yield f"No answer to {answers[0].question}: {told_}{more}."


def _rejudged(batches: tuple[Rejudged, ...]) -> Iterator[str]:
    """Whether more is wrong than the conventions."""
    others = [batch.law for batch in batches if not batch.followed <= 1.0]
    if others:
        yield f"More is wrong: it does not reproduce the logits that fail {', '.join(others)}."
    elif batches:
        many = f"all {len(batches)} failing cases" if len(batches) > 1 else "the failing case"
        yield f"It reproduces the wrong logits of {many} too."


def told(match: Match) -> str:
    """The changes of an alternative, each with what it means."""
    return "; ".join(
        f"{name}: {choice}, {CHOICES[name][choice]}" for name, choice in match.conventions.changes
    ) or "as specified"  # fmt: skip


def closeness(match: Match) -> str:
    """How near the answer comes to an alternative."""
    if match.explains:
        return f"error {match.ratio:.2g} of its derived bound"
    off = f"off by {match.distance:.2g} of the largest"
    if match.single is not None and match.single <= 1.0:
        return f"{off}, as steps in float32 may leave it"
    return off


def facts(found: Examination) -> dict[str, Any]:
    """The examination as JSON values; null stands for what is not finite."""
    comes_to = detected(found)
    return {
        "as_specified": found.as_specified,
        "comes_to": comes_to.word,
        "sentence": comes_to.sentence,
        "answers": [_answer_facts(answer) for answer in found.answers],
        "rejudged": [asdict(batch) for batch in found.rejudged],
        "probes": [
            {"question": p.question, "answer": p.answer, "specified": p.specified}
            for p in found.probes
        ],
    }


def _answer_facts(answer: Answered) -> dict[str, Any]:
    return {
        "question": answer.question,
        "tried": answer.tried,
        "refused": answer.refused,
        "explained": bool(answer.explained),
        "matches": [
            {
                "conventions": dict(match.conventions.changes),
                "distance": _finite(match.distance),
                "ratio": _finite(match.ratio),
            }
            for match in answer.matches
        ],
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
