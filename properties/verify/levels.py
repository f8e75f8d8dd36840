"""What becomes of each level that a decoder claims, judged apart from the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from logitproof.properties.laws import DecoderUnderTest, Law
from logitproof.properties.laws.levels import LAYOUTS, LEVELS, VALUES, claimed, layout_levels

from .report import FAILS, HOLDS, UNDECIDED, Verdict
from .reseeding import reseeded
from .shrinking import finding
from .subject import Make

__all__ = ["NOT_CLAIMED", "NOT_TRIED", "level_verdicts"]

NOT_CLAIMED, NOT_TRIED = "not claimed", "not tried"


class _Only:
    """A decoder that claims one level alone; what else it does is not looked at."""

    def __init__(self, subject: DecoderUnderTest, level: str) -> None:
        self._subject = subject
        others = {name: False for name in VALUES if level in VALUES and name != level}
        self.capabilities = {**subject.capabilities, **others}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


def level_verdicts(
    laws: Iterable[tuple[Law, Verdict]], make: Make, examples: int, seed: int | None
) -> Mapping[str, str]:
    """Level -> what became of it.

    A level fails where a law does that judges it alone, or that fails with the other values left
    aside; values are judged on rows of equal length, layouts on batches that have them.
    """
    tried = [(law, verdict) for law, verdict in laws if verdict.cases or verdict.case]
    subject = make()
    found = {}
    for level in LEVELS:
        own = [(law, verdict) for law, verdict in tried if level in law.levels]
        words = {_word(law, verdict, level, make, examples, seed) for law, verdict in own}
        order = (FAILS, UNDECIDED, HOLDS)
        word = next((w for w in order if w in words), NOT_TRIED)
        found[level] = word if claimed(subject, level) else NOT_CLAIMED
    return found


def _word(
    law: Law, verdict: Verdict, level: str, make: Make, examples: int, seed: int | None
) -> str:
    if verdict.case is None:
        return HOLDS if verdict.verdict != UNDECIDED else UNDECIDED
    subject = cast("DecoderUnderTest", _Only(make(), level))
    if law.missing(subject):
        return NOT_TRIED
    for case in law.cases(examples):
        if not _stands_for(case, level) or not law.concerns(subject, case):
            continue
        case = case if seed is None else reseeded(case, seed)
        if finding(law, subject, case)[1] is not None:
            return FAILS
    return HOLDS


def _stands_for(case: Any, level: str) -> bool:
    """A batch with padding and packing is the packed level's."""
    laid_out = layout_levels(case)
    return laid_out[-1:] == (level,) if level in LAYOUTS else not laid_out
