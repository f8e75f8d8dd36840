"""Cases for laws about values, each in a stated regime: what hides a mistake in one shows it in
another.

A case is sizes, a seed and a regime; its weights follow from these, with a few overridden. The
first is B = T = L = H = 1 with small dyadic weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any, TypeAlias

import numpy as np

from logitproof.properties.scalar import Config, Generator, Layout
from logitproof.properties.truth import BINARY32, Answer, Truth, truth_of

from .cases import PAD, Case
from .protocol import Ids, Valid

__all__ = [
    "BASES", "CELLS", "CHOICES", "DECIDABLE", "EPSILONS", "NATS", "REGIMES", "Override", "Regime",
    "SingleCase", "Sizes", "Strength", "TruthCase", "case_of", "census", "forget",
    "grouped_cases", "largest", "redrawn", "truth_cases", "untied_cases",
]  # fmt: skip

Nested: TypeAlias = list[list[float]]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "values": ("dyadic", "xavier", "subnormal", "zeros", "huge", "overflow"),
    "attention": ("cold", "warm", "hot"),
    "norm": ("ordinary", "tiny", "spiky", "offset"),
    "logits": ("ordinary", "near-tied", "thousand", "offset", "huge"),
    "positions": ("start", "far"),
    "layout": ("full", "padded", "packed"),
}
CELLS = tuple(f"{name}={choice}" for name, choices in CHOICES.items() for choice in choices)

FAR = 1023  # first position of far rows: the next is a power of two
SPIKE = 4096.0  # one feature of some rows, times this
HUGE_LOGIT = 1e290  # final gain
HUGE, OVERFLOWING = 2.0**500, 2.0**520  # table entries whose squares reach 1e301, pass 1e308
SUBNORMAL = 2.0**-1040


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """One choice in each dimension in which fixtures are too tame.

    values:    kinds of weights; `zeros` sprinkles both zeros and clears a row, `huge` has squares
               near overflow, `overflow` beyond it
    attention: how far scores lie apart
    norm:      `tiny` rows have a mean square near epsilon; a `spiky` row has one large feature,
               an `offset` row one of 1e17
    logits:    ties within 1e-11, +-1000, all of a cell around 1e17, and near overflow
    """

    values: str = "xavier"
    attention: str = "warm"
    norm: str = "ordinary"
    logits: str = "ordinary"
    positions: str = "start"
    layout: str = "full"

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the census that it stands in."""
        return tuple(f"{f.name}={getattr(self, f.name)}" for f in fields(self))

    def __str__(self) -> str:
        plain = Regime()
        told = [c for c, p in zip(self.cells, plain.cells, strict=True) if c != p]
        return ", ".join(told) or "ordinary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """How far a regime goes: as far as the digits of a format can still decide.

    hot:    times queries and keys, so squared in scores
    offset: times one feature of some rows, which has no digit in common with the others
    large:  final gain of logits `thousand`
    close:  how far near-tied rows of the table lie apart; rows nearer than the format's digits
            would be one row: then a score's slope and what it is multiplied by both vanish, and
            what remains is of second order in the unit
    dyadic: weights `dyadic` are up to 16 over this
    level:  what logits `offset` lie around
    shows:  they differ by the level over this, above its ulp, so that both show
    """

    hot: float = 6.0
    offset: float = 1e17
    large: float = 1000.0
    close: float = 2.0**-36
    dyadic: float = 8.0
    level: float = 1e17
    shows: float = 1e4


# A bound beyond this share of the largest entry decides nothing, and its second order is no
# longer small beside the first. Source: notes/bounds.md
DECIDABLE = 1e-4
NATS = 1.0  # losses are compared on this scale, however small they are
DRAWS, APART = 8, 1 << 32  # weights tried for one case in float32, and between their seeds
DOUBLE = Strength()
SINGLE = Strength(
    hot=1.5, offset=1e8, large=16.0, close=2.0**-12, dyadic=32.0, level=64.0, shows=4.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One weight set by hand: its place in the flat array, modulo its size."""

    name: str
    place: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large a case is; T counts the cells of a row, `kv_heads` and `tied` are `Config`'s."""

    B: int = 1
    T: int = 1
    V: int = 2
    head_width: int = 2
    heads: int = 1
    F: int = 1
    L: int = 1
    kv_heads: int | None = None
    tied: bool = True


@dataclass(frozen=True, kw_only=True)
class TruthCase(Case):
    """A case whose weights follow its regime, with the true answers."""

    regime: Regime
    overrides: tuple[Override, ...] = ()

    @cached_property
    def weights(self) -> dict[str, Any]:
        """Name -> value in stable order."""
        return self._weights(DOUBLE)

    def _weights(self, strength: Strength) -> dict[str, Any]:
        generator = Generator(self.seed)
        weights = {
            name: self._drawn(generator, shape, strength)
            for name, shape in self.config.parameter_shapes().items()
        }
        _regulate(weights, self.regime, self.config, strength)
        for override in self.overrides:
            _override(weights, override)
        return weights

    @cached_property
    def truth(self) -> Truth:
        """Every answer to 50 digits, with its bound."""
        return truth_of(self.config, self.weights, self.ids, self.targets, self.layout, self.valid)

    @cached_property
    def single(self) -> SingleCase:
        """The case as a decoder in float32 is given it, with a truth of its own.

        Of `DRAWS` weights the first whose answers float32 can decide, or can decide most of.
        """
        config = replace(
            self.config,
            rms_epsilon=_single(self.config.rms_epsilon),
            rope_base=_single(self.config.rope_base),
        )
        own = {f.name: getattr(self, f.name) for f in fields(TruthCase)} | {"config": config}
        cases = list[SingleCase]()
        for n in range(DRAWS):
            cases.append(SingleCase(**{**own, "seed": self.seed + APART * n}))
            if not cases[-1].fits or not any(cases[-1].undecidable):
                return cases[-1]
        return min(cases, key=lambda case: case.undecidable)

    def with_overrides(self, overrides: tuple[Override, ...]) -> TruthCase:
        """The same case with these weights set by hand."""
        return replace(self, overrides=overrides)

    def _drawn(self, generator: Generator, shape: tuple[int, ...], strength: Strength) -> Any:
        limit = 2.0 if len(shape) == 1 else self.scale * (6.0 / sum(shape)) ** 0.5

        def draw() -> float:
            if self.regime.values == "dyadic":
                return (generator.below(33) - 16) / strength.dyadic
            return limit * (2.0 * generator.unit() - 1.0)

        if len(shape) == 1:
            return [draw() for _ in range(shape[0])]
        return [[draw() for _ in range(shape[1])] for _ in range(shape[0])]

    def __str__(self) -> str:
        weights = f"{self.regime.values} weights from seed {self.seed}"
        parts = [f"regime {self.regime}", weights, *super().__str__().split("; ")[1:]]
        parts += [f"{o.name}[{o.place}] = {o.value!r}" for o in self.overrides]
        return "; ".join(parts)


@dataclass(frozen=True, kw_only=True)
class SingleCase(TruthCase):
    """A case whose weights and constants were rounded to float32, its regime not as far."""

    @cached_property
    def weights(self) -> dict[str, Any]:
        """Name -> value in stable order; infinite where no float32 is near."""
        return {name: _single(value) for name, value in self._weights(SINGLE).items()}

    @cached_property
    def truth(self) -> Truth:
        """Every answer to 50 digits, with the bound of a program in float32."""
        batch = (self.ids, self.targets, self.layout, self.valid)
        return truth_of(self.config, self.weights, *batch, format=BINARY32)

    @property
    def fits(self) -> bool:
        """Whether every weight is near a float32."""
        return all(np.isfinite(np.array(value)).all() for value in self.weights.values())

    @cached_property
    def undecidable(self) -> tuple[int, int, int]:
        """The logits, losses and gradient entries whose bounds are too wide to decide anything."""
        truth = self.truth
        slopes = (truth.reach, *map(largest, truth.gradients.values()))

        def wide(answer: Answer, scale: float) -> int:
            bounds = answer.roundings.bounds(BINARY32)
            return int(np.count_nonzero(~(bounds <= DECIDABLE * scale)))

        gradients = (wide(answer, max(slopes)) for answer in truth.gradients.values())
        loss = wide(truth.loss, max(largest(truth.loss), NATS))
        return wide(truth.logits, largest(truth.logits)), loss, sum(gradients)


def largest(answer: Answer) -> float:
    """The scale on which entries of an answer are decided."""
    return float(np.abs(answer.doubles[0]).max(initial=0.0))


def _single(value: Any) -> Any:
    """The nearest float32 numbers, as doubles."""
    with np.errstate(over="ignore"):
        return np.array(value).astype(np.float32).astype(np.float64).tolist()


def _regulate(weights: dict[str, Any], regime: Regime, config: Config, strength: Strength) -> None:
    temperature = {"cold": 0.125, "warm": 1.0, "hot": strength.hot}[regime.attention]
    for name, value in weights.items():
        if name.endswith((".query.weight", ".key.weight")):
            weights[name] = _times(value, temperature)
    if regime.norm == "tiny":
        small = config.rms_epsilon**0.5
        for name, value in weights.items():
            if name.endswith(("token_embedding.weight", ".output.weight", ".down.weight")):
                weights[name] = _times(value, small)
    table = weights["token_embedding.weight"]
    if regime.norm in ("spiky", "offset"):
        for row in table[::2]:
            row[0] *= SPIKE if regime.norm == "spiky" else strength.offset
    if regime.norm == "offset":  # or no other feature would show in the logits
        weights["final_norm.gain"][0] = 0.0
    if regime.logits == "near-tied":
        for v, row in enumerate(table[1:], 1):
            row[:] = [x * (1.0 + v * strength.close) for x in table[0]]
    if regime.logits == "offset":
        for row in table:
            row[0] = 1.0
        gains, above = weights["final_norm.gain"], strength.level / strength.shows
        gains[:] = [strength.level, *(g * above for g in gains[1:])]
    gain = {"thousand": strength.large, "huge": HUGE_LOGIT}.get(regime.logits, 1.0)
    if regime.values == "subnormal":
        gain *= SUBNORMAL
    weights["final_norm.gain"] = [g * gain for g in weights["final_norm.gain"]]
    large = {"huge": HUGE, "overflow": OVERFLOWING}.get(regime.values, 1.0)
    weights["token_embedding.weight"] = _times(weights["token_embedding.weight"], large)
    if regime.values == "zeros":
        for name, value in weights.items():
            _override(weights, Override(name=name, place=1, value=-0.0))
            if isinstance(value[0], list):
                _override(weights, Override(name=name, place=len(value) + 2, value=0.0))
        weights["token_embedding.weight"][0] = [-0.0] * config.model_width


def _times(matrix: Nested, factor: float) -> Nested:
    return [[x * factor for x in row] for row in matrix]


def _override(weights: dict[str, Any], override: Override) -> None:
    value = weights[override.name]
    if isinstance(value[0], list):
        row, column = divmod(override.place % (len(value) * len(value[0])), len(value[0]))
        value[row][column] = override.value
    else:
        value[override.place % len(value)] = override.value


def case_of(
    sizes: Sizes,
    seed: int,
    regime: Regime,
    *,
    overrides: tuple[Override, ...] = (),
    epsilon: float = 1e-6,
    base: float = 10000.0,
    first: int = FAR,
) -> TruthCase:
    """The case that these parameters stand for; far rows begin at position `first`."""
    generator = Generator(seed)
    segments, T = _segments(generator, sizes, regime.layout)
    far = first if regime.positions == "far" else 0
    config = Config(
        vocabulary_size=sizes.V,
        model_width=sizes.heads * sizes.head_width,
        heads=sizes.heads,
        feed_forward_width=sizes.F,
        layers=sizes.L,
        max_positions=T + far,
        rope_base=base,
        rms_epsilon=epsilon,
        kv_heads=sizes.kv_heads,
        tied=sizes.tied,
    )
    ids, targets = (_tokens(generator, segments, T, sizes.V) for _ in range(2))
    valid = _some(segments, T) if regime.layout != "full" else None
    if valid is not None:
        targets = _only(targets, valid)
    plain = regime.layout == "full" and not far
    return TruthCase(
        seed=seed,
        scale=1.0,
        config=config,
        ids=ids,
        targets=targets,
        layout=None if plain else _moved(Layout.packed(segments, T), far),
        valid=valid,
        segments=None if plain else tuple(tuple(sizes) for sizes in segments),
        regime=regime,
        overrides=overrides,
    )


def _segments(generator: Generator, sizes: Sizes, layout: str) -> tuple[list[list[int]], int]:
    """Per row its segments; a padded batch has one cell more than its longest row."""
    B, T = sizes.B, sizes.T
    if layout == "full":
        return [[T]] * B, T
    if layout == "padded":
        return [[max(1, T - b - generator.below(2))] for b in range(B)], T + 1
    cut = [1 + generator.below(max(1, T - 1)) for _ in range(B)]
    return [[c, T - c] if c < T else [T] for c in cut], T


def _tokens(generator: Generator, segments: list[list[int]], T: int, V: int) -> Ids:
    """Ids of the active cells; every third repeats the one two before, or the one before."""
    rows = []
    for lengths in segments:
        row: list[int] = []
        for t in range(sum(lengths)):
            again = t > 0 and generator.below(3) == 0
            row.append(row[max(0, t - 2)] if again else generator.below(V))
        rows.append(row + [PAD] * (T - len(row)))
    return rows


def _some(segments: list[list[int]], T: int) -> Valid:
    """The active cells but every third: the first is among them."""
    rows = [sum(lengths) for lengths in segments]
    return [[t < n and (b + t) % 3 != 2 for t in range(T)] for b, n in enumerate(rows)]


def _only(targets: Ids, valid: Valid) -> Ids:
    return [
        [v if chosen else PAD for v, chosen in zip(*row, strict=True)]
        for row in zip(targets, valid, strict=True)
    ]


def _moved(layout: Layout, far: int) -> Layout:
    """The layout with every active position so much further on."""
    positions = tuple(
        tuple(p + far if t < length else 0 for t, p in enumerate(row))
        for row, length in zip(layout.positions, layout.lengths, strict=True)
    )
    return Layout(lengths=layout.lengths, range_starts=layout.range_starts, positions=positions)


REGIMES = (
    Regime(values="dyadic"),
    Regime(),
    Regime(attention="hot"),
    Regime(norm="tiny"),
    Regime(layout="packed", attention="hot"),
    Regime(logits="thousand"),
    Regime(positions="far", attention="hot"),
    Regime(layout="padded"),
    Regime(norm="spiky"),
    Regime(logits="near-tied"),
    Regime(values="zeros", norm="tiny"),
    Regime(attention="cold"),
    Regime(norm="offset"),
    Regime(values="subnormal"),
    Regime(values="huge"),
    Regime(positions="far", layout="packed"),
    Regime(logits="huge"),
    Regime(values="overflow"),
    Regime(norm="tiny", layout="padded", attention="hot"),
    Regime(values="dyadic", layout="packed", attention="hot"),
    Regime(logits="offset"),
)
EPSILONS = (1e-6, 1e-2, 1e-5)
BASES = (10000.0, 100.0, 500000.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Decoders that are drawn together.

    heads:   H, d_h and H_kv (None for H), one of which each case takes
    least:   the smallest case
    without: whether some of them have no block
    """

    seed: int
    heads: tuple[tuple[int, int, int | None], ...] = ((1, 4, None), (2, 2, None), (2, 4, None),
                                                      (3, 2, None))  # fmt: skip
    least: Sizes = Sizes()
    without: bool = True


PLAIN = Kind(seed=7000)
GROUPED = Kind(
    seed=8000,
    heads=((2, 4, 1), (4, 2, 2), (4, 2, 2), (6, 2, 2)),
    least=Sizes(heads=2, kv_heads=1),
    without=False,
)
UNTIED = Kind(seed=9000, least=Sizes(tied=False))


@cache
def _case(number: int, kind: Kind) -> TruthCase:
    """Case 0 is the smallest; later ones take the regimes in turn."""
    if number == 0:
        return case_of(kind.least, kind.seed, REGIMES[0])
    return _of_regime(kind.seed + number, REGIMES[number % len(REGIMES)], kind)


@cache
def _of_regime(seed: int, regime: Regime, kind: Kind) -> TruthCase:
    """Kept, for three laws ask for the same truth."""
    below = Generator(seed).below
    heads, head_width, kv_heads = kind.heads[below(4)]
    sizes = Sizes(
        B=1 + below(2), T=2 + below(3), V=3 + below(4), heads=heads, head_width=head_width,
        F=1 + below(3), L=(1, 1, 1, 2, 0 if kind.without and regime == Regime() else 1)[below(5)],
        kv_heads=kv_heads, tied=kind.least.tied,
    )  # fmt: skip
    return case_of(
        sizes,
        seed,
        regime,
        epsilon=EPSILONS[below(3)],
        base=BASES[below(3)],
    )


def forget() -> None:
    """No case is kept any longer, and no truth with it."""
    _case.cache_clear()
    _of_regime.cache_clear()


def redrawn(case: TruthCase, seed: int) -> TruthCase:
    """Another case of the same kind and regime, of other sizes, segments, ids and weights."""
    own = GROUPED if case.config.kv_heads is not None else PLAIN
    return _of_regime(seed, case.regime, own if case.config.tied else UNTIED)


def truth_cases(count: int) -> Iterator[TruthCase]:
    """The same cases in every run; kept, since their truth costs more than any implementation."""
    return (_case(number, PLAIN) for number in range(count))


def grouped_cases(count: int) -> Iterator[TruthCase]:
    """Cases in which several heads read one key/value head."""
    return (_case(number, GROUPED) for number in range(_fewer(count)))


def _fewer(count: int) -> int:
    """Half as many, but every regime once: the two kinds share all else with ordinary cases."""
    return max(min(count, len(REGIMES) + 4), count // 2)


def untied_cases(count: int) -> Iterator[TruthCase]:
    """Cases whose head has a matrix of its own."""
    return (_case(number, UNTIED) for number in range(_fewer(count)))


def census(regimes: Iterable[tuple[str, ...]]) -> dict[str, int]:
    """How many cases stood in each cell, those in which none did too."""
    counts = dict.fromkeys(CELLS, 0)
    for cells in regimes:
        for cell in cells:
            counts[cell] += 1
    return counts
