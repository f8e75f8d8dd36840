"""What a call of ours is made of: the share of the time that each of its functions takes itself."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logitproof.core import DecoderConfig

from .contenders import DECODE, KERNELS, TRAINING, contenders

__all__ = ["Shares", "made_of", "shares"]

MOST = 12
LEAST_SECONDS = 0.5
MOST_CALLS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The functions of one call by their share: place, calls in it, share of its time.

    A profiler makes a small function look dearer than it is: shares tell where to look, the timed
    tables what it costs.
    """

    size: str
    task: str
    who: str
    functions: tuple[tuple[str, float, float], ...]


def shares(name: str, config: DecoderConfig, who: Iterable[str] = KERNELS) -> list[Shares]:
    """Of a forward and backward, and of a token, under each kernel that runs here."""
    return [
        Shares(size=name, task=task, who=kernel, functions=made_of(call))
        for task in (TRAINING, DECODE)
        for kernel, call in contenders(config, task, who).calls.items()
    ]


def made_of(call: Callable[[], object]) -> tuple[tuple[str, float, float], ...]:
    """The dearest functions of one call, measured over some calls after a first one."""
    call()
    profile, calls = cProfile.Profile(time.process_time), 0
    stats: dict[Any, Any] = {}
    total = 0.0
    while calls < MOST_CALLS and total < LEAST_SECONDS:
        profile.runcall(call)
        calls += 1
        if calls & (calls - 1) == 0:  # a sum over all functions is dear: at powers of two
            stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
            total = sum(own for _, _, own, _, _ in stats.values())
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    total = sum(own for _, _, own, _, _ in stats.values())
    dearest = sorted(stats.items(), key=lambda entry: -entry[1][2])[:MOST]
    return tuple(
        (_place(*function), count / calls, own / total)
        for function, (_, count, own, _, _) in dearest
    )


def _place(path: str, line: int, function: str) -> str:
    """`ops.matmul`, `<built-in …>`."""
    return function if path == "~" else f"{Path(path).stem}.{function} ({line})"
