"""Every differentiable operation as a loop over its equation, and its derivative from that loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import mpmath
from mpmath import mp

from .recorded import Real, Recorded, added, slopes

Shape: TypeAlias = tuple[int, ...]

# Digits that are left of every result; `carried` adds those before the point, which a
# difference of logits uses up.
DIGITS = 120


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A shape and its numbers in row-major order, unrounded."""

    shape: Shape
    cells: list[Any]

    def __getitem__(self, index: Shape) -> Any:
        return self.cells[place(index, self.shape)]


def read(array: Any) -> Cells:
    """The numbers of an array, exactly."""
    return Cells(tuple(array.shape), [mpmath.mpf(x) for x in array.reshape(-1).tolist()])


def carried(*arrays: Any) -> int:
    """Digits that leave an absolute error of 10^-DIGITS in differences of the operands."""
    largest = max((abs(x) for array in arrays for x in array.reshape(-1).tolist()), default=0.0)
    return DIGITS + max(math.frexp(largest)[1] // 3, 0)  # three bits are less than a digit


def value(name: str, *arrays: Any, **arguments: Any) -> Cells:
    """The operation's value, unrounded."""
    with mp.workdps(carried(*arrays)):
        return FORWARD[name](*[read(array) for array in arrays], **arguments)


def derivatives(name: str, upstream: Any, *arrays: Any, **arguments: Any) -> tuple[Cells, ...]:
    """d(sum of upstream * value) / d(operand) for every operand, unrounded.

    The value's own loop is run on numbers that record it; no vjp is written down.
    """
    with mp.workdps(carried(*arrays)):
        tape: list[Recorded] = []
        operands = [read(array) for array in arrays]
        inputs = [Cells(c.shape, [Recorded(x, tape) for x in c.cells]) for c in operands]
        outputs = FORWARD[name](*inputs, **arguments)
        flat = [x for operand in inputs for x in operand.cells]
        found = iter(slopes(outputs.cells, read(upstream).cells, flat))
        return tuple(Cells(c.shape, [next(found) for _ in c.cells]) for c in inputs)


def differences(name: str, upstream: Any, *arrays: Any, **arguments: Any) -> tuple[Cells, ...]:
    """`derivatives` by a second method: central differences of the value over a step of 10^-40.

    The step leaves a sixth of its square times the third derivative: some 75 digits where that
    is of the size of the first.
    """
    with mp.workdps(carried(*arrays)):
        step, seeds = mpmath.mpf(10) ** -40, read(upstream).cells
        operands = [read(array) for array in arrays]

        def moved(k: int, i: int, by: Real) -> Real:
            changed = list(operands[k].cells)
            changed[i] += by
            inputs = [
                Cells(c.shape, changed if j == k else c.cells) for j, c in enumerate(operands)
            ]
            return mp.fdot(seeds, FORWARD[name](*inputs, **arguments).cells)

        def slope(k: int, i: int) -> Real:
            return (moved(k, i, step) - moved(k, i, -step)) / (2 * step)

        return tuple(
            Cells(operand.shape, [slope(k, i) for i in range(len(operand.cells))])
            for k, operand in enumerate(operands)
        )


# --- places ----------------------------------------------------------------------------------


def places(shape: Shape) -> Iterator[Shape]:
    """Every index of a shape, row-major."""
    return product(*(range(size) for size in shape))


def place(index: Shape, shape: Shape) -> int:
    """The flat place of an index; its leading axes are dropped and sizes of 1 repeat."""
    flat = 0
    for i, size in zip(index[len(index) - len(shape) :], shape, strict=True):
        flat = flat * size + (0 if size == 1 else i)
    return flat


def common_shape(a: Shape, b: Shape) -> Shape:
    """Trailing alignment, missing leading axes of size 1."""
    rank = max(len(a), len(b))
    wide_a, wide_b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(y if x == 1 else x for x, y in zip(wide_a, wide_b, strict=True))


def integers(given: Any) -> list[int]:
    """The integers of an array, row-major."""
    return [int(i) for i in given.reshape(-1).tolist()]


def without_axis(shape: Shape, axis: int) -> Shape:
    """The shape without one of its axes."""
    return shape[:axis] + shape[axis + 1 :]


def with_axis(index: Shape, axis: int, i: int) -> Shape:
    """The index with i put in at the axis."""
    return (*index[:axis], i, *index[axis:])


def _exp(x: Any) -> Any:
    return x.exp() if isinstance(x, Recorded) else mp.exp(x)


def _log(x: Any) -> Any:
    return x.log() if isinstance(x, Recorded) else mp.log(x)


# --- the equations ---------------------------------------------------------------------------


def add(a: Cells, b: Cells) -> Cells:
    """y = a + b."""
    shape = common_shape(a.shape, b.shape)
    return Cells(shape, [a[index] + b[index] for index in places(shape)])


def mul(a: Cells, b: Cells) -> Cells:
    """y = a * b."""
    shape = common_shape(a.shape, b.shape)
    return Cells(shape, [a[index] * b[index] for index in places(shape)])


def broadcast_to(a: Cells, *, shape: Shape) -> Cells:
    """y[index] = a[the index with the sizes of 1 repeated]."""
    return Cells(tuple(shape), [a[index] for index in places(tuple(shape))])


def reshape(a: Cells, *, shape: Shape) -> Cells:
    """The same numbers in the same order."""
    return Cells(tuple(shape), list(a.cells))


def transpose(a: Cells, *, axes: tuple[int, int]) -> Cells:
    """y[.., j, .., i, ..] = a[.., i, .., j, ..]."""

    def swapped(sizes: Shape) -> Shape:
        out = list(sizes)
        out[axes[0]], out[axes[1]] = out[axes[1]], out[axes[0]]
        return tuple(out)

    shape = swapped(a.shape)
    return Cells(shape, [a[swapped(index)] for index in places(shape)])


def sum(a: Cells, *, axis: int, keep: bool = False) -> Cells:
    """y = sum_i a_i along the axis."""
    rest = without_axis(a.shape, axis)
    n = a.shape[axis]
    totals = [added([a[with_axis(at, axis, i)] for i in range(n)]) for at in places(rest)]
    return Cells(with_axis(rest, axis, 1) if keep else rest, totals)


def mean(a: Cells, *, axis: int, keep: bool = False) -> Cells:
    """y = (sum_i a_i) / n along the axis."""
    totals = sum(a, axis=axis, keep=keep)
    return Cells(totals.shape, [total / a.shape[axis] for total in totals.cells])


def matmul(a: Cells, b: Cells) -> Cells:
    """y[.., r, c] = sum_k a[.., r, k] * b[.., k, c]."""
    batch = common_shape(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    K = a.shape[-1]
    return Cells(
        shape,
        [
            added([_at_matrix(a, (*at, r, k)) * _at_matrix(b, (*at, k, c)) for k in range(K)])
            for *at, r, c in places(shape)
        ],
    )


def _at_matrix(a: Cells, index: Shape) -> Any:
    """The cell of a batched matrix: batch axes repeat, the last two do not."""
    rows, columns = a.shape[-2:]
    lane = place(index[:-2], a.shape[:-2])
    return a.cells[(lane * rows + index[-2]) * columns + index[-1]]


def gather_rows(table: Cells, *, indices: Any) -> Cells:
    """y[p] = table[indices[p]]."""
    width = table.shape[1]
    rows = [table[i, d] for i in integers(indices) for d in range(width)]
    return Cells((*indices.shape, width), rows)


def place_rows(rows: Cells, *, positions: Any, count: int) -> Cells:
    """y[positions[p]] = rows[p]; every other row is zero."""
    width = rows.shape[1]
    cells: list[Any] = [mpmath.mpf(0)] * (count * width)
    for p, position in enumerate(integers(positions)):
        cells[position * width : (position + 1) * width] = [rows[p, d] for d in range(width)]
    return Cells((count, width), cells)


def exp(a: Cells) -> Cells:
    """y = e^a."""
    return Cells(a.shape, [_exp(x) for x in a.cells])


def log(a: Cells) -> Cells:
    """y = ln a."""
    return Cells(a.shape, [_log(x) for x in a.cells])


def silu(a: Cells) -> Cells:
    """y = a / (1 + e^-a)."""
    return Cells(a.shape, [x / (1 + _exp(-x)) for x in a.cells])


def _log_probability(row: Sequence[Any], c: int) -> Any:
    """ln(e^z_c / sum_j e^z_j) = -ln(1 + sum of e^(z_j - z_c) over j other than c)."""
    others = added([_exp(z - row[c]) for j, z in enumerate(row) if j != c])
    return -(others.log1p() if isinstance(others, Recorded) else mp.log1p(others))


def log_softmax(a: Cells, *, axis: int) -> Cells:
    """y_c = ln(e^z_c / sum_j e^z_j) along the axis."""
    n = a.shape[axis]
    cells = []
    for index in places(a.shape):
        rest = without_axis(index, axis)
        row = [a[with_axis(rest, axis, j)] for j in range(n)]
        cells.append(_log_probability(row, index[axis]))
    return Cells(a.shape, cells)


def indexed_sum_nll(logits: Cells, *, axis: int, targets: Any) -> Cells:
    """y = sum_g -ln(e^z_g,target / sum_j e^z_gj)."""
    n = logits.shape[axis]
    groups = places(without_axis(logits.shape, axis))
    losses = [
        -_log_probability([logits[with_axis(at, axis, j)] for j in range(n)], target)
        for at, target in zip(groups, integers(targets), strict=True)
    ]
    return Cells((), [added(losses)])


def indexed_mean_nll(logits: Cells, *, axis: int, targets: Any) -> Cells:
    """y = (sum_g -ln(e^z_g,target / sum_j e^z_gj)) / G."""
    (total,) = indexed_sum_nll(logits, axis=axis, targets=targets).cells
    return Cells((), [total / len(integers(targets))])


def causal_softmax(scores: Cells, *, range_starts: Any = None, lengths: Any = None) -> Cells:
    """y[t, j] = e^s_tj / sum_i e^s_ti over start_t <= i <= t < length; 0 at every other key."""
    T = scores.shape[-1]
    rows = list(places(scores.shape[:-1]))
    starts = [0] * len(rows) if range_starts is None else integers(range_starts)
    active = [T] * (len(rows) // T) if lengths is None else integers(lengths)
    cells: list[Any] = []
    for lane, (row, start) in enumerate(zip(rows, starts, strict=True)):
        t = row[-1]
        stop = t + 1 if t < active[lane // T] else start
        allowed = [scores[(*row, j)] for j in range(start, stop)]
        chances = [_exp(_log_probability(allowed, c)) for c in range(len(allowed))]
        masked: list[Real] = [mpmath.mpf(0)] * T
        cells += masked[:start] + chances + masked[: T - start - len(chances)]
    return Cells(scores.shape, cells)


def rotary(a: Cells, *, cosines: Any, sines: Any) -> Cells:
    """l' = l c - r s; r' = l s + r c for the adjacent features (l, r) of every pair."""
    c, s = read(cosines), read(sines)
    cells: list[Any] = []
    for *at, pair in places((*a.shape[:-1], a.shape[-1] // 2)):
        left, right = a[(*at, 2 * pair)], a[(*at, 2 * pair + 1)]
        angle = (*at, pair)
        cells += [left * c[angle] - right * s[angle], left * s[angle] + right * c[angle]]
    return Cells(a.shape, cells)


FORWARD: dict[str, Callable[..., Cells]] = {
    function.__name__: function
    for function in (
        add, mul, sum, mean, reshape, transpose, broadcast_to, matmul, gather_rows, place_rows,
        exp, log, silu, log_softmax, causal_softmax, rotary, indexed_mean_nll, indexed_sum_nll,
    )
}  # fmt: skip
