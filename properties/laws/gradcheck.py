"""Laws over the check of gradients against differences."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .components import Components
from .difference import Difference
from .drawn import Draw, draws, equal, first, refusal
from .law import Law

__all__ = ["LAWS"]

Function = Callable[[float], float]
LARGE = 1e6  # a gradient entry that no tolerance here lets pass


def _stencil(f: Function, x: float, h: float) -> dict[str, object]:
    """The definition, one rounding per written operation."""
    low, high = x - h, x + h
    hm, hp = x - low, high - x
    s = max(hm, hp)
    a, b = hm / s, hp / s
    left, right = (f(x) - f(low)) / hm, (f(high) - f(x)) / hp
    return {
        "minus": f(low),
        "centre": f(x),
        "plus": f(high),
        "left": left,
        "right": right,
        "derivative": b / (a + b) * left + a / (a + b) * right,
        "symmetric": hm == hp,
        "spacing_minus": hm,
        "spacing_plus": hp,
        "weight_left": b / (a + b),
        "weight_right": a / (a + b),
    }


def _difference(implementation: Components, draw: Draw) -> Difference | None:
    """Any function, near points where the two spacings are unlike; a quadratic exactly."""
    g = draw.generator()
    a, b, c = (_eighths(g) for _ in range(3))
    x = math.ldexp(1.0 + g.below(3) * 2.0**-52, g.below(9) - 4) * (1 - 2 * g.below(2))
    h = (2.0**-3, 1e-3, 3e-6)[draw.size % 3]
    calls: list[float] = []

    def f(at: float) -> float:
        calls.append(at)
        return a * at * at + b * at + c

    found = implementation.checks.central_difference(f, x, h)
    expected, told = _stencil(lambda at: a * at * at + b * at + c, x, h), calls[:]
    return equal(f"places of the calls at {x!r}, step {h}", [x - h, x, x + h], told) or first(
        equal(f"{name} at {x!r}, step {h}", value, getattr(found, name))
        for name, value in expected.items()
    )


def _eighths(g: Any) -> float:
    return (int(g.below(65)) - 32) / 8


def _indices(n: int, samples: int) -> list[int]:
    m = min(samples, n)
    return [n // 2] if m == 1 else [math.floor(k * (n - 1) / (m - 1)) for k in range(m)]


def _check(implementation: Components, draw: Draw) -> Difference | None:
    """A sum of squares weighted by place: gradients right, wrong at one place, and large."""
    g, checks = draw.generator(), implementation.checks
    n, samples = draw.below(g, 12), 1 + g.below(14)
    probed = _indices(n, samples)
    point = np.array([_eighths(g) for _ in range(n)])
    slopes = np.array([2.0 * (i + 1) * x for i, x in enumerate(point)])
    wrong = probed[g.below(len(probed))]
    tolerance, step = 2.0**-20, 2.0**-3
    off = slopes + np.where(np.arange(n) == wrong, (0.0, 2.0**-19, LARGE)[draw.size % 3], 0.0)
    before, calls = point.tobytes(), list[np.ndarray[Any, Any]]()

    def f(given: Any) -> float:
        calls.append(given.copy())
        return float(sum((i + 1) * x * x for i, x in enumerate(given.tolist())))

    found = checks.check_gradient(f, point, off, step=step, tolerance=tolerance, samples=samples)
    moved = [
        [point[i] + s if i == at else point[i] for i in range(n)]
        for at in probed
        for s in (-step, 0.0, step)
    ]

    def one(coordinate: Any) -> Iterator[Difference | None]:
        at, told = coordinate.at, coordinate.comparison
        scale = max(1.0, abs(off[at]), abs(slopes[at]))
        error = float(abs(off[at] / scale - slopes[at] / scale))
        facts = (float(off[at]), float(slopes[at]), float(scale), error, error <= tolerance)
        names = ("analytic", "numeric", "scale", "scaled_error", "passed")
        yield from (
            equal(f"{name} at {at} of {n}", value, getattr(told, name))
            for name, value in zip(names, facts, strict=True)
        )

    errors = [c.comparison.scaled_error for c in found.coordinates]
    return (
        equal(f"places probed, {samples} of {n}", probed, [c.at for c in found.coordinates])
        or equal("points of the calls", moved, [call.tolist() for call in calls])
        or equal("the caller's point", before, point.tobytes())
        or first(d for c in found.coordinates for d in one(c))
        or equal("the verdict", all(error <= tolerance for error in errors), found.passed)
        or equal("the largest error", max(errors), found.largest_scaled_error)
    )


def _compared(implementation: Components, draw: Draw) -> Difference | None:
    """Tolerances are met or missed by one place; sides of a kink are compared alike."""
    g, checks = draw.generator(), implementation.checks
    a = math.ldexp(1.0 + g.unit(), g.below(9) - 4)
    n = a * (1.0 + g.below(64) * 2.0**-10)
    scale = max(1.0, abs(a), abs(n))
    error = abs(a / scale - n / scale)
    limits = ((error, True), (math.nextafter(error, 1.0), True),
              (math.nextafter(error, -1.0), False))  # fmt: skip
    kink = checks.central_difference(abs, 0.0, 2.0**-3)
    whole = checks.compare(3, -(2**53), 0)
    many = refusal(lambda: checks.compare(1.0, 2**53 + 1, 0))
    return (
        equal(
            "integers compared",
            (3.0, -(2.0**53), False),
            (whole.analytic, whole.numeric, whole.passed),
        )
        or (equal("an integer that no float64 holds", "numeric/not-real", many))
        or first(
            equal(
                f"{a!r} against {n!r} within {limit!r}", passed, checks.compare(a, n, limit).passed
            )
            for limit, passed in limits
            if limit >= 0.0
        )
        or equal("sides of a kink", (-1.0, 1.0, 2.0, False), _told(checks.compare_sides(kink, 1.0)))
    )


def _told(comparison: Any) -> tuple[object, ...]:
    names = ("analytic", "numeric", "scaled_error", "passed")
    return tuple(getattr(comparison, name) for name in names)


LAWS = (
    Law(
        id="gradcheck.difference",
        statement="A difference has the bits of its definition over the spacings that the step"
        " really has, from three calls in order.",
        source="tape.md section 6",
        needs=("gradient-checks",),
        faults=("spacings-taken-as-equal", "weights-exchanged"),
        cases=draws("dyadic", first_seed=85_000),
        check=_difference,
    ),
    Law(
        id="gradcheck.samples",
        statement="A check probes the coordinates stated, moves one at a time, leaves the point as"
        " it was and passes what is within the tolerance, scaled.",
        source="tape.md section 6",
        needs=("gradient-checks",),
        faults=("last-coordinate-not-probed", "error-not-scaled"),
        cases=draws("dyadic", first_seed=86_000),
        check=_check,
    ),
    Law(
        id="gradcheck.tolerance",
        statement="An error equal to the tolerance passes, one above fails; the two sides of a kink"
        " differ.",
        source="tape.md section 6",
        needs=("gradient-checks",),
        faults=("tolerance-exclusive",),
        cases=draws("dyadic", first_seed=87_000),
        check=_compared,
    ),
)
