"""Levels are claimed apart and judged apart; what is not claimed is not asked for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitproof.properties import laws
from logitproof.properties.laws.cases import full_cases, packed_cases, padded_cases
from logitproof.properties.laws.levels import LAYOUTS, LEVELS, VALUES, claimed, layout_levels
from logitproof.properties.subjects import CoreSubject, ScalarSubject
from logitproof.properties.verify.command import verify
from logitproof.properties.verify.report import Report
from logitproof.properties.verify.running import Plan

CHOSEN = {id_: law for id_, law in laws.REGISTRY.items() if set(law.levels) & set(LEVELS)}
FEW = ("decoder.scalar-bits", "decoder.padded-separate", "decoder.packed-separate",
       "truth.logits", "truth.loss", "truth.gradients", "truth.cached-logits")  # fmt: skip


class ForwardOnly(ScalarSubject):
    capabilities: Mapping[str, bool] = {"loss": False, "gradients": False, "packed": False}

    def loss_and_gradients(self, *_: Any) -> Any:
        raise AssertionError("not claimed")


class WrongLoss(CoreSubject):
    def loss_and_gradients(self, *batch: Any) -> Any:
        loss, gradients = super().loss_and_gradients(*batch)
        return loss + 1.0, gradients


class WrongGradients(CoreSubject):
    def loss_and_gradients(self, *batch: Any) -> Any:
        loss, gradients = super().loss_and_gradients(*batch)
        return loss, {name: 2.0 * value for name, value in gradients.items()}


class WrongPacking(CoreSubject):
    def logits(self, ids: Any, layout: Any = None) -> Any:
        packed = layout is not None and np.array(layout.range_starts).any()
        return super().logits(ids, layout) + float(packed)


class WrongCache(CoreSubject):
    def session(self) -> Any:
        session = super().session()
        session.decode = lambda id_: session.extend([max(0, id_ - 1)])
        return session


def report(subject: Any, folder: Path) -> Report:
    chosen = {id_: laws.REGISTRY[id_] for id_ in FEW}
    plan = Plan(decoder="core", examples=12)
    return verify(chosen, subject, plan, "quick", folder, lambda _: None)


@pytest.mark.parametrize(
    ("subject", "failing"),
    [
        (WrongLoss, {"loss", "padded", "packed"}),
        (WrongGradients, {"gradients", "padded", "packed"}),
        (WrongPacking, {"packed"}),
        (WrongCache, {"decode"}),
    ],
)
def test_a_level_fails_alone(subject: Any, failing: set[str], tmp_path: Path) -> None:
    found = report(subject, tmp_path).levels
    assert {level for level, word in found.items() if word == "FAILS"} == failing
    assert {level for level, word in found.items() if word == "holds"} == {*LEVELS} - failing


def test_what_is_not_claimed_is_neither_asked_for_nor_judged(tmp_path: Path) -> None:
    found = report(ForwardOnly, tmp_path)
    assert found.levels == {
        "forward": "holds",
        "loss": "not claimed",
        "gradients": "not claimed",
        "decode": "not claimed",
        "padded": "holds",
        "packed": "not claimed",
    }
    verdicts = {v.id: (v.verdict, v.missing) for v in found.verdicts}
    assert verdicts["decoder.padded-separate"] == ("holds", ())
    assert verdicts["decoder.packed-separate"] == ("not applicable", ("packed",))
    assert verdicts["truth.loss"] == ("not applicable", ("loss",))


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_is_judged_by_a_law(level: str) -> None:
    assert [id_ for id_, law in CHOSEN.items() if level in law.levels] != []


def test_values_and_layouts_are_claimed_unless_denied() -> None:
    assert [name for name in LEVELS if claimed(ScalarSubject(), name)] == [*VALUES, *LAYOUTS]
    assert [name for name in LEVELS if claimed(CoreSubject(), name)] == [*LEVELS]
    assert not claimed(ForwardOnly(), "loss")


def test_who_denies_the_bits_of_a_row_is_asked_for_values_alone() -> None:
    denied = {**ScalarSubject.capabilities, "row-bits": False}
    subject = type("Fast", (ScalarSubject,), {"capabilities": denied})()
    assert laws.REGISTRY["decoder.row-independence"].missing(subject) == ("row-bits",)
    assert laws.REGISTRY["decoder.row-independence"].missing(ScalarSubject()) == ()
    assert laws.REGISTRY["truth.logits"].missing(subject) == ()


def test_a_case_says_what_it_takes_to_read_it() -> None:
    assert {layout_levels(case) for case in full_cases(9)} == {()}
    assert {layout_levels(case) for case in padded_cases(25)} == {(), ("padded",)}
    packed = {layout_levels(case) for case in packed_cases(25)}
    assert packed == {(), ("padded",), ("packed",), ("padded", "packed")}


class OneGradientMore(CoreSubject):
    def loss_and_gradients(self, *batch: Any) -> Any:
        loss, gradients = super().loss_and_gradients(*batch)
        return loss, {**gradients, "head.bias": 0.0}


class OneGradientLess(CoreSubject):
    def loss_and_gradients(self, *batch: Any) -> Any:
        loss, gradients = super().loss_and_gradients(*batch)
        return loss, {name: g for name, g in gradients.items() if name != "final_norm.gain"}


@pytest.mark.parametrize(
    ("decoder", "name"), [(OneGradientMore, "head.bias"), (OneGradientLess, "final_norm.gain")]
)
def test_a_gradient_too_many_or_too_few_is_named(decoder: Any, name: str) -> None:
    outcome = laws.REGISTRY["truth.gradients"](decoder(), 3)
    assert str(outcome.difference).endswith(f"missing or of no parameter: gradient of {name}")
