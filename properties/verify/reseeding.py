"""Other cases of the same kinds: a seed of the caller's turns the fixed ones into its own."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any

from logitproof.properties.laws import Law, cases, fused, larger, regimes
from logitproof.properties.scalar import Generator

__all__ = ["drawn_from", "reseeded"]

OURS = "logitproof.properties."  # published figures lie elsewhere and stay what they are


def reseeded(case: Any, seed: int) -> Any:
    """The case with everything drawn anew but what it is there for: its kind of layout, its regime.

    Sizes, segments, ids, weights and values differ; parts take their sizes from their seed. The
    same seed and case give the same result.
    """
    if not is_dataclass(case) or isinstance(case, type) or not isinstance(_seed(case), int):
        return case
    if not type(case).__module__.startswith(OURS):
        return case
    other = Generator((seed ^ Generator(_seed(case)).word()) % (1 << 64)).word() >> 1
    if isinstance(case, larger.LargerCase | larger.WiderCase):
        return larger.redrawn(case, other)
    if isinstance(case, regimes.TruthCase):
        return regimes.redrawn(case, other)
    if isinstance(case, fused.Steep):
        return fused.redrawn(case, other)
    if isinstance(case, cases.Case):
        return cases.redrawn(case, other)
    changed: Any = replace(case, seed=other)
    return changed


def drawn_from(seed: int | None, law: Law) -> Law:
    """The law over other cases of the same kinds; None keeps the fixed ones."""
    if seed is None:
        return law
    return replace(law, cases=lambda count: (reseeded(case, seed) for case in law.cases(count)))


def _seed(case: Any) -> Any:
    return getattr(case, "seed", None)
