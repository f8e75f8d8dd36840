"""What the README says of plans: every command and every figure, executed."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from logitproof.core.planner import plan
from logitproof.core.records import ModelRecord, RunRecord
from logitproof.properties import cli

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
CONFIG = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 300,
}


def after(marker: str) -> str:
    """The text behind the comment `<!-- marker -->`."""
    return README.split(f"<!-- {marker} -->\n", maxsplit=1)[1]


def fenced(marker: str) -> str:
    return after(marker).split("```", maxsplit=2)[1].split("\n", maxsplit=1)[1]


def rows(marker: str) -> list[list[str]]:
    """The cells of a table below its head."""
    table = after(marker).split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


@pytest.mark.parametrize("command", fenced("command: plan").splitlines())
def test_a_command_about_plans_ends_well(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    program, *arguments = shlex.split(command)
    assert (program, cli.main(arguments)) == ("logitproof", 0)


@pytest.mark.parametrize("row", rows("table: plan"), ids=lambda row: row[0])
def test_the_figures_of_a_plan_are_as_told(row: list[str]) -> None:
    planned = plan(ModelRecord.scale(row[0]), RunRecord.fixture(row[1]))
    figures = (
        planned.census.total,
        planned.kv_bytes[2],
        planned.macs.causal,
        len(planned.refusals),
    )
    assert row[2:] == [f"{figure:,}" for figure in figures]


def test_a_record_is_as_long_as_told() -> None:
    room = 65_536 - len(ModelRecord.scale("bridge").replace(tokenizer_id="x").to_bytes())
    record = ModelRecord.scale("bridge").replace(tokenizer_id="x" * (room + 1))
    assert "at most 65,536 bytes" in README
    assert len(record.to_bytes()) == 65_536


def test_the_example_about_plans_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", fenced("example: plan")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
