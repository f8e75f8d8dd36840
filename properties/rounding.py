"""Whether a double is the correctly rounded value of an elementary function, in integers."""

import math
from collections.abc import Callable, Iterable

import numpy as np
from mpmath import libmp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BITS = 200
_GUARD_BITS = 24  # of every approximation, the last bits that are not relied upon

# The numbers between low * 2^exp and high * 2^exp; with the two ends, if closed.
Interval = tuple[int, int, int, bool]


def is_correctly_rounded(
    function: str, x: float, result: float, *, base: float | None = None
) -> bool:
    """Whether result is the double nearest to function(x), ties to even.

    The real value is enclosed at 200 bits and more until it lies inside or outside the numbers
    that round to result; a power exactly at an end of them is recognised by exact algebra.

    function: exp, log, log1p, sin, cos, or pow (then base^x)
    x:        finite, inside the domain
    base:     finite, > 0
    """
    if x == 0.0 and function != "log":
        expected = x if function in ("log1p", "sin") else 1.0
        return result.hex() == expected.hex()
    if result != result:
        return False
    bits = _BITS
    while True:
        sign, man, exp, size = _value(function, x, base, bits)
        if not man:  # log 1
            return result.hex() == (0.0).hex()
        if bool(sign) != (math.copysign(1.0, result) < 0.0):
            return False
        if abs(exp + size) > 1100:
            return abs(result) == (math.inf if exp > 0 else 0.0)
        interval = rounding_interval(abs(result))
        verdict = _position(int(man), exp, bits - size, interval)
        if verdict is None and function == "pow" and _is_at_an_end(base, x, interval):
            return interval[3]
        if verdict is not None:
            return verdict
        bits *= 2


def misrounded(function: str, xs: list[float], results: Floats) -> list[tuple[str, str]]:
    """The arguments whose result is not correctly rounded, with it, in hexadecimal."""
    return [
        (x.hex(), result.hex())
        for x, result in zip(xs, results.tolist(), strict=True)
        if not is_correctly_rounded(function, x, result)
    ]


def misrounded_powers(
    pow: Callable[[float, Floats], Floats], cases: Iterable[tuple[float, list[float]]]
) -> list[tuple[str, str, str]]:
    """The bases and exponents that pow does not round correctly, with its result."""
    return [
        (base.hex(), y.hex(), result.hex())
        for base, exponents in cases
        for y, result in zip(exponents, pow(base, np.array(exponents)).tolist(), strict=True)
        if not is_correctly_rounded("pow", y, result, base=base)
    ]


def rounding_interval(result: float) -> Interval:
    """The numbers that round to result >= 0."""
    if result == math.inf:
        return ((1 << 54) - 1) << 1, 1 << 2200, 969, True
    exp = max(math.frexp(result)[1] - 53, -1074) if result else -1074
    units = int(math.ldexp(result, -exp))
    below = 1 if units == 1 << 52 and exp > -1074 else 2  # in quarters of a unit
    return 4 * units - below, 4 * units + 2, exp - 2, units % 2 == 0


def _value(function: str, x: float, base: float | None, bits: int) -> tuple[int, int, int, int]:
    argument = libmp.from_float(x)
    value: tuple[int, int, int, int]
    if function == "log1p":
        value = libmp.mpf_log(libmp.mpf_add(argument, libmp.fone), bits)  # the sum is exact
    elif function == "pow" and abs(x) <= 1024.0:
        value = libmp.mpf_pow(libmp.from_float(base), argument, bits)
    elif function == "pow":  # by exp and log: the products of a large integer power take long
        logarithm = libmp.mpf_log(libmp.from_float(base), bits + 12)
        value = libmp.mpf_exp(libmp.mpf_mul(argument, logarithm), bits)
    else:
        value = getattr(libmp, "mpf_" + function)(argument, bits)
    return value


def _position(man: int, exp: int, missing: int, interval: Interval) -> bool | None:
    """Whether man * 2^exp, known but for its guard bits, is inside; None where these decide."""
    low, high, unit, _ = interval
    man, exp = man << missing, exp - missing
    error = 1 << _GUARD_BITS
    if exp < unit:
        low, high = low << (unit - exp), high << (unit - exp)
    else:
        man, error = man << (exp - unit), error << (exp - unit)
    if low < man - error and man + error < high:
        return True
    if man + error < low or high < man - error:
        return False
    return None


def _is_at_an_end(base: float | None, exponent: float, interval: Interval) -> bool:
    """Whether base^exponent is exactly low or high: end^denominator = base^numerator."""
    assert base is not None
    low, high, unit, _ = interval
    numerator, denominator = exponent.as_integer_ratio()
    man, exp = _odd_part(*base.as_integer_ratio())
    if denominator > 2048 or (man > 1 and not 0 < numerator <= 64 * denominator):
        return False
    return any(
        (end_exp + unit) * denominator == exp * numerator
        and end**denominator == man ** max(numerator, 0)
        for end, end_exp in (_odd_part(low, 1), _odd_part(high, 1))
    )


def _odd_part(numerator: int, denominator: int) -> tuple[int, int]:
    twos = (numerator & -numerator).bit_length() - 1
    return numerator >> twos, twos - (denominator.bit_length() - 1)
