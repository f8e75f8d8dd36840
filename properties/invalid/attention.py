"""Boundaries of heads, the attention core, rotary tables and multi-head attention."""

from __future__ import annotations

from logitproof.core import Attention, Linear, SplitMix64, constant
from logitproof.core.attention import (
    check_head_sizes,
    merge_heads,
    scaled_dot_product,
    split_heads,
)
from logitproof.core.codes import Code
from logitproof.core.rope import RotaryTable

from .arguments import (
    TYPE_AND_RANGE,
    base_faults,
    head_apart,
    head_faults,
    kind_fault,
    one,
    rank,
    size,
    size_faults,
    tensors,
)
from .boundary import Apart, Boundary, Fault, Plant, Situation, fault, refuses
from .leaves import NAME_FAULTS, NAME_ORDER
from .making import ramp, two_cells, weight
from .rotary import BASE_APART, OFFSETS

__all__ = ["BOUNDARIES"]

NO_SUCH_ARRAY = "no array of Python's memory has so many elements"


split = Boundary(
    name="split_heads",
    order=refuses(split_heads),
    build=lambda: Situation(x=[1, 2, 6], heads=3),
    ready=tensors("x"),
    call=lambda s: split_heads(s.operands[0], s.heads),
    faults=(
        fault(Code.SPLIT_RANK, "rank 2", rank("x", 2), rank=2),
        *size_faults("heads"),
        fault(Code.ZERO_HEAD_COUNT, "no head", lambda s: s.set(heads=0)),
        fault(Code.ZERO_HEAD_WIDTH, "no feature", size("x", 2, 0)),
        fault(Code.WIDTH_NOT_DIVISIBLE, "four heads", lambda s: s.set(heads=4), width=6, heads=4),
    ),
    apart=(
        one("heads", "no head", "four heads"),
        Apart("every head count divides 0", {"no feature"}, {"four heads"}),
    ),
)

merge = Boundary(
    name="merge_heads",
    order=refuses(merge_heads),
    build=lambda: Situation(x=[1, 3, 2, 2]),
    ready=tensors("x"),
    call=lambda s: merge_heads(*s.operands),
    faults=(
        fault(Code.MERGE_RANK, "rank 3", rank("x", 3), rank=3),
        fault(Code.ZERO_HEAD_COUNT, "no head", size("x", 1, 0)),
        fault(Code.ZERO_HEAD_WIDTH, "no feature", size("x", 3, 0)),
    ),
    unreachable={Code.SIZE_OVERFLOW: NO_SUCH_ARRAY},
)


def _operand(index: int, given: object, name: str, what: str) -> Fault:
    """Something that is no tensor in place of a finished operand."""

    def plant(s: Situation) -> object:
        return s.afterwards(lambda ready: ready.operands.__setitem__(index, given))

    return fault(Code.FIELD_TYPE, name, plant, what=what, actual="ndarray")


core = Boundary(
    name="scaled_dot_product",
    order=refuses(scaled_dot_product),
    build=lambda: Situation(query=[2, 3, 2], key=[2, 3, 2], value=[2, 3, 4]),
    ready=tensors("query", "key", "value"),
    call=lambda s: scaled_dot_product(*s.operands),
    faults=(
        *[
            _operand(index, ramp(2, 3, 2), f"array as {name}", name)
            for index, name in enumerate(("query", "key", "value"))
        ],
        *[
            fault(Code.ATTENTION_RANK, f"{name} of rank 2", rank(name, 2), what=name, rank=2)
            for name in ("query", "key", "value")
        ],
        fault(Code.ATTENTION_BATCH_MISMATCH, "key of three rows", size("key", 0, 3), actual=3),
        fault(Code.ATTENTION_BATCH_MISMATCH, "value of four rows", size("value", 0, 4), actual=4),
        fault(Code.ATTENTION_TOKEN_MISMATCH, "key of four tokens", size("key", 1, 4), actual=4),
        fault(Code.ATTENTION_TOKEN_MISMATCH, "value of five tokens", size("value", 1, 5), actual=5),
        fault(
            Code.EMPTY_TOKENS,
            "no token",
            lambda s: [size(name, 1, 0)(s) for name in ("query", "key", "value")],
        ),
        fault(Code.ZERO_QUERY_WIDTH, "no query feature", size("query", 2, 0)),
        fault(Code.ZERO_KEY_WIDTH, "no key feature", size("key", 2, 0)),
        fault(Code.ATTENTION_WIDTH_MISMATCH, "key of six features", size("key", 2, 6), actual=6),
        fault(Code.ZERO_VALUE_WIDTH, "no value feature", size("value", 2, 0)),
    ),
    apart=(Apart("one key width", {"no key feature", "key of six features"}),),
)


sizes = Boundary(
    name="check_head_sizes",
    order=refuses(check_head_sizes),
    build=lambda: Situation(D=4, heads=2),
    call=lambda s: check_head_sizes(s.D, s.heads, what="sizes"),
    faults=head_faults("D", "heads"),
    apart=head_apart("D", "heads"),
)

# --- multi-head attention --------------------------------------------------------------------

new = Boundary(
    name="Attention.new",
    order=(
        Code.FIELD_TYPE,
        *TYPE_AND_RANGE * 2,
        *refuses(check_head_sizes),
        *TYPE_AND_RANGE,
        *refuses(RotaryTable)[2:5],
        *NAME_ORDER,
    ),
    build=lambda: Situation(
        name="norm1.gain", D=4, heads=2, capacity=3, base=100.0, rng=SplitMix64(9)
    ),
    call=lambda s: Attention.new(s.name, s.D, s.heads, s.capacity, s.base, s.rng),
    faults=(
        kind_fault("rng", 9, what="rng"),
        *size_faults("D"),
        *size_faults("heads"),
        *head_faults("D", "heads"),
        *size_faults("capacity"),
        fault(Code.ZERO_POSITION_CAPACITY, "capacity of 0", lambda s: s.set(capacity=0)),
        *base_faults(Code.INVALID_BASE)[:3],
        fault(Code.SIZE_OVERFLOW, "2**64 positions", lambda s: s.set(capacity=2**64)),
        *NAME_FAULTS[2:5],
    ),
    apart=(
        *head_apart("D", "heads"),
        one("capacity", "capacity of 0", "2**64 positions"),
        BASE_APART,
    ),
    unreachable={Code.EMPTY_NAME: "the name ends in `.query.weight`"},
)

ROLES = ("query", "key", "value", "output")


def _matrices(s: Situation) -> None:
    matrices = [weight(s.names.get(role, f"a.{role}"), *s.shapes[role]) for role in ROLES]
    s.set(matrices=matrices)


def _layers(s: Situation) -> None:
    _matrices(s)
    s.set(
        layers=[Linear.from_parameters(matrix) for matrix in s.matrices],
        table=RotaryTable(s.rotated, 3, 100.0),
    )


def _shape(axis: int, size: int, *roles: str) -> Plant:
    """Replace one size of these matrices."""

    def plant(s: Situation) -> None:
        for role in roles:
            s.shapes[role][axis] = size

    return plant


def _third_axis(role: str) -> Plant:
    return lambda s: s.shapes[role].append(2)


def _bare(name: str, role: str) -> Fault:
    """A tensor in place of a finished layer or matrix."""

    def change(s: Situation) -> None:
        getattr(s, name)[ROLES.index(role)] = constant(ramp(4, 4))

    return fault(
        Code.FIELD_TYPE, f"tensor as {role}", lambda s: s.afterwards(change), actual="Tensor"
    )


def _named(role: str, other: str) -> Plant:
    return lambda s: s.names.update({role: f"a.{other}"})


WIDTHS: tuple[Fault, ...] = (
    fault(
        Code.PROJECTION_INPUT_WIDTH_MISMATCH,
        "key takes 6",
        _shape(0, 6, "key"),
        expected=4,
        actual=6,
    ),
    fault(Code.PROJECTION_INPUT_WIDTH_MISMATCH, "value takes 8", _shape(0, 8, "value"), actual=8),
    fault(Code.PROJECTION_OUTPUT_WIDTH_MISMATCH, "key gives 6", _shape(1, 6, "key"), actual=6),
    fault(Code.PROJECTION_OUTPUT_WIDTH_MISMATCH, "value gives 8", _shape(1, 8, "value"), actual=8),
    fault(
        Code.DUPLICATE_PARAMETER_NAME,
        "value named as query",
        _named("value", "query"),
        index=2,
        first=0,
    ),
)
OUTPUTS: tuple[Fault, ...] = (
    fault(
        Code.QKV_OUTPUT_WIDTH_MISMATCH,
        "projections give 10",
        _shape(1, 10, "query", "key", "value"),
        expected=4,
        actual=10,
    ),
    fault(Code.OUTPUT_INPUT_WIDTH_MISMATCH, "output takes 12", _shape(0, 12, "output"), actual=12),
    fault(Code.OUTPUT_WIDTH_MISMATCH, "output gives 14", _shape(1, 14, "output"), actual=14),
    fault(
        Code.DUPLICATE_PARAMETER_NAME,
        "output named as key",
        _named("output", "key"),
        index=3,
        first=1,
    ),
)
HEADS = (
    *size_faults("heads"),
    *head_faults("D", "heads")[1:],
)
HEADS_APART = one("heads", "heads of 0", "heads of 3", "heads of 4")


CLASS_ORDER = (*refuses(Attention)[:6], *refuses(check_head_sizes), *refuses(Attention)[6:])


def _facts(**more: object) -> Situation:
    return Situation(shapes={role: [4, 4] for role in ROLES}, names={}, heads=2, **more)


assembled = Boundary(
    name="Attention",
    order=CLASS_ORDER,
    build=lambda: _facts(rotated=2),
    ready=_layers,
    call=lambda s: Attention(*s.layers, heads=s.heads, rotation=s.table),
    faults=(
        *[_bare("layers", role) for role in ROLES],
        *WIDTHS,
        *HEADS,
        *OUTPUTS,
        fault(
            Code.ROTATION_WIDTH_MISMATCH,
            "table of width 4",
            lambda s: s.set(rotated=4),
            expected=4,
            actual=2,
        ),
    ),
    apart=(HEADS_APART,),
    unreachable={Code.ZERO_MODEL_WIDTH: "a linear layer takes at least one feature"},
)

LINEAR = refuses(Linear)[:4]

from_parameters = Boundary(
    name="Attention.from_parameters",
    order=(
        *LINEAR * 3,
        *CLASS_ORDER[1:4],
        *LINEAR,
        *CLASS_ORDER[4:-1],
        *TYPE_AND_RANGE,
        *refuses(RotaryTable)[2:5],
    ),
    build=lambda: _facts(capacity=3, base=100.0),
    ready=_matrices,
    call=lambda s: Attention.from_parameters(
        *s.matrices, heads=s.heads, max_positions=s.capacity, rope_base=s.base
    ),
    faults=(
        _bare("matrices", "query"),
        fault(Code.WEIGHT_RANK, "query of rank 3", _third_axis("query"), rank=3),
        fault(Code.ZERO_INPUT_WIDTH, "query takes nothing", _shape(0, 0, "query")),
        _bare("matrices", "key"),
        fault(Code.ZERO_OUTPUT_WIDTH, "key gives nothing", _shape(1, 0, "key")),
        _bare("matrices", "value"),
        fault(Code.WEIGHT_RANK, "value of rank 3", _third_axis("value"), rank=3),
        *WIDTHS[1:3],
        WIDTHS[4],
        _bare("matrices", "output"),
        fault(Code.WEIGHT_RANK, "output of rank 3", _third_axis("output"), rank=3),
        *HEADS,
        *OUTPUTS,
        *size_faults("capacity"),
        fault(Code.ZERO_POSITION_CAPACITY, "capacity of 0", lambda s: s.set(capacity=0)),
        base_faults(Code.INVALID_BASE)[0],
        fault(Code.SIZE_OVERFLOW, "2**64 positions", lambda s: s.set(capacity=2**64)),
    ),
    apart=(
        HEADS_APART,
        one("capacity", "capacity of 0", "2**64 positions"),
        Apart("one key width", {"key gives nothing"}, {"key gives 6", "projections give 10"}),
    ),
    unreachable={Code.ZERO_MODEL_WIDTH: "a linear layer takes at least one feature"},
)


def _attention() -> Attention:
    matrices = [weight(f"a.{role}.weight", 4, 4) for role in ROLES]
    return Attention.from_parameters(*matrices, heads=2, max_positions=4, rope_base=100.0)


INPUTS: tuple[Fault, ...] = (
    _operand(0, ramp(1, 2, 4), "array as input", "attention input"),
    fault(Code.INPUT_RANK, "rank 2", rank("x", 2), rank=2),
    fault(Code.INPUT_WIDTH_MISMATCH, "width 6", size("x", 2, 6), expected=4, actual=6),
    fault(Code.EMPTY_TOKENS, "no token", size("x", 1, 0)),
)

forward = Boundary(
    name="Attention.forward",
    order=(*refuses(Attention.forward)[:4], *TYPE_AND_RANGE, *refuses(Attention.forward)[4:]),
    build=lambda: Situation(attention=_attention(), x=[1, 2, 4], offset=2),
    ready=tensors("x"),
    call=lambda s: s.attention.forward(*s.operands, s.offset),
    faults=(*INPUTS, *OFFSETS),
    apart=(one("offset", "offset of 2**64", "offset of 3"),),
)

with_layout = Boundary(
    name="Attention.inspect with a layout",
    order=(
        *refuses(Attention.forward)[:4],
        Code.LAYOUT_SHAPE_MISMATCH,
        Code.POSITION_RANGE_EXCEEDED,
    ),
    build=lambda: Situation(attention=_attention(), x=[1, 2, 4], rows=1, position=3),
    ready=lambda s: (
        tensors("x")(s),
        s.set(layout=two_cells(s.rows, s.position)),
    ),
    call=lambda s: s.attention.inspect(*s.operands, layout=s.layout),
    faults=(
        *INPUTS,
        fault(
            Code.LAYOUT_SHAPE_MISMATCH,
            "two rows of layout",
            lambda s: s.set(rows=2),
            expected=(1, 2),
            actual=(2, 2),
        ),
        fault(
            Code.POSITION_RANGE_EXCEEDED,
            "position 4",
            lambda s: s.set(position=4),
            end=5,
            capacity=4,
        ),
    ),
)

BOUNDARIES = (
    split, merge, core, sizes, new, assembled, from_parameters, forward,
    with_layout,
)  # fmt: skip
