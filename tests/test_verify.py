"""`logitproof verify`: what it says, to whom, and how it ends."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logitproof.properties import cli, laws
from logitproof.properties.faults import REGISTRY as FAULTS
from logitproof.properties.subjects import CoreSubject, ScalarSubject
from logitproof.properties.verify import environment
from logitproof.properties.verify.command import verify
from logitproof.properties.verify.report import Report, lines

Output = pytest.CaptureFixture[str]
FEW = {id_: laws.REGISTRY[id_] for id_ in ("published.losses", "decoder.recomputation")}


def silent(_: str) -> None:
    """Shows no progress."""


@pytest.fixture(scope="module")
def sound() -> Report:
    return verify(CoreSubject(), "core", laws.REGISTRY, "quick", 2, silent)


@pytest.fixture(scope="module")
def broken() -> Iterator[Report]:
    with FAULTS["contraction-descending"]:
        yield verify(CoreSubject(), "core", laws.REGISTRY, "quick", 2, silent)


def test_all_holds_ends_with_0_and_one_sentence(capsys: Output) -> None:
    assert cli.main(["verify", "--law", "decoder.*-separate"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("\nAll 2 laws hold.\n")
    assert err == ""


def test_the_default_is_the_quick_profile_and_every_law(capsys: Output) -> None:
    assert cli.main(["verify"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("logitproof verify: core, profile quick\n")
    assert out.endswith(f"All {len(laws.REGISTRY)} laws hold.\n")


def test_a_broken_law_ends_with_1_and_is_told_in_words(capsys: Output) -> None:
    with FAULTS["mask-off-by-one"]:
        assert cli.main(["verify", "--law", "decoder.prefix-causality"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "decoder.prefix-causality FAILS law Later ids change no bit" in out
    assert "input weights" in out
    assert "found logits before position 2 when the ids from there on change[1, 1, 0]" in out
    assert "again logitproof verify --profile quick --law decoder.prefix-causality" in out
    assert out.endswith("1 of 1 law FAILS.")


@pytest.mark.parametrize(
    "arguments",
    [("--law", "unheard.*"), ("--profile", "soak"), ("--json", "/nowhere/facts.json"), ("more",)],
    ids=["law", "profile", "file", "argument"],
)
def test_bad_input_is_one_line_and_code_2(arguments: tuple[str, ...], capsys: Output) -> None:
    assert cli.main(["verify", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_json_has_the_facts_of_the_table(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "facts.json"
    assert cli.main(["verify", "--law", "published.*", "--json", str(file)]) == 0
    facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    out = capsys.readouterr().out
    assert facts["holds"] is True
    assert facts["environment"]["numpy"] in out
    assert [law["id"] for law in facts["laws"]] == [i for i in laws.REGISTRY if i[:2] == "pu"]
    assert all(law["id"] in out for law in facts["laws"])


@pytest.mark.parametrize("width", [60, 80, 109, 110, 120])
def test_no_line_is_wider_than_the_screen(width: int, sound: Report, broken: Report) -> None:
    shown = [*lines(sound, width=width, colour=False), *lines(broken, width=width, colour=False)]
    assert max(map(len, shown)) <= width


def test_every_law_and_statement_is_in_the_report(sound: Report) -> None:
    text = " ".join(" ".join(lines(sound, width=80, colour=False)).split())
    assert [v.id for v in sound.verdicts if f"{v.id} {v.cases} " not in text] == []
    assert [v.id for v in sound.verdicts if v.statement not in text] == []


def test_only_failures_are_red(sound: Report, broken: Report) -> None:
    assert not any("\x1b[1;31m" in line for line in lines(sound, width=80, colour=True))
    assert any("\x1b[1;31mFAILS" in line for line in lines(broken, width=80, colour=True))
    assert not any("\x1b" in line for line in lines(broken, width=80, colour=False))


def test_what_cannot_be_asked_is_neither_true_nor_false() -> None:
    report = verify(ScalarSubject(), "scalar", FEW, "quick", 1, silent)
    assert [v.verdict for v in report.verdicts] == ["holds", "not asked"]
    assert report.holds
    assert list(lines(report, width=80, colour=False))[-1] == (
        "The one law asked holds; 1 not asked."
    )


def test_flushed_subnormals_decide_nothing(sound: Report) -> None:
    flushing = replace(sound.environment, subnormals="FLUSHED TO ZERO: no result counts")
    report = replace(sound, environment=flushing)
    assert not report.holds
    assert list(lines(report, width=80, colour=False))[-1].endswith("nothing is decided.")


def test_this_process_keeps_subnormals() -> None:
    assert environment.keeps_subnormals()


def test_progress_names_law_and_cases() -> None:
    said: list[str] = []
    verify(CoreSubject(), "core", FEW, "quick", 2, said.append)
    assert said[0] == "[1/2] published.losses"
    assert "[2/2] decoder.recomputation: 2 cases" in said
    assert said[-1] == ""
