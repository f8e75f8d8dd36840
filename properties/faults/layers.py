"""Faults of layers by themselves, in forms that the decoder does not use."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from logitproof.core import attention, layers, ops
from logitproof.core.attention import Attention
from logitproof.core.block import DecoderBlock
from logitproof.core.config import DecoderBlockConfig
from logitproof.core.floats import Array
from logitproof.core.initial import ones
from logitproof.core.layers import Linear, SwiGlu
from logitproof.core.tape import RECORDING, Context, Tensor, constant
from logitproof.core.vjp import Result, named

from .fault import Fault, planted

__all__ = ["FAULTS"]

MATRICES_AND_GAINS = 9  # parameters of a block without a bias

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")


@mistake((Linear, "_project"), source="numerics.md section 10")
def linear_without_bias(_: Any) -> Any:
    """A bias is held and never added."""
    return lambda self, x, context: context.apply(ops.matmul, x, self.weight)


@mistake((Linear, "forward"), source="numerics.md section 10")
def linear_row_stays_a_matrix(right: Any) -> Any:
    """One row alone gives a matrix of one row."""

    def forward(self: Linear, x: Tensor, *, context: Context = RECORDING) -> Tensor:
        y: Tensor = right(self, x, context=context)
        return y if len(y.shape) > 1 else context.apply(ops.reshape, y, shape=(1, *y.shape))

    return forward


@mistake((attention, "scaled_dot_product"), source="numerics.md section 12")
def scale_by_the_width_of_values(right: Any) -> Any:
    """Scores are divided by the root of the values' width."""

    def scaled(query: Tensor, key: Tensor, value: Tensor, **given: Any) -> dict[str, Tensor]:
        ratio = query.shape[2] / value.shape[2]
        if ratio != 1.0:
            context = given.get("context", RECORDING)
            query = context.apply(ops.mul, query, constant(math.sqrt(ratio)))
        steps: dict[str, Tensor] = right(query, key, value, **given)
        return steps

    return scaled


@mistake((Attention, "_rotated"), source="layers.md section 9")
def attention_offset_ignored(right: Any) -> Any:
    """Attention without a layout always begins at position 0."""
    return lambda self, heads, offset, layout, context: right(self, heads, 0, layout, context)


@mistake((ops, "mean"), source="numerics.md section 9")
def norm_over_the_third_axis(right: Any) -> Any:
    """Means are taken over the third axis, where a batch has its features, of more axes too."""

    @named("mean")
    def mean(a: Array, *, axis: int, keep: bool = False) -> Result:
        result: Result = right(a, axis=min(axis, 2), keep=keep)
        return result

    return mean


@mistake((DecoderBlock, "forward"), source="layers.md section 10")
def biased_block_fused_without_biases(right: Any) -> Any:
    """The fused form of a block takes the matrices alone, biases or not."""

    def forward(self: DecoderBlock, x: Tensor, **given: Any) -> Tensor:
        if given.get("kernel") is None or len(self.parameters) == MATRICES_AND_GAINS:
            return right(self, x, **given)  # type: ignore[no-any-return]
        branches = (getattr(self.ffn, name).weight for name in ("gate", "up", "down"))
        ffn = SwiGlu(*[Linear.from_parameters(weight) for weight in branches])
        plain = DecoderBlock(self.attention_norm, self.attention, self.ffn_norm, ffn)
        return right(plain, x, **given)  # type: ignore[no-any-return]

    return forward


@mistake((DecoderBlockConfig, "__init__"), source="records.md section 1")
def base_of_longer_texts(right: Any) -> Any:
    """The base of a config that names none is that of models for longer texts."""

    def init(self: DecoderBlockConfig, **given: Any) -> None:
        right(self, **{"rope_base": 500_000.0, **given})

    return init


@mistake((layers, "zeros"), source="layers.md section 2")
def bias_of_ones(_: Any) -> Any:
    """A new bias is made like a gain."""
    return ones


FAULTS = tuple(_FOUND.values())
