"""The decoder in numpy under HIPS autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np

from . import Array, Ids, Sizes, Work, turns

__all__ = ["decoding", "work"]


def work(sizes: Sizes, weights: Mapping[str, Array], ids: Ids, targets: Ids) -> Work:
    """One batch; the forward alone is plain numpy, no tape is asked for."""
    w = dict(weights)
    T = ids.shape[1]
    cosines, sines = (np.repeat(half, 2, axis=-1) for half in turns(sizes, T))
    sines[:, 0::2] *= -1.0
    hidden_keys = np.triu(np.full((T, T), -np.inf), 1)
    cells = np.arange(ids.size), targets.reshape(-1)

    def loss(given: dict[str, Any]) -> Any:
        logits = _logits(sizes, given, ids, (cosines, sines), hidden_keys)
        rows = anp.reshape(logits, (ids.size, -1))
        largest = anp.max(rows, axis=-1, keepdims=True)
        log_sum = anp.log(anp.sum(anp.exp(rows - largest), axis=-1)) + largest[:, 0]
        return anp.mean(log_sum - rows[cells])

    both: Any = autograd.value_and_grad(loss)

    def result() -> tuple[float, dict[str, Array]]:
        value, gradients = both(w)
        return float(value), gradients

    return Work(forward=lambda: loss(w), forward_backward=lambda: both(w), result=result)


def decoding(
    sizes: Sizes, weights: Mapping[str, Array], prompt: Ids
) -> Callable[[int], object] | None:
    """Nobody decodes under a tape."""
    del sizes, weights, prompt
    return None


def _logits(
    sizes: Sizes, w: Mapping[str, Any], ids: Ids, turn: tuple[Array, Array], hidden_keys: Array
) -> Any:
    """ids [B, T] -> logits [B, T, V]."""
    table = w["token_embedding.weight"]
    B, T = ids.shape
    D, H = sizes.model_width, sizes.heads
    root = np.sqrt(D // H)
    x = table[ids]
    for layer in range(sizes.layers):
        block = f"blocks.{layer}."
        n = _norm(x, w[block + "attention_norm.gain"], sizes.rms_epsilon)
        q, k, v = (
            anp.transpose(
                anp.reshape(n @ w[f"{block}attention.{role}.weight"], (B, T, H, D // H)),
                (0, 2, 1, 3),
            )
            for role in ("query", "key", "value")
        )
        keys = anp.transpose(_turned(k, turn), (0, 1, 3, 2))
        scores = (_turned(q, turn) @ keys) / root + hidden_keys
        powers = anp.exp(scores - anp.max(scores, axis=-1, keepdims=True))
        mixed = (powers / anp.sum(powers, axis=-1, keepdims=True)) @ v
        merged = anp.reshape(anp.transpose(mixed, (0, 2, 1, 3)), (B, T, D))
        x = x + merged @ w[block + "attention.output.weight"]
        n = _norm(x, w[block + "ffn_norm.gain"], sizes.rms_epsilon)
        gate = n @ w[block + "ffn.gate.weight"]
        product = gate / (1.0 + anp.exp(-gate)) * (n @ w[block + "ffn.up.weight"])
        x = x + product @ w[block + "ffn.down.weight"]
    return _norm(x, w["final_norm.gain"], sizes.rms_epsilon) @ table.T


def _norm(x: Any, gain: Any, epsilon: float) -> Any:
    return x / anp.sqrt(anp.mean(x * x, axis=-1, keepdims=True) + epsilon) * gain


def _turned(x: Any, turn: tuple[Array, Array]) -> Any:
    """x * cosines + (x with the features of each pair swapped) * signed sines."""
    cosines, sines = turn
    swapped = anp.reshape(anp.reshape(x, (*x.shape[:-1], -1, 2))[..., ::-1], x.shape)
    return x * cosines + swapped * sines
