"""A decoder that fails is asked which conventions it follows; the report tells it in all forms."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from logitproof.properties import cli, laws
from logitproof.properties.detected import (
    FOLLOWS,
    NONE,
    NOT_ASKED,
    PARTLY,
    SPECIFIED,
    detected,
    facts,
)
from logitproof.properties.detective import (
    CONFIG,
    TIME_IS_UP,
    Answered,
    Examination,
    Match,
    examined,
    rejudged,
    weights,
)
from logitproof.properties.foreign_subject import ForeignSubject
from logitproof.properties.scalar.conventions import Conventions
from logitproof.properties.verify.command import verify
from logitproof.properties.verify.detecting import concerns_detective
from logitproof.properties.verify.page import page
from logitproof.properties.verify.report import Report, lines
from logitproof.properties.verify.running import Part, Plan

LOGITS = {"truth.logits": laws.REGISTRY["truth.logits"]}
PLAN = Plan(decoder="own:decoder", examples=12, detects=True)
MODULE = """
import os, time
from logitproof.properties.foreign_subject import ForeignSubject

ASKED = 500.0  # the detective's own base

def halves():
    return ForeignSubject(pairs="halves")

def pair():
    return ForeignSubject(pairs="halves", gain="one-plus")

class Twice(ForeignSubject):
    def logits(self, ids, layout=None):
        if self.config.rope_base == ASKED:
            self.asked()
        return super().logits(ids, layout) * 2

class Sleeping(Twice):
    def asked(self):
        time.sleep(60)

class Raising(Twice):
    def asked(self):
        raise MemoryError

class Dying(Twice):
    def asked(self):
        os._exit(3)
"""
Output = pytest.CaptureFixture[str]


class Shaken(ForeignSubject):
    """Off by a little, as no convention is."""

    def logits(self, ids: Any, layout: Any = None) -> Any:
        return super().logits(ids, layout) * (1.0 + 1e-3)


class Narrow(ForeignSubject):
    """Its last step is one in float32, which it does not say."""

    def logits(self, ids: Any, layout: Any = None) -> Any:
        return super().logits(ids, layout).astype(np.float32).astype(np.float64)


class Both(Shaken):
    """A convention of sessions, and logits of a batch that nothing explains."""

    def __init__(self) -> None:
        super().__init__(chunk_mask="top-left")


class More(ForeignSubject):
    """A convention, and wrong logits wherever the detective does not ask."""

    def __init__(self) -> None:
        super().__init__(pairs="halves")

    def logits(self, ids: Any, layout: Any = None) -> Any:
        return super().logits(ids, layout) * (1.0 if self.config.rope_base == 500.0 else 1.5)


class Unclaimed(ForeignSubject):
    """It reads rows of equal length alone."""

    capabilities: Mapping[str, bool] = MappingProxyType(
        {"padded": False, "packed": False, "loss": False}
    )


class Short(ForeignSubject):
    """Logits of another shape than the loss is asked with."""

    def logits(self, ids: Any, layout: Any = None) -> Any:
        return super().logits(ids, layout)[:, :-1]


def report_of(
    make: Callable[[], Any], tmp_path: Path, plan: Plan = PLAN, chosen: Any = LOGITS
) -> Report:
    return verify(chosen, make, plan, "quick", tmp_path, lambda _: None)


def words_of(make: Callable[[], Any]) -> tuple[str, str]:
    found = detected(examined(make))
    return found.word, found.sentence


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "detected_decoder.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return "detected_decoder"


def told_by_command(decoder: str, capsys: Output, *arguments: str) -> str:
    """The report of a decoder that fails, in one line."""
    assert cli.main(["verify", "--law", "truth.logits", "--decoder", decoder, *arguments]) == 1
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        (
            {"pairs": "halves"},
            "It follows pairs: halves, not adjacent (RoPE turns features i and i + d_h/2)."
            " This reproduces all 6 answers, within 0.",
        ),
        (
            {"epsilon": "outside", "embedding": "root"},
            "It follows epsilon: outside, not inside (1 / (sqrt(mean) + eps)); embedding: root,"
            " not plain (rows times sqrt(D)). This reproduces all 6 answers, within 0.",
        ),
    ],
    ids=["one", "two"],
)
def test_a_decoder_that_fails_is_told_its_conventions(
    choices: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    report = report_of(lambda: ForeignSubject(**choices), tmp_path)
    assert report.conventions is not None
    assert report.conventions.word == FOLLOWS
    assert report.conventions.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("make", "word", "said"),
    [
        (ForeignSubject, SPECIFIED, "what fails is no convention known here."),
        (Shaken, NONE, "(424 tried) reproduces its answer to ordinary text, nor to 4 other"),
        (Shaken, NONE, "Nearest: as specified, off by 0.001 of the largest. As specified: a"),
        (Narrow, PARTLY, "It follows residual_steps: float32, not own (residual sums rounded to"),
        (Narrow, PARTLY, "Just as well explained by softmax_steps: float32"),
        (
            Both,
            PARTLY,
            "It follows chunk_mask: top-left, not bottom-right (query i of a chunk reads",
        ),
        (Unclaimed, SPECIFIED, "As specified in ordinary text, within 0."),
        (Short, NOT_ASKED, "answered logits of shape [1, 4, 11], not [1, 5, 11]; nor to 4 more."),
    ],
)
def test_what_the_answers_come_to_is_said(make: Callable[[], Any], word: str, said: str) -> None:
    found = words_of(make)
    assert (found[0], said in found[1]) == (word, True), found


def test_failing_cases_are_judged_by_the_conventions_too(tmp_path: Path) -> None:
    report = report_of(lambda: ForeignSubject(pairs="halves"), tmp_path)
    assert report.detective is not None
    (again,) = report.detective.rejudged
    assert (again.law, again.specified > 1.0, again.followed < 1.0) == ("truth.logits", True, True)
    assert report.facts()["conventions"]["rejudged"][0]["law"] == "truth.logits"
    assert detected(report.detective).sentence.endswith(
        "It reproduces the wrong logits of the failing case too."
    )


def test_what_is_wrong_beside_a_convention_is_said(tmp_path: Path) -> None:
    report = report_of(More, tmp_path)
    assert report.conventions is not None
    assert report.conventions.word == PARTLY
    assert report.conventions.sentence.endswith(
        "More is wrong: it does not reproduce the logits that fail truth.logits."
    )


def test_cases_that_fail_in_something_else_are_not_told(tmp_path: Path) -> None:
    chosen = {"truth.loss": laws.REGISTRY["truth.loss"]}
    report = report_of(lambda: ForeignSubject(mean="sum"), tmp_path, chosen=chosen)
    assert report.detective is not None
    assert report.detective.followed == Conventions(mean="sum")
    assert report.detective.rejudged == ()


def test_who_raises_at_a_failing_case_is_told_nothing_more() -> None:
    def make() -> Any:
        raise MemoryError

    batch = (CONFIG, weights(CONFIG), [[1, 2]], None)
    assert rejudged(make, "truth.logits", batch, Conventions(pairs="halves")) is None


def test_who_claims_nothing_is_asked_nothing() -> None:
    class Silent(ForeignSubject):
        capabilities: Mapping[str, bool] = MappingProxyType({"forward": False, "decode": False})

    assert words_of(Silent) == (NOT_ASKED, "It claims nothing that the questions ask for.")


def test_a_factory_that_raises_is_an_answer() -> None:
    def make() -> Any:
        raise MemoryError

    assert words_of(make) == (NOT_ASKED, "No answer to making one: raised MemoryError.")


def test_after_its_time_no_question_begins() -> None:
    found = examined(ForeignSubject, seconds=-1.0)
    assert {answer.refused for answer in found.answers} == {TIME_IS_UP}
    assert found.probes == ()


def test_questions_are_announced(tmp_path: Path) -> None:
    said: list[str] = []
    verify(LOGITS, lambda: ForeignSubject(turn="right"), PLAN, "quick", tmp_path, said.append)
    assert "which conventions it follows: ordinary text" in said
    assert "which conventions it follows: mean loss" in said
    assert said[-1] == ""


@pytest.mark.parametrize(
    ("make", "plan"),
    [
        (ForeignSubject, PLAN),
        (Shaken, replace(PLAN, detects=False)),
        (Shaken, replace(PLAN, decoder="core")),
        (Shaken, replace(PLAN, decoder="offline:answers")),
    ],
    ids=["all holds", "not wanted", "shipped here", "answers in a file"],
)
def test_nobody_is_asked_in_vain(make: Any, plan: Plan, tmp_path: Path) -> None:
    report = report_of(make, tmp_path, plan)
    assert (report.holds, report.detective) == (make is ForeignSubject, None)
    assert report.facts()["conventions"] is None
    assert "Conventions:" not in "\n".join(lines(report, width=80, colour=False))


def test_a_part_that_fails_is_no_convention() -> None:
    concerned = {
        id_
        for id_, law in laws.REGISTRY.items()
        if concerns_detective(law, Part(regimes={}, case=next(iter(law.cases(1)))))
    }
    assert {"truth.cached-logits", "published.losses", "session.splits", "poison.table-rows"} <= (
        concerned
    )
    assert not {"norm.definition", "tape.passes", "records.identity"} & concerned


def test_the_command_tells_it_last_but_one(own: str, capsys: Output) -> None:
    text = told_by_command(f"{own}:pair", capsys, "--json", "f.json", "--html", "p.html")
    sentence = json.loads(Path("f.json").read_text("utf-8"))["conventions"]["sentence"]
    assert f"Conventions: {sentence} 1 of 1 law FAILS." in text
    assert f"<b>Conventions:</b> {sentence}</p>" in Path("p.html").read_text("utf-8")


def test_the_end_of_a_report_in_the_readme_is_what_is_printed(own: str, capsys: Output) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    shown = readme.split("```\nConventions:")[1].split("```")[0]
    assert cli.main(["verify", "--law", "truth.*", "--decoder", f"{own}:halves"]) == 1
    assert capsys.readouterr().out.endswith(f"Conventions:{shown}")


def test_it_can_be_left_out(own: str, capsys: Output) -> None:
    assert "Conventions:" not in told_by_command(f"{own}:pair", capsys, "--no-detect")


def test_processes_ask_it_the_same(own: str, capsys: Output) -> None:
    text = told_by_command(f"{own}:pair", capsys, "--jobs", "2")
    assert "It follows pairs: halves, not adjacent" in text


@pytest.mark.parametrize(
    ("decoder", "arguments", "said"),
    [
        ("Raising", (), "No answer to ordinary text: raised MemoryError; nor to 4 more."),
        ("Sleeping", ("--time-limit", "2"), "SlowDecoder: logits: no answer within 2 s; nor to 5"),
        ("Dying", ("--jobs", "2"), "No answer to anything: a worker process died, 3 times"),
    ],
)
def test_who_fails_at_the_questions_leaves_the_report_whole(
    decoder: str, arguments: tuple[str, ...], said: str, own: str, capsys: Output
) -> None:
    text = told_by_command(f"{own}:{decoder}", capsys, *arguments)
    assert said in text
    assert text.endswith("1 of 1 law FAILS.")


def test_the_page_tells_each_answer_and_escapes_it(tmp_path: Path) -> None:
    found = Examination(
        answers=(
            Answered(question="one", matches=(match(0.5, pairs="halves"),)),
            Answered(question="two", matches=(match(7.0),)),
            Answered(question="three", refused="<b>"),
            Answered(question="four", matches=(match(0.25),)),
        )
    )
    text = page(replace(report_of(Shaken, tmp_path), detective=found), None)
    kinds = ('open">explained', 'bad">not explained', 'bad">none', 'ok">as specified')
    assert [text.count(f'class="chip {kind}<') for kind in kinds] == [1] * 4
    assert ("<b><" in text, "&lt;b&gt;" in text) == (False, True)


def test_the_page_tells_failing_cases(tmp_path: Path) -> None:
    text = page(report_of(More, tmp_path), None)
    assert "<td>logits of the case that fails truth.logits</td>" in text
    assert text.count('class="chip bad">not explained<') == 1


def match(ratio: float, **choices: str) -> Match:
    return Match(conventions=Conventions(**choices), distance=ratio / 100.0, ratio=ratio)


def test_facts_are_numbers_or_null() -> None:
    nearest = replace(match(float("inf")), distance=float("nan"))
    told = facts(Examination(answers=(Answered(question="one", matches=(nearest,)),)))
    assert json.loads(json.dumps(told, allow_nan=False))["answers"][0]["matches"] == [
        {"conventions": {}, "distance": None, "ratio": None}
    ]


def test_what_is_named_stands_out(tmp_path: Path) -> None:
    named = report_of(lambda: ForeignSubject(gate="second"), tmp_path)
    coloured = [list(lines(r, width=80, colour=True)) for r in (named, report_of(Shaken, tmp_path))]
    shown = [next(line for line in r if "Conventions:" in line) for r in coloured]
    assert [line.partition("m")[0] for line in shown] == ["\x1b[1;33", "\x1b[2"]
