"""The boundary of the reverse pass: ten steps in the order of tape.md section 5."""

from __future__ import annotations

from typing import Any

import numpy as np

from logitproof.core import RECORDING, DecoderBlock, RmsNorm, SequenceLayout, Tensor, constant, ops
from logitproof.core.checkpoint import checkpoint
from logitproof.core.codes import Code
from logitproof.core.floats import Array

from .boundary import Apart, Boundary, Situation, fault, refuses
from .making import MAX, decoder, parameter

__all__ = ["BOUNDARIES"]

INF = float("inf")


def _build() -> Situation:
    """y = p * q + p, where every element is spoiled by a fault of its own."""
    return Situation(
        p=[1.0, 1.0, 1.0, 1.0],
        q=[1.0, 1.0, 0.5, 1.0],
        seed=[1.0, 1.0, 1.0, 1.0],
        stored=0.0,
        tracked=True,
        released=set(),
        stale=False,
        short=0,
        dtype=float,
        read=False,
        implicit=False,
    )


def _ready(s: Situation) -> None:
    other = parameter("other", 1.0)
    p, q = (_leaf(name, getattr(s, name), s) for name in ("p", "q"))
    h = RECORDING.apply(ops.mul, p, q)
    s.set(y=RECORDING.apply(_total(s.short, s.dtype), h, p), nodes=[p, q, h, other])
    if s.released:  # a released node has released ancestors
        top = s.y if "y" in s.released else h
        RECORDING.apply(ops.mul, top, other).backward(np.zeros(4), retain=False)
    if s.stored:
        p.backward([0.0, 0.0, s.stored, 0.0])
    if s.stale:
        q.assign(q.value)
    if s.read:
        s.set(open=q.reading_gradient())
        s.open.__enter__()


def _total(short: int, dtype: Any) -> Any:
    """The sum, whose reverse rule leaves out `short` operands; an axis where it is -1, and at -2
    it says everything twice.

    Its contributions are of the dtype.
    """

    def total(left: Array, right: Array) -> tuple[Array, object]:
        def rule(upstream: Array) -> tuple[Array, ...]:
            given: Array = upstream.astype(dtype)
            other = {-1: given[0], -2: np.concatenate((given, given))}.get(short, given)
            return (given, other)[: 2 - max(short, 0)]

        return left + right, rule

    total.op_name = "add"  # type: ignore[attr-defined]
    return ops.add if dtype is float and not short else total


def _leaf(name: str, values: list[float], s: Situation) -> Any:
    return parameter(name, values) if s.tracked else constant(values)


def _set(name: str, index: int, value: float, s: Situation) -> Situation:
    getattr(s, name)[index] = value
    return s


WIDER = (complex, np.longdouble)
FAULTS = (
    fault(Code.GRAPH_RELEASED, "released", lambda s: s.released.add("y"), op="add"),
    fault(Code.UNTRACKED_OUTPUT, "untracked", lambda s: s.set(tracked=False), op="add"),
    fault(
        Code.SEED_SHAPE_MISMATCH,
        "no seed for a vector",
        lambda s: s.set(implicit=True),
        expected=(4,),
        actual=(),
    ),
    fault(Code.GRAPH_RELEASED, "ancestor released", lambda s: s.released.add("h"), op="mul"),
    fault(Code.RAGGED_IDS, "ragged seed", lambda s: s.set(seed=[*s.seed, [1.0]])),
    fault(Code.NOT_REAL, "text in seed", lambda s: s.set(seed=[*s.seed, "1"]), value="'1'"),
    fault(
        Code.SEED_SHAPE_MISMATCH,
        "five seed values",
        lambda s: s.set(seed=[*s.seed, 1.0]),
        expected=(4,),
        actual=(5,),
    ),
    fault(
        Code.NON_FINITE_SEED,
        "infinite seed",
        lambda s: _set("seed", 3, INF, s),
        index=3,
        value=INF,
    ),
    fault(
        Code.STALE_OPERAND_VALUE,
        "assigned operand",
        lambda s: s.set(stale=True),
        child=2,
        parent=1,
        operand=1,
        recorded=0,
        current=1,
    ),
    *[
        fault(
            Code.NOT_REAL,
            f"contributions of {dtype.__name__}",
            lambda s, dtype=dtype: s.set(dtype=dtype),  # type: ignore[misc]
            what="add contribution",
        )
        for dtype in WIDER
    ],
    fault(
        Code.CONTRIBUTION_MISMATCH,
        "a contribution missing",
        lambda s: s.set(short=1),
        what="add",
        expected=[(4,), (4,)],
        actual=[(4,)],
    ),
    fault(
        Code.CONTRIBUTION_MISMATCH,
        "a contribution without its axis",
        lambda s: s.set(short=-1),
        actual=[(4,), ()],
    ),
    fault(
        Code.CONTRIBUTION_MISMATCH,
        "a contribution twice as long",
        lambda s: s.set(short=-2),
        actual=[(4,), (8,)],
    ),
    fault(
        Code.NON_FINITE_VJP,
        "contribution overflows",
        lambda s: (_set("p", 0, 1e-200, s), _set("q", 0, 1e200, s), _set("seed", 0, 1e200, s)),
        child=2,
        parent=0,
        operand=0,
        index=0,
        value=INF,
    ),
    fault(
        Code.NON_FINITE_PASS_ADJOINT,
        "adjoint overflows",
        lambda s: (_set("p", 1, 0.0, s), _set("seed", 1, MAX, s)),
        node=0,
        index=1,
        previous=MAX,
        contribution=MAX,
    ),
    fault(
        Code.NON_FINITE_ACCUMULATED_GRADIENT,
        "gradient overflows",
        lambda s: (_set("seed", 2, 1e308, s), s.set(stored=1e308)),
        node=0,
        index=2,
        stored=1e308,
        pass_adjoint=1.5e308,
    ),
    fault(Code.GRADIENT_BORROWED, "gradient read", lambda s: s.set(read=True), what="q", actual=1),
)
NEEDS_PARAMETERS = {"assigned operand", "gradient overflows", "gradient read"}
MISSHAPEN = {
    "a contribution missing",
    "a contribution without its axis",
    "a contribution twice as long",
}
OF_WIDER = {f"contributions of {dtype.__name__}" for dtype in WIDER}
APART = (
    Apart("only parameters are assigned or hold gradients", {"untracked"}, NEEDS_PARAMETERS),
    Apart("one rule", MISSHAPEN),
    Apart("contributions have one dtype", OF_WIDER),
    Apart("a graph is released through its rule", {"released"}, MISSHAPEN | OF_WIDER),
)

backward, traced = (
    Boundary(
        name=f"Tensor.{name}",
        order=refuses(Tensor.backward),
        build=_build,
        ready=_ready,
        call=call,
        faults=FAULTS,
        apart=APART,
    )
    for name, call in {
        "backward": lambda s: s.y.backward(None if s.implicit else s.seed),
        "backward_with_trace": lambda s: s.y.backward_with_trace(
            None if s.implicit else s.seed, retain=False
        ),
    }.items()
)


def _spoiled(s: Situation) -> None:
    s.block.attention_norm = RmsNorm.from_gain(parameter("gain", [1.0, 1.0, 1.0]), 1e-6)


recomputed = Boundary(
    name="backward through a checkpoint",
    order=(*refuses(checkpoint), Code.NON_FINITE_VJP),
    build=lambda: Situation(
        seed=1.0,
        boundary=parameter("x", np.ones((1, 2, 2))),
        block=DecoderBlock.from_parameters(
            decoder().config.block_config, list(decoder().backbone.blocks[0].parameters)
        ),
    ),
    ready=lambda s: s.set(
        y=checkpoint(
            s.block, s.boundary, layout=SequenceLayout.full(1, 2), context=RECORDING, layer=0
        )
    ),
    call=lambda s: s.y.backward(np.full((1, 2, 2), s.seed)),
    faults=(
        fault(
            Code.CHECKPOINT_REFUSED,
            "another norm stands in the block",
            lambda s: s.afterwards(_spoiled),
            what="blocks.0",
        ),
        fault(
            Code.NON_FINITE_VJP,
            "upstream overflows inside",
            lambda s: s.set(seed=MAX),
            place="blocks.0.activation checkpoint",
        ),
    ),
)

BOUNDARIES = (backward, traced, recomputed)
