"""Which cells of a kill matrix are not tried, since nothing that the fault replaces is called."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from logitproof.properties import reach
from logitproof.properties.faults import REGISTRY
from logitproof.properties.killing import every, rows
from logitproof.properties.laws import REGISTRY as LAWS
from logitproof.properties.subjects import StepsSubject

SCATTER, MERGES = "scatter-overwrites", "merges-from-the-right"
CHEAP = [law for law in LAWS if law.startswith(("gather.", "norm.", "tokenizer."))]


def reaching(pairs: Mapping[str, Sequence[str]], examples: int = 2) -> dict[str, list[str]]:
    asked = reach.asked(pairs, few=0)
    return reach.reaching(
        pairs, dict(zip(asked, reach.calls(asked, examples=examples), strict=True))
    )


def left_out(examples: int, laws: Sequence[str]) -> list[tuple[str, str]]:
    steps = [fault.id for fault in REGISTRY.values() if fault.form == "steps"]
    pairs = every(steps, laws)
    tried = reaching(pairs, examples)
    return [(f, law) for f, some in pairs.items() for law in some if law not in tried[f]]


def seen(cells: Sequence[tuple[str, str]], examples: int) -> list[tuple[str, str]]:
    tried = (next(rows({fault: [law]}, examples=examples)) for fault, law in cells)
    return [(kill.fault, kill.law) for row in tried for kill in row if kill.killed]


def test_a_function_that_is_called_tells_and_comes_back() -> None:
    ((owner, name),) = REGISTRY[SCATTER].places
    right = vars(owner)[name]
    with reach.watch([REGISTRY[SCATTER]]) as called:
        watched = vars(owner)[name]
        nothing = set(called)
        LAWS["gather.duplicates"](StepsSubject(), 1)
    assert (watched is right, nothing, len(called)) == (False, set(), 1)
    assert vars(owner)[name] is right


def test_everything_comes_back_after_an_error() -> None:
    ((owner, name),) = REGISTRY[SCATTER].places
    right = vars(owner)[name]
    with pytest.raises(ZeroDivisionError), reach.watch([REGISTRY[SCATTER]]):
        raise ZeroDivisionError
    assert vars(owner)[name] is right


def test_what_was_kept_is_forgotten_first() -> None:
    forgotten: list[bool] = []
    ((owner, name),) = REGISTRY[SCATTER].places
    right = vars(owner)[name]
    keeper = replace(
        REGISTRY[SCATTER], forget=lambda: forgotten.append(vars(owner)[name] is not right)
    )
    with reach.watch([keeper]):
        assert forgotten == [True]


def test_a_law_that_calls_nothing_of_it_is_left_out() -> None:
    pairs = {SCATTER: ["gather.duplicates", "tokenizer.text"], MERGES: ["gather.duplicates"]}
    assert reaching(pairs) == {SCATTER: ["gather.duplicates"], MERGES: []}


def test_a_law_stays_that_promises_or_was_not_watched_or_did_not_hold() -> None:
    pairs = {SCATTER: ["gather.duplicates", "norm.scale", "tokenizer.text"]}
    called = {
        ("steps", "gather.duplicates"): frozenset[str](),  # which promises to see it
        ("steps", "norm.scale"): None,
    }
    assert reach.reaching(pairs, called) == pairs


def test_a_law_that_does_not_hold_while_it_is_watched_may_see_anything() -> None:
    with REGISTRY[SCATTER]:
        assert [*reach.calls([("steps", "gather.duplicates")], examples=2)] == [None]


@pytest.mark.parametrize("fault", ["nesting-without-bound", "keys-told-are-values"])
def test_every_law_stays_where_no_function_is_replaced(fault: str) -> None:
    pairs = {fault: ["gather.duplicates", "norm.scale"]}
    assert reaching(pairs) == pairs


def test_a_form_of_few_faults_is_not_watched() -> None:
    pairs = every([f.id for f in REGISTRY.values() if f.form == "foreign"], CHEAP)
    assert reach.asked(pairs) == []


def test_what_is_left_out_sees_nothing() -> None:
    cells = left_out(2, CHEAP)
    assert len(cells) > 1000
    assert seen(cells, 2) == []


@pytest.mark.slow
def test_what_is_left_out_of_all_laws_sees_nothing() -> None:
    cells = left_out(25, list(LAWS))
    assert len(cells) > 20_000
    assert seen(cells[::100], 25) == []
