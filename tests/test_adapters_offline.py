"""Requests in a folder and the answers to them: what fits is judged, and nothing else."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logitproof.properties import cli
from logitproof.properties.adapters.calls import CARRIED
from logitproof.properties.adapters.folder import read_folder
from logitproof.properties.adapters.serve import answers
from logitproof.properties.cli import UsageError
from logitproof.properties.subjects import CoreSubject, ScalarSubject

Output = pytest.CaptureFixture[str]
LAW = ("--law", "decoder.p*")
HELLO = '{"id":"0","call":"hello"}'
CLAIMS = {*CoreSubject.capabilities}


def answered(folder: Path, subject: Any = CoreSubject) -> Path:
    """The folder with the answers of a decoder."""
    with (folder / "requests.jsonl").open(encoding="utf-8") as requests:
        text = "".join(answers(subject(), requests))
    (folder / "answers.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests and right answers."""
    folder = tmp_path_factory.mktemp("whole") / "dir"
    assert cli.main(["export-requests", str(folder), *LAW]) == 0
    return answered(folder)


@pytest.fixture
def copy(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, to be spoiled."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(whole, tmp_path / "dir"))


def edit(name: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    """Another list of lines in one file."""

    def edited(folder: Path) -> None:
        path = folder / name
        lines = change(path.read_text("utf-8").splitlines(keepends=True))
        path.write_text("".join(lines), encoding="utf-8")

    return edited


def set_manifest(**facts: Any) -> Callable[[Path], None]:
    """Other facts in the manifest."""

    def edited(folder: Path) -> None:
        path = folder / "manifest.json"
        own = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps({**own, **facts}), encoding="utf-8")

    return edited


def other_result(line: str) -> str:
    return json.dumps({**json.loads(line), "result": None, "more": 1}) + "\n"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (edit("answers.jsonl", lambda s: [*s, '{"id":"0a-1","result":null}\n']), "1 answer is to"),
        (edit("answers.jsonl", lambda s: [*s, other_result(s[0])]), "another answer to"),
        (edit("answers.jsonl", lambda s: [*s, "{\n"]), "no line of JSON"),
        (edit("answers.jsonl", lambda s: [*s, '{"result":null}\n']), "no id"),
        (edit("requests.jsonl", lambda s: s[:-1]), "not the file that the manifest knows"),
        (edit("requests.jsonl", lambda s: [s[0].replace("1", "2", 1), *s[1:]]), "not the file"),
        (set_manifest(format="logitproof-requests-v0"), "not of format"),
        (set_manifest(protocol="logitproof-decoder-v0"), "for logitproof-decoder-v1"),
        (set_manifest(laws={"version": 1, "sha256": ""}), "another set of laws"),
        (set_manifest(seed="7"), "seed"),
        (set_manifest(examples=True), "examples"),
        (set_manifest(conventions={}), "conventions"),
        (set_manifest(capabilities={"tape": True}), "capabilities"),
        (set_manifest(requests=None), "requests"),
        (lambda folder: (folder / "answers.jsonl").unlink(), "No such file"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "expected a JSON object"),
    ],
)
def test_what_does_not_fit_is_bad_input(
    spoil: Callable[[Path], None], words: str, copy: Path, capsys: Output
) -> None:
    spoil(copy)
    assert cli.main(["judge", str(copy), "--json", "facts.json"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert [path.name for path in copy.parent.iterdir()] == ["dir"]


def test_answers_to_other_requests_are_refused(copy: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert cli.main(["export-requests", str(other), *LAW, "--seed", "5"]) == 0
    shutil.copy(answered(other) / "answers.jsonl", copy)
    with pytest.raises(UsageError, match="answers are to requests not made here"):
        read_folder(copy)


def test_answers_may_come_in_any_order_and_twice(copy: Path, capsys: Output) -> None:
    edit("answers.jsonl", lambda lines: [*lines[::-1], lines[0]])(copy)
    assert cli.main(["judge", str(copy)]) == 0
    assert capsys.readouterr().out.endswith("\nAll 3 laws hold.\n")


def test_what_has_no_answer_fails_the_law_that_asked(copy: Path, capsys: Output) -> None:
    folder = read_folder(copy)
    last = max(i for i, id_ in enumerate(folder.asked) if folder.asked[id_] == "loss_and_gradients")
    edit("answers.jsonl", lambda lines: lines[:last])(copy)
    assert cli.main(["judge", str(copy)]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("logitproof judge: ")
    assert "requests have no answer, the first is loss_and_gradients" in err
    assert "decoder.packed-separate FAILS" in out
    assert "NotAnswered: loss_and_gradients" in out


def test_the_self_test_holds_for_answers_too(copy: Path, capsys: Output) -> None:
    folder = read_folder(copy)
    twice = next(id_ for id_ in folder.asked if id_.endswith("-2"))
    wrong = {"id": twice, "result": {"dtype": "float64", "shape": [0], "hex": ""}}
    lines = [line for line in folder.answers.values() if twice.encode() not in line]
    text = b"\n".join([*lines, json.dumps(wrong).encode()]) + b"\n"
    (copy / "answers.jsonl").write_bytes(text)
    assert cli.main(["judge", str(copy)]) == 2
    assert "the adapter fails its self-test: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("dir", "--law", "unheard.*"),
        ("dir", "--claims", "forward,telepathy"),
        ("dir", "--claims", "refusals"),
        ("dir", "--seed", "-1"),
        ("dir", "--seed", "18446744073709551616"),
        ("dir", "--profile", "slow"),
        ("dir", "--functions", "own"),
        ("full",),
        ("full/file",),
        (),
    ],
    ids=" ".join,
)
def test_a_wrong_export_is_bad_input(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert cli.main(["export-requests", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "full"]


def test_the_same_export_is_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert cli.main(["export-requests", str(again), *LAW]) == 0
    names = ("manifest.json", "requests.jsonl")
    assert [(again / n).read_bytes() for n in names] == [(whole / n).read_bytes() for n in names]


def test_a_decoder_with_a_cache_is_asked_for_it(tmp_path: Path, capsys: Output) -> None:
    folder = tmp_path / "dir"
    exported = ["--claims", "forward,decode", "--law", "truth.cached*", "--encoding", "hex"]
    assert cli.main(["export-requests", str(folder), *exported]) == 0
    assert cli.main(["judge", str(answered(folder))]) == 0
    assert "levels: forward not tried, loss not claimed" in capsys.readouterr().out


def test_a_decoder_of_the_c_library_is_asked_for_its_bits(tmp_path: Path) -> None:
    exported = ["--claims", "forward,loss,gradients,specified-bits", "--functions", "c-library"]
    folder = tmp_path / "dir"
    assert cli.main(["export-requests", str(folder), *exported, "--law", "decoder.s*"]) == 0
    asked = read_folder(answered(folder)).asked
    assert {*asked.values()} == {"echo", "load", "logits", "loss_and_gradients"}


def test_the_answers_are_a_decoder_by_name(whole: Path, capsys: Output) -> None:
    assert cli.main(["verify", "--decoder", f"offline:{whole}", *LAW]) == 0
    assert capsys.readouterr().out.endswith("\nAll 3 laws hold.\n")


def test_answers_are_served_without_more_than_is_claimed() -> None:
    (line,) = answers(ScalarSubject(), [HELLO])
    claims = json.loads(line)["result"]["capabilities"]
    assert claims == {n: v for n, v in ScalarSubject.capabilities.items() if n in CARRIED}
    assert set(json.loads(next(answers(CoreSubject(), [HELLO])))["result"]["capabilities"]) < CLAIMS
