"""Drawn arrays for the laws over components: one seed, one size, one named regime of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitproof.properties.scalar import Generator

from .difference import Difference

__all__ = ["REGIMES", "Draw", "answered", "draws", "equal", "first", "refusal", "refused"]

Array = NDArray[np.float64]
SMALLEST = 5e-324


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What a case is drawn from; the same fields give the same arrays everywhere.

    size: 0 for the smallest case; it grows from one case to the next
    """

    seed: int
    size: int
    regime: str

    def generator(self) -> Generator:
        """A generator of its own."""
        return Generator(self.seed)

    def values(self, generator: Generator, *shape: int, regime: str | None = None) -> Array:
        """An array of this regime, or of the one named."""
        draw = REGIMES[regime or self.regime]
        cells = [draw(generator) for _ in range(math.prod(shape))]
        return np.array(cells, dtype=np.float64).reshape(shape)

    def below(self, generator: Generator, most: int) -> int:
        """A size from 1 to `most`, smaller in the first cases."""
        return 1 + generator.below(min(most, 1 + self.size))

    def __str__(self) -> str:
        return f"{self.regime} values from seed {self.seed}, size {self.size}"


def _signed(generator: Generator, value: float) -> float:
    return -value if generator.below(2) else value


def _dyadic(generator: Generator) -> float:
    """n / 8: sums and products of a few are exact."""
    return (generator.below(65) - 32) / 8


def _uniform(generator: Generator) -> float:
    return 4.0 * generator.unit() - 2.0


def _wide(generator: Generator) -> float:
    return math.ldexp(_uniform(generator), generator.below(81) - 40)


def _zeros(generator: Generator) -> float:
    """Zeros of both signs among ordinary values."""
    return _signed(generator, 0.0) if generator.below(2) else _uniform(generator)


def _tiny(generator: Generator) -> float:
    """Subnormals, and values whose squares are subnormal."""
    if generator.below(2):
        return _signed(generator, SMALLEST * generator.below(1 << 20))
    return math.ldexp(_uniform(generator), -520)


def _large(generator: Generator) -> float:
    """Around a thousand, with near ties."""
    return _signed(generator, 1000.0 + generator.below(3) * 2.0**-40)


def _offset(generator: Generator) -> float:
    """1e17 and a few of its ulps, which are 16: near ties and gaps that exp cannot span."""
    return 1e17 + 16.0 * generator.below(64)


def _huge(generator: Generator) -> float:
    """Up to the largest doubles."""
    return math.ldexp(_uniform(generator), 900 + generator.below(122))


REGIMES: dict[str, Callable[[Generator], float]] = {
    "dyadic": _dyadic,
    "uniform": _uniform,
    "wide": _wide,
    "zero-rich": _zeros,
    "tiny": _tiny,
    "large": _large,
    "offset": _offset,
    "huge": _huge,
}


def draws(*regimes: str, first_seed: int) -> Callable[[int], Iterator[Draw]]:
    """As many cases as asked for, the regimes in turn."""

    def cases(count: int) -> Iterator[Draw]:
        for size in range(count):
            yield Draw(seed=first_seed + size, size=size, regime=regimes[size % len(regimes)])

    return cases


def equal(what: str, expected: object, actual: object) -> Difference | None:
    """None where two values that are no arrays are the same."""
    if expected == actual and type(expected) is type(actual):
        return None
    return Difference(what=what, expected=str(expected), actual=str(actual))


def first(differences: Iterator[Difference | None]) -> Difference | None:
    """The first that is one."""
    return next((d for d in differences if d is not None), None)


def refusal(call: Callable[[], Any]) -> str:
    """The code of what the call refuses, or what it did instead."""
    try:
        call()
    except ValueError as refused_with:
        return str(getattr(refused_with, "code", type(refused_with).__name__))
    except Exception as error:  # noqa: BLE001 - a bare error is no refusal; the law says so
        return f"raised {type(error).__name__}"
    return "a result"


def refused(what: str, code: str | Sequence[str], call: Callable[[], Any]) -> Difference | None:
    """None where the call is refused with this code, or one of these."""
    codes = [code] if isinstance(code, str) else list(code)
    found = refusal(call)
    return None if found in codes else Difference(what=what, expected=codes[0], actual=found)


def answered(
    check: Callable[[Any, Any], Difference | None],
) -> Callable[[Any, Any], Difference | None]:
    """The check, to which a refusal of a valid call is a difference like any other."""

    @wraps(check)
    def told(implementation: Any, case: Any) -> Difference | None:
        try:
            return check(implementation, case)
        except ValueError as refusal:
            return Difference(
                what="a valid call", expected="a result", actual=f"refused: {refusal}"
            )

    return told
