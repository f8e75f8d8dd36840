"""Faults of how a forward is run: what is recorded, kept, and bound to what was read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from logitproof.core import RECORDING, Context, Decoder, PreparedDecoderInput, TextInputEncoder
from logitproof.core.backbone import BackboneOutput, DecoderBackbone

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")


@mistake((Decoder, "_loss"), source="tape.md section 3")
def loss_recorded_all_the_same(right: Any) -> Any:
    """A loss is recorded whatever the context."""
    return lambda self, op, ids, targets, layout, valid, _: right(
        self, op, ids, targets, layout, valid, RECORDING
    )


@mistake((DecoderBackbone, "forward_recomputed"), source="numerics_vjp.md section 6")
def recomputed_without_steps(right: Any) -> Any:
    """A recomputed forward tells no steps of its blocks, recorded or not."""

    def forward_recomputed(self: Any, prepared: PreparedDecoderInput) -> BackboneOutput:
        output: BackboneOutput = right(self, prepared)
        return replace(output, blocks=())

    return forward_recomputed


@mistake((TextInputEncoder, "encode"), source="inputs.md section 3")
def encoder_declares_no_table(right: Any) -> Any:
    """The text encoder declares nothing that it has read."""

    def encode(self: Any, context: Context, backbone: DecoderBackbone) -> PreparedDecoderInput:
        made = right(self, context, backbone)
        return PreparedDecoderInput(
            backbone, context, made.embeddings, made.layout, made.provenance
        )

    return encode


FAULTS = tuple(_FOUND.values())
