import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitproof.core import identity
from logitproof.core.codes import Code
from logitproof.properties import record_strategies
from logitproof.properties.refusals import refusal_of

VECTOR = b'{"domain":"decoder-model-v1","fields":{"configuration":"{}\\n"},"schema_version":1}\n'


@pytest.mark.golden
def test_the_test_vector_has_its_bytes_and_digest() -> None:
    framed = identity.frame("decoder-model-v1", [("configuration", "{}\n")])
    assert framed.to_bytes() == VECTOR
    assert framed.sha256 == "e02da6662ed7e2a30a11722cc4e5d422e6bb7631b2e5afa8e53b54925f0f73f3"


@pytest.mark.property
@given(
    st.dictionaries(
        st.from_regex(r"\A[a-z][a-z0-9._-]{0,63}\Z"), record_strategies.texts(), min_size=1
    )
)
def test_an_identity_is_the_digest_of_plain_json(held: dict[str, str]) -> None:
    frame = {"domain": "d", "fields": held, "schema_version": 1}
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"
    framed = identity.frame("d", held.items())
    assert framed.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert identity.decode(framed.to_bytes()) == framed


def test_the_order_of_fields_does_not_matter() -> None:
    pairs = [("b", "2"), ("a", "1")]
    assert identity.frame("d", pairs) == identity.frame("d", reversed(pairs))


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a b", "é", "a" * 65, "a\n", "aB"])
def test_names_outside_the_grammar_are_refused(name: str) -> None:
    assert refusal_of(identity.frame, name, [("a", "1")]).code is Code.IDENTITY_GRAMMAR
    assert refusal_of(identity.frame, "d", [(name, "1")]).code is Code.IDENTITY_GRAMMAR


@pytest.mark.parametrize("name", ["a", "a" * 64, "a0._-"])
def test_names_of_the_grammar_are_taken(name: str) -> None:
    assert identity.frame(name, [(name, "")]).domain == name


def test_a_129th_field_is_refused() -> None:
    pairs = [(f"k{i}", "") for i in range(129)]
    assert len(identity.frame("d", pairs[:128]).fields) == 128
    fault = refusal_of(identity.frame, "d", pairs)
    assert (fault.code, fault.actual) == (Code.IDENTITY_FIELD_COUNT, 129)


def test_a_field_twice_is_refused() -> None:
    fault = refusal_of(identity.frame, "d", [("a", "1"), ("a", "1")])
    assert (fault.code, fault.what) == (Code.DUPLICATE_KEY, "identity.fields.a")


def test_a_value_of_65537_bytes_is_refused() -> None:
    assert identity.frame("d", [("a", "é" * 32_768)]).domain == "d"
    fault = refusal_of(identity.frame, "d", [("a", "é" * 32_768 + "x")])
    assert (fault.code, fault.actual) == (Code.IDENTITY_VALUE_SIZE, 65_537)


def test_domain_keys_and_values_share_one_bound() -> None:
    pairs = [(f"k{i}", "x" * 65_533) for i in range(4)]
    fault = refusal_of(identity.frame, "abcdefghi", pairs)
    assert (fault.code, fault.actual) == (Code.IDENTITY_TOTAL_SIZE, 262_149)
    assert identity.frame("abcd", pairs).domain == "abcd"


def test_half_a_surrogate_pair_is_refused() -> None:
    assert refusal_of(identity.frame, "d", [("a", "\ud800")]).code is Code.LONE_SURROGATE


def test_no_field_at_all_is_refused() -> None:
    fault = refusal_of(identity.frame, "d", [])
    assert (fault.code, fault.actual) == (Code.IDENTITY_FIELD_COUNT, 0)


@pytest.mark.parametrize(
    ("pairs", "code"),
    [
        ([("A", "1"), ("a", "2")], Code.IDENTITY_GRAMMAR),
        ([("a", "1"), ("a", "x" * 70_000)], Code.DUPLICATE_KEY),
        ([*((f"k{i}", "") for i in range(128)), ("A", "")], Code.IDENTITY_FIELD_COUNT),
    ],
)
def test_of_two_faults_the_earlier_check_speaks(pairs: list[tuple[str, str]], code: Code) -> None:
    assert refusal_of(identity.frame, "d", pairs).code is code


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b" " * 2_097_153, Code.TEXT_SIZE),
        (b"[]\n", Code.FIELD_TYPE),
        (VECTOR.replace(b'"domain"', b'"Domain"'), Code.UNKNOWN_KEY),
        (b'{"domain":"d","fields":{"a":"1"}}\n', Code.MISSING_KEY),
        (VECTOR.replace(b'"{}\\n"', b"1"), Code.FIELD_TYPE),
        (VECTOR.replace(b":1}", b":2}"), Code.SCHEMA_VERSION),
        (VECTOR.replace(b":1}", b":true}"), Code.FIELD_TYPE),
        (VECTOR.replace(b"decoder-model-v1", b"Decoder"), Code.IDENTITY_GRAMMAR),
        (VECTOR.replace(b'"configuration":"{}\\n"', b""), Code.IDENTITY_FIELD_COUNT),
        (VECTOR + b"\n", Code.NOT_CANONICAL),
        (VECTOR.replace(b"\\n", b"\\u000a"), Code.NOT_CANONICAL),
    ],
)
def test_decode_refuses_in_its_order(data: bytes, code: Code) -> None:
    assert refusal_of(identity.decode, data).code is code


def test_decode_reports_the_version_before_the_builder() -> None:
    data = VECTOR.replace(b":1}", b":2}").replace(b"decoder", b"Decoder")
    assert refusal_of(identity.decode, data).code is Code.SCHEMA_VERSION


class Disguised(str):
    """Text of another type."""

    __slots__ = ()


@pytest.mark.parametrize("wrong", [None, 3, b"c", Disguised("c")], ids=lambda w: type(w).__name__)
def test_a_value_that_is_no_text_is_refused(wrong: Any) -> None:
    fault = refusal_of(identity.frame, "a", [("b", wrong)])
    assert (fault.code, fault.what) == (Code.FIELD_TYPE, "identity.fields.b")
    assert refusal_of(identity.frame, wrong, [("b", "c")]).code is Code.IDENTITY_GRAMMAR
    assert refusal_of(identity.frame, "a", [(wrong, "c")]).code is Code.IDENTITY_GRAMMAR
