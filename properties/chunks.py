"""A session of which every call reads one more chunk: what adapters of whole models share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

__all__ = ["ChunkSession", "Newest"]


@dataclass(frozen=True, slots=True)
class Newest:
    """What a step of a session gives: the newest position's logits [V], and which it is."""

    logits: Any
    position: int


class ChunkSession(ABC):
    """A prompt and a token are chunks like any other; nothing is held open."""

    def __enter__(self) -> ChunkSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Holds nothing open."""
        del kind, error, trace

    @abstractmethod
    def extend(self, ids: Sequence[int]) -> Newest:
        """The newest logits behind one more chunk."""

    def prefill(self, ids: Sequence[int]) -> Newest:
        """The newest logits behind the prompt."""
        return self.extend(ids)

    def decode(self, token: int) -> Newest:
        """The logits behind one token."""
        return self.extend([token])
