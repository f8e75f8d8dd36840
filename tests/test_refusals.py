"""Every refusal, its place in the order of its boundary, and what it says."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from logitproof.core import (
    BpeTokenizer,
    Embedding,
    Parameter,
    Refusal,
    SplitMix64,
)
from logitproof.core.codes import Code
from logitproof.properties.invalid import ledgers
from logitproof.properties.invalid.boundary import FAMILIES, Boundary, NearMiss
from logitproof.properties.invalid.registry import BOUNDARIES, faults_of, findings, refusal

FAULTS = faults_of(*BOUNDARIES)
# Records, plans and commands check values without live state: their own tests raise these, and
# test_architecture finds each one named there. Ledgers have near misses as well.
OF_LEDGERS = {fault.code for boundary in ledgers.BOUNDARIES for fault in boundary.faults}
OF_RECORDS = {*[*Code][[*Code].index(Code.TEXT_SIZE) :]} - OF_LEDGERS
# Raised by an observation outside core, in test_health.
OF_HEALTH = {Code.ZERO_NORMALIZER}
TABLE = Embedding.from_parameter(Parameter("table", [[1.0, 2.0]] * 4))
NO_MERGES = BpeTokenizer()


def refused(call: Callable[..., object], *arguments: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call(*arguments)
    return caught.value


def refused_alone(miss: NearMiss) -> Refusal:
    return refused(miss.boundary.call, miss.situation())


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=lambda boundary: boundary.name)
def test_what_nothing_spoils_is_accepted(boundary: Boundary) -> None:
    assert refusal(boundary, boundary.valid()) is None


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=lambda boundary: boundary.name)
def test_every_rule_of_the_declared_order_is_broken_in_its_place(boundary: Boundary) -> None:
    assert boundary.disorder() == []


@pytest.mark.parametrize("alone", FAULTS, ids=str)
def test_a_fault_wins_over_any_two_later_ones_and_nothing_changes(alone: NearMiss) -> None:
    assert findings(alone.boundary.beginning_with(alone.expected)) == []


def test_every_code_is_refused_somewhere() -> None:
    assert {miss.expected.code for miss in FAULTS} == set(Code) - OF_RECORDS - OF_HEALTH


def test_boundaries_and_their_faults_have_names_of_their_own() -> None:
    names = [str(miss) for miss in FAULTS]
    assert len({*names}) == len(names)


@pytest.mark.parametrize("miss", FAULTS, ids=str)
def test_a_refusal_is_one_sentence_that_names_its_facts(miss: NearMiss) -> None:
    refusal = refused_alone(miss)
    sentence = str(refusal)
    assert sentence
    assert sentence.isprintable()
    assert not {"{", "}"} & {*sentence}
    assert miss.unnamed(refusal) == []


@pytest.mark.parametrize("miss", FAULTS, ids=str)
def test_a_refusal_survives_pickling_and_takes_notes(miss: NearMiss) -> None:
    first = refused_alone(miss)
    first.add_note("seen")
    again = pickle.loads(pickle.dumps(first))  # noqa: S301 - our own bytes
    assert type(again) is type(first)
    assert repr(again.facts()) == repr(first.facts())
    assert str(again) == str(first)
    assert first.__notes__ == ["seen"]


@pytest.mark.parametrize("code", Code)
def test_a_code_names_its_family_and_kind(code: Code) -> None:
    family, _, kind = code.partition("/")
    assert family in FAMILIES
    assert kind == code.name.lower().replace("_", "-")
    assert code.sentence


def test_an_unknown_field_is_no_attribute_of_a_refusal() -> None:
    refusal = refused(TABLE.forward, [4])
    assert refusal.position == 0
    with pytest.raises(AttributeError, match="token-id-out-of-bounds has no field 'row'"):
        _ = refusal.row


def test_digits_beyond_reading_are_counted() -> None:
    assert str(refused(TABLE.forward, [-(10**5000)])) == (
        "token ID -(an integer of 16610 bits) at flat position 0 is out of bounds for "
        "vocabulary size 4"
    )
    shape = str(refused(TABLE.forward, [0], [1, 10**5000]))
    assert shape == "invalid token-ID shape: [1, '(an integer of 16610 bits)']"


# the published sentences
@pytest.mark.parametrize(
    ("call", "arguments", "sentence"),
    [
        (
            Embedding.from_parameter,
            [Parameter("t", [1.0])],
            "embedding table must have rank two, got rank 1",
        ),
        (
            Embedding.new,
            ["t", 0, 2, SplitMix64(1)],
            "embedding vocabulary must contain at least one row",
        ),
        (
            Embedding.new,
            ["t", 2, 0, SplitMix64(1)],
            "embedding width must be greater than zero",
        ),
        (TABLE.forward, [[0], [-1]], "invalid token-ID shape: [-1]"),
        (TABLE.forward, [[0, 1], [2, 2]], "token-ID shape needs 4 IDs, but received 2"),
        (
            TABLE.forward,
            [[1, 4, 9]],
            "token ID 4 at flat position 1 is out of bounds for vocabulary size 4",
        ),
        (
            NO_MERGES.decode_document,
            [[0, 99, 0, 1]],
            "document control token 0 is not allowed at position 2",
        ),
        (
            NO_MERGES.decode_content_utf8,
            [[257, 256]],
            "decoded bytes are not valid UTF-8 at byte 0",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_published_sentence_is_said_as_published(
    call: Callable[..., object], arguments: Any, sentence: str
) -> None:
    assert str(refused(call, *arguments)) == sentence
