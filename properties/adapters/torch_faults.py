"""The plain PyTorch decoder with one thing wrong: what the laws must find in a framework's model.

`logitproof verify --decoder logitproof.properties.adapters.torch_faults:NAME`, with underscores in
the place of hyphens. PyTorch is imported with this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch.nn import functional

from .torch_model import Batch, Cache, DynamicCache, Model
from .torch_module import TorchSubject

__all__ = ["FAULTS", "TorchFault"]

Tensor: TypeAlias = torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFault:
    """One wrong model.

    methods: what of `Model` is replaced, by name
    law:     the one that must find it
    stage:   where its forward leaves the right one, as the report tells it; None where it does not
    """

    methods: Mapping[str, Callable[..., Any]]
    law: str
    stage: str | None = None
    cache: type[Any] | None = None

    def subject(self, dtype: str = "float64") -> TorchSubject:
        """A decoder under test, eager."""
        subject = TorchSubject(dtype, model=type("Faulty", (Model,), dict(self.methods)))
        if self.cache is not None:
            subject.cache_type = self.cache
        return subject


LOGITS, LOSS, GRADIENTS = "truth.logits", "truth.loss", "truth.gradients"
CACHED = "truth.cached-logits"
NORM, TURNED = "norm before attention", "attention query, rotated"
SCORES, PROBABILITIES = "attention scores", "attention probabilities"
ATTENDED = "sum after attention"


def _norm(mean_of: Callable[[Model, Tensor], Tensor]) -> Callable[..., Tensor]:
    """A norm by another root."""
    return lambda self, x, gain: gain * (x / mean_of(self, x))


def _mean(x: Tensor) -> Tensor:
    return (x * x).mean(dim=-1, keepdim=True)


def _norm_in_single(self: Model, x: Tensor, gain: Tensor) -> Tensor:
    single = x.float()
    return gain * (single / torch.sqrt(_mean(single) + self.config.rms_epsilon)).to(x.dtype)


def _turned(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Rotation by other positions."""
    return lambda self, x, positions: Model.turned(self, x, change(positions))


def _frequencies(step: Callable[[Model], float], base: float | None = None) -> Any:
    """base^(-i step), i from 0."""

    def frequencies(self: Model) -> Tensor:
        count = torch.arange(self.config.head_width // 2, dtype=self.dtype)
        return (base or self.config.rope_base) ** (-count * step(self))

    return frequencies


def _halves(self: Model, x: Tensor) -> Any:
    return x.chunk(2, dim=-1)


def _seen(change: Callable[[Batch], Tensor]) -> Callable[..., Tensor]:
    """Other keys are visible."""

    def logits(self: Model, batch: Batch, cache: Cache | None = None, start: int = 0) -> Tensor:
        return Model.logits(self, replace(batch, visible=change(batch)), cache, start)

    return logits


def _one_more(batch: Batch) -> Tensor:
    return batch.visible | batch.visible.roll(1, dims=-1).tril(1)


def _without_own(batch: Batch) -> Tensor:
    own = torch.eye(batch.visible.shape[-1], dtype=torch.bool)[-batch.visible.shape[-2] :]
    others = batch.visible & ~own
    return torch.where(others.any(dim=-1, keepdim=True), others, batch.visible)


def _whole_row(batch: Batch) -> Tensor:
    return torch.ones_like(batch.visible).tril()


def _padding_too(batch: Batch) -> Tensor:
    return batch.visible | ~batch.active


def _one_in_the_sum(self: Model, scores: Tensor, visible: Tensor) -> Tensor:
    powers = torch.exp(scores.masked_fill(~visible, -torch.inf))
    return powers / (1.0 + powers.sum(dim=-1, keepdim=True))


def _softmax_in_single(self: Model, scores: Tensor, visible: Tensor) -> Tensor:
    return Model.softmax(self, scores.float(), visible).to(scores.dtype)


def _softmax_of_queries(self: Model, scores: Tensor, visible: Tensor) -> Tensor:
    return scores.masked_fill(~visible, -torch.inf).softmax(dim=-2).nan_to_num()


def _interleaved(self: Model, projected: Tensor) -> Tensor:
    return projected.unflatten(2, (self.config.head_width, -1)).permute(0, 3, 1, 2)


def _mixed_keys(
    self: Model, query: Tensor, key: Tensor, value: Tensor, visible: Tensor, note: Any
) -> Tensor:
    return Model.mixed(self, query, key, key, visible, note)


def _late(self: Model, batch: Batch, cache: Cache | None = None, start: int = 0) -> Tensor:
    late = int(start > 0)
    return Model.logits(self, replace(batch, positions=batch.positions + late), cache, start)


def _query_late(self: Model, batch: Batch, start: int) -> Tensor:
    return batch.positions + 1


def _first_offset(self: Model, batch: Batch, cache: Cache | None = None, start: int = 0) -> Tensor:
    positions = batch.positions if start == 0 else torch.full_like(batch.positions, start)
    return Model.logits(self, replace(batch, positions=positions), cache, start)


def _chunk_seen(change: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    """Other keys are visible behind a cache."""

    def logits(self: Model, batch: Batch, cache: Cache | None = None, start: int = 0) -> Tensor:
        visible = change(batch.visible, start) if start else batch.visible
        return Model.logits(self, replace(batch, visible=visible), cache, start)

    return logits


def _no_mask(visible: Tensor, start: int) -> Tensor:
    return torch.ones_like(visible)


def _top_left(visible: Tensor, start: int) -> Tensor:
    return torch.ones_like(visible).tril()


def _without_first(visible: Tensor, start: int) -> Tensor:
    return visible & (torch.arange(visible.shape[-1]) > 0)


class _Stale(DynamicCache):
    """The newest row is the one before: written a step late."""

    def joined(self, layer: int, key: Tensor, value: Tensor, start: int) -> tuple[Tensor, Tensor]:
        all_keys, all_values = super().joined(layer, key, value, start)
        if start == 0 or key.shape[2] > 1:
            return all_keys, all_values
        late = [*range(start), start - 1]
        return all_keys[:, :, late], all_values[:, :, late]


def _mean_over_cells(self: Model, logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    return Model.loss(self, logits, targets, valid) * valid.sum() / valid.numel()


def _previous_targets(self: Model, logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    return Model.loss(self, logits, targets.clamp_min(0).roll(1, dims=1), valid)


def _smoothed(self: Model, logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    return functional.cross_entropy(logits[valid], targets[valid], label_smoothing=0.01)


def _summed(self: Model, logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    return Model.loss(self, logits, targets, valid) * valid.sum()


def _loss_in_single(self: Model, logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    return Model.loss(self, logits.float(), targets, valid).to(logits.dtype)


def _mean_of_rows(self: Model, logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    rows = [b for b in range(len(valid)) if valid[b].any()]
    means = [Model.loss(self, logits[b], targets[b], valid[b]) for b in rows]
    return torch.stack(means).mean()


def _gathered(self: Model, ids: Tensor) -> Tensor:
    """Of a repeated id the last gradient stays."""
    rows, flat = Model.embeddings(self, ids), ids.flatten().tolist()
    last = torch.tensor([token not in flat[n + 1 :] for n, token in enumerate(flat)])
    return torch.where(last.reshape(*ids.shape, 1), rows, rows.detach())


def _head_cut_off(self: Model, hidden: Tensor) -> Tensor:
    return hidden @ self.weights["token_embedding.weight"].detach().T


def _lookup_cut_off(self: Model, ids: Tensor) -> Tensor:
    return self.weights["token_embedding.weight"].detach()[ids]


def _halved(value: Tensor) -> Tensor:
    """The same value, its slope halved."""
    return value.detach() + 0.5 * (value - value.detach())


def _root_cut_off(self: Model, x: Tensor) -> Tensor:
    return torch.sqrt(_mean(x) + self.config.rms_epsilon).detach()


FAULTS: Mapping[str, TorchFault] = {
    "embeddings-times-root": TorchFault(
        methods={"embeddings": lambda self, ids: Model.embeddings(self, ids)
                 * self.config.model_width**0.5},
        law=LOGITS, stage="embeddings",
    ),
    "epsilon-outside-root": TorchFault(
        methods={"norm": _norm(lambda self, x: _mean(x).sqrt() + self.config.rms_epsilon)},
        law=LOGITS, stage=NORM,
    ),
    "epsilon-fixed": TorchFault(
        methods={"norm": _norm(lambda self, x: torch.sqrt(_mean(x) + 1e-5))},
        law=LOGITS, stage=NORM,
    ),
    "epsilon-added-to-sum": TorchFault(
        methods={"norm": _norm(lambda self, x: torch.sqrt(
            _mean(x) + self.config.rms_epsilon / x.shape[-1]))},
        law=LOGITS, stage=NORM,
    ),
    "norm-subtracts-mean": TorchFault(
        methods={"norm": lambda self, x, gain: Model.norm(
            self, x - x.mean(dim=-1, keepdim=True), gain)},
        law=LOGITS, stage=NORM,
    ),
    "gain-plus-one": TorchFault(
        methods={"norm": lambda self, x, gain: Model.norm(self, x, gain + 1.0)},
        law=LOGITS, stage=NORM,
    ),
    "norm-in-single": TorchFault(methods={"norm": _norm_in_single}, law=LOGITS, stage=NORM),
    "heads-interleaved": TorchFault(
        methods={"heads": _interleaved}, law=LOGITS, stage="attention query, as projected"
    ),
    "pairs-by-halves": TorchFault(
        methods={"pairs": _halves,
                 "paired": lambda self, first, second: torch.cat([first, second], dim=-1)},
        law=LOGITS, stage=TURNED,
    ),
    "turned-right": TorchFault(
        methods={"turned": _turned(torch.neg)}, law=LOGITS, stage=TURNED
    ),
    "rotation-missing": TorchFault(
        methods={"turned": lambda self, x, positions: x}, law=LOGITS, stage=TURNED
    ),
    "base-hard-coded": TorchFault(
        methods={"frequencies": _frequencies(lambda self: 2.0 / self.config.head_width, 10000.0)},
        law=LOGITS, stage=TURNED,
    ),
    "frequency-without-two": TorchFault(
        methods={"frequencies": _frequencies(lambda self: 1.0 / self.config.head_width)},
        law=LOGITS, stage=TURNED,
    ),
    "frequency-by-model-width": TorchFault(
        methods={"frequencies": _frequencies(lambda self: 2.0 / self.config.model_width)},
        law=LOGITS, stage=TURNED,
    ),
    "query-one-position-on": TorchFault(
        methods={"query_positions": _query_late}, law=LOGITS, stage=TURNED
    ),
    "positions-in-half-precision": TorchFault(
        methods={"turned": _turned(lambda p: p.bfloat16().long())}, law=LOGITS, stage=TURNED
    ),
    "mask-off-by-one": TorchFault(
        methods={"logits": _seen(_one_more)}, law=LOGITS, stage=SCORES
    ),
    "own-key-masked": TorchFault(
        methods={"logits": _seen(_without_own)}, law=LOGITS, stage=SCORES
    ),
    "packed-segments-leak": TorchFault(
        methods={"logits": _seen(_whole_row)}, law=LOGITS, stage=SCORES
    ),
    "padding-leaks": TorchFault(
        methods={"logits": _seen(_padding_too)}, law=LOGITS, stage=SCORES
    ),
    "scale-missing": TorchFault(methods={"scale": lambda self: 1.0}, law=LOGITS, stage=SCORES),
    "scale-by-model-width": TorchFault(
        methods={"scale": lambda self: self.config.model_width**-0.5}, law=LOGITS, stage=SCORES
    ),
    "softmax-off-by-one": TorchFault(
        methods={"softmax": _one_in_the_sum}, law=LOGITS, stage=PROBABILITIES
    ),
    "softmax-in-single": TorchFault(
        methods={"softmax": _softmax_in_single}, law=LOGITS, stage=PROBABILITIES
    ),
    "softmax-over-queries": TorchFault(
        methods={"softmax": _softmax_of_queries}, law=LOGITS, stage=PROBABILITIES
    ),
    "keys-for-values": TorchFault(
        methods={"mixed": _mixed_keys}, law=LOGITS, stage="attention mixture"
    ),
    "residual-after-norm": TorchFault(
        methods={"added": lambda self, x, normed, branch: normed + branch},
        law=LOGITS, stage=ATTENDED,
    ),
    "gelu": TorchFault(
        methods={"gated": lambda self, gate, up: functional.gelu(gate) * up},
        law=LOGITS, stage="feed-forward product",
    ),
    "gate-and-up-exchanged": TorchFault(
        methods={"gated": lambda self, gate, up: gate * functional.silu(up)},
        law=LOGITS, stage="feed-forward product",
    ),
    "head-untied": TorchFault(
        methods={"head": lambda self, hidden: hidden
                 @ self.weights["token_embedding.weight"].roll(1, dims=0).T},
        law=LOGITS, stage="logits",
    ),
    "logits-capped": TorchFault(
        methods={"head": lambda self, hidden: 30.0 * torch.tanh(Model.head(self, hidden) / 30.0)},
        law=LOGITS, stage="logits",
    ),
    "decode-one-position-late": TorchFault(methods={"logits": _late}, law=CACHED),
    "chunk-keeps-first-offset": TorchFault(methods={"logits": _first_offset}, law=CACHED),
    "chunk-without-mask": TorchFault(methods={"logits": _chunk_seen(_no_mask)}, law=CACHED),
    "chunk-mask-top-left": TorchFault(methods={"logits": _chunk_seen(_top_left)}, law=CACHED),
    "first-key-forgotten": TorchFault(
        methods={"logits": _chunk_seen(_without_first)}, law=CACHED
    ),
    "cache-stale": TorchFault(methods={}, cache=_Stale, law=CACHED),
    "mean-over-all-cells": TorchFault(methods={"loss": _mean_over_cells}, law=LOSS),
    "mean-of-row-means": TorchFault(methods={"loss": _mean_of_rows}, law=LOSS),
    "targets-of-previous-cell": TorchFault(methods={"loss": _previous_targets}, law=LOSS),
    "labels-smoothed": TorchFault(methods={"loss": _smoothed}, law=LOSS),
    "loss-summed": TorchFault(methods={"loss": _summed}, law=LOSS),
    "loss-in-single": TorchFault(methods={"loss": _loss_in_single}, law=LOSS),
    "branch-cut-off": TorchFault(
        methods={"added": lambda self, x, normed, branch: x + branch.detach()}, law=GRADIENTS
    ),
    "residual-slope-halved": TorchFault(
        methods={"added": lambda self, x, normed, branch: _halved(x) + branch}, law=GRADIENTS
    ),
    "scatter-overwrites": TorchFault(methods={"embeddings": _gathered}, law=GRADIENTS),
    "head-gradient-dropped": TorchFault(methods={"head": _head_cut_off}, law=GRADIENTS),
    "lookup-gradient-dropped": TorchFault(methods={"embeddings": _lookup_cut_off}, law=GRADIENTS),
    "norm-root-held-fixed": TorchFault(methods={"norm": _norm(_root_cut_off)}, law=GRADIENTS),
    "silu-slope-is-sigmoid": TorchFault(
        methods={"gated": lambda self, gate, up: gate * torch.sigmoid(gate).detach() * up},
        law=GRADIENTS,
    ),
    "softmax-slope-dropped": TorchFault(
        methods={"softmax": lambda self, scores, visible: Model.softmax(
            self, scores.detach(), visible)},
        law=GRADIENTS,
    ),
}  # fmt: skip


def __getattr__(name: str) -> Callable[[], TorchSubject]:
    fault = FAULTS.get(name.replace("_", "-"))
    if fault is None:
        raise AttributeError(f"no fault {name!r}")
    return fault.subject
