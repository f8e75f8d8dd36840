"""What lies between ids and logits, by name and in the order of the data flow.

`embeddings`; per block `blocks.0.query`, `.key`, `.value` [B, H, T, d_h], the first two rotated,
`.probabilities` [B, H, T, T] with 0 where nothing is read, `.mix` [B, H, T, d_h],
`.attention_residual`, `.output` [B, T, D]; `hidden` [B, T, D]; `logits` [B, T, V].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitproof.core import NO_GRAD, Decoder, SequenceLayout, TextInputEncoder

from .laws.protocol import Ids
from .scalar import Layout, ScalarDecoder

__all__ = ["core_taps", "scalar_taps"]

Array = NDArray[np.float64]
STEPS = ("query", "key", "value", "probabilities", "mix", "attention_residual", "output")


def core_taps(decoder: Decoder, ids: Ids, layout: SequenceLayout | None) -> dict[str, Array]:
    """The core's, from a forward that records nothing."""
    encoder = TextInputEncoder(decoder, ids, layout)
    output = decoder.backbone.forward(encoder.encode(NO_GRAD, decoder.backbone))
    taps = {"embeddings": output.boundaries[0].value}
    for layer, steps in enumerate(output.blocks):
        B, H, T, _ = steps["query"].shape
        for name in STEPS:
            value = steps[name].value
            taps[f"blocks.{layer}.{name}"] = (
                value.reshape(B, H, T, T) if name == "probabilities" else value
            )
    taps["hidden"] = output.hidden.value
    taps["logits"] = decoder.head.forward(NO_GRAD, output.hidden).value
    return taps


def scalar_taps(decoder: ScalarDecoder, ids: Ids, layout: Layout | None) -> dict[str, Array]:
    """The scalar decoder's."""
    rows = decoder.rows(ids, layout)
    first = [row.blocks[0].norm.x if row.blocks else row.final.x for row in rows]
    taps: dict[str, Array] = {"embeddings": np.array(first)}
    for layer in range(decoder.config.layers):
        blocks = [row.blocks[layer] for row in rows]
        steps: dict[str, Any] = {
            name: [[getattr(head, name) for head in block.heads] for block in blocks]
            for name in ("query", "key", "value")
        }
        steps["probabilities"] = [
            [_square(head.probabilities, row.cells.starts) for head in row.blocks[layer].heads]
            for row in rows
        ]
        steps["mix"] = [
            [[cell[head.features] for cell in block.mixed] for head in block.heads]
            for block in blocks
        ]
        steps["attention_residual"] = [block.ffn_norm.x for block in blocks]
        steps["output"] = [block.out for block in blocks]
        taps |= {f"blocks.{layer}.{name}": np.array(steps[name]) for name in STEPS}
    taps["hidden"] = np.array([row.final.out for row in rows])
    taps["logits"] = np.array([row.logits for row in rows])
    return taps


def _square(probabilities: list[list[Any]], starts: Sequence[int]) -> Array:
    """[T, T]: of each query the probabilities of its keys, from its first one on."""
    square = np.zeros((len(starts), len(starts)))
    for t, (row, start) in enumerate(zip(probabilities, starts, strict=True)):
        square[t, start : start + len(row)] = row
    return square
