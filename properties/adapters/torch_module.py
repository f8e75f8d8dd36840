"""A plain PyTorch decoder under test, float64 or float32, with either attention and cache.

`logitproof verify --decoder logitproof.properties.adapters.torch_module:float64`; PyTorch is
imported when one is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from logitproof.properties.laws.protocol import Arrays, Ids, Valid
from logitproof.properties.laws.difference import Values
from logitproof.properties.scalar import Config, Layout

__all__ = [
    "Newest", "TorchSession", "TorchSubject", "float32", "float32_sdpa", "float32_static",
    "float64", "sdpa", "sdpa_static", "static",
]  # fmt: skip

CLAIMS: Mapping[str, bool] = {
    "taps": True,
    "decode": True,
    "cached-decode": True,
    "grouped-heads": True,
    "untied-head": True,
    "invariant-bits": False,  # a matrix product may round a row otherwise among other rows
}
CACHES = {"dynamic": "DynamicCache", "static": "StaticCache"}


@dataclass(frozen=True, slots=True)
class Newest:
    """What a step of a session gives: the newest position and its logits [V]."""

    logits: Any
    position: int


class TorchSubject:
    """`torch_model.Model` under test.

    dtype:     "float64" or "float32"
    attention: "eager" or "sdpa"
    cache:     "dynamic" (concatenated) or "static" (preallocated)
    model:     makes the model; None for `torch_model.Model`
    """

    capabilities = CLAIMS

    def __init__(
        self,
        dtype: str = "float64",
        attention: str = "eager",
        cache: str = "dynamic",
        model: Any = None,
    ) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.parts: Any = importlib.import_module("logitproof.properties.adapters.torch_model")
        self.model_type = model or self.parts.Model
        self.dtype, self.attention = getattr(self.torch, dtype), attention
        self.cache_type = getattr(self.parts, CACHES[cache])
        self.conventions: Mapping[str, str] = {"functions": "c-library", "dtype": dtype}

    def load(self, config: Config, weights: Mapping[str, Any]) -> None:
        """A model over tensors of its own."""
        self.config = config
        self.model: Any = self.model_type(
            config, weights, dtype=self.dtype, attention=self.attention
        )

    def logits(self, ids: Ids, layout: Layout | None = None) -> Values:
        """[B, T, V]"""
        with self.torch.no_grad():
            return _array(self.model.logits(self.parts.batch_of(ids, layout)))

    def loss_and_gradients(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> tuple[Any, Arrays]:
        """One forward, one reverse pass from no gradient."""
        if valid is None:
            valid = [[token >= 0 for token in row] for row in ids]
        for weight in self.model.weights.values():
            weight.grad = None
        logits = self.model.logits(self.parts.batch_of(ids, layout))
        loss = self.model.loss(logits, self.torch.tensor(targets), self.torch.tensor(valid))
        loss.backward()
        zero = self.torch.zeros_like
        gradients = {
            name: _array(zero(weight) if weight.grad is None else weight.grad)
            for name, weight in self.model.weights.items()
        }
        return loss.detach().numpy()[()], gradients

    def taps(self, ids: Ids, layout: Layout | None = None) -> Arrays:
        """What lies between ids and logits."""
        self.model.taps = {}
        try:
            self.logits(ids, layout)
            return dict(self.model.taps)
        finally:
            self.model.taps = None

    def session(self) -> TorchSession:
        """Cached decoding of one text."""
        return TorchSession(self)


class TorchSession:
    """Tokens read so far, their keys and values."""

    def __init__(self, subject: TorchSubject) -> None:
        self.subject, self.length = subject, 0
        self.cache = subject.cache_type(subject.config, subject.dtype)

    def __enter__(self) -> TorchSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Holds nothing open."""

    def prefill(self, ids: Sequence[int]) -> Newest:
        """The newest logits behind the prompt."""
        return self.extend(ids)

    def extend(self, ids: Sequence[int]) -> Newest:
        """The newest logits behind one more chunk."""
        subject, start = self.subject, self.length
        keys = self.cache.keys(start + len(ids))
        with subject.torch.no_grad():
            batch = subject.parts.chunk_of(ids, start, keys)
            logits = subject.model.logits(batch, self.cache, start)
        self.length += len(ids)
        return Newest(_array(logits)[0, -1], self.length - 1)

    def decode(self, token: int) -> Newest:
        """The logits behind one token."""
        return self.extend([token])


def _array(tensor: Any) -> Any:
    return np.array(tensor.detach().numpy())


def float64() -> TorchSubject:
    """Float64, eager attention, dynamic cache."""
    return TorchSubject()


def sdpa() -> TorchSubject:
    """Float64, SDPA, dynamic cache."""
    return TorchSubject(attention="sdpa")


def static() -> TorchSubject:
    """Float64, eager attention, static cache."""
    return TorchSubject(cache="static")


def sdpa_static() -> TorchSubject:
    """Float64, SDPA, static cache."""
    return TorchSubject(attention="sdpa", cache="static")


def float32() -> TorchSubject:
    """Float32, eager attention, dynamic cache."""
    return TorchSubject(dtype="float32")


def float32_sdpa() -> TorchSubject:
    """Float32, SDPA, dynamic cache."""
    return TorchSubject(dtype="float32", attention="sdpa")


def float32_static() -> TorchSubject:
    """Float32, eager attention, static cache."""
    return TorchSubject(dtype="float32", cache="static")
