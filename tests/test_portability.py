"""The golden runs with other code underneath have the same bits, and other bits are noticed."""

import dataclasses

import numpy as np
import pytest

from logitproof.core import floats
from logitproof.golden.figures import figures
from logitproof.properties import portability
from logitproof.properties.portability import MODES, Outcome, outcome

pytestmark = pytest.mark.golden

RUNS = figures().runs
EQUAL: dict[str, list[str]] = {run: [] for run in RUNS}
HERE = Outcome(python="3", numpy="2", machine="this", c_library="its own", differing={})


@pytest.mark.parametrize("mode", MODES)
def test_every_run_keeps_its_bits(mode: str) -> None:
    found = outcome(mode)
    assert not found.unavailable or pytest.skip(found.unavailable)
    assert found.differing == EQUAL


def test_other_bits_of_a_function_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = floats.exp
    monkeypatch.setattr(floats, "exp", lambda x: np.nextafter(exact(x), np.inf))
    found = portability._differing(RUNS["T1"], of_c_library=False)
    assert found == ["logits_digest", "gradients_digest"]


def test_the_digests_of_the_c_library_are_others() -> None:
    found = portability._differing(RUNS["B4"], of_c_library=True)
    assert found == ["logits_digest", "gradients_digest"]


@pytest.mark.parametrize(
    ("differing", "unavailable", "holds", "shown"),
    [
        (EQUAL, "", True, "10/10"),
        ({**EQUAL, "R1": ["loss"]}, "", False, "9/10 R1: loss"),
        ({}, "no such function", False, "not run: no such function"),
    ],
)
def test_a_line_of_the_table_says_what_differs(
    differing: dict[str, list[str]], unavailable: str, holds: bool, shown: str
) -> None:
    found = dataclasses.replace(HERE, differing=differing, unavailable=unavailable)
    assert (found.holds, str(found)) == (holds, shown)
