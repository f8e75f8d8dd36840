"""Boundaries of embedding, output head, linear map, SwiGLU and residual sum."""

from __future__ import annotations

from logitproof.core import (
    RECORDING,
    Embedding,
    Linear,
    SplitMix64,
    SwiGlu,
    TextOutputHead,
    constant,
)
from logitproof.core.codes import Code
from logitproof.core.kernels import ORDERED
from logitproof.core.layers import add_residual

from .arguments import TYPE_AND_RANGE, kind_fault, one, size_faults
from .boundary import Apart, Boundary, Situation, fault, refuses
from .leaves import NAME_FAULTS, NAME_ORDER
from .making import MAX, ramp, weight

__all__ = ["BOUNDARIES"]

INF = float("inf")

# --- embedding -------------------------------------------------------------------------------

embedding_new = Boundary(
    name="Embedding.new",
    order=(*NAME_ORDER, Code.FIELD_TYPE, *TYPE_AND_RANGE * 2, *refuses(Embedding.new)[2:]),
    build=lambda: Situation(name="norm1.gain", rows=3, width=2, rng=SplitMix64(5)),
    call=lambda s: Embedding.new(s.name, s.rows, s.width, s.rng),
    faults=(
        *NAME_FAULTS,
        kind_fault("rng", 5, what="rng"),
        *size_faults("rows"),
        *size_faults("width"),
        fault(Code.EMPTY_VOCABULARY, "no row", lambda s: s.set(rows=0)),
        fault(Code.ZERO_EMBEDDING_WIDTH, "no width", lambda s: s.set(width=0)),
        fault(Code.SIZE_OVERFLOW, "2**64 rows", lambda s: s.set(rows=2**64), limit=2**64 - 1),
    ),
    apart=(one("rows", "no row", "2**64 rows"), one("width", "no width")),
)

embedding = Boundary(
    name="Embedding.from_parameter",
    order=refuses(Embedding),
    build=lambda: Situation(shape=[3, 2]),
    ready=lambda s: s.set(table=weight("table", *s.shape)),
    call=lambda s: Embedding.from_parameter(s.table),
    faults=(
        kind_fault("table", constant(ramp(3, 2)), what="embedding table"),
        fault(Code.TABLE_RANK, "rank 3", lambda s: s.set(shape=[*s.shape, 2]), rank=3),
        fault(Code.EMPTY_VOCABULARY, "no row", lambda s: s.set(shape=[0, *s.shape[1:]])),
        fault(Code.ZERO_EMBEDDING_WIDTH, "no width", lambda s: s.set(shape=[s.shape[0], 0])),
    ),
)

SHAPES = {"negative size", "2**64 ids", "33 sizes", "shape of no axis", "shape of two axes"}

lookup = Boundary(
    name="Embedding.forward",
    order=refuses(Embedding.forward),
    build=lambda: Situation(
        layer=Embedding.from_parameter(weight("table", 4, 2)), ids=[1, 2, 3, 0], shape=[2, 2]
    ),
    call=lambda s: s.layer.forward(s.ids, s.shape),
    faults=(
        fault(Code.RAGGED_IDS, "ragged ids", lambda s: s.set(ids=[*s.ids, [0]])),
        fault(
            Code.NOT_AN_INTEGER,
            "float id",
            lambda s: s.set(ids=[1.0, *s.ids[1:]]),
            position=0,
            id=1.0,
            bound=4,
        ),
        fault(
            Code.SHAPE_WITH_NESTED_IDS,
            "nested ids",
            lambda s: s.set(ids=[s.ids[:2], s.ids[2:4]]),
            actual=(2, 2),
        ),
        fault(
            Code.TOKEN_SHAPE,
            "negative size",
            lambda s: s.set(shape=[*s.shape, -1]),
            actual=[2, 2, -1],
        ),
        fault(Code.TOKEN_SHAPE, "2**64 ids", lambda s: s.set(shape=[2**64])),
        fault(Code.TOKEN_SHAPE, "33 sizes", lambda s: s.set(shape=[2, 2, *[1] * 31])),
        fault(
            Code.TOKEN_SHAPE,
            "shape of no axis",
            lambda s: s.afterwards(lambda ready: ready.set(shape=4)),
            actual=4,
        ),
        fault(
            Code.TOKEN_SHAPE,
            "shape of two axes",
            lambda s: s.afterwards(lambda ready: ready.set(shape=[[2, 2]])),
            actual=[[2, 2]],
        ),
        fault(
            Code.TOKEN_COUNT_MISMATCH,
            "one id more",
            lambda s: s.set(ids=[*s.ids, 0]),
            expected=4,
            actual=5,
        ),
        fault(
            Code.TOKEN_ID_OUT_OF_BOUNDS,
            "id 4",
            lambda s: s.set(ids=[s.ids[0], 4, *s.ids[2:]]),
            position=1,
            id=4,
            vocabulary_size=4,
        ),
        fault(
            Code.TOKEN_ID_OUT_OF_BOUNDS,
            "id 9",
            lambda s: s.set(ids=[*s.ids[:2], 9, *s.ids[3:]]),
            position=2,
            id=9,
            vocabulary_size=4,
        ),
        fault(
            Code.TOKEN_ID_OUT_OF_BOUNDS,
            "id -1",
            lambda s: s.set(ids=[*s.ids[:3], -1, *s.ids[4:]]),
            position=3,
            id=-1,
            vocabulary_size=4,
        ),
    ),
    apart=(
        Apart("four flat integers nest", {"nested ids"}, {"one id more", "float id"}),
        Apart("one shape is given", SHAPES),
    ),
    unreachable={Code.RELEASED_OPERAND: "the table is a parameter, and leaves are not released"},
)

head = Boundary(
    name="TextOutputHead",
    order=refuses(TextOutputHead),
    build=lambda: Situation(table=constant(ramp(3, 2))),
    call=lambda s: TextOutputHead(s.table),
    faults=(
        kind_fault("table", ramp(3, 2), what="head table"),
        fault(Code.TABLE_RANK, "rank 1", lambda s: s.set(table=constant(ramp(3))), rank=1),
    ),
)

head_forward, head_by_kernel = (
    Boundary(
        name=f"TextOutputHead.forward{how}",
        order=(*refuses(TextOutputHead.forward), Code.MATMUL_INNER_MISMATCH),
        build=lambda: Situation(context=RECORDING, hidden=ramp(1, 2, 2)),
        ready=lambda s, kernel=kernel: s.set(  # type: ignore[misc]
            head=TextOutputHead(constant(ramp(3, 2)), kernel=kernel), x=constant(s.hidden)
        ),
        call=lambda s: s.head.forward(s.context, s.x),
        faults=(
            kind_fault("context", None, what="context"),
            fault(
                Code.MATMUL_INNER_MISMATCH,
                "three features",
                lambda s: s.set(hidden=ramp(1, 2, 3)),
                left=3,
                right=2,
            ),
            fault(
                Code.MATMUL_INNER_MISMATCH,
                "one feature",
                lambda s: s.set(hidden=ramp(1, 2, 1)),
                left=1,
                right=2,
            ),
        ),
        apart=(one("hidden", "three features", "one feature"),),
    )
    for how, kernel in (("", None), (" by a kernel", ORDERED))
)

# --- linear ----------------------------------------------------------------------------------

linear_new = Boundary(
    name="Linear.new",
    order=(*NAME_ORDER, *[Code.FIELD_TYPE] * 2, *TYPE_AND_RANGE * 2, *refuses(Linear.new)[2:]),
    build=lambda: Situation(name="norm1.gain", taken=3, given=2, bias=True, rng=SplitMix64(5)),
    call=lambda s: Linear.new(s.name, s.taken, s.given, s.bias, s.rng),
    faults=(
        *NAME_FAULTS[2:5],
        kind_fault("rng", 5, what="rng"),
        kind_fault("bias", 1),
        *size_faults("taken"),
        *size_faults("given"),
        fault(Code.ZERO_INPUT_WIDTH, "no input", lambda s: s.set(taken=0)),
        fault(Code.ZERO_OUTPUT_WIDTH, "no output", lambda s: s.set(given=0)),
        fault(Code.SIZE_OVERFLOW, "2**64 inputs", lambda s: s.set(taken=2**64)),
        fault(
            Code.SIZE_OVERFLOW,
            "2**64 inputs and outputs",
            lambda s: s.set(taken=2**64 - 1, given=1),
            required=2**64,
        ),
    ),
    apart=(
        one("taken", "no input", "2**64 inputs", "2**64 inputs and outputs"),
        one("given", "no output", "2**64 inputs and outputs"),
    ),
    unreachable={Code.EMPTY_NAME: "the name ends in `.weight`"},
)

linear = Boundary(
    name="Linear.from_parameters",
    order=refuses(Linear),
    build=lambda: Situation(shape=[3, 2], bias_shape=[2], name="layer.bias"),
    ready=lambda s: s.set(
        weight=weight("layer.weight", *s.shape), bias=weight(s.name, *s.bias_shape)
    ),
    call=lambda s: Linear.from_parameters(s.weight, s.bias),
    faults=(
        kind_fault("weight", constant(ramp(3, 2)), what="linear weight"),
        kind_fault("bias", constant(ramp(2)), what="linear bias"),
        fault(Code.WEIGHT_RANK, "weight of rank 3", lambda s: s.set(shape=[*s.shape, 2]), rank=3),
        fault(Code.ZERO_INPUT_WIDTH, "no input", lambda s: s.set(shape=[0, *s.shape[1:]])),
        fault(Code.ZERO_OUTPUT_WIDTH, "no output", lambda s: s.set(shape=[s.shape[0], 0])),
        fault(
            Code.BIAS_RANK, "bias matrix", lambda s: s.set(bias_shape=[2, *s.bias_shape]), rank=2
        ),
        fault(
            Code.BIAS_WIDTH_MISMATCH,
            "bias of three",
            lambda s: s.set(bias_shape=[3]),
            expected=2,
            actual=3,
        ),
        fault(
            Code.DUPLICATE_PARAMETER_NAME,
            "one name for both",
            lambda s: s.set(name="layer.weight"),
            index=1,
            first=0,
        ),
    ),
)

projection = Boundary(
    name="Linear.forward",
    order=refuses(Linear.forward),
    build=lambda: Situation(layer=Linear.from_parameters(weight("w", 3, 2)), values=ramp(2, 3)),
    ready=lambda s: s.set(x=constant(s.values)),
    call=lambda s: s.layer.forward(s.x),
    faults=(
        kind_fault("x", ramp(2, 3), what="w input"),
        fault(Code.INPUT_RANK, "scalar", lambda s: s.set(values=1.0), rank=0),
        fault(
            Code.INPUT_WIDTH_MISMATCH,
            "two features",
            lambda s: s.set(values=ramp(3, 2)),
            expected=3,
            actual=2,
        ),
    ),
)

# --- SwiGLU ----------------------------------------------------------------------------------


BRANCHES = ("gate", "up", "down")


def _branches(s: Situation) -> Situation:
    layers = {
        name: Linear.from_parameters(weight(s.names.get(name, f"{name}.weight"), *s.shapes[name]))
        for name in BRANCHES
    }
    return s.set(**layers)


swiglu = Boundary(
    name="SwiGlu",
    order=refuses(SwiGlu),
    build=lambda: Situation(shapes={"gate": [2, 3], "up": [2, 3], "down": [3, 2]}, names={}),
    ready=_branches,
    call=lambda s: SwiGlu(s.gate, s.up, s.down),
    faults=(
        *[kind_fault(role, weight(role, 2, 3), what=f"swiglu {role}") for role in BRANCHES],
        fault(
            Code.BRANCH_INPUT_WIDTH_MISMATCH,
            "up takes four",
            lambda s: s.shapes.update(up=[4, s.shapes["up"][1]]),
            gate=2,
            up=4,
        ),
        fault(
            Code.BRANCH_HIDDEN_WIDTH_MISMATCH,
            "up gives five",
            lambda s: s.shapes.update(up=[s.shapes["up"][0], 5]),
            gate=3,
            up=5,
        ),
        fault(
            Code.DOWN_INPUT_WIDTH_MISMATCH,
            "down takes six",
            lambda s: s.shapes.update(down=[6, 2]),
            hidden=3,
            down=6,
        ),
        fault(
            Code.DUPLICATE_PARAMETER_NAME,
            "down named as gate",
            lambda s: s.names.update(down="gate.weight"),
            index=2,
            first=0,
        ),
    ),
)

swiglu_new = Boundary(
    name="SwiGlu.new",
    order=(
        Code.FIELD_TYPE,
        *NAME_ORDER,
        *TYPE_AND_RANGE * 2,
        *refuses(Linear.new)[2:4],
        *TYPE_AND_RANGE,
        Code.ZERO_OUTPUT_WIDTH,
        Code.SIZE_OVERFLOW,
    ),
    build=lambda: Situation(name="norm1.gain", taken=2, hidden=3, given=2, rng=SplitMix64(5)),
    call=lambda s: SwiGlu.new(s.name, s.taken, s.hidden, s.given, s.rng),
    faults=(
        kind_fault("rng", 5, what="rng"),
        *NAME_FAULTS[2:5],
        *size_faults("taken"),
        *size_faults("hidden"),
        fault(
            Code.ZERO_INPUT_WIDTH,
            "no input",
            lambda s: s.set(taken=0),
            what="norm1.gain.gate.weight",
        ),
        fault(Code.ZERO_OUTPUT_WIDTH, "nothing hidden", lambda s: s.set(hidden=0)),
        *size_faults("given"),
        fault(
            Code.ZERO_OUTPUT_WIDTH,
            "no output",
            lambda s: s.set(given=0),
            what="norm1.gain.down.weight",
        ),
        fault(Code.SIZE_OVERFLOW, "2**64 outputs", lambda s: s.set(given=2**64)),
    ),
    apart=(
        one("taken", "no input"),
        one("hidden", "nothing hidden"),
        one("given", "no output", "2**64 outputs"),
    ),
    unreachable={Code.EMPTY_NAME: "the name ends in `.weight`"},
)

feed_forward = Boundary(
    name="SwiGlu.forward",
    order=(Code.INPUT_RANK, Code.INPUT_WIDTH_MISMATCH, Code.NON_FINITE_FORWARD),
    build=lambda: Situation(
        shapes={"gate": [2, 3], "up": [2, 3], "down": [3, 2]}, names={}, values=ramp(2, 2)
    ),
    ready=lambda s: (_branches(s), s.set(x=constant(s.values), ffn=SwiGlu(s.gate, s.up, s.down))),
    call=lambda s: s.ffn.forward(s.x),
    faults=(
        fault(Code.INPUT_RANK, "scalar", lambda s: s.set(values=1.0), rank=0, what="gate.weight"),
        fault(
            Code.INPUT_WIDTH_MISMATCH,
            "three features",
            lambda s: s.set(values=ramp(2, 3)),
            what="gate.weight",
            actual=3,
        ),
        fault(
            Code.NON_FINITE_FORWARD,
            "product overflows",
            lambda s: s.set(values=[[MAX, MAX], [1.0, 1.0]]),
            op="matmul",
        ),
    ),
)

residual = Boundary(
    name="add_residual",
    order=refuses(add_residual),
    build=lambda: Situation(identity=constant(ramp(1, 2, 3)), branch=constant(ramp(1, 2, 3))),
    call=lambda s: add_residual(s.identity, s.branch, context=RECORDING, what="residual"),
    faults=(
        fault(
            Code.RESIDUAL_SHAPE_MISMATCH,
            "branch that would broadcast",
            lambda s: s.set(branch=constant(ramp(1, 1, 3))),
            expected=(1, 2, 3),
            actual=(1, 1, 3),
        ),
    ),
)

BOUNDARIES = (
    embedding_new, embedding, lookup, head, head_forward, head_by_kernel, linear_new, linear,
    projection, swiglu, swiglu_new, feed_forward, residual,
)  # fmt: skip
