"""Derived rounding bounds of single operations: how far a result may lie from the truth.

u is half the spacing at 1 and eta half the smallest number: 2^-53 and 2^-1075 of doubles. IEEE 754
rounds to nearest:

    fl(a + b) = (a + b)(1 + d)         |d| <= u; a sum that underflows is exact
    fl(a * b) = (a * b)(1 + d) + h     |h| <= eta; the same for a / b
    g_n       = n u / (1 - n u)        what n such factors amount to: |prod (1 + d_i) - 1| <= g_n

Every bound is carried by a pair (value, error): the exact value of an intermediate result and
a distance that its computed value keeps. The rules below are inequalities, not first-order
estimates, so no safety factor is needed. They hold while nothing overflows, and for every order
of additions. Pairs do not see that errors cancel; they are for single operations alone.

Of narrow formats the rules know the largest number: what reads a result that may have overflowed
has an error without a bound, and so has a sum whose terms may pass it in some order.
"""

from __future__ import annotations

import math
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
WRITTEN_OUT = 2.0**20  # beyond it a form that does not shift loses too many digits to be one
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


def exact(x: Any) -> Pair:
    """A double as it was given."""
    return Pair(mpmath.mpf(x), mpmath.mpf(0))


def _known(error: Real) -> Real:
    """The error; infinite where nothing is known, as of 0 times what may have overflowed."""
    return mp.inf if mp.isnan(error) else error


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the results of one arithmetic are rounded; the defaults are those of the core.

    unit, eta: of every rounding
    ulps:      of exp, log and log1p; an ulp of y is at most 2 u |y| while y is normal and 2 eta
               below, so that 0.5 ulp is one rounding
    forms:     roundings granted to each operation: more than one cover its other textbook forms
    largest:   the number beyond which results overflow; None where they are known not to
    kept:      the rounding of what an operation hands out and its reverse rule may read again;
               None where that is as wide as its steps
    granted:   whether steps in other textbook forms are: a mean by 1/n; a softmax row's sum with
               its maximum, in any order, and the logarithm of that; z - log-sum-exp while |z| stays
               below 2^20; a reverse rule that reads p as exp(log p); 1/(1 + exp(-x)) for every x,
               which is 0 where that overflows
    """

    unit: Real = U
    eta: Real = ETA
    ulps: float = CORRECTLY_ROUNDED
    forms: int = 1
    largest: Real | None = None
    kept: Rules | None = None
    granted: bool = False

    def gamma(self, n: int) -> Real:
        """n u / (1 - n u): the relative error of n roundings in a row; infinite for too many."""
        return n * self.unit / (1 - n * self.unit) if n * self.unit < 1 else mp.inf

    def total(self, terms: Sequence[Pair]) -> Pair:
        """The sum of n computed terms, in any order.

        Each term meets at most n - 1 additions (adding to +0.0 is exact), so the sum of the
        computed terms t + e is missed by g_(n-1) sum |t + e|:
        error <= sum e + g_(n-1) sum (|t| + e). Higham 2002, (4.4). Two terms are one rounding.
        """
        if len(terms) == 1:
            return terms[0]
        if len(terms) == 2:
            return self.plus(*terms)
        read = [self._read(term) for term in terms]
        value = mp.fsum(term.value for term in read)
        errors = mp.fsum(term.error for term in read)
        magnitude = mp.fsum(abs(term.value) for term in read) + errors
        roundings = len(terms) + self.forms - 2 if terms else 0
        error = _known(errors + self.gamma(roundings) * magnitude)
        lowest = min((t.value - t.error for t in read), default=0)
        highest = max((t.value + t.error for t in read), default=0)
        if self._overflows(magnitude) and lowest < 0 < highest:  # in some order it may
            error = mp.inf
        return Pair(value, error)

    def plus(self, a: Pair, b: Pair) -> Pair:
        """a + b: one rounding of the sum, however large the terms were."""
        a, b = self._read(a), self._read(b)
        value, carried = a.value + b.value, a.error + b.error
        return Pair(value, carried + self.forms * self.unit * (abs(value) + carried))

    def minus(self, a: Pair, b: Pair) -> Pair:
        """a - b: as a + (-b)."""
        return self.plus(a, Pair(-b.value, b.error))

    def times(self, a: Pair, b: Pair) -> Pair:
        """a * b: |(a + e)(b + f) - ab| <= |a| f + |b| e + e f, then one rounding."""
        a, b = self._read(a), self._read(b)
        carried = abs(a.value) * b.error + abs(b.value) * a.error + a.error * b.error
        return self.rounded(a.value * b.value, carried, self.forms)

    def over(self, a: Pair, b: Pair) -> Pair:
        """a / b: |(a + e)/(b + f) - a/b| <= (e + |a/b| f) / (|b| - f), then one rounding."""
        a, b = self._read(a), self._read(b)
        if abs(b.value) <= b.error:
            return Pair(a.value / b.value, mp.inf)
        value = a.value / b.value
        carried = (a.error + abs(value) * b.error) / (abs(b.value) - b.error)
        return self.rounded(value, carried, self.forms)

    def dot(self, left: Sequence[Pair], right: Sequence[Pair]) -> Pair:
        """sum a b over n products in any order.

        For given a and b this is g_n sum |a b| + n eta (1 + g_(n-1)): each product is rounded once
        and meets at most n - 1 additions.
        """
        return self.total([self.times(a, b) for a, b in zip(left, right, strict=True)])

    def root(self, x: Pair) -> Pair:
        """|sqrt(x + e) - sqrt x| <= e / (2 sqrt(x - e)), the slope at the nearer end."""
        x, value = self._read(x), mp.sqrt(x.value)
        if x.value <= x.error:
            return Pair(value, mp.inf)
        return self.rounded(value, x.error / (2 * mp.sqrt(x.value - x.error)), self.forms)

    def exp(self, x: Pair) -> Pair:
        """|e^(x + e) - e^x| <= e^x (e^e - 1)."""
        x, value = self._read(x), mp.exp(x.value)
        return self._function(value, value * mp.expm1(x.error))

    def log(self, x: Pair) -> Pair:
        """|ln(x + e) - ln x| <= e / (x - e), the slope at the nearer end."""
        x = self._read(x)
        carried = x.error / (x.value - x.error) if x.value > x.error else mp.inf
        return self._function(mp.log(x.value), carried)

    def log1p(self, x: Pair) -> Pair:
        """|ln(1 + x + e) - ln(1 + x)| <= e / (1 + x - e)."""
        x = self._read(x)
        carried = x.error / (1 + x.value - x.error) if 1 + x.value > x.error else mp.inf
        return self._function(mp.log1p(x.value), carried)

    def rounded(self, value: Real, carried: Real, count: float = 1) -> Pair:
        """A result that carries an error already, after so many roundings."""
        carried = _known(carried)
        return Pair(value, carried + count * (self.unit * (abs(value) + carried) + self.eta))

    def stored(self, x: Pair) -> Pair:
        """What is handed out; a number that no step has rounded is in the format already."""
        return x if self.kept is None or not x.error else self.kept.rounded(*self._read(x))

    def again(self, x: Pair) -> Pair:
        """What a reverse rule reads of a value that was handed out."""
        return (self.kept or self)._read(self.stored(x))

    def _function(self, value: Real, carried: Real) -> Pair:
        return self.rounded(value, carried, mpmath.mpf(self.ulps) * 2 + (self.forms - 1))

    def _read(self, x: Pair) -> Pair:
        """An operand, of which nothing is known where it may have overflowed."""
        return Pair(x.value, mp.inf) if self.may_overflow(x) else x

    def may_overflow(self, x: Pair) -> bool:
        """Whether a computed number may pass the largest."""
        return self._overflows(abs(x.value) + x.error)

    def _overflows(self, magnitude: Real) -> bool:
        return self.largest is not None and not magnitude <= self.largest


CORE = Rules()


def share(pair: Pair, actual: float, *, largest: Real, following: Real) -> float | None:
    """Error over bound of one number in a format; above 1 it is wrong.

    A result that surely passes `largest` must be infinite, one that does not reach `following`,
    the number that would come next, must not. None where nothing is known.
    """
    with mp.workdps(DIGITS):
        value, error = pair
        if not mp.isfinite(error):
            return None
        overflowed = actual == (mp.inf if value > 0 else -mp.inf)
        if abs(value) - error > largest:
            return 0.0 if overflowed else math.inf
        if overflowed and abs(value) + error >= following:
            return 0.0
        off = abs(mpmath.mpf(actual) - value) if math.isfinite(actual) else mp.inf
        if not off:
            return 0.0
        return float(off / error) if error else math.inf


# --- operations ------------------------------------------------------------------------------


def forward(name: str, *arrays: Any, rules: Rules = CORE, **arguments: Any) -> Estimate:
    """The bound of an operation's value."""
    with mp.workdps(DIGITS):
        operands = [_read(array) for array in arrays]
        if made := NONLINEAR.get(name) or COMPOSED.get(name):
            return _stored(rules, made(rules, *operands, **arguments)[0])
        shape, links = LINEAR[name](*operands, **arguments)
        used = links[:1] if name in BILINEAR else links
        terms = [(o, _product(rules, coefficient, operand.pairs[i]))
                 for each, operand in zip(used, operands, strict=False)
                 for o, i, coefficient in each]  # fmt: skip
        value = _collected(rules, shape, terms)
        return _stored(rules, _mean(rules, name, operands[0], arguments, value))


def contributions(
    name: str, upstream: Any, *arrays: Any, rules: Rules = CORE, **arguments: Any
) -> tuple[Estimate, ...]:
    """The bound of every operand's contribution, in operand order."""
    with mp.workdps(DIGITS):
        operands, u = [_read(array) for array in arrays], _read(upstream)
        if made := NONLINEAR.get(name) or COMPOSED.get(name):
            return (_stored(rules, made(rules, *operands, **arguments)[1](u)),)
        _, links = LINEAR[name](*operands, **arguments)
        u = _mean(rules, name, operands[0], arguments, u)
        found = []
        for each, operand in zip(links, operands, strict=True):
            terms = [(i, _product(rules, coefficient, u.pairs[o])) for o, i, coefficient in each]
            found.append(_stored(rules, _collected(rules, operand.shape, terms)))
        return tuple(found)


def rms_norm(x: Any, gain: Any, *, epsilon: float, rules: Rules = CORE) -> Estimate:
    """The bound of x / sqrt(mean(x^2) + epsilon) * gain over the last axis, step by step.

    Not of the core's norm, which takes the root by log and exp. The gain may stand on either side;
    before it the scaled row may be stored.
    """
    with mp.workdps(DIGITS):
        operand, gains = _read(x), _read(gain)
        pairs: list[Pair] = []
        for row in _rows(operand, len(operand.shape) - 1):
            cells = [operand.pairs[c] for c in row]
            mean = rules.over(rules.dot(cells, cells), exact(len(cells)))
            inverse = rules.over(ONE, rules.root(rules.plus(mean, exact(epsilon))))
            scaled = [rules.stored(rules.times(cell, inverse)) for cell in cells]
            pairs += [rules.times(v, g) for v, g in zip(scaled, gains.pairs, strict=True)]
        return _stored(rules, Estimate(operand.shape, pairs))


def _stored(rules: Rules, x: Estimate) -> Estimate:
    return Estimate(x.shape, [rules.stored(pair) for pair in x.pairs])


def _read(array: Any) -> Estimate:
    return Estimate(tuple(array.shape), [exact(x) for x in array.reshape(-1).tolist()])


def _product(rules: Rules, coefficient: Pair | None, x: Pair) -> Pair:
    return x if coefficient is None else rules.times(coefficient, x)


def _collected(rules: Rules, shape: Shape, terms: Iterable[tuple[int, Pair]]) -> Estimate:
    """Each term in its cell, every cell summed."""
    cells: list[list[Pair]] = [[] for _ in _places(shape)]
    for cell, term in terms:
        cells[cell].append(term)
    return Estimate(shape, [rules.total(cell) for cell in cells])


def _mean(
    rules: Rules, name: str, operand: Estimate, arguments: dict[str, Any], x: Estimate
) -> Estimate:
    """The mean divides its sum, and its vjp the upstream, once by n."""
    if name != "mean":
        return x
    n = exact(operand.shape[arguments["axis"]])
    means = [rules.over(pair, n) for pair in x.pairs]
    if rules.granted:
        by_share = [rules.times(pair, rules.over(ONE, n)) for pair in x.pairs]
        means = [_wider(mean, other) for mean, other in zip(means, by_share, strict=True)]
    return Estimate(x.shape, means)


def _wider(written: Pair, other: Pair) -> Pair:
    """Either form of one number."""
    return Pair(written.value, max(written.error, other.error))


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


def _exp(r: Rules, a: Estimate) -> tuple[Estimate, Rule]:
    y = Estimate(a.shape, [r.exp(x) for x in a.pairs])
    return y, lambda u: _each(r.times, u, Estimate(y.shape, [r.again(x) for x in y.pairs]))


def _log(r: Rules, a: Estimate) -> tuple[Estimate, Rule]:
    return Estimate(a.shape, [r.log(x) for x in a.pairs]), lambda u: _each(r.over, u, a)


def _each(rule: Callable[[Pair, Pair], Pair], a: Estimate, b: Estimate) -> Estimate:
    return Estimate(a.shape, [rule(x, y) for x, y in zip(a.pairs, b.pairs, strict=True)])


def _silu(r: Rules, a: Estimate) -> tuple[Estimate, Rule]:
    """x * s and u * (s * (1 + x * (1 - s))), step by step.

    s = 1/(1 + e) or e/(1 + e) with e = exp(-|x|). For x >> 0 the rounding of s decides 1 - s,
    an error of x u beside a slope of 1; where the slope crosses 0 (x = -1.278...) its
    relative error has no bound, and where s is subnormal neither factor has one.
    """
    sigmoids = []
    for x in a.pairs:
        e = r.exp(Pair(-abs(x.value), x.error))
        sigmoid = r.over(ONE if x.value >= 0 else e, r.plus(ONE, e))
        if r.granted and x.value < 0 and r.may_overflow(r.exp(Pair(-x.value, x.error))):
            sigmoid = Pair(sigmoid.value, max(sigmoid.error, sigmoid.value))
        sigmoids.append(sigmoid)
    s = Estimate(a.shape, sigmoids)
    slope = Estimate(
        a.shape,
        [
            r.times(sigmoid, r.plus(ONE, r.times(x, r.minus(ONE, sigmoid))))
            for x, sigmoid in zip(a.pairs, sigmoids, strict=True)
        ],
    )
    return _each(r.times, a, s), lambda u: _each(r.times, u, slope)


class Row:
    """One softmax row: d = z - m, e = exp(d), tail = sum of the e but for one of the maxima.

    The maximum is a comparison, without error, and exp(0) = 1 is exact. e keeps a relative
    error of e^(u|d|) (1 + u) - 1; it enters the tail by its share of it. A form with
    log(1 + tail) for log1p(tail) rounds once more, by u (1 + tail).
    """

    def __init__(self, r: Rules, row: Sequence[Pair]) -> None:
        largest = max(range(len(row)), key=lambda c: row[c].value)
        self.maximum = row[largest]
        self.shifted = [r.minus(z, self.maximum) for z in row]
        self.exponentials = [r.exp(d) for d in self.shifted]
        self.exponentials[largest] = ONE
        others = [e for c, e in enumerate(self.exponentials) if c != largest]
        tail = r.total(others)
        normalizer, self.log_sum = r.plus(ONE, tail), r.log1p(tail)
        if r.granted:
            together = r.total(self.exponentials)
            normalizer = _wider(normalizer, together)
            self.log_sum = _wider(self.log_sum, r.log(together))
        self.probabilities = [r.over(e, normalizer) for e in self.exponentials]


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


def _log_softmax(r: Rules, a: Estimate, *, axis: int) -> tuple[Estimate, Rule]:
    """(z - m) - log1p(tail) and u - p * sum(u), step by step."""
    cells = _rows(a, axis)
    rows = [Row(r, [a.pairs[c] for c in row]) for row in cells]
    values = [[r.minus(d, row.log_sum) for d in row.shifted] for row in rows]
    if r.granted:
        values = [
            [_wider(v, r.minus(a.pairs[c], r.plus(row.maximum, row.log_sum)))
             if max(abs(a.pairs[c].value), abs(row.maximum.value)) < WRITTEN_OUT else v
             for c, v in zip(each, line, strict=True)]
            for each, row, line in zip(cells, rows, values, strict=True)
        ]  # fmt: skip

    def rule(u: Estimate) -> Estimate:
        parts = []
        for each, row, logs in zip(cells, rows, values, strict=True):
            R = r.total([u.pairs[c] for c in each])
            probabilities = row.probabilities
            if r.granted:
                pairs = zip(probabilities, logs, strict=True)
                probabilities = [_wider(p, r.exp(r.again(v))) for p, v in pairs]
            terms = zip(each, probabilities, strict=True)
            parts.append([r.minus(u.pairs[c], r.times(p, R)) for c, p in terms])
        return _scattered(a.shape, cells, parts)

    return _scattered(a.shape, cells, values), rule


def _sum_nll(
    r: Rules, a: Estimate, *, axis: int, targets: Any, G: int = 1
) -> tuple[Estimate, Rule]:
    """sum of (m - z_target) + log1p(tail), over G; (p - [target]) * (u / G), step by step."""
    cells = _rows(a, axis)
    rows = [Row(r, [a.pairs[c] for c in row]) for row in cells]
    chosen = _integers(targets)
    losses = [
        r.plus(r.minus(row.maximum, a.pairs[each[t]]), row.log_sum)
        for each, row, t in zip(cells, rows, chosen, strict=True)
    ]
    loss = r.total(losses)

    def rule(u: Estimate) -> Estimate:
        k = u.pairs[0] if G == 1 else r.over(u.pairs[0], exact(G))
        parts = [
            [r.times(r.minus(p, ONE) if c == t else p, k) for c, p in enumerate(row.probabilities)]
            for row, t in zip(rows, chosen, strict=True)
        ]
        return _scattered(a.shape, cells, parts)

    return Estimate((), [loss if G == 1 else r.over(loss, exact(G))]), rule


def _mean_nll(r: Rules, a: Estimate, *, axis: int, targets: Any) -> tuple[Estimate, Rule]:
    return _sum_nll(r, a, axis=axis, targets=targets, G=len(_integers(targets)))


def _causal_softmax(
    r: Rules, a: Estimate, *, range_starts: Any = None, lengths: Any = None
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
    return _probabilities(r, a, cells)


def _softmax(r: Rules, a: Estimate, *, axis: int) -> tuple[Estimate, Rule]:
    """The same over all keys."""
    return _probabilities(r, a, _rows(a, axis))


def _probabilities(r: Rules, a: Estimate, cells: list[list[int]]) -> tuple[Estimate, Rule]:
    rows = [Row(r, [a.pairs[c] for c in each]).probabilities for each in cells]

    def rule(u: Estimate) -> Estimate:
        parts = []
        for each, row in zip(cells, rows, strict=True):
            upstream, again = [u.pairs[c] for c in each], [r.again(p) for p in row]
            w = r.dot(upstream, again)
            parts.append([r.times(p, r.minus(x, w)) for x, p in zip(upstream, again, strict=True)])
        return _scattered(a.shape, cells, parts)

    return _scattered(a.shape, cells, rows), rule


NONLINEAR: dict[str, Callable[..., tuple[Estimate, Rule]]] = {
    "exp": _exp, "log": _log, "silu": _silu, "log_softmax": _log_softmax,
    "causal_softmax": _causal_softmax, "indexed_mean_nll": _mean_nll, "indexed_sum_nll": _sum_nll,
}  # fmt: skip

# Single operations that the core composes of others.
COMPOSED: dict[str, Callable[..., tuple[Estimate, Rule]]] = {"softmax": _softmax}
