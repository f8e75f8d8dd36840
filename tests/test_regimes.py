"""Regimes: what a case promises, it holds; the census counts it; the plainest case is plain."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import find, given
from hypothesis import settings as hypothesis_settings
from mpmath import mp

from logitproof.properties.decoder_strategies import decoder_cases, regimes
from logitproof.properties.laws.regimes import (
    CELLS,
    CHOICES,
    REGIMES,
    Override,
    Regime,
    Sizes,
    TruthCase,
    case_of,
    census,
    truth_cases,
)
from logitproof.properties.scalar import ScalarDecoder
from logitproof.properties.scalar.forward import Row

SIZES = Sizes(B=2, T=4, V=5, head_width=4, heads=2, F=2)
QUICK, CI = 25, 100
FEW = hypothesis_settings(max_examples=100, database=None, derandomize=True, deadline=None)


def case(**choices: str) -> TruthCase:
    return case_of(SIZES, 21, Regime(**choices))


def rows(of: TruthCase) -> list[Row]:
    return ScalarDecoder(of.config, of.weights).rows(of.ids, of.layout)


def score_range(of: TruthCase) -> float:
    """The widest log ratio of two attention weights in one row of keys."""
    probabilities = [
        p for r in rows(of) for b in r.blocks for h in b.heads for p in h.probabilities
    ]
    floor = math.ulp(0.0)
    return max(math.log(max(p) / max(min(p), floor)) for p in probabilities if p)


def logit_spread(of: TruthCase) -> float:
    logits = of.truth.logits.doubles[0]
    return float((logits.max(axis=-1) - logits.min(axis=-1)).max())


def mean_squares(of: TruthCase) -> Any:
    table = np.array(of.weights["token_embedding.weight"])
    with np.errstate(over="ignore"):
        return np.mean(table * table, axis=1)


def test_attention_is_cold_warm_and_hot() -> None:
    cold, warm, hot = (score_range(case(attention=a)) for a in ("cold", "warm", "hot"))
    assert cold < 0.2 < warm < 10.0 < hot


def test_tiny_rows_have_a_mean_square_near_epsilon() -> None:
    ratios = mean_squares(case(norm="tiny")) / 1e-6
    assert (ratios > 0.01).all()
    assert (ratios < 10.0).all()


@pytest.mark.parametrize(("norm", "least"), [("spiky", 1e2), ("offset", 1e15)])
def test_every_other_row_has_one_large_feature(norm: str, least: float) -> None:
    table = np.abs(case(norm=norm).weights["token_embedding.weight"])
    assert (table[::2, 0] > least * table[::2, 1:].max()).all()
    assert (table[1::2] < 2.0).all()


def test_near_tied_logits_differ_and_nearly_do_not() -> None:
    assert 0.0 < logit_spread(case(logits="near-tied")) < 1e-9


def test_logits_reach_a_thousand_and_nearly_the_largest_double() -> None:
    assert 500.0 < logit_spread(case(logits="thousand")) < 20000.0
    assert 1e289 < logit_spread(case(logits="huge")) < 1e292


def test_offset_logits_lie_around_1e17_and_differ() -> None:
    logits = case(logits="offset").truth.logits.doubles[0]
    assert np.abs(logits).min() > 1e15
    assert 1e16 < np.abs(logits).max() < 1e18
    assert (logits.max(axis=-1) - logits.min(axis=-1)).max() > 1e11


def test_subnormal_logits_are_subnormal_and_not_all_zero() -> None:
    logits = np.abs(case(values="subnormal").truth.logits.doubles[0])
    assert logits.max() < 2.0**-1022
    assert logits.max() > 2.0**-1060


def test_huge_values_have_squares_near_overflow_and_beyond() -> None:
    largest = [max(mean_squares(case(values=v))) for v in ("huge", "overflow")]
    assert 1e298 < largest[0] < 1e302
    assert largest[1] == math.inf


def test_both_zeros_occur_and_a_whole_row_of_them() -> None:
    weights = case(values="zeros").weights
    table = np.array(weights["token_embedding.weight"])
    assert np.signbit(table[0]).all()
    flat = np.concatenate([np.ravel(v) for v in weights.values()])
    zeros = flat[flat == 0.0]
    assert {bool(s) for s in np.signbit(zeros)} == {True, False}


def test_dyadic_weights_are_small_eighths() -> None:
    drawn = case(values="dyadic")
    flat = np.concatenate([np.ravel(v) for v in drawn.weights.values()]) * 8.0
    assert (flat == np.round(flat)).all()
    assert np.abs(flat).max() <= 16.0


def test_far_positions_are_far_and_within_the_capacity() -> None:
    far = case(positions="far")
    assert far.layout is not None
    assert min(map(min, far.layout.positions)) >= 1023
    assert max(map(max, far.layout.positions)) == far.config.max_positions - 1


def test_padded_rows_end_in_padding_without_a_target() -> None:
    padded = case(layout="padded")
    assert all(row[-1] == -1 for row in padded.ids)
    assert padded.valid is not None
    assert not all(map(all, padded.valid))


def test_packed_rows_have_several_segments() -> None:
    packed = case(layout="packed")
    assert packed.segments is not None
    assert all(len(sizes) == 2 for sizes in packed.segments)
    assert packed.layout is not None
    assert max(map(max, packed.layout.range_starts)) > 0


def test_ids_repeat_on_purpose() -> None:
    repeating = [c for c in truth_cases(QUICK) if any(len(set(r)) < len(r) for r in c.ids)]
    assert len(repeating) > QUICK / 3
    assert any(max(map(row.count, row)) > 2 for c in truth_cases(CI) for row in map(list, c.ids))


def test_the_quick_cases_stand_in_every_cell_of_the_census() -> None:
    counts = census(c.regime.cells for c in truth_cases(QUICK))
    assert list(counts) == list(CELLS)
    assert [cell for cell, count in counts.items() if not count] == []
    assert sum(counts.values()) == QUICK * len(CHOICES)


def test_the_census_shows_the_cells_in_which_nothing_ran() -> None:
    counts = census([Regime().cells])
    assert counts["attention=warm"] == 1
    assert counts["attention=hot"] == 0


def test_every_choice_is_taken_by_some_regime() -> None:
    assert set(CELLS) == {cell for regime in REGIMES for cell in regime.cells}


def test_a_regime_tells_what_is_not_ordinary() -> None:
    assert str(Regime()) == "ordinary"
    assert str(Regime(attention="hot", layout="packed")) == "attention=hot, layout=packed"


def test_the_first_case_is_the_smallest() -> None:
    first = next(truth_cases(1))
    assert [list(row) for row in first.ids] == [[first.ids[0][0]]]
    assert (first.config.layers, first.config.heads, first.config.model_width) == (1, 1, 2)
    assert first.regime.values == "dyadic"


def test_cases_are_the_same_in_every_run() -> None:
    again = case_of(SIZES, 21, Regime(attention="hot"))
    assert str(again) == str(case(attention="hot"))
    assert again.weights == case(attention="hot").weights


def test_an_override_sets_one_weight() -> None:
    name = "blocks.0.ffn.up.weight"
    plain = case()
    changed = plain.with_overrides((Override(name=name, place=3, value=5e-324),))
    differing = [n for n in plain.weights if plain.weights[n] != changed.weights[n]]
    assert differing == [name]
    assert np.ravel(changed.weights[name])[3] == 5e-324
    assert f"{name}[3] = 5e-324" in str(changed)


@given(regimes(overflowing=True))
def test_drawn_regimes_stand_in_known_cells(regime: Regime) -> None:
    assert set(regime.cells) <= set(CELLS)


@pytest.mark.property
@given(decoder_cases(overflowing=True))
def test_drawn_cases_can_be_asked_in_all_their_cells(drawn: TruthCase) -> None:
    V, C = drawn.config.vocabulary_size, drawn.config.max_positions
    assert all(-1 <= token < V for row in (*drawn.ids, *drawn.targets) for token in row)
    assert any(target >= 0 for row in drawn.targets for target in row)
    assert drawn.layout is None or max(map(max, drawn.layout.positions)) < C


def test_a_failure_shrinks_to_one_cell_of_small_dyadic_weights() -> None:
    smallest = find(decoder_cases(), lambda _: True, settings=FEW)
    config = smallest.config
    assert [len(row) for row in smallest.ids] == [1]
    assert (config.layers, config.heads, config.feed_forward_width) == (1, 1, 1)
    assert smallest.regime.values == "dyadic"
    assert smallest.overrides == ()


def test_a_failure_keeps_the_regime_that_it_needs_and_no_more() -> None:
    def hot(drawn: TruthCase) -> bool:
        return drawn.regime.attention == "hot" and len(drawn.ids[0]) > 1

    smallest = find(decoder_cases(), hot, settings=FEW)
    plainest = {c[0] for c in CHOICES.values()} - {"cold"}
    assert smallest.regime.attention == "hot"
    assert len(smallest.ids[0]) == 2
    assert {getattr(smallest.regime, n) for n in CHOICES if n != "attention"} == plainest


def test_truth_is_told_to_fifty_digits() -> None:
    loss = case().truth.loss
    with mp.workdps(50):
        near, rest = (float(part) for part in loss.doubles)
        assert abs(loss.values[0] - near - rest) < mp.mpf(2) ** -100
