"""The decoders that are measured."""

from __future__ import annotations

import numpy as np

from logitproof.core import DecoderConfig
from logitproof.core.floats import Array, Ids
from logitproof.core.initial import SplitMix64

__all__ = ["BRIDGE", "LAPTOP", "MID", "REFERENCE", "SIZES", "batch", "config", "weights"]


def config(V: int, D: int, L: int, H: int, F: int, C: int) -> DecoderConfig:
    """A configuration from its six sizes, in the order that the tables name them."""
    return DecoderConfig(
        vocabulary_size=V,
        model_width=D,
        layers=L,
        heads=H,
        feed_forward_width=F,
        max_positions=C,
    )


REFERENCE = config(266, 4, 1, 1, 4, 4)
BRIDGE = config(266, 16, 2, 2, 20, 16)
MID = config(1000, 128, 4, 4, 344, 128)
LAPTOP = config(16384, 512, 8, 8, 1536, 512)
SIZES = {"reference": REFERENCE, "bridge": BRIDGE, "mid": MID, "laptop-like": LAPTOP}


def weights(config: DecoderConfig) -> dict[str, Array]:
    """Values by name, the same for every implementation: matrices around 0, gains around 1."""
    drawn = {}
    for group in config.parameter_groups():
        scale = 1.0 if group.category == "norms" else 1.0 / np.sqrt(group.rows)
        drawn[group.name] = (group.shape, scale, group.category == "norms")
    generator = SplitMix64(7)
    values = {}
    for name in config.parameter_names():
        shape, scale, is_gain = drawn[_suffix(name)]
        uniform = generator.uniforms(int(np.prod(shape))).reshape(shape) - 0.5
        values[name] = 1.0 + uniform / 4 if is_gain else scale * uniform
    return values


def _suffix(name: str) -> str:
    """`attention.query.weight` of `blocks.3.attention.query.weight`."""
    return name.split(".", 2)[2] if name.startswith("blocks.") else name


def batch(config: DecoderConfig, rows: int = 1, T: int | None = None) -> tuple[Ids, Ids]:
    """Ids and targets [rows, T], by default a full window."""
    T = config.max_positions if T is None else T
    ids = (np.arange(rows * T).reshape(rows, T) * 7 + 3) % config.vocabulary_size
    return ids, (ids + 1) % config.vocabulary_size
