"""Every differentiable operation and its reverse rule, one number at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from .arithmetic import EXACT, Arithmetic, Number
from .decoder import nll
from .forward import sigmoid, softmax

__all__ = ["OPERATIONS", "Array", "contributions", "value"]

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """A shape and its numbers, row-major."""

    shape: Shape
    cells: list[Number]

    def at(self, index: Shape) -> Number:
        """The cell of an index: leading axes too many are dropped, sizes of 1 repeat."""
        return self.cells[_place(index, self.shape)]


Arrays: TypeAlias = tuple[Array, ...]


def value(op: str, *operands: Array, a: Arithmetic = EXACT, **arguments: Any) -> Array:
    """The operation's value. Source: numerics.md"""
    return OPERATIONS[op][0](a, *operands, **arguments)


def contributions(
    op: str, upstream: Array, *operands: Array, a: Arithmetic = EXACT, **arguments: Any
) -> Arrays:
    """What the reverse rule gives to each operand. Source: numerics_vjp.md section 3"""
    return OPERATIONS[op][1](a, upstream, *operands, **arguments)


# --- places ----------------------------------------------------------------------------------


def _places(shape: Shape) -> Iterator[Shape]:
    return product(*(range(n) for n in shape))


def _place(index: Shape, shape: Shape) -> int:
    flat = 0
    for i, n in zip(index[len(index) - len(shape) :], shape, strict=True):
        flat = flat * n + (0 if n == 1 else i)
    return flat


def _common(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    wide = [(1,) * (rank - len(s)) + s for s in (a, b)]
    return tuple(y if x == 1 else x for x, y in zip(*wide, strict=True))


def _unbroadcast(a: Arithmetic, upstream: Array, shape: Shape) -> Array:
    """r = +0; walk row-major: r[mapped cell] += value. Source: numerics_vjp.md section 2"""
    out = [a.number(0.0)] * math.prod(shape)
    for index, u in zip(_places(upstream.shape), upstream.cells, strict=True):
        at = _place(index, shape)
        out[at] = out[at] + u
    return Array(shape, out)


def _dropped(shape: Shape, axis: int, *, keep: bool = False) -> Shape:
    return (*shape[:axis], *((1,) if keep else ()), *shape[axis + 1 :])


def _groups(shape: Shape, axis: int) -> list[list[int]]:
    """Per row along the axis, in row-major order of the others, the flat places."""
    rest = _dropped(shape, axis)
    return [
        [_place((*at[:axis], i, *at[axis:]), shape) for i in range(shape[axis])]
        for at in _places(rest)
    ]


# --- elementwise and shape -------------------------------------------------------------------


def _add(_: Arithmetic, a: Array, b: Array) -> Array:
    shape = _common(a.shape, b.shape)
    return Array(shape, [a.at(i) + b.at(i) for i in _places(shape)])


def _add_back(m: Arithmetic, u: Array, a: Array, b: Array) -> Arrays:
    return _unbroadcast(m, u, a.shape), _unbroadcast(m, u, b.shape)


def _mul(_: Arithmetic, a: Array, b: Array) -> Array:
    shape = _common(a.shape, b.shape)
    return Array(shape, [a.at(i) * b.at(i) for i in _places(shape)])


def _mul_back(m: Arithmetic, u: Array, a: Array, b: Array) -> Arrays:
    return _unbroadcast(m, _mul(m, u, b), a.shape), _unbroadcast(m, _mul(m, u, a), b.shape)


def _broadcast_to(_: Arithmetic, a: Array, *, shape: Sequence[int]) -> Array:
    return Array(tuple(shape), [a.at(i) for i in _places(tuple(shape))])


def _broadcast_back(m: Arithmetic, u: Array, a: Array, **_: Any) -> Arrays:
    return (_unbroadcast(m, u, a.shape),)


def _reshape(_: Arithmetic, a: Array, *, shape: Sequence[int]) -> Array:
    return Array(tuple(shape), list(a.cells))


def _reshape_back(_: Arithmetic, u: Array, a: Array, **__: Any) -> Arrays:
    return (Array(a.shape, list(u.cells)),)


def _transpose(_: Arithmetic, a: Array, *, axes: Sequence[int]) -> Array:
    def swapped(sizes: Shape) -> Shape:
        out = list(sizes)
        out[axes[0]], out[axes[1]] = out[axes[1]], out[axes[0]]
        return tuple(out)

    return Array(swapped(a.shape), [a.at(swapped(i)) for i in _places(swapped(a.shape))])


def _transpose_back(m: Arithmetic, u: Array, _: Array, *, axes: Sequence[int]) -> Arrays:
    return (_transpose(m, u, axes=axes),)


# --- reductions and products -----------------------------------------------------------------


def _sum(m: Arithmetic, a: Array, *, axis: int, keep: bool = False) -> Array:
    totals = [m.total([a.cells[i] for i in row]) for row in _groups(a.shape, axis)]
    return Array(_dropped(a.shape, axis, keep=keep), totals)


def _mean(m: Arithmetic, a: Array, *, axis: int, keep: bool = False) -> Array:
    n, totals = m.number(float(a.shape[axis])), _sum(m, a, axis=axis, keep=keep)
    return Array(totals.shape, [t / n for t in totals.cells])


def _spread(u: Array, a: Array, axis: int, divisor: Number) -> Arrays:
    out = list(a.cells)
    for share, row in zip(u.cells, _groups(a.shape, axis), strict=True):
        for i in row:
            out[i] = share / divisor
    return (Array(a.shape, out),)


def _sum_back(m: Arithmetic, u: Array, a: Array, *, axis: int, **_: Any) -> Arrays:
    return _spread(u, a, axis, m.number(1.0))


def _mean_back(m: Arithmetic, u: Array, a: Array, *, axis: int, **_: Any) -> Arrays:
    return _spread(u, a, axis, m.number(float(a.shape[axis])))


def _matmul(m: Arithmetic, a: Array, b: Array) -> Array:
    batch = _common(a.shape[:-2], b.shape[:-2])
    shape, K = (*batch, a.shape[-2], b.shape[-1]), a.shape[-1]
    cells = [
        m.dot(
            [_in_matrix(a, (*at, r, k)) for k in range(K)],
            [_in_matrix(b, (*at, k, c)) for k in range(K)],
        )
        for *at, r, c in _places(shape)
    ]
    return Array(shape, cells)


def _in_matrix(a: Array, index: Shape) -> Number:
    """Batch axes repeat, the last two do not."""
    lane = _place(index[:-2], a.shape[:-2])
    return a.cells[(lane * a.shape[-2] + index[-2]) * a.shape[-1] + index[-1]]


def _matmul_back(m: Arithmetic, u: Array, a: Array, b: Array) -> Arrays:
    last = (len(a.shape) - 2, len(a.shape) - 1), (len(b.shape) - 2, len(b.shape) - 1)
    left = _matmul(m, u, _transpose(m, b, axes=last[1]))
    right = _matmul(m, _transpose(m, a, axes=last[0]), u)
    return _unbroadcast(m, left, a.shape), _unbroadcast(m, right, b.shape)


# --- rows ------------------------------------------------------------------------------------


def _gather(_: Arithmetic, table: Array, *, indices: Array) -> Array:
    width = table.shape[1]
    return Array(
        (*indices.shape, width), [table.at((i, d)) for i in indices.cells for d in range(width)]
    )


def _gather_back(m: Arithmetic, u: Array, table: Array, *, indices: Array) -> Arrays:
    out, width = [m.number(0.0)] * math.prod(table.shape), table.shape[1]
    for p, i in enumerate(indices.cells):
        for d in range(width):
            out[i * width + d] = out[i * width + d] + u.cells[p * width + d]
    return (Array(table.shape, out),)


def _place_rows(m: Arithmetic, rows: Array, *, positions: Array, count: int) -> Array:
    width = rows.shape[1]
    out = [m.number(0.0)] * (count * width)
    for p, at in enumerate(positions.cells):
        out[at * width : (at + 1) * width] = rows.cells[p * width : (p + 1) * width]
    return Array((count, width), out)


def _place_rows_back(
    _: Arithmetic, u: Array, rows: Array, *, positions: Array, **__: Any
) -> Arrays:
    return (Array(rows.shape, [u.at((at, d)) for at in positions.cells
                               for d in range(rows.shape[1])]),)  # fmt: skip


# --- functions -------------------------------------------------------------------------------


def _exp(m: Arithmetic, a: Array) -> Array:
    return Array(a.shape, [m.exp(x) for x in a.cells])


def _exp_back(m: Arithmetic, u: Array, a: Array) -> Arrays:
    return (Array(a.shape, [v * m.exp(x) for v, x in zip(u.cells, a.cells, strict=True)]),)


def _log(m: Arithmetic, a: Array) -> Array:
    return Array(a.shape, [m.log(x) for x in a.cells])


def _log_back(_: Arithmetic, u: Array, a: Array) -> Arrays:
    return (Array(a.shape, [v / x for v, x in zip(u.cells, a.cells, strict=True)]),)


def _silu(m: Arithmetic, a: Array) -> Array:
    return Array(a.shape, [x * sigmoid(m, x) for x in a.cells])


def _silu_back(m: Arithmetic, u: Array, a: Array) -> Arrays:
    one, out = m.number(1.0), []
    for v, x in zip(u.cells, a.cells, strict=True):
        s = sigmoid(m, x)
        out.append(v * (s * (one + x * (one - s))))
    return (Array(a.shape, out),)


def _log_softmax(m: Arithmetic, a: Array, *, axis: int) -> Array:
    out = list(a.cells)
    for row in _groups(a.shape, axis):
        _, largest, tail = softmax(m, [a.cells[i] for i in row])
        for i in row:
            out[i] = m.clean((a.cells[i] - largest) - m.log1p(tail))
    return Array(a.shape, out)


def _log_softmax_back(m: Arithmetic, u: Array, a: Array, *, axis: int) -> Arrays:
    out = list(a.cells)
    for row in _groups(a.shape, axis):
        probabilities = softmax(m, [a.cells[i] for i in row])[0]
        R = m.total([u.cells[i] for i in row])
        for i, p in zip(row, probabilities, strict=True):
            out[i] = u.cells[i] - (p * R)
    return (Array(a.shape, out),)


def _rows(a: Array, axis: int) -> list[list[Number]]:
    return [[a.cells[i] for i in row] for row in _groups(a.shape, axis)]


def _mean_nll(m: Arithmetic, logits: Array, *, axis: int, targets: Array) -> Array:
    return Array((), [nll(m, _rows(logits, axis), targets.cells)[1]])


def _sum_nll(m: Arithmetic, logits: Array, *, axis: int, targets: Array) -> Array:
    return Array((), [nll(m, _rows(logits, axis), targets.cells)[2]])


def _nll_back(
    m: Arithmetic, u: Array, logits: Array, axis: int, targets: Array, divisor: Number
) -> Arrays:
    out, k = list(logits.cells), u.cells[0] / divisor
    for row, target in zip(_groups(logits.shape, axis), targets.cells, strict=True):
        probabilities = softmax(m, [logits.cells[i] for i in row])[0]
        for c, (i, p) in enumerate(zip(row, probabilities, strict=True)):
            out[i] = m.clean((p - m.number(1.0) if c == target else p) * k)
    return (Array(logits.shape, out),)


def _mean_nll_back(m: Arithmetic, u: Array, logits: Array, *, axis: int, targets: Array) -> Arrays:
    return _nll_back(m, u, logits, axis, targets, m.number(float(len(targets.cells))))


def _sum_nll_back(m: Arithmetic, u: Array, logits: Array, *, axis: int, targets: Array) -> Arrays:
    return _nll_back(m, u, logits, axis, targets, m.number(1.0))


# --- attention -------------------------------------------------------------------------------


def _allowed(
    scores: Array, starts: Array | None, lengths: Array | None
) -> list[tuple[int, int, int]]:
    """Per query row its flat start, and the first allowed key and the one after the last."""
    T, out = scores.shape[-1], []
    for row, index in enumerate(_places(scores.shape[:-1])):
        t = index[-1]
        start = 0 if starts is None else starts.cells[row]
        length = T if lengths is None else lengths.cells[row // T]
        out.append((row * T, start, t + 1 if t < length else start))
    return out


def _causal(
    m: Arithmetic, scores: Array, *, range_starts: Array | None = None,
    lengths: Array | None = None,
) -> Array:  # fmt: skip
    out = [m.number(0.0)] * len(scores.cells)
    for row, start, stop in _allowed(scores, range_starts, lengths):
        if stop > start:
            allowed = slice(row + start, row + stop)
            out[allowed] = softmax(m, scores.cells[allowed])[0]
    return Array(scores.shape, out)


def _causal_back(
    m: Arithmetic, u: Array, scores: Array, *, range_starts: Array | None = None,
    lengths: Array | None = None,
) -> Arrays:  # fmt: skip
    p = _causal(m, scores, range_starts=range_starts, lengths=lengths).cells
    out = [m.number(0.0)] * len(p)
    for row, start, stop in _allowed(scores, range_starts, lengths):
        w = m.dot(u.cells[row + start : row + stop], p[row + start : row + stop])
        for k in range(row + start, row + stop):
            out[k] = m.clean(p[k] * (u.cells[k] - w))
    return (Array(scores.shape, out),)


def _rotary(m: Arithmetic, a: Array, *, cosines: Array, sines: Array) -> Array:
    return _turned(m, a, cosines, sines, m.number(1.0))


def _rotary_back(m: Arithmetic, u: Array, _: Array, *, cosines: Array, sines: Array) -> Arrays:
    return (_turned(m, u, cosines, sines, m.number(-1.0)),)


def _turned(m: Arithmetic, a: Array, cosines: Array, sines: Array, sign: Number) -> Array:
    out: list[Number] = []
    for *at, pair in _places((*a.shape[:-1], a.shape[-1] // 2)):
        left, right = a.at((*at, 2 * pair)), a.at((*at, 2 * pair + 1))
        c, s = cosines.at((*at, pair)), sign * sines.at((*at, pair))
        out += [m.clean(left * c - right * s), m.clean(left * s + right * c)]
    return Array(a.shape, out)


OPERATIONS: dict[str, tuple[Callable[..., Array], Callable[..., Arrays]]] = {
    "add": (_add, _add_back),
    "mul": (_mul, _mul_back),
    "broadcast_to": (_broadcast_to, _broadcast_back),
    "reshape": (_reshape, _reshape_back),
    "transpose": (_transpose, _transpose_back),
    "sum": (_sum, _sum_back),
    "mean": (_mean, _mean_back),
    "matmul": (_matmul, _matmul_back),
    "gather_rows": (_gather, _gather_back),
    "place_rows": (_place_rows, _place_rows_back),
    "exp": (_exp, _exp_back),
    "log": (_log, _log_back),
    "silu": (_silu, _silu_back),
    "log_softmax": (_log_softmax, _log_softmax_back),
    "causal_softmax": (_causal, _causal_back),
    "rotary": (_rotary, _rotary_back),
    "indexed_mean_nll": (_mean_nll, _mean_nll_back),
    "indexed_sum_nll": (_sum_nll, _sum_nll_back),
}
