"""The decoder in JAX, float64, compiled for one batch; what the compiling costs is not timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import Array, Ids, Sizes, Work, turns

__all__ = ["decoding", "work"]


def work(sizes: Sizes, weights: Mapping[str, Array], ids: Ids, targets: Ids) -> Work:
    """One batch; every call waits for its results."""
    jax.config.update("jax_enable_x64", True)
    w = {name: jnp.asarray(value) for name, value in weights.items()}
    at, wanted = jnp.asarray(ids), jnp.asarray(targets.reshape(-1))
    turn = tuple(jnp.asarray(half) for half in turns(sizes, ids.shape[1]))

    def loss(given: dict[str, Any]) -> Any:
        rows = _logits(sizes, given, at, turn).reshape(wanted.size, -1)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(rows), wanted[:, None], axis=1)
        return -jnp.mean(chosen)

    alone, both = jax.jit(loss), jax.jit(jax.value_and_grad(loss))

    def result() -> tuple[float, dict[str, Array]]:
        value, gradients = both(w)
        return float(value), {name: np.asarray(g) for name, g in gradients.items()}

    return Work(
        forward=lambda: jax.block_until_ready(alone(w)),
        forward_backward=lambda: jax.block_until_ready(both(w)),
        result=result,
    )


def decoding(
    sizes: Sizes, weights: Mapping[str, Array], prompt: Ids
) -> Callable[[int], object] | None:
    """Not written: a compiled step is no eager peer."""
    del sizes, weights, prompt
    return None


def _logits(sizes: Sizes, w: Mapping[str, Any], ids: Any, turn: tuple[Any, ...]) -> Any:
    """ids [B, T] -> logits [B, T, V]."""
    table = w["token_embedding.weight"]
    B, T = ids.shape
    D, H = sizes.model_width, sizes.heads
    causal = jnp.tril(jnp.ones((T, T), dtype=bool))
    x = table[ids]
    for layer in range(sizes.layers):
        block = f"blocks.{layer}."
        n = _norm(x, w[block + "attention_norm.gain"], sizes.rms_epsilon)
        q, k, v = (
            (n @ w[f"{block}attention.{role}.weight"]).reshape(B, T, H, D // H).swapaxes(1, 2)
            for role in ("query", "key", "value")
        )
        scores = (_turned(q, turn) @ _turned(k, turn).swapaxes(2, 3)) / np.sqrt(D // H)
        mixed = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf)) @ v
        x = x + mixed.swapaxes(1, 2).reshape(B, T, D) @ w[block + "attention.output.weight"]
        n = _norm(x, w[block + "ffn_norm.gain"], sizes.rms_epsilon)
        gate = jax.nn.silu(n @ w[block + "ffn.gate.weight"])
        x = x + (gate * (n @ w[block + "ffn.up.weight"])) @ w[block + "ffn.down.weight"]
    return _norm(x, w["final_norm.gain"], sizes.rms_epsilon) @ table.T


def _norm(x: Any, gain: Any, epsilon: float) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + epsilon) * gain


def _turned(x: Any, turn: tuple[Any, ...]) -> Any:
    cosines, sines = turn
    left, right = x[..., 0::2], x[..., 1::2]
    halves = (left * cosines - right * sines, left * sines + right * cosines)
    return jnp.stack(halves, axis=-1).reshape(x.shape)
