"""Laws over the planner: every count is that of counting one thing at a time."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from logitproof.properties import enumeration
from logitproof.properties.scalar import Config, Generator, initial_weights

from .components import Components
from .difference import Difference
from .drawn import Draw, draws, equal, first, refusal
from .law import Law

__all__ = ["LAWS"]

SENT = (
    "events", "sends", "message_elements", "rank_event_bytes", "rank_bytes", "total_bytes",
)  # fmt: skip
ALONE = ("single-device", "none", "none")
RING = ("tensor-parallel-ring", "matrix-axes-v1", "two-allreduces-per-block-forward-v1")
MODES = ("tracked-full", "untracked-full", "cached")


def _sizes(draw: Draw) -> dict[str, int]:
    """Small sizes; more query heads than key heads, and no power of two, on purpose."""
    g = draw.generator()
    kv_heads = 1 + g.below(2)
    heads = kv_heads * (1 + g.below(3))
    return {
        "vocabulary_size": 2 + g.below(4),
        "model_width": heads * 2 * (1 + g.below(2)),
        "layers": 1 + g.below(2),
        "heads": heads,
        "kv_heads": kv_heads,
        "feed_forward_width": 1 + g.below(5),
        "max_positions": 1 + g.below(4),
    }


def _records(implementation: Components, draw: Draw, **changes: Any) -> tuple[Any, Any]:
    parts = implementation.parts
    model = parts.ModelRecord.scale("reference").replace(**{**_sizes(draw), **changes})
    rows = 1 + draw.generator().below(3)
    return model, parts.RunRecord.fixture("reference-ci").replace(rows=rows)


def _arguments(model: Any) -> tuple[int, ...]:
    return (
        model.vocabulary_size,
        model.model_width,
        model.layers,
        model.heads,
        model.kv_heads,
        model.feed_forward_width,
    )


def _census(implementation: Components, draw: Draw) -> Difference | None:
    model, _ = _records(implementation, draw)
    held = enumeration.tensors(*_arguments(model))
    found = implementation.parts.census(model)
    parts = {
        "embedding": [t for t in held if t[0].startswith("token_embedding")],
        "attention": [t for t in held if ".attention." in t[0]],
        "feed_forward": [t for t in held if ".ffn." in t[0]],
        "norms": [t for t in held if t[0].endswith(".gain")],
        "total": held,
    }
    return first(
        equal(f"{name} of {_sizes(draw)}", enumeration.scalars(tensors), getattr(found, name))
        for name, tensors in parts.items()
    ) or equal("tensors by name", held, [(n, tuple(s)) for n, s in found.named_tensors()])


def _arrays(implementation: Components, draw: Draw) -> Difference | None:
    """The census and the cache of a model that really is built."""
    sizes = _sizes(draw)
    sizes["kv_heads"] = sizes["heads"]
    model, run = _records(implementation, draw, **sizes)
    config = Config(
        **{name: size for name, size in sizes.items() if name != "kv_heads"},  # type: ignore[arg-type]
        rope_base=10000.0,
        rms_epsilon=1e-6,
    )
    weights = initial_weights(config, Generator(draw.seed))
    implementation.load(config, weights)
    plan = implementation.parts.plan(model, run.replace(rows=1), "cached")
    scalars = sum(np.size(value) for value in weights.values())
    with implementation.session() as session:
        allocated = session.cache.nbytes
    head_width = config.model_width // config.heads
    table = implementation.rotation(head_width, config.max_positions, config.rope_base)
    return (
        equal("scalars of the parameters", scalars, plan.census.total)
        or equal("bytes of the cache", allocated, plan.kv_bytes[8])
        or equal("bytes of the tables", table.nbytes * config.layers, plan.rope_tables.total)
    )


def _kv(implementation: Components, draw: Draw) -> Difference | None:
    model, run = _records(implementation, draw)
    plan = implementation.parts.plan(model, run)
    head_width = model.model_width // model.heads
    return first(
        equal(
            f"KV bytes of width {width}, {run.rows} rows of {_sizes(draw)}",
            enumeration.kv_bytes(
                run.rows, model.layers, model.max_positions, model.kv_heads, head_width, width
            ),
            plan.kv_bytes[width],
        )
        for width in plan.kv_bytes
    )


def _macs(implementation: Components, draw: Draw) -> Difference | None:
    model, run = _records(implementation, draw)
    counted = implementation.parts.plan(model, run).macs
    return first(
        equal(
            f"{'causal' if causal else 'dense'} MACs of {_sizes(draw)}",
            enumeration.macs(run.rows, model.max_positions, *_arguments(model), causal=causal),
            counted.causal if causal else counted.dense,
        )
        for causal in (True, False)
    )


def _traffic(implementation: Components, draw: Draw) -> Difference | None:
    """Shards and sent bytes against a ring done message by message; a device alone sends none."""
    W = (2, 4, 3)[draw.size % 3]
    alone = implementation.parts.plan(*_records(implementation, draw)).traffic
    nothing = [getattr(alone, name) for name in ("world_size", *SENT)]
    model, run = _records(
        implementation, draw, model_width=4 * W, heads=2 * W, kv_heads=W, vocabulary_size=2 * W,
        feed_forward_width=W * (1 + draw.size % 2),
    )  # fmt: skip
    sent = implementation.parts.plan(model, run.replace(world_size=W, **_named(RING))).traffic
    held = enumeration.tensors(*_arguments(model))
    elements = run.rows * model.max_positions * model.model_width
    _, messages = enumeration.ring([list(range(elements)) for _ in range(W)])
    return equal("traffic of one device", [1, *[0] * len(SENT)], nothing) or first(
        equal(f"{what} of {W} ranks, {_sizes(draw)}", expected, actual)
        for what, expected, actual in (
            *((f"scalars of rank {rank}", enumeration.shard(held, W, rank), sent.rank_parameters)
              for rank in range(W)),
            ("ranks", W, sent.world_size),
            ("bytes", 8 * 2 * model.layers * sum(messages), sent.total_bytes),
        )
    ) or first(_topologies(implementation.parts, model, run, W, draw.size % 8))  # fmt: skip


def _topologies(
    parts: Any, model: Any, run: Any, W: int, share: int
) -> Iterator[Difference | None]:
    """Of all mixtures only one device and the whole ring of more than one rank are planned.

    share: which two of the 16 are tried
    """
    mixtures = [*product(product(*zip(ALONE, RING, strict=True)), (1, W))]
    for names, ranks in mixtures[share::8]:
        taken = names == (ALONE if ranks == 1 else RING)
        mixed = run.replace(world_size=ranks, **_named(names))
        expected = "a result" if taken else "support/topology"
        found = refusal(partial(parts.plan, model, mixed))
        yield equal(f"{ranks} ranks of {' / '.join(names)}", expected, found)


def _named(names: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(("topology", "sharding", "collectives"), names, strict=True))


def _peaks(points: Any) -> tuple[int, int]:
    """Both peaks, with all live buffers summed anew at every event."""
    live: dict[str, int] = {}
    resident = combined = 0
    for point in points:
        event = point.event
        if event.action == "allocate":
            live[event.name] = event.bytes
        elif event.action == "rename":
            live[event.name] = live.pop(event.of)
        elif event.action == "release":
            live.pop(event.name, None)  # an alias owns nothing
        resident = max(resident, sum(live.values()))
        combined = max(combined, sum(live.values()) + event.workspace)
    return resident, combined


def _liveness(implementation: Components, draw: Draw) -> Difference | None:
    model, run = _records(implementation, draw)

    def one(mode: str) -> Iterator[Difference | None]:
        lived = implementation.parts.plan(model, run, mode).liveness
        yield equal(
            f"peaks of {mode}, {_sizes(draw)}",
            _peaks(lived.events),
            (lived.resident_peak, lived.combined_peak),
        )
        if mode == "tracked-full":
            yield equal(f"values that a forward keeps, {_sizes(draw)}", *_kept(lived, model, run))

    return first(d for mode in MODES for d in one(mode))


def _kept(lived: Any, model: Any, run: Any) -> tuple[int, int]:
    """Bytes alive when the reverse pass begins, beside the state."""
    names = [point.event.name for point in lived.events]
    begins = names.index("loss.adjoint")
    state = next(p.live for p in lived.events)
    V, D, L, heads, kv_heads, F = _arguments(model)
    rows = max(run.rows, run.microbatch)  # what an admitted call may use
    elements = enumeration.forward_elements(rows, model.max_positions, V, D, L, heads, kv_heads, F)
    return 8 * elements, lived.events[begins - 1].live - state


# Bytes of state per scalar, of one rotation value, of one cached element, by dtype policy.
WIDTHS = {"f64": (16, 8, 8), "half-protected-32": (18, 4, 2), "bf16-accounting": (18, 4, 2)}


def _state(implementation: Components, draw: Draw) -> Difference | None:
    """State, rotation tables and metadata of a batch, under each dtype policy."""
    policy = list(WIDTHS)[draw.size % 3]
    mode = MODES[draw.size // 3 % 3]
    model, run = _records(implementation, draw, dtype_policy=policy)
    scalar, table, element = WIDTHS[policy]
    plan = implementation.parts.plan(model, run, mode)
    P = enumeration.scalars(enumeration.tensors(*_arguments(model)))
    pairs = model.model_width // model.heads // 2
    turned = table * model.layers * (pairs + 2 * pairs * model.max_positions)
    B = 1 if mode == "cached" else max(run.rows, run.microbatch)
    T = 1 if mode == "cached" else model.max_positions
    role = "parameters" if policy == "f64" else "weights"
    arrays = 5 if mode == "tracked-full" else 4  # two of the layout, ids; targets of a loss
    kept = plan.demands.partitions["kv"].known
    rows = B if mode == "cached" else run.rows
    cached = enumeration.kv_bytes(
        rows, model.layers, model.max_positions, model.kv_heads, 2 * pairs, element
    )
    return first(
        equal(f"{what} of {policy}, {mode}, {_sizes(draw)}", expected, actual)
        for what, expected, actual in (
            (
                "aliases of the state",
                [(f"{role}.output_head", f"{role}.token_embedding.weight")],
                [(e.name, e.alias_of) for e in plan.state.entries if e.alias_of],
            ),
            ("bytes of state", scalar * P + turned, plan.state.total),
            ("bytes of rotation tables", turned, plan.rope_tables.total),
            ("bytes of metadata", 8 * (B + (arrays - 1) * B * T), plan.layout_metadata.total),
            ("bytes of keys and values", cached, kept),
        )
    )


def _exact(implementation: Components, draw: Draw) -> Difference | None:
    """Sizes beyond 2^53: no float has a part in any of them."""
    g = draw.generator()
    V = 2**53 + 1 + 2 * g.below(100)
    model, run = _records(implementation, draw, vocabulary_size=V, max_positions=1)
    plan = implementation.parts.plan(model, run.replace(rows=1), "cached")
    small = enumeration.tensors(1, *_arguments(model)[1:])
    P = enumeration.scalars(small) + (V - 1) * model.model_width
    pairs = model.model_width // model.heads // 2
    state = 16 * P + 8 * model.layers * (pairs + 2 * pairs * model.max_positions)
    return equal(f"scalars with {V} rows", P, plan.census.total) or equal(
        f"bytes of state with {V} rows", state, plan.state.total
    )


def _law(name: str, statement: str, check: Any, *faults: str, source: str, seed: int) -> Law:
    return Law(
        id=f"counts.{name}",
        statement=statement,
        source=source,
        needs=("planner", "records"),
        faults=faults,
        cases=draws("sizes", first_seed=seed),
        check=check,
    )


LAWS = (
    _law(
        "census",
        "The census counts every learned scalar once, the tied table too, by category and name.",
        _census,
        "tied-table-counted-twice", "tied-table-subtracted", "key-width-of-query-heads",
        source="config_planner.md sections 4 and 5; cases: tied-count",
        seed=60_000,
    ),
    _law(
        "real-arrays",
        "A built decoder has the scalars of the census; its cache and tables the planned bytes.",
        _arrays,
        "tied-table-counted-twice", "keys-without-values", "sines-not-counted",
        source="config_planner.md section 7; cases: plan-kv-bytes",
        seed=61_000,
    ),
    _law(
        "kv",
        "KV bytes count keys and values of every row, layer, position and key head.",
        _kv,
        "kv-by-query-heads", "keys-without-values",
        source="config_planner.md section 7; cases: plan-kv-bytes",
        seed=62_000,
    ),
    _law(
        "macs",
        "Causal and dense MACs count every product of every matrix, head and pair of cells.",
        _macs,
        "causal-pairs-without-diagonal", "head-macs-forgotten",
        source="config_planner.md section 7",
        seed=63_000,
    ),
    _law(
        "traffic",
        "Ranks own what the partition gives them and send what a ring sends message by message.",
        _traffic,
        "ring-sends-one-more", "gains-partitioned",
        source="config_planner.md section 9",
        seed=64_000,
    ),
    _law(
        "liveness",
        "The peaks are those of summing all live buffers at every event; a recorded forward keeps"
        " every value of the specification.",
        _liveness,
        "peak-after-last-event", "workspace-beside-peak",
        source="config_planner.md section 8",
        seed=65_000,
    ),
    _law(
        "state",
        "State, rotation tables, metadata and cached rows have the widths of their dtype policy.",
        _state,
        "second-moment-in-half", "tables-by-layer-once",
        source="config_planner.md sections 7 and 8",
        seed=97_000,
    ),
    _law(
        "exact",
        "Counts beyond 2^53 are exact integers.",
        _exact,
        "ceiling-by-float", "census-in-floats",
        source="cases: plan-ceil-float",
        seed=66_000,
    ),
)  # fmt: skip
