"""The generator, initial matrices and the depth policy."""

from __future__ import annotations

import math

import numpy as np

from .arrays import SIZE_LIMIT, as_integers, check_reservable
from .errors import CapacityRefusal, Code, RecordRefusal, check_not_zero
from .floats import Array
from .names import check_name
from .tape import Parameter

__all__ = [
    "BASE_INITIALIZER",
    "DEPTH_POLICY",
    "SplitMix64",
    "depth_factor",
    "ones",
    "xavier",
    "zeros",
]

BASE_INITIALIZER = "xavier-uniform-splitmix64-v1"
DEPTH_POLICY = "residual-output-init-depth-v1"

MASK = 2**64 - 1
INCREMENT = 0x9E3779B97F4A7C15


class SplitMix64:
    """The 64-bit generator whose seed is its first raw state.

    state += 0x9e3779b97f4a7c15; z = state; two xor-shift-multiply steps; z ^ (z >> 31)

    Refuses: shape/ragged-ids, index/not-an-integer, record/field-range (0 .. 2**64 - 1)
    Source:  numerics_init.md section 1
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self.state = seed

    @property
    def state(self) -> int:
        """The raw state before the next draw; setting it resumes there."""
        return self._state

    @state.setter
    def state(self, seed: int) -> None:
        given = as_integers(seed, what="seed", bound=2**64)
        if given.ndim or not 0 <= int(given[()]) <= MASK:
            raise RecordRefusal(
                code=Code.FIELD_RANGE,
                what="seed",
                expected="an integer in 0 .. 2**64 - 1",
                actual=seed,
            )
        self._state = int(given[()])

    def copy(self) -> SplitMix64:
        """A generator with the same state and its own future."""
        return SplitMix64(self.state)

    def next_u64(self) -> int:
        """The next 64-bit word."""
        self._state = z = (self._state + INCREMENT) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def uniform(self) -> float:
        """The next value in [0, 1): the upper 53 bits of a word times 2**-53."""
        return (self.next_u64() >> 11) * 2.0**-53

    def uniforms(self, count: int) -> Array:
        """The next `count` values of `uniform`."""
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(INCREMENT)
        z = steps + np.uint64(self._state)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        self._state = (self._state + count * INCREMENT) & MASK
        values: Array = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return values


def check_integer(given: object, *, what: str) -> int:
    """A Python integer; 1.0 and True are none. Refuses: record/field-type"""
    if not isinstance(given, int | np.integer) or isinstance(given, bool | np.timedelta64):
        raise RecordRefusal(
            code=Code.FIELD_TYPE, what=what, expected="an integer", actual=repr(given)[:80]
        )
    return int(given)


def check_size(size: object, *, what: str) -> int:
    """A size as a Python integer of 0 or more. Refuses: record/field-type, record/field-range"""
    integer = check_integer(size, what=what)
    if integer < 0:
        raise RecordRefusal(code=Code.FIELD_RANGE, what=what, expected="0 or more", actual=integer)
    return integer


def xavier(name: str, fan_in: int, fan_out: int, rng: SplitMix64) -> Parameter:
    """A matrix of limit * (2u - 1) with limit = sqrt(6 / (fan_in + fan_out)), row-major.

    Returns: the parameter [fan_in, fan_out]; one draw per element
    Refuses: names' codes, record/field-type, record/field-range, shape/zero-fan-in,
        shape/zero-fan-out, capacity/size-overflow; a refusal draws nothing
    Source:  numerics_init.md section 2
    """
    check_name(name)
    fan_in = check_size(fan_in, what=f"{name} fan-in")
    fan_out = check_size(fan_out, what=f"{name} fan-out")
    check_not_zero(Code.ZERO_FAN_IN, name, fan_in)
    check_not_zero(Code.ZERO_FAN_OUT, name, fan_out)
    for count in (fan_in + fan_out, fan_in * fan_out):
        if count > SIZE_LIMIT:
            raise CapacityRefusal(
                code=Code.SIZE_OVERFLOW, what=name, required=count, limit=SIZE_LIMIT
            )
    check_reservable(fan_in, fan_out)
    draft = rng.copy()
    limit = math.sqrt(6.0 / float(fan_in + fan_out))
    drawn = draft.uniforms(fan_in * fan_out).reshape(fan_in, fan_out)
    parameter = Parameter(name, limit * (2.0 * drawn - 1.0))
    rng.state = draft.state
    return parameter


def ones(name: str, width: int) -> Parameter:
    """A gain of ones; draws nothing."""
    check_reservable(width)
    return Parameter(name, np.ones(width))


def zeros(name: str, width: int) -> Parameter:
    """A bias of zeros; draws nothing."""
    check_reservable(width)
    return Parameter(name, np.zeros(width))


def depth_factor(layers: int) -> float:
    """alpha = 1 / sqrt(L) for L complete blocks.

    Refuses: shape/zero-depth
    Source:  numerics_init.md section 5
    """
    check_not_zero(Code.ZERO_DEPTH, "layers", layers)
    return 1.0 / math.sqrt(float(layers))
