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
)
from logitproof.core.block import check_executable
from logitproof.core.codes import Code

from .arguments import kind_fault
from .boundary import Boundary, Plant, Situation, fault, refuses
from .configs import BLOCK_FACTS
from .leaves import NAME_FAULTS
from .making import weight

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

BOUNDARIES = (executable, block, block_parameters)
