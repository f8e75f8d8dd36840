"""One row of a batch under other conventions; under the specification's, the same bits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .arithmetic import Arithmetic, Number
from .conventions import Conventions
from .forward import Cells, Matrix, Vector, plus, product, sigmoid, softmax, times
from .shapes import Config, Layout

__all__ = ["Foreign", "foreign_loss"]

# Roundings of float32 granted to a function: vector libraries declare 4 ulps, 2 roundings each.
FUNCTION_STEPS = 8
Ids: TypeAlias = Sequence[Sequence[int]]
Weights: TypeAlias = Mapping[str, Matrix]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A decoder that follows other conventions, forward alone; valid input, nothing is checked.

    weights: as the scalar decoder's; key and value may have fewer heads than the query, and
             `head.weight` [V, D] stands beside the table where the head is not tied
    cached:  None for a row read at once
    """

    config: Config
    weights: Weights
    conventions: Conventions
    arithmetic: Arithmetic
    cached: int | None = None  # cells before the chunk that the rest of the row comes as

    def logits(self, ids: Ids, layout: Layout | None = None) -> list[Matrix]:
        """[B][T][V]; inactive cells hold -1."""
        layout = layout or Layout.full(len(ids), len(ids[0]))
        rows = zip(ids, layout.lengths, layout.range_starts, layout.positions, strict=True)
        return [
            self._row(Cells(ids=cells, length=n, starts=starts, positions=positions))
            for cells, n, starts, positions in rows
        ]

    def _row(self, cells: Cells) -> Matrix:
        a, D = self.arithmetic, self.config.model_width
        table, blank = self.weights["token_embedding.weight"], [a.number(0.0)] * D
        x = [table[token] if t < cells.length else blank for t, token in enumerate(cells.ids)]
        if self.conventions.embedding == "root":
            root = a.sqrt(a.number(float(D)))
            x = [[v * root for v in cell] for cell in x]
        for layer in range(self.config.layers):
            x = self._block(f"blocks.{layer}", x, cells)
        final = self._normed(x, "final_norm.gain")
        return [[a.dot(cell, row) for row in self._head_rows()] for cell in final]

    def _head_rows(self) -> Matrix:
        """The rows that give the logits."""
        table = self.weights["token_embedding.weight"]
        return self.weights.get("head.weight", table) if self.conventions.head == "own" else table

    def _block(self, prefix: str, x: Matrix, cells: Cells) -> Matrix:
        kept = self.conventions.residual == "input"
        normed = self._normed(x, f"{prefix}.attention_norm.gain")
        mixed = self._mixed(f"{prefix}.attention", normed, cells)
        attended = self._times(mixed, f"{prefix}.attention.output.weight")
        after = self._residual(x if kept else normed, attended)
        normed = self._normed(after, f"{prefix}.ffn_norm.gain")
        gate, up = (self._times(normed, f"{prefix}.ffn.{role}.weight") for role in ("gate", "up"))
        if self.conventions.gate == "second":
            gate, up = up, gate
        activated = [[self._activated(v) for v in cell] for cell in gate]
        down = self._times(product(activated, up), f"{prefix}.ffn.down.weight")
        return self._residual(after if kept else normed, down)

    def _residual(self, x: Matrix, branch: Matrix) -> Matrix:
        added = plus(x, branch)
        if self.conventions.residual_steps == "own":
            return added
        return [[self.arithmetic.single(v) for v in cell] for cell in added]

    def _times(self, rows: Matrix, name: str) -> Matrix:
        weight = self.weights[name]
        if self.conventions.matrices == "out-in" and len(weight) == len(weight[0]):
            weight = [list(column) for column in zip(*weight, strict=True)]
        return times(self.arithmetic, rows, weight)

    def _normed(self, x: Matrix, name: str) -> Matrix:
        one = self.arithmetic.number(1.0)
        plain = self.conventions.gain == "plain"
        gain = [g if plain else one + g for g in self.weights[name][0]]
        out = []
        for cell in x:
            single = self.conventions.norm_steps == "float32"
            row = self._centred([self.arithmetic.single(v) for v in cell] if single else cell)
            inverse = self._inverse([v * v for v in row])
            if single:  # a square, D - 1 sums, a quotient, epsilon; the root halves them at least
                inverse = self.arithmetic.single(inverse, len(row) + 2 + 2 * FUNCTION_STEPS)
            normed = [v * inverse * g for v, g in zip(row, gain, strict=True)]
            out.append([self.arithmetic.single(v, 3) for v in normed] if single else normed)
        return out

    def _centred(self, cell: Vector) -> Vector:
        a = self.arithmetic
        if self.conventions.centre == "none":
            return cell
        mean = a.total(cell) / a.number(float(len(cell)))
        return [v - mean for v in cell]

    def _inverse(self, squares: Vector) -> Number:
        a, form = self.arithmetic, self.conventions.epsilon
        width, minus_half = a.number(float(len(squares))), a.number(-0.5)
        eps = a.number(1e-5 if form == "1e-5" else self.config.rms_epsilon)
        total = a.total(squares)
        if form == "outside":
            mean = total / width
            root = a.exp(a.log(mean) * a.number(0.5)) if mean != 0 else mean
            return a.number(1.0) / (root + eps)
        inner = (total + eps) / width if form == "sum" else total / width + eps
        return a.exp(a.log(inner) * minus_half)

    def _activated(self, x: Number) -> Number:
        a, half, one = self.arithmetic, self.arithmetic.number(0.5), self.arithmetic.number(1.0)
        kind = self.conventions.activation
        if kind == "relu":
            return max(a.number(0.0), x)
        if kind == "gelu":
            return x * half * (one + a.erf(x / a.sqrt(a.number(2.0))))
        if kind == "gelu-tanh":  # (1 + tanh z) / 2 is the sigmoid of 2 z
            cubic = x + a.number(0.044715) * x * x * x
            return x * sigmoid(a, a.number(2.0 * 0.7978845608028654) * cubic)
        return x * sigmoid(a, x)

    def _mixed(self, prefix: str, normed: Matrix, cells: Cells) -> Matrix:
        """Per cell the heads' mixtures, each feature where its head's are."""
        H, d_h = self.config.heads, self.config.head_width
        query, key, value = (
            self._times(normed, f"{prefix}.{role}.weight") for role in ("query", "key", "value")
        )
        kv_heads = len(key[0]) // d_h
        mixed = [[self.arithmetic.number(0.0)] * (H * d_h) for _ in normed]
        for h in range(H):
            own = self._features(h, H)
            rows = self._head(
                [[cell[f] for f in own] for cell in query],
                self._shared(key, h, kv_heads),
                self._shared(value, h, kv_heads),
                cells,
            )
            for t, row in enumerate(rows):
                for f, v in zip(own, row, strict=True):
                    mixed[t][f] = v
        return mixed

    def _features(self, head: int, heads: int) -> range:
        d_h = self.config.head_width
        if self.conventions.heads == "interleaved":
            return range(head, heads * d_h, heads)
        return range(head * d_h, (head + 1) * d_h)

    def _shared(self, projected: Matrix, head: int, kv_heads: int) -> Matrix:
        """What a query head reads of the keys, or of the values."""
        read = self._features(self._kv_head(head, kv_heads), kv_heads)
        return [[cell[f] for f in read] for cell in projected]

    def _kv_head(self, head: int, kv_heads: int) -> int:
        if self.conventions.kv_map == "interleaved":
            return head % kv_heads
        return head // (self.config.heads // kv_heads)

    def _head(self, query: Matrix, key: Matrix, value: Matrix, cells: Cells) -> Matrix:
        a, positions = self.arithmetic, [self._position(t, cells) for t in range(len(query))]
        turned, keys = ([self._turned(x, p) for x, p in zip(rows, positions, strict=True)]
                        for rows in (query, key))  # fmt: skip
        factor, out = self._factor(), []
        for t, q in enumerate(turned):
            read = self._read(t, cells)
            scores = [a.dot(q, keys[j]) * factor for j in read]
            p = self._probabilities(scores) if scores else []
            columns = range(len(value[0]))
            out.append([a.dot(p, [value[j][i] for j in read]) for i in columns])
        return out

    def _position(self, t: int, cells: Cells) -> int:
        position = t if self.conventions.positions == "row" else cells.positions[t]
        if self.cached is None or t < self.cached:
            return position
        chunk = {"running": position, "restart": position - self.cached, "first": self.cached}
        return chunk[self.conventions.chunk_positions]

    def _read(self, t: int, cells: Cells) -> range:
        """The keys of query t; none of an inactive one."""
        if t >= cells.length:
            return range(0)
        if self.cached is not None and t >= self.cached:
            ends = {"bottom-right": t + 1, "top-left": t + 1 - self.cached, "whole": cells.length}
            return range(ends[self.conventions.chunk_mask])
        if self.conventions.mask == "row":
            return range(t + 1)
        if self.conventions.mask == "causal":
            return range(cells.starts[t], t + 1)
        same = [j for j in range(cells.length) if cells.starts[j] == cells.starts[t]]
        return range(same[0], same[-1] + 1)

    def _factor(self) -> Number:
        a, one = self.arithmetic, self.arithmetic.number(1.0)
        d_h, D = (a.number(float(n)) for n in (self.config.head_width, self.config.model_width))
        return {
            "1/sqrt(d_h)": lambda: one / a.sqrt(d_h),
            "1/sqrt(D)": lambda: one / a.sqrt(D),
            "1/d_h": lambda: one / d_h,
            "1": lambda: one,
        }[self.conventions.scale]()

    def _probabilities(self, scores: Vector) -> Vector:
        a, single = self.arithmetic, self.conventions.softmax_steps == "float32"
        if single:  # rounded, then shifted
            scores = [a.single(z, 2) for z in scores]
        more = [] if self.conventions.softmax == "plain" else [a.number(0.0)]
        p = softmax(a, [*scores, *more])[0][: len(scores)]
        # Two exponentials, the sum of the others, a quotient.
        return [a.single(v, len(p) + 2 * FUNCTION_STEPS) for v in p] if single else p

    def _turned(self, x: Vector, position: int) -> Vector:
        a, conventions, half = self.arithmetic, self.conventions, len(x) // 2
        if conventions.pairs == "none":
            return x
        adjacent, out = conventions.pairs == "adjacent", list(x)
        for i in range(half):
            left, right = (2 * i, 2 * i + 1) if adjacent else (i, i + half)
            angle = a.number(float(position)) * self._frequency(i)
            single = conventions.table_steps == "float32"
            if single:  # a power, twice ln(base) by an exponent rounded twice, and a product
                turns = 2 * math.ceil(abs(math.log(self._base()))) + 1
                angle = a.single(angle, FUNCTION_STEPS + turns)
            c, s = a.clean(a.cos(angle)), a.clean(a.sin(angle))
            if single:
                c, s = a.single(c, FUNCTION_STEPS), a.single(s, FUNCTION_STEPS)
            if conventions.turn == "right":
                s = -s
            out[left] = a.clean(x[left] * c - x[right] * s)
            out[right] = a.clean(x[left] * s + x[right] * c)
        return out

    def _base(self) -> float:
        return 10000.0 if self.conventions.base == "10000" else self.config.rope_base

    def _frequency(self, i: int) -> Number:
        a, conventions = self.arithmetic, self.conventions
        base = self._base()
        step = 1.0 if conventions.exponent == "i/d_h" else 2.0
        by_model = conventions.exponent == "2i/D"
        width = self.config.model_width if by_model else self.config.head_width
        return a.pow(a.number(base), a.number(-step * i) / a.number(float(width)))


def foreign_loss(
    a: Arithmetic,
    logits: Sequence[Matrix],
    targets: Ids,
    valid: Sequence[Sequence[bool]],
    conventions: Conventions,
) -> Number:
    """The loss over valid cells by another rule; logits [B][T][V], every row of `valid` has one."""
    rows: list[Vector] = []
    for row, chosen, eligible in zip(logits, targets, valid, strict=True):
        shift = int(conventions.targets == "next")
        cells = [t for t, counts in enumerate(eligible) if counts and t + shift < len(chosen)]
        rows.append([_nll(a, row[t], chosen[t + shift]) for t in cells])
    losses = [x for row in rows for x in row]
    if conventions.mean == "rows":
        means = [a.total(row) / a.number(float(len(row))) for row in rows if row]
        return a.total(means) / a.number(float(len(means)))
    cells_of_all = sum(len(row) for row in valid)
    divisor = {"valid": len(losses), "cells": cells_of_all, "sum": 1}[conventions.mean]
    return a.total(losses) / a.number(float(divisor))


def _nll(a: Arithmetic, row: Vector, target: int) -> Number:
    _, largest, tail = softmax(a, row)
    return (largest - row[target]) + a.log1p(tail)
