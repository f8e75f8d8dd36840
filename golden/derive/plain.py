"""Generators, rotation tables, layouts, tokenizers: small facts written out one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logitproof.golden.load import Case
from logitproof.properties.oracles import tokenizer as oracle
from logitproof.properties.scalar import Config, Generator, Layout, initial_weights
from logitproof.properties.scalar.arithmetic import EXACT
from logitproof.properties.scalar.forward import Rotation
from logitproof.properties.scalar.generator import depth_scaled, matrix

from . import values
from .values import Object

__all__ = ["generators", "layouts", "rotations", "tokenizers"]

SEEDS = (0, 1, 39, 4701, 2**32, 2**63, 2**64 - 1)
BRIDGE: dict[str, Any] = {
    "vocabulary_size": 266, "model_width": 16, "heads": 2, "feed_forward_width": 20, "layers": 2,
    "max_positions": 16,
}  # fmt: skip


def generators() -> Iterator[Case]:
    """Words, unit values, matrices and whole drawn decoders."""
    source = "properties.scalar.generator"
    for seed in SEEDS:
        g = Generator(seed)
        words = [f"{g.word():016x}" for _ in range(8)]
        yield values.case(
            f"generators/words-{seed}", source, "64-bit words, wrapping", "draw-order",
            setup={"kind": "generator", "draws": "words"}, input={"seed": seed, "count": 8},
            expect={"words": words, "final_state": f"{g.state:016x}"},
        )  # fmt: skip
    g = Generator(39)
    yield values.case(
        "generators/uniforms", source, "53 bits of a word", "draw-order",
        setup={"kind": "generator", "draws": "uniforms"}, input={"seed": 39, "count": 12},
        expect={"uniforms": values.doubles((12,), [g.unit() for _ in range(12)]),
                "final_state": f"{g.state:016x}"},
    )  # fmt: skip
    for fan_in, fan_out in ((3, 5), (7, 2), (1, 1)):
        g = Generator(17)
        drawn = matrix(g, fan_in, fan_out)
        yield values.case(
            f"generators/matrix-{fan_in}x{fan_out}", source,
            "limit * (2u - 1) in this association, row-major", "draw-order",
            setup={"kind": "generator", "draws": "matrix"},
            input={"seed": 17, "fan_in": fan_in, "fan_out": fan_out},
            expect={"matrix": values.matrix(drawn), "final_state": f"{g.state:016x}"},
        )  # fmt: skip
    for name in ("drawn", "fresh"):
        g = Generator(105)
        weights: Any = initial_weights(Config(**BRIDGE), g)
        if name == "fresh":
            weights = depth_scaled(weights, BRIDGE["layers"])
        flat = [x for w in weights.values() for row in w
                for x in (row if isinstance(row, list) else [row])]  # fmt: skip
        yield values.case(
            f"generators/decoder-{name}", source,
            "every parameter of a decoder in the order of drawing, its gains ones",
            "draw-order", *(("depth-scaling",) if name == "fresh" else ()),
            setup={"kind": "generator", "draws": name}, input={"seed": 105, "config": BRIDGE},
            expect={"parameters_digest": values.digest(flat), "final_state": f"{g.state:016x}"},
        )  # fmt: skip


def rotations() -> Iterator[Case]:
    """Frequencies, cosines and sines per position."""
    for width, capacity, base in ((2, 3, 10000.0), (8, 12, 10000.0), (6, 5, 500000.0),
                                  (12, 4, 100.0), (4, 9, 0.5)):  # fmt: skip
        config = Config(vocabulary_size=1, model_width=width, heads=1, feed_forward_width=1,
                        layers=1, max_positions=capacity, rope_base=base)  # fmt: skip
        rotation = Rotation(config, EXACT)
        table = [rotation.at(position) for position in range(capacity)]
        cosines = [[cosine for cosine, _ in row] for row in table]
        sines = [[sine for _, sine in row] for row in table]
        frequencies = [EXACT.pow(base, (-2.0 * i) / float(width)) for i in range(width // 2)]
        yield values.case(
            f"rotations/width-{width}-base-{base:g}".replace(".", "-"),
            "properties.scalar.forward",
            "base^(-2i/d), multiplied by the position, then sine and cosine",
            "rotary-angles",
            setup={"kind": "rotary-table", "width": width, "capacity": capacity,
                   "base": values.doubles((), [base])},
            input={},
            expect={"frequencies": values.doubles((width // 2,), frequencies),
                    "cosines": values.matrix(cosines), "sines": values.matrix(sines)},
        )  # fmt: skip


def layouts() -> Iterator[Case]:
    """Lengths, range starts and positions of the three forms."""
    forms: list[tuple[str, str, Object, Layout, tuple[str, ...]]] = [
        ("full", "full", {"rows": 2, "tokens": 3}, Layout.full(2, 3), ()),
        ("padded", "padded", {"lengths": [4, 1, 3], "tokens": 4}, Layout.padded([4, 1, 3], 4),
         ("padding",)),
        ("packed", "packed", {"segments": [[2, 3], [5], [1, 1, 2]], "tokens": 6},
         Layout.packed([[2, 3], [5], [1, 1, 2]], 6), ("packing", "position-restart")),
    ]  # fmt: skip
    for name, form, given, layout, flags in forms:
        yield values.case(
            f"layouts/{name}", "properties.scalar.shapes",
            "inactive cells hold 0; a segment's positions begin at 0", *flags,
            setup={"kind": "layout", "form": form}, input=given,
            expect={"lengths": list(layout.lengths),
                    "range_starts": [list(row) for row in layout.range_starts],
                    "positions": [list(row) for row in layout.positions]},
        )  # fmt: skip


MERGES: dict[str, tuple[oracle.Pair, ...]] = {
    "none": (),
    "overlapping": ((97, 97), (256, 97), (256, 256), (98, 257)),
    "chained": ((97, 98), (256, 99), (257, 257), (258, 97), (10, 10), (195, 169)),
}
TEXTS = (b"", b"ab", b"aaaaaaa", b"abcabcabcaab", b"baaabaaaaab", bytes(range(256)),
         "caf\u00e9 \u00e9\u00e9".encode(), b"\n\n\n\xff\x00aa")  # fmt: skip


def tokenizers() -> Iterator[Case]:
    """Encodings with their passes, documents, decodings, and merges learned."""
    source = "properties.oracles.tokenizer"
    for table, merges in MERGES.items():
        setup = {"kind": "tokenizer", "merges": [list(pair) for pair in merges]}
        for i, data in enumerate(TEXTS):
            ids = oracle.encode(data, merges)
            passes = [
                {"rank": rank, "replacements": count, "after": list(after)}
                for rank, count, _, after in oracle.changing_passes(data, merges)
            ]
            yield values.case(
                f"tokenizers/{table}-encode-{i + 1}", source,
                "one left-to-right pass per rank; a consumed id is not used again",
                "merge-overlap", setup={**setup, "call": "encode"},
                input={"argument": data.hex()}, expect={"result": ids, "passes": passes},
            )  # fmt: skip
            yield values.case(
                f"tokenizers/{table}-decode-{i + 1}", source, "decoding gives the bytes back",
                setup={**setup, "call": "decode_document"}, input={"argument": [0, *ids, 1]},
                expect={"result": data.hex()},
            )  # fmt: skip
    for i, (sequences, rounds) in enumerate((
        ([b"aaab", b"aab"], 3), ([b"abab", b"ba"], 4), ([b"", b"a"], 2),
        ([b"banana bandana", b"an ant"], 9), ([b"aaaa"], 1),
    )):  # fmt: skip
        merges = oracle.learn(sequences, rounds)
        yield values.case(
            f"tokenizers/learned-{i + 1}", source,
            "greatest overlapping count inside the sequences, ties to the smallest pair",
            "merge-overlap", setup={"kind": "learned-merges"},
            input={"sequences": [s.hex() for s in sequences], "rounds": rounds},
            expect={"merges": [list(pair) for pair in merges]},
        )  # fmt: skip
