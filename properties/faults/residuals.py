"""Faults of the residual stream: its states, and forwards that begin with one."""

from __future__ import annotations

from functools import partial
from typing import Any

from logitproof.core import backbone
from logitproof.core.backbone import DecoderBackbone
from logitproof.core.layout import SequenceLayout
from logitproof.core.tape import Tensor

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake", source="inputs.md section 4")


@mistake((DecoderBackbone, "resume"))
def resumed_without_feed_forward(right: Any) -> Any:
    """From a sum after attention a forward goes on with the next block."""
    return lambda self, site, value, **given: right(self, site + site % 2, value, **given)


@mistake((DecoderBackbone, "resume"))
def resumed_as_ordinary_text(right: Any) -> Any:
    """A forward from a state forgets padding and segments."""

    def resume(self: Any, site: int, value: Tensor, *, layout: Any, context: Any) -> Any:
        full = SequenceLayout.full(*layout.shape)
        return right(self, site, value, layout=full, context=context)

    return resume


@mistake((DecoderBackbone, "resume"))
def resumed_from_a_copy(right: Any) -> Any:
    """The state is cut from the graph: it gets no gradient."""
    return lambda self, site, value, **given: right(self, site, value.detach(), **given)


@mistake((backbone, "residual_sites"))
def state_before_attention(right: Any) -> Any:
    """The state after a block's attention is the block's input."""

    def residual_sites(output: Any) -> Any:
        *states, last = right(output)
        return (*(state for state in states[::2] for _ in range(2)), last)

    return residual_sites


@mistake((backbone, "residual_sites"))
def last_state_a_block_early(right: Any) -> Any:
    """The last state is the input of the last block."""

    def residual_sites(output: Any) -> Any:
        states = right(output)
        return (*states[:-1], states[max(0, len(states) - 3)])

    return residual_sites


FAULTS = tuple(_FOUND.values())
