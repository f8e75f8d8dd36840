"""Heads, the scaled dot-product core, and multi-head causal attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from . import ops
from .errors import Code, ShapeRefusal, at_stage, check_equal, check_kind, check_not_zero
from .floats import Array, Ids
from .initial import SplitMix64, check_size
from .layers import Linear, parameters_of
from .names import check_distinct
from .rope import RotaryTable
from .tape import RECORDING, Context, Parameter, Tensor, constant

if TYPE_CHECKING:
    from .layout import SequenceLayout

__all__ = ["Attention", "merge_heads", "scaled_dot_product", "split_heads"]


ROLES = ("query", "key", "value", "output")
PROJECTION_IN = Code.PROJECTION_INPUT_WIDTH_MISMATCH
PROJECTION_OUT = Code.PROJECTION_OUTPUT_WIDTH_MISMATCH


def split_heads(x: Tensor, heads: int, *, context: Context = RECORDING) -> Tensor:
    """[B, T, D] -> [B, H, T, D / H].

    Refuses: shape/split-rank, record/field-type, record/field-range, shape/zero-head-count,
        shape/zero-head-width, shape/width-not-divisible
    Source:  layers.md section 6
    """
    check_equal(Code.SPLIT_RANK, "heads", 3, len(x.shape))
    B, T, D = x.shape
    heads = check_size(heads, what="heads")
    check_not_zero(Code.ZERO_HEAD_COUNT, "heads", heads)
    check_not_zero(Code.ZERO_HEAD_WIDTH, "heads", D)
    if D % heads:
        raise ShapeRefusal(code=Code.WIDTH_NOT_DIVISIBLE, what="heads", expected=heads, actual=D)
    split = context.apply(ops.reshape, x, shape=(B, T, heads, D // heads))
    return context.apply(ops.transpose, split, axes=(1, 2))


def merge_heads(x: Tensor, *, context: Context = RECORDING) -> Tensor:
    """[B, H, T, d_h] -> [B, T, H * d_h], the exact inverse of `split_heads`.

    Refuses: shape/merge-rank, shape/zero-head-count, shape/zero-head-width,
        capacity/size-overflow
    Source:  layers.md section 6
    """
    check_equal(Code.MERGE_RANK, "heads", 4, len(x.shape))
    B, H, T, d_h = x.shape
    check_not_zero(Code.ZERO_HEAD_COUNT, "heads", H)
    check_not_zero(Code.ZERO_HEAD_WIDTH, "heads", d_h)
    rows = context.apply(ops.transpose, x, axes=(1, 2))
    return context.apply(ops.reshape, rows, shape=(B, T, H * d_h))


def scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    range_starts: Ids | None = None,
    lengths: Ids | None = None,
    context: Context = RECORDING,
) -> dict[str, Tensor]:
    """Causal attention per lane: softmax(query key^T / sqrt(d_h)) value.

    query, key: [N, T, d_h]; value: [N, T, d_v]; range_starts: [N, T]; lengths: [N]
    Returns: scores (before softmax), probabilities, mix
    Refuses: record/field-type, shape/attention-rank (both query, key, value),
        shape/attention-batch-mismatch, shape/attention-token-mismatch, shape/empty-tokens,
        shape/zero-query-width,
        shape/zero-key-width, shape/attention-width-mismatch, shape/zero-value-width
    Source:  numerics.md section 12, layers.md section 8
    """
    _check_core(query, key, value)
    with at_stage("scores"):
        key_columns = context.apply(ops.transpose, key, axes=(1, 2))
        raw = context.apply(ops.matmul, query, key_columns)
        scale = constant(1.0 / math.sqrt(float(query.shape[2])))
        scores = context.apply(ops.mul, raw, scale)
    with at_stage("probabilities"):
        probabilities = context.apply(
            ops.causal_softmax, scores, range_starts=range_starts, lengths=lengths
        )
    with at_stage("mix"):
        mix = context.apply(ops.matmul, probabilities, value)
    return {"scores": scores, "probabilities": probabilities, "mix": mix}


def _check_core(query: Tensor, key: Tensor, value: Tensor) -> None:
    operands = {"query": query, "key": key, "value": value}
    for name, operand in operands.items():
        check_kind(operand, Tensor, name)
    for name, operand in operands.items():
        check_equal(Code.ATTENTION_RANK, name, 3, len(operand.shape))
    for axis, code in enumerate((Code.ATTENTION_BATCH_MISMATCH, Code.ATTENTION_TOKEN_MISMATCH)):
        for other in (key, value):
            check_equal(code, "attention", query.shape[axis], other.shape[axis])
    check_not_zero(Code.EMPTY_TOKENS, "attention", query.shape[1])
    check_not_zero(Code.ZERO_QUERY_WIDTH, "attention", query.shape[2])
    check_not_zero(Code.ZERO_KEY_WIDTH, "attention", key.shape[2])
    check_equal(Code.ATTENTION_WIDTH_MISMATCH, "attention", query.shape[2], key.shape[2])
    check_not_zero(Code.ZERO_VALUE_WIDTH, "attention", value.shape[2])


def check_head_sizes(D: int, heads: int, *, what: str) -> int:
    """The head width D / H.

    Refuses: shape/zero-model-width, shape/zero-head-count, shape/model-width-not-divisible,
        shape/odd-head-width
    Source:  layers.md section 9
    """
    check_not_zero(Code.ZERO_MODEL_WIDTH, what, D)
    check_not_zero(Code.ZERO_HEAD_COUNT, what, heads)
    if D % heads:
        raise ShapeRefusal(code=Code.MODEL_WIDTH_NOT_DIVISIBLE, what=what, expected=heads, actual=D)
    if D // heads % 2:
        raise ShapeRefusal(code=Code.ODD_HEAD_WIDTH, what=what, expected="even", actual=D // heads)
    return D // heads


class Attention:
    """Multi-head causal attention with rotated queries and keys.

    Refuses: record/field-type, shape/projection-input-width-mismatch,
        shape/projection-output-width-mismatch, record/duplicate-parameter-name (query, key,
        value), record/field-type, record/field-range (heads), `check_head_sizes` (D from the
        query weight), shape/qkv-output-width-mismatch, shape/output-input-width-mismatch,
        shape/output-width-mismatch, record/duplicate-parameter-name,
        shape/rotation-width-mismatch
    Source:  numerics.md section 12, layers.md sections 5 and 9
    """

    __slots__ = ("heads", "key", "output", "query", "rotation", "value")

    def __init__(
        self,
        query: Linear,
        key: Linear,
        value: Linear,
        output: Linear,
        *,
        heads: int,
        rotation: RotaryTable,
    ) -> None:
        for role, layer in zip(ROLES, (query, key, value, output), strict=True):
            check_kind(layer, Linear, f"attention {role}")
        _check_projections(query, key, value)
        self.heads = check_size(heads, what="heads")
        d_h = _check_output(query, key, value, output, self.heads)
        check_equal(Code.ROTATION_WIDTH_MISMATCH, "attention", rotation.width, d_h)
        self.query, self.key, self.value, self.output = query, key, value, output
        self.rotation = rotation

    @classmethod
    def from_parameters(
        cls,
        query: Parameter,
        key: Parameter,
        value: Parameter,
        output: Parameter,
        *,
        heads: int,
        max_positions: int,
        rope_base: float,
    ) -> Attention:
        """Attention over existing matrices; the same nodes.

        Refuses: Linear's (query, key, value), the class's up to the names of query, key and
            value, Linear's (output), the class's, the rotary table's
        """
        q, k, v = (Linear.from_parameters(p) for p in (query, key, value))
        _check_projections(q, k, v)
        o = Linear.from_parameters(output)
        heads = check_size(heads, what="heads")
        d_h = _check_output(q, k, v, o, heads)
        rotation = RotaryTable(d_h, max_positions, rope_base)
        return cls(q, k, v, o, heads=heads, rotation=rotation)

    @classmethod
    def new(
        cls,
        prefix: str,
        D: int,
        heads: int,
        max_positions: int,
        rope_base: float,
        rng: SplitMix64,
        *,
        rotation: RotaryTable | None = None,
    ) -> Attention:
        """Drawn query, key, value, output [D, D]; `rotation` may hand over a table's values.

        Refuses: record/field-type, `check_head_sizes`, the rotary table's, then Linear.new's
            and the class's; keeps `rng` then
        """
        check_kind(rng, SplitMix64, "rng")
        D, heads = check_size(D, what="model width"), check_size(heads, what="heads")
        d_h = check_head_sizes(D, heads, what=prefix)
        if rotation is None:
            rotation = RotaryTable(d_h, max_positions, rope_base)
        draft = rng.copy()
        q, k, v, o = (Linear.new(f"{prefix}.{role}", D, D, False, draft) for role in ROLES)
        attention = cls(q, k, v, o, heads=heads, rotation=rotation)
        rng.state = draft.state
        return attention

    @property
    def model_width(self) -> int:
        """Residual features D."""
        return self.query.input_width

    @property
    def head_width(self) -> int:
        """Features per head, d_h."""
        return self.rotation.width

    @property
    def kv_heads(self) -> int:
        """Key/value heads; here always the query heads."""
        return self.heads

    @property
    def context_window(self) -> None:
        """None: every query reads its whole prefix."""
        return None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Query, key, value, output."""
        return parameters_of((self.query, self.key, self.value, self.output))

    def forward(self, x: Tensor, offset: int = 0, *, context: Context = RECORDING) -> Tensor:
        """x: [B, T, D], token t at position offset + t. Returns: [B, T, D].

        Refuses: record/field-type, shape/input-rank, shape/input-width-mismatch,
            shape/empty-tokens, capacity/position-offset-overflow,
            capacity/position-range-exceeded
        """
        return self.inspect(x, offset, context=context)["output"]

    def inspect(
        self,
        x: Tensor,
        offset: int = 0,
        *,
        layout: SequenceLayout | None = None,
        context: Context = RECORDING,
    ) -> dict[str, Tensor]:
        """`forward` with its steps: query, key, value, scores, probabilities, mix, output.

        A layout gives every cell its own position and key range.

        Refuses: as `forward`; with a layout shape/layout-shape-mismatch in place of the
            offset's
        """
        check_kind(x, Tensor, "attention input")
        self._check_input(x)
        if layout is not None and layout.shape != x.shape[:2]:
            raise ShapeRefusal(
                code=Code.LAYOUT_SHAPE_MISMATCH,
                what=self._what,
                expected=x.shape[:2],
                actual=layout.shape,
            )
        if layout is None:
            self.rotation.check_range(offset, x.shape[1], what=self._what)
        query, key, value = self.heads_of(x, context=context)
        with at_stage("query_rotation"):
            query = self._rotated(query, offset, layout, context)
        with at_stage("key_rotation"):
            key = self._rotated(key, offset, layout, context)
        return self._attend(query, key, value, layout, context)

    def _rotated(
        self, heads: Tensor, offset: int, layout: SequenceLayout | None, context: Context
    ) -> Tensor:
        if layout is None:
            return self.rotation.rotate(heads, offset, context=context)
        return self.rotation.rotate_at(heads, layout.positions, context=context)

    def turns(self, layout: SequenceLayout) -> tuple[Array, Array]:
        """Cosines and sines of every cell: [T, d_h / 2], or [B, 1, T, d_h / 2]."""
        cosines, sines = self.rotation.cosines, self.rotation.sines
        if layout.is_ordinary:
            T = layout.shape[1]
            return cosines[:T], sines[:T]
        return cosines[layout.positions][:, None], sines[layout.positions][:, None]

    @property
    def _what(self) -> str:
        return self.query.weight.name.removesuffix(".query.weight")

    def _check_input(self, x: Tensor) -> None:
        check_equal(Code.INPUT_RANK, self._what, 3, len(x.shape))
        check_equal(Code.INPUT_WIDTH_MISMATCH, self._what, self.model_width, x.shape[2])
        check_not_zero(Code.EMPTY_TOKENS, self._what, x.shape[1])

    def heads_of(self, x: Tensor, *, context: Context) -> tuple[Tensor, ...]:
        """Query, key and value [B, H, T, d_h], projected in this order."""
        projected = []
        for role in ROLES[:3]:
            with at_stage(role):
                projected.append(getattr(self, role).forward(x, context=context))
        return tuple(split_heads(p, self.heads, context=context) for p in projected)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        layout: SequenceLayout | None,
        context: Context,
    ) -> dict[str, Tensor]:
        B, H, T, d_h = query.shape
        lanes = [
            context.apply(ops.reshape, heads, shape=(B * H, T, d_h))
            for heads in (query, key, value)
        ]
        starts, lengths = (None, None) if layout is None else layout.lanes(H)
        core = scaled_dot_product(*lanes, range_starts=starts, lengths=lengths, context=context)
        mix = context.apply(ops.reshape, core["mix"], shape=(B, H, T, d_h))
        with at_stage("output"):
            output = self.output.forward(merge_heads(mix, context=context), context=context)
        return {"query": query, "key": key, "value": value, **core, "mix": mix, "output": output}


def _check_projections(query: Linear, key: Linear, value: Linear) -> None:
    for layer in (key, value):
        _check_equal(PROJECTION_IN, layer, query.input_width, layer.input_width)
    for layer in (key, value):
        _check_equal(PROJECTION_OUT, layer, query.output_width, layer.output_width)
    check_distinct([p.name for p in parameters_of((query, key, value))])


def _check_output(query: Linear, key: Linear, value: Linear, output: Linear, heads: int) -> int:
    """The head width, when the output projection fits the others."""
    D = query.input_width
    d_h = check_head_sizes(D, heads, what="attention")
    _check_equal(Code.QKV_OUTPUT_WIDTH_MISMATCH, query, D, query.output_width)
    _check_equal(Code.OUTPUT_INPUT_WIDTH_MISMATCH, output, query.output_width, output.input_width)
    _check_equal(Code.OUTPUT_WIDTH_MISMATCH, output, D, output.output_width)
    check_distinct([p.name for p in parameters_of((query, key, value, output))])
    return d_h


def _check_equal(code: Code, layer: Linear, expected: int, actual: int) -> None:
    check_equal(code, layer.weight.name, expected, actual)
