"""What a decoder must answer, to 50 digits, and how far rounding may take an answer from it.

The scalar decoder runs once over recorded numbers. Its values are the truth of logits and loss.
The truth of gradients is the reverse differentiation of the forward part of the record; the
scalar decoder's own reverse pass is recorded for its roundings alone.

`DECLARED_CLASS` says which programs the bound covers, its first-order part in full: each form of
an operation moves its result by no more than the local errors of the record's entries together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from mpmath import mp
from numpy.typing import NDArray

from logitproof.properties.scalar import Config, Layout, Result, ScalarDecoder
from logitproof.properties.scalar.forward import Head, Norm, Row

from .adjoints import BINARY64, Format, Roundings, roundings
from .arithmetic import recording
from .orders import grant_forward_orders, reverse_losses
from .recording import DIGITS, FORMS, FUNCTION_ULP, WRITTEN_OUT, Real, Record, slopes, uncollected
from .walks import carried

__all__ = ["DECLARED_CLASS", "Answer", "Truth", "logits_of", "truth_of"]

Ids: TypeAlias = Sequence[Sequence[int]]
Array: TypeAlias = NDArray[np.float64]
DECLARED_CLASS = {
    "products": "sums of products in any order, fused or not; 1/sqrt(d_h) on either side of them;"
    " the factors of a norm, of SwiGLU and of their slopes in any order, also where a part "
    "underflows that a large factor is still to come to",
    "functions": f"exp, log, log1p, sin, cos and pow within {FUNCTION_ULP:g} ulps",
    "norm": "x / sqrt(m + eps), x * (1 / sqrt(m + eps)) or x * exp(-log(m + eps) / 2), the gain"
    " before or after, m a mean or a sum times 1/D; its reverse rule factored or not, three"
    " inverse roots never multiplied together before an x",
    "softmax": "e / sum, or exp(z - log-sum-exp) while |z| stays below 2^20; the sum in any order;"
    " its reverse rule by sum p u, or by the output and its slope",
    "sigmoid": "1 / (1 + exp(-x)) or e / (1 + e); the slope of SiLU in any of its expansions",
    "loss": "gap + log(sum), gap + log1p(tail), or log-sum-exp minus target logit below 2^20; a"
    " mean by division or by a reciprocal",
    "reverse": "values of the forward pass kept, or computed again from an operation's input",
    "excluded": "what overflows on the way, sigmoid by tanh, softmax in rescaled pieces",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """One array of results: each entry to 50 digits, row-major, and what rounding may do to it."""

    shape: tuple[int, ...]
    values: list[Real]
    roundings: Roundings

    @cached_property
    def doubles(self) -> tuple[Array, Array]:
        """The values as the nearest doubles and what these leave, in the answer's shape."""
        with mp.workdps(DIGITS):
            near = [float(v) for v in self.values]
            rest = [float(v - n) for v, n in zip(self.values, near, strict=True)]
        return np.array(near).reshape(self.shape), np.array(rest).reshape(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """All answers of one batch.

    reach:     the largest slope of a logit by a parameter, over the count of targets: what the
               gradients would measure if no probability were near 0 or 1
    largest:   of the record's values and sums of magnitudes; where a format does not hold it, a
               refusal is as good an answer as any
    overflows: whether it passes the largest number of the format that was asked for
    differentiated: the same gradients by the scalar decoder's written rules, for tests
    """

    logits: Answer
    loss: Answer
    gradients: Mapping[str, Answer]
    reach: float
    largest: float
    overflows: bool
    differentiated: Mapping[str, list[Real]]
    entries: int


def truth_of(
    config: Config,
    weights: Mapping[str, Any],
    ids: Ids,
    targets: Ids,
    layout: Layout | None = None,
    valid: Sequence[Sequence[bool]] | None = None,
    format: Format = BINARY64,
    digits: int = DIGITS,
) -> Truth:
    """The answers for one batch. Source: notes/bounds.md

    format: in which the programs compute; weights are taken over exactly whatever it is
    digits: carried; a slope whose terms cancel beyond them has the rest in its bound
    """
    # An infinite bound decides nothing.
    with mp.workdps(digits), np.errstate(all="ignore"), uncollected():
        decoder, record, rows = _run_forward(config, weights, ids, layout, format)
        border = len(record)
        result = decoder.finished(rows, targets, valid)
        return _answers(config, decoder, record, rows, border, result, format)


def logits_of(
    config: Config,
    weights: Mapping[str, Any],
    ids: Ids,
    layout: Layout | None = None,
    format: Format = BINARY64,
) -> Answer:
    """The logits of `truth_of` alone, and their bounds, for a part of what all answers cost."""
    with mp.workdps(DIGITS), np.errstate(all="ignore"), uncollected():
        _, record, rows = _run_forward(config, weights, ids, layout, format)
        logits = _flat([row.logits for row in rows])
        moved = Roundings.none(len(logits))
        if record.largest <= format.largest:
            moved, _ = roundings(record, len(record), [x.index for x in logits], format)
    shape = (len(ids), len(ids[0]), config.vocabulary_size)
    return Answer(shape=shape, values=[x.value for x in logits], roundings=moved)


def _run_forward(
    config: Config, weights: Mapping[str, Any], ids: Ids, layout: Layout | None, format: Format
) -> tuple[ScalarDecoder, Record, list[Row]]:
    """The forward pass on record, its entries widened to the declared class."""
    arithmetic = recording()
    record = arithmetic.record
    decoder = ScalarDecoder(config, weights, arithmetic)
    decoder.weights = {
        name: [[record.parameter(x.value) for x in row] for row in value]
        for name, value in decoder.weights.items()
    }
    rows = decoder.rows(ids, layout)
    _grant_forward_forms(record, rows)
    grant_forward_orders(record, rows, decoder.weights, format.low)
    return decoder, record, rows


def _answers(
    config: Config,
    decoder: ScalarDecoder,
    record: Record,
    rows: Sequence[Row],
    border: int,
    result: Result,
    format: Format,
) -> Truth:
    inputs = [x for value in decoder.weights.values() for row in value for x in row]
    found, own = slopes(record, result.loss, inputs)
    exact = iter(found)
    values = {n: [next(exact) for _ in _flat(v)] for n, v in decoder.weights.items()}
    logits, written = _flat(result.logits), {n: _flat(v) for n, v in result.gradients.items()}
    outputs = [*logits, result.loss, *(x for value in written.values() for x in value)]
    overflows = not record.largest <= format.largest
    first, moved, reach = len(logits), Roundings.none(len(outputs)), 0.0
    if not overflows:
        moved, adjoints = roundings(record, border, [x.index for x in outputs], format)
        losses = reverse_losses(rows, decoder.weights, adjoints[:, first], format.low)
        moved.absolute[first + 1 :] += carried(record, border, losses, inputs)
        reach = float(np.abs(adjoints[[x.index for x in inputs], :first]).max())
    moved.own[first + 1 :] = own
    B, T = len(result.logits), len(result.logits[0])
    gradients, start = {}, first + 1
    for name, shape in config.parameter_shapes().items():
        end = start + len(values[name])
        gradients[name] = Answer(shape=shape, values=values[name], roundings=moved.part(start, end))
        start = end
    return Truth(
        logits=Answer(
            shape=(B, T, config.vocabulary_size),
            values=[x.value for x in logits],
            roundings=moved.part(0, first),
        ),
        loss=Answer(shape=(), values=[result.loss.value], roundings=moved.part(first, first + 1)),
        gradients=gradients,
        reach=reach / len(result.losses),
        largest=record.largest,
        overflows=overflows,
        differentiated={n: [x.value for x in v] for n, v in written.items()},
        entries=len(record),
    )


def _flat(nested: Any) -> list[Any]:
    if not isinstance(nested, list):
        return [nested]
    return [x for inner in nested for x in _flat(inner)]


def _grant_forward_forms(record: Record, rows: Iterable[Row]) -> None:
    """Widens whole operations to their worst form: the reverse pass may compute them again."""
    for row in rows:
        norms = [n for block in row.blocks for n in (block.norm, block.ffn_norm)]
        for norm in (*norms, row.final):
            _grant_norm(record, norm)
        for block in row.blocks:
            for head in block.heads:
                _grant_softmax(record, head, row)
            for x in _flat(block.sigmoid):
                record.widen(x, 2 * FUNCTION_ULP + FORMS)
            for x in (*_flat(block.activated), *_flat(block.product)):
                record.widen(x, 2 * FUNCTION_ULP + 2 * FORMS)


def _grant_norm(record: Record, norm: Norm) -> None:
    """Mean of squares: D roundings, halved by the root; |log| / 2 ulps by way of log and exp."""
    for cell, stabilised, inverse in zip(norm.scaled, norm.stabilised, norm.inverse, strict=True):
        record.widen(stabilised, len(cell) + FORMS)
        by_log = (FUNCTION_ULP + 1) * abs(float(mp.log(stabilised.value)))
        count = len(cell) / 2 + by_log + 2 * FUNCTION_ULP + FORMS
        record.widen(inverse, count)
        for x in cell:
            record.widen(x, count + FORMS)


def _grant_softmax(record: Record, head: Head, row: Row) -> None:
    """The rounding of scores that were not shifted."""
    root = math.sqrt(len(head.query[0]))
    for q, start, probabilities in zip(
        head.query, row.cells.starts, head.probabilities, strict=True
    ):
        keys = head.key[start : start + len(probabilities)]
        scores = [sum(x.near * y.near for x, y in zip(q, k, strict=True)) / root for k in keys]
        largest = min(max(map(abs, scores), default=0.0), WRITTEN_OUT)
        count = 2 * largest + 2 * FUNCTION_ULP + FORMS
        for p in probabilities:
            record.widen(p, count)
