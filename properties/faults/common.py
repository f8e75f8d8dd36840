"""Readings of the specification that core and scalar decoder would share: published figures alone
tell them.

Two decoders of the same people agree on what both misread; so do all laws that hold one of them
against the other, or against itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from logitproof.properties.laws import larger, regimes
from logitproof.properties.scalar.decoder import ScalarDecoder
from logitproof.properties.subjects import CoreSubject

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
EXCHANGED = (".ffn.gate.weight", ".ffn.up.weight")


def _forget() -> None:
    """The truths that were kept are those of another reading."""
    regimes.forget()
    larger.forget()


common = partial(planted, _FOUND, kind="mistake", forget=_forget)


def _exchanged(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Each branch under the name of the other, in the order of the names."""
    gate, up = EXCHANGED

    def source(name: str) -> str:
        stem = name.removesuffix(gate)
        return stem + up if stem != name else name.removesuffix(up) + gate

    return {name: weights[source(name) if name.endswith(EXCHANGED) else name] for name in weights}


@common((CoreSubject, "load"), (ScalarDecoder, "__init__"), source="layers.md section 4")
def branches_exchanged_by_both(right_load: Any, right_init: Any) -> Any:
    """Core and scalar decoder take the gate's weights for the other branch, and the reverse."""

    def load(self: CoreSubject, config: Any, weights: Mapping[str, Any]) -> None:
        right_load(self, config, _exchanged(weights))

    def init(self: ScalarDecoder, config: Any, weights: Any, *arithmetic: Any) -> None:
        right_init(self, config, _exchanged(weights), *arithmetic)

    return load, init


FAULTS = tuple(_FOUND.values())
