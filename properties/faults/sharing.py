"""Faults of shared key/value heads and of a head of its own, which the core has not.

They are planted in the shipped decoders that have them: the textbook, and the scalar alternatives.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from logitproof.properties.scalar.foreign import Foreign
from logitproof.properties.textbook import TextbookSubject

from .fault import Fault, planted

__all__ = ["FAULTS"]

Array: TypeAlias = NDArray[np.float64]
_FOUND: dict[str, Fault] = {}
textbook = partial(
    planted, _FOUND, kind="mistake", form="textbook", source="notes/field.md (conventions)"
)
foreign = partial(
    planted, _FOUND, kind="mistake", form="foreign", source="notes/field.md (conventions)"
)
SHARED, SHARED_BACK = (TextbookSubject, "_shared"), (TextbookSubject, "_shared_back")


def _summed_in_turn(self: Any, upstream: Array) -> Array:
    B, _, T, d_h = upstream.shape
    return np.asarray(upstream.reshape(B, self._sharers, -1, T, d_h).sum(axis=1))


@textbook(SHARED, SHARED_BACK)
def kv_heads_in_turn(*_: Any) -> Any:
    """Query head h reads key/value head h mod H_kv, and its gradient goes there."""
    return lambda self, x: np.tile(x, (1, self._sharers, 1, 1)), _summed_in_turn


@textbook(SHARED)
def kv_heads_reversed(right: Any) -> Any:
    """The groups read the key/value heads from the last to the first."""
    return lambda self, x: right(self, x[:, ::-1])


@textbook(SHARED)
def kv_repeated_along_positions(_: Any) -> Any:
    """Keys and values are repeated along their positions, then cut into as many heads."""

    def shared(self: Any, x: Array) -> Array:
        B, _, T, d_h = x.shape
        return np.repeat(x, self._sharers, axis=2).reshape(B, -1, T, d_h)

    return shared


@textbook((TextbookSubject, "_block"))
def values_in_turn(right: Any) -> Any:
    """Keys are shared in blocks, values in turn."""

    class ValuesInTurn:
        """A subject whose second sharing, that of the values, goes round."""

        def __init__(self, subject: Any) -> None:
            self._subject, self._calls = subject, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._subject, name)

        def _shared(self, x: Array) -> Array:
            self._calls += 1
            if self._calls < 2:
                return np.asarray(self._subject._shared(x))
            return np.tile(x, (1, self._subject._sharers, 1, 1))

    return lambda self, x, prefix, saved: right(ValuesInTurn(self), x, prefix, saved)


@textbook(SHARED_BACK)
def shared_gradient_of_last_head(_: Any) -> Any:
    """A shared key or value gets the gradient of the last head that reads it."""
    return lambda self, upstream: upstream[:, self._sharers - 1 :: self._sharers].copy()


@textbook(SHARED_BACK)
def shared_gradient_averaged(right: Any) -> Any:
    """A shared key or value gets the mean of its heads' gradients, not their sum."""
    return lambda self, upstream: right(self, upstream) / self._sharers


@textbook(SHARED_BACK)
def shared_gradient_summed_in_turn(_: Any) -> Any:
    """Gradients are summed over the heads h mod H_kv, while they read in blocks."""
    return _summed_in_turn


@textbook((TextbookSubject, "_logits"))
def logits_by_table(_: Any) -> Any:
    """The embedding table gives the logits, whatever the head holds."""
    return lambda self, hidden: hidden @ self.weights["token_embedding.weight"].T


@textbook((TextbookSubject, "_logits_back"))
def own_head_gradient_in_table(right: Any) -> Any:
    """The gradient of the head's own matrix is added to the table too, as of one that is tied."""

    def logits_back(self: Any, upstream: Array, hidden: Array, grads: dict[str, Array]) -> Any:
        slope = right(self, upstream, hidden, grads)
        if not self.config.tied:
            grads["token_embedding.weight"] = grads["head.weight"].copy()
        return slope

    return logits_back


@textbook((TextbookSubject, "_logits_back"))
def own_head_gradient_missing(right: Any) -> Any:
    """The head's own matrix gets no gradient."""

    def logits_back(self: Any, upstream: Array, hidden: Array, grads: dict[str, Array]) -> Any:
        slope = right(self, upstream, hidden, grads)
        if not self.config.tied:
            grads["head.weight"] *= 0.0
        return slope

    return logits_back


@textbook((TextbookSubject, "_backward"))
def lookups_in_own_head_gradient(right: Any) -> Any:
    """What the lookups owe is added to the head's gradient too, as of one that is tied."""

    def backward(self: Any, *arguments: Any) -> Any:
        grads = right(self, *arguments)
        if not self.config.tied:
            grads["head.weight"] = grads["head.weight"] + grads["token_embedding.weight"]
        return grads

    return backward


@textbook((TextbookSubject, "_logits_back"))
def hidden_slope_by_table(right: Any) -> Any:
    """What logits owe to hidden states comes back through the embedding table."""

    def logits_back(self: Any, upstream: Array, hidden: Array, grads: dict[str, Array]) -> Any:
        right(self, upstream, hidden, grads)
        return upstream @ self.weights["token_embedding.weight"]

    return logits_back


@foreign((Foreign, "_shared"))
def cached_kv_heads_in_turn(right: Any) -> Any:
    """Behind a cache its rows are read in turn, the new ones in blocks."""

    def shared(self: Any, projected: Any, head: int, kv_heads: int) -> Any:
        rows = right(self, projected, head, kv_heads)
        if self.cached is None:
            return rows
        first_reader = head % kv_heads * (self.config.heads // kv_heads)
        return right(self, projected, first_reader, kv_heads)[: self.cached] + rows[self.cached :]

    return shared


@foreign((Foreign, "_read"))
def group_rows_masked_as_positions(right: Any) -> Any:
    """The heads of a group are rows of one product, whose mask takes a row for a position."""

    def read(self: Any, t: int, cells: Any) -> range:
        allowed: range = right(self, t, cells)
        sharers = self.config.heads // (self.config.kv_heads or self.config.heads)
        end = min(t * sharers + 1, cells.length)
        return allowed if sharers == 1 else range(allowed.start, max(allowed.stop, end))

    return read


@foreign((Foreign, "_head_rows"))
def chunk_logits_by_table(right: Any) -> Any:
    """Behind a cache the embedding table gives the logits."""

    def head_rows(self: Any) -> Any:
        return right(self) if self.cached is None else self.weights["token_embedding.weight"]

    return head_rows


FAULTS = tuple(_FOUND.values())
