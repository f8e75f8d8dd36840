"""Boundaries of the differentiable operations, applied on the tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from logitproof.core import RECORDING, Parameter, ops
from logitproof.core.codes import Code
from logitproof.core.vjp import Operation

from .boundary import Apart, Boundary, Fault, Plant, Situation, fault, refuses
from .making import MAX, ramp, released

__all__ = [
    "AXES",
    "AXES_APART",
    "BOUNDARIES",
    "argument",
    "boundary_of",
    "operand",
    "shape_faults",
    "spike",
]

INF = float("inf")
CANNOT_OVERFLOW = "what gets past the other rules is finite"
NO_SUCH_ARRAY = "no array of Python's memory has so many elements"


def _ready(s: Situation) -> None:
    """Make operands of the arrays: the marked ones are nodes of a released graph."""
    operands = [
        released(array) if i in s.gone else Parameter(f"operand{i}", array)
        for i, array in enumerate(s.arrays)
    ]
    s.set(operands=operands)


def _mark(operand: int) -> Plant:
    return lambda s: s.gone.add(operand)


def operand(index: int, change: Callable[[Any], object]) -> Plant:
    """Replace one operand's array by a changed one."""

    def plant(s: Situation) -> None:
        s.arrays[index] = change(s.arrays[index])

    return plant


def argument(name: str, change: Callable[[Any], object]) -> Plant:
    """Replace one argument by a changed one."""

    def plant(s: Situation) -> None:
        s.arguments[name] = change(s.arguments[name])

    return plant


def spike(value: float) -> Callable[[Any], object]:
    """The array with its last element replaced."""

    def change(array: Any) -> object:
        changed = np.array(array)
        changed.reshape(-1)[-1:] = value
        return changed

    return change


def boundary_of(
    operation: Operation,
    shapes: list[tuple[int, ...]],
    faults: tuple[Fault, ...],
    *,
    apart: tuple[Apart, ...] = (),
    unreachable: dict[Code, str] | None = None,
    overflow: Fault | None = None,
    arguments: Callable[[], dict[str, object]] = dict,
    order: tuple[Code, ...] = (),
) -> Boundary:
    """The operation between what every operation is asked before and after."""
    name = operation.op_name  # type: ignore[attr-defined]
    gone = tuple(
        fault(Code.RELEASED_OPERAND, f"operand {i} released", _mark(i), op=name, operand=i)
        for i in range(len(shapes))
    )
    refused = overflow is not None and overflow.code is Code.NON_FINITE_FORWARD
    finite = {} if refused else {Code.NON_FINITE_FORWARD: CANNOT_OVERFLOW}
    return Boundary(
        name=f"ops.{operation.__name__}",
        order=(
            Code.RELEASED_OPERAND,
            *(order or refuses(operation)),
            Code.NON_FINITE_FORWARD,
        ),
        build=lambda: Situation(
            arrays=[ramp(*shape) for shape in shapes], gone=set(), arguments=arguments()
        ),
        ready=_ready,
        call=lambda s: RECORDING.apply(operation, *s.operands, **s.arguments),
        faults=(*gone, *faults, *((overflow,) if overflow else ())),
        apart=apart,
        unreachable={**(unreachable or {}), **finite},
    )


def _broadcast_fault() -> Fault:
    return fault(
        Code.INCOMPATIBLE_BROADCAST,
        "sizes that do not broadcast",
        operand(1, lambda _: ramp(3, 4)),
        axis=0,
        left=2,
        right=3,
    )


def _both_large(s: Situation) -> None:
    s.arrays = [spike(MAX)(array) for array in s.arrays]


ELEMENTWISE = {Code.SIZE_OVERFLOW: NO_SUCH_ARRAY}

# --- shapes given as arguments ---------------------------------------------------------------


def shape_faults(name: str = "shape") -> tuple[Fault, ...]:
    """The rules of a shape that is given as this argument."""
    return (
        fault(Code.RAGGED_IDS, "ragged shape", argument(name, lambda s: [*s, [1]])),
        fault(Code.NOT_AN_INTEGER, "float in shape", argument(name, lambda s: [1.0, *s]), id=1.0),
        fault(Code.FIELD_RANGE, "negative size", argument(name, lambda s: [*s, -1])),
        fault(Code.FIELD_RANGE, "33 sizes", argument(name, lambda s: [*s, *[1] * 33])),
    )


SHAPES_APART = Apart("both spoil the end of the shape", {"negative size", "33 sizes"})

AXES = (
    fault(Code.RAGGED_IDS, "ragged axis", argument("axis", lambda _: [0, [1]])),
    fault(Code.NOT_AN_INTEGER, "float axis", argument("axis", lambda _: 1.0), id=1.0),
    fault(Code.NOT_AN_INTEGER, "list of axes", argument("axis", lambda _: [1]), id="[1]"),
    fault(Code.AXIS_OUT_OF_BOUNDS, "axis -1", argument("axis", lambda _: -1), axis=-1, rank=2),
    fault(Code.AXIS_OUT_OF_BOUNDS, "axis 2", argument("axis", lambda _: 2), axis=2, rank=2),
    fault(Code.AXIS_OUT_OF_BOUNDS, "axis 3", argument("axis", lambda _: 3), axis=3, rank=2),
)
AXES_APART = Apart("one axis is given", {planted.name for planted in AXES})

reshape = boundary_of(
    ops.reshape,
    [(2, 3)],
    (
        *shape_faults(),
        fault(
            Code.SIZE_OVERFLOW,
            "2**64 elements",
            argument("shape", lambda s: [2**64, *s[1:]]),
            limit=2**64 - 1,
        ),
        fault(
            Code.RESHAPE_COUNT_MISMATCH,
            "one element more",
            argument("shape", lambda _: [7]),
            expected=7,
            actual=6,
        ),
    ),
    apart=(SHAPES_APART,),
    arguments=lambda: {"shape": [3, 2]},
)

broadcast = boundary_of(
    ops.broadcast_to,
    [(2, 1)],
    (
        *shape_faults(),
        fault(
            Code.INCOMPATIBLE_BROADCAST,
            "rows that do not broadcast",
            argument("shape", lambda s: [3, *s[1:]]),
            axis=0,
            left=2,
            right=3,
        ),
        fault(
            Code.SIZE_OVERFLOW,
            "2**65 elements",
            argument("shape", lambda s: [s[0], 2**64]),
            required=2**65,
        ),
        fault(
            Code.BROADCAST_TARGET_MISMATCH,
            "one row asked of two",
            argument("shape", lambda s: [1, *s[1:]]),
            expected=(1, 3),
            actual=(2, 3),
        ),
    ),
    apart=(
        SHAPES_APART,
        Apart("one row count is asked", {"rows that do not broadcast", "one row asked of two"}),
    ),
    arguments=lambda: {"shape": [2, 3]},
)

transpose = boundary_of(
    ops.transpose,
    [(2, 3)],
    (
        fault(
            Code.FIELD_TYPE,
            "a hundred axes",
            argument("axes", lambda _: [0] * 100),
            expected="a pair",
            actual=repr([0] * 100)[:80],
        ),
        fault(Code.FIELD_TYPE, "a matrix of axes", argument("axes", lambda _: np.eye(2))),
        fault(Code.FIELD_TYPE, "three axes", argument("axes", lambda a: [*a, 0])),
        fault(Code.RAGGED_IDS, "ragged axis", argument("axes", lambda a: [[0, [1]], a[1]])),
        fault(Code.NOT_AN_INTEGER, "float axis", argument("axes", lambda a: [0.0, a[1]]), id=0.0),
        fault(
            Code.AXIS_OUT_OF_BOUNDS,
            "first axis 2",
            argument("axes", lambda a: [2, a[1]]),
            axis=2,
            rank=2,
        ),
        fault(
            Code.AXIS_OUT_OF_BOUNDS,
            "second axis -1",
            argument("axes", lambda a: [a[0], -1]),
            axis=-1,
        ),
    ),
    apart=(Apart("one first axis is given", {"ragged axis", "float axis", "first axis 2"}),),
    arguments=lambda: {"axes": [0, 1]},
)

# --- arithmetic ------------------------------------------------------------------------------

add = boundary_of(
    ops.add,
    [(2, 4), (2, 4)],
    (_broadcast_fault(),),
    overflow=fault(
        Code.NON_FINITE_FORWARD, "sum overflows", _both_large, op="add", index=7, value=INF
    ),
    apart=(),
    unreachable=ELEMENTWISE,
)
mul = boundary_of(
    ops.mul,
    [(2, 4), (2, 4)],
    (_broadcast_fault(),),
    overflow=fault(
        Code.NON_FINITE_FORWARD, "product overflows", _both_large, op="mul", index=7, value=INF
    ),
    unreachable=ELEMENTWISE,
)
summed = boundary_of(
    ops.sum,
    [(2, 3)],
    AXES,
    overflow=fault(
        Code.NON_FINITE_FORWARD,
        "total overflows",
        operand(0, lambda a: np.full_like(a, MAX)),
        op="sum",
        index=0,
        value=INF,
    ),
    apart=(AXES_APART,),
    arguments=lambda: {"axis": 1},
)
mean = boundary_of(
    ops.mean,
    [(2, 3)],
    (
        *AXES,
        fault(Code.EMPTY_MEAN_AXIS, "empty axis", operand(0, lambda a: a[:, :0])),
    ),
    overflow=fault(
        Code.NON_FINITE_FORWARD,
        "total overflows",
        operand(0, lambda a: np.full_like(a, MAX)),
        op="mean",
        value=INF,
    ),
    apart=(AXES_APART,),
    arguments=lambda: {"axis": 1},
)
matmul = boundary_of(
    ops.matmul,
    [(2, 2, 3), (2, 3, 2)],
    (
        fault(Code.MATMUL_LEFT_RANK, "left vector", operand(0, lambda a: a[0, 0]), rank=1),
        fault(Code.MATMUL_RIGHT_RANK, "right vector", operand(1, lambda b: b[0, 0]), rank=1),
        fault(
            Code.MATMUL_INNER_MISMATCH,
            "one row less",
            operand(1, lambda b: b[:, :2]),
            left=3,
            right=2,
        ),
        fault(
            Code.INCOMPATIBLE_BROADCAST,
            "three batch rows",
            operand(1, lambda b: np.concatenate([b, b[:1]])),
            axis=0,
            left=2,
            right=3,
        ),
    ),
    overflow=fault(
        Code.NON_FINITE_FORWARD, "product overflows", _both_large, op="matmul", index=5, value=INF
    ),
    unreachable=ELEMENTWISE,
)

exp = boundary_of(
    ops.exp,
    [(3,)],
    (),
    overflow=fault(
        Code.NON_FINITE_FORWARD,
        "exponent 710",
        operand(0, spike(710.0)),
        op="exp",
        index=2,
        value=INF,
    ),
)
log = boundary_of(
    ops.log,
    [(3,)],
    (),
    overflow=fault(
        Code.NON_FINITE_FORWARD,
        "zero",
        operand(0, spike(0.0)),
        op="log",
        index=2,
        value=-INF,
    ),
)
silu = boundary_of(ops.silu, [(3,)], ())

direct_product = Boundary(
    name="ops.mul of two views",
    order=refuses(ops.mul),
    build=lambda: Situation(a=np.ones((2, 1)), b=np.ones((1, 2))),
    call=lambda s: ops.mul(s.a, s.b),
    faults=(
        fault(
            Code.INCOMPATIBLE_BROADCAST,
            "three rows against two",
            lambda s: s.set(b=np.ones((3, 2))),
            left=2,
            right=3,
        ),
    ),
    unreachable=ELEMENTWISE,
)

BOUNDARIES = (
    reshape, broadcast, transpose, add, mul, summed, mean, matmul, exp, log, silu,
    direct_product,
)  # fmt: skip
