"""Laws over the root-mean-square norm: its definition, its scale, and what it refuses."""

import math
from collections.abc import Callable

import numpy as np

from logitproof.properties.scalar import rounded

from .components import Components
from .difference import Difference, first_difference
from .drawn import Array, Draw, draws, equal, first, refused
from .law import Law

__all__ = ["LAWS"]

UNIT = 2.0**-53
EPSILONS = (1e-6, 1e-2, 1e-300, 0.0)


def _epsilon(draw: Draw) -> float:
    return EPSILONS[draw.size // 2 % len(EPSILONS)]


def _operands(draw: Draw, epsilon: float) -> tuple[Array, Array]:
    """Rows whose mean square is near epsilon, and a gain."""
    g = draw.generator()
    D = draw.below(g, 7)
    root = math.sqrt(epsilon) if draw.regime == "uniform" and epsilon else 1.0
    return root * draw.values(g, 2, D), draw.values(g, D, regime="uniform")


def _rows(x: Array, gain: Array, epsilon: float) -> list[list[float]]:
    rows = []
    for row in x.tolist():
        total = 0.0
        for value in row:
            total += value * value
        inverse = rounded.exp(rounded.log(total / len(row) + epsilon) * -0.5)
        rows.append([(v * inverse) * g for v, g in zip(row, gain.tolist(), strict=True)])
    return rows


def _forward(implementation: Components, x: Array, gain: Array, epsilon: float) -> Array:
    parts = implementation.parts
    norm = parts.RmsNorm.from_gain(parts.Parameter("norm.gain", gain), epsilon)
    values: Array = norm.forward(parts.constant(x), context=parts.NO_GRAD).value
    return values


def _has_energy(x: Array, epsilon: float) -> bool:
    return bool(((x * x).sum(axis=1) + epsilon > 0.0).all())


def _definition(implementation: Components, draw: Draw) -> Difference | None:
    epsilon = _epsilon(draw)
    x, gain = _operands(draw, epsilon)
    if not _has_energy(x, epsilon):
        return refused(
            f"a row without energy and epsilon {epsilon}", "numeric/zero-energy-row",
            lambda: _forward(implementation, x, gain, epsilon),
        )  # fmt: skip
    return first_difference(
        f"norm with epsilon {epsilon}",
        _rows(x, gain, epsilon),
        _forward(implementation, x, gain, epsilon),
    )


def _scale(implementation: Components, draw: Draw) -> Difference | None:
    """norm(c x, c^2 epsilon) against norm(x, epsilon), c a power of two.

    The stabilised squares scale exactly. Their logarithms are off by u of themselves, which the
    half and the exponential make half of that relative; four more roundings follow.
    """
    g = draw.generator()
    x, gain = draw.values(g, 2, draw.below(g, 6)), np.array([0.0])
    gain = draw.values(g, x.shape[1], regime="uniform")
    epsilon, c = 2.0**-20, 2.0 ** (g.below(41) - 20)
    plain = _forward(implementation, x, gain, epsilon)
    scaled = _forward(implementation, c * x, gain, c * c * epsilon)
    square = (x * x).sum(axis=1, keepdims=True) / x.shape[1] + epsilon
    logs = abs(np.log(square)) + abs(np.log(c * c * square))
    bound = UNIT * (logs + 8.0) * abs(plain) + 4 * 5e-324
    off = abs(plain - scaled)
    if (off <= bound).all():
        return None
    at = tuple(int(i) for i in np.unravel_index(int((off - bound).argmax()), off.shape))
    return Difference(
        what=f"norm of {c} x with {c}^2 epsilon",
        at=at,
        expected=f"{float(plain[at])!r} within {bound[at]:.3g}",
        actual=f"{float(scaled[at])!r}, off by {off[at]:.3g}",
    )


def _no_energy(call: Callable[[], Array]) -> Difference | None:
    """None where the first row is refused as one without energy."""
    try:
        call()
    except ValueError as refusal:
        facts = [getattr(refusal, name, None) for name in ("code", "at", "value")]
        return equal("refusal of a zero row and no epsilon",
                     ["numeric/zero-energy-row", 0, 0.0], [str(facts[0]), *facts[1:]])  # fmt: skip
    return Difference(what="a zero row and no epsilon", expected="a refusal", actual="values")


def _limits(implementation: Components, draw: Draw) -> Difference | None:
    """Zero rows are zeros, or refused without epsilon; squares that overflow are refused."""
    g = draw.generator()
    D = draw.below(g, 6)
    gain = draw.values(g, D)
    zeros, huge = np.zeros((1, D)), np.full((2, D), math.ldexp(1.0 + g.unit(), 600))
    huge[0] = 1.0

    def call(x: Array, epsilon: float) -> Array:
        return _forward(implementation, x, gain, epsilon)

    return first(
        iter(
            (
                first_difference("a zero row", zeros * gain, call(zeros, 1e-6)),
                _no_energy(lambda: call(zeros, 0.0)),
                refused("squares that overflow", "numeric/non-finite-forward",
                        lambda: call(huge, 1e-6)),
            )
        )
    )  # fmt: skip


LAWS = (
    Law(
        id="norm.definition",
        statement="A norm has the bits of x * exp(-0.5 * log(mean square + epsilon)) * gain, also"
        " where the mean square is near epsilon, tiny or nothing.",
        source="numerics.md section 9; cases: norm-eps-rescale",
        needs=("layers",),
        faults=(
            "epsilon-outside-root",
            "tiny-squares-flushed",
            "inverse-root-by-sqrt",
            "gain-before-scaling",
            "mean-by-reciprocal",
        ),
        cases=draws("uniform", "wide", "tiny", "zero-rich", first_seed=33_000),
        check=_definition,
    ),
    Law(
        id="norm.scale",
        statement="Scaling a row by a power of two and epsilon by its square scales nothing else,"
        " within the rounding derived for the row.",
        source="cases: norm-huge-row",
        needs=("layers",),
        faults=("epsilon-fixed", "epsilon-outside-root"),
        cases=draws("uniform", first_seed=34_000),
        check=_scale,
    ),
    Law(
        id="norm.limits",
        statement="A zero row gives zeros, or is refused without epsilon; a row whose squares"
        " overflow is refused.",
        source="numerics.md section 9; cases: norm-huge-row",
        needs=("layers",),
        faults=("huge-squares-clamped", "zero-row-accepted"),
        cases=draws("uniform", first_seed=35_000),
        check=_limits,
    ),
)
