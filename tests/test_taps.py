"""Taps: the first stage that goes astray is told on every rung; without them, how small it got."""

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitproof.properties import cli
from logitproof.properties.laws.cases import Case, mixed_cases
from logitproof.properties.subjects import CoreSubject, ScalarSubject
from logitproof.properties.taps import STAGES
from logitproof.properties.verify.divergence import divergence, place
from logitproof.properties.verify.shrinking import Failure

Output = pytest.CaptureFixture[str]
CASES = [case for case in mixed_cases(25) if case.config.layers]
CASE = next(case for case in CASES if case.config.heads > 1)
FAILURE = Failure(kind="bits", words="wrong", place="logits, token 3")

# Scores twice as large as they must be: queries are right, scores are not.
MODULE = """
import numpy as np
from logitproof.properties.scalar import forward
from logitproof.properties.subjects import ScalarSubject

class Doubled(ScalarSubject):
    def _doubled(self, call, *batch):
        scale = forward.scale
        forward.scale = lambda a, width: scale(a, width) * 2.0
        try:
            return getattr(super(), call)(*batch)
        finally:
            forward.scale = scale

    def logits(self, *batch): return self._doubled("logits", *batch)

    def taps(self, *batch):
        found = self._doubled("taps", *batch)
        return {name: 2.0 * np.array(v) if name.endswith("scores") else v
                for name, v in found.items()}

class Untapped(Doubled):
    capabilities = {}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tapped_decoder.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Changed(ScalarSubject):
    """One tap of the scalar decoder by other values."""

    stage, change = "", staticmethod(lambda values: values)

    def taps(self, *batch: Any) -> Any:
        return {
            name: self.change(value) if name.endswith(f".{self.stage}") else value
            for name, value in super().taps(*batch).items()
        }


def changed(named: str, by: Any) -> type[Changed]:
    class One(Changed):
        stage, change = named, staticmethod(by)

    return One


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_is_told(stage: str) -> None:
    told = divergence(changed(stage, lambda values: values + 1.0), CASE)
    assert str(told).startswith("layer 0, ")
    assert "row 0, " in str(told)
    assert len(str(told).split(", ")) >= 5


def test_every_stage_has_words_of_its_own() -> None:
    told = {divergence(changed(stage, lambda values: values + 1.0), CASE) for stage in STAGES}
    assert len(told) == len(STAGES)


def test_a_tap_of_another_shape_is_told() -> None:
    told = divergence(changed("value", np.ravel), CASE)
    assert str(told).startswith("layer 0, attention value: of shape [")


class Few(Changed):
    def taps(self, *batch: Any) -> Any:
        found = super().taps(*batch)
        return {"hidden": found["hidden"] + 1.0}


def test_taps_that_are_not_offered_are_not_looked_at() -> None:
    assert divergence(Few, CASE) == "final norm, row 0, position 0, feature 0"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"seed-{case.seed}")
def test_the_core_offers_the_bits_of_the_scalar_decoder(case: Case) -> None:
    decoders: tuple[Any, ...] = (CoreSubject(), ScalarSubject())
    [decoder.load(case.config, case.weights) for decoder in decoders]
    core, scalar = (decoder.taps(case.ids, case.layout) for decoder in decoders)
    assert {*core} < {*scalar}
    assert [n for n, value in core.items() if value.tobytes() != scalar[n].tobytes()] == []


class Untapped(ScalarSubject):
    capabilities: Mapping[str, bool] = {}


def test_without_taps_the_report_says_how_small_the_case_got() -> None:
    told = place(Untapped, CASE, FAILURE)
    sizes = CASE.config
    assert str(told).startswith("logits, token 3; no taps to tell the stage; what fails has ")
    assert f"{sizes.heads} heads, {len(CASE.ids[0])} tokens a row" in str(told)
    assert str(place(Untapped, CASE, Failure(kind="bits", words="wrong"))) in str(told)


@pytest.mark.parametrize(
    "rung", ["", f"exec:{sys.executable} -m logitproof.properties.adapters.serve "]
)
def test_a_wrong_stage_is_told_on_a_live_rung(rung: str, own: Path, capsys: Output) -> None:
    name = f"{rung}tapped_decoder:Doubled"
    assert cli.main(["verify", "--decoder", name, "--law", "truth.logits"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "place layer 0, attention scores, row 0, head 0, position 0, key 0 found" in out
    assert (own / "truth.logits.replay.json").exists()


def test_a_wrong_stage_is_told_offline(own: Path, capsys: Output) -> None:
    serve = f"{sys.executable} -m logitproof.properties.adapters.serve tapped_decoder:Doubled"
    assert own.exists()
    exported = ["--law", "truth.logits", "--claims", "forward,padded,packed,taps"]
    assert cli.main(["export-requests", "dir", *exported]) == 0
    text = (own / "dir" / "requests.jsonl").read_bytes()
    answers = subprocess.run(shlex.split(serve), input=text, capture_output=True, check=True)
    (own / "dir" / "answers.jsonl").write_bytes(answers.stdout)
    assert cli.main(["judge", "dir"]) == 1
    assert "place layer 0, attention scores, row 0" in " ".join(capsys.readouterr().out.split())


def test_a_wrong_stage_without_taps_is_made_small(own: Path, capsys: Output) -> None:
    arguments = ["verify", "--decoder", "tapped_decoder:Untapped", "--law", "truth.logits"]
    assert cli.main(arguments) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "what fails has 1 layer, 1 head, 2 tokens a row found" in out
    assert own.exists()
