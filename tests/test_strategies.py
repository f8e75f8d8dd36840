"""Strategies draw what they promise, and their smallest values are plain."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings

from logitproof.core import DecodeSession, pack_documents
from logitproof.properties.compare import same_bits
from logitproof.properties.oracles import tokenizer as oracle
from logitproof.properties.situations import TINY, full_logits, played, shaken_decoder
from logitproof.properties.strategies import (
    Step,
    byte_strings,
    documents,
    merge_tables,
    session_scripts,
)

FEW = settings(max_examples=1000, database=None, derandomize=True, deadline=None)
SIZES = {"vocabulary_size": TINY.vocabulary_size, "capacity": TINY.max_positions}
DECODER = shaken_decoder(TINY)


@pytest.mark.property
@given(session_scripts(**SIZES))
def test_a_script_ends_where_the_full_forward_does(script: tuple[Step, ...]) -> None:
    tokens, newest = played(DecodeSession(DECODER), script)
    assert len(tokens) <= TINY.max_positions
    assert newest is None or same_bits(newest, full_logits(DECODER, tokens)[-1])


@pytest.mark.parametrize("name", ["decode", "extend", "fork", "truncate", "reset"])
def test_every_call_of_a_session_is_drawn_and_shrinks_to_a_prompt_and_itself(name: str) -> None:
    has = lambda script: any(step.name == name for step in script)  # noqa: E731
    smallest = find(session_scripts(**SIZES), has, settings=FEW)
    assert [step.name for step in smallest] == ["prefill", name]
    assert {*smallest[0].ids, *smallest[1].ids} == {0}


def test_a_script_fills_the_cache_and_goes_on_from_less() -> None:
    def refills(script: tuple[Step, ...]) -> bool:
        names = [step.name for step in script]
        filled = sum(len(step.ids) for step in script) > TINY.max_positions
        return filled and "truncate" in names and names[-1] == "decode"

    assert find(session_scripts(**SIZES), refills, settings=settings(FEW, phases=[Phase.generate]))


@pytest.mark.parametrize(
    "kind",
    [
        lambda data: data == b"",
        lambda data: oracle.utf8_fault(data) is not None,
        lambda data: oracle.utf8_fault(data) is None and max(data, default=0) > 127,
        lambda data: len(data) > 6 and {*data} <= {97, 98, 32},
    ],
    ids=["empty", "not-utf8", "beyond-ascii", "mergeable"],
)
def test_byte_strings_are_of_every_kind(kind: Callable[[bytes], bool]) -> None:
    assert kind(find(byte_strings(), kind, settings=FEW))


@given(documents(vocabulary_size=3))
def test_documents_can_be_packed(drawn: list[list[int]]) -> None:
    batch = pack_documents(drawn, vocabulary_size=3, capacity=6)
    assert int(batch.valid.sum()) == sum(len(ids) - 1 for ids in drawn)


@pytest.mark.parametrize(
    ("strategy", "smallest"),
    [
        (documents(vocabulary_size=9), [[0, 0]]),
        (merge_tables(), ()),
        (byte_strings(), b""),
    ],
    ids=["documents", "merge-tables", "byte-strings"],
)
def test_the_smallest_is_plain(strategy: Any, smallest: object) -> None:
    assert find(strategy, lambda _: True, settings=FEW) == smallest


def test_documents_repeat_tokens_on_purpose() -> None:
    often = lambda drawn: max(drawn[0].count(i) for i in drawn[0]) > 3  # noqa: E731
    assert find(documents(vocabulary_size=1000), often, settings=FEW) == [[0] * 4]
