"""All boundaries, and the sets of faults that can be planted in them."""

from __future__ import annotations

from collections.abc import Iterable

from logitproof.core.errors import Refusal

from . import (
    attention,
    backward,
    blocks,
    caches,
    checks,
    configs,
    hand_over,
    layers,
    layouts,
    leaves,
    ledgers,
    models,
    norms,
    operations,
    rotary,
    rows,
    session,
    softmaxes,
    text,
    tokens,
    work,
)
from .boundary import Boundary, NearMiss, Situation, state

__all__ = ["BOUNDARIES", "faults_of", "findings", "refusal"]

BOUNDARIES: tuple[Boundary, ...] = tuple(
    boundary
    for module in (
        leaves,
        operations,
        rows,
        softmaxes,
        backward,
        layers,
        norms,
        rotary,
        attention,
        configs,
        blocks,
        models,
        layouts,
        hand_over,
        text,
        session,
        caches,
        work,
        ledgers,
        checks,
        tokens,
    )
    for boundary in module.BOUNDARIES
)


def faults_of(*boundaries: Boundary) -> list[NearMiss]:
    """Every fault alone."""
    return [miss for boundary in boundaries for miss in boundary.near_misses(upto=1)]


def refusal(boundary: Boundary, situation: Situation) -> Refusal | None:
    """What the call refuses, or None."""
    try:
        boundary.call(situation)
    except Refusal as refused:
        return refused.with_traceback(None)
    return None


def findings(misses: Iterable[NearMiss]) -> list[str]:
    """Every near miss that is accepted, refused by another rule, or leaves a trace."""
    return [f"{miss}: {found}" for miss in misses for found in _findings(miss)]


def _findings(miss: NearMiss) -> list[str]:
    situation = miss.situation()
    before = state(situation)
    refused = refusal(miss.boundary, situation)
    if refused is None:
        return ["accepted"]
    changed = [] if state(situation) == before else ["something changed"]
    return [*miss.complaints(refused), *changed]
