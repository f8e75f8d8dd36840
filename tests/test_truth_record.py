"""A record: asked in any format, a few columns at a time, and gone with its truth."""

import gc
import weakref
from functools import reduce
from operator import mul
from typing import Any

import numpy as np
import pytest

from logitproof.properties.laws.regimes import Regime, Sizes, TruthCase, case_of
from logitproof.properties.truth import (
    BINARY32,
    BINARY64,
    SAFETY,
    Format,
    Truth,
    adjoints,
    arithmetic,
    logits_of,
    truth_of,
)
from logitproof.properties.truth.adjoints import roundings
from logitproof.properties.truth.arithmetic import recording
from logitproof.properties.truth.recording import Record, uncollected

PLAIN = case_of(Sizes(B=1, T=2, V=3, head_width=2, F=2), 7, Regime())
CASE = case_of(Sizes(B=1, T=3, V=4, head_width=4, F=2), 7, Regime(norm="tiny", attention="hot"))


def in_single(case: TruthCase) -> Truth:
    return truth_of(case.config, case.weights, case.ids, case.targets, format=BINARY32)


def same_but_for_order(a: Any, b: Any) -> bool:
    """Sums of as many numbers as the record has entries, none negative, in two orders."""
    return bool((np.abs(a - b) <= 4 * in_single(CASE).entries * 2.0**-53 * b).all())


def bounds(truth: Truth) -> dict[str, Any]:
    return {name: answer.roundings.bounds(BINARY32) for name, answer in truth.gradients.items()}


def test_one_format_leaves_a_record_as_the_next_one_needs_it() -> None:
    record = recording().record
    x, y = record.parameter(0.0), record.parameter(0.0)
    record.sizes[:] = [1.0 / BINARY32.unit] * 2  # off by 1
    given = (record, len(record), [(x * y).index])
    first, other, again = (roundings(*given, f)[0] for f in (BINARY64, BINARY32, BINARY64))
    assert first.relative == again.relative != other.relative


@pytest.mark.parametrize("more", [[], [2.0**900, 2.0**-900]], ids=str)
def test_an_error_is_seen_through_slopes_whose_product_no_double_holds(more: list[float]) -> None:
    record = recording().record
    x = record.parameter(1.0)
    record.sizes[x.index] = 2.0**900 / BINARY64.unit
    slopes = map(record.exact, [2.0**-600, 2.0**-600, *more])
    result = reduce(mul, slopes, x)
    moved, _ = roundings(record, len(record), [result.index], BINARY64)
    assert SAFETY * 2.0**-300 <= moved.bounds()[0] <= 2.0 * SAFETY * 2.0**-300


def test_bounds_are_the_same_a_few_columns_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = bounds(in_single(CASE))
    asked, exact = list[int](), adjoints._bounds

    def listed(*given: Any) -> Any:
        asked.append(len(given[-1]))
        return exact(*given)

    monkeypatch.setattr(adjoints, "AT_ONCE", 3)
    monkeypatch.setattr(adjoints, "_bounds", listed)
    apart = bounds(in_single(CASE))
    assert max(asked) > 3
    assert all(same_but_for_order(apart[name], together[name]) for name in apart)


@pytest.mark.parametrize("format", [BINARY32, BINARY64], ids=["float32", "float64"])
def test_the_logits_alone_are_those_of_all_answers(format: Format) -> None:
    given = (PLAIN.config, PLAIN.weights, PLAIN.ids)
    alone = logits_of(*given, format=format)
    among = truth_of(*given, PLAIN.targets, format=format).logits
    assert (alone.shape, alone.values) == (among.shape, among.values)
    assert same_but_for_order(*(x.roundings.bounds(format) for x in (alone, among)))


def test_logits_that_no_format_holds_have_no_bound() -> None:
    huge = {**CASE.weights, "final_norm.gain": [1e39] * CASE.config.model_width}
    of = (CASE.config, huge, CASE.ids)
    bounds = [logits_of(*of, format=f).roundings.bounds(f) for f in (BINARY32, BINARY64)]
    assert [np.isinf(bound).all() for bound in bounds] == [True, False]


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_left_as_it_was(collects: bool) -> None:
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    with uncollected():
        inside = gc.isenabled()
    after = gc.isenabled()
    (gc.enable if was else gc.disable)()
    assert (inside, after) == (False, collects)


def test_a_record_ends_with_its_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[weakref.ref[Record]]()

    class Watched(Record):
        def __init__(self) -> None:
            super().__init__()
            kept.append(weakref.ref(self))

    monkeypatch.setattr(arithmetic, "Record", Watched)
    with uncollected():
        truth = in_single(CASE)
        assert [record() for record in kept] == [None]
    assert truth.entries > 0
