"""The laws: each holds for both decoders shipped, is tried on what hides mistakes, and speaks."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from logitproof.properties import profiles
from logitproof.properties.faults import REGISTRY as FAULTS
from logitproof.properties.laws import REGISTRY, Law
from logitproof.properties.laws.cases import Case, full_cases, mixed_cases, padded_cases
from logitproof.properties.laws.difference import first_difference, first_named_difference
from logitproof.properties.scalar import C_LIBRARY
from logitproof.properties.subjects import CoreSubject, ScalarSubject, StepsSubject
from logitproof.properties.verify.environment import GLIBC_FMA, c_library_functions
from logitproof.properties.verify.reseeding import drawn_from

LAWS = list(REGISTRY.values())
OF_SCALAR = [law for law in LAWS if not law.missing(ScalarSubject())]
OF_C_LIBRARY = [law for law in LAWS if not law.missing(ScalarSubject(C_LIBRARY))]


@pytest.mark.property
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
def test_the_core_keeps(law: Law, seed: int | None) -> None:
    outcome = drawn_from(seed, law)(CoreSubject(), profiles.examples())
    assert outcome.holds, outcome
    assert outcome.cases > 0


@pytest.mark.property
@pytest.mark.parametrize("law", OF_SCALAR, ids=lambda law: law.id)
def test_the_scalar_decoder_keeps(law: Law, seed: int | None) -> None:
    outcome = drawn_from(seed, law)(ScalarSubject(), profiles.examples())
    assert outcome.holds, outcome


@pytest.mark.property
@pytest.mark.parametrize("law", OF_C_LIBRARY, ids=lambda law: law.id)
def test_the_scalar_decoder_on_the_c_library_keeps(law: Law, seed: int | None) -> None:
    answer = c_library_functions()
    assert answer == GLIBC_FMA or pytest.skip(f"the functions here are those of {answer}")
    outcome = drawn_from(seed, law)(ScalarSubject(C_LIBRARY), profiles.examples())
    assert outcome.holds, outcome


def test_every_law_says_what_it_states_and_where_that_stands() -> None:
    assert all(law.statement.endswith(".") and law.source for law in LAWS)
    assert [law.id for law in LAWS] == list(REGISTRY)


def test_laws_name_what_an_implementation_lacks() -> None:
    missing = {id_: law.missing(ScalarSubject()) for id_, law in REGISTRY.items()}
    assert missing["decoder.recomputation"] == ("recomputation",)
    assert missing["decoder.scalar-bits"] == ()


class Raising(CoreSubject):
    def logits(self, *_: Any) -> Any:
        raise RuntimeError("out of order")


def test_the_scalar_operations_are_judged_like_the_cores() -> None:
    judged = {law.id for law in OF_SCALAR} - {law.id for law in OF_C_LIBRARY}
    assert judged == {law.id for law in LAWS if law.needs == ("operation-values",)}
    assert len(judged) == 12


class WithoutRowBits(StepsSubject):
    capabilities: Mapping[str, bool] = {**StepsSubject.capabilities, "row-bits": False}


@pytest.mark.parametrize("fault", REGISTRY["poison.table-rows"].faults)
def test_poison_is_found_by_bounds_where_bits_are_not_claimed(fault: str) -> None:
    law = REGISTRY["poison.table-rows"]
    with FAULTS[fault]:
        outcome = law(WithoutRowBits())
    assert not outcome.holds
    assert " within " in (outcome.difference or "")


def test_an_implementation_that_raises_breaks_the_law() -> None:
    outcome = REGISTRY["decoder.prefix-causality"](Raising())
    assert not outcome.holds
    assert outcome.difference == "raised RuntimeError: out of order"


@pytest.mark.parametrize("draw", [full_cases, padded_cases, mixed_cases])
def test_cases_are_the_same_in_every_run(draw: Callable[[int], Any]) -> None:
    assert [str(case) for case in draw(9)] == [str(case) for case in draw(9)]
    assert [case.weights for case in draw(4)] == [case.weights for case in draw(4)]


def repeats(case: Case) -> bool:
    return any(a == b for row in case.ids for a, b in pairwise(row))


@pytest.mark.parametrize(
    "feature",
    [
        lambda case: case.config.model_width not in (2, 4, 16),
        lambda case: case.config.heads > 1,
        lambda case: case.config.layers == 2,
        lambda case: len(case.ids) > 1,
        lambda case: case.scale > 10.0,
        repeats,
        lambda case: case.layout is not None and -1 in case.ids[0],
        lambda case: case.segments is not None and len(case.segments[0]) > 1,
        lambda case: case.valid is not None and len(case.ids[0]) * len(case.ids) % 2 == 1,
        lambda case: min(case.weights["final_norm.gain"]) < 0.0,
    ],
    ids=["odd-width", "heads", "layers", "rows", "hot", "repeats", "padding", "packing", "valid",
         "negative-gain"],
)  # fmt: skip
def test_among_the_quick_cases_is_one_with(feature: Callable[[Case], bool]) -> None:
    assert any(feature(case) for case in mixed_cases(25))


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        ([1.0, 2.0], [1.0, 2.0], "None"),
        ([0.0], [-0.0], "z[0]: expected 0.0 (0000000000000000), got -0.0 (8000000000000000),"
         " the other zero"),
        ([[1.0, 1.0]], [[1.0, 1.0 + 2.0**-52]], "z[0, 1]: expected 1.0 (3ff0000000000000), got"
         " 1.0000000000000002 (3ff0000000000001), 1 ulp away (1 of 2 differ)"),
        (1.0, 2.0, "z: expected 1.0 (3ff0000000000000), got 2.0 (4000000000000000), off by 1"),
        (1.0, np.inf, "z: expected 1.0 (3ff0000000000000), got inf (7ff0000000000000), not finite"),
        ([1.0], [[1.0]], "z, shape: expected [1], got [1, 1]"),
    ],
    ids=["none", "zero", "ulp", "far", "infinite", "shape"],
)  # fmt: skip
def test_a_difference_is_told_in_words(expected: Any, actual: Any, words: str) -> None:
    assert str(first_difference("z", expected, actual)) == words


def test_named_differences_begin_with_the_names() -> None:
    difference = first_named_difference("gradient", {"a": [1.0]}, {"b": [1.0]})
    assert str(difference) == "gradient, names: expected a, got b"


def test_other_types_than_doubles_are_no_result() -> None:
    with pytest.raises(TypeError):
        first_difference("z", [1.0], np.ones(1, dtype=np.float32))
