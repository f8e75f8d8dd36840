"""Whatever is put into the golden files, the reader tells it in one line and nothing else fails."""

import copy
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logitproof.golden import check, derive, figures, judge, lines, load, run, write
from logitproof.properties import cli
from logitproof.properties.scalar import Generator

pytestmark = pytest.mark.golden

SUBJECTS = load.subjects()
TRIES = 30
JUNK: list[Any] = [
    None, True, 0, -1, 2**70, "", "foo", "NaN", "\ud800", "\n", [], {}, [[]], [None], {"a": 1},
    {"shape": [1], "f64": ["3ff0000000000000"]}, {"shape": [], "hi": ["0" * 16], "lo": ["0" * 16]},
    {"shape": [2], "i64": ["0 1"]}, {"shape": [0], "f64": []}, {"shape": [2**70, 0], "f64": []},
]  # fmt: skip
NAMES = ["colour", "f64", "hi", "shape", "refusal", "kind"]
DEEP = "[" * 100_000


def one_of(things: list[Any], chance: Generator) -> Any:
    return things[chance.below(len(things))]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every holder with each of its keys."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        found += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys if isinstance(holder[key], dict | list)]
    return found


def mutated(text: str, seed: int) -> str:
    """One to three places of a file put to something else, gone, twice or renamed."""
    chance = Generator(seed)
    held = json.loads(text)
    if "cases" in held and isinstance(held["cases"], list):
        held["cases"] = [one_of(held["cases"], chance)]
    for _ in range(1 + chance.below(3)):
        known = places(held)
        holder, key = one_of(known, chance)
        act = chance.below(4)
        if act == 0 and isinstance(holder, dict):
            holder[one_of(NAMES, chance)] = holder.pop(key)
        elif act == 1 and isinstance(holder, dict):
            del holder[key]
        elif act == 2 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            holder[key] = copy.deepcopy(one_of(JUNK, chance))
    return json.dumps(held)


def read(subject: str, text: str) -> list[load.Case]:
    """The cases; none where the reader tells in one line of ValueError what is wrong."""
    found: list[load.Case] = []
    assert one_line(lambda: found.extend(load.parse(text, subject)), subject)
    return found


def one_line(call: Callable[[], Any], name: str) -> bool:
    """Whether a call succeeds, or tells in one line which file is wrong."""
    try:
        call()
    except ValueError as fault:
        return str(fault).startswith(name) and "\n" not in str(fault)
    return True


def judged(case: load.Case) -> None:
    """Core, scalar decoder, text and judge never fail on what the reader lets through."""
    apart = [(case, difference) for difference in check.against_core(case)]
    assert isinstance(check.first_operation(apart), str)
    assert all(str(difference) for _, difference in apart)
    list(check._by_scalar(case, None))
    lines.text([case])


@pytest.mark.parametrize("seed", range(TRIES))
@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s not in ("chains", "decoders")])
def test_a_mutated_case_is_refused_or_judged(subject: str, seed: int) -> None:
    text = (load.folder() / f"{subject}.json").read_text("ascii")
    list(map(judged, read(subject, mutated(text, seed))))


@pytest.mark.parametrize("seed", range(TRIES))
@pytest.mark.parametrize("subject", ["chains", "decoders"])
def test_a_mutated_decoder_is_refused_or_read(subject: str, seed: int) -> None:
    text = (load.folder() / f"{subject}.json").read_text("ascii")
    assert len(read(subject, mutated(text, seed))) <= 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set whose files are spoiled, each test's own put back first."""
    return shutil.copytree(load.folder(), tmp_path_factory.mktemp("golden") / load.DATA)


READERS: dict[str, Callable[[Path], Any]] = {
    "manifest.json": load.manifest,
    "flags.json": load.flags,
}


@pytest.mark.parametrize("seed", range(TRIES))
@pytest.mark.parametrize("name", READERS)
def test_a_mutated_manifest_or_dictionary_is_refused_or_read(
    name: str, seed: int, folder: Path
) -> None:
    text = (load.folder() / name).read_text("ascii")
    (folder / name).write_text(mutated(text, seed))
    assert one_line(lambda: READERS[name](folder), name)


@pytest.mark.parametrize("seed", range(4 * TRIES))
def test_mutated_figures_are_refused_or_read(seed: int, folder: Path) -> None:
    text = (load.folder().parent / figures.FILE).read_text("ascii")
    (folder / figures.FILE).write_text(mutated(text, seed))
    assert one_line(lambda: figures.figures_in(folder), figures.FILE)


SPOILED = {
    "files a list": ("manifest.json", '"files": {', '"files": [], "cases": {'),
    "flags a list": ("flags.json", None, '{"format": "logitproof-flags-v1", "flags": []}'),
    "a kind a list": ("layouts.json", '"kind": "layout"', '"kind": []'),
    "deep brackets": ("layouts.json", None, DEEP),
    "deep values": ("layouts.json", '"rows": 2', f'"rows": {"[" * 900}{"]" * 900}'),
    "a word for an array": ("operations.json", '"value": {', '"value": "foo", "true": {'),
    "carriage returns": ("layouts.json", "\n", "\r\n"),
    "a byte order mark": ("layouts.json", "{", "\xef\xbb\xbf{"),
    "no text": ("layouts.json", "{", "\xff{"),
    "a long integer": ("layouts.json", '"rows": 2', f'"rows": {"9" * 5000}'),
    "another subject": ("layouts.json", '"subject": "layouts"', '"subject": "layers"'),
    "a case of elsewhere": ("layouts.json", "layouts/full", "layers/full"),
    "no fields": ("published.json", '["words"]', "[]"),
    "no facts": ("published.json", '"facts": {"device": 6710886400}', '"facts": {}'),
    "a control character": ("layouts.json", "inactive", "\\u0007"),
    "a lone surrogate": ("layouts.json", "inactive", "\\ud800"),
    "a true value of another shape": ("layers.json", '"true": {', '"true": {"more": 1, '),
}


@pytest.fixture
def spoiled(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    name, old, new = SPOILED[request.param]
    for each in write.BESIDE:
        shutil.copy(load.folder().parent / each, tmp_path / each)
    root = shutil.copytree(load.folder(), tmp_path / load.DATA)
    raw = (root / name).read_bytes()
    changed = new if old is None else raw.decode("ascii").replace(old, new, 1)
    assert changed.encode("latin-1") != raw
    (root / name).write_bytes(changed.encode("latin-1"))
    return root, name


@pytest.mark.parametrize("spoiled", SPOILED, indirect=True)
@pytest.mark.parametrize("action", ["list", "check"])
def test_bad_input_is_one_line_on_standard_error_and_code_2(
    action: str,
    spoiled: tuple[Path, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, name = spoiled
    monkeypatch.setattr(derive, "SUBJECTS", {})
    monkeypatch.setattr(check, "against_core", lambda *_: [])
    expected = 0 if (action, name) == ("list", "manifest.json") else 2
    assert cli.main(["golden", action, "--root", str(root)]) == expected
    told = capsys.readouterr()
    assert (told.out == "", told.err.count("\n")) == (expected == 2, int(expected == 2))
    assert expected == 0 or f"{name}: " in told.err


def test_a_value_that_is_no_array_is_a_difference() -> None:
    (case,) = [case for case in load.read("functions") if case.id == "functions/exp"]
    assert judge.differences(case, {"value": "foo"}) != []
    assert judge.differences(case, {}) != []


def test_a_bounded_value_that_is_no_array_is_a_difference() -> None:
    (case,) = [c for c in load.read("operations") if c.id == "operations/exp-row-bounded"]
    found = run.outcome(case)
    assert judge.differences(case, found) == []
    assert len(judge.differences(case, {**found, "value": "foo"})) == 1
    assert len(judge.differences(case, {**found, "contributions": []})) == 1


def test_a_bounded_value_is_judged_cell_by_cell() -> None:
    (case,) = [c for c in load.read("published") if c.id == "published/swiglu"]
    found = run.outcome(case)
    row = found["gradients"]["down"]["f64"][-1].split()
    moved = struct.unpack(">d", bytes.fromhex(row[-1]))[0] + 1e-12
    found["gradients"]["down"]["f64"][-1] = f"{row[0]} {struct.pack('>d', moved).hex()}"
    assert [d.path for d in judge.differences(case, found)] == ["expect.gradients.down[2, 1]"]
