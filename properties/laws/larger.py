"""Cases beyond the sizes that are quick to draw: in each one thing is large, late or unusual.

A mistake that begins with the ninth class, the third row of a batch or the second tile of queries
is in no small case. One large size at a time keeps the truth to 50 digits affordable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from logitproof.properties.scalar import Config, Generator, Layout

from .cases import PAD, Case
from .regimes import Regime, Sizes, TruthCase, case_of

__all__ = [
    "KINDS", "WIDER", "LargerCase", "WiderCase", "forget", "larger_cases", "long_cases",
    "ranged_cases", "redrawn", "wider_cases",
]  # fmt: skip

WARM, HOT, TINY = Regime(), Regime(attention="hot"), Regime(norm="tiny")
SMALL_EPSILONS, LARGE_EPSILONS = (1e-12, 1e-9), (1.0, 16.0)
BASES = (1.5, 10.5, 1000.25, 3e6 + 0.5)


@dataclass(frozen=True, kw_only=True)
class LargerCase(TruthCase):
    """A case of one of the `KINDS`; a layout that no segments describe is told cell by cell."""

    larger: str

    def __str__(self) -> str:
        told = super().__str__()
        if self.layout is None or self.segments is not None:
            return told
        starts, positions = ([*map(list, rows)] for rows in (
            self.layout.range_starts, self.layout.positions))  # fmt: skip
        return f"{told}; first keys {starts}; positions {positions}"


class Below:
    """Numbers drawn from one seed: `pick(n)` is one of 0 .. n - 1."""

    def __init__(self, seed: int) -> None:
        self.pick = Generator(seed).below


Make = Callable[[int, Below], TruthCase]


def _long(seed: int, b: Below) -> TruthCase:
    return case_of(Sizes(T=17 + b.pick(24), V=2 + b.pick(3)), seed, WARM)


def _deep(seed: int, b: Below) -> TruthCase:
    return case_of(Sizes(T=2, V=3, L=3 + b.pick(3)), seed, WARM)


def _many_heads(seed: int, b: Below) -> TruthCase:
    return case_of(Sizes(T=2 + b.pick(2), V=3, heads=4 + b.pick(3)), seed, WARM)


def _wide_heads(seed: int, b: Below) -> TruthCase:
    return case_of(Sizes(T=4, V=6, head_width=8 + 2 * b.pick(2)), seed, WARM, base=100.0)


def _inner(seed: int, b: Below) -> TruthCase:
    return case_of(Sizes(T=2, V=3, F=4 + b.pick(14)), seed, WARM)


def _classes(seed: int, b: Below) -> TruthCase:
    return case_of(Sizes(T=3 + b.pick(3), V=7 + b.pick(90)), seed, WARM)


def _one_class(seed: int, b: Below) -> TruthCase:
    return case_of(Sizes(B=1 + b.pick(2), T=2, V=1), seed, WARM)


def _rows(layout: str) -> Make:
    regime = Regime(layout=layout)
    return lambda seed, b: case_of(Sizes(B=3 + b.pick(4), T=2 + b.pick(2), V=5), seed, regime)


def _late(seed: int, b: Below) -> TruthCase:
    """Across a power of two: a common shift of all positions changes nothing."""
    sizes, far = Sizes(T=5, V=4, head_width=4), Regime(positions="far", attention="hot")
    return case_of(sizes, seed, far, first=2 ** (11 + b.pick(3)) - 2)


def _small_epsilon(seed: int, b: Below) -> TruthCase:
    sizes = Sizes(T=2, V=4, head_width=4)
    return case_of(sizes, seed, TINY, epsilon=SMALL_EPSILONS[b.pick(2)])


def _large_epsilon(seed: int, b: Below) -> TruthCase:
    sizes = Sizes(T=2, V=4, head_width=4)
    return case_of(sizes, seed, TINY, epsilon=LARGE_EPSILONS[b.pick(2)])


def _base(seed: int, b: Below) -> TruthCase:
    sizes, far = Sizes(T=3, V=4, head_width=4 + 2 * b.pick(2)), Regime(positions="far")
    return case_of(sizes, seed, far, base=BASES[b.pick(4)])


def _segments(seed: int, b: Below) -> TruthCase:
    """Three to six documents in a row, some of one token."""
    sizes = tuple(1 + b.pick(3) for _ in range(3 + b.pick(4)))
    case = case_of(Sizes(T=sum(sizes), V=5), seed, HOT)
    return replace(case, layout=Layout.packed([sizes], sum(sizes)), segments=(sizes,))


def _chosen(seed: int, b: Below) -> TruthCase:
    """Some cells are counted, often no first one, in rows of equal length."""
    case = case_of(Sizes(B=1 + b.pick(2), T=4, V=5), seed, WARM)
    return _counting(case, b, without=None)


def _rows_without(seed: int, b: Below) -> TruthCase:
    """Of one row no cell is counted."""
    layout = ("full", "padded")[b.pick(2)]
    case = case_of(Sizes(B=3, T=3, V=5), seed, Regime(layout=layout))
    return _counting(case, b, without=b.pick(3))


def _counting(case: TruthCase, b: Below, *, without: int | None) -> TruthCase:
    """The case over other chosen cells: of each row but one the last, and perhaps others."""

    def counted(i: int, t: int, last: int) -> bool:
        return t <= last and i != without and (t == last or (t > 0 and b.pick(2) == 0))

    lasts = [sum(v != PAD for v in row) - 1 for row in case.ids]
    T, V = len(case.ids[0]), case.config.vocabulary_size
    valid = [[counted(i, t, last) for t in range(T)] for i, last in enumerate(lasts)]
    targets = [[b.pick(V) if chosen else PAD for chosen in row] for row in valid]
    return replace(case, valid=valid, targets=targets)


KINDS: Mapping[str, Make] = MappingProxyType({
    "text": _long,
    "layers": _deep,
    "heads": _many_heads,
    "head width": _wide_heads,
    "inner width": _inner,
    "classes": _classes,
    "rows": _rows("full"),
    "padded rows": _rows("padded"),
    "packed rows": _rows("packed"),
    "positions": _late,
    "documents in a row": _segments,
    "chosen cells": _chosen,
    "rows without targets": _rows_without,
    "small epsilon": _small_epsilon,
    "large epsilon": _large_epsilon,
    "base": _base,
    "one class": _one_class,
})  # fmt: skip
LEAST = len(KINDS)  # every kind is in the smallest run
SHARE = 6  # ordinary cases for one of these, whose truth is dear


@cache
def _drawn(larger: str, seed: int) -> LargerCase:
    """Kept, for the laws ask for the same truth."""
    make = _ranged if larger == RANGED else KINDS[larger]
    plain = make(seed, Below(seed ^ 0x5EED))
    return LargerCase(larger=larger, **{f.name: getattr(plain, f.name) for f in fields(TruthCase)})


def larger_cases(count: int) -> Iterator[LargerCase]:
    """The kinds in turn."""
    names = list(KINDS)
    for n in range(max(LEAST, count // SHARE)):
        yield _drawn(names[n % len(names)], 11_000 + n)


RANGED = "ranges of keys"


def _ranged(seed: int, b: Below) -> TruthCase:
    """Each query has its own first key and its own position, as windows and trees have them."""
    regime = Regime(attention="hot", layout=("full", "padded")[b.pick(2)])
    sizes = Sizes(B=1 + b.pick(2), T=2 + b.pick(4), V=5, head_width=(2, 4)[b.pick(2)])
    case = case_of(sizes, seed, regime)
    lengths = [sum(v != PAD for v in row) for row in case.ids]
    T, C = len(case.ids[0]), 12
    starts = [[b.pick(t + 1) if t < n else 0 for t in range(T)] for n in lengths]
    positions = [[b.pick(C) if t < n else 0 for t in range(T)] for n in lengths]
    layout = Layout(
        lengths=tuple(lengths),
        range_starts=tuple(map(tuple, starts)),
        positions=tuple(map(tuple, positions)),
    )
    config = replace(case.config, max_positions=C)
    return replace(case, config=config, layout=layout, segments=None)


def ranged_cases(count: int) -> Iterator[LargerCase]:
    """Any layout that the specification allows."""
    return (_drawn(RANGED, 12_000 + n) for n in range(max(LEAST, count // SHARE)))


@dataclass(frozen=True, kw_only=True)
class WiderCase(Case):
    """A case of one of `WIDER`: ordinary text, larger still where the reference is quick."""

    larger: str


USUAL = {"B": 1, "T": 2, "V": 5, "D": 2, "heads": 1, "F": 2, "layers": 1}
WIDER: Mapping[str, Callable[[Below], dict[str, int]]] = MappingProxyType({
    "text": lambda b: {"T": 65 + b.pick(32)},
    "classes": lambda b: {"V": 257 + b.pick(300)},
    "features": lambda b: {"D": 66 + 2 * b.pick(20)},
    "heads": lambda b: {"D": 64, "heads": (8, 16)[b.pick(2)]},
    "inner features": lambda b: {"F": 130 + b.pick(200)},
    "rows": lambda b: {"B": 17 + b.pick(32)},
    "layers": lambda b: {"layers": 7 + b.pick(6)},
})  # fmt: skip
LONG = "long text"


def _wide(larger: str, seed: int) -> WiderCase:
    b = Below(seed)
    chosen = USUAL | ({"T": 513 + b.pick(32)} if larger == LONG else WIDER[larger](b))
    B, T, V = (chosen[name] for name in "BTV")
    config = Config(
        vocabulary_size=V,
        model_width=chosen["D"],
        heads=chosen["heads"],
        feed_forward_width=chosen["F"],
        layers=chosen["layers"],
        max_positions=T,
    )
    ids, targets = ([[b.pick(V) for _ in range(T)] for _ in range(B)] for _ in range(2))
    drawn: dict[str, Any] = {"config": config, "ids": ids, "targets": targets}
    return WiderCase(seed=seed, scale=1.0, larger=larger, **drawn)


def wider_cases(count: int) -> Iterator[WiderCase]:
    """The kinds of `WIDER` in turn."""
    names = list(WIDER)
    for n in range(max(len(WIDER), count // SHARE)):
        yield _wide(names[n % len(names)], 13_000 + n)


def long_cases(count: int) -> Iterator[WiderCase]:
    """Texts longer than what is kept or cut anywhere: 512 tokens. One, or two of many cases."""
    return (_wide(LONG, 14_000 + n) for n in range(1 + count // 250))


def forget() -> None:
    """No case of these is kept any longer."""
    _drawn.cache_clear()


def redrawn(case: LargerCase | WiderCase, seed: int) -> LargerCase | WiderCase:
    """Another case of its kind."""
    return (_drawn if isinstance(case, LargerCase) else _wide)(case.larger, seed)
