"""Laws tried chunk by chunk, here or in processes of their own, with one outcome for both."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, TypeAlias

from logitproof.properties import laws
from logitproof.properties.laws import Law
from logitproof.properties.laws.ulps import Counts, added

from .campaign import campaign
from .census import cells
from .divergence import place
from .environment import check_subnormals
from .jobs import processes
from .reseeding import reseeded
from .shrinking import Failure, failure, finding, shrunk
from .subject import SECONDS, Make, maker

__all__ = ["Part", "Plan", "Progress", "Task", "part_of_worker", "tried"]

Progress: TypeAlias = Callable[[str], None]

LEAST_CHUNK, MOST_CHUNKS = 25, 16  # cases; the same cuts however many processes there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be tried: which decoder, how many drawn cases, from which seed; and where.

    jobs:      processes of this machine
    scheduler: the address of a Dask scheduler whose workers do it in their place
    seconds:   that one answer may take
    shrinks:   whether a failing case can be made smaller, which takes new questions
    detects:   whether a decoder that fails is asked which conventions it follows
    """

    decoder: str
    examples: int
    seed: int | None = None
    jobs: int = 1
    scheduler: str | None = None
    seconds: float = SECONDS
    shrinks: bool = True
    detects: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Some consecutive cases of one law."""

    plan: Plan
    law: str
    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What came of some consecutive cases, up to the first that failed.

    ratios: per case measured, the largest error over its bound
    ulps:   entries measured, by how far they lie from the truth
    """

    cases: int = 0
    entries: int = 0
    undecidable: int = 0
    ratios: tuple[float, ...] = ()
    ulps: Counts = ()
    regimes: Mapping[str, int]
    seconds: float = 0.0
    case: Any = None
    failure: Failure | None = None

    def then(self, later: Part) -> Part:
        """Both, where the first one did not fail."""
        return Part(
            cases=self.cases + later.cases,
            entries=self.entries + later.entries,
            undecidable=self.undecidable + later.undecidable,
            ratios=(*self.ratios, *later.ratios),
            ulps=added(self.ulps, later.ulps),
            regimes=dict(Counter(self.regimes) + Counter(later.regimes)),
            seconds=self.seconds + later.seconds,
            case=later.case,
            failure=later.failure,
        )


def tried(
    chosen: Mapping[str, Law], make: Make, plan: Plan, progress: Progress
) -> Iterator[tuple[Law, tuple[str, ...], Part]]:
    """Each law with what it lacks and, where it lacks nothing, what came of its cases.

    A failing case comes shrunk. Raises HarnessError where arithmetic changed or a process died.
    """
    missing = {id_: law.missing(make()) for id_, law in chosen.items()}
    tasks = {id_: _tasks(law, plan) for id_, law in chosen.items() if not missing[id_]}
    with _parts(plan, chosen, make, tasks) as part_of:
        for number, (id_, law) in enumerate(chosen.items(), 1):
            label = f"[{number}/{len(chosen)}] {id_}"
            part = _whole(tasks.get(id_, []), part_of, label, progress)
            if part.failure is not None:
                progress(f"{label}: looking for a smaller case")
                part = _smaller(law, make, part, shrinks=plan.shrinks)
            yield law, missing[id_], part
    progress("")


def _whole(
    tasks: Sequence[Task], part_of: Callable[[Task], Part], label: str, progress: Progress
) -> Part:
    """The parts in order, up to the first in which a case fails."""
    whole = Part(regimes={})
    for task in tasks:
        progress(f"{label}: {whole.cases} cases")
        whole = whole.then(part_of(task))
        if whole.failure is not None:
            break
    return whole


def _tasks(law: Law, plan: Plan) -> list[Task]:
    total = sum(1 for _ in law.cases(plan.examples))
    size = max(LEAST_CHUNK, -(-total // MOST_CHUNKS))
    return [Task(plan=plan, law=law.id, first=i, count=size) for i in range(0, total, size)]


@contextmanager
def _parts(
    plan: Plan, chosen: Mapping[str, Law], make: Make, tasks: Mapping[str, Sequence[Task]]
) -> Iterator[Callable[[Task], Part]]:
    """Task -> its part: computed when asked for, or ahead by processes."""
    if plan.scheduler is not None:
        with campaign(plan.scheduler, list(chain(*tasks.values())), part_of_worker) as part_of:
            yield part_of
    elif plan.jobs > 1:
        with processes(plan.jobs, list(chain(*tasks.values())), part_of_worker) as part_of:
            yield part_of
    else:
        yield lambda task: _part(task, chosen[task.law], make)


def part_of_worker(task: Task) -> Part:
    """What came of one task, anywhere: it says itself what is to be done."""
    plan = task.plan
    return _part(task, laws.REGISTRY[task.law], maker(plan.decoder, plan.seconds))


def _part(task: Task, law: Law, make: Make) -> Part:
    """The cases of one task on a decoder of its own, in arithmetic that stays as it is."""
    start = time.perf_counter()
    check_subnormals(f"before {law.id}")
    implementation = make()
    part, regimes = Part(regimes={}), Counter[str]()
    ratios: list[float] = []
    for case in islice(law.cases(task.plan.examples), task.first, task.first + task.count):
        if task.plan.seed is not None:
            case = reseeded(case, task.plan.seed)
        if not law.concerns(implementation, case):
            continue
        found, failed = finding(law, implementation, case)
        part = replace(
            part,
            entries=part.entries + found.entries,
            undecidable=part.undecidable + found.undecidable,
            ulps=added(part.ulps, found.ulps),
        )
        ratios += [found.worst_ratio] if found.entries > found.undecidable else []
        regimes.update(cells(case, found.regimes))
        if failed is not None:
            part = replace(part, case=case, failure=failed)
            break
        part = replace(part, cases=part.cases + 1)
    check_subnormals(f"after {law.id}")
    seconds = time.perf_counter() - start
    return replace(part, ratios=tuple(ratios), regimes=dict(regimes), seconds=seconds)


def _smaller(law: Law, make: Make, part: Part, *, shrinks: bool) -> Part:
    """The failing case as small as it gets; as it was, where it fails only now and then."""
    case = shrunk(law, make, part.case) if shrinks else part.case
    again = failure(law, make, case)
    check_subnormals(f"after {law.id}")
    if again is None:
        return part
    return replace(part, case=case, failure=replace(again, place=place(make, case, again)))
