"""New rows through a decoder on plain arrays: the cached step where nothing is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import floats
from .attention import Attention
from .backbone import DecoderBackbone
from .block import DecoderBlock
from .cache import LayerCache
from .floats import Array
from .incremental import mix_rows
from .kernels import ORDERED, Kernel
from .layers import Linear, RmsNorm, SwiGlu
from .rope import RotaryTable
from .softmax import allowed_probabilities
from .text import Decoder, TextOutputHead

__all__ = ["Rows", "Undecided", "run_rows"]


class Undecided(Exception):
    """A guard of the rows did not hold: the checked path says what is wrong, if anything is."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What new rows would add: their last logits [V], and keys and values to append.

    keys, values: per layer [T, H, d_h]
    score_values: per row and layer
    """

    logits: Array
    keys: list[Array]
    values: list[Array]
    score_values: list[int]


def run_rows(
    decoder: Decoder, tokens: Sequence[int], layers: Sequence[LayerCache], prefix: int
) -> Rows:
    """The rows of `tokens` at the positions from `prefix` on; nothing is written.

    The operations are those of `run_cached` and the head, in their order, without nodes. In the
    ordered kernel a row has the same bits alone and in a block, for no operation lets rows see
    each other but the mixture, where a later key only adds +0.0 times a finite value. A value is
    looked at where nothing that is not finite before it could have been lost: infinities and NaN
    outlast sums, products and projections, only a norm's root and a softmax absorb them.

    tokens:  one or more, each below V
    Refuses: nothing. `Undecided`, or a refusal of its parts, sends the caller to the checked path
    Source:  cache.md section 5, numerics.md section 14
    """
    backbone, T = decoder.backbone, len(tokens)
    kernel = backbone.kernel or ORDERED
    check_known(decoder)
    check_cache(backbone, layers, prefix, T)
    keys, values = [], []
    x = embed_rows(decoder, tokens)
    for layer, block in enumerate(backbone.blocks):
        normed = norm_rows(block.attention_norm, x, kernel)
        attended, key, value = _attend(
            block.attention, normed, layers[layer], prefix, layer, kernel
        )
        keys.append(key)
        values.append(value)
        x = add_rows(x, attended)
        x = add_rows(x, swiglu_rows(block.ffn, norm_rows(block.ffn_norm, x, kernel), kernel))
    logits = head_rows(decoder.head, norm_rows(backbone.final_norm, x, kernel), kernel)
    heads = backbone.config.heads
    scores = [heads * (position + 1) for position in range(prefix, prefix + T)]
    newest = logits[0] if T == 1 else logits[-1].copy()  # not all rows live on with the last
    return Rows(newest, keys, values, scores)


def check_known(decoder: Decoder) -> None:
    """Undecided: a part of another type, whose forward is its own."""
    backbone = decoder.backbone
    parts: list[tuple[object, type]] = [
        (decoder, Decoder),
        (decoder.head, TextOutputHead),
        (backbone, DecoderBackbone),
        (backbone.final_norm, RmsNorm),
    ]
    for block in backbone.blocks:
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


def check_cache(
    backbone: DecoderBackbone, layers: Sequence[LayerCache], prefix: int, T: int
) -> None:
    """Undecided: what `CACHED_ORDER` refuses, and rows beyond the capacity."""
    capacity = backbone.config.max_positions
    if len(layers) != len(backbone.blocks) or prefix + T > capacity:
        raise Undecided
    for layer, block in zip(layers, backbone.blocks, strict=True):
        if (layer.length, layer.batch, layer.capacity) != (prefix, 1, capacity):
            raise Undecided
        if layer.binds(block.attention) is not None:
            raise Undecided


def embed_rows(decoder: Decoder, tokens: Sequence[int]) -> Array:
    """The table's rows [T, D]."""
    rows: Array = decoder.table._value[list(tokens)]
    return rows


def norm_rows(norm: RmsNorm, x: Array, kernel: Kernel = ORDERED) -> Array:
    """x: [T, D]. Returns: [T, D], unchecked; numerics.md section 9."""
    gain = norm.gain._value
    if gain.shape != x.shape[1:]:
        raise Undecided
    mean_square = kernel.mean_square(x)
    if norm.epsilon == 0.0 and not mean_square.all():
        raise Undecided
    stable = _check(mean_square + norm.epsilon)  # infinite, it has an inverse root of 0
    return (x * kernel.inverse_root(stable)) * gain


def linear_rows(linear: Linear, x: Array, kernel: Kernel = ORDERED) -> Array:
    """x: [T, in]. Returns: [T, out], unchecked."""
    y = _product(x, linear.weight._value, kernel)
    return y if linear.bias is None else y + linear.bias._value


def rotate_rows(rotation: RotaryTable, heads: Array, first: int) -> Array:
    """heads: [T, H, d_h], their tokens from position `first` on. Returns: their pairs turned.

    Source: numerics.md section 11
    """
    end = first + len(heads)
    cosines, sines = rotation.cosines[first:end, None], rotation.sines[first:end, None]
    left, right = heads[..., 0::2], heads[..., 1::2]
    turned = np.empty_like(heads)
    np.subtract(left * cosines, right * sines, out=turned[..., 0::2])
    np.add(left * sines, right * cosines, out=turned[..., 1::2])
    turned += 0.0
    return turned


def _attend(
    attention: Attention,
    normed: Array,
    cache: LayerCache,
    first: int,
    layer: int,
    kernel: Kernel,
) -> tuple[Array, Array, Array]:
    """The attention output [T, D], unchecked, and the new key and value rows [T, H, d_h]."""
    shape = (len(normed), attention.heads, attention.head_width)
    query = linear_rows(attention.query, normed, kernel).reshape(shape)
    key = linear_rows(attention.key, normed, kernel).reshape(shape)
    value = linear_rows(attention.value, normed, kernel).reshape(shape)
    turned = rotate_rows(attention.rotation, np.concatenate((query, key), axis=1), first)
    query, key = turned[:, : shape[1]], turned[:, shape[1] :]
    if not kernel.claims_bits:
        mix = mix_views(query, key, value, cache, kernel)
    elif len(normed) == 1:
        mix, _ = mix_rows(query[0], key[0], value[0], cache, layer)
    else:
        mix = mix_block(query, key, value, cache)
    return linear_rows(attention.output, mix.reshape(len(normed), -1), kernel), key, value


def mix_views(query: Array, key: Array, value: Array, cache: LayerCache, kernel: Kernel) -> Array:
    """`mix_block` where no bits are claimed: cached rows and new ones apart, nothing copied."""
    key_columns, value_rows = cache.prefix()
    prefix, (T, H, d_h) = cache.length, query.shape
    lanes, new_keys, new_values = query.swapaxes(0, 1), key.transpose(1, 2, 0), value.swapaxes(0, 1)
    scores = np.empty((H, T, prefix + T))
    scores[..., :prefix] = kernel.product(lanes, key_columns)
    scores[..., prefix:] = kernel.product(lanes, new_keys)
    scores *= 1.0 / math.sqrt(float(d_h))
    _check(scores)
    hidden = np.arange(prefix + T) > np.arange(prefix, prefix + T)[:, None]
    probabilities = kernel.causal(scores, ~hidden, hidden)
    mix = kernel.product(probabilities[..., prefix:], new_values)
    mix += kernel.product(probabilities[..., :prefix], value_rows[:, :prefix])
    return mix.swapaxes(0, 1)


def mix_block(query: Array, key: Array, value: Array, cache: LayerCache) -> Array:
    """`mix_rows` for several new rows at once, each over the cached rows and those up to its own.

    query, key, value: [T, H, d_h]. Returns: [T, H, d_h]
    """
    key_columns, value_rows = cache.prefix()
    prefix, T = cache.length, len(query)
    keys = np.concatenate([key_columns, key.transpose(1, 2, 0)], axis=2)
    values = np.concatenate([value_rows[:, :prefix], value.swapaxes(0, 1)], axis=1)
    raw = _check(floats.contract(query.swapaxes(0, 1), keys))  # [H, T, prefix + T]
    scores = raw * (1.0 / math.sqrt(float(query.shape[2])))
    allowed = np.arange(prefix + T) <= np.arange(prefix, prefix + T)[:, None]
    probabilities = allowed_probabilities(scores, np.broadcast_to(allowed, scores.shape))
    return floats.contract(probabilities, values).swapaxes(0, 1)


def add_rows(identity: Array, branch: Array) -> Array:
    """The residual sum, checked."""
    if identity.shape != branch.shape:
        raise Undecided
    return _check(identity + branch)


def swiglu_rows(ffn: SwiGlu, x: Array, kernel: Kernel = ORDERED) -> Array:
    """x: [T, D]. Returns: [T, D], unchecked; numerics.md section 10."""
    gate = linear_rows(ffn.gate, x, kernel)
    up = linear_rows(ffn.up, x, kernel)
    return linear_rows(ffn.down, (gate * kernel.sigmoid(gate)) * up, kernel)


def head_rows(head: TextOutputHead, hidden: Array, kernel: Kernel = ORDERED) -> Array:
    """hidden: [T, D]. Returns: [T, V], checked."""
    columns = head.table._value.T
    if kernel.claims_bits:  # sums in order want runs of columns
        columns = floats.row_major(columns)
    return _check(_product(hidden, columns, kernel))


def _product(rows: Array, matrix: Array, kernel: Kernel) -> Array:
    if rows.shape[1] != matrix.shape[0]:
        raise Undecided
    return kernel.product(rows, matrix)


def _check(values: Array) -> Array:
    if not floats.is_finite(values):
        raise Undecided
    return values
