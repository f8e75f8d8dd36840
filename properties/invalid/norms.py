"""Boundaries of the norm."""

from __future__ import annotations

from logitproof.core import RmsNorm, constant
from logitproof.core.codes import Code
from logitproof.core.kernels import ORDERED

from .arguments import TYPE_AND_RANGE, epsilon_faults, kind_fault, one, one_epsilon, size_faults
from .boundary import Apart, Boundary, Situation, fault, refuses
from .leaves import NAME_FAULTS, NAME_ORDER
from .making import parameter, ramp, weight

__all__ = ["BOUNDARIES"]

INF = float("inf")

new = Boundary(
    name="RmsNorm.new",
    order=(Code.INVALID_EPSILON, *TYPE_AND_RANGE, Code.EMPTY_FEATURE_WIDTH, *NAME_ORDER),
    build=lambda: Situation(name="norm1.gain", width=2, epsilon=1e-6),
    call=lambda s: RmsNorm.new(s.name, s.width, s.epsilon),
    faults=(
        *epsilon_faults(Code.INVALID_EPSILON),
        *size_faults("width"),
        fault(Code.EMPTY_FEATURE_WIDTH, "no feature", lambda s: s.set(width=0)),
        *NAME_FAULTS,
    ),
    apart=(one_epsilon(), one("width", "no feature")),
)

from_gain = Boundary(
    name="RmsNorm.from_gain",
    order=refuses(RmsNorm),
    build=lambda: Situation(shape=[2], epsilon=1e-6),
    ready=lambda s: s.set(gain=weight("gain", *s.shape)),
    call=lambda s: RmsNorm.from_gain(s.gain, s.epsilon),
    faults=(
        kind_fault("gain", constant(ramp(2)), what="norm gain"),
        *epsilon_faults(Code.INVALID_EPSILON),
        fault(Code.GAIN_RANK, "gain matrix", lambda s: s.set(shape=[*s.shape, 3]), actual=(2, 3)),
        fault(Code.EMPTY_FEATURE_WIDTH, "no feature", lambda s: s.set(shape=[0])),
    ),
    apart=(one_epsilon(), Apart("one gain shape", {"gain matrix", "no feature"})),
)

FORWARD = (
    kind_fault("x", ramp(3, 2), what="gain input"),
    fault(Code.INPUT_RANK_ZERO, "scalar", lambda s: s.set(values=1.0)),
    fault(
        Code.INPUT_WIDTH_MISMATCH,
        "three features",
        lambda s: s.set(values=ramp(2, 3)),
        expected=2,
        actual=3,
    ),
    fault(
        Code.NON_FINITE_FORWARD,
        "square overflows",
        lambda s: s.set(values=[[1.0, 2.0], [0.0, 1e200], s.values[2]]),
        op="mul",
        index=3,
        value=INF,
    ),
    fault(
        Code.ZERO_ENERGY_ROW,
        "zero row",
        lambda s: s.set(values=[[1.0, 2.0], [1.0, 1.0], [0.0, 0.0]]),
        row=2,
    ),
)

in_steps, in_one = (
    Boundary(
        name=name,
        order=refuses(RmsNorm.forward),
        build=lambda: Situation(
            layer=RmsNorm.from_gain(parameter("gain", [1.0, 2.0]), 0.0), values=ramp(3, 2)
        ),
        ready=lambda s: s.set(x=constant(s.values)),
        call=lambda s, kernel=kernel: s.layer.forward(s.x, kernel=kernel),  # type: ignore[misc]
        faults=FORWARD,
    )
    for name, kernel in (("RmsNorm.forward", None), ("RmsNorm.forward, fused", ORDERED))
)

BOUNDARIES = (new, from_gain, in_steps, in_one)
