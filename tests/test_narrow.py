"""Single operations in float16 and bfloat16: the numbers, the bounds, and who is called wrong."""

from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp

from logitproof.properties import bounds
from logitproof.properties.laws import REGISTRY
from logitproof.properties.laws.drawn import Draw
from logitproof.properties.laws.narrow import FORMATS, RULES, Call, Tally, holds
from logitproof.properties.laws.narrow import nearest as law_nearest
from logitproof.properties.narrow_ops import DIGITS, NarrowOps, NarrowSubject, nearest
from logitproof.properties.oracles import operations as oracle
from logitproof.properties.scalar import Generator

NAMES = ("float16", "bfloat16")
LAWS = [law for law in REGISTRY.values() if law.id.partition(".")[0] in NAMES]
CASES = 25
ALL_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE_HALVES = ALL_HALVES[np.isfinite(ALL_HALVES)].astype(np.float64)
G = Generator(3)
SPREAD = np.array([np.ldexp(2.0 * G.unit() - 1.0, G.below(48) - 30) for _ in range(4000)])
EDGES = np.array([65504.0, 65519.996, 65520.0, 65536.0, 2.0**-24, 2.0**-25, 3.0 * 2.0**-25, -0.0])
POSITIVE_HALVES = FINITE_HALVES[: len(FINITE_HALVES) // 2]
TIES = (POSITIVE_HALVES[:-1] + POSITIVE_HALVES[1:]) / 2.0
WIDE = np.array([np.ldexp(2.0 * G.unit() - 1.0, G.below(274) - 148) for _ in range(4000)])
WIDE = WIDE.astype(np.float32)


def upper_halves(x: Any) -> Any:
    """Bfloat16 by integers: half an upper half, less one where that is even, is added."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return kept.view(np.float32).astype(np.float64)


@pytest.mark.parametrize("x", [SPREAD, EDGES, -EDGES, TIES], ids=["spread", "edges", "-", "ties"])
def test_float16_numbers_are_those_of_numpy(x: Any) -> None:
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).astype(np.float64)
    assert nearest(x, *DIGITS["float16"]).tobytes() == expected.tobytes()


def test_bfloat16_numbers_are_upper_halves_of_float32_ones() -> None:
    expected = upper_halves(WIDE)
    assert nearest(WIDE.astype(np.float64), *DIGITS["bfloat16"]).tobytes() == expected.tobytes()


def test_the_laws_know_the_numbers_of_both_formats_by_themselves() -> None:
    assert holds(FORMATS["float16"], ALL_HALVES.astype(np.float64)).all()
    assert not holds(FORMATS["float16"], TIES).any()
    assert holds(FORMATS["bfloat16"], upper_halves(WIDE)).all()
    held = SPREAD[abs(SPREAD) <= 65504.0]
    own = [law_nearest(FORMATS["float16"], x) for x in held.tolist()]
    assert np.array(own).tobytes() == held.astype(np.float16).astype(np.float64).tobytes()


class NumpyHalves(NarrowOps):
    """Float16 arrays in numpy's own arithmetic."""

    def step(self, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(x, dtype=np.float16)

    def stored(self, x: Any) -> Any:
        return self.step(x)

    def added(self, terms: Any, axis: int) -> Any:
        return np.asarray(terms, dtype=np.float16).sum(axis=axis)

    def _product(self, a: Any, b: Any) -> Any:
        return np.asarray(a, dtype=np.float16) @ np.asarray(b, dtype=np.float16)

    def _exponentials(self, a: Any, axis: int) -> Any:
        halves = np.asarray(a, dtype=np.float16)
        return np.exp(halves - halves.max(axis=axis, keepdims=True))


class Backwards(NarrowOps):
    """Sums in descending order."""

    def added(self, terms: Any, axis: int) -> Any:
        return super().added(np.flip(terms, axis), axis)


class InPairs(NarrowOps):
    """Sums by halves."""

    def added(self, terms: Any, axis: int) -> Any:
        n = terms.shape[axis]
        halves = [terms] if n < 2 else np.split(terms, [n // 2], axis)
        sums = [h.sum(axis=axis) if h.shape[axis] < 2 else self.added(h, axis) for h in halves]
        return sums[0] if n < 2 else self.step(sums[0] + sums[1])


class Judged(NarrowSubject):
    """Other operations under test."""

    def __init__(self, operations: type[NarrowOps], accumulation: str = "format") -> None:
        super().__init__(accumulation)
        self.operations = operations

    def narrow(self, format: str) -> Any:
        return self.operations(format, self.conventions["accumulation"])


SUBJECTS = [
    Judged(operations, accumulation)
    for operations in (NarrowOps, Backwards, InPairs)
    for accumulation in ("format", "float32")
]
TOLD = [f"{s.operations.__name__}-{s.conventions['accumulation']}" for s in SUBJECTS]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
@pytest.mark.parametrize("subject", SUBJECTS, ids=TOLD)
def test_a_program_of_the_class_is_never_wrong(law: Any, subject: Any) -> None:
    outcomes = list(law.steps(subject, CASES))
    assert [o.difference for o in outcomes if o.difference] == []
    assert sum(o.finding.entries for o in outcomes) > 2.5 * CASES


@pytest.mark.parametrize("law", [x for x in LAWS if x.id.startswith("float16")], ids=lambda x: x.id)
def test_numpys_own_float16_is_never_wrong(law: Any) -> None:
    outcome = law(Judged(NumpyHalves), CASES)
    assert (outcome.difference, outcome.cases) == (None, CASES)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
def test_the_bounds_are_sharp_where_what_is_handed_out_is_rounded_once(law: Any) -> None:
    found = [o.finding for o in law.steps(NarrowSubject("float32"), CASES)]
    assert 0.7 < max(f.worst_ratio for f in found) <= 1.0
    assert sum(f.undecidable for f in found) == 0


def judged(name: str, accumulation: str, call: Call, answer: Any) -> Tally:
    tally = Tally(name)
    tally.judge(call.name, call.estimate(RULES[name, accumulation]), np.array(answer))
    return tally


def product(x: float, y: float) -> Call:
    return Call(name="mul", operands=(np.array([x]), np.array([y])), upstream=np.ones(1))


@pytest.mark.parametrize("accumulation", ["format", "float32"])
@pytest.mark.parametrize(
    ("x", "y", "answer", "holds"),
    [
        (300.0, 300.0, np.inf, True),
        (-300.0, 300.0, -np.inf, True),
        (300.0, 300.0, 65504.0, False),
        (300.0, 300.0, -np.inf, False),
        (300.0, 300.0, np.nan, False),
        (300.0, 300.0, 90000.0, False),  # no float16 number
        (32752.0, 2.0, 65504.0, True),
        (252.0, 256.0, np.inf, False),
        (2.0**-14, 2.0**-10, 2.0**-24, True),
        (2.0**-14, 2.0**-10, 0.0, False),  # the smallest number, not flushed
        (2.0**-14, 2.0**-11, 0.0, True),  # half of it: a tie
        (2.0**-14, 2.0**-11, 2.0**-24, True),
        (2.0**-14, 2.0**-12, 2.0**-24, False),
        (1.5, 1.5, 2.25, True),
        (1.5, 1.5, 2.25 + 2.0**-8, False),
    ],
)
def test_overflow_and_underflow_of_float16_are_derived(
    x: float, y: float, answer: float, holds: bool, accumulation: str
) -> None:
    tally = judged("float16", accumulation, product(x, y), [answer])
    assert (tally.difference is None) == holds


TERMS = np.array([[60000.0, 60000.0, -60000.0, -50000.0]])
SUM = Call(name="sum", operands=(TERMS,), upstream=np.ones(1), arguments={"axis": 1})
POSITIVE = Call(name="sum", operands=(abs(TERMS),), upstream=np.ones(1), arguments={"axis": 1})


@pytest.mark.parametrize("answer", [10000.0, np.inf, np.nan, -np.inf])
def test_a_sum_that_may_overflow_on_the_way_is_not_asked_for_where_steps_are_rounded(
    answer: float,
) -> None:
    assert judged("float16", "format", SUM, [answer]).ratios == []
    once = judged("float16", "float32", SUM, [answer])
    assert (once.difference is None) == (answer == 10000.0)


@pytest.mark.parametrize("accumulation", ["format", "float32"])
def test_a_sum_of_one_sign_that_overflows_is_infinite_in_every_order(accumulation: str) -> None:
    assert judged("float16", accumulation, POSITIVE, [np.inf]).difference is None
    assert judged("float16", accumulation, POSITIVE, [65504.0]).difference is not None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([2.25, 2.25], "mul, shape: expected [1], got [2]"),
        ([2.2501], "mul[0]: expected a number of float16, got 2.2501"),
        ([2.5], "mul[0]: expected 2.25 within "),
    ],
)
def test_what_is_wrong_is_told_in_words(answer: Any, words: str) -> None:
    assert str(judged("float16", "format", product(1.5, 1.5), answer).difference).startswith(words)


class Few:
    """One operation."""

    def __init__(self, *_: Any) -> None:
        self.exp = NarrowOps("bfloat16", "format").exp


class Nothing:
    """No operation."""

    def __init__(self, *_: Any) -> None:
        """Nothing is offered."""


def test_operations_that_are_not_offered_are_not_asked_for_but_one_must_be() -> None:
    law = REGISTRY["bfloat16.operations"]
    assert law(Judged(Few), 6).holds  # type: ignore[arg-type]
    assert "one at least" in str(law(Judged(Nothing), 6).difference)  # type: ignore[arg-type]


class BySum(NarrowOps):
    """Log-probabilities as z minus a log-sum-exp that is kept in the format."""

    def log_softmax(self, a: Any, *, axis: int) -> Any:
        m = a.max(axis=axis, keepdims=True)
        total = np.expand_dims(self.added(self._exponentials(a, axis), axis), axis)
        value = self.stored(a - self.stored(m + np.log(total)))
        return value, super().log_softmax(a, axis=axis)[1]


def test_an_operation_may_be_declared_to_round_its_steps_where_others_do_not() -> None:
    law, subject = REGISTRY["bfloat16.operations"], Judged(BySum, "float32")
    assert "log_softmax" in str(law(subject, CASES).difference)
    subject.conventions = {**subject.conventions, "accumulation:log_softmax": "format"}
    assert law(subject, CASES).holds


# the centres of the bounds that no other oracle has
ROW, UP = np.array([[0.5, -1.25, 3.0]]), np.array([[1.0, -0.5, 2.0]])


def close(values: Any, estimate: bounds.Estimate) -> bool:
    with mp.workdps(bounds.DIGITS):
        pairs = zip(values, estimate.centres, strict=True)
        return all(mpmath.almosteq(x, y, rel_eps=mpmath.mpf(10) ** -50) for x, y in pairs)


def test_a_softmax_is_the_exponential_of_its_logarithm() -> None:
    logs = oracle.value("log_softmax", ROW, axis=1)
    with mp.workdps(bounds.DIGITS):
        assert close([mp.exp(x) for x in logs.cells], bounds.forward("softmax", ROW, axis=1))


def test_a_softmax_hands_back_the_slope_of_that() -> None:
    logs = oracle.value("log_softmax", ROW, axis=1)
    with mp.workdps(bounds.DIGITS):
        through = np.array([u * mp.exp(x) for u, x in zip(UP[0], logs.cells, strict=True)])
        total = mp.fsum(through)
        slopes = [t - mp.exp(x) * total for t, x in zip(through, logs.cells, strict=True)]
        (given,) = bounds.contributions("softmax", UP, ROW, axis=1)
        assert close(slopes, given)


def test_a_norm_divides_by_the_root_mean_square() -> None:
    gain, epsilon = np.array([1.0, 0.5, -2.0]), 0.25
    with mp.workdps(bounds.DIGITS):
        root = mp.sqrt(mp.fsum(mpmath.mpf(x) ** 2 for x in ROW[0].tolist()) / 3 + epsilon)
        rows = [x / root * g for x, g in zip(ROW[0].tolist(), gain.tolist(), strict=True)]
        assert close(rows, bounds.rms_norm(ROW, gain, epsilon=epsilon))


@pytest.mark.parametrize("regime", ["ordinary", "tiny", "large"])
def test_rounding_once_is_never_allowed_more_than_rounding_every_step(regime: str) -> None:
    draw = Draw(seed=5, size=9, regime=regime)
    generator = draw.generator()
    x = np.array([[law_nearest(FORMATS["float16"], 4.0 * generator.unit()) for _ in range(40)]])
    each, once = (
        bounds.forward("sum", x, axis=1, rules=RULES["float16", accumulation]).cells[0]
        for accumulation in ("format", "float32")
    )
    assert once < each / 10


def test_what_has_no_decoder_refuses_to_be_one() -> None:
    subject = NarrowSubject()
    with pytest.raises(ValueError, match="no logits"):
        subject.logits([[0]])
    with pytest.raises(ValueError, match="no loss"):
        subject.loss_and_gradients([[0]], [[0]])
    with pytest.raises(ValueError, match="neither"):
        NarrowSubject("double")


def test_who_claims_operations_alone_is_asked_for_nothing_else() -> None:
    needs = {need for law in LAWS for need in law.missing(Judged(NarrowOps))}
    assert needs == set()
    asked = [law.id for law in REGISTRY.values() if not law.missing(NarrowSubject())]
    assert asked == [law.id for law in LAWS]
    assert {law.needs for law in LAWS} == {(f"operations:{name}",) for name in NAMES}
