"""What the laws over parts are drawn from, and how they tell what they found."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from logitproof.core import Parameter, ops
from logitproof.properties.laws.drawn import (
    REGIMES,
    Draw,
    answered,
    draws,
    equal,
    first,
    refusal,
    refused,
)
from logitproof.properties.laws.refusals import Share


def drawn(regime: str, count: int = 400) -> Any:
    draw = Draw(seed=7, size=3, regime=regime)
    return abs(draw.values(draw.generator(), count))


@pytest.mark.parametrize("regime", REGIMES)
def test_a_draw_gives_the_same_values_every_time(regime: str) -> None:
    assert drawn(regime).tobytes() == drawn(regime).tobytes()
    assert np.isfinite(drawn(regime)).all()


@pytest.mark.parametrize(
    ("regime", "reaches"),
    [
        ("dyadic", lambda x: (x * 8 == np.round(x * 8)).all()),
        ("tiny", lambda x: ((x > 0) & (x < 2.0**-1022)).any()),
        ("huge", lambda x: x.max() > 1e306),
        ("large", lambda x: (x == 1000.0).any() and (x > 1000.0).any() and x.max() < 1000.1),
        ("wide", lambda x: x.max() / x[x > 0].min() > 1e15),
        ("zero-rich", lambda x: 100 < (x == 0.0).sum() < 300),
    ],
)
def test_a_regime_reaches_what_it_is_named_for(regime: str, reaches: Callable[[Any], bool]) -> None:
    assert reaches(drawn(regime))


def test_zeros_come_with_both_signs() -> None:
    draw = Draw(seed=7, size=3, regime="zero-rich")
    zeros = [x for x in draw.values(draw.generator(), 50) if x == 0.0]
    assert {np.signbit(x) for x in zeros} == {np.True_, np.False_}


def test_sizes_grow_and_regimes_take_turns() -> None:
    cases = list(draws("uniform", "tiny", first_seed=5)(4))
    assert [case.size for case in cases] == [0, 1, 2, 3]
    assert [case.regime for case in cases] == ["uniform", "tiny", "uniform", "tiny"]
    assert cases[0].below(cases[0].generator(), 9) == 1


def test_a_refusal_is_known_by_its_code_and_a_crash_is_none() -> None:
    assert refusal(lambda: Parameter("", [1.0])) == "record/empty-name"
    assert refusal(lambda: 1 // 0) == "raised ZeroDivisionError"
    assert refusal(lambda: ops.exp(np.zeros(1))) == "a result"


def test_another_refusal_than_the_right_one_is_a_difference() -> None:
    call = lambda: Parameter("", [1.0])  # noqa: E731
    assert refused("a name", "record/empty-name", call) is None
    found = refused("a name", "numeric/non-finite-leaf", call)
    assert str(found) == "a name: expected numeric/non-finite-leaf, got record/empty-name"


def test_equal_tells_true_from_one() -> None:
    assert equal("n", 1, 1) is None
    assert equal("n", 1, True) is not None
    assert first(iter([None, equal("n", 1, 2), equal("m", 1, 2)])) == equal("n", 1, 2)


def test_a_refused_valid_call_is_a_difference_not_a_crash() -> None:
    found = answered(lambda _, __: Parameter("", [1.0]))(None, None)  # type: ignore[arg-type,return-value]
    assert str(found).startswith("a valid call: expected a result, got refused: ")


def test_all_shares_together_are_all_boundaries() -> None:
    shares = [Share(start=start, step=4) for start in range(4)]
    assert sorted(i for s in shares for i in range(11)[s.start :: s.step]) == list(range(11))
