"""Laws over the elementary functions where they are hardest: near halves, and at their limits."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any

import numpy as np

from logitproof.properties import rounding_inputs
from logitproof.properties.scalar import rounded

from .components import Components
from .difference import Difference, first_difference
from .drawn import Draw, draws, equal, first, refused
from .law import Law

__all__ = ["LAWS"]

INF, NAN = math.inf, math.nan
FUNCTIONS = ("exp", "log", "log1p", "sin", "cos")
MANY = 70  # more than go one by one
# Odd numbers whose cubes have 54 bits: the square of one to the power 1.5 lies half way.
LEAST_ROOT, MOST_ROOTS = 208_065, 27_000
# Arguments where a value is no rounding of a finite one, each with its value.
LIMITS: dict[str, tuple[tuple[float, float], ...]] = {
    "exp": (
        (INF, INF), (-INF, 0.0), (709.79, INF), (1e300, INF), (-745.2, 0.0), (-1e300, 0.0),
        (0.0, 1.0), (-0.0, 1.0), (NAN, NAN),
    ),
    "log": (
        (INF, INF), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (-5e-324, NAN), (-1.0, NAN),
        (-INF, NAN), (NAN, NAN),
    ),
    "log1p": (
        (INF, INF), (-1.0, -INF), (0.0, 0.0), (-0.0, -0.0), (-1.0 - 2.0**-52, NAN), (-INF, NAN),
        (NAN, NAN),
    ),
    "sin": ((0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)),
    "cos": ((0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)),
}  # fmt: skip
NO_BASES = (0.0, -0.0, -2.0, -5e-324, INF, -INF, NAN)
POWERS = (
    (2.0, INF, INF), (2.0, -INF, 0.0), (0.5, INF, 0.0), (0.5, -INF, INF), (1.0, INF, 1.0),
    (1.0, -INF, 1.0), (1.0, NAN, 1.0), (2.0, NAN, NAN), (0.5, NAN, NAN), (3.0, 0.0, 1.0),
    (3.0, -0.0, 1.0), (10.0, 400.0, INF), (10.0, -400.0, 0.0), (0.1, 400.0, 0.0),
)  # fmt: skip


def _tried(
    what: str, function: Callable[..., Any], given: Sequence[float], expected: Sequence[float]
) -> Iterator[Difference | None]:
    """Few of them, and so many that they go together."""
    times = -(-MANY // len(given))
    for some, wanted in ((given, expected), ([*given] * times, [*expected] * times)):
        found = function(np.array(some)).tolist()
        yield first(
            _alike(f"{what} of {x!r}, one of {len(some)}", w, f)
            for x, w, f in zip(some, wanted, found, strict=True)
            if w.hex() != f.hex()
        )


def _alike(what: str, expected: float, actual: float) -> Difference | None:
    if math.isfinite(expected) and math.isfinite(actual):
        return first_difference(what, expected, actual)
    return equal(what, expected.hex(), actual.hex())  # a NaN is as good as another


@cache
def _hard_cases(name: str) -> tuple[list[float], list[float]]:
    """Its arguments next to half way between two doubles, and the value of each."""
    given = [float.fromhex(x) for x in rounding_inputs.HARD[name]]
    return given, [getattr(rounded, name)(x) for x in given]


def _hard(implementation: Components, draw: Draw) -> Difference | None:
    floats, g = implementation.parts.floats, draw.generator()

    def one(name: str) -> Iterator[Difference | None]:
        yield from _tried(name, getattr(floats, name), *_hard_cases(name))
        given = rounding_inputs.arguments(name, 3 * MANY, seed=draw.seed)
        expected = [getattr(rounded, name)(x) for x in given]
        yield from _tried(name, getattr(floats, name), given, expected)

    def last_resort(name: str) -> Iterator[Difference | None]:
        exact = getattr(implementation.parts.exact, name)
        given = [*rounding_inputs.arguments(name, 5, seed=draw.seed), 2.0 ** -(1 + draw.size)]
        for x in given:
            what = f"{name} of {x!r}, where it is taken to as many digits as it needs"
            yield _alike(what, getattr(rounded, name)(x), exact(x))

    def powers() -> Iterator[Difference | None]:
        hard = [tuple(map(float.fromhex, pair)) for pair in rounding_inputs.HARD_POWERS]
        drawn = islice(rounding_inputs.powers(500, seed=draw.seed), g.below(20), None, 20)
        for base, exponents in (*((b, [e]) for b, e in hard), *drawn):
            wanted = [rounded.pow(base, e) for e in exponents]
            found = floats.pow(base, np.array(exponents))
            yield first_difference(f"pow({base!r}, {exponents})", wanted, found)
        root = LEAST_ROOT + 2 * g.below(MOST_ROOTS)
        found = floats.pow(float(root * root), np.array([1.5]))
        yield first_difference(f"pow({root}^2, 1.5)", [float(root**3)], found)

    return (
        first(d for name in FUNCTIONS for d in one(name))
        or first(d for name in FUNCTIONS for d in last_resort(name))
        or first(powers())
    )


def _limits(implementation: Components, draw: Draw) -> Difference | None:
    floats = implementation.parts.floats

    def one(name: str) -> Iterator[Difference | None]:
        turn = draw.size % len(LIMITS[name])
        given, values = zip(*LIMITS[name][turn:], *LIMITS[name][:turn], strict=True)
        yield from _tried(name, getattr(floats, name), given, values)

    return first(d for name in FUNCTIONS for d in one(name)) or first(
        equal(f"pow({base!r}, {y!r})", value.hex(), float(floats.pow(base, np.array(y))).hex())
        for base, y, value in POWERS
    ) or first(
        refused(f"a base of {base!r}", "numeric/invalid-base", partial(floats.pow, base, [1.0]))
        for base in NO_BASES
    )  # fmt: skip


LAWS = (
    Law(
        id="functions.hard-cases",
        statement="Values next to half way between two doubles, powers that are doubles or half way"
        " themselves, and arguments of every region are correctly rounded, few and many.",
        source="numerics.md section 1",
        needs=("functions",),
        faults=("half-way-powers-rounded-up", "exp-hard-cases-by-c-library"),
        cases=draws("uniform", first_seed=83_000),
        check=_hard,
    ),
    Law(
        id="functions.limits",
        statement="Infinities, NaN, zeros of both signs, overflow and the ends of every domain give"
        " the limits of the functions.",
        source="numerics.md section 1",
        needs=("functions",),
        faults=("logarithm-of-infinity-undefined", "negative-zero-lost"),
        cases=draws("uniform", first_seed=84_000),
        check=_limits,
    ),
)
