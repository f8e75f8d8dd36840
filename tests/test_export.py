"""A hand-over pack holds what is published, whole or not at all, and any language can read it."""

import dataclasses
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from hashlib import sha256
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitproof.golden import export, figures, lines, load, tensors
from logitproof.golden.figures import from_bits
from logitproof.properties.cli import main
from logitproof.properties.scalar import Config
from logitproof.properties.subjects import CoreSubject

pytestmark = pytest.mark.golden

RUNS = list(figures.figures().runs)
WORD = re.compile(r"\b[0-9a-f]{16}\b")
KEPT = {"full/kept": b"as it was", "file": b"as it was"}
SHOWN = [
    "operations/mean",
    "op mean",
    "strength bound",
    "argument axis i64 0 0",
    "argument keep i64 0 1",
    "argument axes i64 1 2 1 0",
    "argument ids i64 1 2 3 -1",
    "operand f64 2 2 1 3ff0000000000000 4000000000000000",
    "true-value pair 1 1 3ff0000000000000 4000000000000000",
    "true-contribution none",
    "end",
    "cases 1",
]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hand-over") / "pack"
    export.export(folder)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def read(path: Path) -> dict[str, tuple[list[int], bytes]]:
    """Name -> shape and bytes of a safetensors file, as a reader without a library takes them."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    assert all(tensor["dtype"] == "F64" for tensor in header.values())
    return {
        name: (tensor["shape"], data[slice(*tensor["data_offsets"])])
        for name, tensor in header.items()
    }


def is_tight(raw: bytes) -> bool:
    """Names sorted, data aligned, each tensor where the one before it ends, nothing after."""
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    ends = [tensor["data_offsets"] for tensor in header.values()]
    sizes = [8 * prod(tensor["shape"]) for tensor in header.values()]
    edges = [0, *accumulate(sizes)]
    sorted_names = list(header) == sorted(header)
    places = ends == [list(pair) for pair in pairwise(edges)]
    return sorted_names and places and size % 8 == 0 and len(raw) == 8 + size + edges[-1]


@pytest.mark.parametrize("run", RUNS)
def test_a_plain_reader_finds_the_published_digests(pack: Path, run: str) -> None:
    facts = json.loads((pack / "runs" / f"{run}.json").read_text())
    weights, expected = read(pack / facts["weights"]), read(pack / facts["expected"])
    names = facts["parameters"]
    found = (
        sha256(b"".join(weights[name][1] for name in names)).hexdigest(),
        sha256(expected["logits"][1]).hexdigest(),
        sha256(b"".join(expected[f"gradient.{name}"][1] for name in names)).hexdigest(),
        expected["loss"][1][::-1].hex(),
    )
    published = figures.figures().runs[run]
    assert found == (published.parameters_digest, published.logits_digest,
                     published.gradients_digest, published.loss)  # fmt: skip


def test_the_parameters_of_the_first_run_have_the_digest_of_the_specification(pack: Path) -> None:
    facts = json.loads((pack / "runs" / "T1.json").read_text())
    weights = read(pack / facts["weights"])
    digest = sha256(b"".join(weights[name][1] for name in facts["parameters"])).hexdigest()
    assert digest == "09a0f95af1071196d6fbacde154258e440789719f7bfad51da10b6d135e2e88d"
    assert weights["token_embedding.weight"][0] == [258, 4]


@pytest.mark.parametrize("run", RUNS)
def test_the_core_on_the_files_gives_the_files(pack: Path, run: str) -> None:
    facts = json.loads((pack / "runs" / f"{run}.json").read_text())
    config: dict[str, Any] = {
        name: from_bits(v) if isinstance(v, str) else v for name, v in facts["config"].items()
    }
    raw = read(pack / facts["weights"])
    subject = CoreSubject()
    subject.load(
        Config(**config),
        {name: np.frombuffer(raw[name][1]).reshape(raw[name][0]) for name in facts["parameters"]},
    )
    loss, gradients = subject.loss_and_gradients(facts["ids"], facts["targets"])
    computed = {f"gradient.{name}": value.tobytes() for name, value in gradients.items()}
    computed |= {"logits": subject.logits(facts["ids"]).tobytes(), "loss": struct.pack("<d", loss)}
    assert {name: read(pack / facts["expected"])[name][1] for name in computed} == computed


def test_every_tensor_file_is_sorted_aligned_and_without_gaps(pack: Path) -> None:
    files = sorted(pack.rglob("*.safetensors"))
    assert len(files) == len(RUNS) + 5
    assert [path for path in files if not is_tight(path.read_bytes())] == []


def test_the_bytes_of_a_tensor_file() -> None:
    held = {"b": tensors.floats([[1.0], [-0.0]]), "a": tensors.integers([3])}
    header = b'{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},'
    header += b'"b":{"dtype":"F64","shape":[2,1],"data_offsets":[8,24]}}'
    header += b" " * (-len(header) % 8)
    data = struct.pack("<qdd", 3, 1.0, -0.0)
    assert tensors.encode(held) == struct.pack("<Q", len(header)) + header + data


def test_a_tensor_that_its_shape_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="1 elements do not fill"):
        tensors.encode({"a": tensors.Tensor(kind="F64", shape=(2,), elements=[1.0])})


def test_the_manifest_names_every_other_file_with_its_digest(pack: Path) -> None:
    files = content(pack)
    listed = json.loads(files.pop("manifest.json"))["files"]
    assert listed == {
        name: {"bytes": len(raw), "sha256": sha256(raw).hexdigest()} for name, raw in files.items()
    }


def test_every_operation_stands_in_the_text_with_all_its_words(pack: Path) -> None:
    blocks = (pack / "operations.txt").read_text().split("\ncase ")[1:]
    cases = [c for c in load.read() if c.kind == "operation" and c.refusal is None]
    assert [block.split("\n")[0] for block in blocks] == [case.id for case in cases]
    held = [json.dumps([case.input, case.expect]) for case in cases]
    assert [sorted(WORD.findall(text)) for text in blocks] == [
        sorted(WORD.findall(text)) for text in held
    ]
    assert blocks[-1].split("\n")[-2] == f"cases {len(cases)}"


@pytest.mark.parametrize(
    "op", sorted({c.setup["op"] for c in load.read() if c.kind == "operation"})
)
def test_the_text_defines_every_operation(op: str) -> None:
    definition = re.search(rf"^# {op} .*\n(?:#  .*\n)*", lines.HEADING, re.MULTILINE)
    assert definition is not None
    assert {"y", "u"} <= set(re.findall(r"\w+", definition[0]))


def test_the_text_defines_every_argument() -> None:
    taken = [c for c in load.read() if c.kind == "operation" and c.refusal is None]
    names = {name for case in taken for name in case.input["arguments"]}
    definitions = lines.HEADING.partition("ARITHMETIC")[2]
    assert {name for name in names if not re.search(rf"\b{name}\b", definitions)} == set()


def test_the_lines_of_a_case() -> None:
    one, two = "3ff0000000000000", "4000000000000000"
    case = load.Case(
        id="operations/mean", origin="worked", source="-", why="-", flags=(), strength="bound",
        setup={"kind": "operation", "op": "mean"},
        input={"operands": [{"shape": [2, 1], "f64": [one, two]}],
               "arguments": {"axis": 0, "keep": True, "axes": [1, 0],
                             "ids": {"shape": [2], "i64": ["3 -1"]}}},
        expect={"true": {"value": {"shape": [1], "hi": [one], "lo": [two]},
                         "contributions": [None]}},
    )  # fmt: skip
    assert lines.text([case]).partition("\ncase ")[2].splitlines() == SHOWN


def test_a_refused_case_has_no_lines() -> None:
    case = load.Case(
        id="refusals/add", origin="derived", source="-", why="-", flags=(), strength="exact",
        setup={"kind": "operation", "op": "add"}, input={"operands": [], "arguments": {}},
        expect={"refusal": {"code": "shape/inner-size", "fields": {}}},
    )  # fmt: skip
    assert lines.text([case]).splitlines()[-2:] == [lines.HEADING.splitlines()[-1], "cases 0"]


def test_a_fresh_process_writes_the_same_bytes(pack: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()  # empty: allowed
    command = [sys.executable, "-m", "logitproof", "golden", "export", str(again)]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert content(again) == content(pack)
    manifest = sha256(content(pack)["manifest.json"]).hexdigest()
    assert done.stdout.startswith(f"{again}: {len(content(pack))} files, ")
    assert done.stdout.endswith(f"manifest sha256 {manifest}\n")


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("full", "full is not empty: the pack goes into a new or empty folder"),
        ("file", "file is no folder"),
        ("link", "link is no folder"),
        ("missing/pack", "missing is no folder"),
        (".", ". is the current folder, which cannot be replaced"),
    ],
)
def test_another_place_is_refused_in_one_line(
    name: str, fact: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("as it was")
    (tmp_path / "file").write_text("as it was")
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path / "here")
    place = "." if name == "." else str(tmp_path / name)
    assert main(["golden", "export", place]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n"), fact in told.err) == ("", 1, True)
    assert (sorted(tmp_path.rglob("*")), content(tmp_path)) == (before, KEPT)


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("operations.json", "operations.json is not the file that manifest.json knows"),
        ("manifest.json", "manifest.json: line "),
    ],
)
def test_an_edited_file_of_cases_is_not_exported(
    name: str, fact: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(load.folder().parent, tmp_path / "golden")) / load.DATA
    edited = copy / name
    edited.write_bytes(edited.read_bytes()[:-3])
    monkeypatch.setattr(load, "folder", lambda: copy)
    assert main(["golden", "export", str(tmp_path / "pack")]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n"), (tmp_path / "pack").exists()) == ("", 1, False)
    assert told.err.startswith(f"logitproof: {fact}")


def test_the_cases_go_along_as_they_are(pack: Path) -> None:
    shipped = {path.name: path.read_bytes() for path in load.folder().glob("*.json")}
    assert shipped.items() <= content(pack / "cases").items()
    assert set(content(pack / "cases")) - set(shipped) == set(export.BESIDE)


def test_an_interrupted_export_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "pack", lambda: {"a": b"1", "b": b"2"})
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export.export(tmp_path / "pack")
    assert list(tmp_path.iterdir()) == []


def test_what_arrives_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "pack"
    target.mkdir()
    late = {"late": b"as it was"}
    monkeypatch.setattr(
        export, "pack", lambda: {"a": b"%d" % (target / "late").write_bytes(late["late"])}
    )
    with pytest.raises(OSError, match="not empty"):
        export.export(target)
    assert (content(target), list(tmp_path.iterdir())) == (late, [target])


def test_a_result_that_is_not_the_published_one_is_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = figures.figures()
    wrong = dataclasses.replace(held.runs["T1"], loss="4016ac70bf03b621")
    planted = dataclasses.replace(held, runs={"T1": wrong})
    monkeypatch.setattr(export, "figures", lambda: planted)
    with pytest.raises(ValueError, match="run T1: loss: not what is published"):
        export.export(tmp_path / "pack")
    assert list(tmp_path.iterdir()) == []
