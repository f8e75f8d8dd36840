"""The truth of a whole decoder: against published figures, a second method, and itself broken."""

import math
from functools import cache
from typing import Any

import mpmath
import pytest
from mpmath import mp

from logitproof.golden.figures import figures, from_bits
from logitproof.properties.faults import Fault
from logitproof.properties.faults.oracle import FAULTS as ORACLE_FAULTS
from logitproof.properties.laws.published import config_of, weights_of
from logitproof.properties.laws.regimes import REGIMES, Regime, Sizes, TruthCase, case_of
from logitproof.properties.scalar import Config, ScalarDecoder
from logitproof.properties.truth import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    Format,
    Truth,
    truth_of,
)
from logitproof.properties.truth.adjoints import SAFETY, roundings
from logitproof.properties.truth.arithmetic import recording
from logitproof.properties.truth.recording import DIGITS, Record, slopes

SMALL_RUNS = ("R1", "R2", "R3", "R4")
SIZES = Sizes(B=1, T=3, V=4, head_width=4, F=2)


@cache
def golden_truth(run: str) -> Truth:
    figure = figures().runs[run]
    config = config_of(figures().configs[figure.config])
    return truth_of(config, weights_of(figure), figure.ids, figure.targets)


def golden_loss(run: str) -> Any:
    """The loss that the oracle computes now, with whatever is planted in it."""
    figure = figures().runs[run]
    config = config_of(figures().configs[figure.config])
    with mp.workdps(DIGITS):
        decoder = ScalarDecoder(config, weights_of(figure), recording())
        return decoder.run(figure.ids, figure.targets).loss.value


@pytest.mark.golden
@pytest.mark.parametrize("run", SMALL_RUNS)
def test_the_published_loss_lies_within_its_bound(run: str) -> None:
    loss = golden_truth(run).loss
    error = abs(from_bits(figures().runs[run].loss) - loss.values[0])
    assert error <= loss.roundings.bounds()[0] < 1e-12


@pytest.mark.golden
@pytest.mark.slow
@pytest.mark.parametrize("run", sorted(set(figures().runs) - set(SMALL_RUNS) - {"B3"}))
def test_the_published_loss_of_larger_models_lies_within_its_bound(run: str) -> None:
    test_the_published_loss_lies_within_its_bound(run)


@pytest.mark.fault
@pytest.mark.parametrize("fault", ORACLE_FAULTS, ids=lambda fault: fault.id)
def test_golden_figures_see_a_fault_of_the_oracle(fault: Fault) -> None:
    allowed = golden_truth("R1").loss.roundings.bounds()[0]
    published = from_bits(figures().runs["R1"].loss)
    with fault:
        assert abs(golden_loss("R1") - published) > allowed
    assert abs(golden_loss("R1") - published) <= allowed


def test_a_norm_alone_gives_a_known_number() -> None:
    config = Config(
        vocabulary_size=2, model_width=2, heads=1, feed_forward_width=1, layers=0,
        max_positions=1, rms_epsilon=0.0,
    )  # fmt: skip
    weights = {"token_embedding.weight": [[3.0, 4.0], [0.0, 0.0]], "final_norm.gain": [1.0, 1.0]}
    truth = truth_of(config, weights, [[0]], [[1]])
    with mp.workdps(DIGITS):
        five_roots = 5 * mp.sqrt(2)  # 25 / sqrt(12.5)
        assert abs(truth.logits.values[0] - five_roots) < mpmath.mpf(10) ** -48
        assert abs(truth.loss.values[0] - mp.log(1 + mp.exp(five_roots))) < mpmath.mpf(10) ** -48


def with_weight(case: TruthCase, name: str, step: Any) -> Any:
    """The loss to 50 digits after one weight has moved, by a run that records nothing else."""
    arithmetic = recording()
    decoder = ScalarDecoder(case.config, case.weights, arithmetic)
    matrix = decoder.weights[name]
    matrix[-1][-1] = arithmetic.record.exact(matrix[-1][-1].value + step)
    return decoder.run(case.ids, case.targets, case.layout, case.valid).loss.value


@pytest.mark.parametrize("name", list(case_of(SIZES, 3, Regime()).weights))
def test_a_gradient_is_the_slope_by_differences_of_50_digits(name: str) -> None:
    case = case_of(SIZES, 3, Regime(attention="hot"))
    with mp.workdps(DIGITS):
        step = mpmath.mpf(10) ** -16
        slope = (with_weight(case, name, step) - with_weight(case, name, -step)) / (2 * step)
        gradient = case.truth.gradients[name].values[-1]
        assert abs(gradient - slope) <= mpmath.mpf(10) ** -25 * (1 + abs(gradient))


@pytest.mark.parametrize("regime", REGIMES, ids=str)
def test_gradients_are_those_of_the_written_rules_too(regime: Regime) -> None:
    truth = case_of(SIZES, 5, regime).truth
    pairs = [
        (exact, written)
        for name, answer in truth.gradients.items()
        for exact, written in zip(answer.values, truth.differentiated[name], strict=True)
    ]
    with mp.workdps(DIGITS):
        largest = max(abs(exact) for exact, _ in pairs)
        assert all(abs(a - b) <= largest * mpmath.mpf(10) ** -25 for a, b in pairs)


@pytest.mark.parametrize(
    ("expression", "slope"),
    [
        (lambda x, y, _: x + y, 1),
        (lambda x, y, _: y - x, -1),
        (lambda x, y, _: x * y * x, 12),
        (lambda x, y, _: y / x, mpmath.mpf(-3) / 4),
        (lambda x, *_: -x, -1),
        (lambda x, _, a: a.log(x), mpmath.mpf(1) / 2),
        (lambda x, y, a: a.log1p(x + y), mpmath.mpf(1) / 6),
        (lambda x, _, a: a.exp(a.log(x)), 1),
        (lambda x, y, a: a.dot([x, y, x], [y, x, x]), 10),
        (lambda x, y, a: a.total([x, y, x]), 2),
    ],
    ids=["add", "subtract", "multiply", "divide", "negate", "log", "log1p", "exp", "dot", "total"],
)
def test_a_primitive_has_its_slope(expression: Any, slope: Any) -> None:
    arithmetic = recording()
    x, y = arithmetic.record.parameter(2), arithmetic.record.parameter(3)
    output = expression(x, y, arithmetic)
    assert mpmath.almosteq(slopes(arithmetic.record, output, [x])[0][0], slope)


def test_what_is_exact_leaves_no_entry() -> None:
    record = Record()
    zero, one, x = record.exact(0), record.exact(1), record.parameter(2)
    assert (x + zero) is x
    assert (zero + x) is x
    assert (x * zero).value == 0
    assert (one + one).index == -1
    assert len(record) == 1


def test_a_recorded_zero_keeps_its_slopes() -> None:
    arithmetic = recording()
    x = arithmetic.record.parameter(0)
    output = arithmetic.clean(x * arithmetic.number(3))
    assert slopes(arithmetic.record, output, [x])[0] == [3]


@pytest.mark.parametrize(
    ("format", "smallest_normal"),
    [(BINARY64, -1021), (BINARY32, -126), (BFLOAT16, -126), (BINARY16, -14)],
    ids=["binary64", "binary32", "bfloat16", "binary16"],
)
def test_products_above_the_smallest_normal_number_keep_their_unit(
    format: Format, smallest_normal: int
) -> None:
    assert format.low == smallest_normal + 22  # of binary64 one more: its eta is no double


@pytest.mark.parametrize(("format", "overflows"), [(BINARY64, False), (BINARY32, True)])
def test_what_overflows_depends_on_the_format(format: Format, overflows: bool) -> None:
    case = case_of(SIZES, 1, Regime(values="huge"))
    truth = truth_of(case.config, case.weights, case.ids, case.targets, format=format)
    assert truth.overflows == overflows


def test_a_narrower_format_loses_more_where_parts_underflow() -> None:
    case = case_of(SIZES, 0, Regime(values="dyadic"))  # the first order is all that is seen
    weights = {**case.weights, "final_norm.gain": [2.0**-120, 1.0, 1.0, 1.0]}
    wide, narrow = (
        truth_of(case.config, weights, case.ids, case.targets, format=format).logits.roundings
        for format in (BINARY64, BINARY32)
    )
    assert (narrow.relative == wide.relative).all()
    assert (narrow.absolute > wide.absolute).all()


def test_overflow_on_the_way_is_said() -> None:
    assert case_of(SIZES, 1, Regime(values="overflow")).truth.overflows
    assert not case_of(SIZES, 1, Regime(values="huge")).truth.overflows


@pytest.mark.parametrize(
    ("step", "given", "rounds"),
    [
        ("sin", 1.0, True),
        ("cos", 7.0, True),
        ("log", 3.0, True),
        ("cos", 0.0, False),
        ("log", 1.0, False),
        ("single", 2.0**24 + 1.0, True),
        ("single", 2.0**24, False),
    ],
)
def test_what_is_known_exactly_is_rounded_all_the_same(
    step: str, given: float, rounds: bool
) -> None:
    arithmetic = recording()
    result = getattr(arithmetic, step)(arithmetic.number(given))
    assert (result.index >= 0) == rounds
    assert (sum(arithmetic.record.sizes) > 0.0) == rounds


def test_an_error_of_underflow_bends_a_function_too() -> None:
    arithmetic = recording()
    x = arithmetic.record.parameter(1.0)
    arithmetic.record.counts[x.index] = 1.0 / BINARY32.eta  # off by 1
    result = arithmetic.exp(x)
    moved, _ = roundings(arithmetic.record, len(arithmetic.record), [result.index], BINARY32)
    assert moved.bounds(BINARY32)[0] > math.exp(2.0) - math.exp(1.0) + SAFETY * math.exp(1.0)


def test_one_error_times_another_is_in_the_bound_of_a_product() -> None:
    record = recording().record
    x, y = record.parameter(0.0), record.parameter(0.0)
    record.sizes[:] = [1.0 / BINARY32.unit] * 2  # off by 1
    results = [(x * y).index, record.dot([x, y], [y, x]).index]
    moved, _ = roundings(record, len(record), results, BINARY32)
    assert (moved.bounds(BINARY32) >= [1.0, 2.0]).all()
