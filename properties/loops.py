"""The written order of additions: one Python float at a time, by the definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from .rounding_inputs import Stream

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Shape: TypeAlias = tuple[int, ...]
Function: TypeAlias = Callable[[float], float]


def contract(left: Array, right: Array) -> Array:
    """s = +0.0; for k ascending: s = s + (a[r, k] * b[k, c]), batch axes broadcast."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    (R, K), C = left.shape[-2:], right.shape[-1]
    lefts, rights = np.broadcast_to(left, (*batch, R, K)), np.broadcast_to(right, (*batch, K, C))
    out = np.empty((*batch, R, C))
    for *lane, r, c in places(out.shape):
        s = 0.0
        for k in range(K):
            s = s + float(lefts[(*lane, r, k)]) * float(rights[(*lane, k, c)])
        out[(*lane, r, c)] = s
    return out


def running(values: Array, axis: int) -> Array:
    """The partial sums along an axis, the first of them a value as it stands."""
    out = np.empty(values.shape)
    for at in places(values.shape):
        before = (*at[:axis], at[axis] - 1, *at[axis + 1 :])
        out[at] = float(out[before]) + float(values[at]) if at[axis] else float(values[at])
    return out


def total(values: Array, axis: int) -> Array:
    """t = +0.0; for i ascending: t = t + x_i along an axis."""
    out = np.zeros((*values.shape[:axis], *values.shape[axis + 1 :]))
    for at in places(values.shape):
        cell = (*at[:axis], *at[axis + 1 :])
        out[cell] = float(out[cell]) + float(values[at])
    return out


def unbroadcast(upstream: Array, shape: Shape) -> Array:
    """r = +0.0; walk row-major: r[mapped cell] += value."""
    out = np.zeros(shape)
    for at in places(upstream.shape):
        aligned = at[len(at) - len(shape) :]
        cell = tuple(0 if size == 1 else i for i, size in zip(aligned, shape, strict=True))
        out[cell] = float(out[cell]) + float(upstream[at])
    return out


def scatter_add(rows: Array, indices: list[int], count: int) -> Array:
    """A zero table; for p ascending: table[indices[p]] += rows[p]."""
    out = np.zeros((count, rows.shape[1]))
    for p, i in enumerate(indices):
        for d in range(rows.shape[1]):
            out[i, d] = float(out[i, d]) + float(rows[p, d])
    return out


@dataclass(frozen=True, slots=True)
class SoftmaxRow:
    """One row by numerics.md section 7."""

    maximum: float
    shifted: list[float]
    probabilities: list[float]
    log_sum: float

    @property
    def log_probabilities(self) -> list[float]:
        """(z - m) - logS."""
        return [d - self.log_sum + 0.0 for d in self.shifted]

    def loss(self, z: float) -> float:
        """(m - z) + logS."""
        return (self.maximum - z) + self.log_sum


def softmax_row(row: list[float], exp: Function, log1p: Function) -> SoftmaxRow:
    """Running maximum, tail over all classes but the first maximum, log1p of the tail."""
    m = -np.inf
    for z in row:
        m = max(z, m)
    shifted = [z - m for z in row]
    first = next(c for c, d in enumerate(shifted) if d == 0.0)
    tail = 0.0
    for c, d in enumerate(shifted):
        tail = tail + exp(d) if c != first else tail
    S = 1.0 + tail
    return SoftmaxRow(m, shifted, [exp(d) / S + 0.0 for d in shifted], log1p(tail))


def places(shape: Shape) -> Iterator[Shape]:
    """Every index of a shape, row-major."""
    return product(*map(range, shape))


def mixed(*shape: int, seed: int = 0) -> Array:
    """Full significands of both signs over six binades: additions in another order differ."""
    stream = Stream(seed)
    return np.array([stream.scaled(-3, 3) for _ in places(shape)]).reshape(shape)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": lambda a: np.array(a, order="C"),
    "F": lambda a: np.array(a, order="F"),
    "every other": lambda a: np.repeat(a[..., None], 2, axis=-1)[..., 0],
    "reversed": lambda a: np.flip(np.flip(a).copy()),
    "swapped": lambda a: a.T.copy().T,
    "offset": lambda a: np.concatenate([np.zeros(1), a.reshape(-1)])[1:].reshape(a.shape),
}


@contextmanager
def without_clean_up(floats: Any, nth: int) -> Iterator[None]:
    """While open, the nth call (from 0) of `floats.clean_zeros` leaves -0.0 as it is."""
    clean, calls = floats.clean_zeros, iter(range(10**9))
    floats.clean_zeros = lambda values: values if next(calls) == nth else clean(values)
    try:
        yield
    finally:
        floats.clean_zeros = clean
