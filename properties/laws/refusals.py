"""Laws over every public boundary: which rule refuses, and what a refusal leaves behind."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .components import Components
from .difference import Difference
from .law import Law

__all__ = ["LAWS"]


@dataclass(frozen=True, kw_only=True)
class Share:
    """Every step-th boundary from `start` on; all shares together are all boundaries."""

    start: int
    step: int

    def __str__(self) -> str:
        return f"boundaries {self.start}, {self.start + self.step}, ..."


def _shares(count: int) -> Iterator[Share]:
    for start in range(count):
        yield Share(start=start, step=count)


def _none(what: str, findings: Iterable[str]) -> Difference | None:
    found = next(iter(findings), None)
    return None if found is None else Difference(what=what, expected="none", actual=found)


def _order(implementation: Components, share: Share) -> Difference | None:
    found = implementation.refused_in_order(share.start, share.step)
    return _none("near misses refused by another rule than the first", found)


def _unchanged(implementation: Components, share: Share) -> Difference | None:
    found = implementation.changed_by_refusals(share.start, share.step)
    return _none("refused calls that changed something", found)


def _told(implementation: Components, share: Share) -> Difference | None:
    found = implementation.untold_by_refusals(share.start, share.step)
    return _none("refusals that do not tell or keep their facts", found)


LAWS = (
    Law(
        id="refusals.order",
        statement="At every public boundary the first broken rule of the documented order refuses,"
        " with its facts, alone and beside the next one; where none is broken the call is taken.",
        source="STYLE.md section 7; the Refuses: lines of the public names",
        needs=("boundaries",),
        faults=("width-before-rank", "zero-row-accepted"),
        cases=_shares,
        check=_order,
    ),
    Law(
        id="refusals.nothing-changes",
        statement="A refused call changes no bit of any object that it was given.",
        source="STYLE.md section 1",
        needs=("boundaries",),
        faults=("revision-raised-before-check", "cache-cleared-before-check"),
        cases=_shares,
        check=_unchanged,
    ),
    Law(
        id="refusals.facts",
        statement="A refusal tells its facts in one line, however large they are, and keeps them"
        " when it is copied or pickled; it is made by names alone.",
        source="STYLE.md section 7",
        needs=("boundaries",),
        faults=("facts-lost-by-pickling", "digits-printed-in-full"),
        cases=_shares,
        check=_told,
    ),
)
