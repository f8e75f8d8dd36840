"""Laws over rotary positions: table, turn, offsets, and what the score of a pair may depend on."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from logitproof.properties.scalar import rounded

from .components import Components
from .difference import Difference, first_difference
from .drawn import Array, Draw, draws, equal, first, refusal
from .law import Law

__all__ = ["LAWS"]

UNIT = 2.0**-53
LARGEST = 2**64 - 1  # the largest size, 3 times an odd number
BASES = (10000.0, 500000.0, 100.0, 1.5)
LONG = (1, 2, 256, 257, 1023, 4095)  # positions at which narrow formats lose a bit


def _frequencies(width: int, base: float) -> list[float]:
    return [rounded.pow(base, (-2.0 * i) / width) for i in range(width // 2)]


def _turned(x: Array, position: int, base: float, *, back: bool = False) -> list[float]:
    """One cell: (l*c - r*s, l*s + r*c) on adjacent pairs, no -0."""
    out: list[float] = []
    for i, f in enumerate(_frequencies(len(x), base)):
        c, s = rounded.cos(position * f), rounded.sin(position * f)
        s = -s if back else s
        left, right = float(x[2 * i]), float(x[2 * i + 1])
        out += [left * c - right * s + 0.0, left * s + right * c + 0.0]
    return out


def _positions(draw: Draw) -> list[int]:
    g = draw.generator()
    return [0, 1 + g.below(8), LONG[draw.size % len(LONG)]]


def _width(draw: Draw) -> int:
    return 2 * draw.below(draw.generator(), 4)


def _base(draw: Draw) -> float:
    return BASES[draw.size % len(BASES)]


def _oracle(implementation: Components, draw: Draw) -> Difference | None:
    parts, positions, width, base = (
        implementation.parts,
        _positions(draw),
        _width(draw),
        _base(draw),
    )
    rotation = implementation.rotation(width, max(positions) + 1, base)
    x = draw.values(draw.generator(), 1, width)
    upstream = draw.values(draw.generator(), 1, width, regime="uniform")

    def one(position: int) -> Iterator[Difference | None]:
        leaf = parts.Parameter("x", x)
        turned = rotation.rotate(leaf, position, context=parts.RECORDING)
        expected = [_turned(x[0], position, base)]
        yield first_difference(f"turned to position {position}", expected, turned.value)
        turned.backward(upstream)
        back = [_turned(upstream[0], position, base, back=True)]
        yield first_difference(f"gradient at position {position}", back, leaf.gradient)

    return first(d for position in positions for d in one(position))


def _position_zero(implementation: Components, draw: Draw) -> Difference | None:
    parts, width = implementation.parts, _width(draw)
    rotation = implementation.rotation(width, 2, _base(draw))
    x = draw.values(draw.generator(), 3, 1, width)
    turned = rotation.rotate(parts.constant(x), 0, context=parts.NO_GRAD).value
    return first_difference("position 0", x + 0.0, turned)


def _offsets(implementation: Components, draw: Draw) -> Difference | None:
    """A prompt at once, from an offset, one cell at a time, and by explicit positions."""
    parts, width = implementation.parts, _width(draw)
    g, C = draw.generator(), 40
    rotation = implementation.rotation(width, C, _base(draw))
    T = 2 + g.below(4)
    x = draw.values(g, 1, 1, T, width)
    start = g.below(C - T)

    def turned(cells: Array, offset: int) -> Array:
        values: Array = rotation.rotate(parts.constant(cells), offset, context=parts.NO_GRAD).value
        return values

    whole = turned(x, start)
    at = np.arange(start, start + T, dtype=np.int64)[None]
    placed = rotation.rotate_at(parts.constant(x), at, context=parts.NO_GRAD).value
    largest = partial(implementation.rotation, 6, LARGEST // 3, _base(draw))
    return (
        equal(f"a table of {LARGEST} angles", "raised MemoryError", refusal(largest))
        or first_difference(f"cells placed at {start}", whole, placed)
        or first(
            first_difference(
                f"cell {start + t} alone",
                whole[:, :, t : t + 1],
                turned(x[:, :, t : t + 1], start + t),
            )
            for t in range(T)
        )
    )


def _relative(implementation: Components, draw: Draw) -> Difference | None:
    """Scores at (m, n) and (m + shift, n + shift) agree within their rounding.

    Angles are p * f with the same rounded f, one rounding each: at most u*p*f off. A turned
    coordinate adds three roundings and those of cos and sin, a score of w terms w more.
    """
    parts, width, base = implementation.parts, _width(draw), _base(draw)
    g = draw.generator()
    m, n, shift = g.below(30), g.below(30), 1 + g.below(500)
    rotation = implementation.rotation(width, 531, base)
    query, key = draw.values(g, 1, width), draw.values(g, 1, width)

    def score(at_query: int, at_key: int) -> float:
        cells = (
            rotation.rotate(parts.constant(x), at, context=parts.NO_GRAD).value[0]
            for x, at in ((query, at_query), (key, at_key))
        )
        return _dot(*cells)

    bound = 0.0
    for i, f in enumerate(_frequencies(width, base)):
        size = math.hypot(*query[0, 2 * i : 2 * i + 2]) * math.hypot(*key[0, 2 * i : 2 * i + 2])
        bound += size * UNIT * ((2 * (m + n) + 2 * shift) * f + 24 + 2 * width)
    first_score, moved = score(m, n), score(m + shift, n + shift)
    error = abs(first_score - moved)
    if error <= bound:
        return None
    return Difference(
        what=f"score of positions {m} and {n}, both moved by {shift}",
        expected=f"{first_score!r} within {bound:.3g}",
        actual=f"{moved!r}, off by {error:.3g}",
    )


def _dot(left: Array, right: Array) -> float:
    return float(sum((a * b for a, b in zip(left, right, strict=True)), 0.0))


LAWS = (
    Law(
        id="rotary.oracle",
        statement="Every cell is turned by the correctly rounded cosine and sine of position times"
        " frequency, on adjacent pairs; its gradient is turned back.",
        source="numerics.md section 11; cases: rope-pairing, rope-freq-low-precision",
        needs=("layers",),
        faults=(
            "matrix-turned-from-zero",
            "pairs-by-halves",
            "frequencies-in-single",
            "positions-in-half-precision",
            "gradient-turned-on",
            "exponent-one-step-late",
            "frequency-by-reciprocal",
            "frequency-by-exp-log",
        ),
        cases=draws("uniform", "wide", "zero-rich", first_seed=21_000),
        check=_oracle,
    ),
    Law(
        id="rotary.position-zero",
        statement="Position 0 turns nothing: the values come back with -0 made +0.",
        source="numerics.md section 11",
        needs=("layers",),
        faults=("positions-from-one",),
        cases=draws("uniform", "wide", "zero-rich", first_seed=22_000),
        check=_position_zero,
    ),
    Law(
        id="rotary.offsets",
        statement="Cells of a prompt, of a later chunk and of one decoded token are turned alike,"
        " bit for bit.",
        source="numerics.md section 11; cases: kv-offset-stale-chunk, rope-left-pad-decode",
        needs=("layers",),
        faults=("single-cells-one-late",),
        cases=draws("uniform", "wide", first_seed=23_000),
        check=_offsets,
    ),
    Law(
        id="rotary.relative-position",
        statement="The score of a query and a key depends on the distance of their positions alone,"
        " within the rounding derived for the case.",
        source="Su et al. 2021; numerics.md section 11",
        needs=("layers",),
        faults=("positions-in-half-precision", "pairs-turn-unequally"),
        cases=draws("uniform", "wide", first_seed=24_000),
        check=_relative,
    ),
)
