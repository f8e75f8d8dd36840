"""Laws over the elementary functions, the generator and the activation."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from logitproof.properties.scalar import Config, Generator, initial_weights, rounded

from .components import Components
from .difference import Difference, doubles, first_difference, first_named_difference
from .drawn import Draw, draws, equal, first, refused
from .law import Law

__all__ = ["LAWS"]

Scalar = Callable[[float], float]


def _arguments(draw: Draw) -> dict[str, list[float]]:
    """Arguments of each function, from ordinary to where results are subnormal or reduced."""
    g = draw.generator()
    unit = [g.unit() for _ in range(12)]
    signed = [2.0 * u - 1.0 for u in unit]
    angles = [s * 10.0 ** (3 * (i % 6)) for i, s in enumerate(signed)]
    return {
        "exp": [*(-745.0 * u for u in unit), *(60.0 * s for s in signed), -708.5, -744.9, 0.0],
        "log": [math.ldexp(1.0 + u, g.below(2000) - 1000) for u in unit] + [1.0, 5e-324],
        "log1p": [u * 2.0 ** -(g.below(80)) for u in unit] + [0.0, 1e-300, 40.0 * unit[0]],
        "sin": [*angles, 0.0],
        "cos": [*angles, 0.0],
    }


def _rounded(implementation: Components, draw: Draw) -> Difference | None:
    """All at once, one by one, and backwards: the same correctly rounded values."""
    floats = implementation.parts.floats

    def one(name: str, arguments: list[float]) -> Iterator[Difference | None]:
        scalar: Scalar = getattr(rounded, name)
        function = getattr(floats, name)
        expected = np.array([scalar(x) for x in arguments])
        values = np.array(arguments)
        for i, (x, want) in enumerate(zip(arguments, expected, strict=True)):
            if i % 5 == 0:
                yield first_difference(f"{name}({x!r}) alone", want, function(np.array(x)))
        yield first_difference(f"{name} of {arguments}", expected, function(values))
        yield first_difference(f"{name} backwards", expected[::-1], function(values[::-1]))

    found = first(d for name, given in _arguments(draw).items() for d in one(name, given))
    g = draw.generator()
    base = (10000.0, 500000.0, 2.0, 1.0 + g.unit())[g.below(4)]
    exponents = [-2.0 * i / (2 + 2 * g.below(64)) for i in range(6)]
    powers = np.array([rounded.pow(base, e) for e in exponents])
    return found or first_difference(
        f"pow({base!r}, {exponents})", powers, floats.pow(base, np.array(exponents))
    )


def _silu(implementation: Components, draw: Draw) -> Difference | None:
    """x*s and u * (s * (1 + x*(1-s))) by their definition, to the smallest results."""
    g = draw.generator()
    scale = {"uniform": 8.0, "tiny": 1e-310, "large": 760.0, "huge": 1.7e308}[draw.regime]
    cells = [scale * (2.0 * g.unit() - 1.0) for _ in range(6)] + [-0.0, 0.0, -scale, scale]
    upstream = [4.0 * g.unit() - 2.0 for _ in cells]
    value, vjp = implementation.parts.ops.silu(np.array(cells))
    sigmoids = [_sigmoid(x) for x in cells]
    slopes = [
        u * (s * (1.0 + x * (1.0 - s))) for u, x, s in zip(upstream, cells, sigmoids, strict=True)
    ]
    expected = [x * s for x, s in zip(cells, sigmoids, strict=True)]
    return first_difference(f"silu of {cells}", expected, value) or first_difference(
        f"slope of silu at {cells}", slopes, vjp(np.array(upstream))[0]
    )


def _sigmoid(x: float) -> float:
    e = rounded.exp(-abs(x))
    return (1.0 if x >= 0 else e) / (1.0 + e)


def _words(implementation: Components, draw: Draw) -> Difference | None:
    parts, g = implementation.parts, draw.generator()
    seed = (0, 2**64 - 1, g.word())[draw.size % 3]
    ours, theirs = Generator(seed), parts.SplitMix64(seed)
    count = 1 + g.below(9)
    words = [ours.word() for _ in range(count)]
    units = [ours.unit() for _ in range(count)]
    return first(
        equal(what, expected, actual)
        for what, expected, actual in (
            (f"words of seed {seed}", words, [theirs.next_u64() for _ in range(count)]),
            ("units", [u.hex() for u in units], [theirs.uniform().hex() for _ in range(count)]),
            ("state", ours.state, theirs.state),
        )
    )


def _config(draw: Draw) -> Config:
    g = draw.generator()
    heads = 1 + g.below(2)
    return Config(
        vocabulary_size=1 + g.below(6),
        model_width=heads * 2 * (1 + g.below(2)),
        heads=heads,
        feed_forward_width=1 + g.below(5),
        layers=draw.size % 3,
        max_positions=2,
        rope_base=10000.0,
        rms_epsilon=1e-6,
    )


def _initial(implementation: Components, draw: Draw) -> Difference | None:
    config, generator = _config(draw), Generator(draw.seed)
    expected = initial_weights(config, generator)
    weights, state = implementation.initial(config, draw.seed, depth_scaled=False)
    return equal("generator state", generator.state, state) or first_named_difference(
        f"initial {config}", {name: doubles(value) for name, value in expected.items()}, weights
    )


def _kept_state(implementation: Components, draw: Draw) -> Difference | None:
    """A constructor that is refused leaves the generator where it was."""
    parts = implementation.parts
    rng = parts.SplitMix64(draw.seed)
    too_wide = parts.DecoderConfig
    calls: tuple[tuple[str, str, Callable[[], Any]], ...] = (
        ("a table without rows", "shape/empty-vocabulary",
         lambda: parts.Embedding.new("t", 0, 2, rng)),
        ("a table without columns", "shape/zero-embedding-width",
         lambda: parts.Embedding.new("t", 2, 0, rng)),
        ("a linear layer without output", "shape/zero-output-width",
         lambda: parts.Linear.new("w", 2, 0, False, rng)),
        ("attention of an odd head", "shape/odd-head-width",
         lambda: parts.Attention.new("a", 3, 1, 4, 10000.0, rng)),
        ("a decoder of a foreign configuration", "record/field-type",
         lambda: parts.Decoder(too_wide, rng)),
        ("a feed-forward part without output", "shape/zero-output-width",
         lambda: parts.SwiGlu.new("f", 2, 3, 0, rng)),
    )  # fmt: skip

    def one(what: str, code: str, call: Callable[[], Any]) -> Iterator[Difference | None]:
        yield refused(what, code, call)
        yield equal(f"generator state after refusing {what}", draw.seed, rng.state)

    return first(d for given in calls for d in one(*given))


LAWS = (
    Law(
        id="functions.correctly-rounded",
        statement="exp, log, log1p, sin, cos and pow are correctly rounded, alone, in an array and"
        " backwards, to subnormal results and reduced angles.",
        source="numerics.md section 1; cases: num-exp-ulp",
        needs=("functions",),
        faults=("exp-by-numpy", "sine-reduced-by-doubles", "logarithm-of-rounded-sum"),
        cases=draws("uniform", first_seed=16_000),
        check=_rounded,
    ),
    Law(
        id="silu.definition",
        statement="SiLU and its slope have the bits of their definition, from huge arguments to"
        " the subnormal tail.",
        source="numerics.md section 6; cases: act-sigmoid-grad",
        needs=("operation-values",),
        faults=("silu-tail-flushed", "silu-slope-from-value"),
        cases=draws("uniform", "large", "tiny", "huge", first_seed=17_000),
        check=_silu,
    ),
    Law(
        id="generator.words",
        statement="Words, units and states of any seed are those of SplitMix64.",
        source="numerics_init.md section 1",
        needs=("layers",),
        faults=("draw-one-at-a-time-from-32-bits",),
        cases=draws("uniform", first_seed=18_000),
        check=_words,
    ),
    Law(
        id="generator.initial-values",
        statement="A drawn decoder has the parameters, names, order and final state of the scalar"
        " decoder's initialisation.",
        source="numerics_init.md sections 2 and 3",
        needs=("initial-values",),
        faults=("draw-down-before-gate", "xavier-other-association", "draw-32-bits"),
        cases=draws("uniform", first_seed=19_000),
        check=_initial,
    ),
    Law(
        id="generator.refused-draws",
        statement="A refused constructor leaves the generator's state as it was.",
        source="STYLE.md section 5; numerics_init.md section 3",
        needs=("layers",),
        faults=("refused-draw-moves-generator",),
        cases=draws("uniform", first_seed=20_000),
        check=_kept_state,
    ),
)
