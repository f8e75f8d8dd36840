"""Operands of every differentiable operation, with arguments and an upstream gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from .rounding_inputs import Stream

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One call of an operation and the gradient that arrives at its value."""

    operands: tuple[Array, ...]
    arguments: dict[str, Any] = field(default_factory=dict)
    upstream: Array


# Values are drawn as (kind, seed, sparse overrides), not one by one: a counter generator fills
# the array. Seed 0 and kind "whole" are the smallest: a few small whole numbers.
Fill: TypeAlias = Callable[[Stream], float]
KINDS: dict[str, Fill] = {
    "whole": lambda s: float(s.bits() % 5) - 2.0,
    "dyadic": lambda s: (float(s.bits() % 65) - 32.0) / 8.0,
    "signed zeros": lambda s: (0.0, -0.0, 1.0, -1.0)[s.bits() % 4],
    "warm": lambda s: s.uniform(-2.0, 2.0),
    "hot": lambda s: s.uniform(-40.0, 40.0),
    "cold": lambda s: s.scaled(-60, -20),
    "wide": lambda s: s.scaled(-400, 400),  # a product of two and its sums stay finite
    "tiny": lambda s: s.scaled(-1074, -1000),
    "thousands": lambda s: s.uniform(-1000.0, 1000.0),
    "near ties": lambda s: 1.0 + (s.bits() % 3) * 2.0**-52,
    "offset 1e17": lambda s: 1e17 + 16.0 * float(s.bits() % 8),
    "positive": lambda s: abs(s.scaled(-8, 8)),
    "near one": lambda s: 1.0 + s.scaled(-52, -2),
    "positive wide": lambda s: abs(s.scaled(-400, 400)),
    "exponents": lambda s: s.uniform(-760.0, 250.0),  # times an upstream of 2^400 still finite
}
ORDINARY = ("whole", "dyadic", "signed zeros", "warm", "hot", "cold", "wide", "tiny")
LOGITS = (*ORDINARY, "thousands", "near ties", "offset 1e17")
OVERRIDES = (0.0, -0.0, 1.0, -1.0, 0.5)


def filled(kind: str, seed: int, shape: Shape) -> Array:
    """The array that a kind and a seed stand for."""
    stream = Stream(seed)
    return np.array([KINDS[kind](stream) for _ in range(math.prod(shape))]).reshape(shape)


@st.composite
def values(
    draw: st.DrawFn,
    shape: Shape,
    kinds: tuple[str, ...] = ORDINARY,
    overrides: tuple[float, ...] = OVERRIDES,
) -> Array:
    """A float64 array of the shape; a few cells may be overridden."""
    array = filled(draw(_any_of(kinds)), draw(SEEDS), shape)
    if array.size:
        for at, override in draw(_few(array.size, overrides)).items():
            array.reshape(-1)[at] = override
    return array


# A strategy costs as much to make as to draw from; these are asked for again and again.
SEEDS = st.integers(0, 2**32)


@cache
def _any_of(kinds: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from(kinds)


@cache
def _few(size: int, overrides: tuple[float, ...]) -> st.SearchStrategy[dict[int, float]]:
    """Places of an array, and what stands there."""
    return st.dictionaries(st.integers(0, size - 1), st.sampled_from(overrides), max_size=2)


def shapes(*, least: int = 0, rank: int = 3, lowest_rank: int = 0) -> st.SearchStrategy[Shape]:
    """Sizes of 0 to 3."""
    return st.lists(st.integers(least, 3), min_size=lowest_rank, max_size=rank).map(tuple)


@st.composite
def broadcastable(draw: st.DrawFn, *, rank: int = 3) -> tuple[Shape, Shape, Shape]:
    """Two shapes and their common one: leading axes missing, sizes replaced by 1."""
    common = draw(shapes(rank=rank))
    parts = []
    for _ in range(2):
        padding = draw(st.integers(0, len(common)))
        kept = [n if draw(st.booleans()) else 1 for n in common[padding:]]
        parts.append(tuple(kept))
    a, b = parts
    return a, b, np.broadcast_shapes(a, b)


@st.composite
def _pairwise(draw: st.DrawFn) -> Case:
    a, b, common = draw(broadcastable())
    return Case(operands=(draw(values(a)), draw(values(b))), upstream=draw(values(common)))


@st.composite
def _broadcast_to(draw: st.DrawFn) -> Case:
    a, _, common = draw(broadcastable())
    return Case(
        operands=(draw(values(a)),), arguments={"shape": common}, upstream=draw(values(common))
    )


@st.composite
def _reshape(draw: st.DrawFn) -> Case:
    shape = draw(shapes())
    target = draw(st.permutations(shape).map(tuple))
    wider = (1, *target) if draw(st.booleans()) else target
    return Case(
        operands=(draw(values(shape)),), arguments={"shape": wider}, upstream=draw(values(wider))
    )


@st.composite
def _transpose(draw: st.DrawFn) -> Case:
    shape = draw(shapes(lowest_rank=1))
    axes = (draw(st.integers(0, len(shape) - 1)), draw(st.integers(0, len(shape) - 1)))
    a = draw(values(shape))
    upstream = draw(values(a.swapaxes(*axes).shape))
    return Case(operands=(a,), arguments={"axes": axes}, upstream=upstream)


@st.composite
def _reduction(draw: st.DrawFn, least: int) -> Case:
    shape = draw(shapes(lowest_rank=1))
    axis = draw(st.integers(0, len(shape) - 1))
    n = draw(st.integers(least, 6))
    shape = (*shape[:axis], n, *shape[axis + 1 :])
    keep = draw(st.booleans())
    out = (*shape[:axis], *((1,) if keep else ()), *shape[axis + 1 :])
    return Case(
        operands=(draw(values(shape)),),
        arguments={"axis": axis, "keep": keep},
        upstream=draw(values(out)),
    )


@st.composite
def _matmul(draw: st.DrawFn) -> Case:
    a, b, batch = draw(broadcastable(rank=2))
    R, K, C = (draw(st.integers(0, most)) for most in (3, 5, 3))
    return Case(
        operands=(draw(values((*a, R, K))), draw(values((*b, K, C)))),
        upstream=draw(values((*batch, R, C))),
    )


@st.composite
def _gather_rows(draw: st.DrawFn) -> Case:
    rows, width = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    index_shape = draw(st.lists(st.integers(0, 4), max_size=2).map(tuple))
    count = math.prod(index_shape)
    indices = draw(st.lists(st.integers(0, rows - 1), min_size=count, max_size=count))
    return Case(
        operands=(draw(values((rows, width))),),
        arguments={"indices": np.array(indices, dtype=np.int64).reshape(index_shape)},
        upstream=draw(values((*index_shape, width))),
    )


@st.composite
def _place_rows(draw: st.DrawFn) -> Case:
    count, width = draw(st.integers(0, 5)), draw(st.integers(0, 3))
    positions = draw(st.permutations(range(count)))[: draw(st.integers(0, count))]
    return Case(
        operands=(draw(values((len(positions), width))),),
        arguments={"positions": np.array(positions, dtype=np.int64), "count": count},
        upstream=draw(values((count, width))),
    )


@st.composite
def _elementwise(draw: st.DrawFn, kinds: tuple[str, ...], overrides: tuple[float, ...]) -> Case:
    shape = draw(shapes())
    a = draw(values(shape, kinds, overrides))
    return Case(operands=(a,), upstream=draw(values(shape)))


@st.composite
def _log_softmax(draw: st.DrawFn) -> Case:
    a, axis = draw(_class_rows(least=0))
    return Case(operands=(a,), arguments={"axis": axis}, upstream=draw(values(a.shape)))


@st.composite
def _class_rows(draw: st.DrawFn, least: int) -> tuple[Array, int]:
    rest = draw(shapes(least=least, rank=2))
    axis = draw(st.integers(0, len(rest)))
    classes = draw(st.integers(1, 5))
    return draw(values((*rest[:axis], classes, *rest[axis:]), LOGITS)), axis


@st.composite
def _nll(draw: st.DrawFn) -> Case:
    a, axis = draw(_class_rows(least=1))
    groups = a.size // a.shape[axis]
    each = st.integers(0, a.shape[axis] - 1)
    targets = np.array(draw(st.lists(each, min_size=groups, max_size=groups)), dtype=np.int64)
    return Case(
        operands=(a,), arguments={"axis": axis, "targets": targets}, upstream=draw(values(()))
    )


@st.composite
def _causal_softmax(draw: st.DrawFn) -> Case:
    lanes, T = draw(st.lists(st.integers(1, 2), max_size=1).map(tuple)), draw(st.integers(1, 4))
    n = math.prod(lanes)
    arguments: dict[str, Any] = {}
    if draw(st.booleans()):
        starts = [draw(st.integers(0, t)) for _ in range(n) for t in range(T)]
        lengths = [draw(st.integers(0, T)) for _ in range(n)]
        arguments["range_starts"] = np.array(starts, dtype=np.int64).reshape(*lanes, T)
        arguments["lengths"] = np.array(lengths, dtype=np.int64).reshape(lanes)
    shape = (*lanes, T, T)
    scores = draw(values(shape, LOGITS))
    return Case(operands=(scores,), arguments=arguments, upstream=draw(values(shape)))


@st.composite
def _rotary(draw: st.DrawFn) -> Case:
    lanes, T = draw(shapes(rank=1)), draw(st.integers(0, 3))
    pairs = draw(st.integers(1, 2))
    stream = Stream(draw(st.integers(0, 2**32)))
    angles = [0.0 if draw(st.booleans()) else stream.uniform(-7.0, 7.0) for _ in range(T * pairs)]
    shape = (*lanes, T, 2 * pairs)
    return Case(
        operands=(draw(values(shape)),),
        arguments={
            "cosines": np.array([math.cos(x) for x in angles]).reshape(T, pairs),
            "sines": np.array([math.sin(x) for x in angles]).reshape(T, pairs),
        },
        upstream=draw(values(shape)),
    )


_EXPONENTS = ("whole", "dyadic", "signed zeros", "warm", "hot", "cold", "tiny", "exponents")
_POSITIVE = ("positive", "near one", "positive wide")
_OF: dict[str, st.SearchStrategy[Case]] = {
    "add": _pairwise(),
    "mul": _pairwise(),
    "sum": _reduction(least=0),
    "mean": _reduction(least=1),
    "reshape": _reshape(),
    "transpose": _transpose(),
    "broadcast_to": _broadcast_to(),
    "matmul": _matmul(),
    "gather_rows": _gather_rows(),
    "place_rows": _place_rows(),
    "exp": _elementwise(_EXPONENTS, OVERRIDES),
    "log": _elementwise(_POSITIVE, (1.0, 0.5)),
    "silu": _elementwise((*ORDINARY, "thousands"), OVERRIDES),
    "log_softmax": _log_softmax(),
    "causal_softmax": _causal_softmax(),
    "rotary": _rotary(),
    "indexed_mean_nll": _nll(),
    "indexed_sum_nll": _nll(),
}
OPERATIONS = tuple(_OF)


def cases(operation: str) -> st.SearchStrategy[Case]:
    """Valid calls of the operation, whose value and contributions stay finite."""
    return _OF[operation]
