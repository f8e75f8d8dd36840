"""The configured-core report: records, plans of every scale, two admitted decoders."""

import json
from dataclasses import replace
from typing import Any

from logitproof.core import ledgers, modes, planner
from logitproof.core import report as parts
from logitproof.core.census import census
from logitproof.core.limits import Demand, Demands, compare
from logitproof.core.liveness import Event, measure
from logitproof.core.macs import macs
from logitproof.core.planner import plan
from logitproof.core.profiles import EXECUTABLE, PROFILES, profile
from logitproof.core.records import TENSOR_PARALLEL, ModelRecord, RunRecord
from logitproof.core.sizes import UNKNOWN
from logitproof.core.traffic import REDUCTIONS, Traffic

from . import cpu_observation
from .agreement import require

Facts = dict[str, Any]

# Profile -> the scale that its run fixture goes with.
SCALE_OF = {
    "reference-ci": "reference",
    "bridge-ci": "bridge",
    "8gb-gpu-smoke": "laptop-smoke-c128-v1",
    "8gb-seed-sensitivity": "seed-sensitivity",
    "8gb-gpu-core": "laptop",
    "8gb-adapter": "laptop",
    "production-plan-only": "production",
}
PRODUCTION = "production-plan-only"
OBSERVED = ("reference-ci", "bridge-ci")
HALVED_BUDGET = 7_500_000_000_000
COMPLETE_LAYERS = 8  # up to here every block's events are listed, else its repetitions counted
# Parts that the concise report leaves out: lists of allocations and events, and their like.
LEDGER_KEYS = frozenset(
    {
        *("groups", "dense_groups", "entries", "events", "reductions"),
        *("per_position_losses", "gradients_sha256"),
    }
)
ENTRY_KEYS = frozenset({"required", "limit"})


def report() -> Facts:
    """The computed facts; raises Disagreement unless cached and full execution agree."""
    return {
        "demo": "configured-core",
        "scales": {scale: _scale(name) for name, scale in SCALE_OF.items()},
        "records": {name: _records(name) for name in SCALE_OF},
        "profiles": {name: _profile(name) for name in SCALE_OF},
        "ledgers": {name: _ledgers(name) for name in SCALE_OF},
        "liveness": {name: _liveness(name) for name in SCALE_OF},
        "synthetic": _synthetic(),
        "traffic": _traffic(),
        "kv_against_core_device": _kv_excess(),
        "budget_history": budget_history(),
        "observations": {
            SCALE_OF[name]: cpu_observation.observe(SCALE_OF[name], name) for name in OBSERVED
        },
    }


def report_lines(facts: Facts) -> list[str]:
    """Indented JSON without the ledgers' entries."""
    return json.dumps(concise(facts), indent=2, allow_nan=False).splitlines()


def trace_lines(facts: Facts) -> list[str]:
    """Indented JSON with every entry; the same totals."""
    return json.dumps(facts, indent=2, allow_nan=False).splitlines()


def concise(facts: Any) -> Any:
    """The facts without entries of ledgers and without demands of refusals."""
    if isinstance(facts, list):
        return [concise(fact) for fact in facts]
    if not isinstance(facts, dict):
        return facts
    return {
        key: concise(value)
        for key, value in facts.items()
        if not (key in LEDGER_KEYS and isinstance(value, list | dict))
        and not (key in ENTRY_KEYS and "code" in facts)
    }


def budget_history() -> Facts:
    """One budget halved, then the same on eight ranks: nothing is constructed.

    Source: demos.md section 5a
    """
    model, run = pair(PRODUCTION)
    halved = run.replace(token_budget=HALVED_BUDGET)
    before, after, ring = (plan(model, r) for r in (run, halved, _on_eight_ranks(halved)))
    require(before.model_sha256 == after.model_sha256, "a budget leaves the model's digest")
    return {
        "same_model_semantic_sha256": before.model_sha256,
        "token_budget_before": before.run.token_budget,
        "token_budget_after": after.run.token_budget,
        "parameters_before": before.census.total,
        "parameters_after": after.census.total,
        "run_digest_changed": before.run_sha256 != after.run_sha256,
        "single_device_traffic": parts.calculated(parts.values(after.traffic)),
        "traffic_tp8": parts.calculated(parts.values(ring.traffic)),
        "execution": "none: neither a reproduction of the model-parallel system nor a claim of "
        "compute optimality",
    }


def pair(profile_name: str) -> tuple[ModelRecord, RunRecord]:
    """The records that go with a profile."""
    return ModelRecord.scale(SCALE_OF[profile_name]), RunRecord.fixture(profile_name)


def _on_eight_ranks(run: RunRecord) -> RunRecord:
    topology, sharding, collectives = TENSOR_PARALLEL
    return run.replace(world_size=8, topology=topology, sharding=sharding, collectives=collectives)


def _scale(name: str) -> Facts:
    model, run = pair(name)
    planned = plan(model, run)
    counted = census(model)
    illustration = parts.ledger(ledgers.illustration(counted.total))
    return {
        "census": parts.census(counted),
        "kv_bytes": parts.calculated({str(b): size for b, size in planned.kv_bytes.items()}),
        "macs": parts.macs(macs(model, counted, rows=run.rows)),
        "illustrative_18_bytes_per_scalar": illustration,
    }


def _records(name: str) -> Facts:
    model, run = pair(name)
    return {
        "model": json.loads(model.to_bytes()),
        "model_sha256": model.identity,
        "run": json.loads(run.to_bytes()),
        "run_sha256": run.identity,
    }


def _profile(name: str) -> Facts:
    planned = plan(*pair(name))
    return {
        "limits": parts.profile(PROFILES[name]),
        "status": planned.status,
        "admissible": planned.admissible,
        "refusals": [
            {**entry, "reason": str(refusal)}
            for entry, refusal in zip(
                parts.refusals(planned.refusals), planned.refusals, strict=True
            )
        ],
    }


def _ledgers(name: str) -> Facts:
    planned = plan(*pair(name))
    return {
        "state": parts.ledger(planned.state),
        "rope_tables": {**parts.ledger(planned.rope_tables), "counted_in": "state"},
        "layout_metadata": parts.ledger(planned.layout_metadata),
        "host": planned.host.as_json(),
        "demands": parts.demands(planned.demands, planned.profile),
        "slack": parts.symbolic({"slack_reserve_bytes": planned.slack_reserve_bytes}),
    }


def _liveness(name: str) -> Facts:
    model, run = pair(name)
    elide = model.layers > COMPLETE_LAYERS
    return {
        mode: parts.liveness(planner.lifetimes(model, run, mode, elide=elide))
        for mode in modes.MODES
    }


def _synthetic() -> Facts:
    """Made-up lifetimes, never a measurement. Source: demos.md section 5d"""
    state, a = _allocate("state", 64), _allocate("A", 64)
    b, alias = _allocate("B", 128), Event(action="alias", name="alias of B", of="B")
    run = Event(action="use", name="run B", workspace=32)
    overlap = [state, a, b, alias, run]
    ends = [Event(action="release", name=name) for name in ("alias of B", "B", "A")]
    first = [state, a, ends[2], b, alias, run]
    return {
        "overlap": parts.liveness(measure([*overlap, *ends])),
        "release_first": parts.liveness(measure(first)),
        "without_alias": parts.liveness(measure([state, a, b, run])),
        "unknown_workspace": _unknown_workspace(),
    }


def _unknown_workspace() -> Facts:
    """Limit 100, state 64, workspace unknown: refused, and nothing is left over."""
    small = replace(profile("8gb-gpu-core"), state=EXECUTABLE, device=100, partitions={})
    workspace = Demand(terms=(UNKNOWN,))
    demands = Demands(device=Demand(terms=(64, UNKNOWN)), partitions={"workspace": workspace})
    reasons = compare(demands, small)
    return parts.symbolic(
        {
            "limit": small.device,
            "state": demands.device.known,
            "workspace": UNKNOWN.value,
            "admissible": not reasons,
            "refusals": parts.refusals(reasons),
        }
    )


def _traffic() -> Facts:
    model, run = pair(PRODUCTION)
    one, eight = plan(model, run), plan(model, _on_eight_ranks(run))
    return {
        "single_device": _sent(one.traffic),
        "tp8": _sent(eight.traffic),
    }


def _sent(traffic: Traffic) -> Facts:
    """The totals, and every reduction of one forward in its order."""
    blocks = traffic.events // len(REDUCTIONS)
    reductions = [
        {"name": f"blocks.{i}.{name}", "rank_bytes": traffic.rank_event_bytes}
        for i in range(blocks)
        for name in REDUCTIONS
    ]
    return parts.calculated({**parts.values(traffic), "reductions": reductions})


def _kv_excess() -> Facts:
    """The production cache against the core's device: refused, whatever the workspace.

    Source: profiles.md section 3
    """
    core = replace(profile("8gb-gpu-core"), state=EXECUTABLE)
    kv = plan(*pair(PRODUCTION)).kv_bytes[2]
    reasons = compare(Demands(device=Demand(terms=(kv, UNKNOWN))), core)
    return parts.calculated(
        {
            "production_kv_bytes": kv,
            "core_device_bytes": core.device,
            "excess_bytes": kv - core.device,
            "refusals": parts.refusals(reasons),
        }
    )


def _allocate(name: str, size: int) -> Event:
    return Event(action="allocate", name=name, bytes=size)
