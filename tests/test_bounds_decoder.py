"""The derived bound of a whole decoder: no program of the class leaves it, mistakes do."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logitproof.properties.decoder_strategies import decoder_cases
from logitproof.properties.faults import REGISTRY as FAULTS
from logitproof.properties.laws import REGISTRY, DecoderUnderTest, Finding
from logitproof.properties.laws.regimes import (
    Override,
    Regime,
    Sizes,
    TruthCase,
    case_of,
    grouped_cases,
    truth_cases,
    untied_cases,
)
from logitproof.properties.laws.truth import LAWS, Compared, finding
from logitproof.properties.leaning import LEANS, LeaningSubject
from logitproof.properties.reordering import ReorderedSubject
from logitproof.properties.scalar import C_LIBRARY, Layout
from logitproof.properties.subjects import CoreSubject, ScalarSubject
from logitproof.properties.textbook import Forms, TextbookSubject
from logitproof.properties.truth import BINARY32, BINARY64, Format, Truth, truth_of

FORMS = (
    Forms(),
    Forms(norm="quotient", softmax="log-sum-exp", loss="log-sum-exp", silu="sum", keeps=False),
    Forms(norm="gain-first", silu="product", mean="output"),
)
SUBJECTS = (
    *map(TextbookSubject, FORMS),
    ReorderedSubject(1),
    CoreSubject(),
    ScalarSubject(C_LIBRARY),
)
NAMES = ["textbook", "other-forms", "gain-first", "reordered", "core", "c-library"]
OVERFLOWING = {"inverse-root-by-sqrt", "softmax-maximum-of-batch"}  # where the class must not
ORDERS = [f for f in FAULTS.values() if f.kind == "order" and f.id not in OVERFLOWING]
COARSE = Format(unit=2.0**-44, eta=2.0**-1074, largest=BINARY64.largest)
SIZES = Sizes(B=1, T=3, V=4, head_width=4, F=2)


def shallow(case: TruthCase) -> Truth:
    return truth_of(
        case.config, case.weights, case.ids, case.targets, case.layout, case.valid, digits=50
    )


def findings(law: Any, subject: DecoderUnderTest, count: int) -> list[Finding]:
    return [law.check(subject, case) for case in truth_cases(count)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
@pytest.mark.parametrize("subject", SUBJECTS, ids=NAMES)
def test_a_program_of_the_class_is_never_wrong(law: Any, subject: DecoderUnderTest) -> None:
    found = findings(law, subject, 25)
    assert [f.difference for f in found if f.difference] == []
    assert max(f.worst_ratio for f in found) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
@pytest.mark.parametrize("subject", SUBJECTS, ids=NAMES)
def test_few_entries_of_many_cases_are_undecidable(law: Any, subject: DecoderUnderTest) -> None:
    found = findings(law, subject, 400)
    assert [f.difference for f in found if f.difference] == []
    assert sum(f.undecidable for f in found) < 0.01 * sum(f.entries for f in found)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
def test_the_bound_is_not_idle(law: Any) -> None:
    found = findings(law, CoreSubject(), 25)
    assert sum(f.undecidable for f in found) == 0
    assert np.median([f.median_ratio for f in found]) > 1e-4
    assert max(f.worst_ratio for f in found) > 1e-2


# x r underflows in a norm's slope, and a factor near 1000 is still to come.
LATE_FACTOR = case_of(
    Sizes(V=3, L=0),
    2,
    Regime(layout="padded", norm="offset", logits="thousand", values="dyadic"),
    overrides=(Override(name="token_embedding.weight", place=28, value=5e-324),),
)

# The feed-forward is so large that rounding leaves no digit of what comes back through attention:
# probabilities whose sum is 1 but for roundings meet a slope that is itself nothing else.
NO_DIGIT_LEFT = case_of(
    Sizes(T=2, F=2),
    15443295135013400949,
    Regime(values="dyadic", attention="cold"),
    overrides=(Override(name="blocks.0.ffn_norm.gain", place=0, value=1e17),),
)

# What another order may lose in the gradient of a huge logit is more than a double holds.
LOSS_WITHOUT_END = case_of(
    Sizes(V=6, heads=2),
    1,
    Regime(attention="cold", norm="offset", logits="huge"),
    overrides=(Override(name="blocks.0.ffn.gate.weight", place=2, value=1e17),),
)

# Slopes that cancel to nothing meet others that do, or are rounded at the size that they have in
# a program alone: more than a hundred times the first order, in float32 or in doubles.
NOISES = (
    case_of(
        Sizes(T=3),
        728493565,
        Regime(values="dyadic", attention="hot", norm="offset", logits="thousand"),
    ),
    case_of(
        Sizes(T=2, V=3, F=2),
        3816475175,
        Regime(values="dyadic", attention="cold", norm="tiny", logits="near-tied"),
        overrides=(Override(name="blocks.0.attention.query.weight", place=24, value=2.0**-30),),
    ),
    case_of(
        Sizes(T=3, V=3),
        2847632843,
        Regime(values="dyadic", attention="cold", norm="offset", logits="near-tied"),
        overrides=(
            Override(name="blocks.0.attention.output.weight", place=40, value=1e8),
            Override(name="blocks.0.attention.value.weight", place=41, value=0.125),
        ),
    ),
)

# Slopes of 1e-186 cancel in the primitives down to 1e-317; fifty digits leave 1e-237 of them.
CANCELLED = replace(
    case_of(
        Sizes(T=3, V=3, heads=2, F=2), 1, Regime(values="zeros", logits="thousand", layout="padded")
    ),
    ids=[[1, 1, -1, -1]],
    targets=[[2, 2, -1, -1]],
    valid=[[True, True, False, False]],
    layout=Layout.packed([[2]], 4),
    segments=((2,),),
)

# A slope of 5e-324 times one below 1 is 0 in doubles, and what it multiplies is off by 1e273.
SMALL_SLOPE = case_of(
    Sizes(T=1, V=4, heads=2, F=1),
    26,
    Regime(values="zeros", attention="cold", norm="spiky", logits="huge"),
    overrides=(Override(name="blocks.0.ffn.gate.weight", place=1, value=5e-324),),
)

# Slopes beyond the largest double, in the truth itself.
SLOPES_WITHOUT_END = case_of(
    Sizes(T=1, V=2, heads=1, F=1),
    2,
    Regime(values="huge", logits="huge"),
    overrides=tuple(Override(name="token_embedding.weight", place=i, value=0.0) for i in range(2)),
)

# Logits of 3e167 that lie 4.6e150 apart, less than rounding: a program may well see a tie.
TIED_BY_ROUNDING = case_of(
    Sizes(T=1, V=2, heads=1, F=1, L=0),
    0,
    Regime(values="huge", logits="offset"),
    overrides=(Override(name="final_norm.gain", place=1, value=1.0),),
)


@pytest.mark.property
@given(decoder_cases())
@example(LATE_FACTOR)
@example(NO_DIGIT_LEFT)
@example(TIED_BY_ROUNDING)
@example(LOSS_WITHOUT_END)
@example(CANCELLED)
@example(SMALL_SLOPE)
def test_drawn_decoders_are_consistent_with_rounding(case: TruthCase) -> None:
    law = REGISTRY["truth.gradients"]
    assert law.check(TextbookSubject(), case).difference is None  # type: ignore[union-attr]


@pytest.mark.property
@given(decoder_cases(), st.integers(0, 2**32 - 1))
@example(LATE_FACTOR, 0)
@example(LOSS_WITHOUT_END, 0)
@example(CANCELLED, 0)
@example(TIED_BY_ROUNDING, 0)
@example(SMALL_SLOPE, 0)
def test_no_order_of_factors_is_a_mistake(case: TruthCase, seed: int) -> None:
    found = [law.check(ReorderedSubject(seed), case) for law in LAWS]
    assert [f.difference for f in found if f.difference] == []  # type: ignore[union-attr]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
def test_roundings_that_meet_a_slope_without_a_digit_are_no_mistake(law: Any) -> None:
    subject = TextbookSubject(Forms(softmax="log-sum-exp"))
    assert law.check(subject, NO_DIGIT_LEFT).difference is None


@pytest.mark.parametrize("forms", FORMS, ids=str)
@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_one_error_times_another_is_no_mistake(noise: TruthCase, forms: Forms) -> None:
    law: Any = REGISTRY["truth.gradients"]
    subjects = (TextbookSubject(forms), single_of(forms))
    assert [law.check(subject, noise).difference for subject in subjects] == [None, None]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
def test_a_bound_beyond_all_doubles_is_no_mistake(law: Any) -> None:
    found = law.check(TextbookSubject(), LOSS_WITHOUT_END)
    assert (found.difference, found.undecidable > 0) == (None, law.id == "truth.gradients")


def test_a_late_factor_widens_the_bound_of_the_entry_that_it_meets() -> None:
    (override,) = LATE_FACTOR.overrides
    plain = replace(LATE_FACTOR, overrides=(replace(override, value=0.0),))
    lost, kept = (
        case.truth.gradients["token_embedding.weight"].roundings.absolute
        for case in (LATE_FACTOR, plain)
    )
    assert 1e3 < lost[4] / kept[4] < 1e7
    assert (np.delete(lost, 4) < 2.0 * np.delete(kept, 4)).all()  # of no other entry


@pytest.mark.fault
@pytest.mark.parametrize("order", ORDERS, ids=lambda fault: fault.id)
def test_another_order_of_rounding_is_no_mistake(order: Any) -> None:
    with order:
        found = findings(REGISTRY["truth.gradients"], CoreSubject(), 10)
    assert [f.difference for f in found if f.difference] == []


def single(case: TruthCase, format: Format) -> Finding:
    """The textbook in 24 bits, judged by one format or the other."""
    subject = TextbookSubject(dtype=np.float32)
    subject.load(case.config, case.weights)
    actual = np.asarray(subject.logits(case.ids), dtype=np.float64)
    answer = case.truth.logits
    scale = float(np.abs(answer.doubles[0]).max())
    return finding(case, iter([Compared("logits", answer, actual, scale)]), format)


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_follows_the_unit_of_rounding(seed: int) -> None:
    case = case_of(SIZES, seed, Regime(values="dyadic"))  # exact in 24 bits
    assert single(case, BINARY32).difference is None
    assert single(case, BINARY64).difference is not None


def single_of(forms: Forms) -> TextbookSubject:
    """The textbook in float32, which says so."""
    subject = TextbookSubject(forms, dtype=np.float32)
    subject.conventions = {"functions": "numpy", "dtype": "float32"}
    return subject


def leaning(lean: str, case: TruthCase) -> Finding:
    """Logits and gradients whose roundings lean, on the grid of a format coarser than doubles."""
    subject, truth = LeaningSubject(lean, COARSE.unit), case.truth
    subject.load(case.config, case.weights)
    logits = np.array(subject.logits(case.ids, case.layout))
    batch = (case.ids, case.targets, case.layout, case.valid)
    gradients = subject.loss_and_gradients(*batch)[1]
    pairs = [("logits", truth.logits, logits)]
    pairs += [(n, a, np.array(gradients[n])) for n, a in truth.gradients.items()]
    scale = max(float(np.abs(answer.doubles[0]).max()) for _, answer, _ in pairs)
    return finding(case, iter([Compared(*pair, scale) for pair in pairs]), COARSE)


@pytest.mark.parametrize("lean", LEANS)
def test_roundings_that_all_lean_one_way_stay_within(lean: str) -> None:
    drawn = (*truth_cases(25), *grouped_cases(13), *untied_cases(13))
    cases = [c for c in drawn if not c.truth.overflows]
    found = [leaning(lean, case) for case in cases]
    assert [f.difference for f in found if f.difference] == []
    assert max(f.worst_ratio for f in found) > 0.02  # and the bound is used


def test_a_wrong_entry_is_told_with_its_bound() -> None:
    case = case_of(SIZES, 0, Regime())
    answer = case.truth.logits
    actual = answer.doubles[0].copy()
    actual[0, 2, 1] += 0.5
    words = str(finding(case, iter([Compared("logits", answer, actual, 1.0)])).difference)
    assert words.startswith("logits[0, 2, 1]: expected ")
    assert "off by 0.5" in words
    assert words.endswith("(1 of 12 are wrong)")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_wrong(value: float) -> None:
    case = case_of(SIZES, 0, Regime())
    actual = case.truth.logits.doubles[0].copy()
    actual[0, 0, 0] = value
    found = finding(case, iter([Compared("logits", case.truth.logits, actual, 1.0)]))
    assert found.difference is not None
    assert found.worst_ratio == np.inf


def test_a_bound_too_wide_decides_nothing() -> None:
    case = case_of(SIZES, 0, Regime())
    answer = case.truth.logits
    found = finding(case, iter([Compared("logits", answer, answer.doubles[0] + 1.0, 1e-13)]))
    assert found.difference is None
    assert found.undecidable == found.entries == 12


def test_bounds_grow_with_what_amplifies_rounding() -> None:
    regimes = (Regime(attention="cold"), Regime(), Regime(attention="hot"))
    truths = [case_of(SIZES, 11, regime).truth for regime in regimes]
    widths = [max(t.gradients["final_norm.gain"].roundings.relative) for t in truths]
    assert all(a < b for a, b in pairwise(widths))


class Silent(CoreSubject):
    """Lets what overflows come back as numbers that are not finite."""

    def logits(self, *_: Any) -> Any:
        return np.full((1, 3, 4), np.inf)


@pytest.mark.parametrize(("subject", "holds"), [(CoreSubject(), True), (Silent(), False)])
def test_overflow_must_be_refused_by_who_refuses(subject: Any, holds: bool) -> None:
    case = case_of(SIZES, 1, Regime(values="overflow"))
    found = REGISTRY["truth.logits"].check(subject, case)
    assert (found.difference is None) == holds  # type: ignore[union-attr]


@pytest.mark.parametrize("decoder", [TextbookSubject, CoreSubject, lambda: ReorderedSubject(0)])
def test_slopes_that_cancel_in_the_primitives_are_followed_to_the_end(decoder: Any) -> None:
    law: Any = REGISTRY["truth.gradients"]
    assert law.check(decoder(), CANCELLED).difference is None


@pytest.mark.parametrize("decoder", [TextbookSubject, CoreSubject, lambda: ReorderedSubject(0)])
def test_what_the_digits_leave_out_is_no_mistake(decoder: Any) -> None:
    law: Any = REGISTRY["truth.gradients"]
    case = replace(CANCELLED)
    vars(case)["truth"] = shallow(case)
    assert law.check(decoder(), case).difference is None


@pytest.mark.parametrize("terms", [63, 300])
def test_the_sum_of_a_loss_may_meet_its_largest_term_first(terms: int) -> None:
    """Then it never moves from 1: all other terms are less than half its spacing."""
    rows = [1.0, -1.0] + [1.0, 1.0] * terms
    table = tuple(
        Override(name="token_embedding.weight", place=i, value=v) for i, v in enumerate(rows)
    )
    gain = tuple(Override(name="final_norm.gain", place=i, value=-18.4) for i in range(2))
    sizes = Sizes(T=1, V=terms + 1, heads=1, F=1, L=0)
    case = replace(case_of(sizes, 0, Regime(), overrides=table + gain), ids=[[1]], targets=[[0]])
    loss = case.truth.loss
    assert 0.0 < float(loss.doubles[0]) < terms * 2.0**-53
    assert float(loss.doubles[0]) <= loss.roundings.bounds()[0]


@pytest.mark.parametrize("seed", range(4))
def test_one_key_leaves_no_slope_but_the_roundings_of_its_form(seed: int) -> None:
    law: Any = REGISTRY["truth.gradients"]
    case = case_of(Sizes(T=1, V=3, head_width=32), seed, Regime())
    assert law.check(TextbookSubject(Forms(mean="output")), case).difference is None


@pytest.mark.property
@settings(max_examples=settings().max_examples // 4)  # each has two truths
@given(decoder_cases())
@example(CANCELLED)
@example(SLOPES_WITHOUT_END)
def test_the_truth_knows_its_own_error(case: TruthCase) -> None:
    few, many = shallow(case).gradients.values(), case.truth.gradients.values()
    beyond = [
        (a, b, own)
        for x, y in zip(few, many, strict=True)
        for a, b, own in zip(x.values, y.values, x.roundings.own, strict=True)
        if not abs(a - b) <= own
    ]
    assert beyond == []


def tied(gap: float) -> TruthCase:
    """Two logits around 1e17, the second higher by the gap; the nearest doubles lie 16 away."""
    name, values = "token_embedding.weight", (1.0, 1.0, 1.0, 1.0 + gap)
    table = tuple(Override(name=name, place=i, value=v) for i, v in enumerate(values))
    gain = tuple(Override(name="final_norm.gain", place=i, value=v) for i, v in ((0, 1e17), (1, 1)))
    case = case_of(Sizes(T=1, V=2, heads=1, F=1, L=0), 0, Regime(), overrides=table + gain)
    return replace(case, ids=[[0]], targets=[[0]])


def test_who_wins_by_less_than_rounding_is_undecided() -> None:
    law: Any = REGISTRY["truth.gradients"]
    found = [law.check(TextbookSubject(), tied(gap)) for gap in (20.0, 1e5)]
    assert [f.difference for f in found] == [None, None]
    assert found[0].undecidable > found[1].undecidable == 0
