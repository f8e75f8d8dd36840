import bisect
import copy
import json
import operator
import pickle
import sys
import tracemalloc
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given

from logitproof.core import SplitMix64, build, kernels, modes, planner, sizes
from logitproof.core.census import census
from logitproof.core.codes import Code
from logitproof.core.errors import AdmissionRefusal, CapacityRefusal
from logitproof.core.planner import admit, plan
from logitproof.core.records import TENSOR_PARALLEL, ModelRecord, RunRecord, Seeds
from logitproof.core.sizes import UNKNOWN
from logitproof.properties import enumeration, record_strategies
from logitproof.properties.refusals import refusal_of

RING = dict(zip(("topology", "sharding", "collectives"), TENSOR_PARALLEL, strict=True))
REFERENCE, REFERENCE_RUN = ModelRecord.scale("reference"), RunRecord.fixture("reference-ci")
PRODUCTION, PRODUCTION_RUN = (
    ModelRecord.scale("production"),
    RunRecord.fixture("production-plan-only"),
)
PAIRS = [
    ("reference", "reference-ci"),
    ("bridge", "bridge-ci"),
    ("laptop-smoke-c128-v1", "8gb-gpu-smoke"),
    ("seed-sensitivity", "8gb-seed-sensitivity"),
    ("laptop", "8gb-gpu-core"),
    ("laptop", "8gb-adapter"),
    ("production", "production-plan-only"),
]
GPU = [Code.GROUPED_HEADS, Code.BACKEND, Code.DEVICE, Code.KERNEL, Code.DTYPE]
CORE = "logitproof.core."
LABELS = {"calculated", "symbolic"}


def pair(scale: str, name: str) -> tuple[ModelRecord, RunRecord]:
    return ModelRecord.scale(scale), RunRecord.fixture(name)


def leaves(value: Any) -> Iterator[Any]:
    """Everything in a report that is neither object nor array."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        for each in inner:
            yield from leaves(each)
    else:
        yield value


def largest_rows(run: RunRecord) -> int:
    """The most nominal rows of the reference model that can be planned."""

    def refused(rows: int) -> bool:
        try:
            plan(REFERENCE, run.replace(rows=rows))
        except CapacityRefusal:
            return True
        return False

    return bisect.bisect_left(range(2**60), True, key=refused) - 1


def calls(model: ModelRecord, run: RunRecord) -> int:
    """Calls of functions of core that one plan and its report take."""
    counted = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event == "call" and str(frame.f_globals["__name__"]).startswith(CORE)

    sys.setprofile(count)
    try:
        plan(model, run).as_json()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.golden
@pytest.mark.parametrize(
    ("scale", "name", "reasons"),
    [
        ("reference", "reference-ci", []),
        ("bridge", "bridge-ci", []),
        ("laptop-smoke-c128-v1", "8gb-gpu-smoke", [*GPU, Code.PROFILE_STATE, Code.UNKNOWN_DEMAND]),
        (
            "seed-sensitivity",
            "8gb-seed-sensitivity",
            [*GPU, Code.PROFILE_STATE, Code.UNKNOWN_DEMAND],
        ),
        ("laptop", "8gb-gpu-core", [*GPU, Code.PROFILE_STATE, Code.UNKNOWN_DEMAND]),
        (
            "laptop",
            "8gb-adapter",
            [*GPU, Code.ARTIFACT, Code.PROFILE_STATE, Code.UNKNOWN_DEMAND],
        ),
        ("production", "production-plan-only", [*GPU, Code.PROFILE_STATE, Code.LIMIT_EXCEEDED]),
    ],
)
def test_a_pair_has_its_reasons_in_order(scale: str, name: str, reasons: list[Code]) -> None:
    planned = plan(*pair(scale, name))
    assert [reason.code for reason in planned.refusals] == reasons
    assert planned.admissible is (not reasons)


@pytest.mark.parametrize(
    ("seed", "known"), [(104729, True), (130363, True), (15485863, True), (104730, False)]
)
def test_only_the_published_seeds_measure_sensitivity(seed: int, known: bool) -> None:
    model, run = pair("seed-sensitivity", "8gb-seed-sensitivity")
    planned = plan(model, run.replace(seeds=Seeds(seed, 1, 2)))
    found = [reason.what for reason in planned.refusals if reason.code is Code.SEED]
    assert found == [*([] if known else ["run.seeds.initialization"])]


def test_production_is_refused_by_its_host_limit_alone_of_all_limits() -> None:
    reason = plan(PRODUCTION, PRODUCTION_RUN).refusals[-1]
    assert (reason.what, reason.limit) == ("host", 268435456)
    assert reason.required > 1251016851456


def test_a_long_context_under_the_smoke_profile_is_one_more_reason() -> None:
    run = RunRecord.fixture("8gb-gpu-smoke")
    short = plan(ModelRecord.scale("laptop-smoke-c128-v1"), run).refusals
    long = plan(ModelRecord.scale("laptop"), run).refusals
    extra = [reason for reason in long if reason.what == "positions"]
    assert len(long) == len(short) + 1
    assert (extra[0].code, extra[0].required, extra[0].limit) == (Code.LIMIT_EXCEEDED, 512, 128)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"backend": "gpu"}, Code.BACKEND),
        ({"kernel": "none"}, Code.KERNEL),
        ({"device": "none"}, Code.DEVICE),
        ({"token_budget": 2049}, Code.LIMIT_EXCEEDED),
        ({"microbatch": 17}, Code.LIMIT_EXCEEDED),
        ({"accumulation": 2}, Code.LIMIT_EXCEEDED),
        ({"world_size": 2, **RING}, Code.DISTRIBUTED),
        ({"rows": 10000}, Code.LIMIT_EXCEEDED),
    ],
    ids=str,
)
def test_one_changed_run_field_is_one_reason(changes: dict[str, Any], code: Code) -> None:
    planned = plan(REFERENCE, REFERENCE_RUN.replace(**changes))
    assert [reason.code for reason in planned.refusals] == [code]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"heads": 2, "kv_heads": 1}, Code.GROUPED_HEADS),
        ({"dtype_policy": "half-protected-32"}, Code.DTYPE),
        ({"max_positions": 5}, Code.LIMIT_EXCEEDED),
        ({"vocabulary_size": 267}, Code.LIMIT_EXCEEDED),
    ],
    ids=str,
)
def test_one_changed_model_field_is_one_reason(changes: dict[str, Any], code: Code) -> None:
    shape = {"heads": 2, "kv_heads": 2, "max_positions": 4} if "heads" in changes else {}
    model = REFERENCE.replace(**{**shape, **changes})
    assert [reason.code for reason in plan(model, REFERENCE_RUN).refusals] == [code]


def test_a_kernel_that_has_no_code_is_not_admitted() -> None:
    planned = plan(REFERENCE, REFERENCE_RUN.replace(kernel="none"))
    assert [reason.code for reason in planned.refusals] == [Code.KERNEL]


@pytest.mark.parametrize("name", kernels.KERNELS)
def test_every_kernel_that_has_code_is_admitted(name: str) -> None:
    assert admit(REFERENCE, REFERENCE_RUN.replace(kernel=name)).plan.admissible


@pytest.mark.parametrize(
    ("model", "run", "code"),
    [
        (REFERENCE, REFERENCE_RUN.replace(world_size=2), Code.TOPOLOGY),
        (REFERENCE, REFERENCE_RUN.replace(topology="mesh"), Code.TOPOLOGY),
        (REFERENCE, REFERENCE_RUN.replace(world_size=3, **RING), Code.INEXACT_DIVISION),
        (PRODUCTION.replace(layers=2**64 - 1), PRODUCTION_RUN, Code.PLAN_OVERFLOW),
        (REFERENCE, REFERENCE_RUN.replace(rows=2**63), Code.PLAN_OVERFLOW),
    ],
)
def test_an_error_gives_no_plan(model: ModelRecord, run: RunRecord, code: Code) -> None:
    assert refusal_of(plan, model, run).code is code


def test_a_mode_or_a_record_of_another_kind_is_an_error() -> None:
    assert refusal_of(plan, REFERENCE, REFERENCE_RUN, "tracked").code is Code.UNKNOWN_NAME
    assert refusal_of(plan, REFERENCE_RUN, REFERENCE).what == "model"
    assert refusal_of(plan, REFERENCE, "reference-ci").what == "run"


def test_of_two_errors_the_overflow_speaks_before_the_topology() -> None:
    model, run = PRODUCTION.replace(layers=2**64 - 1), PRODUCTION_RUN.replace(topology="mesh")
    assert refusal_of(plan, model, run).code is Code.PLAN_OVERFLOW


def test_entries_do_not_hide_an_error() -> None:
    run = PRODUCTION_RUN.replace(topology="mesh")
    assert refusal_of(admit, PRODUCTION, run).code is Code.TOPOLOGY


@pytest.mark.golden
@pytest.mark.parametrize(
    ("scale", "name", "kv"),
    [
        ("reference", "reference-ci", {2: 1024, 8: 4096}),
        ("bridge", "bridge-ci", {2: 16384, 8: 65536}),
        ("laptop", "8gb-gpu-core", {2: 2097152, 8: 8388608}),
        ("production", "production-plan-only", {2: 10737418240, 8: 42949672960}),
        ("seed-sensitivity", "8gb-seed-sensitivity", {2: 196608, 8: 786432}),
        ("laptop-smoke-c128-v1", "8gb-gpu-smoke", {2: 524288, 8: 2097152}),
    ],
)
def test_a_pair_has_the_published_kv_bytes(scale: str, name: str, kv: dict[int, int]) -> None:
    assert plan(*pair(scale, name)).kv_bytes == kv


def test_kv_bytes_count_key_heads_and_no_groups() -> None:
    # Reported case plan-kv-bytes: the group size in place of the heads would give 3072.
    model = REFERENCE.replace(layers=2, model_width=32, heads=8, kv_heads=2, max_positions=6)
    planned = plan(model, REFERENCE_RUN.replace(rows=1))
    assert planned.kv_bytes[8] == 1536 == enumeration.kv_bytes(1, 2, 6, 2, 4, 8)


def test_a_single_key_head_halves_the_laptop_cache() -> None:
    laptop, run = pair("laptop", "8gb-gpu-core")
    assert plan(laptop, run).kv_bytes[2] == 2097152
    assert plan(laptop.replace(kv_heads=1), run).kv_bytes[2] == 1048576


@pytest.mark.golden
def test_the_budget_history_changes_one_identity_and_no_parameter() -> None:
    before = plan(PRODUCTION, PRODUCTION_RUN)
    after = plan(PRODUCTION, PRODUCTION_RUN.replace(token_budget=7500000000000))
    assert before.model_sha256 == after.model_sha256
    assert before.run_sha256 != after.run_sha256
    assert before.census.total == after.census.total == 69500936192
    assert before.traffic.total_bytes == 0


def test_a_budget_enters_no_size() -> None:
    one, other = (plan(REFERENCE, REFERENCE_RUN.replace(token_budget=n)) for n in (1, 2048))
    assert (one.census, one.state, one.liveness) == (other.census, other.state, other.liveness)


@pytest.mark.parametrize(
    ("model", "run", "changed"),
    [
        (PRODUCTION, PRODUCTION_RUN.replace(token_budget=7500000000000), (False, True)),
        (PRODUCTION, PRODUCTION_RUN.replace(seeds=Seeds(1, 0, 0)), (False, True)),
        (PRODUCTION.replace(max_positions=128), PRODUCTION_RUN, (True, False)),
        (PRODUCTION.replace(kv_heads=4), PRODUCTION_RUN, (True, False)),
    ],
    ids=["tokens", "seed", "positions", "kv-heads"],
)
def test_a_change_alters_exactly_one_identity(
    model: ModelRecord, run: RunRecord, changed: tuple[bool, bool]
) -> None:
    before, after = plan(PRODUCTION, PRODUCTION_RUN), plan(model, run)
    assert (
        before.model_sha256 != after.model_sha256,
        before.run_sha256 != after.run_sha256,
    ) == changed


@pytest.mark.property
@given(record_strategies.model_records(), record_strategies.run_records())
def test_a_small_plan_is_complete_in_every_mode(model: ModelRecord, run: RunRecord) -> None:
    planned = [plan(model, run, mode) for mode in modes.MODES]
    assert [p.liveness.events[-1].live for p in planned] == [p.state.total for p in planned]
    assert {p.census.total for p in planned} == {census(model).total}


@pytest.mark.parametrize("mode", modes.MODES)
@pytest.mark.parametrize(("scale", "name"), PAIRS)
def test_a_report_holds_no_float_and_survives_json(scale: str, name: str, mode: str) -> None:
    report = plan(*pair(scale, name), mode).as_json()
    assert not [leaf for leaf in leaves(report) if isinstance(leaf, float)]
    assert json.loads(json.dumps(report)) == report


def test_a_report_has_the_keys_of_the_specification() -> None:
    keys = (
        "model_sha256 run_sha256 mode profile status census kv_bytes macs state rope_tables "
        "layout_metadata liveness host device demands traffic slack_reserve_bytes labels refusals "
        "admissible"
    )
    assert list(plan(REFERENCE, REFERENCE_RUN).as_json()) == keys.split()


@pytest.mark.parametrize(
    "key",
    [
        *("census", "kv_bytes", "macs", "state", "rope_tables", "layout_metadata"),
        *("liveness", "host", "device", "traffic"),
    ],
)
def test_every_quantity_says_what_it_is(key: str) -> None:
    assert plan(REFERENCE, REFERENCE_RUN).as_json()[key]["label"] in LABELS


def test_demands_say_what_they_are() -> None:
    demands = plan(*pair("laptop", "8gb-gpu-core")).as_json()["demands"]
    labelled = {part: asked["label"] for part, asked in demands.items()}
    assert labelled == {"counts": "calculated", "bytes": "symbolic", "partitions": "symbolic"}
    assert demands["partitions"]["workspace"] == {
        "known": 0,
        "total": "unknown",
        "limit": 1610612736,
    }


def test_the_quantities_of_a_refusal_say_what_they_are() -> None:
    report = plan(*pair("production", "production-plan-only")).as_json()
    labelled = {entry["what"]: entry.get("label") for entry in report["refusals"]}
    assert labelled["host"] == "symbolic"
    assert labelled["run.backend"] is None
    assert report["labels"] == {"slack_reserve_bytes": "symbolic"}


def test_an_unknown_total_stands_beside_its_known_part() -> None:
    planned = plan(*pair("laptop", "8gb-gpu-core"))
    report = planned.as_json()
    assert report["liveness"]["combined_peak"] == report["device"]["total"] == "unknown"
    known = planned.liveness.resident_peak + planned.layout_metadata.total
    assert report["device"]["known"] == known
    assert planned.device.total is UNKNOWN


def test_a_refusal_entry_has_code_place_demand_and_limit() -> None:
    report = plan(REFERENCE, REFERENCE_RUN.replace(accumulation=2)).as_json()
    entry = {"code": "capacity/limit-exceeded", "what": "accumulation", "required": 2, "limit": 1}
    entry["label"] = "calculated"
    assert report["refusals"] == [entry]
    assert (report["status"], report["admissible"]) == ("planned but not executable", False)


@pytest.mark.parametrize("scale", ["reference", "bridge"])
def test_the_host_plan_fits_the_cap_with_its_envelope(scale: str) -> None:
    host = plan(*pair(scale, f"{scale}-ci")).host
    assert (host.envelope, host.cap) == (33554432, 268435456)
    parts = (host.tensors, host.scratch, host.layout_metadata, host.envelope)
    assert host.total == host.demand.known == sizes.known(*parts)
    assert host.demand.known <= host.cap


def test_on_a_gpu_the_host_holds_the_envelope_alone() -> None:
    planned = plan(*pair("laptop", "8gb-gpu-core"))
    assert planned.host.total == 33554432


def test_the_cost_of_a_plan_does_not_depend_on_the_dimensions() -> None:
    deep = PRODUCTION.replace(layers=4000, model_width=1024, feed_forward_width=1024)
    shallow = PRODUCTION.replace(layers=3, max_positions=32767)
    counts = [calls(model, PRODUCTION_RUN) for model in (PRODUCTION, PRODUCTION, deep, shallow)]
    assert counts[1:] == counts[1:2] * 3


def test_planning_production_takes_little_memory() -> None:
    plan(PRODUCTION, PRODUCTION_RUN)
    tracemalloc.start()
    plan(PRODUCTION, PRODUCTION_RUN).as_json()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000


def test_admit_raises_every_entry_of_the_plan_in_order() -> None:
    fault = refusal_of(admit, PRODUCTION, PRODUCTION_RUN)
    assert isinstance(fault, AdmissionRefusal)
    assert fault.code is Code.PLAN_REFUSED
    entries = [(reason.code, reason.what) for reason in fault.reasons]
    planned = plan(PRODUCTION, PRODUCTION_RUN)
    assert entries == [(reason.code, reason.what) for reason in planned.refusals]
    assert "\n" not in str(fault)


def test_admit_plans_in_tracked_mode() -> None:
    assert admit(REFERENCE, REFERENCE_RUN).plan.mode == "tracked-full"


@pytest.mark.parametrize("arguments", [{}, {"key": None}, {"key": object()}])
def test_nobody_but_admit_makes_a_token(arguments: dict[str, Any]) -> None:
    planned = plan(REFERENCE, REFERENCE_RUN)
    fault = refusal_of(planner.Admission, planned, **arguments)
    assert fault.code is Code.ADMISSION_NOT_ISSUED


class Heir(planner.Admission):
    """A token class of somebody else."""


@pytest.mark.parametrize("kind", [planner.Admission, Heir])
def test_a_token_made_past_admit_is_none(kind: type[planner.Admission]) -> None:
    forged = kind.__new__(kind)
    fault = refusal_of(forged.construct, SimpleNamespace(state=4701))
    assert fault.code is Code.ADMISSION_NOT_ISSUED
    assert refusal_of(lambda: forged.plan).code is Code.ADMISSION_NOT_ISSUED
    assert refusal_of(build.construct, forged, SplitMix64(4701)).code is Code.ADMISSION_NOT_ISSUED


@pytest.mark.parametrize("name", ["plan", "_spent", "construct", "anything"])
def test_a_token_has_nothing_to_exchange(name: str) -> None:
    token = admit(REFERENCE, REFERENCE_RUN)
    before = token.plan
    with pytest.raises(AttributeError):
        setattr(token, name, plan(PRODUCTION, PRODUCTION_RUN))
    assert token.plan is before


def test_a_plan_that_became_inadmissible_constructs_nothing() -> None:
    token, rng = admit(REFERENCE, REFERENCE_RUN), SplitMix64(4701)
    reasons = plan(PRODUCTION, PRODUCTION_RUN).refusals
    object.__setattr__(token.plan, "refusals", reasons)
    fault = refusal_of(token.construct, rng)
    assert (fault.code, fault.reasons, rng.state) == (Code.PLAN_REFUSED, reasons, 4701)


def test_admit_derives_what_will_be_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: ModelRecord) -> None:
        model.replace(layers=0)

    monkeypatch.setattr(build, "executable_config", refuse)
    assert refusal_of(admit, REFERENCE, REFERENCE_RUN).what == "model.layers"


@pytest.mark.parametrize("path", ["macs.groups", "macs.dense_groups", "demands.partitions"])
def test_a_plan_is_read_only(path: str) -> None:
    held = operator.attrgetter(path)(plan(REFERENCE, REFERENCE_RUN))
    with pytest.raises(TypeError):
        held[next(iter(held))] = 0


@pytest.mark.parametrize("mode", modes.MODES)
def test_the_ledgers_of_a_call_cover_every_admitted_row(mode: str) -> None:
    bridge, run = pair("bridge", "bridge-ci")
    full, nominal = plan(bridge, run, mode), plan(bridge, run.replace(rows=1), mode)
    ledgers = operator.attrgetter("state", "liveness", "layout_metadata", "host")
    assert ledgers(nominal) == ledgers(full)
    assert nominal.kv_bytes[8] * 8 == full.kv_bytes[8] == 65536
    assert nominal.macs.causal * 8 == full.macs.causal == 1122304


def test_more_nominal_rows_than_admitted_ones_are_covered_too() -> None:
    bridge, run = pair("bridge", "bridge-ci")
    one, eight = (plan(bridge, run.replace(microbatch=n)).liveness for n in (1, 8))
    assert one == eight


def test_the_ring_sends_nominal_rows() -> None:
    run = REFERENCE_RUN.replace(world_size=2, **RING)
    fewer = plan(REFERENCE, run.replace(microbatch=1)).traffic
    assert fewer == plan(REFERENCE, run).traffic
    assert fewer.message_elements == 16 * 4 * 4 // 2


def test_the_cached_mode_has_the_metadata_of_one_cell() -> None:
    assert plan(*pair("bridge", "bridge-ci"), "cached").layout_metadata.total == 8 * 4


@pytest.mark.parametrize("mode", modes.MODES)
@pytest.mark.parametrize(("scale", "name"), PAIRS)
def test_state_activations_and_cache_are_apart(scale: str, name: str, mode: str) -> None:
    planned = plan(*pair(scale, name), mode)
    parts = {key: demand.known for key, demand in planned.demands.partitions.items()}
    cache = parts["kv"] if mode == "cached" else 0
    whole = parts["state"] + parts["activations"] + cache
    assert (parts["state"], whole) == (planned.state.total, planned.liveness.resident_peak)
    points = planned.liveness.events
    assert cache == sum(p.event.bytes for p in points if p.event.name == "kv_cache")


@pytest.mark.golden
@pytest.mark.parametrize(
    ("scale", "name", "full", "cached"),
    [
        ("reference", "reference-ci", 4096, 256),
        ("bridge", "bridge-ci", 65536, 8192),
        ("laptop", "8gb-gpu-core", 2097152, 2097152),
        ("production", "production-plan-only", 10737418240, 10737418240),
    ],
)
def test_the_cache_partition_has_stored_width_and_the_rows_of_its_mode(
    scale: str, name: str, full: int, cached: int
) -> None:
    records = pair(scale, name)
    known = [plan(*records, mode).demands.partitions["kv"].known for mode in modes.MODES]
    assert known == [full, full, cached]


def test_the_workspace_of_the_core_is_held_against_its_partition() -> None:
    reason = plan(*pair("laptop", "8gb-gpu-core")).refusals[-1]
    assert (reason.code, reason.what, reason.limit) == (
        Code.UNKNOWN_DEMAND,
        "workspace",
        1610612736,
    )


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_total_beyond_64_bits_is_an_error_that_names_the_sum(device: str) -> None:
    run = REFERENCE_RUN.replace(device=device)
    rows = largest_rows(run)
    planned = plan(REFERENCE, run.replace(rows=rows))
    assert max(planned.host.demand.known, planned.device.known) < 2**64
    fault = refusal_of(plan, REFERENCE, run.replace(rows=rows + 1))
    assert (fault.code, fault.what) == (Code.PLAN_OVERFLOW, "host" if device == "cpu" else "device")
    assert fault.reason == f"{fault.what} bytes"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_token_is_not_copied(duplicate: Any) -> None:
    fault = refusal_of(duplicate, admit(REFERENCE, REFERENCE_RUN))
    assert fault.code is Code.ADMISSION_NOT_ISSUED


def test_another_generator_state_is_refused_and_leaves_the_token() -> None:
    token, rng = admit(REFERENCE, REFERENCE_RUN), SimpleNamespace(state=4702)
    faults = [refusal_of(token.construct, rng) for _ in range(2)]
    assert [fault.code for fault in faults] == [Code.GENERATOR_STATE] * 2
    assert faults[0].reason == "caller RNG differs from declared initialization seed"
    assert (faults[0].expected, faults[0].actual, rng.state) == (4701, 4702, 4702)
