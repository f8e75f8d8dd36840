"""Derived rounding bounds of single operations: how far a float64 result may lie from the truth.

u = 2^-53 and eta = 2^-1075, half the smallest double. IEEE 754 rounds to nearest:

    fl(a + b) = (a + b)(1 + d)         |d| <= u; a sum that underflows is exact
    fl(a * b) = (a * b)(1 + d) + h     |h| <= eta; the same for a / b
    g_n       = n u / (1 - n u)        what n such factors amount to: |prod (1 + d_i) - 1| <= g_n

Every bound is carried by a pair (value, error): the exact value of an intermediate result and
a distance that its computed value keeps. The rules below are inequalities, not first-order
estimates, so no safety factor is needed. They hold while nothing overflows, and for every order
of additions. Pairs do not see that errors cancel; they are for single operations alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import mpmath
from mpmath import mp

Real: TypeAlias = Any  # mpmath.mpf, which has no types
Shape: TypeAlias = tuple[int, ...]

U = mpmath.mpf(2) ** -53
ETA = mpmath.mpf(2) ** -1075
CORRECTLY_ROUNDED = 0.5  # ulp: what the core declares for exp, log and log1p
DIGITS = 120  # as the oracle's; the errors themselves need no more than a few


class Pair(NamedTuple):
    """An exact value, and how far the computed one may lie from it."""

    value: Real
    error: Real


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """The bound of every cell of a result, with the exact value that it surrounds."""

    shape: Shape
    pairs: list[Pair]

    @property
    def cells(self) -> list[Real]:
        """The bounds, row-major."""
        return [pair.error for pair in self.pairs]

    @property
    def centres(self) -> list[Real]:
        """The exact values, row-major: the written formula at 120 digits."""
        return [pair.value for pair in self.pairs]


def gamma(n: int) -> Real:
    """n u / (1 - n u): the relative error of n roundings in a row."""
    return n * U / (1 - n * U)


def exact(x: Any) -> Pair:
    """A double as it was given."""
    return Pair(mpmath.mpf(x), mpmath.mpf(0))


def total(terms: Sequence[Pair]) -> Pair:
    """The sum of n computed terms, in any order.

    Each term meets at most n - 1 additions (adding to +0.0 is exact), so the sum of the
    computed terms t + e is missed by g_(n-1) sum |t + e|:
    error <= sum e + g_(n-1) sum (|t| + e). Higham 2002, (4.4). Two terms are one rounding.
    """
    if len(terms) == 2:
        return plus(*terms)
    value = mp.fsum(term.value for term in terms)
    errors = mp.fsum(term.error for term in terms)
    magnitude = mp.fsum(abs(term.value) for term in terms) + errors
    return Pair(value, errors + gamma(max(len(terms) - 1, 0)) * magnitude)


def plus(a: Pair, b: Pair) -> Pair:
    """a + b: one rounding of the sum, however large the terms were."""
    value, carried = a.value + b.value, a.error + b.error
    return Pair(value, carried + U * (abs(value) + carried))


def minus(a: Pair, b: Pair) -> Pair:
    """a - b: as a + (-b)."""
    return plus(a, Pair(-b.value, b.error))


def times(a: Pair, b: Pair) -> Pair:
    """a * b: |(a + e)(b + f) - ab| <= |a| f + |b| e + e f, then one rounding."""
    carried = abs(a.value) * b.error + abs(b.value) * a.error + a.error * b.error
    return _rounded(a.value * b.value, carried)


def over(a: Pair, b: Pair) -> Pair:
    """a / b: |(a + e)/(b + f) - a/b| <= (e + |a/b| f) / (|b| - f), then one rounding."""
    value = a.value / b.value
    return _rounded(value, (a.error + abs(value) * b.error) / (abs(b.value) - b.error))


def dot(left: Sequence[Pair], right: Sequence[Pair]) -> Pair:
    """sum a b over n products in any order.

    For given a and b this is g_n sum |a b| + n eta (1 + g_(n-1)): each product is rounded once
    and meets at most n - 1 additions.
    """
    return total([times(a, b) for a, b in zip(left, right, strict=True)])


def _rounded(value: Real, carried: Real) -> Pair:
    """One rounding of a result that carries an error already."""
    return Pair(value, carried + U * (abs(value) + carried) + ETA)


class Functions:
    """exp, log and log1p within a declared number of ulp.

    An ulp of y is at most 2 u |y| while y is normal and 2 eta below; 0.5 ulp is one rounding.
    """

    def __init__(self, ulps: float = CORRECTLY_ROUNDED) -> None:
        self.roundings = mpmath.mpf(ulps) * 2

    def exp(self, x: Pair) -> Pair:
        """|e^(x + e) - e^x| <= e^x (e^e - 1)."""
        value = mp.exp(x.value)
        return self._finished(value, value * mp.expm1(x.error))

    def log(self, x: Pair) -> Pair:
        """|ln(x + e) - ln x| <= e / (x - e), the slope at the nearer end."""
        return self._finished(mp.log(x.value), x.error / (x.value - x.error))

    def log1p(self, x: Pair) -> Pair:
        """|ln(1 + x + e) - ln(1 + x)| <= e / (1 + x - e)."""
        return self._finished(mp.log1p(x.value), x.error / (1 + x.value - x.error))

    def _finished(self, value: Real, carried: Real) -> Pair:
        return Pair(value, carried + self.roundings * (U * (abs(value) + carried) + ETA))


# --- operations ------------------------------------------------------------------------------


def forward(name: str, *arrays: Any, ulps: float = CORRECTLY_ROUNDED, **arguments: Any) -> Estimate:
    """The bound of an operation's value."""
    with mp.workdps(DIGITS):
        operands = [_read(array) for array in arrays]
        if name in NONLINEAR:
            return NONLINEAR[name](Functions(ulps), *operands, **arguments)[0]
        shape, links = LINEAR[name](*operands, **arguments)
        used = links[:1] if name in BILINEAR else links
        terms = [(o, _product(coefficient, operand.pairs[i]))
                 for each, operand in zip(used, operands, strict=False)
                 for o, i, coefficient in each]  # fmt: skip
        return _mean(name, operands[0], arguments, _collected(shape, terms))


def contributions(
    name: str,
    upstream: Any,
    *arrays: Any,
    ulps: float = CORRECTLY_ROUNDED,
    **arguments: Any,
) -> tuple[Estimate, ...]:
    """The bound of every operand's contribution, in operand order."""
    with mp.workdps(DIGITS):
        operands, u = [_read(array) for array in arrays], _read(upstream)
        if name in NONLINEAR:
            return (NONLINEAR[name](Functions(ulps), *operands, **arguments)[1](u),)
        _, links = LINEAR[name](*operands, **arguments)
        u = _mean(name, operands[0], arguments, u)
        found = []
        for each, operand in zip(links, operands, strict=True):
            terms = [(i, _product(coefficient, u.pairs[o])) for o, i, coefficient in each]
            found.append(_collected(operand.shape, terms))
        return tuple(found)


def _read(array: Any) -> Estimate:
    return Estimate(tuple(array.shape), [exact(x) for x in array.reshape(-1).tolist()])


def _product(coefficient: Pair | None, x: Pair) -> Pair:
    return x if coefficient is None else times(coefficient, x)


def _collected(shape: Shape, terms: Iterable[tuple[int, Pair]]) -> Estimate:
    """Each term in its cell, every cell summed."""
    cells: list[list[Pair]] = [[] for _ in _places(shape)]
    for cell, term in terms:
        cells[cell].append(term)
    return Estimate(shape, [total(cell) for cell in cells])


def _mean(name: str, operand: Estimate, arguments: dict[str, Any], x: Estimate) -> Estimate:
    """The mean divides its sum, and its vjp the upstream, once by n."""
    if name != "mean":
        return x
    n = exact(operand.shape[arguments["axis"]])
    return Estimate(x.shape, [over(pair, n) for pair in x.pairs])


def _places(shape: Shape) -> Iterator[Shape]:
    return product(*map(range, shape))


def _place(index: Shape, shape: Shape) -> int:
    """The flat place under broadcasting."""
    flat = 0
    for i, size in zip(index[len(index) - len(shape) :], shape, strict=True):
        flat = flat * size + i * (size != 1)
    return flat


def _common(a: Shape, b: Shape) -> Shape:
    width = max(len(a), len(b))
    left, right = (1,) * (width - len(a)) + a, (1,) * (width - len(b)) + b
    return tuple(m if n == 1 else n for n, m in zip(left, right, strict=True))


def _integers(given: Any) -> list[int]:
    return [int(i) for i in given.reshape(-1).tolist()]


# Linear in each operand: value[o] = sum of coefficient * operand[i] over the links (o, i,
# coefficient) of an operand, None for an exact 1. A vjp reads the same links the other way:
# contribution[i] = sum of coefficient * upstream[o].
Link: TypeAlias = tuple[int, int, Pair | None]
Links: TypeAlias = tuple[Shape, list[list[Link]]]


def _add(a: Estimate, b: Estimate) -> Links:
    shape = _common(a.shape, b.shape)
    return shape, [
        [(o, _place(at, x.shape), None) for o, at in enumerate(_places(shape))] for x in (a, b)
    ]


def _mul(a: Estimate, b: Estimate) -> Links:
    shape = _common(a.shape, b.shape)
    triples = [(o, _place(at, a.shape), _place(at, b.shape)) for o, at in enumerate(_places(shape))]
    return shape, _both(triples, a, b)


def _both(triples: list[tuple[int, int, int]], a: Estimate, b: Estimate) -> list[list[Link]]:
    """Each operand is the coefficient of the other."""
    lefts: list[Link] = [(o, i, b.pairs[j]) for o, i, j in triples]
    return [lefts, [(o, j, a.pairs[i]) for o, i, j in triples]]


def _matmul(a: Estimate, b: Estimate) -> Links:
    (R, K), C = a.shape[-2:], b.shape[-1]
    batch = _common(a.shape[:-2], b.shape[:-2])
    triples = []
    for lane, at in enumerate(_places(batch)):
        left, right = _place(at, a.shape[:-2]), _place(at, b.shape[:-2])
        for r, k, c in _places((R, K, C)):
            triples.append(
                ((lane * R + r) * C + c, (left * R + r) * K + k, (right * K + k) * C + c)
            )
    return (*batch, R, C), _both(triples, a, b)


def _moved(shape: Shape, sources: Iterable[int]) -> Links:
    return shape, [[(o, i, None) for o, i in enumerate(sources)]]


def _broadcast_to(a: Estimate, *, shape: Shape) -> Links:
    return _moved(tuple(shape), (_place(at, a.shape) for at in _places(tuple(shape))))


def _reshape(a: Estimate, *, shape: Shape) -> Links:
    return _moved(tuple(shape), range(len(a.pairs)))


def _transpose(a: Estimate, *, axes: tuple[int, int]) -> Links:
    order = list(range(len(a.shape)))
    order[axes[0]], order[axes[1]] = order[axes[1]], order[axes[0]]
    shape = tuple(a.shape[axis] for axis in order)
    return _moved(
        shape, (_place(tuple(at[axis] for axis in order), a.shape) for at in _places(shape))
    )


def _sum(a: Estimate, *, axis: int, keep: bool = False) -> Links:
    kept = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
    links: list[Link] = [(_place(at, kept), i, None) for i, at in enumerate(_places(a.shape))]
    return kept if keep else (*a.shape[:axis], *a.shape[axis + 1 :]), [links]


def _gather_rows(table: Estimate, *, indices: Any) -> Links:
    width = table.shape[1]
    sources = [i * width + d for i in _integers(indices) for d in range(width)]
    return _moved((*indices.shape, width), sources)


def _place_rows(rows: Estimate, *, positions: Any, count: int) -> Links:
    width = rows.shape[1]
    cells = [p * width + d for p in _integers(positions) for d in range(width)]
    return (count, width), [[(o, i, None) for i, o in enumerate(cells)]]


def _rotary(a: Estimate, *, cosines: Any, sines: Any) -> Links:
    c, s = _read(cosines), _read(sines)
    links: list[Link] = []
    for pair, at in enumerate(_places((*a.shape[:-1], a.shape[-1] // 2))):
        left, right, angle = 2 * pair, 2 * pair + 1, _place(at, c.shape)
        cosine, sine = c.pairs[angle], s.pairs[_place(at, s.shape)]
        opposite = Pair(-sine.value, sine.error)
        links += [(left, left, cosine), (left, right, opposite)]
        links += [(right, left, sine), (right, right, cosine)]
    return a.shape, [links]


LINEAR: dict[str, Callable[..., Links]] = {
    "add": _add, "mul": _mul, "matmul": _matmul, "sum": _sum, "mean": _sum,
    "broadcast_to": _broadcast_to, "reshape": _reshape, "transpose": _transpose,
    "gather_rows": _gather_rows, "place_rows": _place_rows, "rotary": _rotary,
}  # fmt: skip
BILINEAR = {"mul", "matmul"}

# Not linear: the value's bound, and a function from the upstream to the contribution's.
Rule: TypeAlias = Callable[[Estimate], Estimate]
ONE = exact(1)


def _exp(f: Functions, a: Estimate) -> tuple[Estimate, Rule]:
    y = Estimate(a.shape, [f.exp(x) for x in a.pairs])
    return y, lambda u: _each(times, u, y)


def _log(f: Functions, a: Estimate) -> tuple[Estimate, Rule]:
    return Estimate(a.shape, [f.log(x) for x in a.pairs]), lambda u: _each(over, u, a)


def _each(rule: Callable[[Pair, Pair], Pair], a: Estimate, b: Estimate) -> Estimate:
    return Estimate(a.shape, [rule(x, y) for x, y in zip(a.pairs, b.pairs, strict=True)])


def _silu(f: Functions, a: Estimate) -> tuple[Estimate, Rule]:
    """x * s and u * (s * (1 + x * (1 - s))), step by step.

    s = 1/(1 + e) or e/(1 + e) with e = exp(-|x|). For x >> 0 the rounding of s decides 1 - s,
    an error of x u beside a slope of 1; where the slope crosses 0 (x = -1.278...) its
    relative error has no bound, and where s is subnormal neither factor has one.
    """
    sigmoids = []
    for x in a.pairs:
        e = f.exp(Pair(-abs(x.value), x.error))
        sigmoids.append(over(ONE if x.value >= 0 else e, plus(ONE, e)))
    s = Estimate(a.shape, sigmoids)
    slope = Estimate(
        a.shape,
        [
            times(sigmoid, plus(ONE, times(x, minus(ONE, sigmoid))))
            for x, sigmoid in zip(a.pairs, sigmoids, strict=True)
        ],
    )
    return _each(times, a, s), lambda u: _each(times, u, slope)


class Row:
    """One softmax row: d = z - m, e = exp(d), tail = sum of the e but for one of the maxima.

    The maximum is a comparison, without error, and exp(0) = 1 is exact. e keeps a relative
    error of e^(u|d|) (1 + u) - 1; it enters the tail by its share of it. A form with
    log(1 + tail) for log1p(tail) rounds once more, by u (1 + tail).
    """

    def __init__(self, f: Functions, row: Sequence[Pair]) -> None:
        largest = max(range(len(row)), key=lambda c: row[c].value)
        self.maximum = row[largest]
        self.shifted = [minus(z, self.maximum) for z in row]
        self.exponentials = [f.exp(d) for d in self.shifted]
        self.exponentials[largest] = ONE
        others = [e for c, e in enumerate(self.exponentials) if c != largest]
        tail = total(others)
        normalizer = plus(ONE, tail)
        self.log_sum = f.log1p(tail)
        self.probabilities = [over(e, normalizer) for e in self.exponentials]


def _rows(a: Estimate, axis: int) -> list[list[int]]:
    """The flat cells of every row along the axis, groups in row-major order."""
    rest = (*a.shape[:axis], *a.shape[axis + 1 :])
    return [
        [_place((*at[:axis], c, *at[axis:]), a.shape) for c in range(a.shape[axis])]
        for at in _places(rest)
    ]


def _scattered(shape: Shape, rows: list[list[int]], parts: Iterable[Sequence[Pair]]) -> Estimate:
    """Row results back in their cells; a cell of no row is exactly 0."""
    pairs = [exact(0)] * len(list(_places(shape)))
    for row, part in zip(rows, parts, strict=True):
        for cell, pair in zip(row, part, strict=True):
            pairs[cell] = pair
    return Estimate(shape, pairs)


def _log_softmax(f: Functions, a: Estimate, *, axis: int) -> tuple[Estimate, Rule]:
    """(z - m) - log1p(tail) and u - p * sum(u), step by step."""
    cells = _rows(a, axis)
    rows = [Row(f, [a.pairs[c] for c in row]) for row in cells]
    values = [[minus(d, row.log_sum) for d in row.shifted] for row in rows]

    def rule(u: Estimate) -> Estimate:
        parts = []
        for each, row in zip(cells, rows, strict=True):
            R = total([u.pairs[c] for c in each])
            terms = zip(each, row.probabilities, strict=True)
            parts.append([minus(u.pairs[c], times(p, R)) for c, p in terms])
        return _scattered(a.shape, cells, parts)

    return _scattered(a.shape, cells, values), rule


def _sum_nll(
    f: Functions, a: Estimate, *, axis: int, targets: Any, G: int = 1
) -> tuple[Estimate, Rule]:
    """sum of (m - z_target) + log1p(tail), over G; (p - [target]) * (u / G), step by step."""
    cells = _rows(a, axis)
    rows = [Row(f, [a.pairs[c] for c in row]) for row in cells]
    chosen = _integers(targets)
    losses = [
        plus(minus(row.maximum, a.pairs[each[t]]), row.log_sum)
        for each, row, t in zip(cells, rows, chosen, strict=True)
    ]
    loss = total(losses)

    def rule(u: Estimate) -> Estimate:
        k = u.pairs[0] if G == 1 else over(u.pairs[0], exact(G))
        parts = [
            [times(minus(p, ONE) if c == t else p, k) for c, p in enumerate(row.probabilities)]
            for row, t in zip(rows, chosen, strict=True)
        ]
        return _scattered(a.shape, cells, parts)

    return Estimate((), [loss if G == 1 else over(loss, exact(G))]), rule


def _mean_nll(f: Functions, a: Estimate, *, axis: int, targets: Any) -> tuple[Estimate, Rule]:
    return _sum_nll(f, a, axis=axis, targets=targets, G=len(_integers(targets)))


def _causal_softmax(
    f: Functions, a: Estimate, *, range_starts: Any = None, lengths: Any = None
) -> tuple[Estimate, Rule]:
    """e / (1 + tail) and p * (u - sum(u p)) over the allowed keys, step by step."""
    T = a.shape[-1]
    queries = len(a.pairs) // T
    starts = [0] * queries if range_starts is None else _integers(range_starts)
    active = [T] * (queries // T) if lengths is None else _integers(lengths)
    cells = [
        [q * T + j for j in range(start, q % T + 1)]
        for q, start in enumerate(starts)
        if q % T < active[q // T]
    ]
    rows = [Row(f, [a.pairs[c] for c in each]).probabilities for each in cells]

    def rule(u: Estimate) -> Estimate:
        parts = []
        for each, row in zip(cells, rows, strict=True):
            upstream = [u.pairs[c] for c in each]
            w = dot(upstream, row)
            parts.append([times(p, minus(x, w)) for x, p in zip(upstream, row, strict=True)])
        return _scattered(a.shape, cells, parts)

    return _scattered(a.shape, cells, rows), rule


NONLINEAR: dict[str, Callable[..., tuple[Estimate, Rule]]] = {
    "exp": _exp, "log": _log, "silu": _silu, "log_softmax": _log_softmax,
    "causal_softmax": _causal_softmax, "indexed_mean_nll": _mean_nll, "indexed_sum_nll": _sum_nll,
}  # fmt: skip
