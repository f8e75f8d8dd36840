"""Elementary functions of one double, rounded correctly from mpmath's enclosures."""

import math
from collections.abc import Callable
from typing import Any

from mpmath import libmp

__all__ = ["cos", "exp", "log", "log1p", "pow", "sin"]

_BITS = 100  # to begin with; doubled while the two ends round apart
_GUARD_BITS = 10  # of every approximation, the last bits that are not relied upon
_FURTHEST = 1100  # powers of two beyond every double's, above and below
_FAR = 800.0  # exp(-800) is below half the smallest double, exp(800) above the largest


def exp(x: float) -> float:
    """e^x. Source: numerics.md section 1"""
    if x == 0.0:
        return 1.0
    if abs(x) > _FAR:
        return math.inf if x > 0.0 else 0.0
    return _nearest(lambda bits: libmp.mpf_exp(libmp.from_float(x), bits))


def log(x: float) -> float:
    """The natural logarithm of x >= 0; -infinity at 0. Source: numerics.md section 1"""
    if x == 1.0:
        return 0.0
    if x == 0.0:
        return -math.inf
    return _nearest(lambda bits: libmp.mpf_log(libmp.from_float(x), bits))


def log1p(x: float) -> float:
    """The natural logarithm of 1 + x, x > -1. Source: numerics.md section 1"""
    if x == 0.0:
        return x
    one_more = libmp.mpf_add(libmp.from_float(x), libmp.fone)  # exact
    return _nearest(lambda bits: libmp.mpf_log(one_more, bits))


def sin(x: float) -> float:
    """The sine of x radians. Source: numerics.md section 1"""
    return x if x == 0.0 else _nearest(lambda bits: libmp.mpf_sin(libmp.from_float(x), bits))


def cos(x: float) -> float:
    """The cosine of x radians. Source: numerics.md section 1"""
    return 1.0 if x == 0.0 else _nearest(lambda bits: libmp.mpf_cos(libmp.from_float(x), bits))


def pow(base: float, exponent: float) -> float:
    """base^exponent, base > 0. Source: numerics.md section 1"""
    if base == 1.0 or exponent == 0.0:
        return 1.0
    exact = _exact_power(base, exponent)
    if exact is not None:
        return _double(*exact)

    def value(bits: int) -> Any:
        logarithm = libmp.mpf_log(libmp.from_float(base), bits + 30)
        return libmp.mpf_exp(libmp.mpf_mul(libmp.from_float(exponent), logarithm), bits)

    return _nearest(value)


def _nearest(value: Callable[[int], Any]) -> float:
    """The double next to a value that is no double and lies midway between no two."""
    bits = _BITS
    while True:
        sign, man, exponent, size = value(bits)
        man, exponent = int(man) << (bits - size), exponent - (bits - size)
        error = 1 << _GUARD_BITS
        low, high = _double(man - error, exponent), _double(man + error, exponent)
        if low == high:
            return -low if sign else low
        bits *= 2


def _double(man: int, exponent: int) -> float:
    """man * 2^exponent, rounded once, ties to even: Python's conversions of integers do so."""
    if man.bit_length() + exponent < -_FURTHEST:
        return 0.0
    if man.bit_length() + exponent > _FURTHEST:
        return math.inf
    try:
        return float(man << exponent) if exponent >= 0 else man / (1 << -exponent)
    except OverflowError:
        return math.inf


def _exact_power(base: float, exponent: float) -> tuple[int, int] | None:
    """base^exponent as man * 2^exponent where it is such a number of a few bits, else None.

    With base = man * 2^twos, man odd: a negative power of man > 1 is never a binary fraction,
    and a power p / 2^k is one only where man is a 2^k-th power and 2^k divides twos * p.
    """
    numerator, denominator = base.as_integer_ratio()
    shift = (numerator & -numerator).bit_length() - 1
    man, twos = numerator >> shift, shift - (denominator.bit_length() - 1)
    p, q = exponent.as_integer_ratio()
    if twos * p % q or (man > 1 and (p < 0 or q > 64 or p > 64 * q)):
        return None
    for _ in range(q.bit_length() - 1):
        root = math.isqrt(man)
        if root * root != man:
            return None
        man = root
    return (man**p if man > 1 else 1), twos * p // q
