"""Every planted fault is caught by the laws that say so, and is gone afterwards."""

import pytest

from logitproof.core import RECORDING, Parameter, ops
from logitproof.properties.faults import EQUIVALENTS, REGISTRY
from logitproof.properties.killing import every, family, rows, subject_of
from logitproof.properties.laws import REGISTRY as LAWS
from logitproof.properties.subjects import CoreSubject

pytestmark = pytest.mark.fault

BITS = ("decoder.scalar-bits", "session.splits", "fused.causal-softmax", "tape.reuse")
FAMILIES = list(dict.fromkeys(map(family, LAWS)))
# Of each family, a fault that no law of another one sees.
WITNESSES = {
    "published": "branches-exchanged-by-both",
    "decoder": "resumed-as-ordinary-text",
    "truth": "subnormal-logits-flushed-where-tied",
    "sizes": "epsilon-at-least-usual",
    "ranges": "positions-counted-from-start",
    "grouped": "kv-heads-in-turn",
    "untied": "logits-by-table",
    "fused": "guard-of-one-side-for-many",
    "session": "score-values-of-one-head",
    "poison": "unused-rows-weighted",
    "gather": "ids-narrowed",
    "softmax": "mean-of-overflowing-sum",
    "norm": "tiny-squares-flushed",
    "rotary": "matrix-turned-from-zero",
    "functions": "sine-reduced-by-doubles",
    "silu": "silu-tail-flushed",
    "generator": "draw-one-at-a-time-from-32-bits",
    "operations": "repeated-matrix-gradient-of-first",
    "memory": "silu-in-the-order-of-memory",
    "float16": "float16-saturates",
    "bfloat16": "bfloat16-cut-from-float32",
    "tape": "gradient-is-live",
    "gradcheck": "spacings-taken-as-equal",
    "inputs": "single-precision-kept",
    "refusals": "width-before-rank",
    "counts": "tied-table-subtracted",
    "plans": "seeds-of-no-profile",
    "records": "keys-unsorted",
    "tokenizer": "merges-from-the-right",
    "work": "chunks-give-up",
    "layers": "linear-without-bias",
    "modes": "recomputed-without-steps",
    "copies": "copied-parameter-without-gradient",
}
PAIRS = [(law.id, fault) for law in LAWS.values() for fault in law.faults]


@pytest.mark.parametrize(("law", "fault"), PAIRS, ids=lambda value: value)
def test_the_law_catches_the_fault_and_nothing_without_it(law: str, fault: str) -> None:
    with REGISTRY[fault]:
        broken = LAWS[law](subject_of(fault))
    assert not broken.holds
    assert not str(broken.difference).startswith("raised")
    assert LAWS[law](subject_of(fault), broken.cases + 1).holds


@pytest.mark.parametrize("fault", [f.id for f in REGISTRY.values() if f.kind == "order"])
def test_a_change_of_order_moves_results_by_few_ulps(fault: str) -> None:
    planted = REGISTRY[fault]
    with planted:
        difference = str(LAWS[planted.killed_by[0]](subject_of(fault)).difference)
    assert "ulp away" in difference or "the other zero" in difference


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


def gradient_of_a_square() -> float:
    """Of one graph that nobody holds afterwards."""
    p = Parameter("p", 2.0)
    RECORDING.apply(ops.mul, p, p).backward(1.0)
    return float(p.gradient)


def test_a_fault_that_counts_passes_forgets_the_graphs_that_are_gone() -> None:
    with REGISTRY["adjoints-survive-pass"]:
        gradients = {gradient_of_a_square() for _ in range(100)}  # ids of dead nodes come back
    assert gradients == {4.0}


def test_there_are_faults_enough_and_most_of_them_were_seen_somewhere() -> None:
    sources = [fault.source for fault in REGISTRY.values()]
    assert len(REGISTRY) >= 80
    assert sum("peers.md" in source or "cases: " in source for source in sources) >= 40


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_of_laws_is_needed_by_a_fault_that_others_do_not_promise_to_see(name: str) -> None:
    seen_by = [{family(law) for law in fault.killed_by} for fault in REGISTRY.values()]
    assert {name} in seen_by


# Of each form one; the laws are tried on those that stand outside core, where they are few.
OUTSIDE = ("kv-heads-in-turn", "chunk-logits-by-table", "narrow-truncated", "narrow-sums-in-format")


@pytest.mark.parametrize("fault", ["contraction-descending", *OUTSIDE])
def test_a_fault_is_tried_on_what_its_decoder_claims_alone(fault: str) -> None:
    concerned = [id_ for id_, law in LAWS.items() if not law.missing(subject_of(fault))]
    assert every([fault], list(LAWS)) == {fault: concerned}
    assert {*REGISTRY[fault].killed_by} <= {*concerned}


@pytest.mark.parametrize("fault", OUTSIDE)
def test_a_law_that_concerns_a_decoder_can_be_tried_on_it(fault: str) -> None:
    (row,) = rows(every([fault], list(LAWS)), examples=3)
    assert [kill.law for kill in row if kill.crashed] == []


def test_a_wrong_decoder_that_warns_is_no_crash() -> None:
    (row,) = rows({"exp-by-numpy": ["functions.limits"]}, examples=3)
    assert [kill.crashed for kill in row] == [False]


def test_every_family_has_a_fault_that_survives_without_it() -> None:
    assert sorted(WITNESSES) == sorted(FAMILIES)
    promised = {name: {*map(family, REGISTRY[f].killed_by)} for name, f in WITNESSES.items()}
    assert promised == {name: {name} for name in FAMILIES}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_with_any_family_of_laws_switched_off_a_fault_survives(name: str) -> None:
    (row,) = rows(every([WITNESSES[name]], list(LAWS)), examples=25)
    assert {family(kill.law) for kill in row if kill.killed} == {name}


@pytest.mark.parametrize("law", BITS)
@pytest.mark.parametrize("change", EQUIVALENTS)
def test_a_known_equivalent_changes_no_bit(change: str, law: str) -> None:
    with EQUIVALENTS[change]:
        outcome = LAWS[law](CoreSubject(kernel=None), 9)
    assert outcome.holds, outcome
