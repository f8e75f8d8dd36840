"""Embedding, Linear, RmsNorm, SwiGlu: parameters, and the operations they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import fused, ops
from .arrays import (
    MAX_RANK,
    SIZE_LIMIT,
    as_integers,
    as_real,
    check_bounds,
    check_reservable,
    shown,
)
from .errors import (
    Code,
    NumericRefusal,
    ShapeRefusal,
    at_stage,
    check_equal,
    check_kind,
    check_not_zero,
)
from .initial import SplitMix64, check_size, ones, xavier, zeros
from .kernels import Kernel
from .names import check_distinct, check_name
from .tape import RECORDING, Context, Parameter, Tensor, constant

__all__ = ["Embedding", "Linear", "RmsNorm", "SwiGlu", "add_residual"]


class Embedding:
    """A table of one row per token id.

    Refuses: record/field-type, shape/table-rank, shape/empty-vocabulary, shape/zero-embedding-width
    Source:  layers.md section 1
    """

    __slots__ = ("table",)

    def __init__(self, table: Parameter) -> None:
        check_kind(table, Parameter, "embedding table")
        rank = len(table.shape)
        check_equal(Code.TABLE_RANK, table.name, 2, rank)
        _check_table_sizes(*table.shape, name=table.name)
        self.table = table

    @classmethod
    def from_parameter(cls, parameter: Parameter) -> Embedding:
        """An embedding over an existing table; the same node. Refuses: as the class."""
        return cls(parameter)

    @classmethod
    def new(cls, name: str, V: int, D: int, rng: SplitMix64) -> Embedding:
        """A drawn table [V, D].

        Refuses: names' codes, record/field-type, record/field-range, shape/empty-vocabulary,
            shape/zero-embedding-width, capacity/size-overflow; every refusal keeps `rng`
        """
        check_name(name)
        check_kind(rng, SplitMix64, "rng")
        V, D = check_size(V, what=f"{name} rows"), check_size(D, what=f"{name} width")
        _check_table_sizes(V, D, name=name)
        return cls(xavier(name, V, D, rng))

    def forward(
        self, ids: object, shape: Sequence[int] | None = None, *, context: Context = RECORDING
    ) -> Tensor:
        """The rows of `ids`: flat ids with a shape, or an integer array of its own shape.

        Returns: [*shape, D]
        Refuses: shape/ragged-ids, index/not-an-integer, shape/shape-with-nested-ids,
            shape/token-shape, shape/token-count-mismatch, index/token-id-out-of-bounds,
            state/released-operand
        """
        V = self.table.shape[0]
        integers = as_integers(ids, what="ids", bound=V)
        if shape is not None:
            integers = _shaped(integers, shape)
        selectors = check_bounds(integers, bound=V, code=Code.TOKEN_ID_OUT_OF_BOUNDS, what="ids")
        return context.apply(ops.checked_rows, self.table, selectors=selectors)


def _check_table_sizes(V: int, D: int, *, name: str) -> None:
    check_not_zero(Code.EMPTY_VOCABULARY, name, V)
    check_not_zero(Code.ZERO_EMBEDDING_WIDTH, name, D)


def _shaped(integers: np.ndarray[Any, Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    if integers.ndim != 1:
        raise ShapeRefusal(
            code=Code.SHAPE_WITH_NESTED_IDS, what="ids", expected=1, actual=integers.shape
        )
    sizes = as_integers(shape, what="token shape")
    count = 1
    for size in sizes.reshape(-1).tolist():
        count *= size or 1  # a size of 0 hides no overflow of the others
    too_many = count > SIZE_LIMIT or sizes.size > MAX_RANK
    if sizes.ndim != 1 or (sizes < 0).any() or too_many:
        raise ShapeRefusal(
            code=Code.TOKEN_SHAPE,
            what="ids",
            expected=f"{MAX_RANK} sizes or less of 0 or more, at most {SIZE_LIMIT} ids",
            actual=shape,
        )
    count = 0 if 0 in sizes else count
    check_equal(Code.TOKEN_COUNT_MISMATCH, "ids", count, integers.size)
    check_reservable(*sizes.tolist())
    return integers.reshape(tuple(sizes.tolist()))


class Linear:
    """y = x @ weight (+ bias), weight [in, out].

    Refuses: record/field-type, shape/weight-rank, shape/zero-input-width, shape/zero-output-width,
        shape/bias-rank, shape/bias-width-mismatch, record/duplicate-parameter-name
    Source:  layers.md section 2
    """

    __slots__ = ("bias", "weight")

    def __init__(self, weight: Parameter, bias: Parameter | None = None) -> None:
        check_kind(weight, Parameter, "linear weight")
        check_kind(bias, (Parameter, type(None)), "linear bias")
        rank = len(weight.shape)
        check_equal(Code.WEIGHT_RANK, weight.name, 2, rank)
        _check_widths(*weight.shape, name=weight.name)
        if bias is not None:
            self._check_bias(weight, bias)
        self.weight = weight
        self.bias = bias

    @staticmethod
    def _check_bias(weight: Parameter, bias: Parameter) -> None:
        rank = len(bias.shape)
        check_equal(Code.BIAS_RANK, bias.name, 1, rank)
        check_equal(Code.BIAS_WIDTH_MISMATCH, bias.name, weight.shape[1], bias.shape[0])
        check_distinct([weight.name, bias.name])

    @classmethod
    def from_parameters(cls, weight: Parameter, bias: Parameter | None = None) -> Linear:
        """A layer over existing parameters; the same nodes. Refuses: as the class."""
        return cls(weight, bias)

    @classmethod
    def new(
        cls, prefix: str, input_width: int, output_width: int, bias: bool, rng: SplitMix64
    ) -> Linear:
        """Drawn `prefix.weight`, and `prefix.bias` of zeros where asked for.

        Refuses: names' codes, record/field-type, record/field-range, shape/zero-input-width,
            shape/zero-output-width, capacity/size-overflow; every refusal keeps `rng`
        """
        name = f"{prefix}.weight"
        check_name(name)
        check_kind(rng, SplitMix64, "rng")
        check_kind(bias, bool, f"{name} bias flag")
        input_width = check_size(input_width, what=f"{name} input width")
        output_width = check_size(output_width, what=f"{name} output width")
        _check_widths(input_width, output_width, name=name)
        weight = xavier(name, input_width, output_width, rng)
        return cls(weight, zeros(f"{prefix}.bias", output_width) if bias else None)

    @property
    def input_width(self) -> int:
        """Features taken."""
        return self.weight.shape[0]

    @property
    def output_width(self) -> int:
        """Features given."""
        return self.weight.shape[1]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Weight, then bias."""
        return parameters_of((self,))

    def forward(self, x: Tensor, *, context: Context = RECORDING) -> Tensor:
        """x: [..., in]. Returns: [..., out].

        Refuses: record/field-type, shape/input-rank, shape/input-width-mismatch
        """
        what = self.weight.name
        check_kind(x, Tensor, f"{what} input")
        rank = len(x.shape)
        if rank == 0:
            raise ShapeRefusal(code=Code.INPUT_RANK, what=what, expected="1 or more", actual=0)
        check_equal(Code.INPUT_WIDTH_MISMATCH, what, self.input_width, x.shape[-1])
        if rank > 1:
            return self._project(x, context)
        row = context.apply(ops.reshape, x, shape=(1, self.input_width))
        return context.apply(ops.reshape, self._project(row, context), shape=(self.output_width,))

    def _project(self, x: Tensor, context: Context) -> Tensor:
        y = context.apply(ops.matmul, x, self.weight)
        return y if self.bias is None else context.apply(ops.add, y, self.bias)


def parameters_of(linears: Sequence[Linear]) -> tuple[Parameter, ...]:
    """Those of every layer, in order."""
    found: list[Parameter] = []
    for linear in linears:
        found.append(linear.weight)
        if linear.bias is not None:
            found.append(linear.bias)
    return tuple(found)


def _check_widths(input_width: int, output_width: int, *, name: str) -> None:
    check_not_zero(Code.ZERO_INPUT_WIDTH, name, input_width)
    check_not_zero(Code.ZERO_OUTPUT_WIDTH, name, output_width)


def check_epsilon(epsilon: object, *, code: Code, what: str) -> float:
    """A finite epsilon of 0 or more, in units of the squared residual. Refuses: `code`"""
    value = as_real(epsilon)
    if value is None or not 0.0 <= value < float("inf"):
        raise NumericRefusal(code=code, what=what, value=shown(epsilon))
    return value


class RmsNorm:
    """y = x * exp(-0.5 * log(mean(x^2) + epsilon)) * gain, over the last axis.

    The inverse root is never 1/sqrt: the specification fixes the composed form.

    Refuses: record/field-type, numeric/invalid-epsilon, shape/gain-rank, shape/empty-feature-width
    Source:  numerics.md section 9, layers.md section 3
    """

    __slots__ = ("epsilon", "gain")

    def __init__(self, gain: Parameter, epsilon: float) -> None:
        check_kind(gain, Parameter, "norm gain")
        self.epsilon = check_epsilon(epsilon, code=Code.INVALID_EPSILON, what=gain.name)
        if len(gain.shape) != 1:
            raise ShapeRefusal(code=Code.GAIN_RANK, what=gain.name, expected=1, actual=gain.shape)
        _check_feature_width(gain.shape[0], name=gain.name)
        self.gain = gain

    @classmethod
    def from_gain(cls, gain: Parameter, epsilon: float) -> RmsNorm:
        """A norm over an existing gain; the same node. Refuses: as the class."""
        return cls(gain, epsilon)

    @classmethod
    def new(cls, name: str, width: int, epsilon: float) -> RmsNorm:
        """A gain of ones. Refuses: numeric/invalid-epsilon, shape/empty-feature-width, names'"""
        check_epsilon(epsilon, code=Code.INVALID_EPSILON, what=name)
        width = check_size(width, what=f"{name} width")
        _check_feature_width(width, name=name)
        return cls(ones(name, width), epsilon)

    @property
    def width(self) -> int:
        """Features normalised."""
        return self.gain.shape[0]

    def forward(
        self, x: Tensor, *, context: Context = RECORDING, kernel: Kernel | None = None
    ) -> Tensor:
        """x: [..., width]. Returns: the same shape.

        kernel: of the fused form; None runs the steps one by one
        Refuses: record/field-type, shape/input-rank-zero, shape/input-width-mismatch,
            numeric/non-finite-forward (the squares), numeric/zero-energy-row
        """
        gain = self.gain

        def steps(x: Tensor, *_: Tensor) -> Tensor:
            return self.inspect(x, context=context)["output"]

        if kernel is None or getattr(x, "shape", ())[-1:] != gain.shape:
            return steps(x)
        return fused.either(
            context,
            fused.norm,
            x,
            gain,
            *fused.norm_uses(x, kernel)[1:],
            steps=steps,
            epsilon=self.epsilon,
            kernel=kernel,
        )

    def inspect(self, x: Tensor, *, context: Context = RECORDING) -> dict[str, Tensor]:
        """`forward` with its steps: mean_square, inverse_rms, normalized, output."""
        what = self.gain.name
        check_kind(x, Tensor, f"{what} input")
        check_not_zero(Code.INPUT_RANK_ZERO, what, len(x.shape))
        check_equal(Code.INPUT_WIDTH_MISMATCH, what, self.width, x.shape[-1])
        with at_stage("square"):
            square = context.apply(ops.mul, x, x)
        with at_stage("mean_square"):
            mean_square = context.apply(ops.mean, square, axis=len(x.shape) - 1, keep=True)
        self._check_energy(mean_square)
        with at_stage("stabilise"):
            stabilised = context.apply(ops.add, mean_square, constant(self.epsilon))
        with at_stage("scale_log"):
            scaled = context.apply(ops.mul, context.apply(ops.log, stabilised), constant(-0.5))
        with at_stage("reciprocal_root"):
            inverse = context.apply(ops.exp, scaled)
        with at_stage("normalise"):
            normalized = context.apply(ops.mul, x, inverse)
        with at_stage("apply_gain"):
            output = context.apply(ops.mul, normalized, self.gain)
        return {
            "mean_square": mean_square,
            "inverse_rms": inverse,
            "normalized": normalized,
            "output": output,
        }

    def _check_energy(self, mean_square: Tensor) -> None:
        empty = mean_square.value.reshape(-1) == 0.0
        if self.epsilon == 0.0 and empty.any():
            raise NumericRefusal(
                code=Code.ZERO_ENERGY_ROW, what=self.gain.name, at=int(empty.argmax()), value=0.0
            )


def _check_feature_width(width: int, *, name: str) -> None:
    check_not_zero(Code.EMPTY_FEATURE_WIDTH, name, width)


class SwiGlu:
    """y = (silu(x @ gate) * (x @ up)) @ down, bias-free.

    Refuses: record/field-type, shape/branch-input-width-mismatch,
        shape/branch-hidden-width-mismatch, shape/down-input-width-mismatch,
        record/duplicate-parameter-name
    Source:  numerics.md section 10, layers.md section 4
    """

    __slots__ = ("down", "gate", "up")

    def __init__(self, gate: Linear, up: Linear, down: Linear) -> None:
        for role, layer in (("gate", gate), ("up", up), ("down", down)):
            check_kind(layer, Linear, f"swiglu {role}")
        check_equal(
            Code.BRANCH_INPUT_WIDTH_MISMATCH, up.weight.name, gate.input_width, up.input_width
        )
        check_equal(
            Code.BRANCH_HIDDEN_WIDTH_MISMATCH, up.weight.name, gate.output_width, up.output_width
        )
        check_equal(
            Code.DOWN_INPUT_WIDTH_MISMATCH, down.weight.name, gate.output_width, down.input_width
        )
        check_distinct([p.name for p in parameters_of((gate, up, down))])
        self.gate, self.up, self.down = gate, up, down

    @classmethod
    def new(cls, prefix: str, width: int, hidden: int, output: int, rng: SplitMix64) -> SwiGlu:
        """Drawn gate, up, down, in this order. Refuses: as Linear.new; keeps `rng` then"""
        check_kind(rng, SplitMix64, "rng")
        draft = rng.copy()
        gate = Linear.new(f"{prefix}.gate", width, hidden, False, draft)
        up = Linear.new(f"{prefix}.up", width, hidden, False, draft)
        down = Linear.new(f"{prefix}.down", hidden, output, False, draft)
        layer = cls(gate, up, down)
        rng.state = draft.state
        return layer

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Gate, up, down."""
        return parameters_of((self.gate, self.up, self.down))

    def forward(self, x: Tensor, *, context: Context = RECORDING) -> Tensor:
        """x: [..., in]. Returns: [..., out]. Refuses: the gate projection's first"""
        with at_stage("gate"):
            gate = context.apply(ops.silu, self.gate.forward(x, context=context))
        with at_stage("up"):
            up = self.up.forward(x, context=context)
        with at_stage("product"):
            product = context.apply(ops.mul, gate, up)
        with at_stage("down"):
            return self.down.forward(product, context=context)


def add_residual(identity: Tensor, branch: Tensor, *, context: Context, what: str) -> Tensor:
    """identity + branch, of exactly one shape. Refuses: shape/residual-shape-mismatch"""
    check_equal(Code.RESIDUAL_SHAPE_MISMATCH, what, identity.shape, branch.shape)
    return context.apply(ops.add, identity, branch)
