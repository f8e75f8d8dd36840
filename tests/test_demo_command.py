import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from logitproof.properties.cli import main
from logitproof.properties.demos.agreement import (
    Disagreement,
    refusal_facts,
    require,
    require_close,
    same_bits,
)
from logitproof.properties.demos.command import DEMOS


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--trace"],
        ["no-such-demo"],
        ["model"],
        ["model-ops", "embeddings"],
        ["model-ops", "--tracing"],
        ["model-ops", "--json"],
        ["embeddings", "--trace", "yes"],
        ["embeddings", "--trac"],
    ],
)
def test_usage_errors_give_one_line_and_nothing_else(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("name", DEMOS)
def test_an_unwritable_file_prints_no_report(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", name, "--json", str(tmp_path / "none" / "facts.json")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("arguments", ["demo model-ops", "plan bridge bridge-ci"])
@pytest.mark.parametrize("before", [{}, {"facts.json": "older facts"}], ids=["new", "old"])
@pytest.mark.parametrize("closed", [">&-", ">/dev/full"])
def test_a_report_that_cannot_be_printed_writes_no_facts(
    arguments: str, before: dict[str, str], closed: str, tmp_path: Path
) -> None:
    _ = [(tmp_path / name).write_text(text) for name, text in before.items()]
    file = tmp_path / "facts.json"
    command = shlex.join(
        [sys.executable, "-m", "logitproof", *arguments.split(), "--json", f"{file}"]
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} {closed}"], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert {f.name: f.read_text() for f in tmp_path.iterdir()} == before


def test_facts_replace_what_a_link_points_to_and_leave_nothing_else(tmp_path: Path) -> None:
    file, link = tmp_path / "facts.json", tmp_path / "link"
    file.write_text("older facts")
    link.symlink_to(file)
    assert main(["demo", "embeddings", "--json", str(link)]) == 0
    assert link.is_symlink()
    assert file.read_bytes().endswith(b"}\n")
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_facts_are_written_to_a_device_and_never_replace_it() -> None:
    assert main(["demo", "embeddings", "--json", os.devnull]) == 0
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("name", [".", "x" * 300])
def test_a_file_of_no_use_is_named_and_prints_no_report(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "embeddings", "--json", str(tmp_path / name)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert str(tmp_path) in printed.err
    assert list(tmp_path.iterdir()) == []


def test_trace_of_a_demo_without_one_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Any module without trace_lines will do: it is refused before its report is made.
    monkeypatch.setitem(DEMOS, "model-ops", "logitproof.properties.demos.lines")
    assert main(["demo", "model-ops", "--trace"]) == 2
    assert capsys.readouterr().err == "logitproof demo: model-ops has no trace\n"


@pytest.mark.parametrize("name", DEMOS)
def test_json_is_the_same_in_every_run(name: str, tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    assert [main(["demo", name, "--json", str(file)]) for file in files] == [0, 0]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes().endswith(b"}\n")


@pytest.mark.parametrize(
    ("got", "want"),
    [([1.0], [1.5]), ([float("nan")], [float("nan")]), ([1.0], [[1.0]]), ([float("inf")], [1.0])],
)
def test_require_close_raises_on_differences_nans_and_shapes(got: object, want: object) -> None:
    with pytest.raises(Disagreement, match="the figure"):
        require_close(got, want, tolerance=0.25, what="the figure")


def test_require_close_returns_the_largest_difference() -> None:
    assert require_close([1.0, 2.0], [1.125, 2.0], tolerance=0.125, what="x") == 0.125
    assert require_close([], [], tolerance=0.0, what="x") == 0.0


def test_require_raises_its_claim() -> None:
    require(True, "nothing")
    with pytest.raises(Disagreement, match="the sum is right"):
        require(False, "the sum is right")


def test_same_bits_tells_zeros_shapes_and_types_apart() -> None:
    zeros = np.zeros(2)
    assert same_bits(zeros, zeros.copy())
    assert not same_bits(zeros, -zeros)
    assert not same_bits(zeros, zeros.reshape(2, 1))
    assert not same_bits(zeros, np.zeros(2, np.int64))


def test_refusal_facts_are_empty_without_a_refusal() -> None:
    assert refusal_facts(lambda: None) == {}
