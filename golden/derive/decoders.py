"""Whole decoders, cached transcripts and chains: bits from the scalar decoder alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mpmath
from mpmath import mp

from logitproof.golden.load import Case
from logitproof.properties.scalar import Arithmetic, Config, Generator, Layout, ScalarDecoder
from logitproof.properties.scalar.arithmetic import EXACT
from logitproof.properties.scalar.decoder import Result
from logitproof.properties.scalar.forward import Cells, Head, Row, forward_row
from logitproof.properties.scalar.generator import depth_scaled, initial_weights, matrix

from . import values
from .values import Object

__all__ = ["chains", "decoders", "sessions", "stages"]

DIGITS = 60
REAL = Arithmetic(
    name="real numbers to 60 digits",
    number=mpmath.mpf,
    exp=mpmath.exp,
    log=mpmath.log,
    log1p=mpmath.log1p,
    sin=mpmath.sin,
    cos=mpmath.cos,
    pow=mpmath.power,
    sqrt=mpmath.sqrt,
    is_finite=mpmath.isfinite,
)
SCALAR = "properties.scalar; truth from the same equations over 60 digits"
PAD = -1
STAGE_DIGITS = 16
Ids = list[list[int]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A decoder with weights, and a batch for it."""

    name: str
    why: str
    flags: tuple[str, ...] = ()
    sizes: tuple[int, int, int, int, int, int]  # V, D, heads, F, L, C
    seed: int
    scale: float = 1.0
    base: float = 10000.0
    epsilon: float = 1e-6
    segments: Sequence[Sequence[int]] = ()
    width: int = 0  # cells per row; 0: no layout, as many as the rows hold
    some_valid: bool = False
    unit_gains: bool = False
    likeliest: bool = False
    ids: Ids = field(default_factory=list)
    parts: bool = False
    truth: bool = True

    @property
    def config(self) -> Config:
        """Sizes and constants."""
        V, D, heads, F, L, C = self.sizes
        return Config(
            vocabulary_size=V, model_width=D, heads=heads, feed_forward_width=F, layers=L,
            max_positions=C, rope_base=self.base, rms_epsilon=self.epsilon,
        )  # fmt: skip

    @property
    def weights(self) -> Object:
        """Scaled Xavier matrices, and gains between -2 and 2."""
        generator = Generator(self.seed)

        def draw(g: Generator, rows: int, columns: int) -> list[list[float]]:
            return [[w * self.scale for w in row] for row in matrix(g, rows, columns)]

        weights: Object = initial_weights(self.config, generator, draw=draw)
        for name, shape in self.config.parameter_shapes().items():
            if len(shape) == 1 and not self.unit_gains:
                weights[name] = [4.0 * generator.unit() - 2.0 for _ in range(shape[0])]
        return weights

    @property
    def layout(self) -> Layout | None:
        """None for ordinary text."""
        return Layout.packed(self.segments, self.width) if self.width else None

    def drawn(self, salt: int) -> Ids:
        """Ids in the active cells; every third repeats the one before."""
        generator, V = Generator(self.seed * 31 + salt), self.sizes[0]
        rows = []
        for sizes in self.segments:
            row: list[int] = []
            for _ in range(sum(sizes)):
                repeats = row and generator.below(3) == 0
                row.append(row[-1] if repeats else generator.below(V))
            rows.append(row + [PAD] * ((self.width or len(row)) - len(row)))
        return rows


RECIPES = (
    Recipe(name="one-token", why="the smallest decoder", sizes=(5, 2, 1, 2, 1, 2), seed=11,
           segments=[[1]], parts=True),
    Recipe(name="no-block", why="lookup, final norm and tied head alone",
           flags=("tied-table", "loss-association"),
           sizes=(7, 4, 2, 3, 0, 4), seed=12, segments=[[4], [4], [4]], parts=True),
    Recipe(name="one-head", why="one block, one head", flags=("norm-adjoint",),
           sizes=(7, 4, 1, 5, 1, 6), seed=13, segments=[[5]], parts=True),
    Recipe(name="two-rows", why="weight gradients are formed per row, then added",
           flags=("two-level-weight-gradient", "repeated-rows", "tied-table"),
           sizes=(6, 4, 2, 3, 2, 4), seed=14, segments=[[4], [4], [4]], parts=True),
    Recipe(name="odd-sizes", why="widths that are no powers of two divide inexactly",
           flags=("mean-by-division", "scale-after-dot"),
           sizes=(7, 6, 1, 5, 1, 7), seed=15, segments=[[7], [7], [7]]),
    Recipe(name="wide-heads", why="heads are adjacent groups of features, turned in pairs",
           flags=("adjacent-pairs", "scale-after-dot"),
           sizes=(7, 12, 2, 7, 1, 5), seed=16, segments=[[5], [5]], base=100.0),
    Recipe(name="hot", why="weights of twelve times Xavier: sharp attention, far tails",
           flags=("softmax-tail", "stable-sigmoid"),
           sizes=(9, 4, 1, 5, 2, 5), seed=17, scale=12.0, segments=[[5], [5]]),
    Recipe(name="cold", why="small weights and a large epsilon", flags=("inverse-root",),
           sizes=(6, 4, 2, 3, 1, 4), seed=18, scale=0.25, epsilon=1e-2, segments=[[4], [4]]),
    Recipe(name="certain", why="targets that the model is sure of: losses far below an ulp of 1",
           flags=("log1p",), sizes=(5, 4, 1, 3, 1, 4), seed=19, scale=12.0, segments=[[4]],
           likeliest=True, unit_gains=True),
    Recipe(name="far-positions", why="turns of many radians", flags=("rotary-angles",),
           sizes=(5, 4, 1, 2, 1, 12), seed=20, base=500000.0, segments=[[12]]),
    Recipe(name="fresh-depth", why="unit gains and matrices scaled by depth",
           flags=("depth-scaling",), sizes=(6, 4, 1, 4, 3, 4), seed=21, unit_gains=True,
           segments=[[4]], parts=True),
    Recipe(name="padded", why="rows of different lengths; padding is neither read nor learned",
           flags=("padding",), sizes=(6, 4, 2, 3, 1, 5), seed=22, segments=[[5], [2], [3]],
           width=5),
    Recipe(name="packed", why="documents end to end: own keys, positions from 0",
           flags=("packing", "position-restart"),
           sizes=(6, 4, 1, 3, 1, 6), seed=23, segments=[[3, 3], [2, 1, 3]], width=6),
    Recipe(name="packed-and-padded", why="both at once, some targets not counted",
           flags=("packing", "padding", "valid-targets"),
           sizes=(6, 4, 2, 3, 2, 7), seed=24, segments=[[2, 3], [4, 2], [1, 1, 1]], width=7,
           some_valid=True),
)  # fmt: skip


def decoders() -> Iterator[Case]:
    """Logits, losses, gradients and the bits of every stage."""
    for recipe in RECIPES:
        yield _decoder(recipe)


def _batch(recipe: Recipe, decoder: ScalarDecoder) -> Object:
    layout, ids = recipe.layout, recipe.drawn(1)
    targets: Any = recipe.drawn(2)
    if recipe.likeliest:
        logits = decoder.logits(ids, layout)
        targets = [[row.index(max(row)) for row in rows] for rows in logits]
    batch: Object = {"ids": ids, "targets": targets}
    if layout is not None:
        batch["layout"] = {
            "lengths": list(layout.lengths),
            "range_starts": [list(row) for row in layout.range_starts],
            "positions": [list(row) for row in layout.positions],
        }
    if recipe.some_valid:
        assert layout is not None
        valid = [
            [t < length and (b + t) % 2 == 0 for t in range(recipe.width)]
            for b, length in enumerate(layout.lengths)
        ]
        batch["valid"] = valid
        batch["targets"] = [
            [t if v else PAD for t, v in zip(*rows, strict=True)]
            for rows in zip(targets, valid, strict=True)
        ]
    return batch


def _decoder(recipe: Recipe) -> Case:
    weights = recipe.weights
    if recipe.name == "fresh-depth":
        weights = depth_scaled(weights, recipe.config.layers)
    decoder = ScalarDecoder(recipe.config, weights)
    batch = _batch(recipe, decoder)
    arguments = (batch["ids"], batch["targets"], recipe.layout, batch.get("valid"))
    found = decoder.run(*arguments)
    with mp.workdps(DIGITS):
        real = ScalarDecoder(recipe.config, weights, REAL).run(*arguments)
        truth = {
            "logits": _reals(real.logits),
            "loss": values.true_values((), [real.loss]),
        }
        _check(recipe.name, found, real)
    expect: Object = {
        "logits": values.matrix(found.logits),
        "loss": values.doubles((), [found.loss]),
        "loss_sum": values.doubles((), [found.loss_sum]),
        "gradients": {name: values.matrix(g) for name, g in found.gradients.items()},
    }
    if recipe.parts:
        expect["lookup"] = values.matrix(found.lookup_gradient)
        expect["head"] = values.matrix(found.head_gradient)
    expect["stages"] = stages(decoder, batch["ids"], recipe.layout)
    return values.case(
        f"decoders/{recipe.name}",
        SCALAR,
        recipe.why,
        *recipe.flags,
        setup=_setup("decoder", recipe, weights),
        input=batch,
        expect={**expect, "true": truth},
    )


def _setup(kind: str, recipe: Recipe, weights: Object) -> Object:
    config = recipe.config
    names = ("vocabulary_size", "model_width", "heads", "feed_forward_width", "layers",
             "max_positions")  # fmt: skip
    constants = {
        name: values.doubles((), [getattr(config, name)]) for name in ("rope_base", "rms_epsilon")
    }
    return {
        "kind": kind,
        "config": {**{name: getattr(config, name) for name in names}, **constants},
        "weights": {name: values.matrix(weight) for name, weight in weights.items()},
    }


def _reals(nested: list[list[list[Any]]]) -> Object:
    flat = [x for rows in nested for row in rows for x in row]
    return values.true_values((len(nested), len(nested[0]), len(nested[0][0])), flat)


def _check(name: str, found: Result, real: Result) -> None:
    """The doubles lie close to the real numbers, in units of the largest of each array."""
    pairs = [(found.logits, real.logits), ([[[found.loss]]], [[[real.loss]]])]
    pairs += [([_rows(found.gradients[n])], [_rows(real.gradients[n])]) for n in found.gradients]
    for ours, true in pairs:
        flat = [
            (x, y) for p, q in zip(ours, true, strict=True) for r, s in zip(p, q, strict=True)
            for x, y in zip(r, s, strict=True)
        ]  # fmt: skip
        largest = max(abs(y) for _, y in flat)
        assert all(abs(x - y) <= 1e-9 * largest + 1e-15 for x, y in flat), name


def _rows(gradient: Any) -> Any:
    return gradient if isinstance(gradient[0], list) else [gradient]


def stages(decoder: ScalarDecoder, ids: Ids, layout: Layout | None) -> dict[str, str]:
    """Digests of what lies between ids and logits, in the order of computation."""
    chosen = layout or Layout.full(len(ids), len(ids[0]))
    rows = [
        forward_row(
            EXACT,
            decoder.config,
            decoder.weights,
            decoder.rotation,
            Cells(
                ids=ids[b],
                length=chosen.lengths[b],
                starts=chosen.range_starts[b],
                positions=chosen.positions[b],
            ),
        )
        for b in range(len(ids))
    ]
    found: dict[str, Any] = {}
    for layer in range(decoder.config.layers):
        for name, numbers in _block_stages(decoder, rows, layer).items():
            found[f"blocks.{layer}.{name}"] = numbers
    found["final_norm.inverse_rms"] = [x for row in rows for x in row.final.inverse]
    found["final_norm.output"] = _flat(row.final.out for row in rows)
    return {name: values.digest(numbers)[:STAGE_DIGITS] for name, numbers in found.items()}


def _block_stages(decoder: ScalarDecoder, rows: list[Row], layer: int) -> dict[str, list[float]]:
    blocks = [row.blocks[layer] for row in rows]
    heads = [(row, head) for row in rows for head in row.blocks[layer].heads]
    T = len(rows[0].cells.ids)
    probabilities = [
        [0.0] * start + p + [0.0] * (T - start - len(p))
        for row, head in heads
        for p, start in zip(head.probabilities, row.cells.starts, strict=True)
    ]
    return {
        "attention_norm.inverse_rms": [x for block in blocks for x in block.norm.inverse],
        "attention_norm.output": _flat(block.norm.out for block in blocks),
        "attention.query": _flat(head.query for _, head in heads),
        "attention.key": _flat(head.key for _, head in heads),
        "attention.value": _flat(head.value for _, head in heads),
        "attention.scores": _scores(decoder, heads),
        "attention.probabilities": [x for row in probabilities for x in row],
        "attention.residual": _flat(block.ffn_norm.x for block in blocks),
        "ffn_norm.inverse_rms": [x for block in blocks for x in block.ffn_norm.inverse],
        "ffn_norm.output": _flat(block.ffn_norm.out for block in blocks),
        "ffn.gate": _flat(block.gate for block in blocks),
        "ffn.activated": _flat(block.activated for block in blocks),
        "ffn.up": _flat(block.up for block in blocks),
        "output": _flat(block.out for block in blocks),
    }


def _scores(decoder: ScalarDecoder, heads: list[tuple[Row, Head]]) -> list[float]:
    """Of every query with every key, those that the mask takes out too: dot product, then scale.

    Source: numerics.md section 12
    """
    scale = 1.0 / math.sqrt(float(decoder.config.head_width))
    return [EXACT.dot(q, k) * scale for _, head in heads for q in head.query for k in head.key]


def _flat(matrices: Any) -> list[float]:
    return [x for rows in matrices for row in rows for x in row]


# --- sessions --------------------------------------------------------------------------------

MODEL = Recipe(name="cached", why="", sizes=(7, 4, 2, 5, 2, 6), seed=31, scale=2.0)
SCRIPTS: dict[str, tuple[str, tuple[str, ...], list[list[Any]]]] = {
    "prefill": ("a prompt row by row gives the full forward's last row", ("cache-vs-full",),
                [["prefill", [0, 3, 3, 1]]]),
    "to-capacity": ("one token after the other until the rows are full", ("cache-vs-full",),
                    [["prefill", [2]], *[["decode", i] for i in (5, 5, 0, 6, 1)]]),
    "extend": ("a second prompt goes on where the first ended", ("cache-vs-full",),
               [["prefill", [1, 2]], ["extend", [3, 4]], ["decode", 6]]),
    "rewound": ("rows after a truncation are forgotten", ("cache-rewind",),
                [["prefill", [4, 5, 6, 0]], ["truncate", 2], ["decode", 1], ["decode", 1]]),
    "reset": ("after a reset positions start again", ("cache-rewind", "position-restart"),
              [["prefill", [6, 5]], ["decode", 4], ["reset"], ["prefill", [6, 5]], ["decode", 3]]),
}  # fmt: skip


def sessions() -> Iterator[Case]:
    """Transcripts: the newest logits after every call that gives some."""
    weights = MODEL.weights
    decoder = ScalarDecoder(MODEL.config, weights)
    for name, (why, flags, script) in SCRIPTS.items():
        yield values.case(
            f"sessions/{name}",
            "properties.scalar: each prefix recomputed in full",
            why,
            *flags,
            setup=_setup("session", MODEL, weights),
            input={"script": script},
            expect=_transcript(decoder, script),
        )


def _transcript(decoder: ScalarDecoder, script: list[list[Any]]) -> Object:
    held: list[int] = []
    logits, positions = [], []
    work = dict.fromkeys(
        ("token_forwards", "prefill_tokens", "decode_tokens", "cache_appends",
         "qkv_projection_rows", "attention_score_values"), 0)  # fmt: skip
    for call, *arguments in script:
        if call in ("truncate", "reset"):
            held = held[: arguments[0]] if arguments else []
            work = work if arguments else dict.fromkeys(work, 0)
            continue
        tokens = arguments[0] if isinstance(arguments[0], list) else arguments
        for token in tokens:
            held.append(token)
            _count(work, decoder.config, len(held), decode=call == "decode")
        logits.append(decoder.logits([held])[0][-1])
        positions.append(len(held) - 1)
    return {
        "logits": values.matrix(logits),
        "positions": positions,
        "length": len(held),
        "work": work,
    }


def _count(work: dict[str, int], config: Config, keys: int, *, decode: bool) -> None:
    """One committed token. Source: cache.md section 6"""
    work["token_forwards"] += 1
    work["decode_tokens" if decode else "prefill_tokens"] += 1
    work["cache_appends"] += config.layers
    work["qkv_projection_rows"] += 3 * config.layers
    work["attention_score_values"] += config.layers * config.heads * keys


# --- chains ----------------------------------------------------------------------------------

STEPS, UPDATES, FACTOR = 1000, 20, 0.125
WALKER = Recipe(name="walker", why="", sizes=(11, 4, 1, 3, 1, 8), seed=41, scale=3.0)
LEARNER = Recipe(name="learner", why="", sizes=(6, 4, 2, 3, 1, 4), seed=42,
                 segments=[[4], [4]])  # fmt: skip


def chains() -> Iterator[Case]:
    """Long runs whose every bit enters one digest."""
    weights = WALKER.weights
    yield values.case(
        "chains/decode",
        "properties.scalar: each prefix recomputed in full",
        "1000 decoded rows; each next id is (index of the first largest logit + step) mod V, and "
        "full rows are reset, that id becoming the prompt",
        "cache-vs-full",
        "position-restart",
        setup=_setup("decode-chain", WALKER, weights),
        input={"first": 0, "steps": STEPS},
        expect={"digest": _walked(ScalarDecoder(WALKER.config, weights))},
    )
    weights = LEARNER.weights
    batch = {"ids": LEARNER.drawn(1), "targets": LEARNER.drawn(2)}
    yield values.case(
        "chains/update",
        "properties.scalar",
        "20 updates p - (0.125 g), the product rounded before the difference, through assign",
        "assign-roundings",
        "accumulation-order",
        setup=_setup("update-chain", LEARNER, weights),
        input={**batch, "factor": values.doubles((), [FACTOR]), "steps": UPDATES},
        expect={"digest": _learned(weights, batch)},
    )


def _walked(decoder: ScalarDecoder) -> str:
    config, token = decoder.config, 0
    held: list[int] = []
    logits: list[float] = []
    for step in range(STEPS):
        if len(held) == config.max_positions:
            held = []
        held.append(token)
        row = decoder.logits([held])[0][-1]
        logits += row
        token = (row.index(max(row)) + step) % config.vocabulary_size
    return values.digest(logits)


def _learned(weights: Object, batch: Object) -> str:
    for _ in range(UPDATES):
        decoder = ScalarDecoder(LEARNER.config, weights)
        gradients = decoder.run(batch["ids"], batch["targets"]).gradients
        weights = {name: _moved(weight, gradients[name]) for name, weight in weights.items()}
    return values.digest(x for weight in weights.values() for row in _rows(weight) for x in row)


def _moved(weight: Any, gradient: Any) -> Any:
    if isinstance(weight, list):
        return [_moved(w, g) for w, g in zip(weight, gradient, strict=True)]
    return weight - FACTOR * gradient
