"""Shared key/value heads and heads of their own: their truth, their bounds, who is judged."""

from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp

from logitproof.properties.decoder_strategies import decoder_cases
from logitproof.properties.foreign_subject import ForeignSubject
from logitproof.properties.laws import REGISTRY
from logitproof.properties.laws.regimes import (
    REGIMES,
    Regime,
    Sizes,
    TruthCase,
    case_of,
    grouped_cases,
    redrawn,
    truth_cases,
    untied_cases,
)
from logitproof.properties.reordering import ReorderedSubject
from logitproof.properties.scalar import C_LIBRARY, ScalarDecoder
from logitproof.properties.scalar.conventions import SPECIFIED
from logitproof.properties.scalar.foreign import Foreign
from logitproof.properties.subjects import BlasSubject, CoreSubject, ScalarSubject
from logitproof.properties.taps import scalar_taps
from logitproof.properties.textbook import Forms, TextbookSubject
from logitproof.properties.truth.arithmetic import recording
from logitproof.properties.truth.recording import DIGITS

GROUPED = Sizes(B=1, T=3, V=4, heads=4, kv_heads=2, F=2, L=1)
UNTIED = Sizes(B=1, T=3, V=4, head_width=4, F=2, L=1, tied=False)
BOTH = Sizes(B=2, T=3, V=4, heads=4, kv_heads=2, F=2, L=2, tied=False)
SIZES = pytest.mark.parametrize("sizes", [GROUPED, UNTIED, BOTH], ids=["grouped", "untied", "both"])
LAWS = [law for law in REGISTRY.values() if law.id.startswith(("grouped.", "untied."))]
OF_TEXTBOOK = [law for law in LAWS if not law.missing(TextbookSubject())]
OF_FOREIGN = [law for law in LAWS if not law.missing(ForeignSubject())]
TEXTBOOKS = (
    TextbookSubject(),
    TextbookSubject(
        Forms(norm="quotient", softmax="log-sum-exp", silu="sum", keeps=False, groups="rows")
    ),
    ReorderedSubject(1),
    ReorderedSubject(2),
)
NAMES = ["textbook", "other-forms", "reordered", "reordered-rows"]


@SIZES
def test_the_scalar_decoder_has_the_bits_of_its_alternatives(sizes: Sizes) -> None:
    case = case_of(sizes, 3, Regime(layout="packed"))
    scalar = ScalarDecoder(case.config, case.weights, C_LIBRARY)
    foreign = Foreign(
        config=case.config, weights=scalar.weights, conventions=SPECIFIED, arithmetic=C_LIBRARY
    )
    assert scalar.logits(case.ids, case.layout) == foreign.logits(case.ids, case.layout)


def with_weight(case: TruthCase, name: str, step: Any) -> Any:
    """The loss to 50 digits after one weight has moved, by a run that records nothing else."""
    arithmetic = recording()
    decoder = ScalarDecoder(case.config, case.weights, arithmetic)
    matrix = decoder.weights[name]
    matrix[0][-1] = arithmetic.record.exact(matrix[0][-1].value + step)
    return decoder.run(case.ids, case.targets, case.layout, case.valid).loss.value


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        (sizes, name)
        for sizes in (GROUPED, UNTIED)
        for name in case_of(sizes, 3, Regime()).config.parameter_shapes()
    ],
)
def test_a_gradient_is_the_slope_by_differences_of_50_digits(sizes: Sizes, name: str) -> None:
    case = case_of(sizes, 3, Regime(attention="hot"))
    columns = case.config.parameter_shapes()[name][-1]
    with mp.workdps(DIGITS):
        step = mpmath.mpf(10) ** -16
        slope = (with_weight(case, name, step) - with_weight(case, name, -step)) / (2 * step)
        gradient = case.truth.gradients[name].values[columns - 1]
        assert abs(gradient - slope) <= mpmath.mpf(10) ** -25 * (1 + abs(gradient))


@pytest.mark.parametrize("regime", REGIMES, ids=str)
def test_gradients_are_those_of_the_written_rules_too(regime: Regime) -> None:
    truth = case_of(BOTH, 5, regime).truth
    pairs = [
        (exact, written)
        for name, answer in truth.gradients.items()
        for exact, written in zip(answer.values, truth.differentiated[name], strict=True)
    ]
    with mp.workdps(DIGITS):
        largest = max(abs(exact) for exact, _ in pairs)
        assert all(abs(a - b) <= largest * mpmath.mpf(10) ** -25 for a, b in pairs)


@pytest.mark.parametrize("law", OF_TEXTBOOK, ids=lambda law: law.id)
@pytest.mark.parametrize("subject", TEXTBOOKS, ids=NAMES)
def test_a_program_of_the_class_is_never_wrong(law: Any, subject: Any) -> None:
    outcomes = list(law.steps(subject, 25))
    assert [o.difference for o in outcomes if o.difference] == []
    assert max(o.finding.worst_ratio for o in outcomes) <= 1.0
    assert sum(o.finding.undecidable for o in outcomes) == 0


@pytest.mark.parametrize("law", OF_FOREIGN, ids=lambda law: law.id)
def test_the_alternatives_keep_the_laws_where_they_are_the_specifications(law: Any) -> None:
    outcome = law(ForeignSubject(), 25)
    assert (outcome.difference, outcome.cases > 0) == (None, True)


@pytest.mark.property
@settings(max_examples=settings().max_examples // 4)  # each has two truths
@given(decoder_cases(sharing=True), st.integers(0, 2**32 - 1))
def test_drawn_decoders_are_consistent_with_rounding(case: TruthCase, seed: int) -> None:
    laws = [REGISTRY["grouped.logits"], REGISTRY["grouped.gradients"]]
    found = [law.check(ReorderedSubject(seed), case) for law in laws]
    assert [f.difference for f in found if f.difference] == []  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("law", OF_TEXTBOOK, ids=lambda law: law.id)
def test_few_entries_of_many_cases_are_undecidable(law: Any) -> None:
    outcomes = list(law.steps(ReorderedSubject(3), 400))
    assert [o.difference for o in outcomes if o.difference] == []
    undecidable = sum(o.finding.undecidable for o in outcomes)
    assert undecidable < 0.01 * sum(o.finding.entries for o in outcomes)


@pytest.mark.parametrize("law", OF_TEXTBOOK, ids=lambda law: law.id)
def test_the_bound_is_not_idle(law: Any) -> None:
    found = [outcome.finding for outcome in law.steps(ScalarSubject(), 25)]
    assert np.median([f.median_ratio for f in found]) > 1e-4
    assert max(f.worst_ratio for f in found) > 1e-2


@pytest.mark.parametrize("subject", [CoreSubject(), BlasSubject()])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
def test_the_core_is_not_asked(law: Any, subject: Any) -> None:
    assert set(law.missing(subject)) & {"grouped-heads", "untied-head"}


def test_grouped_cases_tell_maps_apart_and_groups_from_heads() -> None:
    configs = [case.config for case in grouped_cases(25)]
    assert all(
        c.kv_heads and c.heads % c.kv_heads == 0 < c.heads // c.kv_heads - 1 for c in configs
    )
    assert sum(c.kv_heads == 2 for c in configs) >= 10  # in blocks and in turn differ
    assert {c.heads // (c.kv_heads or 1) for c in configs} == {2, 3}


@pytest.mark.parametrize("draw", [truth_cases, grouped_cases, untied_cases])
def test_cases_drawn_anew_stay_of_their_kind(draw: Any) -> None:
    case = list(draw(4))[-1]
    other = redrawn(case, 77)
    assert other.ids != case.ids
    assert (other.config.kv_heads is None) == (case.config.kv_heads is None)
    assert (other.config.tied, other.regime) == (case.config.tied, case.regime)


def test_taps_hold_each_shared_head_once() -> None:
    case = case_of(GROUPED, 3, Regime())
    taps = scalar_taps(ScalarDecoder(case.config, case.weights), case.ids, None)
    heads = {name: taps[f"blocks.0.{name}"].shape[1] for name in ("query", "key", "value", "mix")}
    assert heads == {"query": 4, "key": 2, "value": 2, "mix": 4}
    assert taps["blocks.0.key_unrotated"].shape == taps["blocks.0.key"].shape
