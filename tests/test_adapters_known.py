"""Known failures are run and reported; one that passes, or has expired, is an error."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from logitproof.properties import cli, laws
from logitproof.properties.adapters.known import Known, known_for, read_known
from logitproof.properties.cli import UsageError
from logitproof.properties.faults import REGISTRY as FAULTS

Output = pytest.CaptureFixture[str]
LAW = "decoder.prefix-causality"
ENTRY = {"law": '"decoder.prefix*"', "reason": '"mask is one off"',
         "link": '"https://example.org/7"', "expires": "2999-01-31"}  # fmt: skip
TODAY = date(2026, 1, 31)


def written(folder: Path, *entries: dict[str, str]) -> Path:
    """A list of known failures."""
    path = folder / "known.toml"
    texts = ["[[known]]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for e in entries]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run that expects one law to fail."""
    monkeypatch.chdir(tmp_path)
    path = str(written(tmp_path, ENTRY))
    steps = ("--decoder", "core-steps")  # in which the fault is planted
    return ["verify", "--law", LAW, "--known", path, "--json", "facts.json", *steps]


def law_facts() -> dict[str, Any]:
    """The only law of the report."""
    facts: dict[str, Any] = json.loads(Path("facts.json").read_text("utf-8"))["laws"][0]
    return facts


def test_a_known_failure_is_run_and_reported_and_no_error(known: list[str], capsys: Output) -> None:
    with FAULTS["mask-off-by-one"]:
        assert cli.main(known) == 0
    out = capsys.readouterr().out
    assert f"{LAW} known failure" in out
    assert "known   mask is one off (https://example.org/7, until 2999-01-31)" in out
    assert out.endswith("No law holds that was tried; 1 known to fail.\n")
    assert law_facts()["verdict"] == "known failure"
    assert Path(f"{LAW}.replay.json").exists()


def test_an_unexpected_pass_is_an_error(known: list[str], capsys: Output) -> None:
    assert cli.main(known) == 1
    out = capsys.readouterr().out
    assert f"{LAW} unexpected pass" in out
    assert out.endswith("1 of 1 law listed as failing but not.\n")
    assert law_facts()["verdict"] == "unexpected pass"


def test_another_failure_is_a_failure(known: list[str], capsys: Output) -> None:
    known[2] = "decoder.*-[ci][an][ud]*"
    with FAULTS["mask-off-by-one"], FAULTS["softmax-maximum-of-batch"]:
        assert cli.main(known) == 1
    assert capsys.readouterr().out.endswith("1 of 2 laws FAILS; 1 known to fail.\n")


def test_a_page_shows_what_was_expected(known: list[str]) -> None:
    assert cli.main([*known, "--html", "page.html"]) == 1
    assert "unexpected pass" in Path("page.html").read_text("utf-8")


def test_an_entry_counts_on_its_last_day(tmp_path: Path) -> None:
    path = written(tmp_path, {**ENTRY, "expires": "2026-01-31"})
    (entry,) = read_known(path, laws.REGISTRY, TODAY)
    assert entry.expires == TODAY
    with pytest.raises(UsageError, match="expired on 2026-01-31: mask is one off"):
        read_known(path, laws.REGISTRY, date(2026, 2, 1))


@pytest.mark.parametrize(
    "change",
    [
        {"law": '"unheard.*"'},
        {"law": "7"},
        {"reason": '""'},
        {"expires": '"2999-01-31"'},
        {"expires": "2999-01-31T00:00:00"},
        {"expires": "1999-01-31"},
        {"owner": '"me"'},
        {"link": "nothing"},
    ],
    ids=str,
)
def test_a_wrong_entry_is_bad_input(
    change: dict[str, str], known: list[str], tmp_path: Path, capsys: Output
) -> None:
    written(tmp_path, {**ENTRY, **change})
    assert cli.main(known) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert not Path("facts.json").exists()


@pytest.mark.parametrize("text", ["", "known = 3", "other = 1\n[[known]]", "\xff"])
def test_a_list_of_another_form_is_bad_input(text: str, known: list[str], tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_bytes(text.encode("latin-1"))
    assert cli.main(known) == 2


def test_an_entry_without_its_reason_is_bad_input(known: list[str], tmp_path: Path) -> None:
    written(tmp_path, {name: text for name, text in ENTRY.items() if name != "reason"})
    assert cli.main(known) == 2


def test_the_example_of_the_readme_is_a_list(tmp_path: Path) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    path = tmp_path / "known.toml"
    path.write_text(readme.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    assert [entry.law for entry in read_known(path, laws.REGISTRY, TODAY)] == ["decoder.packed-*"]


def test_the_first_entry_that_matches_counts() -> None:
    one, two = (Known(law=law, reason=law, link="x", expires=TODAY) for law in ("decoder.*", "*"))
    assert known_for("decoder.raw-sum", [one, two]) is one
    assert known_for("truth.loss", [one, two]) is two
    assert known_for("truth.loss", [one]) is None
