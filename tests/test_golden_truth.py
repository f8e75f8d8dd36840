"""Whole decoders: the bits lie within their derived bound of a truth that was found apart."""

from fractions import Fraction
from typing import Any

import pytest
from mpmath import mp

from logitproof.golden import load
from logitproof.golden.load import Case, cells
from logitproof.properties.scalar import Config, Layout
from logitproof.properties.truth import Answer, Truth, truth_of

pytestmark = pytest.mark.golden

DECODERS = load.read("decoders")
DIGITS = 50
PAIR = Fraction(1, 2**104)  # of the size: hi is off by half an ulp, lo by half of one of that


def nested(array: Any) -> Any:
    """A matrix as rows, a gain as a vector."""
    flat, width = cells(array), array["shape"][-1]
    rows = [flat[i : i + width] for i in range(0, len(flat), width)]
    return rows if len(array["shape"]) == 2 else flat


def truth_for(case: Case) -> Truth:
    sizes = {n: cells(v)[0] if isinstance(v, dict) else v for n, v in case.setup["config"].items()}
    weights = {name: nested(array) for name, array in case.setup["weights"].items()}
    layout = Layout(**case.input["layout"]) if "layout" in case.input else None
    ids, targets = case.input["ids"], case.input["targets"]
    return truth_of(Config(**sizes), weights, ids, targets, layout, case.input.get("valid"))


def outside(answer: Answer, array: Any) -> list[int]:
    """The cells further from the truth than rounding can take them."""
    limits = answer.roundings.bounds().reshape(-1).tolist()
    found = zip(cells(array), answer.values, limits, strict=True)
    with mp.workdps(DIGITS):
        return [i for i, (x, true, limit) in enumerate(found) if abs(x - true) > limit]


def apart(answer: Answer, pair: Any) -> list[int]:
    """The cells whose pair is not the truth to the last bit that it can hold."""
    exact: list[Fraction]
    with mp.workdps(DIGITS):
        exact = [Fraction(mp.nstr(x, DIGITS)) for x in answer.values]
    pairs = zip(cells(pair, "hi"), cells(pair, "lo"), strict=True)
    held = [Fraction(hi) + Fraction(lo) for hi, lo in pairs]
    return [i for i, (x, y) in enumerate(zip(exact, held, strict=True))
            if abs(x - y) > max(abs(x), Fraction(1)) * PAIR]  # fmt: skip


@pytest.mark.parametrize("case", DECODERS, ids=str)
def test_a_decoder_lies_within_the_derived_bound_of_its_truth(case: Case) -> None:
    truth, expect = truth_for(case), case.expect
    assert not truth.overflows
    assert apart(truth.logits, expect["true"]["logits"]) == []
    assert apart(truth.loss, expect["true"]["loss"]) == []
    assert outside(truth.logits, expect["logits"]) == []
    assert outside(truth.loss, expect["loss"]) == []
    assert {n: outside(truth.gradients[n], g) for n, g in expect["gradients"].items()} == {
        name: [] for name in expect["gradients"]
    }


def test_a_pair_off_by_a_last_bit_is_noticed() -> None:
    (case,) = [case for case in DECODERS if case.id == "decoders/one-token"]
    truth, pair = truth_for(case), case.expect["true"]["loss"]
    moved = {**pair, "lo": [f"{int(pair['lo'][0], 16) + 2**10:016x}"]}
    assert (apart(truth.loss, pair), apart(truth.loss, moved)) == ([], [0])


def test_a_value_off_by_a_thousandth_of_itself_is_noticed() -> None:
    (case,) = [case for case in DECODERS if case.id == "decoders/one-token"]
    truth, loss = truth_for(case), case.expect["loss"]
    moved = {**loss, "f64": [f"{int(loss['f64'][0], 16) + 2**42:016x}"]}
    assert (outside(truth.loss, loss), outside(truth.loss, moved)) == ([], [0])
