import argparse
import functools
import json
import operator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logitproof.core import fields, liveness, modes
from logitproof.core.codes import Code
from logitproof.core.errors import AdmissionRefusal, Refusal
from logitproof.core.liveness import Event, Repeat
from logitproof.core.planner import plan
from logitproof.core.records import ModelRecord, RunRecord
from logitproof.core.sizes import UNKNOWN
from logitproof.properties import cli, config_json, plan_command, plan_table
from logitproof.properties.cli import UsageError
from logitproof.properties.refusals import refusal_of

# A checkpoint's configuration of the shape of a small published decoder, its head tied.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 49152,
}


def call(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    plan_command.add_arguments(parser)
    return plan_command.run(parser.parse_args(arguments))


def read(**changes: Any) -> config_json.Reading:
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value != "absent"}
    return config_json.read(json.dumps(config).encode())


def reasons(**changes: Any) -> list[tuple[Code, str]]:
    fault = refusal_of(read, **changes)
    assert isinstance(fault, AdmissionRefusal)
    assert (fault.code, fault.what) == (Code.CONFIG_REFUSED, "config.json")
    assert "\n" not in str(fault)
    return [(reason.code, reason.what) for reason in fault.reasons]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["reference", "reference-ci"], 0),
        (["production", "production-plan-only"], 0),
        (["reference", "reference-ci", "--require-admissible"], 0),
        (["production", "production-plan-only", "--require-admissible"], 1),
        (["laptop", "8gb-gpu-core", "--mode", "cached"], 0),
    ],
)
def test_a_complete_plan_ends_well_unless_it_had_to_be_admissible(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*arguments) == code
    printed = capsys.readouterr().out
    assert printed.startswith("plan\n")
    assert "refusals:" in printed


def test_the_table_shows_totals_peak_and_every_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    call("production", "production-plan-only")
    printed = capsys.readouterr().out
    assert "69,500,936,192" in printed
    assert "2,981,072,375,644,160" in printed
    assert "10,737,418,240 B  10.0 GiB" in printed
    assert printed.count("<- peak") == 1
    assert "refusals: 7" in printed


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["unheard-of", "reference-ci"], Code.UNKNOWN_NAME, "scale"),
        (["reference", "unheard-of"], Code.UNKNOWN_NAME, "fixture"),
        (["reference", "reference-ci", "--mode", "fast"], Code.UNKNOWN_NAME, "mode"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_printed(
    arguments: list[str], code: Code, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = refusal_of(call, *arguments)
    assert (fault.code, fault.what) == (code, what)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments", [[], ["reference"], ["--from-config", "x", "bridge", "bridge-ci"]]
)
def test_a_wrong_number_of_records_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="logitproof plan"):
        call(*arguments)


def test_records_are_read_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, run = tmp_path / "model.json", tmp_path / "run.json"
    model.write_bytes(ModelRecord.scale("bridge").to_bytes())
    run.write_bytes(RunRecord.fixture("bridge-ci").to_bytes())
    assert call(str(model), str(run)) == 0
    from_files = capsys.readouterr().out
    call("bridge", "bridge-ci")
    assert capsys.readouterr().out == from_files


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Code.TEXT_SYNTAX),
        (b" " * 1_048_577, Code.TEXT_SIZE),
        (b"\xff", Code.TEXT_ENCODING),
        (b'{"a":1,"a":1}', Code.DUPLICATE_KEY),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, data: bytes, code: Code) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(data)
    assert refusal_of(call, str(path), "bridge-ci").code is code
    assert refusal_of(call, "bridge", str(path)).code is code


def test_the_json_file_holds_the_report(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    call("bridge", "bridge-ci", "--mode", "cached", "--json", str(path))
    report = plan(ModelRecord.scale("bridge"), RunRecord.fixture("bridge-ci"), "cached").as_json()
    assert json.loads(path.read_text()) == report


def test_a_file_that_cannot_be_written_leaves_nothing_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OSError, match="directory"):
        call("bridge", "bridge-ci", "--json", str(tmp_path))
    assert capsys.readouterr().out == ""


def test_a_configuration_that_maps_is_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert call("--from-config", str(path)) == 0
    printed = capsys.readouterr().out
    assert "134,515,008" in printed  # V*D + L*(2*D^2 + 2*D*K + 3*D*F + 2*D) + D
    assert "planned for the run production-plan-only" in printed


def test_a_configuration_is_planned_for_the_run_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "config.json", tmp_path / "plan.json"
    path.write_text(json.dumps(CONFIG))
    assert call("--from-config", str(path), "8gb-gpu-core", "--json", str(out)) == 0
    assert "8gb-gpu-core (planned)" in capsys.readouterr().out
    assert "planned for the run 8gb-gpu-core" in json.loads(out.read_text())["notes"]


def test_a_configuration_gives_the_record_of_its_values() -> None:
    record = read().record
    assert (record.vocabulary_size, record.model_width, record.layers) == (49152, 576, 30)
    assert (record.heads, record.kv_heads, record.feed_forward_width) == (9, 3, 1536)
    assert (record.max_positions, record.dtype_policy) == (8192, "bf16-accounting")
    assert fields.float_of(record.rope_base) == 100000.0
    assert fields.float_of(record.rms_epsilon) == 1e-05


@pytest.mark.parametrize("value", ["absent", None])
def test_without_key_heads_every_query_head_has_its_own(value: Any) -> None:
    reading = read(num_key_value_heads=value)
    assert reading.record.kv_heads == 9
    assert any("its own" in note for note in reading.notes)


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"torch_dtype": "float16"}, "half-protected-32"),
        ({"torch_dtype": "absent", "dtype": "float64"}, "f64"),
        ({"torch_dtype": "absent"}, "bf16-accounting"),
    ],
)
def test_an_element_type_maps_to_a_policy(changes: dict[str, Any], dtype: str) -> None:
    assert read(**changes).record.dtype_policy == dtype


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tie_word_embeddings", False),
        ("tie_word_embeddings", 1),
        ("head_dim", 128),
        ("head_dim", "64"),
        ("attention_bias", True),
        ("mlp_bias", True),
        ("sliding_window", 4096),
        ("rope_scaling", {"rope_type": "llama3", "factor": 8.0}),
        ("num_local_experts", 8),
        ("num_experts_per_tok", 2),
        ("model_type", "gemma2"),
        ("hidden_act", "gelu"),
        ("torch_dtype", "float32"),
        ("partial_rotary_factor", 0.5),
        ("attention_dropout", 0.1),
        ("quantization_config", {"bits": 4}),
        ("architectures", ["LlamaForSequenceClassification"]),
        ("architectures", ["Qwen2ForCausalLM"]),
        ("architectures", ["MistralForCausalLM"]),
        ("architectures", ["LlamaForCausalLM", "LlamaForCausalLM"]),
        ("architectures", []),
        ("architectures", "LlamaForCausalLM"),
        ("architectures", None),
        ("torch_dtype", ["bfloat16"]),
        ("torch_dtype", {"bfloat16": 1}),
        ("torch_dtype", 1),
        ("dtype", "float16"),
        ("head_dim", [64]),
        ("model_type", ["llama"]),
        ("qkv_bias", True),
        ("unheard_of", None),
    ],
)
def test_what_a_record_cannot_express_is_refused_by_its_key(key: str, value: Any) -> None:
    assert reasons(**{key: value}) == [(Code.CONFIG_FIELD, f"config.json.{key}")]


@pytest.mark.parametrize(
    "key", ["hidden_size", "rope_theta", "rms_norm_eps", "tie_word_embeddings", "hidden_act"]
)
def test_a_missing_key_is_refused(key: str) -> None:
    assert (Code.MISSING_KEY, f"config.json.{key}") in reasons(**{key: "absent"})


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("hidden_size", 576.0, Code.FIELD_TYPE),
        ("num_hidden_layers", True, Code.FIELD_TYPE),
        ("rope_theta", "10000", Code.FIELD_TYPE),
        ("rope_theta", 0, Code.FIELD_RANGE),
        ("rms_norm_eps", -1e-6, Code.FIELD_RANGE),
        ("rms_norm_eps", True, Code.FIELD_TYPE),
    ],
)
def test_a_value_of_another_kind_is_refused(key: str, value: Any, code: Code) -> None:
    assert (code, f"config.json.{key}") in reasons(**{key: value})


def test_a_float_beyond_the_largest_is_refused() -> None:
    text = json.dumps(CONFIG).replace("1e-05", "1e999")
    fault = refusal_of(config_json.read, text.encode())
    assert [reason.what for reason in fault.reasons] == ["config.json.rms_norm_eps"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, Code.CONFIG_FIELD),
        ({"architectures": ["GemmaForCausalLM"], "hidden_act": "absent"}, Code.MISSING_KEY),
        ({"architectures": "absent"}, Code.MISSING_KEY),
    ],
)
def test_without_a_type_the_class_decides(changes: dict[str, Any], named: Code) -> None:
    assert read(model_type="absent").record == read().record == read(architectures="absent").record
    assert named in {code for code, _ in reasons(model_type="absent", **changes)}


MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None}


def test_a_mistral_file_without_a_window_maps() -> None:
    assert read(**MISTRAL).record == read().record


@pytest.mark.parametrize("key", ["model_type", "architectures"])
@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"sliding_window": "absent"}, "sliding_window"),
        ({"num_key_value_heads": "absent"}, "num_key_value_heads"),
        ({"num_key_value_heads": None}, "num_key_value_heads"),
    ],
)
def test_what_a_mistral_file_leaves_out_is_refused(
    key: str, changes: dict[str, Any], missing: str
) -> None:
    # Absent, they mean a window of 4096 positions and eight key/value heads.
    found = reasons(**{**MISTRAL, key: "absent", **changes})
    assert found == [(Code.MISSING_KEY, f"config.json.{missing}")]


def test_an_element_type_named_twice_alike_maps() -> None:
    assert read(dtype="bfloat16").record == read().record


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**70) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
KEYS = sorted({*CONFIG, *config_json.REQUIRED, *config_json.ASIDE, "dtype", "layers"})


@pytest.mark.property
@given(st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=3))
@example({"torch_dtype": ["bfloat16"]})
@example({"dtype": {"a": 1}, "torch_dtype": None})
@example({"model_type": {}, "architectures": {"a": 1}})
def test_any_value_under_any_key_is_a_record_or_one_line(changes: dict[str, Any]) -> None:
    assert complaint(**changes).isprintable()  # no line break is


def complaint(**changes: Any) -> str:
    try:
        read(**changes)
    except Refusal as refusal:
        return str(refusal)
    return ""


def test_a_foreign_class_is_told() -> None:
    assert 'an array of the text "Qwen2ForCausalLM"' in complaint(
        architectures=["Qwen2ForCausalLM"]
    )


def test_every_reason_of_a_configuration_is_told_at_once() -> None:
    changes = {"tie_word_embeddings": False, "sliding_window": 4096, "hidden_size": "absent"}
    assert {what for _, what in reasons(**changes)} == {
        "config.json.hidden_size",
        "config.json.head_dim",
        "config.json.tie_word_embeddings",
        "config.json.sliding_window",
    }


@pytest.mark.parametrize(
    ("changes", "code", "key"),
    [
        ({"num_key_value_heads": 2}, Code.HEAD_GROUPING, "num_attention_heads"),
        ({"num_key_value_heads": 10}, Code.HEAD_GROUPING, "num_key_value_heads"),
        ({"hidden_size": 0}, Code.FIELD_RANGE, "hidden_size"),
        ({"vocab_size": 2**64}, Code.FIELD_RANGE, "vocab_size"),
        ({"num_attention_heads": 0}, Code.FIELD_RANGE, "num_attention_heads"),
        ({"hidden_size": 10}, Code.HEAD_GROUPING, "hidden_size"),
        ({"hidden_size": 27}, Code.EVEN_ROPE_HEAD_WIDTH, "hidden_size"),
    ],
)
def test_a_configuration_passes_the_checks_of_the_record_under_its_own_keys(
    changes: dict[str, Any], code: Code, key: str
) -> None:
    # Reported case cfg-head-dim: a validation error, never a division by zero.
    fault = refusal_of(read, head_dim=None, **changes)
    assert (fault.code, fault.what) == (code, f"config.json.{key}")


def test_a_complaint_of_many_reasons_is_one_bounded_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({f"key{i}": "x" * 40 for i in range(9000)}))
    assert cli.main(["plan", "--from-config", str(path)]) == cli.USAGE
    written = capsys.readouterr()
    assert (written.out, written.err.count("\n")) == ("", 1)
    assert len(written.err) <= cli.LONGEST_LINE + 1


def test_a_configuration_is_an_object() -> None:
    assert refusal_of(config_json.read, b"[]").code is Code.FIELD_TYPE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["", "bridge-ci"], "MODEL is empty"),
        (["bridge", ""], "RUN is empty"),
        (["--from-config", ""], "--from-config is empty"),
        (["bridge", "bridge-ci", "--json", ""], "--json is empty"),
    ],
)
def test_an_empty_name_is_a_usage_error(arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call(*arguments)


@pytest.mark.parametrize("name", ["missing.json", "./missing", "no/missing"])
@pytest.mark.parametrize("before", [[], ["bridge"], ["--from-config"]])
def test_a_missing_file_is_answered_as_such(
    before: list[str],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan", *before, name, *([] if "bridge" in before else ["bridge-ci"])]) == 2
    written = capsys.readouterr()
    assert (written.out, written.err.count("\n")) == ("", 1)
    assert "No such file" in written.err


@pytest.mark.parametrize("place", [0, 1])
def test_a_report_does_not_replace_its_input(tmp_path: Path, place: int) -> None:
    paths = [tmp_path / "model.json", tmp_path / "run.json"]
    paths[0].write_bytes(ModelRecord.scale("bridge").to_bytes())
    paths[1].write_bytes(RunRecord.fixture("bridge-ci").to_bytes())
    same = tmp_path / "." / ".." / tmp_path.name / paths[place].name
    before = paths[place].read_bytes()
    with pytest.raises(UsageError, match="--json would replace the input"):
        call(*map(str, paths), "--json", str(same))
    assert paths[place].read_bytes() == before


def test_a_report_does_not_replace_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    with pytest.raises(UsageError, match="--from-config"):
        call("--from-config", str(path), "--json", str(path))


def test_a_report_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    codes = [call("bridge", "bridge-ci", "--json", str(path)) for _ in range(2)]
    assert codes == [0, 0]


TABLES = [
    (scale, profile, mode)
    for scale, profile in [
        ("reference", "reference-ci"),
        ("bridge", "bridge-ci"),
        ("seed-sensitivity", "8gb-seed-sensitivity"),
        ("laptop", "8gb-gpu-core"),
        ("production", "production-plan-only"),
    ]
    for mode in modes.MODES
]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("scale", "profile", "mode"), TABLES)
def test_a_table_fits_its_width_and_marks_one_peak(
    scale: str, profile: str, mode: str, width: int
) -> None:
    planned = plan(ModelRecord.scale(scale), RunRecord.fixture(profile), mode)
    drawn = list(plan_table.lines(planned, width=width))
    assert max(map(len, drawn)) <= width
    assert sum("<- " in line for line in drawn) == 1
    assert any("<- resident peak" in line for line in drawn) is (
        planned.liveness.combined_peak is UNKNOWN
    )


@pytest.mark.parametrize(("columns", "longest"), [("40", 80), ("100", 100), ("300", 120)])
def test_the_table_is_as_wide_as_the_terminal_within_bounds(
    columns: str, longest: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    call("bridge", "bridge-ci")
    bars = [line for line in capsys.readouterr().out.splitlines() if "<- peak" in line]
    assert [len(line) for line in bars] == [longest]


@pytest.mark.parametrize("path", ["macs.groups", "macs.dense_groups", "host", "demands.counts"])
def test_a_table_tells_the_numbers_of_the_report(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call("laptop", "8gb-gpu-core")
    printed = squeezed(capsys.readouterr().out)
    report: Any = plan(ModelRecord.scale("laptop"), RunRecord.fixture("8gb-gpu-core")).as_json()
    report = functools.reduce(operator.getitem, path.split("."), report)
    wanted = [" ".join(map(str, row)) for row in numbers(report)]
    assert [row for row in wanted if row not in printed] == []


@pytest.mark.parametrize("part", ["bytes", "partitions"])
def test_a_table_tells_every_demand_with_its_limit(
    part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call("laptop", "8gb-gpu-core")
    printed = squeezed(capsys.readouterr().out)
    report = plan(ModelRecord.scale("laptop"), RunRecord.fixture("8gb-gpu-core")).as_json()
    demands = {n: d for n, d in report["demands"][part].items() if n != "label"}
    wanted = [f"{n} {d['total']} {d['known']} {d['limit']}" for n, d in demands.items()]
    assert wanted != []
    assert [row for row in wanted if row not in printed] == []


def numbers(report: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows = {name: v.values() if isinstance(v, dict) else (v,) for name, v in report.items()}
    return [tuple(v for v in row if isinstance(v, int)) for row in rows.values()]


def squeezed(text: str) -> str:
    return " ".join(text.replace(",", "").split())


def test_the_bars_show_owned_bytes_workspace_and_what_is_unknown() -> None:
    events = [
        Event(action="allocate", name="a", bytes=20),
        Event(action="use", name="b", workspace=20),
        Event(action="use", name="c", workspace=UNKNOWN),
    ]
    lived = (liveness.measure(events[:2]), liveness.measure(events))
    known, unknown = (list(plan_table.timeline(each, width=60)) for each in lived)
    assert known[0] == "  + a " + "#" * 17 + " " * 25 + "20 B"
    assert known[1] == "  * b " + "#" * 17 + "+" * 17 + " " * 8 + "40 B <- peak"
    assert unknown[0] == "  + a " + "#" * 12 + " " * 21 + "20 B <- resident peak"
    assert unknown[2] == "  * c " + "#" * 12 + "?" + " " * 20 + "20 B"
    assert known[-1] == unknown[-1] == plan_table.LEGEND


def test_a_long_timeline_is_drawn_in_few_rows() -> None:
    events = [Event(action="allocate", name=f"a{i}", bytes=1) for i in range(1000)]
    drawn = list(plan_table.timeline(liveness.measure(events), rows=10))
    assert len(drawn) == 10 + 1
    assert drawn[-2].endswith("1000 B <- peak")


def test_a_small_buffer_beside_a_large_one_keeps_its_bar() -> None:
    events = [
        Event(action="allocate", name="small", bytes=1),
        Event(action="use", name="run", workspace=1),
        Event(action="allocate", name="large", bytes=2**40),
        Event(action="use", name="run", workspace=1),
    ]
    drawn = list(plan_table.timeline(liveness.measure(events)))
    assert [line.count("#") > 0 for line in drawn[:4]] == [True] * 4
    assert [line.count("+") for line in drawn[:4]] == [2 - 1, 1, 1, 1]


def test_repetitions_left_out_are_told() -> None:
    body = (Event(action="allocate", name="x{i}", bytes=2048),)
    end = (Event(action="release", name="x{i}"),)
    schedule = [Repeat(times=9, events=body), Repeat(times=9, events=end, descending=True)]
    drawn = list(plan_table.timeline(liveness.measure(schedule)))
    told = [line for line in drawn if "more" in line]
    assert told == ["  … 7 more blocks, +2.0 KiB each", "  … 7 more blocks, -2.0 KiB each"]


def test_a_stretch_with_unknown_workspace_is_marked_wherever_it_lies() -> None:
    events = [
        Event(action="use", name="b", workspace=UNKNOWN),
        Event(action="allocate", name="a", bytes=20),
    ]
    (row, _) = plan_table.timeline(liveness.measure(events), rows=1)
    assert "#?" in row
    assert row.endswith("20 B <- resident peak")


def test_nothing_has_an_empty_timeline() -> None:
    assert list(plan_table.timeline(liveness.measure([]))) == [plan_table.LEGEND]


def test_many_buffers_are_told_by_role(capsys: pytest.CaptureFixture[str]) -> None:
    call("production", "production-plan-only")
    state = capsys.readouterr().out.split("\nstate (")[1].split("\n\n")[0]
    roles = ["weights", "master", "gradients", "first_moments", "second_moments", "rope"]
    assert [line.split()[0] for line in state.splitlines()[2:8]] == roles
    assert "1,252,359,049,216 B" in state
