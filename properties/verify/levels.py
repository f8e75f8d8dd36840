"""What becomes of each level that a decoder claims, judged apart from the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, cast

from logitproof.properties.laws import DecoderUnderTest, Law
from logitproof.properties.laws.levels import LAYOUTS, LEVELS, VALUES, claimed, layout_levels

from .report import FAILS, HOLDS, UNDECIDED, Verdict
from .reseeding import reseeded
from .shrinking import finding
from .subject import Make

__all__ = ["NOT_CLAIMED", "NOT_TRIED", "level_verdicts"]

NOT_CLAIMED, NOT_TRIED = "not claimed", "not tried"
ORDER = (FAILS, UNDECIDED, HOLDS)  # the worst word of any law counts
WINDOW = 25  # cases


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

    A level fails where a law does that judges it, with the other values left aside: on rows of
    equal length for a value, on batches that have them for a layout. Looked at are the first case
    that failed and those after it; before it the law held at every level.
    """
    tried = [(law, verdict) for law, verdict in laws if verdict.cases or verdict.case]
    subject = make()
    words: dict[str, set[str]] = {level: set() for level in LEVELS}
    for law, verdict in tried:
        if verdict.case is None:
            word = UNDECIDED if verdict.verdict == UNDECIDED else HOLDS
            found = dict.fromkeys(law.levels, word)
        else:
            cases = _window(law, subject, examples, seed, verdict.cases)
            found = {level: _word(law, cases, level, make) for level in law.levels}
        for level, word in found.items():
            words[level].add(word)
    return {
        level: next((w for w in ORDER if w in words[level]), NOT_TRIED)
        if claimed(subject, level)
        else NOT_CLAIMED
        for level in LEVELS
    }


def _window(
    law: Law, subject: DecoderUnderTest, examples: int, seed: int | None, first: int
) -> list[Any]:
    """Some cases from the one that failed on."""
    concerned = (case for case in law.cases(examples) if law.concerns(subject, case))
    some = islice(concerned, first, first + WINDOW)
    return [case if seed is None else reseeded(case, seed) for case in some]


def _word(law: Law, cases: Iterable[Any], level: str, make: Make) -> str:
    subject = cast("DecoderUnderTest", _Only(make(), level))
    if law.missing(subject):
        return NOT_TRIED
    own = (case for case in cases if _stands_for(case, level))
    failed = any(finding(law, subject, case)[1] is not None for case in own)
    return FAILS if failed else HOLDS


def _stands_for(case: Any, level: str) -> bool:
    """A batch with padding and packing is the packed level's."""
    laid_out = layout_levels(case)
    return laid_out[-1:] == (level,) if level in LAYOUTS else not laid_out
