"""One row of the batch from ids to logits, with everything that its reverse pass reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .arithmetic import Arithmetic, Number
from .shapes import Config

__all__ = [
    "Block", "Cells", "Head", "Norm", "Row", "Rotation", "Weights", "forward_row", "head_name",
    "times",
]  # fmt: skip

Vector = list[Number]
Matrix = list[Vector]  # per cell, or per row of a weight
Weights = Mapping[str, "Matrix"]  # a gain is a matrix of one row


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """Per cell: input, stabilised mean square, inverse root, scaled input; and the result."""

    x: Matrix
    stabilised: Vector
    inverse: Vector
    scaled: Matrix
    out: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One head: rotated queries and keys, values, and the probability of each allowed key.

    features: its own of the queries; `shared` those of the keys and values that it reads
    """

    features: slice
    shared: slice
    query: Matrix
    key: Matrix
    value: Matrix
    probabilities: Matrix  # per query: keys start .. t; empty where inactive


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block with its intermediate values."""

    prefix: str
    norm: Norm
    heads: list[Head]
    mixed: Matrix
    ffn_norm: Norm
    gate: Matrix
    sigmoid: Matrix
    activated: Matrix
    up: Matrix
    product: Matrix
    out: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """One row of a batch: ids, how many cells are active, first key and position of each."""

    ids: Sequence[int]
    length: int
    starts: Sequence[int]
    positions: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: its cells, blocks, final norm and logits."""

    cells: Cells
    blocks: list[Block]
    final: Norm
    logits: Matrix


class Rotation:
    """Sines and cosines of each position asked for. Source: numerics.md section 11"""

    def __init__(self, config: Config, arithmetic: Arithmetic) -> None:
        a, d_h = arithmetic, config.head_width
        base = a.number(config.rope_base)
        self.frequencies = [
            a.pow(base, a.number(-2.0 * i) / a.number(float(d_h))) for i in range(d_h // 2)
        ]
        self.arithmetic = arithmetic
        self.known: dict[int, list[tuple[Number, Number]]] = {}

    def turned(self, x: Vector, position: int) -> Vector:
        """Each pair (l, r) as (l*c - r*s, l*s + r*c)."""
        out, clean = [], self.arithmetic.clean
        for i, (c, s) in enumerate(self.at(position)):
            left, right = x[2 * i], x[2 * i + 1]
            out += [clean(left * c - right * s), clean(left * s + right * c)]
        return out

    def turned_back(self, x: Vector, position: int) -> Vector:
        """Each pair (l, r) as (l*c + r*s, (-l)*s + r*c)."""
        out, clean = [], self.arithmetic.clean
        for i, (c, s) in enumerate(self.at(position)):
            left, right = x[2 * i], x[2 * i + 1]
            out += [clean(left * c + right * s), clean((-left) * s + right * c)]
        return out

    def at(self, position: int) -> list[tuple[Number, Number]]:
        """Cosine and sine of every pair at a position."""
        if position not in self.known:
            a = self.arithmetic
            angles = [a.number(float(position)) * f for f in self.frequencies]
            self.known[position] = [(a.clean(a.cos(x)), a.clean(a.sin(x))) for x in angles]
        return self.known[position]


def times(a: Arithmetic, rows: Matrix, weight: Matrix) -> Matrix:
    """rows @ weight: per cell a dot product with each column. Source: numerics.md section 4"""
    columns = [list(column) for column in zip(*weight, strict=True)]
    return [[a.dot(row, column) for column in columns] for row in rows]


def normed(a: Arithmetic, x: Matrix, gain: Vector, epsilon: float) -> Norm:
    """x * exp(-0.5 * log(mean(x^2) + epsilon)) * gain. Source: numerics.md section 9"""
    eps, minus_half = a.number(epsilon), a.number(-0.5)
    width = a.number(float(len(gain)))
    stabilised = [a.total([v * v for v in cell]) / width + eps for cell in x]
    inverse = [a.exp(a.log(st) * minus_half) for st in stabilised]
    scaled = [[v * inv for v in cell] for cell, inv in zip(x, inverse, strict=True)]
    out = [[v * g for v, g in zip(cell, gain, strict=True)] for cell in scaled]
    return Norm(x=x, stabilised=stabilised, inverse=inverse, scaled=scaled, out=out)


def softmax(a: Arithmetic, scores: Vector) -> tuple[Vector, Number, Number]:
    """Probabilities, maximum and tail: the sum leaves out one class at the maximum.

    Source: numerics.md section 7
    """
    largest = scores[0]
    for score in scores[1:]:
        largest = max(largest, score)
    shifted = [score - largest for score in scores]
    first = next(i for i, z in enumerate(shifted) if z == 0)
    exponentials = [a.exp(z) for z in shifted]
    one = a.number(1.0)
    tail = a.total([e for i, e in enumerate(exponentials) if i != first], beside=one)
    whole = one + tail
    return [a.clean(e / whole) for e in exponentials], largest, tail


def sigmoid(a: Arithmetic, x: Number) -> Number:
    """1 / (1 + exp(-x)), or e / (1 + e) with e = exp(x) below 0. Source: numerics.md section 6"""
    one = a.number(1.0)
    if x >= 0:
        return one / (one + a.exp(-x))
    e = a.exp(x)
    return e / (one + e)


def plus(left: Matrix, right: Matrix) -> Matrix:
    """left + right, cell by cell."""
    return [[x + y for x, y in zip(p, q, strict=True)] for p, q in zip(left, right, strict=True)]


def product(left: Matrix, right: Matrix) -> Matrix:
    """left * right, cell by cell."""
    return [[x * y for x, y in zip(p, q, strict=True)] for p, q in zip(left, right, strict=True)]


def head_name(weights: Weights) -> str:
    """The matrix whose rows give the logits: the table, unless the head has one of its own."""
    return "head.weight" if "head.weight" in weights else "token_embedding.weight"


def forward_row(
    a: Arithmetic, config: Config, weights: Weights, rotation: Rotation, cells: Cells
) -> Row:
    """Source: numerics.md sections 12 and 13, inputs.md section 7"""
    table = weights["token_embedding.weight"]
    blank = [a.number(0.0)] * config.model_width  # an inactive cell is a zero vector
    x = [table[token] if t < cells.length else blank for t, token in enumerate(cells.ids)]
    blocks = []
    for layer in range(config.layers):
        blocks.append(_block(a, config, weights, f"blocks.{layer}", rotation, x, cells))
        x = blocks[-1].out
    final = normed(a, x, weights["final_norm.gain"][0], config.rms_epsilon)
    logits = [[a.dot(cell, row) for row in weights[head_name(weights)]] for cell in final.out]
    return Row(cells=cells, blocks=blocks, final=final, logits=logits)


def _block(
    a: Arithmetic,
    config: Config,
    weights: Weights,
    prefix: str,
    rotation: Rotation,
    x: Matrix,
    cells: Cells,
) -> Block:
    norm = normed(a, x, weights[f"{prefix}.attention_norm.gain"][0], config.rms_epsilon)
    query, key, value = (
        times(a, norm.out, weights[f"{prefix}.attention.{role}.weight"])
        for role in ("query", "key", "value")
    )
    heads = [_head(a, config, rotation, h, (query, key, value), cells) for h in range(config.heads)]
    mixed = _merged(a, heads, cells)
    attended = times(a, mixed, weights[f"{prefix}.attention.output.weight"])
    after = plus(x, attended)
    ffn_norm = normed(a, after, weights[f"{prefix}.ffn_norm.gain"][0], config.rms_epsilon)
    gate = times(a, ffn_norm.out, weights[f"{prefix}.ffn.gate.weight"])
    sigmoids = [[sigmoid(a, v) for v in cell] for cell in gate]
    activated = product(gate, sigmoids)
    up = times(a, ffn_norm.out, weights[f"{prefix}.ffn.up.weight"])
    gated = product(activated, up)
    return Block(
        prefix=prefix,
        norm=norm,
        heads=heads,
        mixed=mixed,
        ffn_norm=ffn_norm,
        gate=gate,
        sigmoid=sigmoids,
        activated=activated,
        up=up,
        product=gated,
        out=plus(after, times(a, gated, weights[f"{prefix}.ffn.down.weight"])),
    )


def _head(
    a: Arithmetic,
    config: Config,
    rotation: Rotation,
    h: int,
    projected: tuple[Matrix, Matrix, Matrix],
    cells: Cells,
) -> Head:
    """Query head h; it reads key/value head h // (H / H_kv), turned for each head anew."""
    d_h, query, key, value = config.head_width, *projected
    read = h // (config.heads // (config.kv_heads or config.heads))
    features, shared = (slice(i * d_h, (i + 1) * d_h) for i in (h, read))
    q, k = (
        [rotation.turned(cell[own], p) for cell, p in zip(part, cells.positions, strict=True)]
        for part, own in ((query, features), (key, shared))
    )
    return Head(
        features=features,
        shared=shared,
        query=q,
        key=k,
        value=[cell[shared] for cell in value],
        probabilities=_attention(a, q, k, cells),
    )


def scale(a: Arithmetic, head_width: int) -> Number:
    """1 / sqrt(d_h), by which scores are multiplied. Source: numerics.md section 12"""
    return a.number(1.0) / a.sqrt(a.number(float(head_width)))


def _attention(a: Arithmetic, query: Matrix, key: Matrix, cells: Cells) -> Matrix:
    """Per active query the probabilities of its keys start .. t; no key for the others."""
    rows: Matrix = []
    factor = scale(a, len(query[0]))
    for t, q in enumerate(query):
        allowed = key[cells.starts[t] : t + 1] if t < cells.length else []
        scores = [a.dot(q, k) * factor for k in allowed]
        rows.append(softmax(a, scores)[0] if scores else [])
    return rows


def _merged(a: Arithmetic, heads: list[Head], cells: Cells) -> Matrix:
    """Per cell the heads' mixtures side by side."""
    merged: Matrix = []
    for t, start in enumerate(cells.starts):
        cell: Vector = []
        for head in heads:
            weights = head.probabilities[t]
            values = head.value[start : start + len(weights)]
            width = head.features.stop - head.features.start
            cell += [a.dot(weights, [v[i] for v in values]) for i in range(width)]
        merged.append(cell)
    return merged
