"""A law: a statement, the cases it is tried on, and the check that one case passes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .difference import Difference
from .levels import VALUES, claimed, layout_levels
from .protocol import DecoderUnderTest
from .ulps import Counts

__all__ = ["EXAMPLES", "Finding", "Law", "Outcome"]

EXAMPLES = 25  # drawn cases where the caller does not say how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a law with a derived bound measures in one case, whether it passes or not.

    ratios:      of the entries decided, |result - truth| / bound: the median and the largest
    undecidable: entries whose bound is too wide to tell right from wrong, of `entries`
    regimes:     the cells of the census that the case stands in, as `attention=hot`
    ulps:        of the entries decided, how many lie how far from the truth (`ulps.EDGES`)
    """

    difference: Difference | None
    entries: int
    undecidable: int = 0
    median_ratio: float = 0.0
    worst_ratio: float = 0.0
    regimes: tuple[str, ...] = ()
    ulps: Counts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How many cases passed, the case that did not, in words, and what the last case measured."""

    cases: int
    case: str | None = None
    difference: str | None = None
    finding: Finding | None = None

    @property
    def holds(self) -> bool:
        """True when no case failed."""
        return self.difference is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """One relation over any implementation.

    needs:  capabilities without which the law says nothing about an implementation
    levels: those that the law judges, as far as an implementation claims them
    faults: ids of planted wrong implementations that must break it
    cases:  as many drawn cases as asked for, or all published ones
    check:  the first difference that an implementation shows in one case, or None; a finding
            where it is measured against a bound
    grants: the declared class of programs that the bound covers, part by part
    """

    id: str
    statement: str
    source: str
    cases: Callable[[int], Iterable[Any]]
    check: Callable[[Any, Any], Difference | Finding | None]
    faults: tuple[str, ...]
    needs: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    grants: Mapping[str, str] = field(default_factory=dict, compare=False)

    def missing(self, implementation: DecoderUnderTest) -> tuple[str, ...]:
        """The needs that an implementation does not declare, or none of the levels judged."""
        missing = tuple(n for n in self.needs if not claimed(implementation, n))
        values = tuple(n for n in self.levels if n in VALUES)
        if missing or not values or any(claimed(implementation, n) for n in values):
            return missing
        return values

    def concerns(self, implementation: DecoderUnderTest, case: Any) -> bool:
        """Whether an implementation claims to read batches laid out like this one."""
        return all(claimed(implementation, name) for name in layout_levels(case))

    def steps(
        self, implementation: DecoderUnderTest, examples: int = EXAMPLES
    ) -> Iterator[Outcome]:
        """The outcome after each case, up to the first that fails."""
        concerned = (c for c in self.cases(examples) if self.concerns(implementation, c))
        for passed, case in enumerate(concerned):
            finding = None
            try:
                difference = self.check(implementation, case)
                if isinstance(difference, Finding):
                    finding, difference = difference, difference.difference
                words = None if difference is None else str(difference)
            except Exception as error:  # noqa: BLE001 - whatever it raises is its failure
                words = f"raised {type(error).__name__}: {error}"
            if words is not None:
                yield Outcome(cases=passed, case=str(case), difference=words, finding=finding)
                return
            yield Outcome(cases=passed + 1, finding=finding)

    def __call__(self, implementation: DecoderUnderTest, examples: int = EXAMPLES) -> Outcome:
        """The outcome over all cases; it stops at the first that fails."""
        outcome = Outcome(cases=0)
        for outcome in self.steps(implementation, examples):  # noqa: B007 - the last one counts
            pass
        return outcome
