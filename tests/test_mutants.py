"""Samples of small changes of core, the interval of their rate, and how a run is told."""

import subprocess
import sys
from fractions import Fraction
from functools import partial
from math import comb
from pathlib import Path

import pytest

from logitproof import core
from logitproof.properties import laws
from logitproof.properties.mutants.equivalents import EQUIVALENTS, Equivalent, reason_of
from logitproof.properties.mutants.killer import turns
from logitproof.properties.mutants.outcomes import Outcome, interval, lines
from logitproof.properties.mutants.sample import Mutant, changes_what_runs, drawn

SCALAR_BITS = "decoder.scalar-bits"
# `python -m logitproof.properties.mutants.killer 1`, with a cheap law and one of over a second.
KILLER_OF_TWO = """\
import runpy, sys
from logitproof.properties import laws
laws.REGISTRY = {law: laws.REGISTRY[law] for law in ("truth.logits", "records.values")}
sys.argv[1:] = ["1"]
runpy.run_module("logitproof.properties.mutants.killer", run_name="__main__")
"""
SOURCE = """\
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from x import Y

def f(a: int | str, *, b: float = 1.0) -> int | None:
    c: int | str = 2
    return a * b
"""


def mutants(**counts: int) -> list[Mutant]:
    return [
        Mutant(module=name, at=(line, 0), operator="core/AddNot", occurrence=line)
        for name, count in counts.items()
        for line in range(count)
    ]


def always(_: Mutant) -> bool:
    return True


@pytest.mark.parametrize(
    ("at", "runs"),
    [
        ((3, 4), False),  # under TYPE_CHECKING
        ((5, 12), False),  # an annotation of an argument
        ((5, 20), False),  # the star
        ((5, 34), True),  # a default
        ((5, 48), False),  # what is returned
        ((6, 11), False),  # an annotation of a variable
        ((6, 19), True),  # its value
        ((7, 13), True),
    ],
)
def test_only_changes_of_what_runs_count(at: tuple[int, int], runs: bool) -> None:
    assert changes_what_runs(SOURCE)(at) is runs


def test_a_sample_takes_from_every_module_in_proportion() -> None:
    sample = drawn(mutants(a=80, b=20, c=1), 11, seed=1, lives=always)
    found = [mutant.module for mutant in sample]
    assert [found.count(name) for name in "abc"] == [8, 2, 1]


def test_a_sample_is_decided_by_its_seed_and_grows() -> None:
    of = mutants(a=80, b=20, c=1)
    small, large, other = (
        {*drawn(of, count, seed=seed, lives=always)} for count, seed in ((11, 1), (30, 1), (11, 2))
    )
    assert small < large
    assert small != other
    assert small == {*drawn(of[::-1], 11, seed=1, lives=always)}


def test_what_does_not_live_is_passed_over_and_others_take_its_place() -> None:
    sample = drawn(mutants(a=9, b=3), 9, seed=1, lives=lambda mutant: mutant.module == "a")
    assert len(sample) == 9
    assert {mutant.module for mutant in sample} == {"a"}


def at_least(killed: int, tried: int, p: float) -> Fraction:
    q = Fraction(p)
    return sum(
        (comb(tried, i) * q**i * (1 - q) ** (tried - i) for i in range(killed, tried + 1)),
        Fraction(0),
    )


@pytest.mark.parametrize(("killed", "tried"), [(9, 10), (45, 50), (1, 50), (25, 50)])
def test_an_interval_leaves_a_fortieth_on_either_side(killed: int, tried: int) -> None:
    low, high = interval(killed, tried)
    # Sixty halvings end within 2^-60 of the bound, where the tail has a slope below `tried`.
    assert abs(at_least(killed, tried, low) - Fraction(1, 40)) < tried * 2.0**-50
    assert abs(1 - at_least(killed + 1, tried, high) - Fraction(1, 40)) < tried * 2.0**-50


def test_an_interval_ends_where_rates_end() -> None:
    assert interval(0, 5)[0] == 0.0
    assert interval(5, 5)[1] == 1.0


def outcome(name: str, *, killed: bool, output: str) -> Outcome:
    return Outcome(id=name, module="a.py", killed=killed, output=output, diff=f"-{name}", seconds=2)


OUTCOMES = (
    outcome("seen", killed=True, output="core\ntrying x.y\nfailed x.y\ncase\nwords\n"),
    outcome("endless", killed=True, output="core\ntrying x.y\ntrying x.z\ntimeout\n"),
    outcome("stillborn", killed=True, output=""),
    outcome("crashed", killed=True, output="core\ntrying x.z\n"),
    outcome("alive", killed=False, output="core\ntrying x.y\ntrying x.z\n"),
)


def test_an_outcome_tells_how_it_ended_and_where() -> None:
    assert [o.end for o in OUTCOMES] == ["failed", "timeout", "died", "died", "survived"]
    assert [o.law for o in OUTCOMES] == ["x.y", "x.z", "(before any law)", "x.z", "x.z"]


def test_a_report_shows_survivors_and_everything_that_no_law_decided() -> None:
    text = "\n".join(lines(OUTCOMES))
    assert "-alive" in text
    assert "timeout in x.z after 2 s: endless" in text
    assert "died in x.z after 2 s: crashed" in text
    assert "-seen" not in text
    assert "5 mutants, 4 killed (1 by a law, 1 by the time limit, 2 by an exit), 1 survived" in text


EQUIVALENT = EQUIVALENTS[0]


def diff_of(equivalent: Equivalent, *more: str) -> str:
    head = ["--- mutation diff ---", "--- a/x.py", "+++ b/x.py", "@@ -1,3 +1,3 @@", " before"]
    return "\n".join([*head, f"-    {equivalent.before}", f"+    {equivalent.after}", *more, " x"])


@pytest.mark.parametrize("known", EQUIVALENTS, ids=lambda known: f"{known.module}: {known.after}")
def test_the_line_of_a_known_equivalent_stands_in_its_module(known: Equivalent) -> None:
    text = (Path(core.__file__).parent / known.module).read_text(encoding="utf-8")
    assert known.before in [line.strip() for line in text.splitlines()]
    assert known.before != known.after
    assert reason_of(known.module, diff_of(known)) == known.reason


def test_only_the_very_change_is_a_known_equivalent() -> None:
    assert reason_of(EQUIVALENT.module, diff_of(EQUIVALENT, "-", "+")) == EQUIVALENT.reason
    assert reason_of("another.py", diff_of(EQUIVALENT)) is None
    assert reason_of(EQUIVALENT.module, diff_of(EQUIVALENT, "+    more")) is None
    assert reason_of(EQUIVALENT.module, "") is None


def test_a_report_counts_what_is_equivalent_apart() -> None:
    diff = diff_of(EQUIVALENT)
    known = partial(Outcome, module=EQUIVALENT.module, output="", diff=diff, seconds=2)
    same, seen = known(id="same", killed=False), known(id="seen", killed=True)
    text = "\n".join(lines([*OUTCOMES, same, seen]))
    assert f"equivalent, {EQUIVALENT.reason}: same" in text
    assert "7 mutants, 5 killed" in text
    assert "2 survived: 71.4% killed" in text
    assert "Of the 6 that are not known to be equivalent: 83.3% killed" in text


def test_a_report_of_equivalents_alone_has_no_rate_of_others() -> None:
    diff = diff_of(EQUIVALENT)
    same = Outcome(
        id="same", module=EQUIVALENT.module, killed=False, output="", diff=diff, seconds=2
    )
    assert "Of the 0 that are not known to be equivalent: none." in "\n".join(lines([same]))


def test_a_law_that_looks_at_no_kernel_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {law: laws.REGISTRY[law] for law in ("records.values", SCALAR_BITS, "truth.loss")}
    monkeypatch.setattr(laws, "REGISTRY", some)
    tried = [(type(subject).__name__, law.id) for subject, law in turns() if law(subject, 1).holds]
    assert tried == [
        *(("Watched", law) for law in some),
        ("BlasSubject", "truth.loss"),
        ("StepsSubject", SCALAR_BITS),
        ("StepsSubject", "truth.loss"),
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of CPU seconds there")
def test_a_killer_whose_law_runs_too_long_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLER_OF_TWO], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "trying records.values",
        "trying truth.logits",
        "timeout",
    ]
