"""The decoder in eager PyTorch, float64, in the fastest of the eager forms that were tried.

Complex numbers turn faster than strided halves, its own attention is faster than products and a
softmax, and a norm written out is faster than its own at the small sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn import functional

from . import Array, Ids, Sizes, Work, turns

__all__ = ["decoding", "work"]

Tensors: TypeAlias = dict[str, Any]
Attend: TypeAlias = Callable[[int, Any, Any, Any], Any]


def work(sizes: Sizes, weights: Mapping[str, Array], ids: Ids, targets: Ids) -> Work:
    """One batch; gradients are dropped before each pass, as PyTorch does by default."""
    torch.set_num_threads(1)
    w = _tensors(weights, learned=True)
    at, wanted = torch.from_numpy(ids), torch.from_numpy(targets.reshape(-1))
    turn = _turn(sizes, 0, ids.shape[1])

    def forward() -> Any:
        logits = _logits(sizes, w, at, turn, _causal)
        return functional.cross_entropy(logits.flatten(0, 1), wanted)

    def forward_backward() -> Any:
        for parameter in w.values():
            parameter.grad = None
        loss = forward()
        loss.backward()
        return loss

    def result() -> tuple[float, dict[str, Array]]:
        loss = forward_backward()
        return float(loss.detach()), {name: p.grad.numpy().copy() for name, p in w.items()}

    return Work(forward=forward, forward_backward=forward_backward, result=result)


def decoding(
    sizes: Sizes, weights: Mapping[str, Array], prompt: Ids
) -> Callable[[int], object] | None:
    """Without gradients, over keys and values in storage that is there before."""
    torch.set_num_threads(1)
    w = _tensors(weights, learned=False)
    prefix, d_h = len(prompt), sizes.model_width // sizes.heads
    shape = (sizes.layers, 2, 1, sizes.heads, prefix + 1, d_h)
    cache = torch.zeros(shape, dtype=torch.float64)

    def prefilled(layer: int, q: Any, k: Any, v: Any) -> Any:
        cache[layer, 0, :, :, :prefix], cache[layer, 1, :, :, :prefix] = k, v
        return _causal(layer, q, k, v)

    def cached(layer: int, q: Any, k: Any, v: Any) -> Any:
        keys, values = cache[layer, 0], cache[layer, 1]
        keys[:, :, prefix:], values[:, :, prefix:] = k, v
        return functional.scaled_dot_product_attention(q, keys, values)

    if prefix:
        with torch.no_grad():
            _logits(sizes, w, torch.from_numpy(prompt)[None], _turn(sizes, 0, prefix), prefilled)
    turn = _turn(sizes, prefix, prefix + 1)

    def step(token: int) -> object:
        with torch.no_grad():
            return _logits(sizes, w, torch.tensor([[token]]), turn, cached)[0, 0]

    return step


def _tensors(weights: Mapping[str, Array], *, learned: bool) -> Tensors:
    return {name: torch.tensor(value, requires_grad=learned) for name, value in weights.items()}


def _turn(sizes: Sizes, first: int, end: int) -> Any:
    """Unit complex numbers [end - first, d_h / 2]."""
    cosines, sines = turns(sizes, end)
    return torch.from_numpy(np.asarray(cosines + 1j * sines)[first:].copy())


def _logits(sizes: Sizes, w: Tensors, ids: Any, turn: Any, attend: Attend) -> Any:
    """ids [B, T] -> logits [B, T, V]."""
    table = w["token_embedding.weight"]
    x = functional.embedding(ids, table)
    for layer in range(sizes.layers):
        block = f"blocks.{layer}."
        n = _norm(x, w[block + "attention_norm.gain"], sizes.rms_epsilon)
        q, k, v = (
            (n @ w[f"{block}attention.{role}.weight"])
            .unflatten(-1, (sizes.heads, -1))
            .transpose(1, 2)
            for role in ("query", "key", "value")
        )
        mixed = attend(layer, _turned(q, turn), _turned(k, turn), v)
        x = x + mixed.transpose(1, 2).flatten(2) @ w[block + "attention.output.weight"]
        n = _norm(x, w[block + "ffn_norm.gain"], sizes.rms_epsilon)
        gate = functional.silu(n @ w[block + "ffn.gate.weight"])
        x = x + (gate * (n @ w[block + "ffn.up.weight"])) @ w[block + "ffn.down.weight"]
    return _norm(x, w["final_norm.gain"], sizes.rms_epsilon) @ table.T


def _norm(x: Any, gain: Any, epsilon: float) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * gain


def _turned(x: Any, turn: Any) -> Any:
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2)


def _causal(_: int, q: Any, k: Any, v: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
