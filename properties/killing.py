"""The kill matrix: each law tried with each fault planted, one process per fault."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from warnings import catch_warnings

from logitproof.core.kernels import ORDERED, Kernel
from logitproof.properties import faults, laws

from .foreign_subject import ForeignSubject
from .narrow_ops import NarrowSubject
from .subjects import CoreSubject
from .textbook import TextbookSubject

__all__ = [
    "CORE", "SUBJECTS", "Kill", "Matrix", "Pairs", "declared", "every", "family", "rows",
    "subject_of",
]  # fmt: skip

CORE: Mapping[str, Kernel | None] = {"steps": None, "fused": ORDERED}
SUBJECTS: Mapping[str, Callable[[], laws.DecoderUnderTest]] = {
    **{form: partial(CoreSubject, kernel) for form, kernel in CORE.items()},
    "textbook": TextbookSubject,
    "foreign": ForeignSubject,
    "narrow": NarrowSubject,
    "narrow-once": partial(NarrowSubject, "float32"),
}

FORMAT = "logitproof-kills-v1"
Pairs = Mapping[str, Sequence[str]]  # fault -> laws


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """What became of one fault under one law.

    examples: cases that the law needed to see it, or tried in vain
    reached:  it was tried; without that the law calls nothing of what the fault replaces, and there
              are no examples
    margin:   of the case that saw it, the largest error over its bound, where that is measured
    crashed:  it was seen because something raised, not because something was found wrong
    """

    fault: str
    law: str
    killed: bool
    examples: int
    seconds: float
    margin: float | None = None
    crashed: bool = False
    reached: bool = True
    words: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The cells that were tried, and what they cost together."""

    kills: tuple[Kill, ...]
    seconds: float

    @property
    def faults(self) -> tuple[str, ...]:
        """Ids of the faults tried, in the order of the registry."""
        tried = {k.fault for k in self.kills}
        return tuple(f for f in faults.REGISTRY if f in tried)

    @property
    def laws(self) -> tuple[str, ...]:
        """Ids of the laws tried, in the order of the registry."""
        tried = {k.law for k in self.kills}
        return tuple(law for law in laws.REGISTRY if law in tried)

    @property
    def survivors(self) -> tuple[str, ...]:
        """Faults that no law tried has seen."""
        seen = {k.fault for k in self.kills if k.killed}
        return tuple(f for f in self.faults if f not in seen)

    @property
    def broken_promises(self) -> tuple[Kill, ...]:
        """Cells whose law declares the fault, and did not see it."""
        return tuple(
            k for k in self.kills if not k.killed and k.fault in laws.REGISTRY[k.law].faults
        )

    @property
    def idle_laws(self) -> tuple[str, ...]:
        """Laws that saw nothing."""
        active = {k.law for k in self.kills if k.killed}
        return tuple(law for law in self.laws if law not in active)

    def families(self) -> dict[str, tuple[int, int, int]]:
        """Family -> its laws, the faults it sees, and those that no other family sees."""
        seen: dict[str, set[str]] = {family(law): set() for law in self.laws}
        for kill in self.kills:
            if kill.killed:
                seen[family(kill.law)].add(kill.fault)
        return {
            name: (
                sum(family(law) == name for law in self.laws),
                len(own),
                len(own - {f for other, some in seen.items() if other != name for f in some}),
            )
            for name, own in seen.items()
        }

    def facts(self) -> dict[str, Any]:
        """The matrix as JSON values: a row per fault, a column per law, null where not asked."""
        cells = {(k.fault, k.law): k for k in self.kills}
        grid = [[cells.get((f, law)) for law in self.laws] for f in self.faults]
        return {
            "format": FORMAT,
            "faults": list(self.faults),
            "laws": list(self.laws),
            "killed": [[None if k is None else k.killed for k in row] for row in grid],
            "examples": [[None if k is None else k.examples for k in row] for row in grid],
            "margins": [[None if k is None else k.margin for k in row] for row in grid],
            "survivors": list(self.survivors),
            "equivalents": list(faults.EQUIVALENTS),
            "cells": [asdict(k) for k in self.kills],
            "seconds": self.seconds,
        }


def family(law: str) -> str:
    """The part of a law's id before its point."""
    return law.partition(".")[0]


def declared(fault_ids: Iterable[str], law_ids: Sequence[str]) -> dict[str, list[str]]:
    """Each fault with the chosen laws that promise to see it."""
    promised = {f: [law for law in law_ids if f in laws.REGISTRY[law].faults] for f in fault_ids}
    return {f: some for f, some in promised.items() if some}


def every(fault_ids: Iterable[str], law_ids: Sequence[str]) -> dict[str, list[str]]:
    """Each fault with those of the laws that concern the decoder that it is planted in, if any."""
    subjects = {fault: subject_of(fault) for fault in fault_ids}
    pairs = {
        fault: [law for law in law_ids if not laws.REGISTRY[law].missing(subject)]
        for fault, subject in subjects.items()
    }
    return {fault: some for fault, some in pairs.items() if some}


def rows(pairs: Pairs, *, examples: int, jobs: int = 1) -> Iterator[tuple[Kill, ...]]:
    """One row per fault, in order; the laws must concern the decoder that it is planted in."""
    if jobs == 1:
        yield from (_row(fault, some, examples) for fault, some in pairs.items())
        return
    spawn = multiprocessing.get_context("spawn")  # a fork would copy whatever this process holds
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        futures = [pool.submit(_row, fault, list(s), examples) for fault, s in pairs.items()]
        for future in futures:
            yield future.result()


def _row(fault: str, law_ids: Sequence[str], examples: int) -> tuple[Kill, ...]:
    return tuple(_cell(fault, law, examples) for law in law_ids)


def _cell(fault: str, law: str, examples: int) -> Kill:
    start = time.perf_counter()
    with faults.REGISTRY[fault], catch_warnings(action="ignore"):  # those of wrong arithmetic
        outcome = laws.REGISTRY[law](subject_of(fault), examples)
    return Kill(
        fault=fault,
        law=law,
        killed=not outcome.holds,
        examples=outcome.cases + int(not outcome.holds),
        seconds=round(time.perf_counter() - start, 4),
        margin=_margin(outcome),
        crashed=str(outcome.difference).startswith("raised"),
        words=outcome.difference,
    )


def subject_of(fault: str) -> laws.DecoderUnderTest:
    """A decoder of the form that the fault is planted in."""
    return SUBJECTS[faults.REGISTRY[fault].form]()


def _margin(outcome: laws.Outcome) -> float | None:
    """How far over its bound the case went that saw the fault; None for laws about bits."""
    if outcome.holds or outcome.finding is None:
        return None
    ratio = outcome.finding.worst_ratio
    return ratio if 0.0 < ratio < float("inf") else None
