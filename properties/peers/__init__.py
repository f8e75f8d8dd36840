"""The same decoder as users of other frameworks write it: what the cost of ours is held against.

A peer is a module that imports its framework, so it is loaded by name and only where that is
installed. Each computes what the core computes up to rounding: norms with a gain before each
branch, rotary positions on adjacent features, SwiGLU, a tied head, the mean loss.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["PEERS", "Array", "Ids", "Peer", "Sizes", "Work", "missing", "peer", "turns"]

Array: TypeAlias = NDArray[np.float64]
Ids: TypeAlias = NDArray[np.int64]

# Name -> what it is, in the order of the tables.
PEERS = {
    "torch": "eager PyTorch",
    "autograd": "HIPS autograd",
    "jax": "jitted JAX",
}


class Sizes(Protocol):
    """What a peer reads of a configuration."""

    @property
    def heads(self) -> int:
        """Attention heads."""

    @property
    def layers(self) -> int:
        """Blocks."""

    @property
    def model_width(self) -> int:
        """Residual features."""

    @property
    def rope_base(self) -> float:
        """The base of the rotary frequencies."""

    @property
    def rms_epsilon(self) -> float:
        """What is added to a mean square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One batch of a peer: calls to time, and what they compute as numpy arrays.

    forward:          the loss, as the framework does it where gradients will be asked for
    forward_backward: the loss and every gradient, from zero
    result:           loss and gradients by parameter name
    """

    forward: Callable[[], object]
    forward_backward: Callable[[], object]
    result: Callable[[], tuple[float, dict[str, Array]]]


class Peer(Protocol):
    """What the module of a peer offers."""

    def work(self, sizes: Sizes, weights: Mapping[str, Array], ids: Ids, targets: Ids) -> Work:
        """One batch [B, T] over these weights."""

    def decoding(
        self, sizes: Sizes, weights: Mapping[str, Array], prompt: Ids
    ) -> Callable[[int], object] | None:
        """One cached token behind the prompt [T], the same place at every call -> logits [V].

        None: nobody decodes with this framework.
        """


def missing(name: str) -> str | None:
    """Why a peer cannot run here, or None."""
    if importlib.util.find_spec(name) is None:
        return f"{PEERS[name]} is not installed: it is in the dependency group `bench`"
    return None


def peer(name: str) -> Peer:
    """The module of a peer that is not missing."""
    module: Any = importlib.import_module(f".{name}_peer", __name__)
    return cast(Peer, module)


def turns(sizes: Sizes, T: int) -> tuple[Array, Array]:
    """Cosines and sines [T, d_h / 2] of the angles p * base^(-2i / d_h)."""
    d_h = sizes.model_width // sizes.heads
    exponents = -2.0 * np.arange(d_h // 2) / d_h
    angles = np.arange(T)[:, None] * np.power(sizes.rope_base, exponents)
    return np.cos(angles), np.sin(angles)
