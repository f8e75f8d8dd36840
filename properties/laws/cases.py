"""Drawn decoders and batches: the same ones in every run, from our own generator.

The first are the smallest; sizes that are no powers of two, gains other than one, several
rows, repeated ids and hot weights all occur, for each hides some mistake from the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from logitproof.properties.scalar import Config, Generator, Layout, initial_weights
from logitproof.properties.scalar.generator import matrix

from .protocol import Ids, Valid

__all__ = ["Case", "full_cases", "mixed_cases", "packed_cases", "padded_cases", "redrawn"]

PAD = -1
SCALES = (1.0, 0.25, 4.0, 12.0)  # times Xavier: as drawn, cold, warm, hot
EPSILONS = (1e-6, 1e-2)
BASES = (10000.0, 100.0, 500000.0)
WIDTHS = ((2, 1), (4, 1), (4, 2), (6, 1), (6, 3), (12, 2), (16, 2))  # D, heads


@dataclass(frozen=True, kw_only=True)
class Case:
    """A decoder with weights and a batch for it.

    dyadic: all weights are small eighths, as in a case that was made plainer
    """

    seed: int
    scale: float
    config: Config
    ids: Ids
    targets: Ids
    layout: Layout | None = None
    valid: Valid | None = None
    segments: tuple[tuple[int, ...], ...] | None = None
    dyadic: bool = False

    @cached_property
    def weights(self) -> dict[str, Any]:
        """Scaled Xavier matrices, and gains between -2 and 2; eighths in there where `dyadic`."""
        generator = Generator(self.seed)
        if self.dyadic:
            shapes = self.config.parameter_shapes()
            return {name: _eighths(generator, shape) for name, shape in shapes.items()}
        weights = initial_weights(self.config, generator, draw=self._scaled)
        for name, shape in self.config.parameter_shapes().items():
            if len(shape) == 1:
                weights[name] = [4.0 * generator.unit() - 2.0 for _ in range(shape[0])]
        return weights

    def _scaled(self, generator: Generator, fan_in: int, fan_out: int) -> list[list[float]]:
        return [[w * self.scale for w in row] for row in matrix(generator, fan_in, fan_out)]

    def __str__(self) -> str:
        kind = "in eighths" if self.dyadic else f"{self.scale:g} x Xavier"
        parts = [f"weights {kind} from seed {self.seed}", str(self.config)]
        parts += [f"ids {self.ids}", f"targets {self.targets}"]
        if self.segments is not None:
            parts.append(f"segments {self.segments}")
        if self.valid is not None:
            parts.append(f"valid {[[int(v) for v in row] for row in self.valid]}")
        return "; ".join(parts)


def _eighths(generator: Generator, shape: tuple[int, ...]) -> Any:
    """n / 8 between -2 and 2."""
    if not shape:
        return (generator.below(33) - 16) / 8.0
    return [_eighths(generator, shape[1:]) for _ in range(shape[0])]


def full_cases(count: int, *, rows: int = 3, first_seed: int = 1000) -> Iterator[Case]:
    """Ordinary text, 1 to `rows` rows of equal length."""
    for size in range(count):
        yield _full(first_seed + size, size, rows)


def _full(seed: int, size: int, rows: int) -> Case:
    generator = Generator(seed)
    B = 1 + generator.below(min(rows, 1 + size))
    T = 1 + generator.below(min(6, 1 + size))
    config = _config(generator, size, T)
    return Case(
        seed=seed,
        scale=SCALES[size % len(SCALES)],
        config=config,
        ids=_ids(generator, [[T]] * B, T, config.vocabulary_size),
        targets=_ids(generator, [[T]] * B, T, config.vocabulary_size),
    )


def padded_cases(count: int) -> Iterator[Case]:
    """Right-padded rows of different lengths."""
    return _ragged(count, first_seed=2000, most_segments=1)


def packed_cases(count: int) -> Iterator[Case]:
    """Rows of one to three segments, some of them padded."""
    return _ragged(count, first_seed=3000, most_segments=3)


def mixed_cases(count: int) -> Iterator[Case]:
    """Full, padded and packed batches in turn; of the ragged ones some cells are not valid."""
    sources = (
        full_cases(count, first_seed=4000),
        _ragged(count, first_seed=5000, most_segments=1),
        _ragged(count, first_seed=6000, most_segments=3),
    )
    for i in range(count):
        case = next(sources[i % 3])
        yield case if case.layout is None else _with_some_valid(case)


def _config(generator: Generator, size: int, T: int) -> Config:
    D, heads = WIDTHS[generator.below(min(len(WIDTHS), 1 + size))]
    return Config(
        vocabulary_size=3 + generator.below(20),
        model_width=D,
        heads=heads,
        feed_forward_width=1 + generator.below(7),
        layers=min(size, generator.below(3)),
        max_positions=T + generator.below(3),
        rope_base=BASES[generator.below(len(BASES))],
        rms_epsilon=EPSILONS[generator.below(len(EPSILONS))],
    )


def _ids(generator: Generator, segments: list[list[int]], T: int, V: int) -> Ids:
    """Ids in the active cells; every third repeats the one before."""
    rows = []
    for sizes in segments:
        row: list[int] = []
        for _ in range(sum(sizes)):
            repeats = row and generator.below(3) == 0
            row.append(row[-1] if repeats else generator.below(V))
        rows.append(row + [PAD] * (T - len(row)))
    return rows


def _ragged(count: int, *, first_seed: int, most_segments: int) -> Iterator[Case]:
    for size in range(count):
        yield _of_segments(first_seed + size, size, most_segments)


def _of_segments(seed: int, size: int, most_segments: int) -> Case:
    generator = Generator(seed)
    B = 1 + generator.below(3)
    segments = [
        [1 + generator.below(4) for _ in range(1 + generator.below(most_segments))]
        for _ in range(B)
    ]
    T = max(sum(sizes) for sizes in segments) + generator.below(2)
    config = _config(generator, size + 2, T)
    return Case(
        seed=seed,
        scale=SCALES[size % len(SCALES)],
        config=config,
        ids=_ids(generator, segments, T, config.vocabulary_size),
        targets=_ids(generator, segments, T, config.vocabulary_size),
        layout=Layout.packed(segments, T),
        segments=tuple(tuple(sizes) for sizes in segments),
    )


def redrawn(case: Case, seed: int) -> Case:
    """Another case of the same kind: full, padded or packed; sizes, layout, ids and weights differ.

    A case of one row stays one of one row, for some laws look at no other.
    """
    size = len(WIDTHS) + seed % len(SCALES)  # of the later ones, where every size occurs
    if case.segments is None:
        return _full(seed, size, 3 if len(case.ids) > 1 else 1)
    other = _of_segments(seed, size, 3 if any(len(s) > 1 for s in case.segments) else 1)
    return other if case.valid is None else _with_some_valid(other)


def _with_some_valid(case: Case) -> Case:
    """Every other active cell valid, the first one always."""
    assert case.layout is not None
    T = case.layout.shape[1]
    lengths = case.layout.lengths
    valid = [
        [t < length and (b + t) % 2 == 0 for t in range(T)] for b, length in enumerate(lengths)
    ]
    return with_valid(case, valid)


def with_valid(case: Case, valid: Valid) -> Case:
    """The case with these cells alone in its loss; the other targets become -1."""
    targets = [
        [target if chosen else PAD for target, chosen in zip(*row, strict=True)]
        for row in zip(case.targets, valid, strict=True)
    ]
    return Case(
        seed=case.seed,
        scale=case.scale,
        config=case.config,
        ids=case.ids,
        targets=targets,
        layout=case.layout,
        valid=valid,
        segments=case.segments,
    )
