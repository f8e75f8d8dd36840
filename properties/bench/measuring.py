"""One run of the measurement: which parts, at which sizes, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import machine, ratios
from .contenders import TASKS, WHO, contenders
from .law_costs import LawCost
from .prefixes import Curve, Memory, curve, memory
from .scaling import Growth, growths
from .shares import Shares, shares
from .sizes import SIZES
from .timing import Timing, interleaved

__all__ = ["FORMAT", "PARTS", "Measured", "measure"]

FORMAT = "logitproof-bench-v1"
PARTS = ("ratios", "shares", "scaling", "prefixes", "memory")
SLOW = {"laptop-like": ("ordered",)}  # minutes each
NOT_ASKED = "takes minutes: asked for by --slow"
SECONDS_OF_A_ROUND = 0.1
COARSE_ROUNDS = 3  # of the curves, whose points are many


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that one run found; None where a part was not asked for.

    missing: size -> task -> contender -> why it was not timed
    """

    machine: Mapping[str, str]
    timings: Mapping[str, Mapping[str, Mapping[str, Timing]]]
    missing: Mapping[str, Mapping[str, Mapping[str, str]]]
    shares: tuple[Shares, ...] | None
    growths: tuple[Growth, ...] | None
    curve: Curve | None
    memory: Memory | None
    laws: tuple[Mapping[str, LawCost], ...]

    def facts(self) -> dict[str, Any]:
        """The same as JSON values, every round of every timing among them."""
        return {
            "format": FORMAT,
            "machine": dict(self.machine),
            "ratios": ratios.facts(self.timings),
            "timings": {
                size: {
                    task: {who: timing.rounds for who, timing in by_who.items()}
                    for task, by_who in by_task.items()
                }
                for size, by_task in self.timings.items()
            },
            "missing": self.missing,
            "scaling": [
                {
                    **asdict(one),
                    "expected_exponent": one.expected,
                    "exponents": {who: one.measured(who) for who in one.seconds},
                }
                for one in self.growths or ()
            ],
            "shares": [asdict(one) for one in self.shares or ()],
            "prefixes": None if self.curve is None else asdict(self.curve),
            "memory": None if self.memory is None else asdict(self.memory),
            "laws": [[asdict(cost) for cost in report.values()] for report in self.laws],
        }


def measure(
    parts: Sequence[str],
    names: Sequence[str],
    *,
    rounds: int,
    slow: bool,
    least: float = SECONDS_OF_A_ROUND,
    laws: tuple[Mapping[str, LawCost], ...] = (),
) -> Measured:
    """The parts asked for, at these sizes where a part has sizes.

    least: seconds that the repetitions of one call take in a round, at the least
    """
    timings: dict[str, dict[str, dict[str, Timing]]] = {}
    missing: dict[str, dict[str, dict[str, str]]] = {}
    for size in names if "ratios" in parts else ():
        timings[size], missing[size] = {}, {}
        left_out = () if slow else SLOW.get(size, ())
        for task in TASKS:
            found = contenders(SIZES[size], task, [who for who in WHO if who not in left_out])
            timings[size][task] = interleaved(found.calls, rounds=rounds, least=least)
            missing[size][task] = {**found.missing, **dict.fromkeys(left_out, NOT_ASKED)}
            del found  # and with it the weights of every contender
    coarse = {"rounds": min(rounds, COARSE_ROUNDS), "least": least / 2}
    return Measured(
        machine=machine.facts(),
        timings=timings,
        missing=missing,
        shares=_shares(names, slow=slow) if "shares" in parts else None,
        growths=tuple(growths(**coarse)) if "scaling" in parts else None,  # type: ignore[arg-type]
        curve=curve(**coarse) if "prefixes" in parts else None,  # type: ignore[arg-type]
        memory=memory() if "memory" in parts else None,
        laws=laws,
    )


def _shares(names: Sequence[str], *, slow: bool) -> tuple[Shares, ...]:
    """At every size but the ones that take minutes under a profiler."""
    quick = [name for name in names if slow or name not in SLOW]
    return tuple(one for name in quick for one in shares(name, SIZES[name]))
