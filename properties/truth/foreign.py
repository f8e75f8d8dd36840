"""What a decoder of other conventions must answer, to 50 digits, and how far rounding may go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import mpmath
from mpmath import mp

from logitproof.properties.scalar import Arithmetic, Config, Layout
from logitproof.properties.scalar.conventions import Conventions
from logitproof.properties.scalar.foreign import Foreign

from .adjoints import BINARY64, Format, roundings
from .arithmetic import recording
from .decoder import Answer
from .recording import DIGITS, Recorded, uncollected

__all__ = ["foreign_logits"]

Ids: TypeAlias = Sequence[Sequence[int]]


def foreign_logits(
    config: Config,
    weights: Mapping[str, Any],
    ids: Ids,
    layout: Layout | None,
    conventions: Conventions,
    *,
    cached: int | None = None,
    format: Format = BINARY64,
) -> Answer:
    """[B, T, V], with the bound of a program that takes each step as it is written there.

    Every operation is granted the forms of the record and every elementary function its declared
    ulps; a whole operation in another textbook form (a softmax that is not shifted, a root by
    logarithms) is granted what its steps are, not more: this bound is the narrower one.
    """
    with mp.workdps(DIGITS), uncollected():
        arithmetic = recording()
        record = arithmetic.record

        def erf(x: Recorded) -> Recorded:
            value, slope = mp.erf(x.value), 2 / mp.sqrt(mp.pi) * mp.exp(-x.value * x.value)
            return record.function(x, value, slope, 1.0, lambda b: b * b)  # |erf''| < 1

        given = {
            name: [[record.parameter(mpmath.mpf(v)) for v in row] for row in _matrix(value)]
            for name, value in weights.items()
        }
        able: Arithmetic = replace(arithmetic, erf=erf)
        foreign = Foreign(
            config=config,
            weights=given,
            conventions=conventions,
            arithmetic=able,
            cached=cached,
        )
        logits = [x for row in foreign.logits(ids, layout) for cell in row for x in cell]
        outputs = [x.index for x in logits]
        moved, _ = roundings(record, len(record), outputs, format)
    vocabulary = len(weights.get("head.weight", weights["token_embedding.weight"]))
    shape = (len(ids), len(ids[0]), vocabulary)
    return Answer(shape=shape, values=[x.value for x in logits], roundings=moved)


def _matrix(value: Any) -> Any:
    return value if isinstance(value[0], list) else [value]
