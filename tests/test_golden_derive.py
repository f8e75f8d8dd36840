"""Golden cases derived anew: never from the core, always the same bytes, accepted by name alone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from logitproof.golden import check, derive, judge, load, regenerate, run, write
from logitproof.golden.load import Case
from logitproof.properties import cli

pytestmark = pytest.mark.golden

# A child derives everything and prints what of the core it has loaded.
NEVER = """
import sys
from logitproof.golden import derive
for subject in derive.SUBJECTS:
    derive.derived(subject)
print([name for name in sys.modules if name == "numpy" or name.startswith("logitproof.core")])
"""
DIGESTS = """
from logitproof.golden import derive, load
for subject in derive.SUBJECTS:
    print(*map(load.case_digest, derive.derived(subject)), sep="\\n")
"""
FAST = ("functions", "generators", "rotations", "layouts", "tokenizers", "records", "counts")


def python(text: str, seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def edited(root: Path, old: str, new: str, subject: str) -> None:
    """Puts another text into a file of the set, as a hand would."""
    path = root / f"{subject}.json"
    text = path.read_text("ascii")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="ascii", newline="\n")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for name in write.BESIDE:
        shutil.copy(load.folder().parent / name, tmp_path / name)
    for name in write.FOLDERS_BESIDE:
        shutil.copytree(load.folder().parent / name, tmp_path / name)
    return shutil.copytree(load.folder(), tmp_path / load.DATA)


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A side folder with everything derived anew."""
    place = tmp_path_factory.mktemp("side")
    assert regenerate.propose(place, load.folder()) == []
    return place


def case_of(identifier: str) -> Case:
    return next(case for case in load.read() if case.id == identifier)


def test_deriving_never_imports_the_core() -> None:
    assert python(NEVER, "0") == "[]\n"


@pytest.mark.slow
def test_two_processes_derive_the_same() -> None:
    assert python(DIGESTS, "1") == python(DIGESTS, "2")


@pytest.mark.parametrize("subject", derive.SUBJECTS)
def test_a_file_is_derived_again_byte_for_byte(subject: str, side: Path) -> None:
    name = f"{subject}.json"
    assert (side / name).read_bytes() == (load.folder() / name).read_bytes()


def test_published_and_worked_cases_are_not_derived() -> None:
    origins = {case.subject: case.origin for case in load.read() if case.origin != "derived"}
    assert origins.keys().isdisjoint(derive.SUBJECTS)


# The diff.


def test_a_changed_bit_is_shown_with_its_distance_from_the_truth(copied: Path) -> None:
    case = case_of("functions/exp")
    right = case.expect["value"]["f64"][0].split()[-1]
    wrong = f"{int(right, 16) ^ 1:016x}"
    edited(copied, right, wrong, "functions")
    old = load.read("functions", root=copied)
    (change,) = regenerate.compared(old, derive.derived("functions"))
    ((path, what),) = change.leaves
    assert (change.id, path) == ("functions/exp", "expect.value[11]")
    assert "1 ulp apart" in what
    assert "ulp from the true value" in what


def test_new_and_missing_cases_are_shown() -> None:
    fresh = derive.derived("layouts")
    kinds = [(c.id, c.kind) for c in regenerate.compared(fresh[:2], fresh[1:])]
    assert kinds == [("layouts/packed", "new"), ("layouts/full", "gone")]


def test_a_changed_reason_is_a_leaf() -> None:
    fresh = derive.derived("layouts")
    old = load.parse(write.text_of("layouts", fresh).replace("inactive", "silent"), "layouts")
    assert [path for path, _ in check.changes(old[0], fresh[0])] == ["why"]


# Accepting.


def test_an_accepted_case_is_replaced_and_the_version_grows(copied: Path, side: Path) -> None:
    edited(copied, "a segment's positions", "its positions", "layouts")
    version = load.manifest(copied)["version"]
    assert regenerate.accept(["layouts/full"], side, copied) == ["layouts/full"]
    assert list(check.check_files(copied)) == []
    assert load.manifest(copied)["version"] == version + 1


def test_what_others_changed_by_hand_stays_seen(copied: Path, side: Path) -> None:
    edited(copied, "a segment's positions", "its positions", "layouts")
    regenerate.accept(["layouts/packed"], side, copied)
    assert [f.case for f in check.check_files(copied) if f.case] == ["layouts/full"]


def test_nothing_to_accept_writes_nothing(copied: Path, side: Path) -> None:
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    assert regenerate.accept(["*"], side, copied) == []
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


@pytest.mark.parametrize("name", ["published/run-t1", "refusals/model-type", "layouts/unheard-of"])
def test_what_is_not_derived_is_never_replaced(name: str, copied: Path, side: Path) -> None:
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    with pytest.raises(regenerate.NotDerived, match=name):
        regenerate.accept(["*", name], side, copied)
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


def test_everything_comes_from_nothing(tmp_path: Path, side: Path) -> None:
    empty = tmp_path / load.DATA
    empty.mkdir()
    shutil.copy(load.folder() / load.FLAGS, empty)
    taken = regenerate.accept(["*"], side, empty)
    assert len(taken) == sum(case.origin == "derived" for case in load.read())
    assert load.read(root=empty) == [case for case in load.read() if case.origin == "derived"]


# Sealing.


def test_a_worked_case_is_sealed_by_name(copied: Path) -> None:
    edited(copied, "refused with this code", "turned down with this code", "refusals")
    (sealed,) = regenerate.seal(copied)
    assert sealed.startswith("refusals/")
    assert list(check.check_files(copied)) == []


@pytest.mark.parametrize("subject", ["published", "layouts"])
def test_published_and_derived_cases_are_never_sealed(subject: str, copied: Path) -> None:
    edited(copied, '"why": "', '"why": "not ', subject)
    with pytest.raises(regenerate.NotDerived, match=subject):
        regenerate.seal(copied)


@pytest.mark.parametrize("name", ["figures-v1.json", "records-v1/model-bridge.json"])
def test_published_files_are_never_sealed(name: str, copied: Path) -> None:
    path = copied.parent / name
    path.write_text(path.read_text("ascii") + "\n")
    with pytest.raises(regenerate.NotDerived, match=name):
        regenerate.seal(copied)


def test_sealing_what_is_sealed_changes_nothing(copied: Path) -> None:
    before = (copied / load.MANIFEST).read_bytes()
    assert regenerate.seal(copied) == []
    assert (copied / load.MANIFEST).read_bytes() == before


# Writing.


def test_of_two_writers_one_is_refused(tmp_path: Path) -> None:
    with write.locked(tmp_path), pytest.raises(write.Locked), write.locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "layouts.json"
    path.write_text("old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write.replace(path, "new")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(path.name, "old")]


# Judging.


def test_a_refusal_in_place_of_values_is_told() -> None:
    case = case_of("layouts/full")
    (difference,) = judge.differences(case, {"refusal": {"code": "shape/x", "fields": {}}})
    assert "shape/x" in str(difference)


def test_values_in_place_of_a_refusal_are_told() -> None:
    (difference,) = judge.differences(case_of("refusals/model-type"), {"text": ""})
    assert difference.path == "expect.refusal"


def test_another_shape_is_told() -> None:
    case = case_of("functions/exp")
    found = {"value": {"shape": [1], "f64": ["3ff0000000000000"]}}
    assert judge.differences(case, found)[0].path == "expect.value.shape"


def test_the_other_zero_is_told() -> None:
    case = case_of("functions/sin")
    found = json.loads(json.dumps(run.outcome(case)).replace("0000000000000000", "8" + "0" * 15))
    assert "the other zero" in str(judge.differences(case, found)[0])


@pytest.mark.parametrize(
    "name", ["operations/exp-row-bounded", "operations/indexed-mean-nll-certain-faithful"]
)
def test_a_value_beyond_its_bound_is_told(name: str) -> None:
    case = case_of(name)
    found = run.outcome(case)
    found["value"]["f64"][0] = "5" + found["value"]["f64"][0][1:]  # far above every bound
    assert "within" in str(judge.differences(case, found)[0])


# The command.


def test_the_command_finds_nothing_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["golden", "check", *FAST]) == 0
    assert "nothing differs" in capsys.readouterr().out


def test_the_command_names_what_differs_first(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    word = case_of("functions/log").expect["value"]["f64"][0].split()[3]
    edited(copied, word, f"{int(word, 16) ^ 1:016x}", "functions")
    facts = tmp_path / "facts.json"
    assert cli.main(["golden", "check", "--root", str(copied), "--json", str(facts), *FAST]) == 1
    told = capsys.readouterr().out
    assert "functions.json: cases[1]: functions/log was changed by hand" in told
    assert "first operation that differs: log: the elementary function" in told
    found = json.loads(facts.read_text("utf-8"))["findings"]
    assert {finding["by"] for finding in found} == {"manifest", "scalar", "core"}


def test_the_command_lists_by_flag_and_origin(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["golden", "list", "--flag", "ring-traffic", "--origin", "published"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 cases in 1 files"


def test_the_command_proposes_and_accepts(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(copied, "a segment's positions", "its positions", "layouts")
    root, side = ["--root", str(copied)], ["--side", str(tmp_path / "side")]
    assert cli.main(["golden", "diff", *root]) == 1
    assert "layouts/full: changed" in capsys.readouterr().out
    assert cli.main(["golden", "regenerate", *root, *side, "--accept", "layouts/full"]) == 0
    assert list(check.check_files(copied)) == []


def test_the_diff_names_the_operation_that_differs_first(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    word = case_of("operations/silu-row-warm").expect["value"]["f64"][0].split()[0]
    edited(copied, word, f"{int(word, 16) ^ 1:016x}", "operations")
    places = ["--root", str(copied), "--side", str(tmp_path / "side")]
    assert cli.main(["golden", "regenerate", *places]) == 1
    told = capsys.readouterr().out
    assert "operations/silu-row-warm: changed" in told
    assert "first operation that differs: silu: the value" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "unheard-of"],
        ["check", "--root", "unheard-of"],
        ["list", "--origin", "recorded"],
        ["regenerate", "--side", str(load.folder())],
        ["regenerate", "--side", str(load.folder() / "side")],
        ["regenerate", "--seal", "--root", "unheard-of"],
    ],
    ids=" ".join,
)
def test_a_wrong_call_is_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["golden", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
