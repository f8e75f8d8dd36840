"""Faults that cost work and change no bit: the long way round where the short one was open."""

from __future__ import annotations

from functools import partial
from typing import Any

from logitproof.core import logarithm, rounded, row, session
from logitproof.core.kernels import Kernel, OutOfRange

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake", form="fused")


@mistake((rounded, "ERROR"), (logarithm, "ERROR"), source="notes/speed.md section 5")
def every_rounding_undecided(_: float, __: float) -> tuple[float, float]:
    """The error allowed for is so wide that every rounding is settled by many digits."""
    return 1.0, 1.0


@mistake((Kernel, "check"), source="notes/speed.md section 2")
def fused_passes_give_up(_: Any) -> Any:
    """The guard of the fused passes is never sure, so that their steps always run."""

    def check(_: Kernel, *__: Any) -> None:
        raise OutOfRange

    return check


@mistake((session.DecodeSession, "_rows"), source="notes/speed.md section 8")
def rows_give_up(_: Any) -> Any:
    """No token is computed on plain arrays."""
    return lambda *_: None


@mistake((row, "mix_block"), source="notes/speed.md section 8")
def chunks_give_up(_: Any) -> Any:
    """The tokens of a prompt or a chunk are never computed together."""

    def mix_block(*_: Any) -> Any:
        raise row.Undecided

    return mix_block


FAULTS = tuple(_FOUND.values())
