"""A decoder under test that follows other conventions than the specification's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .chunks import ChunkSession, Newest
from .laws.protocol import Ids, Valid
from .scalar import C_LIBRARY, Config, Layout
from .scalar.conventions import CHOICES, Conventions
from .scalar.foreign import Foreign, foreign_loss

__all__ = ["ForeignSession", "ForeignSubject"]


class ForeignSubject:
    """Logits, loss and sessions by the scalar decoder's alternatives; it claims no gradients.

    Refuses: a convention or a choice that is none (ValueError)
    """

    capabilities: Mapping[str, bool] = {
        "decode": True,
        "gradients": False,
        "grouped-heads": True,
        "untied-head": True,
    }
    conventions: Mapping[str, str] = {"functions": "c-library"}

    def __init__(self, **choices: str) -> None:
        for name, choice in choices.items():
            if choice not in CHOICES.get(name, ()):
                known = ", ".join(CHOICES.get(name, CHOICES))
                raise ValueError(f"{name}={choice!r} is no convention; known: {known}")
        self.follows = Conventions(**choices)

    def load(self, config: Config, weights: Mapping[str, Any]) -> None:
        """A decoder over copies of the weights."""
        self.config = config
        rows = {name: np.array(value).tolist() for name, value in weights.items()}
        self.weights = {n: v if isinstance(v[0], list) else [v] for n, v in rows.items()}

    def logits(self, ids: Ids, layout: Layout | None = None) -> NDArray[np.float64]:
        """[B, T, V]"""
        return np.array(self._decoder(None).logits(ids, layout), dtype=np.float64)

    def loss_and_gradients(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> tuple[float, dict[str, Any]]:
        """The loss alone."""
        if valid is None:
            valid = [[token >= 0 for token in row] for row in ids]
        logits = self._decoder(None).logits(ids, layout)
        return float(foreign_loss(C_LIBRARY, logits, targets, valid, self.follows)), {}

    def session(self) -> ForeignSession:
        """A session that reads a prompt, then one chunk."""
        return ForeignSession(self)

    def _decoder(self, cached: int | None) -> Foreign:
        return Foreign(
            config=self.config,
            weights=self.weights,
            conventions=self.follows,
            arithmetic=C_LIBRARY,
            cached=cached,
        )


class ForeignSession(ChunkSession):
    """Every answer is computed from all tokens, as the conventions have it."""

    def __init__(self, subject: ForeignSubject) -> None:
        self.subject = subject
        self.ids: list[int] = []

    def extend(self, ids: Sequence[int]) -> Newest:
        """The newest logits [V] behind one more chunk."""
        cached = len(self.ids) or None
        self.ids += ids
        logits = self.subject._decoder(cached).logits([self.ids])[0][-1]
        return Newest(np.array(logits), len(self.ids) - 1)
