"""A decoder as a textbook has it in numpy: BLAS products, numpy's functions, 1/sqrt norms.

It knows nothing of the core's orders and forms. Laws about values must call it consistent with
rounding in every case, whichever of the declared forms it takes; laws about bits need not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .scalar import Config, Layout

__all__ = ["Array", "Forms", "TextbookSubject", "sigmoid"]

Array: TypeAlias = NDArray[np.float64]
Ids: TypeAlias = Sequence[Sequence[int]]
Grads: TypeAlias = dict[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """How it does what textbooks do differently; the same real numbers each way.

    norm:     "reciprocal" x * (1 / root), "quotient" x / root, "gain-first" (x * gain) / root
    softmax:  "shifted" e / sum, "log-sum-exp" exp(z - lse)
    loss:     "log-softmax" minus (z - m - log sum) at the target, "log-sum-exp" lse - z
    silu:     "nested" s(1 + x(1 - s)), "sum" s + y(1 - s), "product" s(1 + x - y), y = x s
    keeps:    whether the reverse pass reads the forward's probabilities and sigmoids or its own
    groups:   what heads owe to a key that they share: "heads", summed by each, then over them;
              "rows", one product over the queries of all
    mean:     the softmax's mean slope, "probabilities" sum p u, "output" from what attention gave
              and the slope by it
    """

    norm: str = "reciprocal"
    softmax: str = "shifted"
    loss: str = "log-softmax"
    silu: str = "nested"
    keeps: bool = True
    groups: str = "heads"
    mean: str = "probabilities"


class TextbookSubject:
    """The textbook under test: [B, T, D] arrays, one expression per formula."""

    capabilities: Mapping[str, bool] = {
        "grouped-heads": True,
        "untied-head": True,
        "ranges": True,
        "row-bits": False,  # a BLAS product may round a row otherwise among other rows
    }
    conventions: Mapping[str, str] = {"functions": "numpy"}

    def __init__(self, forms: Forms = Forms(), dtype: type[np.floating[Any]] = np.float64) -> None:
        self.forms, self.dtype = forms, dtype

    def load(self, config: Config, weights: Mapping[str, Any]) -> None:
        """Arrays of the weights."""
        self.config = config
        self.weights = {name: np.array(value, dtype=self.dtype) for name, value in weights.items()}

    def logits(self, ids: Ids, layout: Layout | None = None) -> Array:
        """[B, T, V]"""
        with np.errstate(all="ignore"):
            return np.asarray(self._forward(ids, layout)["logits"])

    def loss_and_gradients(
        self,
        ids: Ids,
        targets: Ids,
        layout: Layout | None = None,
        valid: Sequence[Sequence[bool]] | None = None,
    ) -> tuple[float, Grads]:
        """One forward, one backward."""
        with np.errstate(all="ignore"):
            saved = self._forward(ids, layout)
            chosen = saved["active"] if valid is None else np.array(valid)
            z, t = saved["logits"][chosen], np.array(targets)[chosen]
            loss, slope = self._loss(z, t)
            upstream = np.zeros_like(saved["logits"])
            upstream[chosen] = slope
            return loss, self._backward(saved, upstream)

    def _loss(self, z: Array, targets: NDArray[np.int64]) -> tuple[float, Array]:
        """Mean over the rows of z, and its slope by z."""
        G = len(z)
        at = np.arange(G)
        m = z.max(axis=-1, keepdims=True)
        log_sum = np.log(np.exp(z - m).sum(axis=-1, keepdims=True))
        if self.forms.loss == "log-sum-exp":
            losses = (m + log_sum)[:, 0] - z[at, targets]
        else:
            losses = -((z - m) - log_sum)[at, targets]
        p = self._softmax(z)
        p[at, targets] -= 1.0
        return float(losses.mean()), p / G

    def _softmax(self, z: Array) -> Array:
        m = z.max(axis=-1, keepdims=True)
        e = np.exp(z - m)
        total = e.sum(axis=-1, keepdims=True)
        if self.forms.softmax == "log-sum-exp":
            lse: Array = m + np.log(total)
            return np.exp(z - lse)
        return np.asarray(e / total)

    def _norm(self, x: Array, gain: Array) -> Array:
        root = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config.rms_epsilon)
        if self.forms.norm == "reciprocal":
            return np.asarray(x * (1.0 / root) * gain)
        return np.asarray(x / root * gain if self.forms.norm == "quotient" else x * gain / root)

    def _norm_back(self, x: Array, gain: Array, upstream: Array) -> tuple[Array, Array]:
        """The slopes by x and by the gain."""
        inverse = 1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config.rms_epsilon)
        unit, u = x * inverse, upstream * gain
        by_x = inverse * (u - unit * np.mean(u * unit, axis=-1, keepdims=True))
        return by_x, (upstream * unit).sum(axis=(0, 1))

    def _forward(self, ids: Ids, layout: Layout | None) -> dict[str, Any]:
        w, config = self.weights, self.config
        layout = layout or Layout.full(len(ids), len(ids[0]))
        tokens, T = np.array(ids), len(ids[0])
        cells = np.arange(T)
        active = cells < np.array(layout.lengths)[:, None]
        starts = np.array(layout.range_starts)[:, :, None]
        mask = (cells >= starts) & (cells <= cells[:, None]) & active[:, :, None]
        x = np.where(active[..., None], w["token_embedding.weight"][tokens], 0.0)
        saved: dict[str, Any] = {"active": active, "mask": mask[:, None], "tokens": tokens}
        d_h = config.head_width
        frequencies = config.rope_base ** (-np.arange(0, d_h, 2) / d_h)
        angles = np.array(layout.positions)[:, None, :, None] * frequencies
        saved["turn"] = tuple(f(angles).astype(self.dtype) for f in (np.cos, np.sin))
        saved["blocks"] = []
        for layer in range(config.layers):
            block = self._block(x, f"blocks.{layer}.", saved)
            saved["blocks"].append(block)
            x = block["out"]
        saved["final_in"] = x
        saved["hidden"] = self._norm(x, w["final_norm.gain"])
        saved["logits"] = self._logits(saved["hidden"])
        return saved

    def _logits(self, hidden: Array) -> Array:
        return np.asarray(hidden @ self.weights[self._head].T)

    @property
    def _head(self) -> str:
        """The matrix that gives the logits."""
        return "token_embedding.weight" if self.config.tied else "head.weight"

    def _logits_back(self, upstream: Array, hidden: Array, grads: Grads) -> Array:
        """The slope by hidden; that by the head's matrix stands alone in `grads`."""
        grads[self._head] = _outer(upstream, hidden)
        return np.asarray(upstream @ self.weights[self._head])

    def _block(self, x: Array, prefix: str, saved: dict[str, Any]) -> dict[str, Any]:
        w = {name.removeprefix(prefix): value for name, value in self.weights.items()}
        n = self._norm(x, w["attention_norm.gain"])
        q, k, v = (
            self._split(n @ w[f"attention.{role}.weight"]) for role in ("query", "key", "value")
        )
        q, k = (_turned(part, *saved["turn"]) for part in (q, k))
        k, v = self._shared(k), self._shared(v)
        p = self._probabilities(q, k, saved["mask"])
        mixed = _merged(p @ v)
        after = x + mixed @ w["attention.output.weight"]
        m = self._norm(after, w["ffn_norm.gain"])
        gate, up = m @ w["ffn.gate.weight"], m @ w["ffn.up.weight"]
        product = self._gated(gate, up)
        out = after + product @ w["ffn.down.weight"]
        return {
            "prefix": prefix, "w": w, "x": x, "n": n, "q": q, "k": k, "v": v, "p": p,
            "mixed": mixed, "after": after, "m": m, "gate": gate, "up": up, "product": product,
            "out": out,
        }  # fmt: skip

    def _split(self, x: Array) -> Array:
        B, T, _ = x.shape
        return x.reshape(B, T, -1, self.config.head_width).transpose(0, 2, 1, 3)

    @property
    def _sharers(self) -> int:
        """Query heads that read one key/value head."""
        return self.config.heads // (self.config.kv_heads or self.config.heads)

    def _shared(self, x: Array) -> Array:
        """[B, H_kv, T, d_h] -> [B, H, T, d_h]: head h reads h // (H / H_kv)."""
        return np.repeat(x, self._sharers, axis=1)

    def _shared_back(self, upstream: Array) -> Array:
        """The sum over the heads that read one: [B, H, T, d_h] -> [B, H_kv, T, d_h]."""
        B, _, T, d_h = upstream.shape
        return np.asarray(upstream.reshape(B, -1, self._sharers, T, d_h).sum(axis=2))

    def _probabilities(self, q: Array, k: Array, mask: NDArray[np.bool_]) -> Array:
        scores = self._scores(q, k)
        scores = np.where(mask, scores, -np.inf)
        scores = np.where(mask.any(axis=-1, keepdims=True), scores, 0.0)
        return np.where(mask, self._softmax(scores), 0.0)

    def _scores(self, q: Array, k: Array) -> Array:
        return np.asarray(q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1]))

    def _scores_back(
        self, q: Array, k: Array, p: Array, upstream: Array, mean: Array
    ) -> tuple[Array, Array]:
        """The slopes by q and by the keys that k repeats, from those by the probabilities."""
        slopes = p * (upstream - mean) / math.sqrt(q.shape[-1])
        return slopes @ k, self._over_queries(slopes, q)

    def _over_queries(self, per_query: Array, other: Array) -> Array:
        """[B, H, T, S] and [B, H, T, d_h] -> [B, H_kv, S, d_h]: the sum over queries and heads."""
        if self.forms.groups == "rows":
            B, H, T, S = per_query.shape
            shape = (B, H // self._sharers, self._sharers * T)
            per_query, other = per_query.reshape(*shape, S), other.reshape(*shape, -1)
            return np.asarray(per_query.transpose(0, 1, 3, 2) @ other)
        return self._shared_back(per_query.transpose(0, 1, 3, 2) @ other)

    def _backward(self, saved: dict[str, Any], upstream: Array) -> Grads:
        table = self.weights["token_embedding.weight"]
        grads: Grads = {"token_embedding.weight": np.zeros_like(table)}
        d_hidden = self._logits_back(upstream, saved["hidden"], grads)
        dx, grads["final_norm.gain"] = self._norm_back(
            saved["final_in"], self.weights["final_norm.gain"], d_hidden
        )
        for block in reversed(saved["blocks"]):
            dx = self._block_back(block, saved, dx, grads)
        active = saved["active"]
        np.add.at(grads["token_embedding.weight"], saved["tokens"][active], dx[active])
        return {name: grads[name] for name in self.config.parameter_shapes()}

    def _block_back(
        self, block: dict[str, Any], saved: dict[str, Any], d_out: Array, grads: Grads
    ) -> Array:
        w, prefix = block["w"], block["prefix"]
        gate, up = block["gate"], block["up"]
        d_product = d_out @ w["ffn.down.weight"].T
        grads[prefix + "ffn.down.weight"] = _outer(block["product"], d_out)
        d_gate, d_up = self._gated_back(gate, up, d_product)
        grads[prefix + "ffn.up.weight"] = _outer(block["m"], d_up)
        grads[prefix + "ffn.gate.weight"] = _outer(block["m"], d_gate)
        d_m = d_gate @ w["ffn.gate.weight"].T + d_up @ w["ffn.up.weight"].T
        d_after, grads[prefix + "ffn_norm.gain"] = self._norm_back(
            block["after"], w["ffn_norm.gain"], d_m
        )
        d_after = d_out + d_after
        d_n = self._attention_back(block, saved, d_after, grads)
        d_x, grads[prefix + "attention_norm.gain"] = self._norm_back(
            block["x"], w["attention_norm.gain"], d_n
        )
        return d_after + d_x

    def _gated(self, gate: Array, up: Array) -> Array:
        return np.asarray(gate * sigmoid(gate) * up)

    def _gated_back(self, gate: Array, up: Array, d: Array) -> tuple[Array, Array]:
        """The slopes by gate and by up."""
        return d * up * self._silu_slope(gate), d * (gate * sigmoid(gate))

    def _silu_slope(self, x: Array) -> Array:
        s = sigmoid(x)
        if self.forms.silu == "nested":
            return np.asarray(s * (1.0 + x * (1.0 - s)))
        y = x * s
        return np.asarray(s + y * (1.0 - s) if self.forms.silu == "sum" else s * (1.0 + x - y))

    def _attention_back(
        self, block: dict[str, Any], saved: dict[str, Any], upstream: Array, grads: Grads
    ) -> Array:
        w, prefix = block["w"], block["prefix"] + "attention."
        q, k, v, p = block["q"], block["k"], block["v"], block["p"]
        if not self.forms.keeps:
            p = self._probabilities(q, k, saved["mask"])
        grads[prefix + "output.weight"] = _outer(block["mixed"], upstream)
        d_mixed = self._split(upstream @ w["attention.output.weight"].T)
        d_v = self._over_queries(p, d_mixed)
        d_p = d_mixed @ v.transpose(0, 1, 3, 2)
        pairs = (d_p, p) if self.forms.mean == "probabilities" else (d_mixed, p @ v)
        mean = (pairs[0] * pairs[1]).sum(axis=-1, keepdims=True)
        cosines, sines = saved["turn"]
        d_q, d_k = (_turned(d, cosines, -sines) for d in self._scores_back(q, k, p, d_p, mean))
        total: Array = np.zeros_like(block["n"])
        for role, part in (("query", d_q), ("key", d_k), ("value", d_v)):
            flat = _merged(part)
            grads[f"{prefix}{role}.weight"] = _outer(block["n"], flat)
            total = total + flat @ w[f"attention.{role}.weight"].T
        return total


def sigmoid(x: Array) -> Array:
    """exp(-|x|) does not overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0.0, 1.0, e) / (1.0 + e))


def _turned(x: Array, cosines: Array, sines: Array) -> Array:
    """Adjacent features as one complex number, turned."""
    left, right = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = left * cosines - right * sines
    out[..., 1::2] = left * sines + right * cosines
    return out


def _merged(x: Array) -> Array:
    B, H, T, d_h = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, H * d_h)


def _outer(left: Array, right: Array) -> Array:
    """The sum over all cells of left right^T: one product, rows of the batch not kept apart."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])
