"""The detective names the conventions that a decoder follows, or says that none explains it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitproof.properties import cli, detective
from logitproof.properties.detected import FOLLOWS, detected
from logitproof.properties.detective import (
    QUESTIONS,
    Answered,
    Question,
    answer_of,
    examined,
)
from logitproof.properties.foreign_subject import ForeignSubject
from logitproof.properties.laws.cases import Case, full_cases, packed_cases, padded_cases
from logitproof.properties.scalar import C_LIBRARY, EXACT, ScalarDecoder
from logitproof.properties.scalar.conventions import (
    CHOICES,
    LOSS,
    SPECIFIED,
    STEPS,
    Change,
    Conventions,
    alternatives,
)
from logitproof.properties.scalar.foreign import Foreign
from logitproof.properties.subjects import CoreSubject, ScalarSubject
from logitproof.properties.truth import BINARY32, BINARY64, Format
from logitproof.properties.truth.foreign import foreign_logits

ALONE = [change for c in alternatives(tuple(CHOICES), 1) for change in c.changes]
# Relative positions are all that rotation shows: where each segment reads itself alone, running
# positions give the same logits. Told only together with a mask that crosses segments.
CASES = [*full_cases(6), *padded_cases(4), *packed_cases(4)]
UNSEEN = ("positions", "row")
SHOWN = [change for change in ALONE if change != UNSEEN]
PAIRS = [
    (("pairs", "halves"), ("gain", "one-plus")),
    (("turn", "right"), ("activation", "gelu-tanh")),
    (("heads", "interleaved"), ("scale", "1/d_h")),
    (("mask", "row"), ("positions", "row")),
    (("epsilon", "outside"), ("embedding", "root")),
]


def answered(found: Any) -> dict[str, Answered]:
    return {answer.question: answer for answer in found.answers}


def told(*changes: Change) -> set[Change]:
    """What the detective says of a decoder that follows these changes."""
    found = examined(lambda: ForeignSubject(**dict(changes)))
    return {
        change
        for answer in found.answers
        for match in answer.explained
        for change in match.conventions.changes
    }


@pytest.mark.parametrize("make", [CoreSubject, ScalarSubject, ForeignSubject])
def test_a_decoder_that_follows_the_specification_is_told_so(make: Any) -> None:
    assert examined(make).as_specified


@pytest.mark.parametrize("change", [c for c in SHOWN if c[0] not in STEPS], ids=": ".join)
def test_a_single_convention_is_named_and_no_other(change: Change) -> None:
    assert told(change) == {change}


@pytest.mark.parametrize("change", [c for c in SHOWN if c[0] in STEPS], ids=": ".join)
@pytest.mark.parametrize("other", [None, ("pairs", "halves")], ids=str)
def test_steps_in_single_precision_are_named_before_others_like_them(
    change: Change, other: Change | None
) -> None:
    """They are told apart by the size of what they leave; what explains it too is told."""
    changes = [change] if other is None else [other, change]
    found = examined(lambda: ForeignSubject(**dict(changes)))
    text = answered(found)["ordinary text"]
    assert {*text.explained[0].conventions.changes} == {*changes}
    assert all(match.conventions.changes[-1][0] in STEPS for match in text.explained)
    assert detected(found).word == FOLLOWS


def test_a_mistake_of_a_decoder_in_single_precision_is_not_explained_by_its_steps() -> None:
    """Counted in roundings of float32 once more, such steps would have a bound above every error.

    2^-12.5 is near enough to be judged, and thousands of roundings of float32 away.
    """

    class Single(ForeignSubject):
        conventions: Mapping[str, str] = {"functions": "c-library", "dtype": "float32"}

        def logits(self, ids: Any, layout: Any = None) -> Any:
            return super().logits(ids, layout) * (1.0 + 2.0**-12.5)

    assert not answered(examined(Single))["ordinary text"].explained


@pytest.mark.parametrize("changes", PAIRS, ids=str)
def test_two_conventions_are_named_together(changes: tuple[Change, Change]) -> None:
    assert told(*changes) == {*changes}


def test_what_no_alternative_gives_is_said_to_be_unexplained() -> None:
    class Shaken(ForeignSubject):
        def logits(self, ids: Any, layout: Any = None) -> Any:
            return super().logits(ids, layout) * (1.0 + 1e-9)

    text = answered(examined(Shaken))["ordinary text"]
    assert not text.explained
    assert text.matches[0].conventions == SPECIFIED
    # The factor and its product round by 2^-53 each, the quotient's share of 1e-9 by less.
    assert text.matches[0].distance == pytest.approx(1e-9, rel=0, abs=3 * 2.0**-53)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda logits: logits[..., :-1], "of shape [1, 5, 10], not [1, 5, 11]"),
        (lambda logits: logits * np.nan, "not finite"),
        (lambda logits: dict(zip(logits, logits, strict=True))["logits"], "raised TypeError"),
        (lambda logits: logits.astype(object), "TypeError: float64 is wanted, not object"),
        (lambda logits: logits.astype(complex), "TypeError: float64 is wanted, not complex128"),
        (lambda logits: logits.astype(str), "TypeError: float64 is wanted, not <U32"),
    ],
    ids=["another shape", "NaN", "an exception", "objects", "complex numbers", "text"],
)
def test_what_cannot_be_compared_is_said(wrong: Any, said: str) -> None:
    class Wrong(ForeignSubject):
        def logits(self, ids: Any, layout: Any = None) -> Any:
            return wrong(super().logits(ids, layout))

    assert said in str(answered(examined(Wrong))["ordinary text"].refused)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (str, "raised TypeError: float64 is wanted, not <U"),
        (lambda loss: [loss, loss], "raised TypeError"),
        (lambda loss: loss * np.inf, "answered inf"),
    ],
    ids=["text", "two numbers", "infinity"],
)
def test_what_is_no_loss_is_said(wrong: Any, said: str) -> None:
    class Wrong(ForeignSubject):
        def loss_and_gradients(self, *batch: Any) -> Any:
            loss, gradients = super().loss_and_gradients(*batch)
            return wrong(loss), gradients

    assert said in str(answered(examined(Wrong))["mean loss"].refused)


def distinct(question: Question) -> Iterator[tuple[Conventions, Conventions, float]]:
    conventions = list(alternatives(question.conventions, 1))
    values = [answer_of(question, c) for c in conventions]
    largest = abs(values[0]).max()
    for i, left in enumerate(values):
        for j in range(i):
            apart = abs(left - values[j]).max() / largest
            yield conventions[j], conventions[i], float(apart)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.name)
def test_every_alternative_gives_other_logits(question: Question) -> None:
    same = [
        (str(a), str(b))
        for a, b, apart in distinct(question)
        if apart < 2.0**-14 and not {name for name, _ in (*a.changes, *b.changes)} & {*STEPS}
    ]  # of a single's digits half and two: far beyond what it rounds
    expected = {
        "ordinary text": [("as specified", "mask: row")],
        "packed and padded rows": [("as specified", "positions: row")],
    }
    assert same == expected.get(question.name, [])


def test_no_convention_goes_unasked() -> None:
    asked = {name for question in QUESTIONS for name in question.conventions}
    assert {*asked, *LOSS} == {*CHOICES}


@pytest.mark.parametrize("arithmetic", [EXACT, C_LIBRARY], ids=lambda a: a.name)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_alternative_forward_is_the_scalar_decoder_where_nothing_differs(
    case: Case, arithmetic: Any
) -> None:
    scalar = ScalarDecoder(case.config, case.weights, arithmetic)
    foreign = Foreign(
        config=case.config, weights=scalar.weights, conventions=SPECIFIED, arithmetic=arithmetic
    )
    active = np.array(case.ids) >= 0
    expected: np.ndarray[Any, Any] = np.array(scalar.logits(case.ids, case.layout))[active]
    assert np.array(foreign.logits(case.ids, case.layout))[active].tobytes() == expected.tobytes()


def test_defaults_are_the_first_choices() -> None:
    assert all(getattr(SPECIFIED, name) == next(iter(choices)) for name, choices in CHOICES.items())
    assert not SPECIFIED.changes


def test_a_choice_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="pairs='thirds' is no convention; known: adjacent"):
        ForeignSubject(pairs="thirds")


def test_the_command_tells_it_in_words_and_facts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from logitproof.properties.foreign_subject import ForeignSubject\n"
        "def halves():\n    return ForeignSubject(pairs='halves')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    code = cli.main(["detect", "--decoder", "mine:halves", "--json", "facts.json"])
    text = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert "It follows pairs: halves, not adjacent (RoPE turns features i and i + d_h/2)." in text
    facts = json.loads(Path("facts.json").read_text())
    assert facts["answers"][0]["matches"][0]["conventions"] == {"pairs": "halves"}


def test_the_command_says_when_all_is_as_specified(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["detect"]) == 0
    assert capsys.readouterr().out.endswith("Everything asked is answered as specified.\n")


def test_float32_is_asked_about_where_nothing_else_explains_alone() -> None:
    class Shaken(ForeignSubject):
        def loss_and_gradients(self, *batch: Any) -> Any:
            loss, gradients = super().loss_and_gradients(*batch)
            return loss * (1.0 + 1e-9), gradients

    logits, loss = (answered(examined(Shaken))[name] for name in ("ordinary text", "mean loss"))
    assert [match.single for match in logits.explained] == [None]
    assert [match.single is None for match in loss.matches] == [False]
    assert [m.single for a in examined(ForeignSubject).answers for m in a.explained] == [None] * 6


def test_each_format_is_judged_by_a_truth_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = set[Format]()

    def listed(*given: Any, format: Format, **more: Any) -> Any:
        asked.add(format)
        return foreign_logits(*given, format=format, **more)

    detective._truth.cache_clear()
    monkeypatch.setattr(detective, "foreign_logits", listed)
    examined(lambda: ForeignSubject(norm_steps="float32"))
    assert asked == {BINARY32, BINARY64}
