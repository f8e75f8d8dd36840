"""What a decoder is made of: block configuration without, model configuration with vocabulary."""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Any

from . import shapes
from .attention import check_head_sizes
from .errors import Code, ShapeRefusal, check_not_zero
from .initial import check_size
from .layers import check_epsilon
from .rope import check_base

__all__ = ["BLOCK_CONFIG_ORDER", "CONFIG_ORDER", "DecoderBlockConfig", "DecoderConfig"]

# The checks of a block configuration in order (layers.md sections 9, 11 and 12).
BLOCK_CONFIG_ORDER = (
    *(Code.FIELD_TYPE, Code.FIELD_RANGE) * 6,  # the six sizes in turn
    Code.ZERO_MODEL_WIDTH,
    Code.ZERO_HEAD_COUNT,
    Code.MODEL_WIDTH_NOT_DIVISIBLE,
    Code.ODD_HEAD_WIDTH,
    Code.KV_HEADS_NOT_A_DIVISOR,
    Code.ZERO_CONTEXT_WINDOW,
    Code.ZERO_FEED_FORWARD_WIDTH,
    Code.ZERO_POSITION_CAPACITY,
    Code.INVALID_ROPE_BASE,
    Code.INVALID_RMS_EPSILON,
)
# The checks of a model configuration in order (layers.md section 11).
CONFIG_ORDER = (
    *BLOCK_CONFIG_ORDER[:12],
    Code.EMPTY_VOCABULARY,
    *(
        c
        for c in BLOCK_CONFIG_ORDER[12:]
        if c not in (Code.KV_HEADS_NOT_A_DIVISOR, Code.ZERO_CONTEXT_WINDOW)
    ),
)


def float_bits(value: float) -> str:
    """The 16 hex digits of a binary64."""
    return struct.pack(">d", value).hex()


class _ByBits:
    """Equality of all fields, floats by their bits: -0.0 is not 0.0."""

    __slots__ = ()

    def key(self) -> tuple[Any, ...]:
        """The fields in order, floats as 16 hex digits."""
        values = (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]
        return tuple(float_bits(v) if isinstance(v, float) else v for v in values)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecoderBlockConfig(_ByBits):
    """The vocabulary-free facts of a decoder: what every block and the backbone share.

    kv_heads None is `heads`; other divisors, like a context window, can be stated but nothing
    here executes them.

    Refuses: `BLOCK_CONFIG_ORDER`
    Source:  layers.md sections 9, 11 and 12
    """

    model_width: int
    heads: int
    feed_forward_width: int
    max_positions: int
    rope_base: float = 10000.0
    rms_epsilon: float = 1e-6
    kv_heads: int | None = None
    context_window: int | None = None

    def __post_init__(self) -> None:
        what = "config"
        sizes = {
            name: check_size(getattr(self, name), what=f"{what}.{name}")
            for name in ("model_width", "heads", "feed_forward_width", "max_positions")
        }
        given_kv, window = self.kv_heads, self.context_window
        kv_heads = (
            sizes["heads"] if given_kv is None else check_size(given_kv, what=f"{what}.kv_heads")
        )
        if window is not None:
            window = check_size(window, what=f"{what}.context_window")
        heads = sizes["heads"]
        check_head_sizes(sizes["model_width"], heads, what=what)
        if kv_heads == 0 or heads % kv_heads:
            raise ShapeRefusal(
                code=Code.KV_HEADS_NOT_A_DIVISOR, what=what, expected=heads, actual=kv_heads
            )
        check_not_zero(Code.ZERO_CONTEXT_WINDOW, what, 1 if window is None else window)
        check_not_zero(Code.ZERO_FEED_FORWARD_WIDTH, what, sizes["feed_forward_width"])
        check_not_zero(Code.ZERO_POSITION_CAPACITY, what, sizes["max_positions"])
        base = check_base(self.rope_base, code=Code.INVALID_ROPE_BASE, what=what)
        epsilon = check_epsilon(self.rms_epsilon, code=Code.INVALID_RMS_EPSILON, what=what)
        self._set(
            **sizes, kv_heads=kv_heads, context_window=window, rope_base=base, rms_epsilon=epsilon
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecoderConfig(_ByBits):
    """The facts of a whole decoder. Zero layers are legal: embedding, final norm, head.

    Refuses: `CONFIG_ORDER`
    Source:  layers.md section 11
    """

    vocabulary_size: int
    model_width: int
    heads: int
    feed_forward_width: int
    layers: int
    max_positions: int
    rope_base: float = 10000.0
    rms_epsilon: float = 1e-6

    def __post_init__(self) -> None:
        what = "config"
        names = (
            "vocabulary_size",
            "model_width",
            "heads",
            "feed_forward_width",
            "layers",
            "max_positions",
        )
        sizes = {name: check_size(getattr(self, name), what=f"{what}.{name}") for name in names}
        check_not_zero(Code.EMPTY_VOCABULARY, what, sizes["vocabulary_size"])
        self._set(**sizes)
        block = self.block_config
        self._set(rope_base=block.rope_base, rms_epsilon=block.rms_epsilon)

    @property
    def block_config(self) -> DecoderBlockConfig:
        """The same facts without vocabulary and depth."""
        return DecoderBlockConfig(
            model_width=self.model_width,
            heads=self.heads,
            feed_forward_width=self.feed_forward_width,
            max_positions=self.max_positions,
            rope_base=self.rope_base,
            rms_epsilon=self.rms_epsilon,
        )

    def parameter_names(self) -> list[str]:
        """The 9 L + 2 names in their stable order. Source: numerics_init.md section 3"""
        return [name for name, _ in shapes.named_tensors(self.parameter_groups())]

    def parameter_groups(self) -> tuple[shapes.TensorGroup, ...]:
        """The eleven groups of parameters, those that a census counts."""
        return shapes.parameter_shapes(
            self.vocabulary_size,
            self.model_width,
            self.layers,
            self.heads,
            self.heads,
            self.feed_forward_width,
        )
