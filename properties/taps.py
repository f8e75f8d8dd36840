"""What lies between ids and logits, by name and in the order of the data flow.

`embeddings`; per block, as `blocks.0.query`: `.attention_norm` [B, T, D], `.query_unrotated`,
`.key_unrotated`, `.query`, `.key`, both rotated, `.value` [B, H, T, d_h], `.scores`,
`.probabilities` [B, H, T, T] with 0 where nothing is read, `.mix` [B, H, T, d_h],
`.attention_residual`, `.ffn_norm` [B, T, D], `.gate`, `.up`, `.product` [B, T, F], `.output`
[B, T, D]; `hidden` [B, T, D]; `logits` [B, T, V]. A decoder offers as many of them as it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitproof.core import NO_GRAD, Decoder, SequenceLayout, TextInputEncoder

from .laws.protocol import Ids
from .scalar import Layout, ScalarDecoder
from .scalar.forward import Block, Head, scale, times

__all__ = ["STAGES", "core_taps", "scalar_taps"]

Array = NDArray[np.float64]
STEPS = ("query", "key", "value", "probabilities", "mix", "attention_residual", "output")
STAGES = (
    "attention_norm", "query_unrotated", "key_unrotated", "query", "key", "value", "scores",
    "probabilities", "mix", "attention_residual", "ffn_norm", "gate", "up", "product", "output",
)  # fmt: skip


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
            name: [[getattr(head, name) for head in _heads(block, name)] for block in blocks]
            for name in ("query", "key", "value")
        }
        for name in ("query", "key"):
            steps[f"{name}_unrotated"] = [_unrotated(decoder, block, name) for block in blocks]
        steps["scores"] = [
            [_square(_scores(decoder, head, row.cells.starts), row.cells.starts)
             for head in row.blocks[layer].heads]
            for row in rows
        ]  # fmt: skip
        steps["probabilities"] = [
            [_square(head.probabilities, row.cells.starts) for head in row.blocks[layer].heads]
            for row in rows
        ]
        steps["attention_norm"] = [block.norm.out for block in blocks]
        steps["ffn_norm"] = [block.ffn_norm.out for block in blocks]
        for name in ("gate", "up", "product"):
            steps[name] = [getattr(block, name) for block in blocks]
        steps["mix"] = [
            [[cell[head.features] for cell in block.mixed] for head in block.heads]
            for block in blocks
        ]
        steps["attention_residual"] = [block.ffn_norm.x for block in blocks]
        steps["output"] = [block.out for block in blocks]
        taps |= {f"blocks.{layer}.{name}": np.array(steps[name]) for name in STAGES}
    taps["hidden"] = np.array([row.final.out for row in rows])
    taps["logits"] = np.array([row.logits for row in rows])
    return taps


def _unrotated(decoder: ScalarDecoder, block: Block, name: str) -> Any:
    """[H][T][d_h], of keys [H_kv][T][d_h]: a projection of one row, before rotation."""
    weight = decoder.weights[f"{block.prefix}.attention.{name}.weight"]
    projected = times(decoder.arithmetic, block.norm.out, weight)
    features = (head.features if name == "query" else head.shared for head in _heads(block, name))
    return [[cell[own] for cell in projected] for own in features]


def _heads(block: Block, name: str) -> list[Head]:
    """All heads; of keys and values, the first that reads each."""
    heads = {head.shared.start: head for head in reversed(block.heads)}
    return block.heads if name == "query" else [heads[start] for start in sorted(heads)]


def _scores(decoder: ScalarDecoder, head: Head, starts: Sequence[int]) -> list[list[Any]]:
    """Per query the scaled scores of its keys, from its first one on."""
    a = decoder.arithmetic
    factor = scale(a, len(head.query[0]))
    spans = zip(head.query, head.probabilities, starts, strict=True)
    return [
        [a.dot(query, key) * factor for key in head.key[start : start + len(read)]]
        for query, read, start in spans
    ]


def _square(probabilities: list[list[Any]], starts: Sequence[int]) -> Array:
    """[T, T]: of each query the probabilities of its keys, from its first one on."""
    square = np.zeros((len(starts), len(starts)))
    for t, (row, start) in enumerate(zip(probabilities, starts, strict=True)):
        square[t, start : start + len(row)] = row
    return square
