"""A textbook decoder whose products meet their factors in an order that is drawn.

The worst order of a product is one in which a part of it falls below the smallest number before
a large factor arrives. The declared class has every order, so no law may call this one wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .scalar import Generator
from .textbook import Array, Forms, TextbookSubject, sigmoid

__all__ = ["ReorderedSubject"]

TRIALS = 20  # of orders, until one does not overflow: the class leaves out what does
WRITTEN_OUT = 2.0**20  # the class has p u - p w, for p (u - w), while u stays below this


class ReorderedSubject(TextbookSubject):
    """Norms, SwiGLU and scaled scores, forward and backward, as products in drawn orders."""

    conventions: Mapping[str, str] = {"functions": "numpy", "products": "in drawn orders"}

    def __init__(self, seed: int) -> None:
        keeps, groups, mean = seed % 2, seed // 2 % 2, seed // 4 % 2
        super().__init__(
            Forms(
                keeps=keeps == 0,
                groups=("heads", "rows")[groups],
                mean=("probabilities", "output")[mean],
            )
        )
        self.generator = Generator(seed)

    def _times(self, *factors: Array) -> Array:
        """The product, two drawn parts at a time."""
        for _ in range(TRIALS):
            parts = list(factors)
            while len(parts) > 1:
                left = parts.pop(self.generator.below(len(parts)))
                right = parts.pop(self.generator.below(len(parts)))
                parts.append(np.asarray(left * right))
            if np.isfinite(parts[0]).all():
                break
        return parts[0]

    def _cubed(self, x: Array, inverse: Array, *factors: Array) -> Array:
        """inverse^3 x times the factors; two inverses at most meet before x is there."""
        if self.generator.below(2):
            return self._times(self._times(x, inverse), inverse, inverse, *factors)
        if self.generator.below(2):
            return self._times(self._times(self._times(x, inverse), inverse, inverse), *factors)
        return self._times(self._times(self._times(x, *factors), inverse, inverse), inverse)

    def _inverse(self, x: Array) -> Array:
        return np.asarray(
            1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config.rms_epsilon)
        )

    def _norm(self, x: Array, gain: Array) -> Array:
        return self._times(x, self._inverse(x), gain)

    def _norm_back(self, x: Array, gain: Array, upstream: Array) -> tuple[Array, Array]:
        for _ in range(TRIALS):
            slopes = self._drawn_norm_back(x, gain, upstream)
            if all(np.isfinite(part).all() for part in slopes):
                return slopes
        return super()._norm_back(x, gain, upstream)

    def _drawn_norm_back(self, x: Array, gain: Array, upstream: Array) -> tuple[Array, Array]:
        r, share = self._inverse(x), np.array(1.0 / x.shape[-1])
        if self.generator.below(2):  # sum u g x, then all else
            sums = self._times(upstream, gain, x).sum(axis=-1, keepdims=True)
            pulled = self._cubed(x, r, sums, share)
        else:  # each term by itself
            columns = [np.asarray(part)[..., None, :] for part in (upstream, gain, x)]
            pulled = self._cubed(x[..., None], r[..., None], share, *columns).sum(axis=-1)
        by_gain = self._times(upstream, x, r).sum(axis=(0, 1))
        return self._times(upstream, gain, r) - pulled, by_gain

    def _gated(self, gate: Array, up: Array) -> Array:
        return self._times(gate, sigmoid(gate), up)

    def _gated_back(self, gate: Array, up: Array, d: Array) -> tuple[Array, Array]:
        s, form = sigmoid(gate), self.generator.below(3)
        if form == 0:
            by_gate = self._times(d, up, s, 1.0 + gate * (1.0 - s))
        elif form == 1:
            by_gate = self._times(d, up, s) + self._times(d, up, gate, s, 1.0 - s)
        else:
            straight = self._times(d, up, s) + self._times(d, up, s, gate)
            by_gate = straight - self._times(d, up, s, s, gate)
        return by_gate, self._times(d, gate, s)

    def _scores(self, q: Array, k: Array) -> Array:
        root, form = 1.0 / math.sqrt(q.shape[-1]), self.generator.below(3)
        turned = k.transpose(0, 1, 3, 2)
        if form == 0:
            return np.asarray((q * root) @ turned)
        return np.asarray(q @ (turned * root) if form == 1 else q @ turned * root)

    def _scores_back(
        self, q: Array, k: Array, p: Array, upstream: Array, mean: Array
    ) -> tuple[Array, Array]:
        root, form = np.array(1.0 / math.sqrt(q.shape[-1])), self.generator.below(3)
        if form == 0 and np.abs(upstream).max() < WRITTEN_OUT:
            slopes = self._times(p, upstream, root) - self._times(p, mean, root)
        elif form == 1:
            slopes = self._times(p, upstream - mean, root)
        else:
            slopes = p * (upstream - mean)
            if self.generator.below(2):
                return slopes @ (k * root), self._over_queries(slopes, q * root)
            return slopes @ k * root, self._over_queries(slopes, q) * root
        return slopes @ k, self._over_queries(slopes, q)
