"""Boundaries of softmax, losses, causal softmax and rotation, applied on the tape."""

from __future__ import annotations

from typing import Any

import numpy as np

from logitproof.core import ops
from logitproof.core.codes import Code
from logitproof.core.vjp import Operation

from .boundary import Apart, Boundary, Fault, Situation, fault, refuses
from .making import MAX, ramp
from .operations import AXES, AXES_APART, argument, boundary_of, operand, spike

__all__ = ["BOUNDARIES"]

INF = float("inf")
ALREADY_FINITE = "a node's value is finite"


log_softmax = boundary_of(
    ops.log_softmax,
    [(2, 3)],
    (
        *AXES,
        fault(Code.EMPTY_NORMALIZATION_AXIS, "no class", operand(0, lambda a: a[:, :0]), axis=1),
    ),
    overflow=fault(
        Code.NON_FINITE_FORWARD,
        "gap overflows",
        operand(0, lambda a: _far_apart(a)),  # noqa: PLW0108 - defined below
        op="log_softmax",
        index=1,
        value=-INF,
    ),
    apart=(AXES_APART,),
    unreachable={Code.NORMALIZATION_NOT_FINITE: ALREADY_FINITE},
    arguments=lambda: {"axis": 1},
)


LOGITS = {
    Code.NAN_LOGIT: float("nan"),
    Code.POSITIVE_INFINITY_LOGIT: INF,
    Code.NEGATIVE_INFINITY_LOGIT: -INF,
}


def _target(at: int, target: int) -> Fault:
    """A target of one group that is no class."""
    return fault(
        Code.TARGET_OUT_OF_BOUNDS,
        f"target {target}",
        argument("targets", lambda t: [*t[:at], target, *t[at + 1 :]]),
        group=at,
        target=target,
        classes=3,
    )


TARGETS = (_target(1, 3), _target(1, 9), _target(0, -1))


def _loss(operation: Operation, overflow: Fault) -> Boundary:
    return boundary_of(
        operation,
        [(2, 3)],
        (
            *AXES,
            fault(
                Code.EMPTY_NORMALIZATION_AXIS, "no class", operand(0, lambda a: a[:, :0]), axis=1
            ),
            fault(Code.RAGGED_IDS, "ragged targets", argument("targets", lambda t: [*t, [0]])),
            fault(
                Code.NOT_AN_INTEGER,
                "bool target",
                argument("targets", lambda t: [t[0], True, *t[2:]]),
                position=1,
                id=True,
            ),
            fault(
                Code.TARGET_COUNT_MISMATCH,
                "three targets",
                argument("targets", lambda t: [*t, 0]),
            ),
            fault(Code.EMPTY_TARGETS, "no group", _no_group),
            *TARGETS,
        ),
        overflow=overflow,
        apart=(
            AXES_APART,
            Apart(
                "without groups there is no target",
                {"no group"},
                {"target 3", "target 9", "bool target"},
            ),
            Apart("one list alone is not ragged", {"no group"}, {"ragged targets"}),
            Apart("the smaller position is named first", {"target -1"}, {"target 3", "target 9"}),
        ),
        unreachable=dict.fromkeys(LOGITS, ALREADY_FINITE),
        arguments=lambda: {"axis": 1, "targets": [0, 2]},
        order=(*refuses(ops.indexed_mean_nll), *refuses(operation)[-1:]),
    )


def _no_group(s: Situation) -> None:
    s.arrays[0] = s.arrays[0][:0]
    s.arguments["targets"] = []


def _far_apart(a: Any) -> object:
    """The second row's loss is beyond the largest double."""
    return np.where(np.arange(a.shape[1]) == 0, MAX, -MAX) * np.ones((len(a), 1))


mean_nll = _loss(
    ops.indexed_mean_nll,
    fault(
        Code.NON_FINITE_FORWARD,
        "mean overflows",
        lambda s: (operand(0, _far_apart)(s), s.arguments.update(targets=[2, 2])),
        op="indexed_mean_nll",
        index=0,
        value=INF,
    ),
)
sum_nll = _loss(
    ops.indexed_sum_nll,
    fault(
        Code.RAW_SUM_NOT_FINITE,
        "sum overflows",
        operand(0, _far_apart),
        group=1,
        value=INF,
    ),
)

direct_logits = Boundary(
    name="ops.indexed_mean_nll of an array",
    order=tuple(LOGITS),
    build=lambda: Situation(logits=ramp(2, 3)),
    call=lambda s: ops.indexed_mean_nll(s.logits, axis=1, targets=[0, 2]),
    faults=tuple(
        fault(code, code.value, lambda s, v=value: s.set(logits=spike(v)(s.logits)),  # type: ignore[misc]
              group=1, value=value, **{"class": 2})
        for code, value in LOGITS.items()
    ),
    apart=(Apart("one logit is spoiled", {code.value for code in LOGITS}),),
)  # fmt: skip
direct_rows = Boundary(
    name="ops.log_softmax of an array",
    order=(Code.NORMALIZATION_NOT_FINITE,),
    build=lambda: Situation(logits=ramp(2, 3)),
    call=lambda s: ops.log_softmax(s.logits, axis=0),
    faults=(
        fault(
            Code.NORMALIZATION_NOT_FINITE,
            "nan",
            lambda s: s.set(logits=spike(float("nan"))(s.logits)),
            group=2,
            **{"class": 1},
        ),
    ),
)
softmax = boundary_of(
    ops.causal_softmax,
    [(2, 3, 3)],
    (
        fault(Code.CAUSAL_RANK, "vector of scores", operand(0, lambda a: a.reshape(-1)), rank=1),
        fault(
            Code.CAUSAL_NOT_SQUARE,
            "one key less",
            operand(0, lambda a: a[:, :, :-1]),
            actual=2,
        ),
        fault(Code.EMPTY_TOKENS, "no token", operand(0, lambda a: a[:, :0, :0])),
        fault(Code.RAGGED_IDS, "ragged starts", argument("range_starts", lambda r: [*r, 0])),
        fault(
            Code.NOT_AN_INTEGER,
            "float start",
            argument("range_starts", lambda r: [[0.0, *r[0][1:]], *r[1:]]),
            id=0.0,
        ),
        fault(
            Code.CAUSAL_RANGE_SHAPE,
            "one row of starts",
            argument("range_starts", lambda r: r[:1]),
            actual=(1, 3),
        ),
        fault(
            Code.CAUSAL_RANGE,
            "start after its query",
            argument("range_starts", lambda r: [[0, 2, 0], *r[1:]]),
            index=2,
            bound=1,
        ),
        fault(Code.RAGGED_IDS, "ragged lengths", argument("lengths", lambda n: [*n, [1]])),
        fault(
            Code.NOT_AN_INTEGER,
            "bool length",
            argument("lengths", lambda n: [n[0], True, *n[2:]]),
            id=True,
        ),
        fault(
            Code.CAUSAL_RANGE_SHAPE,
            "three lengths",
            argument("lengths", lambda n: [*n, 1]),
            expected=(2,),
            actual=(3,),
        ),
        fault(
            Code.CAUSAL_RANGE,
            "length 4 of 3",
            argument("lengths", lambda n: [4, *n[1:]]),
            index=4,
            bound=3,
        ),
    ),
    apart=(Apart("without tokens both sides are 0", {"no token"}, {"one key less"}),),
    arguments=lambda: {"range_starts": [[0, 0, 0], [0, 1, 1]], "lengths": [3, 2]},
    order=(*refuses(ops.causal_softmax)[:3], *refuses(ops.causal_softmax)[3:] * 2),
)

rotary = boundary_of(
    ops.rotary,
    [(2, 3, 4)],
    (
        fault(Code.RAGGED_IDS, "ragged cosines", argument("cosines", lambda c: [*c, 1.0])),
        fault(Code.NOT_REAL, "complex cosines", argument("cosines", lambda c: c * 1j)),
        fault(Code.RAGGED_IDS, "ragged sines", argument("sines", lambda c: [*c, 1.0])),
        fault(Code.NOT_REAL, "complex sines", argument("sines", lambda c: c * 1j)),
        fault(Code.ROTATION_RANK, "one vector", operand(0, lambda a: a[0, 0]), rank=1),
        fault(
            Code.ROTATION_WIDTH_MISMATCH,
            "odd width",
            operand(0, lambda a: a[..., :3]),
            expected=4,
            actual=3,
        ),
        fault(
            Code.INCOMPATIBLE_BROADCAST,
            "cosines of two positions",
            argument("cosines", lambda c: c[:2]),
            left=2,
            right=3,
        ),
        fault(
            Code.BROADCAST_TARGET_MISMATCH,
            "cosines of two batches",
            argument("cosines", lambda c: np.stack([c, c])[:, None]),
        ),
        fault(
            Code.INCOMPATIBLE_BROADCAST,
            "sines of two positions",
            argument("sines", lambda c: c[:2]),
            left=2,
            right=3,
        ),
        fault(
            Code.BROADCAST_TARGET_MISMATCH,
            "sines of two batches",
            argument("sines", lambda c: np.stack([c, c])[:, None]),
        ),
    ),
    overflow=fault(
        Code.NON_FINITE_FORWARD,
        "turn overflows",
        operand(0, lambda a: np.full_like(a, MAX)),
        op="rotary_pairs",
    ),
    apart=(
        Apart("one set of cosines", {"complex cosines", "ragged cosines"}),
        Apart("one set of sines", {"complex sines", "ragged sines"}),
        Apart("one shape", {"cosines of two positions", "cosines of two batches"}),
        Apart("one shape", {"sines of two positions", "sines of two batches"}),
    ),
    arguments=lambda: {"cosines": np.ones((3, 2)), "sines": np.ones((3, 2)) / 2},
    order=(
        *refuses(ops.rotary)[:2] * 2,
        *refuses(ops.rotary)[2:4],
        *refuses(ops.rotary)[4:] * 2,
    ),
)

BOUNDARIES = (log_softmax, mean_nll, sum_nll, direct_logits, direct_rows, softmax, rotary)
