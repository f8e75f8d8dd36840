"""Correctly rounded logarithms, by a table and a rounding test: of one float, and of many."""

import math

import numpy as np
from numpy.typing import NDArray

from . import exact

Floats = NDArray[np.float64]

# log(x + y) = e * ln 2 - log(c) + log(1 + z), with x = 2^e * m, m in [0.707, 1.415), c close to
# 1/m in 10 bits and |z| < 2^-7.9. The value is carried as a sum high + low and is rounded only
# where high + (low - ERROR) and high + (low + ERROR) agree. Rounding errors of low:
#
#   e * ln2_head - log(c)_head   multiples of 2^-42 below 2^10: exact
#   zh = head * c - 1            40 and 10 bits: exact; zl = (the rest) * c: 2^-92
#   z = zh + zl                  2^-61, which times |z| is 2^-68.9 in z^2/2
#   z^2 * (-1/2 + ...)           2^-68.3: z^2 (2^-70), the factor (2^-69.8), the product (2^-70)
#   z^9/9 ...                    2^-74, left out
#   the sum of four small terms, low -+ ERROR: 2^-70 each
#
# together below 2^-66.8. Doubles near the result are 2^-58 apart at 0.01 and 2^-52 at 1, so a
# small share stays undecided, and every value within 2^-12 of zero.
ERROR = 2.0**-65

_SPLIT = 1.5 * 2.0**13  # adding it rounds to a multiple of 2^-39
_SQRT_HALF = 0.7071
_C3, _C5, _C6, _C7 = 1 / 3, 1 / 5, -1 / 6, 1 / 7
_GRID = 42


def log(x: float) -> float:
    """The natural logarithm, correctly rounded; -inf at 0, NaN below."""
    if 0.0 < x < math.inf:
        decided = _of_sum(x, 0.0)
        if decided is not None:
            return decided
    return exact.log(x)


def log1p(x: float) -> float:
    """The natural logarithm of 1 + x, correctly rounded; -inf at -1, NaN below."""
    if -1.0 < x < math.inf:
        total = 1.0 + x
        rounded_x = total - 1.0
        decided = _of_sum(total, (1.0 - (total - rounded_x)) + (x - rounded_x))
        if decided is not None:
            return decided
    return exact.log1p(x)


def log_many(values: Floats, out: Floats) -> None:
    """`log` of one-dimensional values into out: the same operations on arrays."""
    outside = ~((values > 0.0) & (values < math.inf))
    x = np.where(outside, 1.0, values)
    undecided = _of_sums(x, None, out)
    undecided |= outside
    for lane in np.flatnonzero(undecided).tolist():
        out[lane] = exact.log(float(values[lane]))


def log1p_many(values: Floats, out: Floats) -> None:
    """`log1p` of one-dimensional values into out: the same operations on arrays."""
    outside = ~((values > -1.0) & (values < math.inf))
    x = np.where(outside, 0.0, values)
    total = 1.0 + x
    rounded_x = total - 1.0
    y = 1.0 - (total - rounded_x)
    y += x - rounded_x
    undecided = _of_sums(total, y, out)
    undecided |= outside
    for lane in np.flatnonzero(undecided).tolist():
        out[lane] = exact.log1p(float(values[lane]))


def _of_sums(x: Floats, y: Floats | None, out: Floats) -> NDArray[np.bool_]:
    """`_of_sum` of every pair into out; True where the rounding is undecided."""
    m, e = np.frexp(x)
    low_half = m < _SQRT_HALF
    m[low_half] += m[low_half]
    e = e - low_half
    j = (m * 256.0 + 0.5).astype(np.int64) - 181
    c = _CS[j]
    head = (m + _SPLIT) - _SPLIT
    zh = head * c
    zh -= 1.0
    zl = np.subtract(m, head, out=m)
    if y is not None:
        zl += np.ldexp(y, -e)
    zl *= c
    z = np.add(zh, zl, out=head)
    tail = -0.125 * z
    for coefficient in (_C7, _C6, _C5, -0.25, _C3):
        tail += coefficient
        tail *= z
    tail += -0.5
    whole = e * _LN2_HEAD
    whole += _LOG_HEADS[j]
    high = np.add(whole, zh, out=out)
    added = np.subtract(high, whole, out=c)
    zh -= added
    np.subtract(high, added, out=added)
    whole -= added
    error = np.add(whole, zh, out=whole)
    z *= z
    z *= tail
    low = np.add(zl, z, out=zl)
    last = e * _LN2_TAIL
    last += _LOG_TAILS[j]
    error += last
    low += error
    below = high + (low - ERROR)
    low += ERROR
    high += low
    undecided: NDArray[np.bool_] = high != below
    return undecided


def _of_sum(x: float, y: float) -> float | None:
    """log(x + y) for a y that x absorbs; None where the rounding is undecided."""
    m, e = math.frexp(x)
    if m < _SQRT_HALF:
        m += m
        e -= 1
    c, log_head, log_tail = _TABLE[int(m * 256.0 + 0.5) - 181]
    head = (m + _SPLIT) - _SPLIT
    zh = head * c - 1.0
    zl = ((m - head) + math.ldexp(y, -e)) * c
    z = zh + zl
    tail = (((((-0.125 * z + _C7) * z + _C6) * z + _C5) * z - 0.25) * z + _C3) * z - 0.5
    whole = e * _LN2_HEAD + log_head
    high = whole + zh
    added = high - whole
    error = (whole - (high - added)) + (zh - added)
    low = (zl + z * z * tail) + (error + (e * _LN2_TAIL + log_tail))
    rounded = high + (low + ERROR)
    return rounded if rounded == high + (low - ERROR) else None


def _logarithms() -> dict[int, int]:
    """log(n / 512) in units of 2^-140, by log(n+1) - log(n) = 2 atanh(1 / (2n + 1))."""
    values = {512: 0}
    for n in range(512, 724):
        values[n + 1] = values[n] + _step(n)
    for n in range(511, 361, -1):
        values[n] = values[n + 1] - _step(n)
    return values


def _step(n: int) -> int:
    ratio = 2 * n + 1
    term, total, odd = (2 << 140) // ratio, 0, 1
    while term:
        total += term // odd
        term //= ratio * ratio
        odd += 2
    return total


def _split(value: int) -> tuple[float, float]:
    """value * 2^-140 as a multiple of 2^-42 and the rest."""
    head = value >> (140 - _GRID)
    return head / (1 << _GRID), (value - (head << (140 - _GRID))) / (1 << 140)


def _table() -> list[tuple[float, float, float]]:
    logarithms, rows = _logarithms(), []
    for j in range(181, 363):
        n = (2 * 512 * 256 + j) // (2 * j)  # c = n / 512 is next to 256 / j
        rows.append((n / 512, *_split(-logarithms[n])))
    return rows


_TABLE = _table()
_CS, _LOG_HEADS, _LOG_TAILS = (np.array(column) for column in zip(*_TABLE, strict=True))
_LN2_HEAD, _LN2_TAIL = _split(0xB17217F7D1CF79ABC9E3B39803F2F6AF40F)  # floor(ln 2 * 2^140)
