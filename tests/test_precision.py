"""A decoder in float32 is given float32 weights and judged by bounds of their unit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from logitproof.properties import laws
from logitproof.properties.cli import UsageError
from logitproof.properties.laws.regimes import truth_cases
from logitproof.properties.textbook import TextbookSubject
from logitproof.properties.truth import BINARY32
from logitproof.properties.verify.shrinking import finding
from logitproof.properties.verify.subject import maker

VALUES = ("truth.logits", "truth.loss", "truth.gradients")
CASES = 20
REALS = (np.float32, np.float64)
DRAWN = tuple(truth_cases(CASES))  # each draws float32 numbers when it is first asked


class Single(TextbookSubject):
    """Textbook numpy, all of it in float32."""

    conventions: Mapping[str, str] = {"functions": "c-library", "dtype": "float32"}

    def __init__(self) -> None:
        super().__init__(dtype=np.float32)

    def logits(self, ids: Any, layout: Any = None) -> Any:
        return np.asarray(super().logits(ids, layout), dtype=np.float32)

    def loss_and_gradients(self, *batch: Any) -> Any:
        loss, gradients = super().loss_and_gradients(*batch)
        return np.float32(loss), {n: np.float32(g) for n, g in gradients.items()}


class Widened(Single):
    """Float32 numbers in float64 arrays, called float32."""

    def logits(self, ids: Any, layout: Any = None) -> Any:
        return super().logits(ids, layout).astype(np.float64)


class Mixed(Widened):
    """The same, declared as what it is."""

    conventions: Mapping[str, str] = {"functions": "c-library", "arithmetic": "float32"}


class Disguised(Widened):
    """The same, called float64."""

    conventions: Mapping[str, str] = {"functions": "c-library"}


class Coarse(Single):
    """Five digits where float32 has seven."""

    def logits(self, ids: Any, layout: Any = None) -> Any:
        z = super().logits(ids, layout)
        return z + np.float32(2.0**-13) * np.abs(z).max()


class Half:
    """A decoder in a type that nothing here judges."""

    capabilities: Mapping[str, bool] = {}
    conventions: Mapping[str, str] = {"functions": "c-library", "dtype": "float16"}
    load = logits = loss_and_gradients = print


@pytest.mark.parametrize("law", VALUES)
def test_a_textbook_in_float32_is_consistent_with_rounding(law: str) -> None:
    outcome = laws.REGISTRY[law](Single(), CASES)
    assert (outcome.difference, outcome.cases) == (None, CASES)


def test_a_textbook_in_float32_is_in_it_throughout() -> None:
    subject, case = Single(), DRAWN[0].single
    subject.load(case.config, case.weights)
    with np.errstate(all="ignore"):
        saved = subject._forward(case.ids, case.layout)
        gradients = TextbookSubject.loss_and_gradients(
            subject, case.ids, case.targets, case.layout, case.valid
        )[1]
    kept = {**saved, **saved["blocks"][0], **gradients}
    kinds = {n: v.dtype for n, v in kept.items() if getattr(v, "dtype", None) in REALS}
    assert {n for n, kind in kinds.items() if kind != np.float32} == set()
    assert {"p", "mixed", "product", "logits", "final_norm.gain"} < set(kinds)


def test_steps_in_float32_may_be_declared_of_float64_arrays() -> None:
    assert laws.REGISTRY["truth.logits"](Mixed(), CASES).difference is None


@pytest.mark.parametrize(("wrong", "told"), [(Widened, "TypeError"), (Disguised, "its bound"),
                                             (Coarse, "its bound")])  # fmt: skip
def test_what_is_less_than_declared_fails(wrong: Any, told: str) -> None:
    assert told in str(laws.REGISTRY["truth.logits"](wrong(), CASES).difference)


def test_float32_decides_nearly_all_of_what_it_is_asked() -> None:
    law = laws.REGISTRY["truth.logits"]
    found = [finding(law, Single(), case)[0] for case in truth_cases(CASES)]
    assert sum(f.undecidable for f in found) <= 0.01 * sum(f.entries for f in found)


@pytest.mark.parametrize("case", DRAWN, ids=lambda c: f"seed-{c.seed}")
def test_a_case_in_float32_holds_float32_numbers_alone(case: Any) -> None:
    case = case.single
    arrays = [np.array(value) for value in case.weights.values()]
    with np.errstate(over="ignore"):
        assert all((a == a.astype(np.float32)).all() for a in arrays)
    assert case.config.rms_epsilon == np.float32(case.config.rms_epsilon)


def test_what_float32_does_not_hold_is_asked_of_nobody() -> None:
    unfit = [case for case in DRAWN if not case.single.fits]
    found = [finding(laws.REGISTRY["truth.logits"], Single(), case)[0] for case in unfit]
    assert {*unfit[0].regime.cells, *unfit[1].regime.cells} & {"values=huge", "logits=huge"}
    assert all(f.difference is None for f in found)


def test_the_largest_float32_is_that_of_its_format() -> None:
    assert BINARY32.largest == float(np.finfo(np.float32).max)


def test_a_decoder_of_another_type_is_refused() -> None:
    with pytest.raises(UsageError, match="float16"):
        maker(f"{__name__}:Half")
