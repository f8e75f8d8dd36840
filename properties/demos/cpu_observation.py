"""One admitted decoder run on the CPU: construction, loss, backward, cached decoding."""

import hashlib
from typing import Any

import numpy as np

from logitproof.core import NO_GRAD, Decoder, DecodeSession, SplitMix64
from logitproof.core.planner import admit
from logitproof.core.records import ModelRecord, RunRecord

from .agreement import require, same_bits

Facts = dict[str, Any]
Array = np.ndarray[Any, Any]

SEED = 4701
IDS, TARGETS = [[0, 99, 100]], [[99, 100, 1]]
# Declared by the source for newest logits against the last row of the full forward.
ABSOLUTE, RELATIVE = 1e-10, 1e-9


def observe(scale: str, profile: str) -> Facts:
    """The measured facts; raises Disagreement unless cached and full execution agree."""
    admission = admit(ModelRecord.scale(scale), RunRecord.fixture(profile))
    constructed = admission.construct(SplitMix64(SEED))
    decoder: Decoder = constructed.decoder
    mean, raw = decoder.loss(IDS, TARGETS), decoder.loss_sum(IDS, TARGETS, context=NO_GRAD)
    mean.backward()
    gradients = [parameter.gradient for parameter in decoder.parameters.values()]
    cached = _cached(decoder)
    after = [parameter.gradient for parameter in decoder.parameters.values()]
    unchanged = all(same_bits(a, b) for a, b in zip(gradients, after, strict=True))
    require(unchanged, f"{scale}: cached decoding leaves every training gradient unchanged")
    return {
        "label": "measured",
        "seed": SEED,
        "construction_sha256": constructed.identity,
        "ids": IDS[0],
        "targets": TARGETS[0],
        "mean_loss": float(mean.value),
        "mean_loss_bits": _bits(mean.value),
        "raw_sum": float(raw.value),
        "raw_sum_bits": _bits(raw.value),
        "divisor": len(TARGETS[0]),
        "per_position_losses": [_position_loss(decoder, position) for position in range(3)],
        "gradients_sha256": {
            name: hashlib.sha256(gradient.astype("<f8").tobytes()).hexdigest()
            for name, gradient in zip(decoder.parameters, gradients, strict=True)
        },
        "cached": {**cached, "training_gradients_unchanged": unchanged},
    }


def _cached(decoder: Decoder) -> Facts:
    """Prefill of all ids but the last, then the last; against the full forward."""
    full = decoder.forward(IDS, context=NO_GRAD).logits.value[0, -1]
    with DecodeSession(decoder) as session:
        session.prefill(IDS[0][:-1])
        output = session.decode(IDS[0][-1])
        work, payload = session.work, session.cache.nbytes
    difference = np.abs(output.logits - full)
    allowed = ABSOLUTE + RELATIVE * np.maximum(np.abs(output.logits), np.abs(full))
    require(bool((difference <= allowed).all()), "cached and full newest logits agree")
    return {
        "length": output.length,
        "cache_appends": work.cache_appends,
        "attention_score_values": work.attention_score_values,
        "token_forwards": work.token_forwards,
        "payload_bytes": payload,
        "largest_newest_logit_difference": float(difference.max()),
        "graph_free": not output.tracked,
    }


def _position_loss(decoder: Decoder, position: int) -> float:
    """The loss of one target alone."""
    valid = [[p == position for p in range(3)]]
    targets = [[t if p == position else -1 for p, t in enumerate(TARGETS[0])]]
    loss = decoder.loss(IDS, targets, valid=valid, context=NO_GRAD)
    return float(loss.value)


def _bits(value: Array) -> str:
    return value.astype(">f8").tobytes().hex()
