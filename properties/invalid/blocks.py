"""Boundaries of decoder blocks."""

from __future__ import annotations

from logitproof.core import (
    Attention,
    DecoderBlock,
    DecoderBlockConfig,
    Linear,
    RmsNorm,
    SplitMix64,
    SwiGlu,
    constant,
)
from logitproof.core.block import check_executable
from logitproof.core.codes import Code
from logitproof.core.kernels import ORDERED

from .arguments import kind_fault
from .boundary import Apart, Boundary, Plant, Situation, fault, refuses
from .configs import BLOCK_FACTS
from .leaves import NAME_FAULTS
from .making import ramp, two_cells, weight

__all__ = ["BOUNDARIES", "LAYER", "block_of", "placed"]

LAYER: dict[str, object] = {
    "D": 4, "heads": 2, "F": 3, "C": 4, "base": 100.0, "attention eps": 1e-6, "ffn eps": 1e-6,
}  # fmt: skip
BLOCK_OF_TWO_HEADS = {**BLOCK_FACTS, "kv_heads": 2, "context_window": None}

executable = Boundary(
    name="DecoderBlock.new",
    order=(
        Code.FIELD_TYPE,
        *refuses(check_executable),
        Code.EMPTY_NAME_SEGMENT,
        Code.INVALID_NAME_CHARACTER,
    ),
    build=lambda: Situation(name="norm1.gain", facts=dict(BLOCK_OF_TWO_HEADS)),
    ready=lambda s: s.set(config=DecoderBlockConfig(**s.facts), rng=SplitMix64(3)),
    call=lambda s: DecoderBlock.new(s.name, s.config, s.rng),
    faults=(
        kind_fault("config", None, what="block config"),
        kind_fault("rng", 3, what="rng"),
        fault(Code.GROUPED_HEADS, "one kv head", lambda s: s.facts.update(kv_heads=1)),
        fault(Code.CONTEXT_WINDOW, "window of 2", lambda s: s.facts.update(context_window=2)),
        *NAME_FAULTS[2:4],
    ),
)


def block_of(index: int, facts: dict[str, object]) -> DecoderBlock:
    """The block of this index with these sizes, base and epsilons."""
    D, F, name = facts["D"], facts["F"], f"blocks.{index}"
    eps, ffn_eps = facts["attention eps"], facts["ffn eps"]
    return DecoderBlock(
        RmsNorm.from_gain(weight(f"{name}.attention_norm.gain", D), eps),  # type: ignore[arg-type]
        _attention(facts, f"{name}.attention"),
        RmsNorm.from_gain(weight(f"{name}.ffn_norm.gain", D), ffn_eps),  # type: ignore[arg-type]
        SwiGlu(
            _linear(f"{name}.ffn.gate", D, F),  # type: ignore[arg-type]
            _linear(f"{name}.ffn.up", D, F),  # type: ignore[arg-type]
            _linear(f"{name}.ffn.down", F, D),  # type: ignore[arg-type]
        ),
    )


PARTS = ("query", "key", "value", "output")


def _attention(facts: dict[str, object], prefix: str = "attention") -> Attention:
    D = facts["D"]
    return Attention.from_parameters(
        *[weight(f"{prefix}.{role}.weight", D, D) for role in PARTS],  # type: ignore[arg-type]
        heads=facts["heads"],  # type: ignore[arg-type]
        max_positions=facts["C"],  # type: ignore[arg-type]
        rope_base=facts["base"],  # type: ignore[arg-type]
    )


def _linear(name: str, taken: int, given: int) -> Linear:
    return Linear.from_parameters(weight(f"{name}.weight", taken, given))


def _components(s: Situation) -> None:
    s.set(
        attention=_attention({"D": 4, "heads": 2, "C": 4, "base": 100.0}),
        attention_norm=RmsNorm.from_gain(weight("attention_norm.gain", s.attention_norm), 1e-6),
        ffn_norm=RmsNorm.from_gain(weight(s.name, s.ffn_norm), 1e-6),
        ffn=SwiGlu(
            _linear("gate", s.taken, 3), _linear("up", s.taken, 3), _linear("down", 3, s.given)
        ),
    )


def placed(name: str, size: int) -> Plant:
    """Put a size in place of a fact."""
    return lambda s: s.set(**{name: size})


block = Boundary(
    name="DecoderBlock",
    order=refuses(DecoderBlock),
    build=lambda: Situation(attention_norm=4, ffn_norm=4, taken=4, given=4, name="ffn_norm.gain"),
    ready=_components,
    call=lambda s: DecoderBlock(s.attention_norm, s.attention, s.ffn_norm, s.ffn),
    faults=(
        kind_fault("attention_norm", 4, what="block attention norm"),
        kind_fault("attention", None, what="block attention"),
        kind_fault("ffn_norm", 4, what="block feed-forward norm"),
        kind_fault("ffn", None, what="block feed-forward"),
        *[
            fault(
                Code.COMPONENT_WIDTH_MISMATCH,
                f"{what} of {size}",
                placed(name, size),
                what=what,
                expected=4,
                actual=size,
            )
            for name, what, size in (
                ("attention_norm", "attention norm", 5),
                ("ffn_norm", "feed-forward norm", 6),
                ("taken", "feed-forward input", 7),
                ("given", "feed-forward output", 8),
            )
        ],
        fault(
            Code.DUPLICATE_PARAMETER_NAME,
            "one name for both norms",
            lambda s: s.set(name="attention_norm.gain"),
            index=5,
            first=0,
        ),
    ),
)

block_parameters = Boundary(
    name="DecoderBlock.from_parameters",
    order=(*refuses(DecoderBlock.from_parameters), Code.GAIN_RANK),
    build=lambda: Situation(
        facts=dict(BLOCK_OF_TWO_HEADS), parameters=list(block_of(0, LAYER).parameters)
    ),
    ready=lambda s: s.set(config=DecoderBlockConfig(**s.facts)),
    call=lambda s: DecoderBlock.from_parameters(s.config, s.parameters),
    faults=(
        kind_fault("config", None, what="block config"),
        kind_fault("parameters", {}, what="block parameters"),
        fault(Code.GROUPED_HEADS, "one kv head", lambda s: s.facts.update(kv_heads=1)),
        fault(Code.CONTEXT_WINDOW, "window of 2", lambda s: s.facts.update(context_window=2)),
        fault(
            Code.PARAMETER_COUNT_MISMATCH,
            "eight parameters",
            lambda s: s.parameters.pop(),
            expected=9,
            actual=8,
        ),
        fault(
            Code.GAIN_RANK,
            "gain matrix",
            lambda s: s.parameters.__setitem__(0, weight("gain", 2, 2)),
            actual=(2, 2),
        ),
    ),
)

INF = float("inf")


def _input(*shape: int) -> Plant:
    return lambda s: s.set(values=ramp(*shape))


INPUT_FAULTS = (
    kind_fault("x", ramp(1, 2, 4), what="blocks.0.attention_norm.gain input"),
    fault(Code.INPUT_RANK_ZERO, "scalar", lambda s: s.set(values=1.0)),
    fault(Code.INPUT_WIDTH_MISMATCH, "width 5", _input(1, 2, 5), expected=4, actual=5),
    fault(
        Code.NON_FINITE_FORWARD,
        "square overflows",
        lambda s: s.set(values=s.values * 1e200),
        op="mul",
        index=0,
        value=INF,
    ),
    fault(Code.INPUT_RANK, "rank 2", _input(2, 4), rank=2),
    *[
        fault(Code.LAYOUT_SHAPE_MISMATCH, name, plant, expected=expected, actual=actual)
        for name, plant, expected, actual in (
            ("two rows of layout", placed("rows", 2), (1, 2), (2, 2)),
            ("two rows of vectors", _input(2, 2, 4), (2, 2), (1, 2)),
            ("one vector less", _input(1, 1, 4), (1, 1), (1, 2)),
        )
    ],
    fault(
        Code.POSITION_RANGE_EXCEEDED,
        "position 4",
        placed("position", 4),
        end=5,
        capacity=4,
    ),
)
SHAPES = {"scalar", "width 5", "rank 2", "two rows of vectors", "one vector less"}
ONE_SHAPE = (
    Apart("one shape is given", SHAPES),
    Apart("one pair of shapes", {"two rows of layout"}, {"two rows of vectors", "one vector less"}),
)

in_steps, in_one = (
    Boundary(
        name=name,
        order=(
            *refuses(RmsNorm.forward)[:4],
            Code.INPUT_RANK,
            Code.LAYOUT_SHAPE_MISMATCH,
            Code.POSITION_RANGE_EXCEEDED,
        ),
        build=lambda: Situation(values=ramp(1, 2, 4), rows=1, position=3),
        ready=lambda s: s.set(
            x=constant(s.values),
            block=block_of(0, LAYER),
            layout=two_cells(s.rows, s.position),
        ),
        call=lambda s, kernel=kernel: s.block.forward(  # type: ignore[misc]
            s.x, layout=s.layout, kernel=kernel
        ),
        faults=INPUT_FAULTS,
        apart=ONE_SHAPE,
    )
    for name, kernel in (("DecoderBlock.forward", None), ("DecoderBlock.forward, fused", ORDERED))
)

BOUNDARIES = (executable, block, block_parameters, in_steps, in_one)
