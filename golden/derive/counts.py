"""Records, identities, census and ledgers: JSON written out, hashes, and counting one by one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from logitproof.golden.load import Case
from logitproof.properties import enumeration
from logitproof.properties.scalar import Config, Generator, initial_weights

from . import values
from .values import Object

__all__ = ["counts", "records"]

COMMON = {
    "schema_version": 1,
    "parameter_family": "pre-rmsnorm-rope-swiglu-bias-free",
    "rope_policy": "adjacent-pairs",
    "rope_base": "40c3880000000000",
    "rms_epsilon": "3eb0c6f7a0b5ed8d",
    "mask_policy": "causal",
    "head_policy": "tied-transpose",
    "tokenizer_id": "byte-bpe-v1",
    "initialization_policy": "residual-output-init-depth-v1",
}
SIZES = ("vocabulary_size", "model_width", "layers", "heads", "kv_heads", "feed_forward_width")
# V, D, L, H_q, H_kv, F; C; dtype. Source: config_planner.md section 6
SCALES = {
    "reference": ((266, 4, 1, 1, 1, 4), 4, "f64"),
    "bridge": ((266, 16, 2, 2, 2, 20), 16, "f64"),
    "laptop": ((16384, 512, 8, 8, 2, 1536), 512, "half-protected-32"),
    "production": ((128000, 8192, 80, 64, 8, 28672), 32768, "bf16-accounting"),
    "seed-sensitivity": ((8192, 256, 3, 4, 1, 768), 256, "half-protected-32"),
    "laptop-smoke-c128-v1": ((16384, 512, 8, 8, 2, 1536), 128, "half-protected-32"),
}
CPU, GPU, NONE = ("numpy", "cpu", "ordered-f64"), ("gpu", "gpu", "none"), ("none", "none", "none")
# Rows, tokens, microbatch, accumulation; seed; places. Source: records.md section 2
RUNS = {
    "reference-ci": ((16, 2048, 16, 1), 4701, CPU),
    "bridge-ci": ((8, 65536, 8, 1), 4701, CPU),
    "8gb-gpu-smoke": ((1, 65536, 1, 8), 0, GPU),
    "8gb-seed-sensitivity": ((1, 1000000, 1, 32), 104729, GPU),
    "8gb-gpu-core": ((1, 20000000, 1, 64), 0, GPU),
    "8gb-adapter": ((1, 1048576, 1, 32), 0, GPU),
    "production-plan-only": ((1, 15000000000000, 1, 1), 0, NONE),
}
CHANGES: dict[str, Object] = {
    "one-key-head": {"kv_heads": 1},
    "negative-zero-epsilon": {"rms_epsilon": "8000000000000000"},
    "largest-sizes": {"vocabulary_size": 2**64 - 1, "max_positions": 2**64 - 1},
    "escaped-text": {"vocabulary_id": 'é"\\\n\t\x00\x7f/\U0001f600'},
}
SOURCE = "records.md sections 1, 2 and 4, written out with json and hashlib"


def written(value: object) -> str:
    """Canonical JSON. Source: config_planner.md section 2"""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"


def identity(domain: str, fields: dict[str, str]) -> tuple[str, str]:
    """The framed text and its SHA-256. Source: config_planner.md section 3"""
    text = written({"domain": domain, "fields": fields, "schema_version": 1})
    return text, hashlib.sha256(text.encode()).hexdigest()


def model_fields(scale: str) -> Object:
    """The model record of a scale."""
    sizes, C, dtype = SCALES[scale]
    own = {"max_positions": C, "dtype_policy": dtype, "vocabulary_id": f"byte-bpe-{sizes[0]}"}
    return {**COMMON, **dict(zip(SIZES, sizes, strict=True)), **own}


def run_fields(name: str) -> Object:
    """The run record of a profile."""
    counted, seed, places = RUNS[name]
    return {
        "schema_version": 1,
        **dict(zip(("rows", "token_budget", "microbatch", "accumulation"), counted, strict=True)),
        "world_size": 1,
        "seeds": {"initialization": seed, "shuffle": 0, "sampling": 0},
        "topology": "single-device",
        "sharding": "none",
        "collectives": "none",
        **dict(zip(("backend", "device", "kernel"), places, strict=True)),
        "resource_profile": name,
    }


def records() -> Iterator[Case]:
    """Canonical bytes and identities of records, framed texts and constructions."""
    for scale in SCALES:
        yield _record(f"records/model-{scale}", "model", model_fields(scale))
    for name, changes in CHANGES.items():
        yield _record(f"records/model-{name}", "model", {**model_fields("laptop"), **changes})
    for name in RUNS:
        yield _record(f"records/run-{name}", "run", run_fields(name))
    half = {"token_budget": 7500000000000}
    production = {**run_fields("production-plan-only"), **half}
    yield _record("records/run-production-half-budget", "run", production)
    seeds = {"initialization": 2**64 - 1, "shuffle": 1, "sampling": 2}
    yield _record("records/run-seeds", "run", {**run_fields("bridge-ci"), "seeds": seeds})
    for i, fields in enumerate(({"b": "2", "a": "1"}, {"k": ""}, {"a0._-": "é\n\x01"})):
        text, digest = identity("some-domain-v1", fields)
        yield values.case(
            f"records/identity-{i + 1}", SOURCE, "keys sorted, short escapes, one line feed",
            "identity-bytes", setup={"kind": "identity"},
            input={"domain": "some-domain-v1", "fields": fields},
            expect={"text": text, "sha256": digest},
        )  # fmt: skip
    for scale in ("reference", "bridge"):
        yield _construction(scale)


def _record(identifier: str, record: str, fields: Object) -> Case:
    text = written(fields)
    return values.case(
        identifier, SOURCE, "the bytes are canonical JSON, the identity frames them as one text",
        "identity-bytes", setup={"kind": "record", "record": record}, input={"fields": fields},
        expect={"text": text,
                "sha256": identity(f"decoder-{record}-v1", {"configuration": text})[1]},
    )  # fmt: skip


def _construction(scale: str) -> Case:
    V, D, L, heads, _, F = SCALES[scale][0]
    generator = Generator(4701)
    config = Config(vocabulary_size=V, model_width=D, heads=heads, feed_forward_width=F, layers=L,
                    max_positions=SCALES[scale][1])  # fmt: skip
    initial_weights(config, generator)
    texts = [written(model_fields(scale)), written(run_fields(f"{scale}-ci"))]
    fields = {
        "semantic-sha256": identity("decoder-model-v1", {"configuration": texts[0]})[1],
        "run-sha256": identity("decoder-run-v1", {"configuration": texts[1]})[1],
        "initial-rng": "4701",
        "final-rng": str(generator.state),
        "policy": "residual-output-init-depth-v1",
        "base-initializer": "xavier-uniform-splitmix64-v1",
    }
    return values.case(
        f"records/construction-{scale}", "config_planner.md section 3, written out",
        "both records, both generator states, policy and base initialiser", "identity-bytes",
        setup={"kind": "construction", "scale": scale, "run": f"{scale}-ci"},
        input={"seed": 4701},
        expect={"sha256": identity("decoder-construction-v1", fields)[1],
                "final_state": f"{generator.state:016x}"},
    )  # fmt: skip


# --- census and ledgers ----------------------------------------------------------------------

SMALL = {
    "tiny": (5, 2, 1, 1, 1, 2, 3, 2),
    "grouped": (7, 8, 2, 4, 2, 6, 5, 1),
    "one-key-head": (6, 12, 3, 6, 1, 5, 4, 2),
    "bridge-sized": (26, 16, 2, 2, 2, 20, 8, 2),
}  # V, D, L, H_q, H_kv, F, C, B
CATEGORIES = {"attention": "attention", "ffn": "feed_forward", "token_embedding": "embedding"}


def counts() -> Iterator[Case]:
    """Parameters, cache bytes, products, shards and live bytes, each counted singly."""
    for name, sizes in SMALL.items():
        yield _census(name, *sizes)
    yield from _traffic()
    yield from _liveness()


def _census(name: str, V: int, D: int, L: int, heads: int, kv: int, F: int, C: int, B: int) -> Case:
    held = enumeration.tensors(V, D, L, heads, kv, F)
    totals = dict.fromkeys(("embedding", "attention", "feed_forward", "norms"), 0)
    for tensor, shape in held:
        part = tensor.split(".")[2 if tensor.startswith("blocks.") else 0]
        totals["norms" if len(shape) == 1 else CATEGORIES[part]] += enumeration.scalars(
            [(tensor, shape)]
        )
    both = {"causal": True, "dense": False}
    own = {"max_positions": C, "vocabulary_id": f"byte-bpe-{V}", "dtype_policy": "f64"}
    fields = {**COMMON, **dict(zip(SIZES, (V, D, L, heads, kv, F), strict=True)), **own}
    return values.case(
        f"counts/census-{name}", "properties.enumeration",
        "every scalar, cached byte and product counted one by one; key heads, not query heads",
        "kv-heads",
        setup={"kind": "census"}, input={"fields": {**fields, "rows": B}},
        expect={
            "groups": [[tensor, list(shape)] for tensor, shape in held],
            "totals": {**totals, "total": enumeration.scalars(held), "tensors": len(held)},
            "kv_bytes": {str(b): enumeration.kv_bytes(B, L, C, kv, D // heads, b) for b in (2, 8)},
            "macs": {kind: enumeration.macs(B, C, V, D, L, heads, kv, F, causal=causal)
                     for kind, causal in both.items()},
        },
    )  # fmt: skip


def _traffic() -> Iterator[Case]:
    for W in (2, 4):
        V, D, L, heads, kv, F, C, B = 8, 8, 2, 4, 4, 12, 4, 1
        _, sent = enumeration.ring([[r + k for k in range(B * C * D)] for r in range(W)])
        held = enumeration.tensors(V, D, L, heads, kv, F)
        per_event = sent[0] * 8
        own = {"max_positions": C, "vocabulary_id": f"byte-bpe-{V}", "dtype_policy": "f64"}
        sizes = dict(zip(SIZES, (V, D, L, heads, kv, F), strict=True))
        yield values.case(
            f"counts/traffic-ring-{W}", "properties.enumeration: a ring done message by message",
            "two reductions per block, 2 (W - 1) messages each; gains stay whole", "ring-traffic",
            setup={"kind": "traffic", "scale": {**COMMON, **sizes, **own}, "run": "bridge-ci"},
            input={"run_fields": {"rows": B, "world_size": W, "topology": "tensor-parallel-ring",
                                  "sharding": "matrix-axes-v1",
                                  "collectives": "two-allreduces-per-block-forward-v1"},
                   "width": 8},
            expect={"facts": {
                "events": 2 * L, "sends": 2 * (W - 1), "message_elements": B * C * D // W,
                "rank_event_bytes": per_event, "rank_bytes": per_event * 2 * L,
                "total_bytes": per_event * 2 * L * W,
                "rank_parameters": enumeration.shard(held, W, 0)}},
        )  # fmt: skip


TIMELINES: dict[str, list[tuple[str, str, int, int]]] = {
    "overlap": [("allocate", "state", 64, 0), ("allocate", "A", 64, 0), ("allocate", "B", 128, 32),
                ("release", "A", 0, 0), ("release", "B", 0, 0)],
    "released-first": [("allocate", "state", 64, 0), ("allocate", "A", 64, 0),
                       ("release", "A", 0, 0), ("allocate", "B", 128, 32)],
    "workspace-alone": [("allocate", "A", 8, 0), ("use", "A", 0, 1000), ("allocate", "B", 8, 0)],
}  # fmt: skip


def _liveness() -> Iterator[Case]:
    for name, events in TIMELINES.items():
        owned, combined = enumeration.peak(events)
        yield values.case(
            f"counts/liveness-{name}", "properties.enumeration",
            "the largest sum of live bytes, and with each event's own workspace", "liveness",
            setup={"kind": "liveness"}, input={"events": [list(event) for event in events]},
            expect={"resident_peak": owned, "workspace": max(w for *_, w in events),
                    "combined_peak": combined},
        )  # fmt: skip
