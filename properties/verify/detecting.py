"""Asking a decoder that fails which conventions it follows: of whom, where, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from logitproof.properties.cli import HarnessError
from logitproof.properties.detective import Answered, Examination, examined, rejudged
from logitproof.properties.laws import Law

from .batch import given
from .jobs import processes
from .running import Part, Plan, Progress
from .subject import SHIPPED, Make, maker

__all__ = ["asked", "concerns_detective"]

OFFLINE = "offline:"  # answers in a file: there is nobody to ask
LABEL = "which conventions it follows"


def concerns_detective(law: Law, part: Part) -> bool:
    """Whether what fails is a value of the whole decoder, which a convention may explain.

    It is where the law judges a level, or where the case that fails is a batch.
    """
    return bool(law.levels) or given(part.case) is not None


def asked(
    make: Make, plan: Plan, failing: Mapping[str, Any], progress: Progress
) -> Examination | None:
    """What the decoder answers, as long as one answer may take; where a question is slow, longer.

    Where other conventions explain it, the batches in which laws failed are judged by them too.
    None for the decoders shipped here, which follow the specification or are broken, and for
    answers in a file. Where processes were asked for, it is asked in one: it may end it.
    """
    if plan.decoder in SHIPPED or plan.decoder.startswith(OFFLINE):
        return None
    if plan.jobs == 1:
        found = examined(
            make, seconds=plan.seconds, progress=lambda name: progress(f"{LABEL}: {name}")
        )
    else:
        progress(LABEL)
        found = _asked_elsewhere(plan)
    if found.followed.changes:
        progress(f"{LABEL}: the cases that fail")
        batches = ((law, given(case)) for law, case in failing.items())
        again = (rejudged(make, law, b, found.followed) for law, b in batches if b is not None)
        found = replace(found, rejudged=tuple(batch for batch in again if batch is not None))
    progress("")
    return found


def _asked_elsewhere(plan: Plan) -> Examination:
    try:
        with processes(1, [plan], examined_by_worker) as result:
            return result(plan)
    except HarnessError as death:
        return Examination(answers=(Answered(question="anything", refused=str(death)),))


def examined_by_worker(plan: Plan) -> Examination:
    """What the decoder of a plan answers, in a process of its own."""
    return examined(maker(plan.decoder, plan.seconds), seconds=plan.seconds)
