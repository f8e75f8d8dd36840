"""One new row through the blocks against cached rows, without a tape and without writing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from . import floats
from .arrays import first_non_finite
from .attention import ROLES, Attention, split_heads
from .backbone import DecoderBackbone
from .block import DecoderBlock
from .cache import LayerCache, Ticket
from .errors import BindingRefusal, Code, NumericRefusal, at_stage, check_equal
from .floats import Array
from .prepared import PreparedDecoderInput
from .softmax import RowStatistics
from .tape import NO_GRAD, Tensor, constant

__all__ = ["CACHED_ORDER", "mix_rows", "run_cached"]

# What cached execution checks after the eight reasons (cache.md section 5, step 2).
CACHED_ORDER = (
    Code.PREPARED_CACHED_MODE,
    Code.PREPARED_CACHE_PREFIX,
    Code.PREPARED_CACHE_BINDING,
)


def run_cached(
    backbone: DecoderBackbone,
    prepared: PreparedDecoderInput,
    layers: Sequence[LayerCache],
    prefix: int,
) -> tuple[Tensor, list[Ticket]]:
    """Hidden [1, 1, D] of the row at position `prefix`, and one unwritten ticket per layer.

    Refuses: `PREPARED_ORDER`, `CACHED_ORDER`, then the layers' in data-flow order
    Source:  cache.md section 5, numerics.md section 14
    """
    tickets: list[Ticket] = []

    def stage(layer: int, block: DecoderBlock, x: Tensor) -> Tensor:
        with at_stage("attention_norm"):
            normed = block.attention_norm.forward(x, context=NO_GRAD)
        with at_stage("attention"):
            attended, ticket = _attend(block.attention, normed, layers[layer], prefix, layer)
        tickets.append(ticket)
        return block.after_attention(x, attended, context=NO_GRAD)["output"]

    with prepared.reading(backbone):
        _check_cached(backbone, prepared, layers, prefix)
        boundaries = backbone.run_blocks(prepared.embeddings, stage)
        with at_stage("final_norm"):
            return backbone.final_norm.forward(boundaries[-1], context=NO_GRAD), tickets


def _check_cached(
    backbone: DecoderBackbone,
    prepared: PreparedDecoderInput,
    layers: Sequence[LayerCache],
    prefix: int,
) -> None:
    """Refuses: `CACHED_ORDER`; both checks of one layer before the next layer"""
    layout = prepared.layout
    facts = (
        prepared.context.recording,
        layout.shape,
        layout.lengths.tolist(),
        layout.range_starts.tolist(),
        layout.positions.tolist(),
        len(layers),
    )
    wanted = (False, (1, 1), [1], [[0]], [[prefix]], len(backbone.blocks))
    check_equal(Code.PREPARED_CACHED_MODE, "cached input", wanted, facts)
    for index, (layer, block) in enumerate(zip(layers, backbone.blocks, strict=True)):
        expected = (prefix, 1, backbone.config.max_positions)
        actual = (layer.length, layer.batch, layer.capacity)
        check_equal(Code.PREPARED_CACHE_PREFIX, f"blocks.{index}", expected, actual, layer=index)
        differing = layer.binds(block.attention)
        if differing is not None:
            raise BindingRefusal(
                code=Code.PREPARED_CACHE_BINDING,
                what=f"blocks.{index}",
                expected=differing[0],
                actual=differing[1],
                details={"layer": index},
            )


def _attend(
    attention: Attention, normed: Tensor, cache: LayerCache, position: int, layer: int
) -> tuple[Tensor, Ticket]:
    """The attention output [1, 1, D] of one row, and the ticket that would append its rows."""
    rows = []
    for role in ROLES[:3]:
        with at_stage(role):
            projected = getattr(attention, role).forward(normed, context=NO_GRAD)
            rows.append(split_heads(projected, attention.heads, context=NO_GRAD))
            del projected
    turned = []
    for index, role in enumerate(ROLES[:2]):
        with at_stage(f"{role}_rotation"):
            turned.append(attention.rotation.rotate(rows[index], position, context=NO_GRAD))
    rows[:2] = turned
    query, key, value = (row.value[0, :, 0] for row in rows)  # each [H, d_h]
    mix, score_values = mix_rows(query, key, value, cache, layer)
    ticket = cache.ticket(key, value, score_values)
    merged = constant(mix.reshape(1, 1, attention.model_width))
    with at_stage("output"):
        return attention.output.forward(merged, context=NO_GRAD), ticket


def mix_rows(
    query: Array, key: Array, value: Array, cache: LayerCache, layer: int
) -> tuple[Array, int]:
    """softmax(scores) values per head over the cached rows, the new row last.

    query, key, value: [H, d_h]. Returns: [H, d_h], and how many scores there were
    Refuses: numeric/non-finite-forward (scores, then the mixture)
    Source:  numerics.md section 14
    """
    key_columns, value_rows = cache.prefix()
    what = f"blocks.{layer}.attention"
    with np.errstate(all="ignore"):
        raw = np.empty((len(query), cache.length + 1))
        raw[:, :-1] = floats.row_products(query, key_columns)
        raw[:, -1] = floats.row_dots(query, key)
        _check_finite(raw, "matmul", f"{what}.scores")
        scores = raw * (1.0 / math.sqrt(float(query.shape[1])))
        probabilities = RowStatistics(scores).probabilities()
        mix = floats.weighted_rows(probabilities[:, :-1], value_rows)
        mix += probabilities[:, -1:] * value
    _check_finite(mix, "matmul", f"{what}.mix")
    return mix, raw.size


def _check_finite(values: Array, op: str, what: str) -> None:
    """Refuses: numeric/non-finite-forward"""
    bad = first_non_finite(values)
    if bad is not None:
        raise NumericRefusal(
            code=Code.NON_FINITE_FORWARD,
            what=what,
            at=bad[0],
            value=bad[1],
            details={"op": op},
        )
