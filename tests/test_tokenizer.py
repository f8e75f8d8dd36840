from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logitproof.core.errors import Code, IndexRefusal, RecordRefusal, Refusal, ShapeRefusal
from logitproof.core.tokenizer import BpeTokenizer, inputs_and_targets, learn_merges
from logitproof.properties.oracles import tokenizer as oracle
from logitproof.properties.strategies import (
    byte_strings,
    content_ids,
    merge_tables,
    mergeable_bytes,
)

Merges: TypeAlias = tuple[tuple[int, int], ...]

DEMO_MERGES = (
    (32, 208), (208, 176), (209, 130), (208, 181), (208, 190), (208, 184), (209, 128), (101, 32),
)  # fmt: skip
PLAIN = BpeTokenizer()
DEMO = BpeTokenizer(DEMO_MERGES)

NOT_LISTS = [None, "0", b"\x00\x63\x01", {0, 1}, range(2), 1.5, np.array([0, 99, 1], object)]
NOT_INTEGERS = [True, False, np.True_, 1.0, np.float64(2.0), 2 + 0j, "2", b"2", None]  # fmt: skip
NOT_TOKENS = [-1, -(2**64), 258, 266, 2**31, 2**32, 2**32 + 2, 2**63, 2**64 + 99, 10**30]
WIDTHS = ["i1", "u1", "i2", ">i2", "u4", "i8", ">u8"]


# ids and data of the specification
def test_vocabulary_holds_controls_bytes_and_merges() -> None:
    assert (PLAIN.vocabulary_size, DEMO.vocabulary_size) == (258, 266)


def test_plain_document_of_ab_gives_the_published_ids() -> None:
    assert PLAIN.encode_document("ab") == [0, 99, 100, 1]
    assert inputs_and_targets([0, 99, 100, 1]) == ([0, 99, 100], [99, 100, 1])


def test_empty_text_is_two_controls() -> None:
    assert PLAIN.encode_document("") == DEMO.encode_document(b"") == [0, 1]
    assert PLAIN.decode_document([0, 1]) == PLAIN.decode_content([]) == b""


@pytest.mark.parametrize(
    ("data", "content"),
    [
        ("62656520", [100, 103, 265]),
        ("20d0b0", [258, 178]),
        ("f09fa680", [242, 161, 168, 130]),
        ("fffe", [257, 256]),
        ("41", [67]),
        ("4174", [67, 118]),
    ],
)
def test_demo_table_gives_the_published_ids(data: str, content: list[int]) -> None:
    assert DEMO.encode(bytes.fromhex(data)) == content
    assert DEMO.encode_document(bytes.fromhex(data)) == [0, *content, 1]
    assert DEMO.decode_content(content) == bytes.fromhex(data)


def test_non_canonical_ids_decode_alike_and_encode_to_the_canonical_ones() -> None:
    assert DEMO.decode_content([34, 259]) == DEMO.decode_content([258, 178]) == b"\x20\xd0\xb0"
    assert DEMO.encode(DEMO.decode_content([34, 259])) == [258, 178]


def test_bytes_and_text_of_one_document_encode_alike() -> None:
    assert DEMO.encode_document("è а") == DEMO.encode_document(bytearray("è а".encode()))


def test_text_is_not_normalised() -> None:
    assert PLAIN.encode_document("\u00e9") == [0, 197, 171, 1]
    assert PLAIN.encode_document("e\u0301") == [0, 103, 206, 131, 1]


def test_controls_take_no_part_in_merges() -> None:
    tokenizer = BpeTokenizer([(0, 1), (254, 255)])
    assert tokenizer.encode_document(b"\x00\x01") == [0, 258, 1]
    assert tokenizer.encode_document(b"a") == [0, 99, 1]


def test_one_pass_replaces_without_overlap_from_the_left() -> None:
    tokenizer = BpeTokenizer([(97, 97)])
    assert tokenizer.encode(b"aaaaa") == [258, 258, 99]


def test_ranks_apply_in_order() -> None:
    assert BpeTokenizer([(97, 98), (97, 97)]).encode(b"aab") == [99, 258]
    assert BpeTokenizer([(97, 97), (97, 98)]).encode(b"aab") == [258, 100]


def test_trace_records_the_ranks_that_changed_something() -> None:
    trace = DEMO.encode_with_trace(b"bee \xd0\xb0 \xd0")
    assert trace.initial == (100, 103, 103, 34, 210, 178, 34, 210)
    assert [(p.rank, p.replacements, p.after) for p in trace.passes] == [
        (0, 2, (100, 103, 103, 258, 178, 258)),
    ]
    assert trace.passes[0].before == trace.initial
    assert trace.ids == trace.passes[0].after


def test_trace_of_unmerged_bytes_has_no_pass() -> None:
    trace = DEMO.encode_with_trace(b"A")
    assert (trace.initial, trace.passes, trace.ids) == ((67,), (), (67,))


def test_token_byte_lengths_are_those_of_bytes() -> None:
    """https://github.com/karpathy/nanochat/pull/693"""
    ids = PLAIN.encode(b"\xc3\xa9")
    assert [len(PLAIN.token_bytes(i)) for i in ids] == [1, 1]
    assert PLAIN.decode_content_utf8(ids) == "\u00e9"


def test_token_bytes_are_those_of_bytes_merges_and_controls() -> None:
    nested = BpeTokenizer([(97, 98), (256, 256), (257, 97)])
    tokens = [nested.token_bytes(i) for i in (0, 1, 2, 257, 258, 259, 260)]
    assert tokens == [b"", b"", b"\x00", b"\xff", b"ab", b"abab", b"ababa"]


def test_a_table_may_describe_more_bytes_than_memory_holds() -> None:
    doubling = BpeTokenizer([(97, 97), *((256 + r, 256 + r) for r in range(99))])
    assert doubling.token_bytes(258 + 9) == b"a" * 1024
    assert doubling.encode(b"a" * 1024) == [258 + 9]


def test_merges_are_held_as_given() -> None:
    assert DEMO.merges == BpeTokenizer(np.array(DEMO_MERGES, "u1")).merges == DEMO_MERGES


@pytest.mark.parametrize("width", WIDTHS)
def test_integer_arrays_of_any_width_decode_alike(width: str) -> None:
    ids = np.array([0, 99, 100, 1, 7], width)[:4]
    assert PLAIN.decode_document(ids) == PLAIN.decode_document(ids[::-1][::-1]) == b"ab"
    assert inputs_and_targets(ids) == ([0, 99, 100], [99, 100, 1])


def test_ids_may_be_tuples_and_numpy_integers() -> None:
    ids: Any = (0, np.uint64(99), np.int8(1))
    assert PLAIN.decode_document(ids) == b"a"


# the definition, and round trips
@pytest.mark.property
@given(merge_tables(), mergeable_bytes())
@example(((97, 97), (256, 97), (97, 256)), b"aaaaaaa")
@example(((97, 98), (98, 97), (256, 256), (257, 97)), b"abababa")
def test_encode_is_one_pass_per_rank(merges: Merges, data: bytes) -> None:
    assert BpeTokenizer(merges).encode(data) == oracle.encode(data, merges)


@pytest.mark.property
@given(merge_tables(), mergeable_bytes())
def test_trace_is_the_changing_passes(merges: Merges, data: bytes) -> None:
    trace = BpeTokenizer(merges).encode_with_trace(data)
    passes = [(p.rank, p.replacements, p.before, p.after) for p in trace.passes]
    assert passes == oracle.changing_passes(data, merges)
    assert list(trace.ids) == BpeTokenizer(merges).encode(data)


@pytest.mark.property
@given(merge_tables(), byte_strings())
def test_decode_inverts_encode(merges: Merges, data: bytes) -> None:
    tokenizer = BpeTokenizer(merges)
    assert tokenizer.decode_content(tokenizer.encode(data)) == data
    assert tokenizer.decode_document(tokenizer.encode_document(data)) == data


@pytest.mark.property
@given(merge_tables(), st.text())
def test_text_survives_a_document(merges: Merges, text: str) -> None:
    tokenizer = BpeTokenizer(merges)
    document = tokenizer.encode_document(text)
    assert tokenizer.decode_document_utf8(document) == text
    assert tokenizer.decode_content_utf8(document[1:-1]) == text


@pytest.mark.property
@given(content_ids())
def test_bytes_of_any_content_are_the_joined_token_bytes(drawn: tuple[Merges, list[int]]) -> None:
    merges, ids = drawn
    tokenizer = BpeTokenizer(merges)
    data = tokenizer.decode_content(np.array(ids, np.int64))
    assert data == b"".join(map(tokenizer.token_bytes, ids)) == oracle.decode(ids, merges)
    assert tokenizer.decode_content(tokenizer.encode(data)) == data


@pytest.mark.property
@given(st.lists(mergeable_bytes(max_bytes=20), max_size=4), st.integers(0, 12))
@example([b"ab", b"ba"], 3)
@example([b"aaaa"], 5)
@example([b"", b"a"], 2)
def test_learned_merges_follow_the_definition(sequences: list[bytes], rounds: int) -> None:
    merges = learn_merges(sequences, rounds)
    assert merges == oracle.learn(sequences, rounds)
    assert BpeTokenizer(merges).vocabulary_size == 258 + len(merges)


@pytest.mark.parametrize(
    ("sequences", "rounds", "merges"),
    [
        ([b"abab"], 0, ()),
        ([b"ba", b"ab"], 1, ((97, 98),)),  # a tie: the smallest pair
        ([b"aaa", b"bc", b"bc"], 1, ((97, 97),)),  # overlapping pairs count
        ([b"ab"], 9, ((97, 98),)),  # count 1 is learned, then no pair is left
        ([b"a", b"b"], 9, ()),  # pairs do not cross sequences
    ],
)
def test_learning_counts_ties_and_ends_as_specified(
    sequences: list[bytes], rounds: int, merges: Merges
) -> None:
    assert learn_merges(sequences, rounds) == merges


@pytest.mark.property
@given(st.binary(min_size=1, max_size=12).filter(oracle.utf8_fault))
@example(b"\xff\xfe")
@example(b"ab\xe2\x82")
@example(b"\xe2\x28\xa1")
@example(b"\xed\xa0\x80")
@example(b"\xed")
@example(b"\xf0\x80\x80\x80")
@example(b"\xf4\x90\x80\x80")
@example(b"\xc0\xaf")
@example(b"\xf1\x80\x80")
@example(b"\xf1\x80\x80A")
def test_utf8_faults_lie_where_the_unicode_table_says(data: bytes) -> None:
    with pytest.raises(RecordRefusal) as caught:
        PLAIN.decode_content_utf8(PLAIN.encode(data))
    assert caught.value.code is Code.INVALID_UTF8
    assert (caught.value.valid_up_to, caught.value.error_len) == oracle.utf8_fault(data)


# refusals, each with its fields
def test_invalid_utf8_is_refused_after_the_bytes_are_known() -> None:
    assert DEMO.decode_document([0, 257, 256, 1]) == b"\xff\xfe"
    with pytest.raises(RecordRefusal) as caught:
        DEMO.decode_document_utf8([0, 257, 256, 1])
    assert (caught.value.valid_up_to, caught.value.error_len) == (0, 1)
    assert str(caught.value) == "decoded bytes are not valid UTF-8 at byte 0"


@pytest.mark.parametrize(
    ("ids", "family", "code", "fields"),
    [
        ([], ShapeRefusal, Code.DOCUMENT_TOO_SHORT, {"length": 0}),
        ([0], ShapeRefusal, Code.DOCUMENT_TOO_SHORT, {"length": 1}),
        ([99, 1], IndexRefusal, Code.EXPECTED_BOS, {"found": 99}),
        ([0, 99], IndexRefusal, Code.EXPECTED_EOS, {"found": 99}),
        ([0, 99, 0, 1], IndexRefusal, Code.INTERIOR_CONTROL_TOKEN, {"position": 2, "token_id": 0}),
        ([0, 1, 99, 1], IndexRefusal, Code.INTERIOR_CONTROL_TOKEN, {"position": 1, "token_id": 1}),
        ([0, 99, 258, 1], IndexRefusal, Code.UNKNOWN_TOKEN, {"position": 2, "token_id": 258}),
    ],
)
def test_decode_document_refuses(
    ids: list[int], family: type[Refusal], code: Code, fields: dict[str, object]
) -> None:
    with pytest.raises(family) as caught:
        PLAIN.decode_document(ids)
    assert caught.value.code is code
    assert fields.items() <= caught.value.facts().items()


def test_interior_control_has_the_published_text() -> None:
    with pytest.raises(IndexRefusal) as caught:
        PLAIN.decode_document([0, 99, 0, 1])
    assert str(caught.value) == "document control token 0 is not allowed at position 2"


@pytest.mark.parametrize(
    ("ids", "code", "fields"),
    [
        ([99, 0], Code.CONTROL_TOKEN_IN_CONTENT, {"position": 1, "token_id": 0}),
        ([1, 0], Code.CONTROL_TOKEN_IN_CONTENT, {"position": 0, "token_id": 1}),
        ([99, 265, 266], Code.UNKNOWN_TOKEN, {"position": 2, "token_id": 266, "bound": 266}),
    ],
)
def test_decode_content_refuses(ids: list[int], code: Code, fields: dict[str, object]) -> None:
    with pytest.raises(IndexRefusal) as caught:
        DEMO.decode_content(ids)
    assert caught.value.code is code
    assert fields.items() <= caught.value.facts().items()


@pytest.mark.parametrize("token", NOT_TOKENS)
def test_integers_outside_the_vocabulary_are_refused_with_their_value(token: int) -> None:
    with pytest.raises(IndexRefusal) as caught:
        PLAIN.decode_document([0, 99, token, 1])
    assert caught.value.code is Code.UNKNOWN_TOKEN
    assert (caught.value.position, caught.value.token_id, caught.value.bound) == (2, token, 258)


@pytest.mark.parametrize("width", ["u8", ">i8", "f8", "?", "m8[ns]"])
def test_no_array_wraps_into_the_vocabulary(width: str) -> None:
    ids = np.array([2**32 + 2, 2**33]).astype(width)
    with pytest.raises(IndexRefusal) as caught:
        PLAIN.decode_content(ids)
    assert caught.value.code in {Code.UNKNOWN_TOKEN, Code.NOT_AN_INTEGER}
    assert caught.value.at == 0


@pytest.mark.parametrize("entry", NOT_INTEGERS, ids=repr)
@pytest.mark.parametrize("take", [PLAIN.decode_document, PLAIN.decode_content, inputs_and_targets])
def test_ids_that_are_no_integers_are_refused_before_their_order(
    take: Callable[[Any], object], entry: object
) -> None:
    with pytest.raises(IndexRefusal) as caught:
        take([7, 0, 10**9, entry])
    assert (caught.value.code, caught.value.at) == (Code.NOT_AN_INTEGER, 3)


@pytest.mark.parametrize("ids", NOT_LISTS, ids=repr)
@pytest.mark.parametrize("take", [PLAIN.decode_document, PLAIN.decode_content, inputs_and_targets])
def test_only_lists_tuples_and_integer_arrays_are_ids(
    take: Callable[[Any], object], ids: object
) -> None:
    with pytest.raises(IndexRefusal) as caught:
        take(ids)
    assert (caught.value.code, caught.value.at) == (Code.NOT_AN_INTEGER, 0)


@pytest.mark.parametrize("ids", [7, [[0, 99, 1]], np.zeros((1, 3), np.int64), np.int64(3)])
@pytest.mark.parametrize("take", [PLAIN.decode_document, PLAIN.decode_content, inputs_and_targets])
def test_ids_are_one_flat_sequence(take: Callable[[Any], object], ids: Any) -> None:
    with pytest.raises(ShapeRefusal) as caught:
        take(ids)
    assert (caught.value.code, caught.value.actual) == (Code.TOKEN_SHAPE, np.shape(ids))


@pytest.mark.parametrize("take", [PLAIN.decode_document, PLAIN.decode_content, inputs_and_targets])
def test_ragged_ids_are_refused(take: Callable[[Any], object]) -> None:
    with pytest.raises(ShapeRefusal) as caught:
        take([0, [99], 1])
    assert caught.value.code is Code.RAGGED_IDS


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([5], Code.DOCUMENT_TOO_SHORT),  # and no BOS
        ([5, 6], Code.EXPECTED_BOS),  # and no EOS
        ([0, 0, 6], Code.EXPECTED_EOS),  # and an interior control
        ([0, 999, 0, 1], Code.INTERIOR_CONTROL_TOKEN),  # and an unknown id before it
        ([0, 999, 257, 1], Code.UNKNOWN_TOKEN),  # and no UTF-8
    ],
)
def test_decode_document_reports_the_first_of_two_faults(ids: list[int], code: Code) -> None:
    with pytest.raises(Refusal) as caught:
        PLAIN.decode_document_utf8(ids)
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("ids", "code"),
    [([999, 0], Code.CONTROL_TOKEN_IN_CONTENT), ([257, 999], Code.UNKNOWN_TOKEN)],
)
def test_decode_content_reports_the_first_of_two_faults(ids: list[int], code: Code) -> None:
    with pytest.raises(Refusal) as caught:
        PLAIN.decode_content_utf8(ids)
    assert caught.value.code is code


@pytest.mark.parametrize("token", NOT_TOKENS)
def test_token_bytes_refuses_unknown_ids(token: int) -> None:
    with pytest.raises(IndexRefusal) as caught:
        PLAIN.token_bytes(token)
    assert (caught.value.code, caught.value.token_id) == (Code.UNKNOWN_TOKEN, token)


@pytest.mark.parametrize("token", [True, 2.0, "2", None])
def test_token_bytes_refuses_what_is_no_integer(token: Any) -> None:
    with pytest.raises(IndexRefusal) as caught:
        PLAIN.token_bytes(token)
    assert (caught.value.code, caught.value.at) == (Code.NOT_AN_INTEGER, 0)


@pytest.mark.parametrize("data", ["ab", None, 3, [97], memoryview(b"a"), np.array([97], "u1")])
@pytest.mark.parametrize("take", [PLAIN.encode, PLAIN.encode_with_trace])
def test_encode_takes_bytes_alone(take: Callable[[Any], object], data: object) -> None:
    with pytest.raises(RecordRefusal) as caught:
        take(data)
    assert (caught.value.code, caught.value.actual) == (Code.NOT_BYTES, type(data).__name__)


@pytest.mark.parametrize("text", [None, 3, ["ab"], memoryview(b"a")])
def test_encode_document_takes_text_or_bytes_alone(text: Any) -> None:
    with pytest.raises(RecordRefusal) as caught:
        PLAIN.encode_document(text)
    assert (caught.value.code, caught.value.what) == (Code.NOT_BYTES, "text")


@pytest.mark.parametrize("surrogate", [chr(0xD800), chr(0xDFFF), chr(0xDC80) * 2])
def test_encode_document_refuses_surrogates(surrogate: str) -> None:
    with pytest.raises(RecordRefusal) as caught:
        PLAIN.encode_document("ab" + surrogate)
    assert (caught.value.code, caught.value.at) == (Code.NOT_BYTES, 2)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("merges", "family", "code", "fields"),
    [
        ([(256, 97)], IndexRefusal, Code.UNKNOWN_MERGE_OPERAND, {"rank": 0, "token_id": 256}),
        ([(97, 256)], IndexRefusal, Code.UNKNOWN_MERGE_OPERAND, {"rank": 0, "token_id": 256}),
        ([(97, -1)], IndexRefusal, Code.UNKNOWN_MERGE_OPERAND, {"rank": 0, "token_id": -1}),
        ([(97, 98), (2**64, 97)], IndexRefusal, Code.UNKNOWN_MERGE_OPERAND,
         {"rank": 1, "token_id": 2**64, "bound": 257}),
        ([(97, 98), (256, 97), (97, 98)], RecordRefusal, Code.DUPLICATE_MERGE_PAIR,
         {"rank": 2, "left": 97, "right": 98}),
        ([(97, 98), (98, True)], IndexRefusal, Code.NOT_AN_INTEGER, {"at": 3, "index": True}),
        ([(97.0, 98)], IndexRefusal, Code.NOT_AN_INTEGER, {"at": 0, "index": 97.0}),
        (np.array([[97.0, 98.0]]), IndexRefusal, Code.NOT_AN_INTEGER, {"index": 97.0}),
        (["ab"], IndexRefusal, Code.NOT_AN_INTEGER, {"what": "merges"}),
        (None, IndexRefusal, Code.NOT_AN_INTEGER, {"what": "merges"}),
        ([(97, 98), (97,)], ShapeRefusal, Code.RAGGED_IDS, {"what": "merges"}),
        ([(97, 98, 99)], RecordRefusal, Code.FIELD_TYPE, {"what": "merges"}),
        ([97, 98], RecordRefusal, Code.FIELD_TYPE, {"what": "merges"}),
        ([[], []], RecordRefusal, Code.FIELD_TYPE, {"what": "merges"}),
        ([[(97, 98)]], RecordRefusal, Code.FIELD_TYPE, {"what": "merges"}),
    ],
)  # fmt: skip
def test_construction_refuses(
    merges: Any, family: type[Refusal], code: Code, fields: dict[str, object]
) -> None:
    with pytest.raises(family) as caught:
        BpeTokenizer(merges)
    assert caught.value.code is code
    assert fields.items() <= caught.value.facts().items()
    assert str(caught.value)


@pytest.mark.parametrize(
    ("merges", "code"),
    [
        ([(300, 97), (97, 1.0)], Code.NOT_AN_INTEGER),  # types before all ids
        ([300, 301], Code.FIELD_TYPE),  # pairs before ids
        ([(97, 98), (97, 300), (97, 98)], Code.UNKNOWN_MERGE_OPERAND),  # by rank
        ([(97, 98), (97, 98), (97, 300)], Code.DUPLICATE_MERGE_PAIR),
    ],
)
def test_construction_reports_the_first_of_two_faults(merges: Any, code: Code) -> None:
    with pytest.raises(Refusal) as caught:
        BpeTokenizer(merges)
    assert caught.value.code is code


def test_construction_reports_the_left_operand_first() -> None:
    with pytest.raises(IndexRefusal) as caught:
        BpeTokenizer([(256, 300)])
    assert (caught.value.rank, caught.value.token_id) == (0, 256)


@pytest.mark.parametrize(
    ("sequences", "rounds", "code", "what"),
    [
        (b"abab", 1, Code.FIELD_TYPE, "sequences"),
        ([b"ab", "ab"], -1, Code.NOT_BYTES, "sequences[1]"),
        ([b"ab"], 1.0, Code.FIELD_RANGE, "rounds"),
        ([b"ab"], True, Code.FIELD_RANGE, "rounds"),
        ([b"ab"], -1, Code.FIELD_RANGE, "rounds"),
    ],
)
def test_learning_refuses(sequences: Any, rounds: Any, code: Code, what: str) -> None:
    with pytest.raises(RecordRefusal) as caught:
        learn_merges(sequences, rounds)
    assert (caught.value.code, caught.value.what) == (code, what)


# windows
@pytest.mark.property
@given(mergeable_bytes(max_bytes=12), st.integers(0, 14), st.integers(0, 14))
def test_every_range_of_a_document_gives_one_pair_less_than_ids(
    data: bytes, start: int, stop: int
) -> None:
    ids = PLAIN.encode_document(data)[start:stop]
    inputs, targets = inputs_and_targets(ids)
    assert list(zip(inputs, targets, strict=True)) == list(pairwise(ids))
    assert 1 not in inputs
    assert 0 not in targets


@pytest.mark.parametrize("ids", [[0, 99, 1, 0, 100, 1], [0, 1, 99], [99, 0], [99, 1, 1]])
def test_a_range_across_documents_is_refused(ids: list[int]) -> None:
    with pytest.raises(IndexRefusal) as caught:
        inputs_and_targets(ids)
    assert caught.value.code is Code.INTERIOR_CONTROL_TOKEN


# nothing is shared with the caller
def test_caller_arrays_stay_and_later_changes_change_nothing() -> None:
    merges, data, ids = np.array(DEMO_MERGES), bytearray(b"e "), np.array([0, 265, 1])
    tokenizer = BpeTokenizer(merges)
    before = (tokenizer.encode(data), tokenizer.decode_document(ids))
    merges[:] = 0
    assert (tokenizer.encode(data), tokenizer.decode_document(ids)) == before
    assert (data, ids.tolist()) == (bytearray(b"e "), [0, 265, 1])
