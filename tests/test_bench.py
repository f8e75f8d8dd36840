"""The measurement itself: turns, ratios, fits, and a command that refuses before it measures."""

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitproof.properties import cli
from logitproof.properties.bench import law_costs, lines, machine, prefixes
from logitproof.properties.bench.command import add_arguments, arguments
from logitproof.properties.bench.contenders import DECODE, TRAINING, WHO, contenders
from logitproof.properties.bench.law_costs import LawCost
from logitproof.properties.bench.measuring import measure
from logitproof.properties.bench.prefixes import Curve
from logitproof.properties.bench.ratios import ROWS, Cell, cell, table
from logitproof.properties.bench.scaling import Growth
from logitproof.properties.bench.sizes import BRIDGE, SIZES, config, weights
from logitproof.properties.bench.timing import Timing, interleaved, ratio

NEVER_MISSED = Cell(median=3.0, lowest=2.0, highest=4.0, target=None)


def timed(**figures: float) -> dict[str, Timing]:
    return {who: Timing((figure,) * 3) for who, figure in figures.items()}


def test_rivals_are_called_in_turns_beginning_with_another_one_each_round() -> None:
    called: list[str] = []
    ticks = count()
    calls = {name: lambda name=name: called.append(name) for name in "abc"}
    interleaved(calls, rounds=3, least=0.25, clock=lambda: float(next(ticks)))
    assert "".join(called) == "aabbcc" + "abc" + "bca" + "cab"


def test_a_quick_call_is_repeated_until_a_round_is_long_enough() -> None:
    now = [0.0]

    def call() -> None:
        now[0] += 2.0**-10

    timing = interleaved({"quick": call}, rounds=2, least=1.0, clock=lambda: now[0])["quick"]
    calls_uncounted = 1 + 1 + 4 + 16 + 64 + 256
    assert timing.rounds == (2.0**-10,) * 2
    assert now[0] * 2**10 == calls_uncounted + 2 * 1024


def test_a_ratio_is_taken_round_by_round() -> None:
    slow_then_quick, steady = Timing((8.0, 1.0, 2.0)), Timing((4.0, 1.0, 1.0))
    assert ratio(slow_then_quick, steady) == (2.0, 1.0, 2.0)


@pytest.mark.parametrize(("figure", "missed"), [(0.44, False), (0.45, False), (0.46, True)])
def test_a_ratio_above_its_target_is_marked(figure: float, missed: bool) -> None:
    timings = {"reference": {TRAINING: timed(blas=figure, torch=1.0)}}
    found = cell(ROWS[0], "reference", timings)
    assert (found is not None and found.is_missed) == missed
    assert ("MISSED" in table(timings)[1][1]) == missed


def test_a_ratio_without_a_target_is_only_reported() -> None:
    assert str(NEVER_MISSED) == "3"


def test_a_row_of_which_nothing_was_timed_is_left_out() -> None:
    timings = {"mid": {DECODE: timed(blas=2.0, torch=1.0)}}
    assert [line[0] for line in table(timings)[1:]] == ["blas decode ÷ eager PyTorch decode"]


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found(power: float) -> None:
    points = (8, 16, 32, 64)
    costs = tuple(3e-6 * n**power for n in points)
    growth = Growth(axis="T", points=points, seconds={"ordered": costs}, multiply_adds=points)
    # To the two decimals that are printed.
    assert f"{abs(growth.measured('ordered')):.2f} {growth.expected:.2f}" == f"{power:.2f} 1.00"


@pytest.mark.parametrize("quadratic", [0.0, 1e-9])
def test_a_quadratic_term_of_the_prefix_is_found(quadratic: float) -> None:
    n = np.array([1.0, 500.0, 1000.0, 2000.0])
    costs = 1e-3 + 1e-6 * n + quadratic * n * n
    curve = Curve(prefixes=(1, 500, 1000, 2000), seconds={"blas": tuple(costs.tolist())})
    share = quadratic * 2000**2 / costs[-1]
    assert f"{abs(curve.quadratic_share('blas')):.1%}" == f"{share:.1%}"  # as it is printed


@pytest.mark.parametrize(
    ("figure", "text"),
    [(12.34, "12.3 s"), (0.0123, "12.3 ms"), (0.9994e-3, "999 us"), (4.2e-7, "0.42 us")],
)
def test_seconds_are_written_with_three_digits(figure: float, text: str) -> None:
    assert lines.seconds(figure) == text


@pytest.mark.parametrize("name", SIZES)
def test_every_size_counts_its_weights(name: str) -> None:
    groups = SIZES[name].parameter_groups()
    assert (
        sum(group.parameter_elements for group in groups)
        == ({"reference": 1188, "bridge": 8304, "mid": 919_680, "laptop-like": 35_660_288}[name])
    )


def test_weights_are_the_same_at_every_call_and_of_the_decoders_shapes() -> None:
    first, second = weights(BRIDGE), weights(BRIDGE)
    assert list(first) == BRIDGE.parameter_names()
    assert {n: a.tobytes() for n, a in first.items()} == {n: a.tobytes() for n, a in second.items()}


def test_a_measuring_process_has_one_thread_and_no_setting_of_blas() -> None:
    pinned = machine.pinned_environment({"OPENBLAS_CORETYPE": "Haswell", "HOME": "here"})
    assert pinned == {"HOME": "here", **machine.PINNED}
    assert machine.is_pinned(pinned)
    assert not machine.is_pinned({**pinned, "OPENBLAS_CORETYPE": "Haswell"})


def test_a_pinned_process_runs_a_module_and_keeps_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text(
        "import os, sys\nsys.exit(7 if os.environ['OMP_NUM_THREADS'] == '1' else 1)\n"
    )
    given = {**os.environ, "OMP_NUM_THREADS": "9"}
    command = [sys.executable, "-m", "logitproof.properties.bench", "seen"]
    assert subprocess.run(command, env=given, cwd=tmp_path, check=False).returncode == 7


def test_a_contender_that_cannot_run_is_named_with_its_reason() -> None:
    found = contenders(BRIDGE, DECODE, ["autograd", "products"])
    assert list(found.calls) == ["products"]
    assert list(found.missing) == ["autograd"]


def test_a_measurement_tells_its_machine_and_its_ratios() -> None:
    measured = measure(["ratios"], ["reference"], rounds=1, slow=False, least=1e-3)
    text = lines.report(measured)
    assert "OPENBLAS_CORETYPE: " in text
    assert "CPU time at reference" in text
    assert json.loads(json.dumps(measured.facts()))["format"] == "logitproof-bench-v1"


def test_a_token_of_a_session_costs_its_keys_and_values_and_leaves_nothing() -> None:
    bytes_per_float, keys_and_values, layers, width = 8, 2, 2, 128
    memory = prefixes.memory(config(266, width, layers, 4, 32, 80))
    assert memory.bytes_per_token == bytes_per_float * keys_and_values * layers * width
    assert memory.left_by_tokens < memory.tokens * bytes_per_float * width  # no row of a residual


def test_what_takes_minutes_is_not_measured_unasked() -> None:
    measured = measure([], ["laptop-like"], rounds=1, slow=False)
    assert measured.timings == {}


def test_laws_are_shown_by_what_they_cost_now_beside_before() -> None:
    before = {"a": LawCost(law="a", cases=10, seconds=4.0)}
    now = {
        "b": LawCost(law="b", cases=1, seconds=0.5),
        "a": LawCost(law="a", cases=10, seconds=1.0),
    }
    rows = law_costs.table([before, now])
    assert [row[0] for row in rows] == ["law", "a", "b", "all"]
    assert rows[1][1:] == ["10", "100.00", "1.00", "66.7%", "400.00", "0.25"]
    assert rows[2][-2:] == ["-", "-"]


def test_the_costs_of_laws_come_from_a_report_of_verify(tmp_path: Path) -> None:
    report = tmp_path / "laws.json"
    assert cli.main(["verify", "--law", "rotary.position-zero", "--json", str(report)]) == 0
    assert law_costs.read(report) != {}


@pytest.mark.parametrize(
    "words",
    [
        ["--rounds", "0"],
        ["--rounds", "1001"],
        ["--size", "huge"],
        ["--part", "everything"],
        ["--json", "no/such/folder/facts.json"],
        ["--laws", "a", "--laws", "b", "--laws", "c"],
        ["--laws", "missing.json"],
    ],
    ids=" ".join,
)
def test_bad_words_are_refused_before_anything_is_measured(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), list(tmp_path.iterdir())) == ("", 1, [])


@pytest.mark.parametrize("text", ["{", "[]", '{"laws": [{"id": "a"}]}'])
def test_a_file_that_is_no_report_of_verify_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(text)
    assert cli.main(["bench", "--laws", str(wrong)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_words_of_a_command_line_are_handed_on() -> None:
    words = ["--rounds", "3", "--slow", "--part", "ratios", "--size", "mid", "--size", "bridge"]
    words += ["--laws", "a", "--json", "b", "--picture", "c"]
    parser = cli.Parser()
    add_arguments(parser)
    assert arguments(parser.parse_args(words)) == words


def test_the_command_measures_in_a_pinned_process_and_keeps_every_round(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "logitproof", "bench", "--part", "ratios"]
    command += ["--size", "reference", "--rounds", "1", "--json", str(tmp_path / "facts.json")]
    done = subprocess.run(
        command, env={**os.environ, "OPENBLAS_CORETYPE": "Haswell"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "OPENBLAS_CORETYPE: not set" in done.stdout
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert len(facts["timings"]["reference"][TRAINING]["ordered"]) == 1


def test_a_picture_has_a_line_for_everyone_who_was_timed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is in the dependency group `bench`")
    pictures: Any = importlib.import_module("logitproof.properties.bench.pictures")
    measured = measure([], [], rounds=1, slow=False)
    timings = {
        "bridge": {TRAINING: timed(ordered=2.0, torch=1.0)},
        "mid": {TRAINING: timed(torch=3.0)},
    }
    pictures.draw(replace(measured, timings=timings), tmp_path / "ratios.svg")
    text = (tmp_path / "ratios.svg").read_text()
    assert [name for name in (*SIZES, *WHO) if name in text] == [
        "bridge",
        "mid",
        "ordered",
        "torch",
    ]
