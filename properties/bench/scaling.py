"""How cost grows with each size, beside how the counted multiply-adds grow over the same sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from logitproof.core import DecoderConfig
from logitproof.properties.peers import products

from .contenders import TRAINING, contenders
from .sizes import config
from .timing import interleaved

__all__ = ["AXES", "Growth", "exponent", "growths"]

KINDS = ("ordered", "blas", "torch")
TAIL = 3  # points of the fit: the largest, where what a call costs whatever its size is least


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Costs along one axis; an exponent is the slope of log cost over log size at its end.

    expected: that of the counted multiply-adds
    """

    axis: str
    points: tuple[int, ...]
    seconds: Mapping[str, tuple[float, ...]]
    multiply_adds: tuple[int, ...]

    @property
    def expected(self) -> float:
        """The exponent of the counted multiply-adds."""
        return exponent(self.points, self.multiply_adds)

    def measured(self, who: str) -> float:
        """The exponent of a contender's seconds."""
        return exponent(self.points, self.seconds[who])


def _at(*, T: int = 64, D: int = 64, V: int = 512, L: int = 2) -> DecoderConfig:
    return config(V, D, L, 4, 3 * D, T)


# Axis -> (points, the configuration at a point); B keeps the configuration.
AXES: Mapping[str, tuple[tuple[int, ...], Callable[[int], DecoderConfig]]] = {
    "T": ((64, 128, 256, 512), lambda n: _at(T=n)),
    "D": ((32, 64, 128, 256), lambda n: _at(D=n)),
    "V": ((512, 2048, 8192, 16384), lambda n: _at(V=n)),
    "L": ((1, 2, 4, 8, 16), lambda n: _at(L=n)),
    "B": ((1, 2, 4, 8, 16), lambda _: _at()),
}


def exponent(points: Sequence[int], costs: Sequence[float]) -> float:
    """The least-squares slope of log cost over log size, over the last `TAIL` points."""
    x, y = np.log(points[-TAIL:]), np.log(costs[-TAIL:])
    return float(np.polyfit(x, y, 1)[0])


def growths(*, rounds: int, least: float) -> list[Growth]:
    """Forward and backward along every axis, the contenders of one point in turns."""
    found = []
    for axis, (points, at) in AXES.items():
        seconds: dict[str, list[float]] = {}
        counted = []
        for point in points:
            chosen, rows = at(point), point if axis == "B" else 1
            calls = contenders(chosen, TRAINING, KINDS, rows=rows).calls
            for who, timing in interleaved(calls, rounds=rounds, least=least).items():
                seconds.setdefault(who, []).append(timing.seconds)
            counted.append(rows * products.multiply_adds(chosen, chosen.max_positions))
        kept = {who: tuple(figures) for who, figures in seconds.items()}
        found.append(Growth(axis=axis, points=points, seconds=kept, multiply_adds=tuple(counted)))
    return found
