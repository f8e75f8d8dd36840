"""A plain JAX decoder under test, float64 or float32, gradients by `jax.value_and_grad`.

`logitproof verify --decoder logitproof.properties.adapters.jax_decoder:float32`; JAX is imported
when one is made, and its 64 bits are switched on for a call at a time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from logitproof.properties.chunks import ChunkSession, Newest
from logitproof.properties.laws.difference import Values
from logitproof.properties.laws.protocol import Arrays, Ids, Valid
from logitproof.properties.scalar import Config, Layout

from .torch_module import chosen_of

__all__ = ["CHOICES", "JaxSession", "JaxSubject", "named"]

CHOICES: Mapping[str, tuple[str, ...]] = {"dtype": ("float64", "float32")}
CLAIMS: Mapping[str, bool] = {
    "taps": True,
    "decode": True,
    "grouped-heads": True,
    "untied-head": True,
    "ranges": True,
    "row-bits": False,
}
Cache = dict[int, tuple[Any, Any]]  # layer -> keys and values, [1, H_kv, S, d_h]


class JaxSubject:
    """One function of weights and batch, traced for its gradient; a method a formula.

    noted: where what lies between is kept, if it is wanted
    """

    capabilities = CLAIMS

    def __init__(self, dtype: str = "float64") -> None:
        self.jax: Any = importlib.import_module("jax")
        self.numpy: Any = importlib.import_module("jax.numpy")
        self.dtype = dtype
        self.noted: dict[str, Any] | None = None
        self.conventions: Mapping[str, str] = {"functions": "c-library", "dtype": dtype}

    def load(self, config: Config, weights: Mapping[str, Any]) -> None:
        """Arrays of the weights."""
        self.config = config
        with self.digits():
            self.weights = {
                name: self.numpy.asarray(np.array(value, dtype=self.dtype))
                for name, value in weights.items()
            }

    def digits(self) -> Any:
        """A context in which float64 stays what it is."""
        return self.jax.enable_x64(True)

    def logits(self, ids: Ids, layout: Layout | None = None) -> Values:
        """[B, T, V]"""
        with self.digits():
            return np.array(self.forward(self.weights, *_batch(ids, layout)))

    def loss_and_gradients(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> tuple[Any, Arrays]:
        """Both at once. Raises ValueError where no cell counts."""
        chosen = np.array(ids) >= 0 if valid is None else np.array(valid)
        if not chosen.any():
            raise ValueError("no cell counts: there is no mean loss")
        batch, wanted = _batch(ids, layout), np.array(targets)[chosen]

        def loss(weights: Mapping[str, Any]) -> Any:
            logits = self.forward(weights, *batch)[chosen]
            logs = self.jax.nn.log_softmax(logits, axis=-1)
            return -logs[np.arange(len(wanted)), wanted].mean()

        with self.digits():
            value, slopes = self.jax.value_and_grad(loss)(self.weights)
            gradients = {name: np.array(slopes[name]) for name in self.weights}
            return np.array(value)[()], gradients

    def taps(self, ids: Ids, layout: Layout | None = None) -> Arrays:
        """What lies between ids and logits."""
        self.noted = {}
        try:
            self.logits(ids, layout)
            return dict(self.noted)
        finally:
            self.noted = None

    def session(self) -> JaxSession:
        """Cached decoding of one text."""
        return JaxSession(self)

    def forward(
        self,
        weights: Mapping[str, Any],
        tokens: Any,
        positions: Any,
        visible: Any,
        cache: Cache | None = None,
    ) -> Any:
        """[B, T, V]; new keys and values go into the cache."""
        x = self.note("embeddings", self.embeddings(weights, tokens))
        for layer in range(self.config.layers):
            x = self.block(weights, layer, x, positions, visible, cache)
        hidden = self.note("hidden", self.norm(x, weights["final_norm.gain"]))
        return self.note("logits", self.head(weights, hidden))

    def embeddings(self, weights: Mapping[str, Any], tokens: Any) -> Any:
        """[B, T, D]"""
        return weights["token_embedding.weight"][tokens]

    def head(self, weights: Mapping[str, Any], hidden: Any) -> Any:
        """Logits by the table, or by the head's own matrix where there is one."""
        name = "token_embedding.weight" if self.config.tied else "head.weight"
        return hidden @ weights[name].T

    def block(
        self,
        weights: Mapping[str, Any],
        layer: int,
        x: Any,
        positions: Any,
        visible: Any,
        cache: Cache | None,
    ) -> Any:
        """Attention, then the gated feed-forward part, each added to what it read."""

        def weight(name: str) -> Any:
            return weights[f"blocks.{layer}.{name}"]

        def note(name: str, value: Any) -> Any:
            return self.note(f"blocks.{layer}.{name}", value)

        normed = note("attention_norm", self.norm(x, weight("attention_norm.gain")))
        query, key, value = (
            self.heads(normed @ weight(f"attention.{name}.weight"))
            for name in ("query", "key", "value")
        )
        note("query_unrotated", query)
        note("key_unrotated", key)
        query = note("query", self.turned(query, positions))
        key = note("key", self.turned(key, positions))
        note("value", value)
        key, value = self._joined(layer, key, value, cache)
        mix = note("mix", self.mixed(query, key, value, visible, note)).swapaxes(1, 2)
        attended = mix.reshape(*x.shape) @ weight("attention.output.weight")
        x = note("attention_residual", self.added(x, normed, attended))
        normed = note("ffn_norm", self.norm(x, weight("ffn_norm.gain")))
        gate = note("gate", normed @ weight("ffn.gate.weight"))
        up = note("up", normed @ weight("ffn.up.weight"))
        product = note("product", self.gated(gate, up))
        return note("output", self.added(x, normed, product @ weight("ffn.down.weight")))

    def norm(self, x: Any, gain: Any) -> Any:
        """gain * x / sqrt(mean(x^2) + eps)"""
        mean = (x * x).mean(axis=-1, keepdims=True)
        return gain * (x / self.numpy.sqrt(mean + self.config.rms_epsilon))

    def heads(self, projected: Any) -> Any:
        """[B, T, H d_h] -> [B, H, T, d_h]"""
        B, T, _ = projected.shape
        return projected.reshape(B, T, -1, self.config.head_width).swapaxes(1, 2)

    def turned(self, x: Any, positions: Any) -> Any:
        """Features 2i and 2i + 1 turned by position times base^(-2i / d_h)."""
        jnp, d_h = self.numpy, self.config.head_width
        exponents = -jnp.arange(0, d_h, 2, dtype=self.dtype) / d_h
        frequencies = jnp.asarray(self.config.rope_base, dtype=self.dtype) ** exponents
        angles = positions[:, None, :, None].astype(self.dtype) * frequencies
        cos, sin, first, second = jnp.cos(angles), jnp.sin(angles), x[..., 0::2], x[..., 1::2]
        pairs = jnp.stack([first * cos - second * sin, first * sin + second * cos], axis=-1)
        return pairs.reshape(x.shape)

    def _joined(self, layer: int, key: Any, value: Any, cache: Cache | None) -> tuple[Any, Any]:
        """All keys and values, the new ones last; they are those of the next chunk too."""
        if cache is None:
            return key, value
        if layer in cache:
            old_keys, old_values = cache[layer]
            key = self.numpy.concatenate([old_keys, key], axis=2)
            value = self.numpy.concatenate([old_values, value], axis=2)
        cache[layer] = key, value
        return key, value

    def mixed(self, query: Any, key: Any, value: Any, visible: Any, note: Any) -> Any:
        """[B, H, T, d_h]: values by the softmax of the scaled scores of the visible keys."""
        jnp = self.numpy
        groups = self.config.heads // (self.config.kv_heads or self.config.heads)
        key, value = jnp.repeat(key, groups, axis=1), jnp.repeat(value, groups, axis=1)
        scores = query @ key.swapaxes(2, 3) * self.scale()
        note("scores", jnp.where(visible, scores, 0.0))
        return note("probabilities", self.softmax(scores, visible)) @ value

    def scale(self) -> float:
        """1 / sqrt(d_h)"""
        return float(self.config.head_width**-0.5)

    def softmax(self, scores: Any, visible: Any) -> Any:
        """Over the visible keys; 0 elsewhere."""
        return self.jax.nn.softmax(self.numpy.where(visible, scores, -np.inf), axis=-1)

    def gated(self, gate: Any, up: Any) -> Any:
        """silu(gate) * up"""
        return self.jax.nn.silu(gate) * up

    def added(self, x: Any, normed: Any, branch: Any) -> Any:  # noqa: ARG002 - a fault reads it
        """The residual: what was read before the norm, and the branch."""
        return x + branch

    def note(self, name: str, value: Any) -> Any:
        """The value; kept too where taps are wanted."""
        if self.noted is not None:
            self.noted[name] = np.array(value)
        return value


class JaxSession(ChunkSession):
    """Tokens read so far, their keys and values."""

    def __init__(self, subject: JaxSubject) -> None:
        self.subject, self.length = subject, 0
        self.cache: Cache = {}

    def extend(self, ids: Sequence[int]) -> Newest:
        """The newest logits behind one more chunk."""
        subject, end = self.subject, self.length + len(ids)
        positions = np.arange(self.length, end)
        visible = np.arange(end) <= positions[:, None]
        with subject.digits():
            logits = subject.forward(
                subject.weights, np.array([ids]), positions[None], visible, self.cache
            )
        self.length = end
        return Newest(np.array(logits)[0, -1], end - 1)


def _batch(ids: Ids, layout: Layout | None) -> tuple[Any, Any, Any]:
    """Tokens and positions [B, T], visible keys [B, 1, T, T]."""
    layout = layout or Layout.full(len(ids), len(ids[0]))
    cells = np.arange(layout.shape[1])
    starts = np.array(layout.range_starts)[..., None]
    visible = (starts <= cells) & (cells <= cells[:, None])
    return np.maximum(np.array(ids), 0), np.array(layout.positions), visible[:, None]


def named(name: str) -> Callable[[], JaxSubject]:
    """The factory of a name. Raises AttributeError for a name with another choice."""
    chosen = chosen_of(CHOICES, name)
    return lambda: JaxSubject(**chosen)


def __getattr__(name: str) -> Callable[[], JaxSubject]:
    return named(name)
