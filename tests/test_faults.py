"""Every planted fault is caught by the laws that say so, and is gone afterwards."""

import pytest

from logitproof.properties.faults import REGISTRY
from logitproof.properties.laws import REGISTRY as LAWS
from logitproof.properties.subjects import CoreSubject

pytestmark = pytest.mark.fault

PAIRS = [(law.id, fault) for law in LAWS.values() for fault in law.faults]


@pytest.mark.parametrize(("law", "fault"), PAIRS, ids=lambda value: value)
def test_the_law_catches_the_fault_and_nothing_without_it(law: str, fault: str) -> None:
    with REGISTRY[fault]:
        broken = LAWS[law](CoreSubject())
    assert not broken.holds
    assert not str(broken.difference).startswith("raised")
    assert LAWS[law](CoreSubject(), broken.cases + 1).holds


@pytest.mark.parametrize("fault", REGISTRY)
def test_a_fault_is_planted_and_gone_again(fault: str) -> None:
    planted = REGISTRY[fault]
    before = [vars(owner)[name] for owner, name in planted.places]
    with planted:
        within = [vars(owner)[name] for owner, name in planted.places]
    after = [vars(owner)[name] for owner, name in planted.places]
    assert all(a is b for a, b in zip(before, after, strict=True))
    assert not any(a is b for a, b in zip(before, within, strict=True))


@pytest.mark.parametrize("fault", REGISTRY)
def test_a_fault_says_what_it_is_and_who_catches_it(fault: str) -> None:
    planted = REGISTRY[fault]
    assert planted.kind in ("order", "mistake")
    assert planted.statement.endswith(".")
    assert planted.source
    assert planted.killed_by


def test_a_fault_is_gone_after_an_exception_too() -> None:
    planted = REGISTRY["contraction-descending"]
    before = [vars(owner)[name] for owner, name in planted.places]
    with pytest.raises(KeyError), planted:
        raise KeyError
    assert [vars(owner)[name] for owner, name in planted.places] == before
