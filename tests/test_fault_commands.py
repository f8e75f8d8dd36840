"""`logitproof faults` and `logitproof laws`: what they print, write, and return."""

import json
from pathlib import Path
from typing import Any

import pytest

from logitproof.properties import cli, kill_table
from logitproof.properties.faults import EQUIVALENTS, REGISTRY
from logitproof.properties.killing import Kill, Matrix, declared
from logitproof.properties.laws import REGISTRY as LAWS

QUICK = ("--law", "gather.*")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(list(arguments))
    return code, capsys.readouterr().out


def kill(fault: str, law: str, **facts: Any) -> Kill:
    return Kill(**{"fault": fault, "law": law, "killed": True, "examples": 1, "seconds": 0.0,
                   **facts})  # fmt: skip


def test_the_list_names_every_fault_and_the_equivalents(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = printed(capsys, "faults", "list")
    assert code == 0
    assert {*REGISTRY, *EQUIVALENTS} <= {*text.splitlines()}


def test_a_run_of_declared_pairs_tells_that_no_fault_survives(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, text = printed(capsys, "faults", "run", *QUICK)
    assert code == 0
    assert text.endswith("No fault survives.\n")
    assert "scatter-from-the-end" in text


def test_a_law_that_sees_nothing_lets_the_fault_survive(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--all", "--law", "tokenizer.*", "--fault", "kv-by-*", "--examples", "2")
    code, text = printed(capsys, "faults", "run", *arguments)
    assert code == 1
    assert "1 SURVIVE: kv-by-query-heads." in text


def test_progress_is_told_without_a_terminal_too(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["faults", "run", "--all", "--law", "gather.wide-ids", "--fault", "*-in-single*"]
    cli.main([*arguments, "--examples", "1"])
    out, err = capsys.readouterr()
    total = sum("-in-single" in fault for fault in REGISTRY)
    counts = [int(line.split(" of ")[0]) for line in err.splitlines()]
    assert counts == sorted({-(-total * tenth // 10) for tenth in range(1, 11)})
    assert "\x1b" not in err + out


def test_a_run_writes_its_matrix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "kills.json"
    printed(capsys, "faults", "run", *QUICK, "--json", str(file))
    facts = json.loads(file.read_bytes())
    assert facts["laws"] == [law for law in LAWS if law.startswith("gather.")]
    assert facts["faults"] == list(declared(REGISTRY, facts["laws"]))
    assert {cell for row in facts["killed"] for cell in row} == {True, None}
    assert facts["survivors"] == []


def test_a_fault_that_no_law_concerns_is_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "matrix.json"
    chosen = ("--all", "--law", "operations.adjoint", "--fault", "kv-[bh]*")
    code, _ = printed(capsys, "faults", "run", *chosen, "--json", str(file))
    tried = {cell["fault"] for cell in json.loads(file.read_bytes())["cells"]}
    assert (code, tried) == (1, {"kv-by-query-heads"})


def test_two_processes_give_the_same_matrix(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("one.json", "two.json")]
    printed(capsys, "faults", "run", *QUICK, "--json", str(files[0]))
    printed(capsys, "faults", "run", *QUICK, "--jobs", "2", "--json", str(files[1]))
    one, two = (json.loads(file.read_bytes()) for file in files)
    assert (one["killed"], one["examples"]) == (two["killed"], two["examples"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("faults",),
        ("faults", "run", "--fault", "unheard-of"),
        ("faults", "run", "--law", "unheard-of"),
        ("faults", "run", "--law", "gather.*", "--fault", "kv-by-query-heads"),
        ("faults", "run", "--all", "--law", "operations.*", "--fault", "kv-heads-in-turn"),
        ("faults", "run", "--examples", "0"),
        ("faults", "run", "--every-cell"),
        ("faults", "list", "--json", "/nowhere/at/all"),
        ("laws", "explain", "unheard-of"),
    ],
)
def test_a_wrong_call_is_one_line(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(list(arguments)) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_a_refused_run_writes_no_file(tmp_path: Path) -> None:
    file = tmp_path / "kills.json"
    assert cli.main(["faults", "run", "--law", "unheard-of", "--json", str(file)]) == 2
    assert not file.exists()


def test_cells_that_cannot_differ_are_tried_where_they_are_wanted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "kills.json"
    chosen = ("--all", "--law", "*.text", "--fault", "*-in-*", "--examples", "2")
    _, text = printed(capsys, "faults", "run", *chosen, "--json", str(file))
    facts = json.loads(file.read_bytes())
    assert {(cell["reached"], cell["examples"] > 0) for cell in facts["cells"]} == {
        (True, True), (False, False)
    }  # fmt: skip
    left = sum(not cell["reached"] for cell in facts["cells"])
    assert f"{left} cells cannot differ" in text
    _, whole = printed(capsys, "faults", "run", *chosen, "--every-cell", "--json", str(file))
    assert json.loads(file.read_bytes())["killed"] == facts["killed"]
    assert "cannot differ" not in whole


def test_the_laws_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = printed(capsys, "laws", "list")
    assert code == 0
    assert {*LAWS} <= {*text.splitlines()}


def test_a_law_is_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "law.json"
    code, text = printed(capsys, "laws", "explain", "gather.duplicates", "--json", str(file))
    assert code == 0
    assert "emb-repeated-ids" in text
    assert "- scatter-overwrites: " in text
    assert json.loads(file.read_bytes())["faults"] == list(LAWS["gather.duplicates"].faults)


def test_a_matrix_tells_survivors_broken_promises_and_idle_laws() -> None:
    cells = (
        kill("scatter-overwrites", "gather.duplicates", killed=False),
        kill("scatter-overwrites", "gather.wide-ids", killed=False),
        kill("ids-narrowed", "gather.duplicates"),
    )
    matrix = Matrix(kills=cells, seconds=0.0)
    assert matrix.survivors == ("scatter-overwrites",)
    assert matrix.broken_promises == cells[:1]
    assert matrix.idle_laws == ("gather.wide-ids",)


def test_a_strip_tells_how_early_a_family_sees() -> None:
    cells = (
        kill("ids-narrowed", "gather.wide-ids", examples=3, margin=20.0),
        kill("ids-narrowed", "norm.scale", examples=9),
        kill("ids-narrowed", "norm.limits", killed=False),
        kill("ids-narrowed", "tape.reuse", killed=False),
    )
    shown = list(kill_table.lines(Matrix(kills=cells, seconds=1.0), width=80, colour=False))
    assert "  ids-narrowed  ▓░·         3   2e+01" in shown


@pytest.mark.parametrize("colour", [True, False])
def test_a_survivor_is_marked(colour: bool) -> None:
    cells = (kill("ids-narrowed", "tape.reuse", killed=False),)
    shown = list(kill_table.lines(Matrix(kills=cells, seconds=1.0), width=60, colour=colour))
    assert any("SURVIVES" in line and ("\x1b" in line) == colour for line in shown)
