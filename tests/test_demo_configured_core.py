import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logitproof.core import modes
from logitproof.core.planner import plan
from logitproof.core.profiles import PROFILES
from logitproof.properties.demos import configured_core

FACTS = configured_core.report()
CAP = 268_435_456
# Constructs and runs both admitted decoders, then tells its largest resident size in KiB. The
# figure of getrusage would include the size of this process, from which the child was forked.
STATUS = Path("/proc/self/status")
CHILD = """
from pathlib import Path
from logitproof.properties.demos import cpu_observation
for scale in ("reference", "bridge"):
    cpu_observation.observe(scale, scale + "-ci")
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""


@pytest.mark.golden
@pytest.mark.parametrize(
    ("scale", "mean", "raw", "cached"),
    [
        ("reference", "4016e416040925b7", "40312b108306dc49", (3, 3, 6, 256)),
        ("bridge", "40177b5dcbcf3814", "40319c8658db6a0f", (3, 6, 24, 8192)),
    ],
)
def test_an_observation_has_the_published_figures(
    scale: str, mean: str, raw: str, cached: tuple[int, ...]
) -> None:
    seen = FACTS["observations"][scale]
    rows = seen["cached"]
    assert (seen["mean_loss_bits"], seen["raw_sum_bits"], seen["divisor"]) == (mean, raw, 3)
    counts = ("length", "cache_appends", "attention_score_values", "payload_bytes")
    assert tuple(rows[name] for name in counts) == cached
    assert rows["graph_free"]
    assert rows["training_gradients_unchanged"]
    assert rows["largest_newest_logit_difference"] == 0.0


@pytest.mark.golden
@pytest.mark.parametrize(
    ("scale", "parameters", "causal", "illustration"),
    [
        ("reference", 1188, 76544, 21384),
        ("bridge", 8304, 1122304, 149472),
        ("laptop", 32514560, 17718837248, 585262080),
        ("production", 69500936192, 2981072375644160, 1251016851456),
        ("seed-sensitivity", 4359936, 1166213120, 78478848),
    ],
)
def test_a_scale_is_reported_with_the_published_figures(
    scale: str, parameters: int, causal: int, illustration: int
) -> None:
    facts = FACTS["scales"][scale]
    assert facts["census"]["total"] == parameters
    assert facts["macs"]["causal"] == causal
    assert facts["illustrative_18_bytes_per_scalar"]["total"] == illustration


@pytest.mark.golden
def test_the_synthetic_schedules_have_the_published_peaks() -> None:
    synthetic = FACTS["synthetic"]
    assert synthetic["overlap"]["combined_peak"] == 288
    assert synthetic["release_first"]["combined_peak"] == 224
    assert synthetic["without_alias"]["combined_peak"] == 288
    assert synthetic["unknown_workspace"]["admissible"] is False
    (entry,) = synthetic["unknown_workspace"]["refusals"]
    assert (entry["code"], entry["limit"]) == ("capacity/unknown-demand", 100)


@pytest.mark.golden
def test_the_budget_history_has_the_published_facts() -> None:
    history = FACTS["budget_history"]
    assert history["parameters_before"] == history["parameters_after"] == 69500936192
    assert history["token_budget_after"] == 7500000000000
    assert history["run_digest_changed"] is True
    assert history["single_device_traffic"]["total_bytes"] == 0
    assert history["traffic_tp8"]["total_bytes"] == 1202590842880
    assert history["execution"].startswith("none:")


@pytest.mark.golden
def test_the_traffic_has_the_published_bytes() -> None:
    tp8 = FACTS["traffic"]["tp8"]
    assert (tp8["sends"], tp8["events"], tp8["message_elements"]) == (14, 160, 33554432)
    assert (tp8["rank_event_bytes"], tp8["rank_bytes"]) == (939524096, 150323855360)


def test_every_reduction_of_the_ring_is_told() -> None:
    tp8 = FACTS["traffic"]["tp8"]
    names = [event["name"] for event in tp8["reductions"]]
    assert len(names) == len(set(names)) == tp8["events"] == 160
    assert sum(event["rank_bytes"] for event in tp8["reductions"]) == tp8["rank_bytes"]
    assert FACTS["traffic"]["single_device"]["reductions"] == []


@pytest.mark.golden
def test_the_production_cache_against_the_core_device_is_reported() -> None:
    excess = FACTS["kv_against_core_device"]
    assert excess["excess_bytes"] == 4026531840
    assert (excess["production_kv_bytes"], excess["core_device_bytes"]) == (10737418240, 6710886400)
    codes = [entry["code"] for entry in excess["refusals"]]
    assert codes == ["capacity/limit-exceeded", "capacity/unknown-demand"]


@pytest.mark.parametrize("mode", modes.MODES)
@pytest.mark.parametrize("name", configured_core.SCALE_OF)
def test_lifetimes_are_complete_where_blocks_are_few(name: str, mode: str) -> None:
    told = FACTS["liveness"][name][mode]
    planned = plan(*configured_core.pair(name), mode).liveness
    repeats = [event for event in told["events"] if event["action"] == "repeat"]
    assert (repeats == []) is (name != "production-plan-only")
    assert told["resident_peak"] == planned.resident_peak
    assert told["events"][-1]["live"] == planned.events[-1].live


def test_all_profiles_are_reported_and_two_are_admissible() -> None:
    assert set(FACTS["profiles"]) == set(PROFILES)
    admissible = [name for name, facts in FACTS["profiles"].items() if facts["admissible"]]
    assert admissible == ["reference-ci", "bridge-ci"]


def test_the_concise_report_has_the_totals_of_the_trace_and_no_entries() -> None:
    short = json.loads("\n".join(configured_core.report_lines(FACTS)))
    full = json.loads("\n".join(configured_core.trace_lines(FACTS)))
    assert full == FACTS
    assert short["ledgers"]["bridge-ci"]["state"]["total"] == 134976
    assert "entries" not in short["ledgers"]["bridge-ci"]["state"]
    assert "limit" not in short["profiles"]["8gb-gpu-core"]["refusals"][0]
    totals = {name: v for name, v in full["traffic"]["tp8"].items() if name != "reductions"}
    assert short["traffic"]["tp8"] == totals


def labels(facts: Any) -> set[str]:
    if isinstance(facts, dict):
        own = {facts["label"]} if "label" in facts else set()
        return own.union(*(labels(value) for value in facts.values()))
    return set().union(*(labels(value) for value in facts)) if isinstance(facts, list) else set()


def test_calculated_symbolic_and_measured_are_told_apart() -> None:
    assert labels(FACTS) == {"calculated", "symbolic", "measured"}
    assert labels(FACTS["synthetic"]) == labels(FACTS["liveness"]) == {"symbolic"}
    assert FACTS["synthetic"]["unknown_workspace"]["label"] == "symbolic"
    assert FACTS["ledgers"]["bridge-ci"]["slack"]["label"] == "symbolic"
    assert "measured" not in labels({**FACTS, "observations": {}})


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux tells the peak of one program")
def test_running_both_decoders_stays_within_the_cap() -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True
    )
    peak = int(child.stdout) * 1024
    sys.stdout.write(f"peak resident size: {peak} of {CAP} bytes\n")
    assert peak < CAP
