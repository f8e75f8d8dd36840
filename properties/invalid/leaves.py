"""Boundaries of names, seeds, initial values, leaves and the trace."""

from __future__ import annotations

from logitproof.core import RECORDING, Context, Parameter, SplitMix64, Tensor, constant, ops
from logitproof.core.codes import Code
from logitproof.core.fresh import fresh_decoder
from logitproof.core.initial import depth_factor, xavier
from logitproof.core.names import check_distinct, check_name
from logitproof.core.trace import Trace

from .boundary import Apart, Boundary, Situation, fault, refuses
from .making import config, parameter

__all__ = ["BOUNDARIES", "NAME_FAULTS", "NAME_ORDER"]

NAN = float("nan")
# The scan goes by byte: an empty segment may stand before or after a strange character.
NAME_ORDER = (*refuses(check_name), Code.EMPTY_NAME_SEGMENT)
NAME_FAULTS = (
    fault(Code.FIELD_TYPE, "name is a number", lambda s: s.set(name=5), actual="int"),
    fault(Code.EMPTY_NAME, "no name", lambda s: s.set(name="")),
    fault(Code.EMPTY_NAME_SEGMENT, "leading dot", lambda s: s.set(name=f".{s.name}"), index=0),
    fault(
        Code.INVALID_NAME_CHARACTER,
        "upper case",
        lambda s: s.set(name=s.name.capitalize()),
        index=0,
        byte="0x4e",
    ),
    fault(
        Code.EMPTY_NAME_SEGMENT,
        "two dots",
        lambda s: s.set(name=s.name.replace(".", "..")),
        index=6,
    ),
    fault(
        Code.EMPTY_NAME_SEGMENT,
        "trailing dot",
        lambda s: s.set(name=f"{s.name}."),
        index=11,
    ),
)
VALUE_FAULTS = (
    fault(
        Code.RAGGED_IDS,
        "ragged values",
        lambda s: s.set(values=[*s.values, [1.0]]),
        expected="a scalar",
    ),
    fault(Code.NOT_REAL, "text value", lambda s: s.set(values=[*s.values, "x"]), value="'x'"),
    fault(
        Code.NON_FINITE_LEAF,
        "infinite value",
        lambda s: s.set(values=[s.values[0], float("inf"), *s.values[2:]]),
        index=1,
        value=float("inf"),
    ),
)

leaf = Boundary(
    name="Parameter",
    order=(*NAME_ORDER, *refuses(Parameter)[4:]),
    build=lambda: Situation(name="norm1.gain", values=[1.0, 2.0]),
    call=lambda s: Parameter(s.name, s.values),
    faults=(*NAME_FAULTS, *VALUE_FAULTS),
)

constant_leaf = Boundary(
    name="constant",
    order=refuses(constant),
    build=lambda: Situation(values=[1.0, 2.0]),
    call=lambda s: constant(s.values),
    faults=VALUE_FAULTS,
)

assign = Boundary(
    name="Parameter.assign",
    order=refuses(Parameter.assign),
    build=lambda: Situation(p=parameter("p", [1.0, 2.0]), values=[3.0, 4.0]),
    call=lambda s: s.p.assign(s.values),
    faults=(
        fault(Code.VALUE_BORROWED, "two readers", lambda s: (s.p.hold(), s.p.hold()), actual=2),
        *VALUE_FAULTS[:2],
        fault(
            Code.ASSIGN_SHAPE_MISMATCH,
            "one value more",
            lambda s: s.set(values=[*s.values, 5.0]),
            expected=(2,),
            actual=(3,),
        ),
        VALUE_FAULTS[2],
    ),
)


def _open_gradient(s: Situation) -> None:
    s.set(open=s.p.reading_gradient())
    s.open.__enter__()


zero_gradient = Boundary(
    name="Parameter.zero_gradient",
    order=refuses(Parameter.zero_gradient),
    build=lambda: Situation(p=parameter("p", [1.0])),
    call=lambda s: s.p.zero_gradient(),
    faults=(fault(Code.GRADIENT_BORROWED, "gradient read", _open_gradient, what="p", actual=1),),
)

no_gradient = Boundary(
    name="Tensor.zero_gradient",
    order=refuses(Tensor.zero_gradient),
    build=lambda: Situation(p=parameter("p", [1.0])),
    call=lambda s: s.p.zero_gradient(),
    faults=(
        fault(Code.NOT_A_PARAMETER, "constant", lambda s: s.set(p=constant(1.0)), op="constant"),
        fault(Code.NOT_A_PARAMETER, "detached", lambda s: s.set(p=s.p.detach()), op="detached"),
    ),
    apart=(Apart("one tensor is asked", {"constant", "detached"}),),
)

operand_kind = Boundary(
    name="Context.apply",
    order=refuses(Context.apply)[:2],
    build=lambda: Situation(op=ops.add, a=constant(1.0), b=constant(2.0)),
    call=lambda s: RECORDING.apply(s.op, s.a, s.b),
    faults=(
        fault(Code.FIELD_TYPE, "name as operation", lambda s: s.set(op="add"), actual="str"),
        fault(Code.FIELD_TYPE, "array as first operand", lambda s: s.set(a=s.a.value)),
        fault(Code.FIELD_TYPE, "number as second operand", lambda s: s.set(b=1.0), actual="float"),
    ),
)


def _squares() -> Situation:
    p = parameter("p", [1.0, 2.0])
    total = RECORDING.apply(ops.sum, RECORDING.apply(ops.add, p, p), axis=0)
    traced = RECORDING.apply(ops.add, total, total).backward_with_trace()
    return Situation(trace=traced, op="sum")


trace_adjoint = Boundary(
    name="Trace.adjoint",
    order=refuses(Trace.adjoint),
    build=_squares,
    call=lambda s: s.trace.adjoint(s.op),
    faults=(
        fault(Code.AMBIGUOUS_TRACE_NODE, "two nodes", lambda s: s.set(op="add"), actual=2),
        fault(Code.AMBIGUOUS_TRACE_NODE, "no node", lambda s: s.set(op="exp"), actual=0),
    ),
    apart=(Apart("one operation is named", {"two nodes", "no node"}),),
)

SEEDS = {
    "a list of lists": (Code.RAGGED_IDS, [1, [2]]),
    "a float": (Code.NOT_AN_INTEGER, 1.0),
    "a bool": (Code.NOT_AN_INTEGER, True),
    "text": (Code.NOT_AN_INTEGER, "1"),
    "nothing": (Code.NOT_AN_INTEGER, None),
    "-1": (Code.FIELD_RANGE, -1),
    "2**64": (Code.FIELD_RANGE, 2**64),
    "a list": (Code.FIELD_RANGE, [1]),
}

seed = Boundary(
    name="SplitMix64",
    order=refuses(SplitMix64),
    build=lambda: Situation(seed=2**64 - 1),
    call=lambda s: SplitMix64(s.seed),
    faults=tuple(
        fault(code, name, lambda s, given=given: s.set(seed=given))  # type: ignore[misc]
        for name, (code, given) in SEEDS.items()
    ),
    apart=(Apart("one seed is given", set(SEEDS)),),
)

FANS = {"fan-in as float", "negative fan-in", "no fan-in", "fan-in above 2**64"}
FANS_OUT = {"fan-out as bool", "negative fan-out", "no fan-out", "product above 2**64"}

initial_matrix = Boundary(
    name="xavier",
    order=(*NAME_ORDER, Code.FIELD_TYPE, Code.FIELD_RANGE, *refuses(xavier)),
    build=lambda: Situation(name="norm1.gain", fan_in=2, fan_out=3, rng=SplitMix64(7)),
    call=lambda s: xavier(s.name, s.fan_in, s.fan_out, s.rng),
    faults=(
        *NAME_FAULTS,
        fault(Code.FIELD_TYPE, "fan-in as float", lambda s: s.set(fan_in=2.0), actual="2.0"),
        fault(Code.FIELD_RANGE, "negative fan-in", lambda s: s.set(fan_in=-2), actual=-2),
        fault(Code.FIELD_TYPE, "fan-out as bool", lambda s: s.set(fan_out=True), actual="True"),
        fault(Code.FIELD_RANGE, "negative fan-out", lambda s: s.set(fan_out=-1), actual=-1),
        fault(Code.ZERO_FAN_IN, "no fan-in", lambda s: s.set(fan_in=0)),
        fault(Code.ZERO_FAN_OUT, "no fan-out", lambda s: s.set(fan_out=0)),
        fault(
            Code.SIZE_OVERFLOW,
            "fan-in above 2**64",
            lambda s: s.set(fan_in=2**64),
            limit=2**64 - 1,
        ),
        fault(
            Code.SIZE_OVERFLOW,
            "product above 2**64",
            lambda s: s.set(fan_out=2**63),
            limit=2**64 - 1,
        ),
    ),
    apart=(Apart("one fan-in is given", FANS), Apart("one fan-out is given", FANS_OUT)),
)

depth = Boundary(
    name="depth_factor",
    order=refuses(depth_factor),
    build=lambda: Situation(layers=1),
    call=lambda s: depth_factor(s.layers),
    faults=(fault(Code.ZERO_DEPTH, "no block", lambda s: s.set(layers=0), actual=0),),
)

fresh = Boundary(
    name="fresh_decoder",
    order=refuses(fresh_decoder),
    build=lambda: Situation(config={}, rng=SplitMix64(3), parameters=50, positions=4),
    ready=lambda s: s.set(config=config(**s.config)),
    call=lambda s: fresh_decoder(
        s.config, s.rng, max_parameters=s.parameters, max_positions=s.positions
    ),
    faults=(
        fault(Code.ZERO_DEPTH, "no block", lambda s: s.config.update(layers=0), actual=0),
        fault(
            Code.POSITION_BUDGET,
            "too many positions",
            lambda s: s.config.update(max_positions=5),
            required=5,
            limit=4,
        ),
        fault(
            Code.PARAMETER_BUDGET,
            "too few parameters allowed",
            lambda s: s.set(parameters=11),
            limit=11,
        ),
    ),
)

distinct = Boundary(
    name="check_distinct",
    order=refuses(check_distinct),
    build=lambda: Situation(names=["a", "b", "c", "d"]),
    call=lambda s: check_distinct(s.names),
    faults=(
        fault(
            Code.DUPLICATE_PARAMETER_NAME,
            "third is first",
            lambda s: s.names.__setitem__(2, "a"),
            index=2,
            first=0,
        ),
        fault(
            Code.DUPLICATE_PARAMETER_NAME,
            "fourth is second",
            lambda s: s.names.__setitem__(3, "b"),
            index=3,
            first=1,
        ),
    ),
)

BOUNDARIES = (
    distinct,
    leaf, constant_leaf, assign, zero_gradient, no_gradient, operand_kind, trace_adjoint, seed,
    initial_matrix, depth, fresh,
)  # fmt: skip
