"""Small live objects for the boundaries: parameters with gradients, released nodes, models."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from logitproof.core import (
    RECORDING,
    Decoder,
    DecoderConfig,
    Parameter,
    SequenceLayout,
    SplitMix64,
    Tensor,
    constant,
    ops,
)
from logitproof.core.floats import Array

__all__ = ["MAX", "config", "decoder", "parameter", "ramp", "released", "weight"]

MAX = 1.7e308  # finite; twice as much is not


def ramp(*shape: int) -> Array:
    """Distinct small dyadic values: 1/8, 2/8, ..."""
    return np.arange(1, math.prod(shape) + 1, dtype=np.float64).reshape(shape) / 8


def parameter(name: str, values: object) -> Parameter:
    """A parameter whose gradient is not zero, so that a change of it would be seen."""
    made = Parameter(name, values)
    made.backward(np.full(made.shape, 0.25))
    return made


def weight(name: str, *shape: int) -> Parameter:
    """A parameter of a shape."""
    return parameter(name, ramp(*shape))


def released(values: object) -> Tensor:
    """A node of these values whose graph was released."""
    node = RECORDING.apply(ops.add, Parameter("gone", values), constant(0.0))
    node.backward(np.zeros(node.shape), retain=False)
    return node


def config(**changes: object) -> DecoderConfig:
    """A tiny decoder configuration."""
    facts: dict[str, object] = {
        "vocabulary_size": 5,
        "model_width": 2,
        "heads": 1,
        "feed_forward_width": 2,
        "layers": 1,
        "max_positions": 4,
    }
    return DecoderConfig(**{**facts, **changes})  # type: ignore[arg-type]


@cache
def two_cells(rows: int, position: int) -> SequenceLayout:
    """Rows of two cells, the second of them at a position."""
    return SequenceLayout(
        lengths=np.array([2] * rows),
        range_starts=np.array([[0, 0]] * rows),
        positions=np.array([[0, position]] * rows),
    )


def decoder(*, rms_epsilon: float = 1e-6, layers: int = 1, model_width: int = 2) -> Decoder:
    """A tiny decoder with gradients; shared, for no refused call may change it."""
    facts = config(rms_epsilon=rms_epsilon, layers=layers, model_width=model_width)
    made = Decoder(facts, SplitMix64(17))
    made.loss([[0, 1, 2]], [[1, 2, 3]]).backward()
    return made
