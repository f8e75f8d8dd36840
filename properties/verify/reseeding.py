"""Other cases of the same shapes: a seed of the caller's turns the fixed ones into its own."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any

from logitproof.properties.laws.cases import PAD, Case
from logitproof.properties.scalar import Generator

__all__ = ["reseeded"]

OURS = "logitproof.properties."  # published figures lie elsewhere and stay what they are


def reseeded(case: Any, seed: int) -> Any:
    """The case with weights or values of another seed, and ids renamed so that repeats stay.

    The same seed and case give the same result; sizes, layouts and regimes stay.
    """
    if not is_dataclass(case) or isinstance(case, type) or not isinstance(_seed(case), int):
        return case
    if not type(case).__module__.startswith(OURS):
        return case
    generator = Generator((seed ^ Generator(_seed(case)).word()) % (1 << 64))
    changed: Any = replace(case, seed=generator.word() >> 1)
    return _renamed(changed, generator) if isinstance(changed, Case) else changed


def _seed(case: Any) -> Any:
    return getattr(case, "seed", None)


def _renamed(case: Case, generator: Generator) -> Case:
    """Every id and target by another name, the same one wherever it stands."""
    names = list(range(case.config.vocabulary_size))
    for last in range(len(names) - 1, 0, -1):
        other = generator.below(last + 1)
        names[last], names[other] = names[other], names[last]

    def renamed(rows: Any) -> list[list[int]]:
        return [[v if v == PAD else names[v] for v in row] for row in rows]

    return replace(case, ids=renamed(case.ids), targets=renamed(case.targets))
