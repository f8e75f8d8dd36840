"""The input-boundary report: text composition, gradient partition, cached rows, a refusal."""

import hashlib
import json
from typing import Any

import numpy as np

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    BpeTokenizer,
    Decoder,
    DecoderBackbone,
    DecoderBlock,
    DecoderConfig,
    DecodeSession,
    PreparedDecoderInput,
    SequenceLayout,
    SplitMix64,
    Tensor,
    TextInputEncoder,
    TextOutputHead,
    constant,
    ops,
)

from .agreement import refusal_facts, require, same_bits

Facts = dict[str, Any]
Array = np.ndarray[Any, Any]

CONFIG = DecoderConfig(
    vocabulary_size=258,
    model_width=4,
    heads=1,
    feed_forward_width=8,
    layers=2,
    max_positions=8,
    rope_base=10000.0,
    rms_epsilon=1e-6,
)
SEED = 39
TEXT = "ab"
ROW, FEATURE = 99, 0  # the sample coordinate of the tied gradient
GRADIENT_TOLERANCE = 1e-12  # absolute, declared by the source; additions may differ in order


def report() -> Facts:
    """The computed facts; raises Disagreement unless every comparison of them holds."""
    document = BpeTokenizer().encode_document(TEXT)
    ids, targets = [document[:-1]], [document[1:]]
    decoder = Decoder(CONFIG, SplitMix64(SEED))
    composed, total = _composition(decoder, ids, targets)
    wrapper = decoder.forward(ids)
    lookup, head = _lookup_part(decoder, ids, targets), _head_part(decoder, ids, targets)
    facts = {
        **composed,
        "lookup_and_head_same_node": decoder.table.is_same_node(decoder.embedding.table)
        and decoder.head.table is decoder.embedding.table,
        "same_text_wrapper_logits": _sha256(wrapper.logits.value) == composed["logit_bits"],
        **_partition(total, lookup, head),
        "cached": _cached(decoder, document[:-1], wrapper.logits.value[0, -1]),
        "refusal": _refused_vector(decoder),
    }
    require(facts["lookup_and_head_same_node"], "lookup and head use one node")
    require(facts["same_text_wrapper_logits"], "composition and wrapper give the same logit bits")
    require(facts["within_tolerance"], "the tied gradient is lookup part plus head part")
    return facts


def report_lines(facts: Facts) -> list[str]:
    """One JSON object on one line."""
    return [json.dumps(facts, separators=(",", ":"), allow_nan=False)]


def _composition(decoder: Decoder, ids: object, targets: object) -> tuple[Facts, Array]:
    """Encode, backbone, head, loss, backward, each by hand; the total table gradient."""
    prepared = TextInputEncoder(decoder, ids).encode(RECORDING, decoder.backbone)
    hidden = decoder.backbone.forward(prepared).hidden
    logits = decoder.head.forward(RECORDING, hidden)
    loss = RECORDING.apply(ops.indexed_mean_nll, logits, axis=2, targets=targets)
    loss.backward()
    facts = {
        "demo": "input-boundary",
        "loss": float(loss.value),
        "loss_bits": _bits(float(loss.value)),
        "embedding_shape": list(prepared.embeddings.shape),
        "hidden_shape": list(hidden.shape),
        "logits_shape": list(logits.shape),
        "parameters": sum(p.value.size for p in decoder.parameters.values()),
        "tensors": len(decoder.parameters),
        "embedding_bits": [_bits(x) for x in prepared.embeddings.value.reshape(-1).tolist()],
        "logit_bits": _sha256(logits.value),
    }
    return facts, decoder.table.gradient


def _clear(decoder: Decoder) -> None:
    for parameter in decoder.parameters.values():
        parameter.zero_gradient()


def _lookup_part(decoder: Decoder, ids: object, targets: object) -> Array:
    """The table gradient with the head on a detached table."""
    _clear(decoder)
    prepared = TextInputEncoder(decoder, ids).encode(RECORDING, decoder.backbone)
    hidden = decoder.backbone.forward(prepared).hidden
    logits = TextOutputHead(decoder.table.detach()).forward(RECORDING, hidden)
    RECORDING.apply(ops.indexed_mean_nll, logits, axis=2, targets=targets).backward()
    return decoder.table.gradient


def _head_part(decoder: Decoder, ids: object, targets: object) -> Array:
    """The table gradient with the embedding detached, no producer declared, the head live."""
    _clear(decoder)
    looked_up = TextInputEncoder(decoder, ids).encode(RECORDING, decoder.backbone)
    prepared = PreparedDecoderInput(
        decoder.backbone,
        RECORDING,
        looked_up.embeddings.detach(),
        looked_up.layout,
        "detached text embedding",
    )
    hidden = decoder.backbone.forward(prepared).hidden
    logits = decoder.head.forward(RECORDING, hidden)
    RECORDING.apply(ops.indexed_mean_nll, logits, axis=2, targets=targets).backward()
    return decoder.table.gradient


def _partition(total: Array, lookup: Array, head: Array) -> Facts:
    largest = float(np.abs(total - (lookup + head)).max())
    return {
        "row": ROW,
        "feature": FEATURE,
        "total": float(total[ROW, FEATURE]),
        "lookup_path": float(lookup[ROW, FEATURE]),
        "head_path": float(head[ROW, FEATURE]),
        "max_gradient_error": largest,
        "gradient_tolerance": GRADIENT_TOLERANCE,
        "within_tolerance": largest <= GRADIENT_TOLERANCE,
    }


def _cached(decoder: Decoder, ids: list[int], newest: Array) -> Facts:
    """Prefill all but the last id, decode it, and compare with the full forward's last row."""
    before = [p.gradient for p in decoder.parameters.values()]
    with DecodeSession(decoder) as session:
        session.prefill(ids[:-1])
        output = session.decode(ids[-1])
        work = session.work
    after = [p.gradient for p in decoder.parameters.values()]
    mismatches = int((output.logits.view(np.uint64) != newest.copy().view(np.uint64)).sum())
    unchanged = all(same_bits(a, b) for a, b in zip(before, after, strict=True))
    require(mismatches == 0, "cached and full newest logits have the same bits")
    require(unchanged, "cached decoding leaves every training gradient unchanged")
    return {
        "newest_logit_bit_mismatches": mismatches,
        "length": output.length,
        "cache_appends": work.cache_appends,
        "attention_score_values": work.attention_score_values,
        "tracked": output.tracked,
        "gradients_unchanged": unchanged,
    }


class _CountedBlock(DecoderBlock):
    """A block over another one's layers that counts how often any such block ran."""

    runs = 0

    def inspect(self, *operands: Any, **arguments: Any) -> dict[str, Tensor]:
        """The block's own steps, counted."""
        _CountedBlock.runs += 1
        return super().inspect(*operands, **arguments)


def _counted_backbone(decoder: Decoder) -> DecoderBackbone:
    blocks = [
        _CountedBlock(block.attention_norm, block.attention, block.ffn_norm, block.ffn)
        for block in decoder.backbone.blocks
    ]
    return DecoderBackbone(CONFIG.block_config, blocks, decoder.backbone.final_norm)


def _blocks_run(backbone: DecoderBackbone, width: int) -> tuple[int, Facts]:
    """How many blocks run for a vector of that width, and the refusal's fields if refused."""
    vector, before = constant(np.zeros((1, 1, width))), _CountedBlock.runs
    layout = SequenceLayout.full(1, 1)
    facts = refusal_facts(
        lambda: backbone.forward(
            PreparedDecoderInput(backbone, NO_GRAD, vector, layout, "hand-made vector")
        )
    )
    return _CountedBlock.runs - before, facts


def _refused_vector(decoder: Decoder) -> Facts:
    """A vector one feature short of the model width: refused before any block runs."""
    backbone, width = _counted_backbone(decoder), CONFIG.model_width - 1
    accepted, _ = _blocks_run(backbone, CONFIG.model_width)
    require(accepted == CONFIG.layers, "a vector of the model width runs every block")
    run, facts = _blocks_run(backbone, width)
    require(bool(facts), f"a vector of width {width} is refused")
    return {
        "code": str(facts["code"]),
        "reason": facts["reason"],
        "vector_shape": [1, 1, width],
        "blocks_run": run,
    }


def _bits(value: float) -> str:
    return np.float64(value).tobytes()[::-1].hex()


def _sha256(values: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(values, "<f8").tobytes()).hexdigest()
