"""What became of the mutants of a sample, and how much that says about all of them."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .equivalents import reason_of

__all__ = ["Outcome", "interval", "lines"]

CONFIDENCE = 0.95
BISECTIONS = 60  # halves 1 to below one ulp of any rate that is shown
FAILED, TRYING, TIMEOUT = "failed ", "trying ", "timeout"
STILLBORN = "(before any law)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One mutant: whether it died, what the killer printed, and what was changed."""

    id: str
    module: str
    killed: bool
    output: str
    diff: str
    seconds: float

    @property
    def end(self) -> str:
        """`failed`, `timeout`, `died` without a word, or `survived`."""
        if not self.killed:
            return "survived"
        if FAILED in self.output:
            return "failed"
        return "timeout" if self.output.rstrip().endswith(TIMEOUT) else "died"

    @property
    def equivalent(self) -> str | None:
        """Why nothing sees it, where it survived and that is known."""
        return None if self.killed else reason_of(self.module, self.diff)

    @property
    def law(self) -> str:
        """The law tried last; none where the mutant did not even come to the first."""
        tried = [line for line in self.output.splitlines() if line.startswith(TRYING)]
        return tried[-1].removeprefix(TRYING) if tried else STILLBORN


def interval(killed: int, tried: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of Clopper and Pearson for a rate.

    lower: the p with P(X >= killed) = (1 - confidence) / 2, X binomial(tried, p); upper likewise.
    The strata are sampled in proportion, which makes the true interval narrower, not wider.
    Source: Clopper & Pearson 1934
    """
    tail = (1.0 - confidence) / 2
    lower = 0.0 if killed == 0 else _where(lambda p: _at_most(killed - 1, tried, p), 1.0 - tail)
    upper = 1.0 if killed == tried else _where(lambda p: _at_most(killed, tried, p), tail)
    return lower, upper


def _at_most(most: int, tried: int, p: float) -> float:
    """P(X <= most), X binomial: falls as p grows."""
    terms = (math.comb(tried, i) * p**i * (1 - p) ** (tried - i) for i in range(most + 1))
    return math.fsum(terms)


def _where(falling: Callable[[float], float], value: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > value else (low, middle)
    return low


def lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A row per module, who killed, every timeout, equivalent and survivor, and the rates."""
    yield f"{'module':<16} {'mutants':>7} {'killed':>7}"
    modules = Counter(outcome.module for outcome in outcomes)
    dead = Counter(outcome.module for outcome in outcomes if outcome.killed)
    for module, count in sorted(modules.items()):
        yield f"{module:<16} {count:>7} {dead[module]:>7}"
    yield ""
    yield f"{'killed by the family':<22} {'mutants':>7}"
    families = Counter(o.law.partition(".")[0] for o in outcomes if o.killed)
    yield from (f"{name:<22} {count:>7}" for name, count in families.most_common())
    for outcome in outcomes:
        if outcome.end not in ("failed", "survived") and outcome.law != STILLBORN:
            yield f"\n{outcome.end} in {outcome.law} after {outcome.seconds:.0f} s: {outcome.id}"
            yield textwrap.indent(outcome.diff, "  ")
    survivors = [outcome for outcome in outcomes if not outcome.killed]
    for outcome in sorted(survivors, key=lambda outcome: outcome.equivalent is None):
        end = "survived" if outcome.equivalent is None else f"equivalent, {outcome.equivalent}"
        yield f"\n{end}: {outcome.id}\n{textwrap.indent(outcome.diff, '  ')}"
    yield ""
    yield _summary(outcomes)


def _summary(outcomes: Sequence[Outcome]) -> str:
    ends = Counter(outcome.end for outcome in outcomes)
    tried, killed = len(outcomes), sum(outcome.killed for outcome in outcomes)
    others = sum(outcome.equivalent is None for outcome in outcomes)
    return (
        f"{tried} mutants, {killed} killed ({ends['failed']} by a law, {ends['timeout']} by the"
        f" time limit, {ends['died']} by an exit), {tried - killed} survived:"
        f" {_rate(killed, tried)}.\n"
        f"Of the {others} that are not known to be equivalent: {_rate(killed, others)}.\n"
        f"{sum(outcome.seconds for outcome in outcomes):.0f} s."
    )


def _rate(killed: int, tried: int) -> str:
    if not tried:
        return "none"
    low, high = interval(killed, tried)
    return f"{killed / tried:.1%} killed, with 95 % confidence {low:.1%} to {high:.1%}"
