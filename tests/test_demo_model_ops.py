import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from logitproof.core import RECORDING, Context, Parameter, Tensor, ops
from logitproof.properties.cli import main
from logitproof.properties.demos import handwritten, model_checks, model_ops
from logitproof.properties.demos.agreement import Disagreement

ZERO, HALF_LOG = "0.000000000000", "-0.693147180560"
LINES = [
    "embeddings: shape=3x2 values=2.000000000000,2.000000000000,1.000000000000,-1.000000000000,"
    "-1.000000000000,1.000000000000",
    "token IDs: [1, 1, 1, 2]",
    "gather rows: shape=4x2 values=" + "1.000000000000,-1.000000000000," * 3
    + "-1.000000000000,1.000000000000",
    "projection weights: shape=2x2 values=1.000000000000,-1.000000000000,1.000000000000,"
    "-1.000000000000",
    "projection preactivations: shape=4x2 values=" + ",".join([ZERO] * 8),
    "SiLU: shape=4x2 values=" + ",".join([ZERO] * 8),
    "log-softmax axis=1: shape=4x2 values=" + ",".join([HALF_LOG] * 8),
    "targets: [0, 0, 0, 1]",
    "indexed mean NLL: shape=scalar values=0.693147180560",
    "target-logit gradient: shape=4x2 values=" + "-0.125000000000,0.125000000000," * 3
    + "0.125000000000,-0.125000000000",
    "through SiLU: shape=4x2 values=" + "-0.062500000000,0.062500000000," * 3
    + "0.062500000000,-0.062500000000",
    "matmul left gradient: shape=4x2 values=" + "-0.125000000000,-0.125000000000," * 3
    + "0.125000000000,0.125000000000",
    "embedding scatter-add: shape=3x2 values=0.000000000000,0.000000000000,-0.375000000000,"
    "-0.375000000000,0.125000000000,0.125000000000",
    "matmul right gradient: shape=2x2 values=-0.250000000000,0.250000000000,0.250000000000,"
    "-0.250000000000",
    "scalar probes: exp(0)->(1.000000000000, 1.000000000000) | "
    "log(1)->(0.000000000000, 1.000000000000) | silu(0)->(0.000000000000, 0.500000000000)",
    "gradcheck: matmul-left | matmul-right | gather_rows | exp | log | silu | log_softmax | "
    "indexed_mean_nll; pass=true",
    "typed errors: invalid-id | invalid-target | empty-targets | exp-overflow; "
    "gradients unchanged=true",
    "chapter 17 handoff: initialize trainable values reproducibly",
]  # fmt: skip


@pytest.mark.golden
def test_report_is_the_published_18_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "model-ops"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "".join(line + "\n" for line in LINES)
    assert (printed.err, len(LINES)) == ("", 18)


def test_no_value_prints_as_negative_zero(capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "model-ops"])
    main(["demo", "model-ops", "--trace"])
    assert "-0.000000000000" not in capsys.readouterr().out


def test_trace_holds_the_loss_pass_without_the_displayed_branch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "model-ops", "--trace"]) == 0
    records = capsys.readouterr().out.splitlines()
    assert [r.split()[0] for r in records] == [
        "TRACE", *["NODE"] * 6, *["EDGE"] * 5, *["OCCURRENCE"] * 3, "TRACE",
    ]  # fmt: skip
    assert [r.split()[2] for r in records[1:7]] == [
        "op=parameter", "op=gather_rows", "op=parameter", "op=matmul", "op=silu",
        "op=indexed_mean_nll",
    ]  # fmt: skip


def test_trace_names_the_positions_of_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "model-ops", "--trace"])
    assert capsys.readouterr().out.splitlines()[-4:-1] == [
        "OCCURRENCE row=0 flat-positions=none",
        "OCCURRENCE row=1 flat-positions=0,1,2",
        "OCCURRENCE row=2 flat-positions=3",
    ]


def test_json_holds_the_same_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "facts.json"
    assert main(["demo", "model-ops", "--json", str(file)]) == 0
    facts = json.loads(file.read_text())
    assert facts == model_ops.report()
    assert model_ops.report_lines(facts) == capsys.readouterr().out.splitlines() == LINES


def test_ten_handwritten_results_agree() -> None:
    differences = model_ops.report()["handwritten"]["largest_differences"]
    assert len(differences) == 10
    assert max(differences.values()) <= 1e-12


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("_silu_rule", lambda _: 1.0),
        ("_sigmoid", lambda _: 1.0),
        ("_softmax", lambda _: [0.5, 0.5 - 1e-11]),
        ("_dot", lambda *_: float("nan")),
    ],
)
def test_a_disagreement_prints_no_line_and_exits_1(
    name: str,
    fault: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(handwritten, name, fault)
    assert main(["demo", "model-ops"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1


def test_a_disagreement_writes_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(handwritten, "_silu_rule", lambda _: 1.0)
    assert main(["demo", "model-ops", "--json", str(tmp_path / "facts.json")]) == 1
    assert list(tmp_path.iterdir()) == []


def half_of_a_square(context: Context, x: Tensor) -> Tensor:
    """sum(x * x) with one factor cut from the graph: half of its gradient."""
    return context.apply(ops.sum, context.apply(ops.mul, x, x.detach()), axis=0)


def test_a_wrong_gradient_is_a_disagreement(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (("wrong", (model_checks.SIGNED,), 0, half_of_a_square),)
    monkeypatch.setattr(model_checks, "GRADIENT_CHECKS", wrong)
    with pytest.raises(Disagreement, match="wrong"):
        model_checks.gradient_checks()


def test_a_missing_refusal_is_a_disagreement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "exp", ops.silu)
    with pytest.raises(Disagreement, match="exp-overflow"):
        model_checks.typed_errors()


def test_typed_errors_carry_the_published_fields() -> None:
    errors = model_checks.typed_errors()["errors"]
    assert [error["fields"] for error in errors] == [
        {"position": 0, "index": 2, "rows": 2},
        {"group": 1, "target": 2, "classes": 2},
        {},
        {"op": "exp", "index": 0, "value": "inf"},
    ]


def test_every_figure_follows_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_ops, "EMBEDDINGS", model_ops.EMBEDDINGS + 0.25)
    monkeypatch.setattr(model_ops, "WEIGHTS", np.array([[0.5, -1.0], [1.0, -0.5]]))
    changed = model_ops.report_lines(model_ops.report())
    same = [old for old, new in zip(LINES, changed, strict=True) if old == new]
    assert same == [LINES[1], LINES[7], *LINES[14:]]


def test_logits_near_1000_give_finite_losses() -> None:
    logits = Parameter("logits", [[1000.0, -1000.0], [-1000.0, 1000.0]])
    loss = RECORDING.apply(ops.indexed_mean_nll, logits, axis=1, targets=[1, 1])
    loss.backward()
    assert loss.value == 1000.0
    assert logits.gradient.tolist() == [[0.5, -0.5], [0.0, 0.0]]
