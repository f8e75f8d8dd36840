"""What a decoded token costs: counted work, linear in the prefix, and memory that stays flat."""

import tracemalloc

import numpy as np
import pytest

from logitproof.core import DecodeSession
from logitproof.properties.decoding import LONG, decoded, elements_per_token, fitted
from logitproof.properties.situations import BRIDGE, new_decoder

PREFIXES = range(1, BRIDGE.max_positions)


def test_a_step_touches_a_number_of_elements_linear_in_the_prefix() -> None:
    touched = elements_per_token(new_decoder(BRIDGE), BRIDGE.max_positions)
    first, second = np.diff(touched), np.diff(touched, n=2)
    assert first[0] > 0
    assert not second.any()


def test_a_step_touches_what_its_formula_says() -> None:
    """Per layer and cached row: d_h score steps and one mixture step of each of H heads."""
    touched = elements_per_token(new_decoder(BRIDGE), 8)
    L, D, H = BRIDGE.layers, BRIDGE.model_width, BRIDGE.heads
    softmax_rows = H
    assert np.diff(touched).tolist() == [L * (D + D + softmax_rows)] * 7


@pytest.mark.slow
def test_two_thousand_tokens_cost_linear_work_each() -> None:
    touched = elements_per_token(new_decoder(LONG), LONG.max_positions)
    assert len(touched) == 2048
    assert len(set(np.diff(touched).tolist())) == 1


@pytest.mark.slow
def test_two_thousand_tokens_allocate_nothing_that_stays() -> None:
    with DecodeSession(new_decoder(LONG)) as session:
        decoded(session, 64)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        decoded(session, LONG.max_positions - 65)
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        decoded(session, 1)
        peak = tracemalloc.get_traced_memory()[1] - after
        tracemalloc.stop()
        one_side = session.cache.layers[0].nbytes // 2
    assert after - before < 64 * 1024
    assert peak < one_side  # the last token copies no layer's keys or values


def test_the_fit_finds_a_quadratic_term_where_there_is_one() -> None:
    n = np.arange(1.0, 100.0)
    assert np.rint(fitted(n, 3.0 + 2.0 * n + 1.0 * n * n)).tolist() == [3.0, 2.0, 1.0]
