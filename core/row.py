"""One new row through a decoder on plain arrays: the cached step where nothing is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from . import floats, ops
from .attention import Attention
from .backbone import DecoderBackbone
from .block import DecoderBlock
from .cache import LayerCache, Ticket
from .floats import Array
from .incremental import mix_rows
from .layers import Linear, RmsNorm, SwiGlu
from .rope import RotaryTable
from .text import Decoder, TextOutputHead

__all__ = ["Undecided", "run_row"]


class Undecided(Exception):
    """A guard of the row did not hold: the checked path says what is wrong, if anything is."""


def run_row(
    decoder: Decoder, token: int, layers: Sequence[LayerCache], prefix: int
) -> tuple[Array, list[Ticket]]:
    """Logits [V] of the token at position `prefix`, and one unwritten ticket per layer.

    The operations are those of `run_cached` and the head, in their order, without nodes. A value
    is looked at where nothing that is not finite before it could have been lost: infinities and
    NaN outlast sums, products and projections, only a norm's root and a softmax absorb them.

    token:   below V
    Refuses: nothing. `Undecided`, or a refusal of its parts, sends the caller to the checked path
    Source:  cache.md section 5, numerics.md section 14
    """
    backbone = decoder.backbone
    check_known(decoder)
    check_cache(backbone, layers, prefix)
    tickets: list[Ticket] = []
    x = embed_row(decoder, token)
    for layer, block in enumerate(backbone.blocks):
        normed = norm_row(block.attention_norm, x)
        attended, ticket = _attend(block.attention, normed, layers[layer], prefix, layer)
        tickets.append(ticket)
        x = add_row(x, attended)
        x = add_row(x, swiglu_row(block.ffn, norm_row(block.ffn_norm, x)))
    return head_row(decoder.head, norm_row(backbone.final_norm, x))[0], tickets


def check_known(decoder: Decoder) -> None:
    """Undecided: a part of another type, whose forward is its own."""
    parts: list[tuple[object, type]] = [(decoder.head, TextOutputHead)]
    for block in decoder.backbone.blocks:
        attention, ffn = block.attention, block.ffn
        linears = (attention.query, attention.key, attention.value, attention.output)
        parts += [
            (block, DecoderBlock),
            (attention, Attention),
            (attention.rotation, RotaryTable),
            (block.attention_norm, RmsNorm),
            (block.ffn_norm, RmsNorm),
            (ffn, SwiGlu),
            *[(linear, Linear) for linear in (*linears, ffn.gate, ffn.up, ffn.down)],
        ]
    for part, kind in parts:
        if type(part) is not kind:
            raise Undecided


def check_cache(backbone: DecoderBackbone, layers: Sequence[LayerCache], prefix: int) -> None:
    """Undecided: what `CACHED_ORDER` refuses."""
    capacity = backbone.config.max_positions
    if len(layers) != len(backbone.blocks) or prefix >= capacity:
        raise Undecided
    for layer, block in zip(layers, backbone.blocks, strict=True):
        if (layer.length, layer.batch, layer.capacity) != (prefix, 1, capacity):
            raise Undecided
        if layer.binds(block.attention) is not None:
            raise Undecided


def embed_row(decoder: Decoder, token: int) -> Array:
    """The table's row [1, D]."""
    return decoder.table._value[token : token + 1]


def norm_row(norm: RmsNorm, x: Array) -> Array:
    """x: [1, D]. Returns: [1, D]; numerics.md section 9."""
    mean_square = floats.mean(x * x, axis=1, keep=True)
    if norm.epsilon == 0.0 and mean_square[0, 0] == 0.0:
        raise Undecided
    logarithm = floats.log(mean_square + norm.epsilon)
    inverse = floats.exp(logarithm * -0.5)
    _check(logarithm)  # an infinite mean square has an inverse root of 0
    return _check((x * inverse) * norm.gain._value)


def linear_row(linear: Linear, x: Array) -> Array:
    """x: [1, in]. Returns: [1, out], unchecked."""
    y = floats.contract(x, linear.weight._value)
    return y if linear.bias is None else y + linear.bias._value


def rotate_row(rotation: RotaryTable, heads: Array, position: int) -> Array:
    """heads: [H, d_h]. Returns: their pairs turned, unchecked; numerics.md section 11."""
    cosines, sines = rotation.cosines[position], rotation.sines[position]
    left, right = heads[:, 0::2], heads[:, 1::2]
    turned = np.empty_like(heads)
    np.subtract(left * cosines, right * sines, out=turned[:, 0::2])
    np.add(left * sines, right * cosines, out=turned[:, 1::2])
    turned += 0.0
    return turned


def _attend(
    attention: Attention, normed: Array, cache: LayerCache, position: int, layer: int
) -> tuple[Array, Ticket]:
    """The attention output [1, D], unchecked, and the ticket of the new rows."""
    heads = (attention.heads, attention.head_width)
    query = linear_row(attention.query, normed).reshape(heads)
    key = linear_row(attention.key, normed).reshape(heads)
    value = linear_row(attention.value, normed).reshape(heads)
    query = rotate_row(attention.rotation, query, position)
    key = rotate_row(attention.rotation, key, position)
    mix, score_values = mix_rows(query, key, value, cache, layer)
    ticket = cache.ticket(key, value, score_values)
    return linear_row(attention.output, mix.reshape(1, -1)), ticket


def add_row(identity: Array, branch: Array) -> Array:
    """The residual sum, checked."""
    return _check(identity + branch)


def swiglu_row(ffn: SwiGlu, x: Array) -> Array:
    """x: [1, D]. Returns: [1, D], unchecked; numerics.md section 10."""
    gate = linear_row(ffn.gate, x)
    activated = gate * ops.sigmoid(gate)
    return linear_row(ffn.down, activated * linear_row(ffn.up, x))


def head_row(head: TextOutputHead, hidden: Array) -> Array:
    """hidden: [1, D]. Returns: [1, V], checked."""
    return _check(floats.contract(hidden, floats.row_major(head.table._value.T)))


def _check(values: Array) -> Array:
    if not floats.is_finite(values):
        raise Undecided
    return values
