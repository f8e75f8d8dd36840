"""The golden files are read strictly, and whatever a hand changes in them is told by its path."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from logitproof.golden import check, load, schema, write
from logitproof.properties.mutations import MUTATIONS, spoiled

pytestmark = pytest.mark.golden

SUBJECTS = load.subjects()
CASES = load.read()
SCHEMA: dict[str, Any] = json.loads((load.folder().parent / "schema-v1.json").read_text("ascii"))
SMALL = (load.folder() / "layouts.json").read_text("ascii")
WAYS = (*MUTATIONS, "truncated")
TRIPLES = [(case.subject, i, way) for i, case in enumerate(CASES) for way in WAYS]


def placed(subject: str) -> int:
    """How many cases stand before those of a subject."""
    return next(i for i, case in enumerate(CASES) if case.subject == subject)


def changed(*path: Any, value: Any) -> str:
    """The small file with one value replaced."""
    raw = json.loads(SMALL)
    place = raw
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(raw)


def array(**parts: Any) -> str:
    return changed("cases", 0, "input", "rows", value=parts)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of its own, the files beside it included."""
    golden = tmp_path_factory.mktemp("golden")
    for name in write.BESIDE:
        shutil.copy(load.folder().parent / name, golden / name)
    for name in write.FOLDERS_BESIDE:
        shutil.copytree(load.folder().parent / name, golden / name)
    return shutil.copytree(load.folder(), golden / load.DATA)


@pytest.fixture
def one_file(copied: Path, request: pytest.FixtureRequest) -> tuple[Path, str, int, str]:
    """The set with one case of one file spoiled, and nothing else in it."""
    subject, i, way = request.param
    alone = copied.parent / "alone"
    shutil.rmtree(alone, ignore_errors=True)
    alone.mkdir()
    shutil.copy(copied / load.FLAGS, alone)
    manifest = load.manifest(copied)
    cases = {name: d for name, d in manifest["cases"].items() if name.startswith(f"{subject}/")}
    (alone / load.MANIFEST).write_text(write.manifest_text(1, manifest["files"], cases))
    text = (copied / f"{subject}.json").read_text("ascii")
    at = i - placed(subject)
    (alone / f"{subject}.json").write_text(spoiled(text, at, way))
    return alone, subject, at, way


def told(root: Path, subject: str, i: int, way: str) -> bool:
    """Whether a finding names the file, and the case where it still stands."""
    case = CASES[placed(subject) + i]
    findings = [f for f in check.check_files(root) if f.at.startswith(subject)]
    if way == "truncated":
        return any(f.by == "format" and f.at == f"{subject}.json" for f in findings)
    place = f"cases[{i}]"
    return any(case.id in f.what or place in f.at or place in f.what for f in findings)


def test_the_files_are_those_of_the_manifest() -> None:
    assert list(check.check_files(load.folder())) == []


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_file_has_the_form_of_the_schema(subject: str) -> None:
    held = json.loads((load.folder() / f"{subject}.json").read_text("ascii"))
    assert list(schema.faults(held, SCHEMA, SCHEMA, subject)) == []


def test_schema_and_reader_know_the_same_kinds() -> None:
    forms = SCHEMA["$defs"]["case"]["oneOf"]
    kinds = {form["properties"]["setup"]["properties"]["kind"]["const"]: form for form in forms}
    keys = {
        kind: [sorted(set(form["properties"][part]["properties"]) - {"kind"})
               for part in ("setup", "input")]
        for kind, form in kinds.items()
    }  # fmt: skip
    known = {
        kind: [sorted(name.rstrip("?") for name in names.split()) for names in parts[:2]]
        for kind, parts in load.KINDS.items()
    }
    assert keys == known


@pytest.mark.parametrize("kind", load.KINDS)
def test_the_format_page_explains_every_kind(kind: str) -> None:
    page = (load.folder().parent / "FORMAT.md").read_text("utf-8")
    assert f"| `{kind}` |" in page


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (changed("format", value="other"), "layouts: format"),
        (changed("colour", value=1), "layouts: unknown colour"),
        (changed("cases", 0, "colour", value=1), "layouts: cases[0]: unknown colour"),
        (changed("cases", 1, "id", value="Layouts/x"), "layouts: cases[1].id"),
        (changed("cases", 1, "id", value="layouts/full"), "layouts: cases[1].id"),
        (changed("cases", 0, "origin", value="recorded"), "layouts: cases[0].origin"),
        (changed("cases", 0, "why", value=""), "layouts: cases[0].why"),
        (changed("cases", 0, "strength", value="close"), "layouts: cases[0].strength"),
        (changed("cases", 0, "strength", value="bound"), "layouts: cases[0].expect"),
        (changed("cases", 0, "flags", value="padding"), "layouts: cases[0].flags"),
        (changed("cases", 0, "setup", "kind", value="other"), "layouts: cases[0].setup.kind"),
        (changed("cases", 0, "expect", value={}), "layouts: cases[0].expect"),
        (changed("cases", 0, "input", "rows", value="NaN"), "layouts: cases[0].input.rows"),
        (array(shape=[1], f64=["3ff"]), "layouts: cases[0].input.rows.f64[0]"),
        (array(shape=[2], f64=["3ff0000000000000"]), "layouts: cases[0].input.rows.f64[0]"),
        (array(shape=[2, 1], f64=["3ff0000000000000"]), "layouts: cases[0].input.rows.f64"),
        (array(shape=[1], f64=["NaN"]), "layouts: cases[0].input.rows.f64[0]"),
        (array(shape=[1], f64=["3FF0000000000000"]), "layouts: cases[0].input.rows.f64[0]"),
        (array(shape=[-1], f64=[]), "layouts: cases[0].input.rows.shape"),
        (array(shape=[1], hi=["3ff0000000000000"]), "layouts: cases[0].input.rows"),
        (array(shape=[1], i64=["01"]), "layouts: cases[0].input.rows.i64[0]"),
        (SMALL.replace('"rows": 2', '"rows": 2.0'), "layouts: 2.0"),
        (SMALL.replace('"rows": 2', '"rows": NaN'), "layouts: NaN"),
        (SMALL.replace('"rows": 2', '"rows": 2, "rows": 2'), "layouts: rows"),
        (SMALL[:-9], "layouts: line"),
        ("[]", "layouts: an object"),
    ],
)
def test_another_form_is_refused_with_its_path(text: str, path: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        load.parse(text, "layouts")
    assert str(refused.value).startswith(path)


def test_an_unknown_keyword_of_the_schema_is_an_error() -> None:
    with pytest.raises(KeyError):
        list(schema.faults(1, {"maximum": 3}, {}, ""))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (True, {"type": "integer"}),
        (1, {"const": True}),
        ("x", {"enum": ["y"]}),
        ("x", {"pattern": "^y$"}),
        (-1, {"minimum": 0}),
        ("", {"minLength": 1}),
        ({}, {"required": ["a"]}),
        ({"a": 1}, {"properties": {"a": {"type": "string"}}}),
        ({"a": 1}, {"additionalProperties": False}),
        ([1], {"items": {"type": "string"}}),
        (1, {"oneOf": [{"type": "integer"}, {"minimum": 0}]}),
    ],
    ids=str,
)
def test_a_keyword_of_the_schema_is_enforced(value: Any, wanted: dict[str, Any]) -> None:
    assert len(list(schema.faults(value, wanted, {}, "value"))) == 1


@pytest.mark.parametrize(
    "one_file", [(s, placed(s), way) for s in SUBJECTS for way in WAYS], indirect=True, ids=str
)
def test_a_spoiled_first_case_is_told(one_file: tuple[Path, str, int, str]) -> None:
    assert told(*one_file)


@pytest.mark.slow
@pytest.mark.parametrize("one_file", TRIPLES, indirect=True, ids=str)
def test_any_spoiled_case_is_told(one_file: tuple[Path, str, int, str]) -> None:
    assert told(*one_file)


@pytest.mark.parametrize("name", ["flags.json", "layouts.json"])
def test_a_missing_file_is_told(name: str, tmp_path: Path) -> None:
    golden = shutil.copytree(load.folder(), tmp_path / load.DATA)
    (golden / name).unlink()
    assert any(name in f.at for f in check.check_files(golden))
