"""Correctly rounded elementary functions of one float, by intervals of growing precision."""

import math
from collections.abc import Callable
from typing import Any

_INFINITY = math.inf
_NAN = math.nan

# Where the leading term of a series decides: what follows it is at most half the
# distance to the nearest rounding boundary.
_EXP_IS_ONE = 2.0**-55
_COS_IS_ONE = 2.0**-28  # 1 - x^2/2
_SIN_IS_X = 2.0**-27  # x - x^3/6
_LOG1P_IS_X = 2.0**-55  # x - x^2/2

_PRECISION = 96
# The functions of mpmath promise about one unit in the last bit at the precision asked for;
# nothing here relies on its last sixteen bits.
_GUARD_BITS = 16

Dyadic = tuple[int, int]  # man, exp: the number man * 2^exp
Approximation = Callable[[int], Any]  # a precision in bits to an mpmath number


def exp(x: float) -> float:
    """e^x, correctly rounded; 0 at -inf, inf at inf."""
    if not -746.0 <= x <= 710.0:  # outside lie zeros, infinities and NaN
        return x if x != x else (0.0 if x < 0.0 else _INFINITY)
    if -_EXP_IS_ONE <= x <= _EXP_IS_ONE:
        return 1.0
    libmp = _libmp()
    argument = _number(libmp, *_dyadic(x))
    return _refined(lambda precision: libmp.mpf_exp(argument, precision))


def log(x: float) -> float:
    """The natural logarithm, correctly rounded; -inf at 0, NaN below."""
    if not 0.0 < x < _INFINITY:
        return -_INFINITY if x == 0.0 else (x if x == _INFINITY else _NAN)
    return _log(*_dyadic(x))


def log1p(x: float) -> float:
    """The natural logarithm of 1 + x, correctly rounded; -inf at -1, NaN below."""
    if not -1.0 < x < _INFINITY:
        return -_INFINITY if x == -1.0 else (x if x == _INFINITY else _NAN)
    if -_LOG1P_IS_X <= x <= _LOG1P_IS_X:
        return x
    man, exp = _dyadic(x)
    if exp < 0:  # 1 + x is taken exactly
        return _log(man + (1 << -exp), exp)
    return _log((man << exp) + 1, 0)


def sin(x: float) -> float:
    """The sine of x radians, correctly rounded; NaN at an infinity."""
    if not -_INFINITY < x < _INFINITY:
        return _NAN
    if -_SIN_IS_X <= x <= _SIN_IS_X:
        return x
    libmp = _libmp()
    argument = _number(libmp, *_dyadic(x))
    return _refined(lambda precision: libmp.mpf_sin(argument, precision))


def cos(x: float) -> float:
    """The cosine of x radians, correctly rounded; NaN at an infinity."""
    if not -_INFINITY < x < _INFINITY:
        return _NAN
    if -_COS_IS_ONE <= x <= _COS_IS_ONE:
        return 1.0
    libmp = _libmp()
    argument = _number(libmp, *_dyadic(x))
    return _refined(lambda precision: libmp.mpf_cos(argument, precision))


def pow(base: float, exponent: float) -> float:
    """base^exponent, correctly rounded, for a finite base > 0."""
    assert 0.0 < base < _INFINITY, base
    if exponent == 0.0 or base == 1.0:
        return 1.0
    if not -_INFINITY < exponent < _INFINITY:
        if exponent != exponent:
            return exponent
        return _INFINITY if (base > 1.0) == (exponent > 0.0) else 0.0
    power = _dyadic_power(_dyadic(base), _dyadic(exponent))
    if power is not None:
        return nearest(*power)
    libmp = _libmp()
    b = _number(libmp, *_dyadic(base))
    y = _number(libmp, *_dyadic(exponent))

    def logarithm(precision: int) -> Any:
        return libmp.mpf_mul(y, libmp.mpf_log(b, precision), precision)

    negative, _, lowest, bits = logarithm(_PRECISION)
    if lowest + bits > 11:  # beyond 2^10 in magnitude: never evaluated
        return 0.0 if negative else _INFINITY
    if lowest + bits < -55:
        return 1.0
    # exp turns the absolute error of its argument, below 2^11, into a relative one.
    return _refined(lambda precision: libmp.mpf_exp(logarithm(precision + 16), precision))


def nearest(man: int, exp: int) -> float:
    """man * 2^exp (man > 0) rounded to the nearest double, ties to even; inf beyond range."""
    lowest = max(man.bit_length() + exp - 53, -1074)
    shift = lowest - exp
    if shift <= 0:
        return _assembled(man << -shift, lowest)
    kept = man >> shift
    rest, half = man - (kept << shift), 1 << (shift - 1)
    return _assembled(kept + (rest > half or (rest == half and kept & 1)), lowest)


def _log(man: int, exp: int) -> float:
    if exp <= 0 and man == 1 << -exp:
        return 0.0
    libmp = _libmp()
    argument = _number(libmp, man, exp)
    return _refined(lambda precision: libmp.mpf_log(argument, precision))


def _libmp() -> Any:
    # Only an argument that nothing cheaper decides pays for the import.
    import mpmath.libmp

    return mpmath.libmp


def _number(libmp: Any, man: int, exp: int) -> Any:
    return libmp.from_man_exp(libmp.MPZ(man), exp)


def _dyadic(x: float) -> Dyadic:
    fraction, exp = math.frexp(x)
    man = int(fraction * 2.0**53)
    trailing = (man & -man).bit_length() - 1
    return man >> trailing, exp - 53 + trailing


def _refined(approximation: Approximation) -> float:
    """The double next to a number that is neither zero, a double nor half way between two."""
    precision = _PRECISION
    while True:
        sign, man, exp, bits = approximation(precision)
        magnitude = _decided(int(man) << (precision - bits), exp - (precision - bits))
        if magnitude is not None:
            return -magnitude if sign else magnitude
        precision *= 2


def _decided(man: int, exp: int) -> float | None:
    """The double nearest to every number within 2^_GUARD_BITS * 2^exp of man * 2^exp, if one."""
    low = nearest(man - (1 << _GUARD_BITS), exp)
    high = nearest(man + (1 << _GUARD_BITS), exp)
    return low if low == high else None


def _assembled(man: int, exp: int) -> float:
    if man.bit_length() + exp > 1024:
        return _INFINITY
    return math.ldexp(man, exp)


def _dyadic_power(base: Dyadic, exponent: Dyadic) -> Dyadic | None:
    """base^exponent where it may be a double or half way between two; None elsewhere.

    With exponent = n / 2^s and n odd, the power is rational only if base is a 2^s-th power,
    r^(2^s) * 2^(e * 2^s); then it is r^n * 2^(e * n), r odd. More than 54 bits in r^n, or n < 0
    with r > 1, leave neither a double nor a boundary.
    """
    (man, exp), (n, lowest) = base, exponent
    if lowest >= 0:
        n <<= min(lowest, 64)  # an integer beyond 2^64 decides by its size alone
    for _ in range(-lowest):
        root = math.isqrt(man)
        if root * root != man or exp & 1:
            return None
        man, exp = root, exp >> 1
    if man == 1:
        return 1, max(-4096, min(4096, exp * n))
    if n > 0 and n * (man.bit_length() - 1) < 54:
        return man**n, exp * n
    return None
