"""What a derived case is made of: arrays of bits, true values as unevaluated pairs, drawn fills."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from logitproof.golden.load import Case
from logitproof.properties.scalar.generator import Generator
from logitproof.properties.scalar.operations import Array

__all__ = [
    "FILLS",
    "Given",
    "bits",
    "case",
    "digest",
    "doubles",
    "filled",
    "given",
    "integers",
    "matrix",
    "nearest",
    "true_values",
    "upper_bounds",
]

Object: TypeAlias = dict[str, Any]
Shape: TypeAlias = tuple[int, ...]
FAR_BELOW = -1200  # a binary exponent under which every number rounds to 0


class Given(Array):
    """An array that the oracles read too."""

    def reshape(self, _: int) -> Given:
        """The same, flat."""
        return Given((len(self.cells),), self.cells)

    def tolist(self) -> list[Any]:
        """The numbers."""
        return list(self.cells)

    @property
    def size(self) -> int:
        """How many."""
        return len(self.cells)


def given(shape: Shape, cells: Iterable[Any]) -> Given:
    """An array of a shape."""
    return Given(shape, list(cells))


def bits(value: float) -> str:
    """The 16 hex digits of a double."""
    return struct.pack(">d", value).hex()


def doubles(shape: Sequence[int], cells: Sequence[float]) -> Object:
    """Doubles as the files hold them."""
    return {"shape": list(shape), "f64": _rows(shape, [bits(float(x)) for x in cells])}


def matrix(rows: Any) -> Object:
    """Nested lists of doubles, of any depth, as the files hold them."""
    shape, flat = _flat(rows)
    return doubles(shape, flat)


def integers(shape: Sequence[int], cells: Sequence[int]) -> Object:
    """Integers as the files hold them."""
    return {"shape": list(shape), "i64": _rows(shape, [str(n) for n in cells])}


def true_values(shape: Sequence[int], reals: Sequence[Any]) -> Object:
    """Real numbers as pairs hi + lo: the nearest double, and the double nearest to what is left."""
    high = [nearest(x) for x in reals]
    low = [nearest(x - h) if math.isfinite(h) else 0.0 for x, h in zip(reals, high, strict=True)]
    return {
        "shape": list(shape),
        "hi": _rows(shape, [bits(x) for x in high]),
        "lo": _rows(shape, [bits(x) for x in low]),
    }


def upper_bounds(shape: Sequence[int], reals: Sequence[Any]) -> Object:
    """Bounds, each rounded up to a double."""
    found = []
    for x in reals:
        bound = nearest(x)
        found.append(bound if x <= bound else math.nextafter(bound, math.inf))
    return doubles(shape, found)


def nearest(x: Any) -> float:
    """The double nearest to an mpmath number, ties to even, subnormal ones too."""
    sign, man, exponent, size = x._mpf_
    if not man or exponent + size < FAR_BELOW:
        return 0.0
    try:
        found = float(int(man) << exponent) if exponent >= 0 else int(man) / (1 << -exponent)
    except OverflowError:
        found = math.inf
    return -found if sign else found


def digest(numbers: Iterable[float]) -> str:
    """SHA-256 over little-endian binary64."""
    total = hashlib.sha256()
    for x in numbers:
        total.update(struct.pack("<d", x))
    return total.hexdigest()


def case(
    identifier: str,
    source: str,
    why: str,
    *flags: str,
    setup: Object,
    input: Object,
    expect: Object,
    strength: str = "exact",
) -> Case:
    """A derived case."""
    return Case(
        id=identifier,
        origin="derived",
        source=source,
        why=why,
        flags=flags,
        strength=strength,
        setup=setup,
        input=input,
        expect=expect,
    )


Fill: TypeAlias = Callable[[Generator], float]


def _scaled(lowest: int, highest: int) -> Fill:
    def draw(g: Generator) -> float:
        exponent = lowest + g.below(highest - lowest)
        return math.ldexp(1.0 + g.unit(), exponent) * (1.0 - 2.0 * g.below(2))

    return draw


def _positive(fill: Fill) -> Fill:
    return lambda g: abs(fill(g))


FILLS: dict[str, Fill] = {
    "warm": lambda g: 4.0 * g.unit() - 2.0,
    "hot": lambda g: 80.0 * g.unit() - 40.0,
    "cold": _scaled(-60, -20),
    "wide": _scaled(-300, 300),
    "tiny": _scaled(-1074, -1000),
    "signed-zeros": lambda g: (0.0, -0.0, 1.0, -1.0)[g.below(4)],
    "thousands": lambda g: 2000.0 * g.unit() - 1000.0,
    "near-ties": lambda g: 1.0 + g.below(3) * 2.0**-52,
    "offset-1e17": lambda g: 1e17 + 16.0 * g.below(8),
    "positive": _positive(_scaled(-8, 8)),
    "positive-wide": _positive(_scaled(-400, 400)),
    "near-one": lambda g: 1.0 + _scaled(-52, -2)(g),
    "exponents": lambda g: 990.0 * g.unit() - 745.0,
}


def filled(fill: str, shape: Shape, generator: Generator) -> Given:
    """An array of drawn numbers."""
    return given(shape, (FILLS[fill](generator) for _ in range(math.prod(shape))))


def _rows(shape: Sequence[int], words: list[str]) -> list[str]:
    width = shape[-1] if shape else 1
    return [" ".join(words[i : i + width]) for i in range(0, len(words), width)] if words else []


def _flat(value: Any) -> tuple[list[int], list[float]]:
    if not isinstance(value, list | tuple):
        return [], [float(value)]
    parts = [_flat(item) for item in value]
    return [len(parts), *parts[0][0]], [x for _, flat in parts for x in flat]
