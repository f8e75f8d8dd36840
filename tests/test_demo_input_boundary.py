"""The input-boundary report: the published figures, computed at the call."""

import json
from typing import Any

import pytest

from logitproof.core import ops
from logitproof.properties.cli import main
from logitproof.properties.demos import input_boundary
from logitproof.properties.demos.agreement import Disagreement

PUBLISHED = {
    "loss": 5.668398842431571,
    "loss_bits": "4016ac70bf03b620",
    "embedding_shape": [1, 3, 4],
    "hidden_shape": [1, 3, 4],
    "logits_shape": [1, 3, 258],
    "parameters": 1372,
    "tensors": 20,
    "lookup_and_head_same_node": True,
    "same_text_wrapper_logits": True,
    "within_tolerance": True,
    "row": 99,
    "feature": 0,
    "total": 0.021167554563529468,
    "lookup_path": 0.02265892535638777,
    "head_path": -0.0014913707928583008,
    "max_gradient_error": 0.0,
    "gradient_tolerance": 1e-12,
}
CACHED = {
    "newest_logit_bit_mismatches": 0,
    "length": 3,
    "cache_appends": 6,
    "attention_score_values": 12,
    "tracked": False,
}


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return input_boundary.report()


@pytest.mark.parametrize("key", PUBLISHED)
def test_input_boundary_computes_the_published_figure(facts: dict[str, Any], key: str) -> None:
    assert facts[key] == PUBLISHED[key]


@pytest.mark.parametrize("key", CACHED)
def test_input_boundary_counts_the_cached_run(facts: dict[str, Any], key: str) -> None:
    assert facts["cached"][key] == CACHED[key]


def test_input_boundary_refuses_the_short_vector_before_a_block(facts: dict[str, Any]) -> None:
    assert facts["refusal"]["reason"] == "B,T,D or admitted row count"
    assert facts["refusal"]["blocks_run"] == 0


def test_input_boundary_prints_one_compact_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "input-boundary"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert printed == json.dumps(json.loads(printed), separators=(",", ":")) + "\n"


def test_input_boundary_without_the_head_path_is_a_disagreement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        input_boundary, "_head_part", lambda decoder, *_: 0.0 * decoder.table.gradient
    )
    with pytest.raises(Disagreement):
        input_boundary.report()


def test_input_boundary_follows_a_changed_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "indexed_mean_nll", ops.indexed_sum_nll)
    assert input_boundary.report()["loss_bits"] != PUBLISHED["loss_bits"]
