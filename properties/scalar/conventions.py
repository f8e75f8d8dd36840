"""What decoders do differently: one choice per convention, the specification's first.

Each choice below was met in some decoder or weight format; none of them is a mistake by itself.
Source: notes/field.md (conventions), cases
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import TypeAlias

__all__ = [
    "CHOICES",
    "CHUNKS",
    "LOSS",
    "SPECIFIED",
    "STEPS",
    "Change",
    "Conventions",
    "alternatives",
    "changed",
]

Change: TypeAlias = tuple[str, str]  # a convention's name and a choice other than the first

# Convention -> choice -> what it means. The first choice of each is the specification's.
CHOICES: Mapping[str, Mapping[str, str]] = {
    "pairs": {
        "adjacent": "RoPE turns features 2i and 2i + 1",
        "halves": "RoPE turns features i and i + d_h/2",
        "none": "nothing is turned",
    },
    "turn": {
        "left": "RoPE turns by +p f",
        "right": "RoPE turns by -p f",
    },
    "exponent": {
        "2i/d_h": "f_i = base^(-2i/d_h)",
        "i/d_h": "f_i = base^(-i/d_h)",
        "2i/D": "f_i = base^(-2i/D), by the model width",
    },
    "base": {
        "configured": "the base of the configuration",
        "10000": "base 10000, whatever is configured",
    },
    "heads": {
        "blocks": "head h owns features h d_h to (h + 1) d_h - 1",
        "interleaved": "head h owns the features f with f mod H = h",
    },
    "kv_map": {
        "blocks": "query head h reads key/value head h // (H / H_kv)",
        "interleaved": "query head h reads key/value head h mod H_kv",
    },
    "scale": {
        "1/sqrt(d_h)": "scores are q k / sqrt(d_h)",
        "1/sqrt(D)": "scores are q k / sqrt(D)",
        "1/d_h": "scores are q k / d_h",
        "1": "scores are q k",
    },
    "mask": {
        "causal": "a query reads its own and earlier keys of its segment",
        "row": "a query reads earlier keys of the whole row, other segments included",
        "whole": "a query reads every key of its segment, later ones included",
    },
    "positions": {
        "segment": "positions begin at 0 with each segment",
        "row": "positions run on through the row",
    },
    "softmax": {
        "plain": "probabilities sum to 1",
        "one-more": "the sum has one more term, exp(0)",
    },
    "epsilon": {
        "inside": "1 / sqrt(mean + eps)",
        "outside": "1 / (sqrt(mean) + eps)",
        "sum": "1 / sqrt((sum + eps) / D)",
        "1e-5": "eps is 1e-5, whatever is configured",
    },
    "centre": {
        "none": "RMSNorm",
        "mean": "the mean is taken off first, as in LayerNorm",
    },
    "gain": {
        "plain": "the normalised row times g",
        "one-plus": "the normalised row times 1 + g",
    },
    "activation": {
        "silu": "x sigmoid(x)",
        "gelu": "x (1 + erf(x / sqrt 2)) / 2",
        "gelu-tanh": "GELU by tanh",
        "relu": "max(x, 0)",
    },
    "gate": {
        "first": "silu(x W_gate) * (x W_up)",
        "second": "(x W_gate) * silu(x W_up)",
    },
    "residual": {
        "input": "x + f(norm(x))",
        "normed": "norm(x) + f(norm(x))",
    },
    "matrices": {
        "in-out": "y = x W, W [in, out]",
        "out-in": "y = x W^T where W is square: a matrix stored [out, in]",
    },
    "embedding": {
        "plain": "rows of the table as they are",
        "root": "rows times sqrt(D)",
    },
    "head": {
        "own": "logits by the head's own matrix, where there is one",
        "table": "logits by the embedding table, whatever the head holds",
    },
    "norm_steps": {
        "own": "norms in the format of everything else",
        "float32": "norms in float32, whatever the format",
    },
    "table_steps": {
        "own": "angles, cosines and sines in the format of everything else",
        "float32": "angles, cosines and sines in float32, whatever the format",
    },
    "softmax_steps": {
        "own": "probabilities in the format of everything else",
        "float32": "scores and probabilities in float32, whatever the format",
    },
    "residual_steps": {
        "own": "residual sums in the format of everything else",
        "float32": "residual sums rounded to float32, whatever the format",
    },
    "chunk_mask": {
        "bottom-right": "query i of a chunk behind n cached keys reads keys 0 to n + i",
        "top-left": "query i of a chunk reads keys 0 to i, cached ones counted first",
        "whole": "every query of a chunk reads all its keys, later ones included",
    },
    "chunk_positions": {
        "running": "token i of a chunk behind n cached ones stands at n + i",
        "restart": "token i of a chunk stands at i",
        "first": "every token of a chunk stands at n",
    },
    "targets": {
        "given": "cell t is compared with target t",
        "next": "cell t is compared with target t + 1: shifted once more inside",
    },
    "mean": {
        "valid": "the sum over valid cells by their number",
        "cells": "the sum over valid cells by the number of all cells",
        "rows": "the mean of the rows' means",
        "sum": "the sum, not divided",
    },
}

LOSS = ("targets", "mean")  # these change no logit
CHUNKS = ("chunk_mask", "chunk_positions")  # these change a session's logits alone
# These change roundings alone, and say nothing of a decoder whose format is float32.
STEPS = ("norm_steps", "table_steps", "softmax_steps", "residual_steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """One choice each; the defaults are the specification's."""

    pairs: str = "adjacent"
    turn: str = "left"
    exponent: str = "2i/d_h"
    base: str = "configured"
    heads: str = "blocks"
    kv_map: str = "blocks"
    scale: str = "1/sqrt(d_h)"
    mask: str = "causal"
    positions: str = "segment"
    softmax: str = "plain"
    epsilon: str = "inside"
    centre: str = "none"
    gain: str = "plain"
    activation: str = "silu"
    gate: str = "first"
    residual: str = "input"
    matrices: str = "in-out"
    embedding: str = "plain"
    head: str = "own"
    norm_steps: str = "own"
    table_steps: str = "own"
    softmax_steps: str = "own"
    residual_steps: str = "own"
    chunk_mask: str = "bottom-right"
    chunk_positions: str = "running"
    targets: str = "given"
    mean: str = "valid"

    @property
    def changes(self) -> tuple[Change, ...]:
        """What differs from the specification."""
        return tuple(
            (f.name, getattr(self, f.name))
            for f in fields(self)
            if getattr(self, f.name) != f.default
        )

    def __str__(self) -> str:
        return ", ".join(f"{name}: {choice}" for name, choice in self.changes) or "as specified"


SPECIFIED = Conventions()


def changed(conventions: Conventions, *changes: Change) -> Conventions:
    """The same conventions with some other choices."""
    return replace(conventions, **dict(changes))


def alternatives(
    names: tuple[str, ...], most: int, start: Conventions = SPECIFIED
) -> Iterator[Conventions]:
    """`start`, then every single change of the named conventions, then pairs, up to `most`."""
    single = [
        (name, choice)
        for name in names
        for choice in CHOICES[name]
        if choice != getattr(start, name)
    ]
    for count in range(most + 1):
        for changes in combinations(single, count):
            if len({name for name, _ in changes}) == count:
                yield changed(start, *changes)
