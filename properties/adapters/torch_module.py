"""A plain PyTorch decoder under test, float64 or float32, with either attention and cache.

`logitproof verify --decoder logitproof.properties.adapters.torch_module:float32_sdpa`: a name is a
choice of each of `CHOICES`, in any order, the first of each where none is named. PyTorch is
imported when a decoder is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from logitproof.properties.chunks import ChunkSession, Newest
from logitproof.properties.laws.protocol import Arrays, Ids, Valid
from logitproof.properties.scalar import Config, Layout

__all__ = ["CHOICES", "CLAIMS", "TorchSession", "TorchSubject", "chosen_of", "named"]

CLAIMS: Mapping[str, bool] = {
    "taps": True,
    "decode": True,
    "grouped-heads": True,
    "untied-head": True,
    "ranges": True,
    "row-bits": False,  # a matrix product may round a row otherwise among other rows
}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "dtype": ("float64", "float32"),
    "attention": ("eager", "sdpa"),
    "cache": ("dynamic", "static"),
}
CACHES = {"dynamic": "DynamicCache", "static": "StaticCache"}


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

    def logits(self, ids: Ids, layout: Layout | None = None) -> Any:
        """[B, T, V]"""
        with self.torch.no_grad():
            return _array(self.model.logits(self.parts.batch_of(ids, layout)))

    def loss_and_gradients(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> tuple[Any, Arrays]:
        """One forward, one reverse pass from no gradient.

        Raises ValueError where no cell counts: PyTorch's own mean of nothing is NaN.
        """
        if valid is None:
            valid = [[token >= 0 for token in row] for row in ids]
        if not any(map(any, valid)):
            raise ValueError("no cell counts: there is no mean loss")
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


class TorchSession(ChunkSession):
    """Tokens read so far, their keys and values."""

    def __init__(self, subject: TorchSubject) -> None:
        self.subject, self.length = subject, 0
        self.cache = subject.cache_type(subject.config, subject.dtype)

    def extend(self, ids: Sequence[int]) -> Newest:
        """The newest logits behind one more chunk."""
        subject, start = self.subject, self.length
        keys = self.cache.keys(start + len(ids))
        with subject.torch.no_grad():
            batch = subject.parts.chunk_of(ids, start, keys)
            logits = subject.model.logits(batch, self.cache, start)
        self.length += len(ids)
        return Newest(_array(logits)[0, -1], self.length - 1)


def _array(tensor: Any) -> Any:
    return np.array(tensor.detach().numpy())


def named(name: str) -> Callable[[], TorchSubject]:
    """The factory of a name. Raises AttributeError for a name with another choice."""
    chosen = chosen_of(CHOICES, name)
    return lambda: TorchSubject(**chosen)


def chosen_of(choices: Mapping[str, tuple[str, ...]], name: str) -> dict[str, str]:
    """What the words of a name choose. Raises AttributeError for a word that chooses nothing."""
    chosen: dict[str, str] = {}
    for word in name.split("_"):
        known = [key for key, words in choices.items() if word in words]
        if not known or known[0] in chosen:
            raise AttributeError(f"{name}: no choice {word!r}")
        chosen[known[0]] = word
    return chosen


def __getattr__(name: str) -> Callable[[], TorchSubject]:
    return named(name)
