"""What is published stays, what is interrupted is finished, and nothing foreign is overwritten."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logitproof.golden import check, derive, judge, load, pins, regenerate, staged, write
from logitproof.golden.run import outcome
from logitproof.properties import cli
from logitproof.properties.mutations import MUTATIONS

pytestmark = pytest.mark.golden

PUBLISHED = json.loads((load.folder() / "published.json").read_text("ascii"))["cases"]
# A child accepts everything, and is gone at its n-th step that touches the disk.
KILLED = """
import os, sys, shutil
from pathlib import Path
from logitproof.golden import regenerate
left = int(sys.argv[1])
def counted(act):
    def step(*args, **kwargs):
        global left
        if Path(str(args[0])).is_relative_to(sys.argv[3]):
            left -= act is not opened or "w" in str(args[1:])
            if left < 0:
                os._exit(9)
        return act(*args, **kwargs)
    return step
opened = Path.open
Path.mkdir, Path.replace = counted(Path.mkdir), counted(Path.replace)
Path.unlink, shutil.rmtree = counted(Path.unlink), counted(shutil.rmtree)
Path.open = counted(opened)
regenerate.accept(["layouts/*", "generators/*"], Path(sys.argv[2]), Path(sys.argv[3]))
"""
# Folder, stage, three drafts of three steps each, the journal alike, three moves, stage, lock.
STEPS = range(19)
MIDWAY = 15  # one file of three is in place


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("side")
    regenerate.propose(place, load.folder())
    return place


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    golden = tmp_path / "golden"
    golden.mkdir()
    for name in write.BESIDE:
        shutil.copy(load.folder().parent / name, golden / name)
    for name in write.FOLDERS_BESIDE:
        shutil.copytree(load.folder().parent / name, golden / name)
    return shutil.copytree(load.folder(), golden / load.DATA)


@pytest.fixture
def two_changed(copied: Path) -> Path:
    """A set in which two files differ from what is derived."""
    edited(copied, "layouts.json", "a segment's positions", "its positions")
    edited(copied, "generators.json", "53 bits of a word", "half a word")
    regenerate_manifest(copied)
    return copied


def edited(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text("ascii")
    assert old in text
    (root / name).write_text(text.replace(old, new, 1), encoding="ascii", newline="\n")


def regenerate_manifest(root: Path) -> None:
    """The manifest that a hand would write, which agrees with whatever lies there."""
    cases = {case.id: load.entry(case) for case in load.read(root=root)}
    version = load.manifest(root)["version"]
    text = write.manifest_text(version, write.file_digests(root), cases)
    (root / load.MANIFEST).write_text(text)


def content(root: Path) -> dict[str, bytes]:
    found = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def killed(step: int, side: Path, root: Path) -> int:
    command = [sys.executable, "-c", KILLED, str(step), str(side), str(root)]
    return subprocess.run(command, check=False, capture_output=True).returncode


def told(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    captured = capsys.readouterr()
    return captured.out, captured.err


def pinned_findings(root: Path) -> list[str]:
    return [f"{finding.at} {finding.what}" for finding in pins.findings(root)]


# Origins.


@pytest.mark.parametrize("origin", ["worked", "derived"])
def test_sealing_refuses_another_origin_of_a_published_case(origin: str, copied: Path) -> None:
    edited(copied, "published.json", '"origin": "published"', f'"origin": "{origin}"')
    before = content(copied)
    with pytest.raises(regenerate.NotDerived, match="is published and cannot become"):
        regenerate.seal(copied)
    assert content(copied) == before


@pytest.mark.parametrize("origin", ["published", "derived"])
def test_sealing_refuses_another_origin_of_a_worked_case(origin: str, copied: Path) -> None:
    edited(copied, "plans.json", '"origin": "worked"', f'"origin": "{origin}"')
    with pytest.raises(regenerate.NotDerived, match=f"is worked and cannot become {origin}"):
        regenerate.seal(copied)


def test_a_published_case_that_is_gone_is_never_sealed(copied: Path) -> None:
    cases = load.read_one(copied, "published")
    (copied / "published.json").write_text(write.text_of("published", cases[1:]))
    with pytest.raises(regenerate.NotDerived, match="published/run-t1 is published"):
        regenerate.seal(copied)


def test_a_changed_origin_is_told(copied: Path) -> None:
    edited(copied, "published.json", '"origin": "published"', '"origin": "worked"')
    found = [str(f) for f in check.check_files(copied) if f.case == "published/run-t1"]
    assert "published/run-t1 is published in the manifest, not worked" in found[0]


def test_a_wildcard_never_takes_a_case_of_another_origin(copied: Path, side: Path) -> None:
    edited(copied, "layouts.json", '"origin": "derived"', '"origin": "worked"')
    before = content(copied)
    with pytest.raises(regenerate.NotDerived, match="layouts/full is worked and stays as it is"):
        regenerate.accept(["layouts/*"], side, copied)
    assert content(copied) == before


# Interruptions.


def test_an_accepted_case_that_a_hand_added_goes(copied: Path, side: Path) -> None:
    added = json.loads((copied / "layouts.json").read_text("ascii"))
    added["cases"].append({**added["cases"][0], "id": "layouts/added"})
    (copied / "layouts.json").write_text(json.dumps(added))
    assert regenerate.accept(["layouts/*"], side, copied) == ["layouts/added"]
    assert list(check.check_files(copied)) == []


def interrupted(step: int, root: Path, side: Path) -> None:
    """Killed at a step: told where anything is half done, and finished by the next call."""
    assert killed(step, side, root) == 9
    told = [finding.at for finding in check.check_files(root)]
    assert (staged.FOLDER in told) == (root / staged.FOLDER).exists()
    assert bool(told) == (root / staged.FOLDER).exists()
    regenerate.accept(["layouts/*", "generators/*"], side, root)
    assert list(check.check_files(root)) == []
    assert (root / "layouts.json").read_bytes() == (side / "layouts.json").read_bytes()
    assert not (root / staged.FOLDER).exists()


@pytest.mark.parametrize("step", [1, 6, MIDWAY, 17])
def test_what_is_killed_is_told_and_finished(step: int, two_changed: Path, side: Path) -> None:
    interrupted(step, two_changed, side)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_whatever_step_is_killed_is_finished(step: int, two_changed: Path, side: Path) -> None:
    interrupted(step, two_changed, side)


def test_the_steps_killed_are_all_of_them(two_changed: Path, side: Path) -> None:
    assert killed(STEPS[-1] + 1, side, two_changed) == 0


def test_a_stage_that_a_hand_changed_moves_nothing(two_changed: Path, side: Path) -> None:
    assert killed(MIDWAY, side, two_changed) == 9
    (two_changed / staged.FOLDER / load.MANIFEST).write_text("{}")
    (two_changed / write.LOCK).unlink()  # of the one that was killed
    before = content(two_changed)
    with pytest.raises(ValueError, match=r"not what journal\.json says"):
        regenerate.accept(["layouts/*"], side, two_changed)
    assert content(two_changed) == before


def test_a_journal_moves_nothing_out_of_its_folder(copied: Path) -> None:
    stage = copied / staged.FOLDER
    stage.mkdir()
    journal = {"format": staged.FORMAT, "files": {"../figures-v1.json": "0" * 64}}
    (stage / staged.JOURNAL).write_text(json.dumps(journal))
    with pytest.raises(ValueError, match="names of files are wanted"):
        staged.finish(copied)


def test_the_command_finishes_and_says_so(
    two_changed: Path, side: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert killed(MIDWAY, side, two_changed) == 9
    places = ["--root", str(two_changed), "--side", str(tmp_path / "new")]
    assert cli.main(["golden", "regenerate", *places, "--accept", "layouts/*"]) == 0
    assert "an interrupted acceptance is finished: " in capsys.readouterr().out


# One writer.


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A folder that another process holds."""
    text = (
        "import sys, time; from pathlib import Path; from logitproof.golden import write\n"
        "with write.locked(Path(sys.argv[1])):\n print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield tmp_path, child
        child.kill()


def test_a_lock_ends_with_its_holder(holder: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, child = holder
    with pytest.raises(write.Locked, match="is held"), write.locked(folder):
        pass
    child.kill()
    child.wait()
    with write.locked(folder):
        assert (folder / write.LOCK).exists()
    assert list(folder.iterdir()) == []


def test_without_locks_of_the_system_the_file_is_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_FCNTL", None)
    with (
        write.locked(tmp_path),
        pytest.raises(write.Locked, match="exists"),
        write.locked(tmp_path),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


# The side folder.


@pytest.mark.parametrize("action", [["regenerate"], ["regenerate", "--accept", "layouts/full"]])
def test_a_foreign_folder_is_no_side_folder(
    action: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "layouts.json").write_text("as it was")
    before = content(tmp_path)
    assert cli.main(["golden", *action, "--side", str(tmp_path)]) == 2
    out, err = told(capsys)
    assert (content(tmp_path), out, err.count("\n")) == (before, "", 1)
    assert "holds something else" in err


def test_a_link_or_a_file_is_no_side_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(regenerate.NotASide, match="is no folder"):
        regenerate.propose(tmp_path / "link", load.folder())
    with pytest.raises(regenerate.NotASide, match="is no folder"):
        regenerate.propose(tmp_path / "file", load.folder())


def test_a_side_folder_of_before_is_taken_again(side: Path) -> None:
    assert regenerate.propose(side, load.folder()) == []


def test_a_diff_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["golden", "diff"]) == 0
    assert list(tmp_path.iterdir()) == []


# Pins.


def test_the_set_is_as_pinned() -> None:
    assert list(pins.findings(load.folder())) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("published.json", "parameters by category", "sizes", "is another than the one pinned"),
        ("published.json", "published/run-t1", "published/run-t9", "run-t1 is gone"),
        ("refusals.json", "refused with this code", "refused", "its worked cases are"),
        (
            "../figures-v1.json",
            "4016ac70bf03b620",
            "4016ac70bf03b621",
            "figures-v1.json is another",
        ),
    ],
)
def test_a_case_changed_together_with_its_manifest_is_told(
    name: str, old: str, new: str, told: str, copied: Path
) -> None:
    edited(copied, name, old, new)
    regenerate_manifest(copied)
    assert list(check.check_files(copied)) == []
    assert any(told in found for found in pinned_findings(copied))


def test_a_published_case_that_nobody_pinned_is_told(copied: Path) -> None:
    held = json.loads((copied / "published.json").read_text("ascii"))
    held["cases"].append({**held["cases"][0], "id": "published/more"})
    (copied / "published.json").write_text(json.dumps(held))
    assert any(
        "published/more is published, but pins-v1.json" in f for f in pinned_findings(copied)
    )


def test_an_older_version_of_the_set_is_told(copied: Path) -> None:
    manifest = load.manifest(copied)
    text = write.manifest_text(2, manifest["files"], manifest["cases"])
    (copied / load.MANIFEST).write_text(text)
    assert any("version 2 is less than" in found for found in pinned_findings(copied))


def test_no_command_writes_the_pins(copied: Path, side: Path) -> None:
    before = (load.folder().parent / pins.FILE).read_bytes()
    edited(copied, "plans.json", "in plan order", "as they come")
    regenerate.seal(copied)
    regenerate.accept(["*"], side, copied)
    assert not (copied.parent / pins.FILE).exists()
    assert (load.folder().parent / pins.FILE).read_bytes() == before


# The set that was chosen.


def test_the_figures_are_those_of_the_set_that_was_chosen(copied: Path) -> None:
    edited(copied, "../figures-v1.json", "4016ac70bf03b620", "4016ac70bf03b621")
    regenerate_manifest(copied)
    report = check.check(copied, subjects=["published"])
    found = {finding.by for finding in report.findings if finding.case == "published/run-t1"}
    assert found == {"core", "scalar"}


@pytest.mark.parametrize(
    "name", ["../figures-v1.json", "layouts.json", "manifest.json", "flags.json"]
)
def test_a_file_that_cannot_be_read_is_one_line_and_code_2(
    name: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copied / name).write_bytes((copied / name).read_bytes()[:-9])
    assert cli.main(["golden", "check", "--root", str(copied), "layouts"]) == 2
    out, err = told(capsys)
    assert (out, err.count("\n")) == ("", 1)
    assert Path(name).name in err


@pytest.mark.parametrize("name", ["../FORMAT.md", "../reported-v1/reported_cases.json"])
def test_pages_and_reported_cases_are_in_the_manifest(name: str, copied: Path) -> None:
    (copied / name).write_bytes((copied / name).read_bytes() + b"\n")
    assert [finding.at for finding in check.check_files(copied)] == [name]


@pytest.mark.parametrize("place", ["missing/facts.json", "."])
def test_facts_that_cannot_be_written_are_told_before_any_work(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "check", None)
    assert cli.main(["golden", "check", "--json", str(tmp_path / place)]) == 2
    out, err = told(capsys)
    assert (out, err.count("\n")) == ("", 1)


# Layers.


@pytest.mark.parametrize("case", derive.derived("layers"), ids=str)
def test_a_layer_out_by_one_bit_is_told_by_its_part(case: load.Case) -> None:
    found = outcome(case)
    part = list(found["values"])[-1]
    row = found["values"][part]["f64"][-1]
    found["values"][part]["f64"][-1] = row[:-1] + f"{int(row[-1], 16) ^ 1:x}"
    (difference,) = judge.differences(case, found)
    assert difference.path.startswith(f"expect.values.{part}")
    assert check.first_operation([(case, difference)]).startswith(
        f"{case.setup['layer']}: the part"
    )


@pytest.mark.parametrize(
    "name", [c["id"] for c in PUBLISHED if c["setup"]["kind"] in ("demand", "profile")]
)
def test_an_outcome_out_by_one_is_told(name: str) -> None:
    (case,) = [case for case in load.read("published") if case.id == name]
    found = outcome(case)
    assert judge.differences(case, found) == []
    MUTATIONS["last-bit"]([{"expect": found}], 0)
    assert len(judge.differences(case, found)) == 1
