"""The elementary functions on arrays, correctly rounded whatever the layout, library or CPU."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from . import exact, logarithm
from .errors import Code, NumericRefusal

Floats = NDArray[np.float64]

# exp(x) = 2^(k/128) * exp(r), with k the integer nearest to x * 128/ln 2 and |r| < 2^-8.52.
# The value is carried as a sum high + low, and is rounded only where the two candidates
# high + (low - ERROR) and high + (low + ERROR) agree. Rounding errors of low, with
# th = 2^(j/128) to 27 bits, tl the rest, rh = r to a multiple of 2^-34, rl the rest:
#
#   k * L1        35 and 17 bits: exact; x - k*L1 too (multiples of 2^-61 below 2^-8)
#   rl            2^-77   from k * L2, |k*L2| < 2^-25
#   r = rh + rl   2^-62, which times |r| is 2^-70.5 in r^2/2
#   r^2 * c       2^-70.2: r^2 (2^-72), c = 1/2 + ... (2^-71), the product (2^-72)
#   r^7/5040 ...  2^-71.8, left out
#   q = rl + r^2 * c            2^-71;  q in all: 2^-68.7, and times 2^(j/128): 2^-67.7
#   th * rh       27 and 26 bits: exact; high = th + th*rh and its error e1: exact
#   th * q, the sum with tl * (1 + rh + q), the sum with e1, low -+ ERROR: 2^-71 each
#
# together below 2^-67.1 (2^-68.0 was the worst of 150,000 seen). The result lies in
# [0.997, 2.01], where doubles are 2^-53 or 2^-52 apart, so that of 2^12 values about one stays
# undecided.
ERROR = 2.0**-66

# At most this many values go one by one through the same operations on Python floats, which
# measured cheaper (0.42 us each) than the fixed 14.5 us of the array operations.
CROSSOVER = 32
LOG_CROSSOVER = 40  # the same of the logarithms: 0.35 us each, against 14 us
_CHUNK = 8192  # elements at a time, so that the work space stays in the cache

# Inside, the result is a normal number and 2^(k//128) too; outside, the exact path decides.
_LOWEST, _HIGHEST = -708.0, 709.0

_LN2 = 0xB17217F7D1CF79ABC9E3B39803F2F6AF40F  # floor(ln 2 * 2^140)
_LN2_BITS = 140


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator  # of integers: rounded once


_PER_STEP = _ratio(128 << _LN2_BITS, _LN2)  # 128 / ln 2
_L1_INTEGER = _LN2 >> (_LN2_BITS - 35)  # ln 2 / 128 in units of 2^-42
_L1 = _ratio(_L1_INTEGER, 1 << 42)
_L2 = _ratio(_LN2 - (_L1_INTEGER << (_LN2_BITS - 35)), 1 << (_LN2_BITS + 7))
_TO_INTEGER = 1.5 * 2.0**52  # adding it rounds to a multiple of 1
_TO_HEAD = 1.5 * 2.0**18  # adding it rounds to a multiple of 2^-34
_C3, _C4, _C5, _C6 = 1 / 6, 1 / 24, 1 / 120, 1 / 720


def _powers_of_two() -> list[tuple[float, float]]:
    """2^(j/128) for j below 128: the nearest multiple of 2^-26, and the rest."""
    bits = 160
    roots = [1 << (bits + 1)]  # 2^(1/2^i), by square roots in integers
    for _ in range(7):
        roots.append(math.isqrt(roots[-1] << bits))
    powers = []
    for j in range(128):
        power = 1 << bits
        for i in range(7):
            if j >> i & 1:
                power = power * roots[7 - i] >> bits
        head = (power + (1 << (bits - 27))) >> (bits - 26)
        tail = power - (head << (bits - 26))
        powers.append((_ratio(head, 1 << 26), _ratio(tail, 1 << bits)))
    return powers


_POWERS = _powers_of_two()
_HEADS, _TAILS = (np.array(column) for column in zip(*_POWERS, strict=True))
# Operands without dimensions cost an array operation half of what Python numbers do.
_A_LOWEST, _A_HIGHEST = np.array(_LOWEST), np.array(_HIGHEST)
_A_PER_STEP, _A_L1, _A_L2 = np.array(_PER_STEP), np.array(_L1), np.array(_L2)
_A_TO_INTEGER, _A_TO_HEAD = np.array(_TO_INTEGER), np.array(_TO_HEAD)
_A_C6, _A_C543, _A_HALF = np.array(_C6), [np.array(c) for c in (_C5, _C4, _C3)], np.array(0.5)
_A_J_MASK, _A_SCALE_SHIFT, _A_SCALE_MASK = np.array(127), np.array(45), np.array(-(1 << 52))


def exp(x: Floats) -> Floats:
    """e^x of every element, correctly rounded.

    Returns: a new C-contiguous array of the shape of x; 0 at -inf, inf at inf and on overflow
    """
    values = np.ascontiguousarray(_real(x)).reshape(-1)
    if values.size <= CROSSOVER:
        return np.array(_exp_few(values.tolist())).reshape(np.shape(x))
    result = np.empty(np.shape(x))
    out = result.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, values.size, _CHUNK):
            stop = start + _CHUNK
            _exp_many(values[start:stop], out[start:stop])
    return result


def log(x: Floats) -> Floats:
    """The natural logarithm of every element, correctly rounded.

    Returns: a new C-contiguous array of the shape of x; -inf at 0, NaN below
    """
    return _logarithms(logarithm.log, logarithm.log_many, x)


def log1p(x: Floats) -> Floats:
    """The natural logarithm of 1 + x for every element, correctly rounded.

    Returns: a new C-contiguous array of the shape of x; -inf at -1, NaN below
    """
    return _logarithms(logarithm.log1p, logarithm.log1p_many, x)


def sin(x: Floats) -> Floats:
    """The sine of every element (radians), correctly rounded.

    Returns: a new C-contiguous array of the shape of x; NaN at an infinity
    """
    return _each(exact.sin, x)


def cos(x: Floats) -> Floats:
    """The cosine of every element (radians), correctly rounded.

    Returns: a new C-contiguous array of the shape of x; NaN at an infinity
    """
    return _each(exact.cos, x)


def pow(base: float, exponents: Floats) -> Floats:
    """base^y for every exponent y, correctly rounded.

    base:    finite, > 0
    Returns: a new C-contiguous array of the shape of the exponents
    """
    if not 0.0 < base < math.inf:
        raise NumericRefusal(code=Code.INVALID_BASE, what="pow", value=base)
    return _each(lambda y: exact.pow(base, y), exponents)


def _real(x: Floats) -> Floats:
    """x as float64, which must change none of its values. Refuses: numeric/not-real"""
    values = np.asarray(x)
    if values.dtype == np.float64:
        return values
    whole = values.dtype.kind in "iu"
    inexact = whole and any(float(v) != v for v in values.ravel().tolist())
    if inexact or (values.dtype.char not in "edf" and not whole):
        raise NumericRefusal(
            code=Code.NOT_REAL, what="elementary function", value=f"{values.dtype} values"
        )
    with np.errstate(all="ignore"):
        return values.astype(np.float64)


def _each(function: Callable[[float], float], x: Floats) -> Floats:
    values = _real(x)
    return np.array([function(v) for v in values.ravel().tolist()]).reshape(values.shape)


def _logarithms(
    one: Callable[[float], float], many: Callable[[Floats, Floats], None], x: Floats
) -> Floats:
    values = _real(x)
    if values.size <= LOG_CROSSOVER:
        return _each(one, values)
    flat, result = np.ascontiguousarray(values).reshape(-1), np.empty(values.shape)
    out = result.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, _CHUNK):
            many(flat[start : start + _CHUNK], out[start : start + _CHUNK])
    return result


def _exp_few(values: list[float]) -> list[float]:
    """The operations of _exp_many, in the same order, on Python floats."""
    results = []
    for x in values:
        if not _LOWEST <= x <= _HIGHEST:
            results.append(exact.exp(x))
            continue
        k = (x * _PER_STEP + _TO_INTEGER) - _TO_INTEGER
        step = int(k)
        a = x - k * _L1
        rh = (a + _TO_HEAD) - _TO_HEAD
        rl = (a - rh) - k * _L2
        r = rh + rl
        q = rl + r * r * ((((_C6 * r + _C5) * r + _C4) * r + _C3) * r + 0.5)
        th, tl = _POWERS[step & 127]
        product = th * rh
        high = th + product
        low = (th * q + (tl + tl * (rh + q))) + (product - (high - th))
        rounded = high + (low + ERROR)
        if rounded == high + (low - ERROR):
            results.append(math.ldexp(rounded, step >> 7))
        else:
            results.append(exact.exp(x))
    return results


def _exp_many(values: Floats, out: Floats) -> None:
    """The exponentials of values, one-dimensional and contiguous, into out."""
    inside = values >= _A_LOWEST
    inside &= values <= _A_HIGHEST
    all_inside = np.count_nonzero(inside) == values.size
    x = values if all_inside else np.where(inside, values, 0.0)

    k = x * _A_PER_STEP
    k += _A_TO_INTEGER
    step = k.view(np.int64)  # k in the low bits of the sum
    j = step & _A_J_MASK
    scale = step << _A_SCALE_SHIFT  # k // 128 moves to the exponent field
    scale &= _A_SCALE_MASK
    th, tl = _HEADS[j], _TAILS[j]

    k -= _A_TO_INTEGER
    rl = k * _A_L1
    np.subtract(x, rl, rl)
    rh = rl + _A_TO_HEAD
    rh -= _A_TO_HEAD
    rl -= rh
    k *= _A_L2
    rl -= k

    r = np.add(rh, rl, k)
    q = r * _A_C6
    for coefficient in _A_C543:
        q += coefficient
        q *= r
    q += _A_HALF
    r *= r
    q *= r
    q += rl  # exp(r) = 1 + rh + q

    np.add(rh, q, rl)
    rl *= tl
    rl += tl
    rh *= th  # exact
    q *= th
    q += rl
    high = np.add(th, rh, tl)
    np.subtract(high, th, th)
    rh -= th  # the error of high
    low = np.add(q, rh, q)

    error = np.array(ERROR)
    above = np.add(low, error, rh)
    above += high
    low -= error
    low += high
    undecided = above != low
    np.add(above.view(np.int64), scale, out.view(np.int64))
    if not all_inside:
        undecided |= ~inside
    if np.count_nonzero(undecided):
        for lane in np.flatnonzero(undecided).tolist():
            out[lane] = exact.exp(float(values[lane]))
