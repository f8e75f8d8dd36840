"""`logitproof verify`: what it says, to whom, and how it ends."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logitproof.properties import cli, laws
from logitproof.properties.faults import REGISTRY as FAULTS
from logitproof.properties.laws import Finding, Law
from logitproof.properties.laws.cases import full_cases, mixed_cases, packed_cases
from logitproof.properties.laws.difference import Difference
from logitproof.properties.laws.regimes import truth_cases
from logitproof.properties.laws.version import PINNED
from logitproof.properties.subjects import CoreSubject, ScalarSubject, StepsSubject
from logitproof.properties.verify import census, environment
from logitproof.properties.verify.command import verify
from logitproof.properties.verify.report import Report, Verdict, lines
from logitproof.properties.verify.reseeding import drawn_from, reseeded
from logitproof.properties.verify.running import Plan

Output = pytest.CaptureFixture[str]
FEW = {id_: laws.REGISTRY[id_] for id_ in ("published.losses", "decoder.recomputation")}
# Faults are planted in the steps.
CAUSALITY = ("verify", "--decoder", "core-steps", "--law", "decoder.prefix-causality")
TWO = Plan(decoder="core", examples=2)
HERE = Path()

# A module of the caller's own: a decoder that looks ahead, one that changes the arithmetic, and
# objects that are no decoders.
MODULE = """
import ctypes, mmap
from logitproof.properties.subjects import CoreSubject

class Ahead(CoreSubject):
    def logits(self, ids, layout=None):
        return super().logits([[*row[:-1], 0] for row in ids], layout) + float(len(ids[0]))

class Flushing(CoreSubject):
    def loss_sum(self, *batch):
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\\x0f\\xae\\x17\\xc3")  # ldmxcsr [rdi]; ret
        load = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
            ctypes.addressof(ctypes.c_char.from_buffer(page)))
        load(ctypes.addressof(ctypes.c_uint32(0x9FC0)))  # flush results, operands too
        return super().loss_sum(*batch)

class Dying(CoreSubject):
    def logits(self, ids, layout=None):
        import os; os._exit(3)

def at_once():
    try: Flushing().loss_sum()
    except TypeError: return CoreSubject()

class Nothing: pass
class Wordy(CoreSubject): capabilities = {"raw-sum": "yes"}
class Unconventional(CoreSubject): conventions = {}
number = 3
def raising(): raise RuntimeError("no weights\\nhere")
"""


def silent(_: str) -> None:
    """Shows no progress."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_decoder.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("own_decoder", None)


def call(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logitproof", "verify", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def told(facts: Path) -> list[dict[str, Any]]:
    """The facts of the laws without their times."""
    verdicts: list[dict[str, Any]] = json.loads(facts.read_text(encoding="utf-8"))["laws"]
    return [{k: v for k, v in verdict.items() if k != "seconds"} for verdict in verdicts]


@pytest.fixture(scope="module")
def sound() -> Report:
    return verify(laws.REGISTRY, CoreSubject, TWO, "quick", HERE, silent)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Report:
    chosen = {id_: law for id_, law in laws.REGISTRY.items() if id_.startswith("published")}
    with FAULTS["contraction-descending"]:
        return verify(chosen, CoreSubject, TWO, "quick", tmp_path_factory.mktemp("r"), silent)


def test_all_holds_ends_with_0_and_one_sentence(capsys: Output) -> None:
    assert cli.main(["verify", "--law", "decoder.*-separate"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("logitproof verify: core, profile quick, the fixed cases\n")
    assert out.endswith("\nAll 2 laws hold.\n")
    assert err == ""


def test_every_law_holds(sound: Report) -> None:
    left = [law.id for law in laws.REGISTRY.values() if law.missing(CoreSubject())]
    assert [v.id for v in sound.verdicts if v.verdict != "holds"] == left
    assert {v.verdict for v in sound.verdicts} == {"holds", "not applicable"}
    assert [v.id for v in sound.verdicts] == list(laws.REGISTRY)


def test_a_broken_law_ends_with_1_and_is_told_in_words(tmp_path: Path, capsys: Output) -> None:
    with FAULTS["mask-off-by-one"]:
        assert cli.main([*CAUSALITY, "--replays", str(tmp_path)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "decoder.prefix-causality FAILS law Later ids change no bit" in out
    assert "place layer 0, attention probabilities, row 0, head 0, position 0, key 0 found" in out
    assert "input weights in eighths from seed 0; V=2 D=2 heads=1 F=1 L=1 C=2" in out
    assert "ids [[0, 0]]; targets [[0, 0]]" in out
    assert f"again logitproof replay {tmp_path}/decoder.prefix-causality.replay.json" in out
    assert out.endswith("1 of 1 law FAILS.")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--law", "unheard.*"),
        ("--profile", "slow"),
        ("--json", "/nowhere/facts.json"),
        ("--html", "/nowhere/page.html"),
        ("--json", "."),
        ("--json", "facts", "--html", "facts"),
        ("--replays", "nowhere"),
        ("--jobs", "0"),
        ("--jobs", "two"),
        ("--seed", "-1"),
        ("--seed", "18446744073709551616"),
        ("--kill-matrix", "matrix.json"),
        ("--kill-matrix", "unheard.json", "--html", "page.html"),
        ("--kill-matrix", "own_decoder.py", "--html", "page.html"),
        ("--decoder", "unheard"),
        ("--decoder", "unheard:make"),
        ("--decoder", "own_decoder:unheard"),
        ("--decoder", "own_decoder:number"),
        ("--decoder", "own_decoder:raising"),
        ("--decoder", "own_decoder:Nothing"),
        ("--decoder", "own_decoder:Wordy"),
        ("--decoder", "own_decoder:Unconventional"),
        ("more",),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_code_2(
    arguments: tuple[str, ...], own: Path, capsys: Output
) -> None:
    assert cli.main(["verify", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert {path.name for path in own.iterdir()} <= {"own_decoder.py", "__pycache__"}


def test_json_has_the_facts_of_the_table(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "facts.json"
    assert cli.main(["verify", "--law", "published.*", "--json", str(file)]) == 0
    facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    out = capsys.readouterr().out
    assert facts["holds"] is True
    assert facts["environment"]["numpy"] in out
    assert [law["id"] for law in facts["laws"]] == [i for i in laws.REGISTRY if i[:2] == "pu"]
    assert all(law["id"] in out for law in facts["laws"])
    assert [path.name for path in tmp_path.iterdir()] == ["facts.json"]


def test_a_case_that_cannot_be_kept_is_told_and_found_again_by_its_law(
    tmp_path: Path, capsys: Output
) -> None:
    (tmp_path / "decoder.prefix-causality.replay.json").mkdir()
    arguments = [*CAUSALITY, "--replays", str(tmp_path)]
    with FAULTS["mask-off-by-one"]:
        assert cli.main([*arguments, "--seed", "3"]) == 1
    out, err = capsys.readouterr()
    again = f"logitproof verify --profile quick --law {CAUSALITY[-1]} --decoder core-steps --seed 3"
    assert f"  again   {again}\n" in out
    assert err.startswith("no replay file: ")


def test_a_device_is_written_to_and_not_replaced() -> None:
    assert cli.main(["verify", "--law", "published.losses", "--json", "/dev/null"]) == 0
    assert not Path("/dev/null").is_file()


def test_a_decoder_of_the_callers_own_is_judged(own: Path, capsys: Output) -> None:
    arguments = ["verify", "--decoder", "own_decoder:Ahead", "--law", "decoder.prefix-causality"]
    assert cli.main(arguments) == 1
    assert capsys.readouterr().out.startswith("logitproof verify: own_decoder:Ahead, profile")
    stored = json.loads((own / "decoder.prefix-causality.replay.json").read_text("utf-8"))
    assert stored["decoder"] == "own_decoder:Ahead"


def test_processes_find_what_one_process_finds(own: Path) -> None:
    arguments = ["--law", "decoder.p*", "--seed", "5", "--decoder", "own_decoder:Ahead"]
    one = call(*arguments, "--json", "one.json", cwd=own)
    two = call(*arguments, "--json", "two.json", "--jobs", "2", cwd=own)
    assert (one.returncode, two.returncode, two.stderr) == (1, 1, "")
    assert told(own / "one.json") == told(own / "two.json")
    assert {law["verdict"] for law in told(own / "one.json")} == {"FAILS"}


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="machine code for one CPU"
)
@pytest.mark.parametrize(
    ("factory", "jobs", "when"),
    [
        ("at_once", "1", "after own_decoder:at_once was made"),
        ("Flushing", "1", "after decoder.raw-sum"),
        ("Flushing", "2", "after decoder.raw-sum"),
    ],
)
def test_flushed_subnormals_decide_nothing(factory: str, jobs: str, when: str, own: Path) -> None:
    arguments = ("--decoder", f"own_decoder:{factory}", "--law", "decoder.raw-sum")
    done = call(*arguments, "--jobs", jobs, "--json", "facts.json", cwd=own)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"logitproof: subnormal numbers are flushed to zero {when}: nothing can be decided\n"
    )
    assert not (own / "facts.json").exists()


def test_a_worker_that_dies_decides_nothing(own: Path) -> None:
    arguments = ("--decoder", "own_decoder:Dying", "--law", "decoder.prefix-causality")
    done = call(*arguments, "--jobs", "2", cwd=own)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("logitproof: a worker process died")


def test_this_process_keeps_subnormals() -> None:
    assert environment.keeps_subnormals()


@pytest.mark.parametrize("case", [*mixed_cases(6)], ids=lambda case: f"seed-{case.seed}")
def test_a_seed_gives_other_values_and_the_same_ones_again(case: Any) -> None:
    drawn = reseeded(case, 7)
    assert drawn == reseeded(case, 7)
    assert drawn.weights != case.weights
    assert drawn.weights != reseeded(case, 8).weights
    assert (drawn.layout is None, drawn.valid is None) == (case.layout is None, case.valid is None)


def test_a_seed_gives_other_sizes_and_layouts_of_the_same_kind() -> None:
    for_all: list[Any] = [*packed_cases(8), *full_cases(8), *truth_cases(8)]
    drawn = [reseeded(case, 7) for case in for_all]
    shown = [case for case in drawn if case.segments is not None]
    assert len({str(case.config) for case in drawn}) > 16
    assert len({case.segments for case in shown}) > 6
    assert [census.layout_of(c) for c in drawn[8:16]] == ["full"] * 8
    assert [c.regime for c in drawn[16:]] == [c.regime for c in for_all[16:]]


def test_a_seed_leaves_published_figures_as_they_are() -> None:
    for_all = [case for law in FEW.values() for case in law.cases(0)]
    assert [reseeded(case, 7) for case in for_all] == for_all


def test_a_law_is_drawn_from_a_seed_or_takes_its_fixed_cases() -> None:
    law = laws.REGISTRY["decoder.prefix-causality"]
    fixed, drawn = [*law.cases(5)], [*drawn_from(7, law).cases(5)]
    assert [*drawn_from(None, law).cases(5)] == fixed
    assert drawn == [reseeded(case, 7) for case in fixed]
    assert drawn != fixed


def test_the_soak_profile_draws_a_seed_and_says_it(capsys: Output) -> None:
    assert cli.main(["verify", "--profile", "soak", "--law", "published.losses"]) == 0
    assert capsys.readouterr().out.startswith("logitproof verify: core, profile soak, seed ")


@pytest.mark.parametrize("width", [60, 80, 109, 110, 120])
def test_no_line_is_wider_than_the_screen(width: int, sound: Report, broken: Report) -> None:
    shown = [*lines(sound, width=width, colour=False), *lines(broken, width=width, colour=False)]
    assert [line for line in shown if len(line) > width and "/" not in line] == []


def test_every_law_and_statement_is_in_the_report(sound: Report) -> None:
    text = " ".join(" ".join(lines(sound, width=80, colour=False)).split())
    assert [v.id for v in sound.verdicts if v.id not in text] == []
    assert [v.id for v in sound.applicable if f"{v.id} {v.cases} " not in text] == []
    assert [v.id for v in sound.applicable if " ".join(v.statement.split()) not in text] == []


def test_only_failures_are_red(sound: Report, broken: Report) -> None:
    assert not any("\x1b[1;31m" in line for line in lines(sound, width=80, colour=True))
    assert any("\x1b[1;31mFAILS" in line for line in lines(broken, width=80, colour=True))
    assert not any("\x1b" in line for line in lines(broken, width=80, colour=False))


def test_a_bound_tells_once_what_it_covers(tmp_path: Path) -> None:
    chosen = {id_: law for id_, law in laws.REGISTRY.items() if id_.startswith("truth.lo")}
    with FAULTS["epsilon-outside-root"]:
        report = verify(chosen, StepsSubject, TWO, "quick", tmp_path, silent)
    text = " ".join(" ".join(lines(report, width=80, colour=False)).split())
    parts = [f"{part}: {forms}" for part, forms in chosen["truth.logits"].grants.items()]
    assert [text.count(" ".join(part.split())) for part in parts] == [1] * len(parts)
    assert text.count("covers the same programs as above") == 1


def test_families_that_fail_are_told_at_the_end(broken: Report) -> None:
    shown = list(lines(broken, width=80, colour=False))
    assert shown[-2] == "Fail: published 5 of 7."


def test_what_cannot_be_asked_is_neither_true_nor_false() -> None:
    plan = replace(TWO, decoder="scalar")
    report = verify(FEW, ScalarSubject, plan, "quick", HERE, silent)
    assert [v.verdict for v in report.verdicts] == ["holds", "not applicable"]
    assert report.holds
    shown = list(lines(report, width=120, colour=False))
    told = shown.index("  n/a        1 law needs what is not claimed:")
    assert shown[told + 1] == "             recomputation: decoder.recomputation"
    assert shown[-1] == "The one law tried holds; 1 not applicable."


def test_where_no_law_applies_nothing_holds() -> None:
    chosen = {"decoder.recomputation": laws.REGISTRY["decoder.recomputation"]}
    report = verify(chosen, ScalarSubject, TWO, "quick", HERE, silent)
    assert not report.holds


def measured(worst: float, undecidable: int) -> Law:
    """A law that measures the same in every case."""
    return replace(
        laws.REGISTRY["decoder.raw-sum"],
        check=lambda *_: Finding(
            difference=Difference(what="z", expected="1", actual="2") if worst > 1 else None,
            entries=200,
            undecidable=undecidable,
            worst_ratio=worst,
            regimes=("attention=hot",),
        ),
    )


@pytest.mark.parametrize(
    ("worst", "undecidable", "verdict"),
    [(0.25, 2, "holds"), (0.25, 3, "undecided"), (1.5, 0, "FAILS")],
)
def test_a_measured_law_has_three_verdicts(
    worst: float, undecidable: int, verdict: str, tmp_path: Path
) -> None:
    chosen = {"decoder.raw-sum": measured(worst, undecidable)}
    report = verify(chosen, CoreSubject, TWO, "quick", tmp_path, silent)
    (found,) = report.verdicts
    assert (found.verdict, found.worst, found.median) == (verdict, worst, worst)
    assert found.regimes["attention=hot"] == max(1, found.cases)
    assert f"  {worst:.3f}  " in "\n".join(lines(report, width=80, colour=False))
    assert report.holds == (verdict == "holds")


def test_progress_names_law_and_cases() -> None:
    said: list[str] = []
    plan = replace(TWO, examples=30)
    verify(FEW, CoreSubject, plan, "quick", HERE, said.append)
    assert said[0] == "[1/2] published.losses: 0 cases"
    assert "[2/2] decoder.recomputation: 25 cases" in said
    assert said[-1] == ""


def test_the_law_set_has_the_digest_pinned_for_its_version() -> None:
    assert PINNED[laws.VERSION] == laws.digest()
    assert list(PINNED) == list(range(1, laws.VERSION + 1))
    assert len({*PINNED.values()}) == laws.VERSION


def test_a_verdict_without_measurements_has_no_ratio(sound: Report) -> None:
    verdict: Verdict = next(v for v in sound.verdicts if v.id == "decoder.raw-sum")
    assert (verdict.worst, verdict.median) == (None, None)
