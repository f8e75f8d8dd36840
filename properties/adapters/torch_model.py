"""A decoder in plain PyTorch: one method for each formula, gradients by autograd.

It is imported by what makes one, so that PyTorch is asked for only then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.nn import functional

from logitproof.properties.scalar import Config, Layout

__all__ = ["Batch", "Cache", "DynamicCache", "Model", "StaticCache", "batch_of", "chunk_of"]

Tensor: TypeAlias = torch.Tensor
Ids: TypeAlias = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Tokens, where they stand, and which keys each may read.

    ids, positions: [B, T]
    visible:        [B, 1, T, S]
    active:         [B, 1, 1, S], the keys that are no padding
    """

    ids: Tensor
    positions: Tensor
    visible: Tensor
    active: Tensor


def batch_of(ids: Ids, layout: Layout | None) -> Batch:
    """Rows of a layout; an inactive cell holds id 0 and reads what stands before it."""
    layout = layout or Layout.full(len(ids), len(ids[0]))
    starts = torch.tensor(layout.range_starts)[..., None]  # [B, T, 1]
    cells = torch.arange(layout.shape[1])
    visible = (starts <= cells) & (cells <= cells[:, None])
    active = cells < torch.tensor(layout.lengths)[:, None]
    return Batch(
        ids=torch.tensor(ids).clamp_min(0),
        positions=torch.tensor(layout.positions),
        visible=visible[:, None],
        active=active[:, None, None],
    )


def chunk_of(ids: Sequence[int], start: int, keys: int) -> Batch:
    """One row of new tokens behind `start` others, over so many cells of a cache."""
    positions = torch.arange(start, start + len(ids))
    visible = torch.arange(keys) <= positions[:, None]
    return Batch(
        ids=torch.tensor([list(ids)]),
        positions=positions[None],
        visible=visible[None, None],
        active=torch.ones((1, 1, 1, keys), dtype=torch.bool),
    )


class DynamicCache:
    """Keys and values that grow by concatenation, [1, H_kv, S, d_h] per layer."""

    def __init__(self, config: Config, dtype: Any) -> None:
        self.rows: dict[int, tuple[Tensor, Tensor]] = {}

    def keys(self, length: int) -> int:
        """Cells that a query sees when so many tokens were read."""
        return length

    def joined(self, layer: int, key: Tensor, value: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """All keys and values, the new ones last."""
        if layer in self.rows:
            old_key, old_value = self.rows[layer]
            key, value = torch.cat([old_key, key], dim=2), torch.cat([old_value, value], dim=2)
        self.rows[layer] = key, value
        return key, value


class StaticCache:
    """Keys and values of `max_positions` cells, written in place; unused ones are masked."""

    def __init__(self, config: Config, dtype: Any) -> None:
        H = config.kv_heads or config.heads
        self.cells = config.max_positions
        shape = (config.layers, 2, 1, H, self.cells, config.head_width)
        self.rows = torch.zeros(shape, dtype=dtype)

    def keys(self, length: int) -> int:
        """All cells, whatever was read."""
        return self.cells

    def joined(self, layer: int, key: Tensor, value: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """All cells, the new keys and values among them."""
        end = start + key.shape[2]
        self.rows[layer, 0, :, :, start:end] = key
        self.rows[layer, 1, :, :, start:end] = value
        return self.rows[layer, 0], self.rows[layer, 1]


Cache: TypeAlias = DynamicCache | StaticCache


class Model:
    """The decoder; a method a formula, so that one can be replaced alone.

    attention: "eager", or "sdpa" for PyTorch's scaled_dot_product_attention
    taps:      where what lies between is noted, if it is wanted
    """

    def __init__(
        self, config: Config, weights: Mapping[str, Any], *, dtype: Any, attention: str
    ) -> None:
        self.config, self.dtype, self.attention = config, dtype, attention
        self.taps: dict[str, Any] | None = None
        self.weights = {
            name: torch.tensor(value, dtype=dtype).requires_grad_()
            for name, value in weights.items()
        }

    def logits(self, batch: Batch, cache: Cache | None = None, start: int = 0) -> Tensor:
        """[B, T, V]"""
        x = self.note("embeddings", self.embeddings(batch.ids))
        for layer in range(self.config.layers):
            x = self.block(layer, x, batch, cache, start)
        hidden = self.note("hidden", self.norm(x, self.weights["final_norm.gain"]))
        return self.note("logits", self.head(hidden))

    def loss(self, logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
        """The mean over the valid cells, in nats."""
        return functional.cross_entropy(logits[valid], targets[valid])

    def embeddings(self, ids: Tensor) -> Tensor:
        """[B, T, D]"""
        return self.weights["token_embedding.weight"][ids]

    def head(self, hidden: Tensor) -> Tensor:
        """Logits by the table, or by the head's own matrix where there is one."""
        name = "token_embedding.weight" if self.config.tied else "head.weight"
        return hidden @ self.weights[name].T

    def block(self, layer: int, x: Tensor, batch: Batch, cache: Cache | None, start: int) -> Tensor:
        """Attention, then the gated feed-forward part, each added to what it read."""

        def weight(name: str) -> Tensor:
            return self.weights[f"blocks.{layer}.{name}"]

        def note(name: str, value: Tensor) -> Tensor:
            return self.note(f"blocks.{layer}.{name}", value)

        normed = note("attention_norm", self.norm(x, weight("attention_norm.gain")))
        query, key, value = (
            self.heads(normed @ weight(f"attention.{name}.weight"))
            for name in ("query", "key", "value")
        )
        note("query_unrotated", query)
        note("key_unrotated", key)
        query = note("query", self.turned(query, self.query_positions(batch, start)))
        key = note("key", self.turned(key, batch.positions))
        note("value", value)
        if cache is not None:
            key, value = cache.joined(layer, key, value, start)
        mix = note("mix", self.mixed(query, key, value, batch.visible, note))
        attended = mix.transpose(1, 2).flatten(2) @ weight("attention.output.weight")
        x = note("attention_residual", self.added(x, normed, attended))
        normed = note("ffn_norm", self.norm(x, weight("ffn_norm.gain")))
        gate = note("gate", normed @ weight("ffn.gate.weight"))
        up = note("up", normed @ weight("ffn.up.weight"))
        product = note("product", self.gated(gate, up))
        return note("output", self.added(x, normed, product @ weight("ffn.down.weight")))

    def norm(self, x: Tensor, gain: Tensor) -> Tensor:
        """gain * x / sqrt(mean(x^2) + eps); `rsqrt` has a slope whose cube underflows too early."""
        mean = (x * x).mean(dim=-1, keepdim=True)
        return gain * (x / torch.sqrt(mean + self.config.rms_epsilon))

    def heads(self, projected: Tensor) -> Tensor:
        """[B, T, H d_h] -> [B, H, T, d_h]"""
        return projected.unflatten(2, (-1, self.config.head_width)).transpose(1, 2)

    def query_positions(self, batch: Batch, start: int) -> Tensor:
        """Where the queries stand: where their tokens do."""
        return batch.positions

    def frequencies(self) -> Tensor:
        """[d_h / 2]: base^(-2i / d_h)"""
        d_h = self.config.head_width
        return self.config.rope_base ** (-torch.arange(0, d_h, 2, dtype=self.dtype) / d_h)

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:
        """Features 2i and 2i + 1 turned by position times frequency i."""
        angles = (positions[:, None, :, None] * self.frequencies()).to(self.dtype)
        cos, sin = torch.cos(angles), torch.sin(angles)
        first, second = self.pairs(x)
        return self.paired(first * cos - second * sin, first * sin + second * cos)

    def pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The features that turn together."""
        return x[..., 0::2], x[..., 1::2]

    def paired(self, first: Tensor, second: Tensor) -> Tensor:
        """The features back in their places."""
        return torch.stack([first, second], dim=-1).flatten(-2)

    def shared(self, x: Tensor) -> Tensor:
        """Query head h reads key/value head h // (H / H_kv)."""
        groups = self.config.heads // (self.config.kv_heads or self.config.heads)
        return x.repeat_interleave(groups, dim=1) if groups > 1 else x

    def scale(self) -> float:
        """1 / sqrt(d_h)"""
        return float(self.config.head_width**-0.5)

    def mixed(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor, note: Any
    ) -> Tensor:
        """[B, H, T, d_h]: values by the softmax of the scaled scores of the visible keys."""
        key, value = self.shared(key), self.shared(value)
        if self.attention == "sdpa":
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask=visible, scale=self.scale()
            )
        scores = (query @ key.transpose(2, 3)) * self.scale()
        note("scores", scores.masked_fill(~visible, 0.0))
        probabilities = note("probabilities", self.softmax(scores, visible))
        return probabilities @ value

    def softmax(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Over the visible keys; 0 elsewhere."""
        return scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) * up"""
        return functional.silu(gate) * up

    def added(self, x: Tensor, normed: Tensor, branch: Tensor) -> Tensor:
        """The residual: what was read before the norm, and the branch."""
        return x + branch

    def note(self, name: str, value: Tensor) -> Tensor:
        """The value; kept too where taps are wanted."""
        if self.taps is not None:
            self.taps[name] = value.detach().numpy().copy()
        return value
