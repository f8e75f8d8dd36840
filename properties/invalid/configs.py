"""Boundaries of block and model configurations."""

from __future__ import annotations

from logitproof.core import DecoderBlockConfig, DecoderConfig
from logitproof.core.codes import Code
from logitproof.core.config import BLOCK_CONFIG_ORDER, CONFIG_ORDER

from .arguments import (
    base_faults,
    epsilon_faults,
    head_apart,
    head_faults,
    one,
    one_base,
    one_epsilon,
    size_faults,
)
from .boundary import Boundary, Situation, fault

__all__ = ["BLOCK_FACTS", "BOUNDARIES"]

BASES = base_faults(Code.INVALID_ROPE_BASE, "rope_base")
EPSILONS = epsilon_faults(Code.INVALID_RMS_EPSILON, "rms_epsilon")
BLOCK_FACTS = {
    "model_width": 4,
    "heads": 2,
    "feed_forward_width": 3,
    "max_positions": 4,
    "kv_heads": 1,
    "context_window": 2,
    "rope_base": 100.0,
    "rms_epsilon": 1e-6,
}
CONFIG_APART = (
    *head_apart("model_width", "heads"),
    one("feed_forward_width", "no feed-forward feature"),
    one("max_positions", "no position"),
    one_base("rope_base"),
    one_epsilon("rms_epsilon"),
)
WIDTHS = (
    fault(
        Code.ZERO_FEED_FORWARD_WIDTH,
        "no feed-forward feature",
        lambda s: s.set(feed_forward_width=0),
    ),
    fault(Code.ZERO_POSITION_CAPACITY, "no position", lambda s: s.set(max_positions=0)),
)

block_config = Boundary(
    name="DecoderBlockConfig",
    order=BLOCK_CONFIG_ORDER,
    build=lambda: Situation(**BLOCK_FACTS),
    call=lambda s: DecoderBlockConfig(**vars(s)),
    faults=(
        *size_faults("model_width"),
        *size_faults("heads")[:1],
        *size_faults("max_positions")[1:],
        *size_faults("kv_heads"),
        *size_faults("context_window"),
        *head_faults("model_width", "heads"),
        fault(
            Code.KV_HEADS_NOT_A_DIVISOR,
            "kv_heads of 5",
            lambda s: s.set(kv_heads=5),
            kv_heads=5,
        ),
        fault(Code.KV_HEADS_NOT_A_DIVISOR, "no kv head", lambda s: s.set(kv_heads=0)),
        fault(Code.ZERO_CONTEXT_WINDOW, "no window", lambda s: s.set(context_window=0)),
        *WIDTHS,
        *BASES[:3],
        *EPSILONS[:2],
    ),
    apart=(
        *CONFIG_APART,
        one("kv_heads", "kv_heads of 5", "no kv head"),
        one("context_window", "no window"),
    ),
)

model_config = Boundary(
    name="DecoderConfig",
    order=CONFIG_ORDER,
    build=lambda: Situation(
        vocabulary_size=5,
        layers=1,
        **{k: v for k, v in BLOCK_FACTS.items() if k not in ("kv_heads", "context_window")},
    ),
    call=lambda s: DecoderConfig(**vars(s)),
    faults=(
        *size_faults("vocabulary_size"),
        *size_faults("model_width")[1:],
        *size_faults("heads"),
        *size_faults("feed_forward_width")[:1],
        *size_faults("layers"),
        *size_faults("max_positions"),
        fault(Code.EMPTY_VOCABULARY, "no vocabulary", lambda s: s.set(vocabulary_size=0)),
        *head_faults("model_width", "heads"),
        *WIDTHS,
        *BASES,
        *EPSILONS,
    ),
    apart=(*CONFIG_APART, one("vocabulary_size", "no vocabulary"), one("layers")),
)

BOUNDARIES = (block_config, model_config)
