import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitproof.core import canonical
from logitproof.core.codes import Code
from logitproof.properties import record_strategies
from logitproof.properties.refusals import refusal_of


@pytest.mark.property
@given(record_strategies.plain_values())
def test_decode_inverts_encode(value: object) -> None:
    assert canonical.decode(canonical.encode(value, what="record"), what="record") == value


@pytest.mark.property
@given(record_strategies.plain_values())
def test_encode_gives_compact_sorted_json_with_one_line_feed(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"
    assert canonical.encode(value, what="record") == text.encode()


@pytest.mark.property
@given(record_strategies.plain_values(), st.integers(0, 4))
def test_decode_reads_what_a_json_writer_indents_and_escapes(value: object, indent: int) -> None:
    assert canonical.decode(json.dumps(value, indent=indent).encode(), what="record") == value


@pytest.mark.parametrize("value", ["{}", None, 5, bytearray(b"{}")])
def test_decode_takes_bytes_alone(value: object) -> None:
    assert refusal_of(canonical.decode, value, what="record").code is Code.NOT_BYTES


def test_decode_refuses_one_byte_over_the_bound_before_it_reads() -> None:
    fault = refusal_of(canonical.decode, b"\xff" * (canonical.MAX_BYTES + 1), what="record")
    assert fault.code is Code.TEXT_SIZE
    assert (fault.expected, fault.actual) == (1_048_576, 1_048_577)


def test_decode_reads_exactly_the_bound() -> None:
    data = b'"' + b"a" * (canonical.MAX_BYTES - 2) + b'"'
    assert canonical.decode(data, what="record") == "a" * 1_048_574


def test_decode_names_the_byte_that_is_not_utf8() -> None:
    fault = refusal_of(canonical.decode, b'"a\xff"', what="record")
    assert (fault.code, fault.at) == (Code.TEXT_ENCODING, 2)


def test_decode_reports_the_encoding_before_the_syntax() -> None:
    assert refusal_of(canonical.decode, b"][\xff", what="record").code is Code.TEXT_ENCODING


@pytest.mark.parametrize(
    ("data", "at", "expected"),
    [
        (b"", 0, "a value"),
        (b"\xef\xbb\xbf{}", 0, "a value"),
        (b"{", 1, "a key"),
        (b"{1:2}", 1, "a key"),
        (b'{"a" 1}', 5, "a colon"),
        (b'{"a":1 "b":2}', 7, "a comma or a closing brace"),
        (b'{"a":1,}', 7, "a key"),
        (b"[1 2]", 3, "a comma or a closing bracket"),
        (b"[1,]", 3, "a value"),
        (b"{} {}", 3, "the end"),
        (b"01", 1, "the end"),
        (b"+1", 0, "a value"),
        (b".5", 0, "a value"),
        (b"1.", 1, "the end"),
        (b"nul", 0, "a value"),
        (b"'a'", 0, "a value"),
        (b'"a', 2, "a closing quote, a character or an escape"),
        (b'"\n"', 1, "a closing quote, a character or an escape"),
        (b'"\\x41"', 1, "a closing quote, a character or an escape"),
        (b'"\\u12"', 1, "a closing quote, a character or an escape"),
    ],
)
def test_decode_names_the_byte_where_the_syntax_ends(
    data: bytes, at: int, expected: object
) -> None:
    fault = refusal_of(canonical.decode, data, what="record")
    assert (fault.code, fault.at, fault.expected) == (Code.TEXT_SYNTAX, at, expected)


@pytest.mark.parametrize("depth", [canonical.MAX_DEPTH + 1, 5000, 200_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_decode_refuses_deep_nesting_at_its_first_level_too_many(
    depth: int, opening: bytes
) -> None:
    fault = refusal_of(canonical.decode, opening * depth, what="record")
    assert (fault.code, fault.at) == (Code.TEXT_NESTING, len(opening) * canonical.MAX_DEPTH)


def test_decode_reads_the_deepest_nesting_allowed() -> None:
    data = b"[" * canonical.MAX_DEPTH + b"]" * canonical.MAX_DEPTH
    assert canonical.encode(canonical.decode(data, what="record"), what="record") == data + b"\n"


def test_decode_counts_values_before_it_reads_them() -> None:
    full = b"[" + b"0," * (canonical.MAX_VALUES - 2) + b"0]"
    assert canonical.decode(full, what="record") == [0] * (canonical.MAX_VALUES - 1)
    fault = refusal_of(canonical.decode, full[:-1] + b",0]", what="record")
    assert (fault.code, fault.at) == (Code.TEXT_VALUES, len(full))


@pytest.mark.parametrize("number", [b"1" * 5000, b"-0." + b"3" * 5000, b"1e" + b"9" * 5000])
def test_decode_counts_digits_before_it_converts_them(number: bytes) -> None:
    fault = refusal_of(canonical.decode, number, what="record")
    assert (fault.code, fault.expected, fault.actual) == (Code.TEXT_DIGITS, 39, 5000)


def test_decode_reads_the_longest_number_allowed() -> None:
    assert canonical.decode(str(2**128 - 1).encode(), what="record") == 2**128 - 1


@pytest.mark.parametrize("text", ["1.0", "1e3", "-0", "-5", "1e999", "-1e999", "0.1", "1E+2"])
def test_decode_keeps_a_number_that_is_no_unsigned_integer_as_text(text: str) -> None:
    assert canonical.decode(text.encode(), what="record") == canonical.Number(text)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_decode_refuses_words_for_numbers_that_are_not_finite(text: str) -> None:
    # Reported case json-nonfinite; 1e999 stays text and never becomes an infinity.
    assert (
        refusal_of(canonical.decode, f'{{"eps":{text}}}'.encode(), what="record").code
        is Code.TEXT_SYNTAX
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.5, -1, b"", {1, 2}])
def test_encode_refuses_what_canonical_json_does_not_hold(value: object) -> None:
    fault = refusal_of(canonical.encode, {"eps": [value]}, what="record")
    assert (fault.code, fault.what) == (Code.FIELD_TYPE, "record.eps.0")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"d_model":8,"d_model":16}', "record.d_model"),
        ('{"a":{"x":1,"x":1}}', "record.a.x"),
        ('{"d_model":8,"d\\u005fmodel":16}', "record.d_model"),
        ('[{"a":1},{"a":1,"a":2}]', "record.*.a"),
    ],
)
def test_decode_refuses_a_key_twice_at_every_depth_and_names_it(text: str, what: str) -> None:
    # Reported case json-duplicate-key: keys are compared after unescaping.
    fault = refusal_of(canonical.decode, text.encode(), what="record")
    assert (fault.code, fault.what) == (Code.DUPLICATE_KEY, what)


def test_decode_reports_the_syntax_before_a_key_twice() -> None:
    assert refusal_of(canonical.decode, b'{"a":1,"a":2', what="record").code is Code.TEXT_SYNTAX


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\udc00\\ud800"', '"\\ud800a"', '{"\\uDFFF":1}'])
def test_decode_refuses_half_a_surrogate_pair(text: str) -> None:
    assert refusal_of(canonical.decode, text.encode(), what="record").code is Code.LONE_SURROGATE


def test_decode_joins_a_surrogate_pair() -> None:
    assert canonical.decode(b'"\\ud83d\\uDE00"', what="record") == "\U0001f600"


def test_encode_refuses_half_a_surrogate_pair() -> None:
    fault = refusal_of(canonical.encode, "a\ud800", what="record")
    assert (fault.code, fault.actual) == (Code.LONE_SURROGATE, "U+D800")


def test_encode_writes_short_escapes_other_controls_and_raw_text() -> None:
    text = '"\\\b\f\n\r\t\x00\x1f\x7f/é\U0001f600'
    written = '"\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\x7f/é\U0001f600"\n'
    assert canonical.encode(text, what="record") == written.encode()


@pytest.mark.parametrize(
    ("data", "at"),
    [(b'{"a":1}', 7), (b'{"a":1}\n\n', 8), (b'{"a": 1}\n', 5), (b'{"b":1,"a":2}\n', 2)],
)
def test_check_bytes_names_the_first_byte_that_differs(data: bytes, at: int) -> None:
    value = canonical.decode(data, what="record")
    fault = refusal_of(canonical.check_bytes, data, value, what="record")
    assert (fault.code, fault.at) == (Code.NOT_CANONICAL, at)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "true"),
        (None, "null"),
        ("a\nb", 'the text "a\\nb"'),
        ("x" * 99, 'the text "' + "x" * 48 + '…"'),
        ("\ud800", 'the text "\\ud800"'),
        (canonical.Number("1.0"), "the number 1.0"),
        (10**60, "a huge number"),
        (7, "the number 7"),
        ({}, "an object"),
        ([], "an array"),
        (1.5, "a float"),
    ],
)
def test_described_fits_one_line(value: object, words: str) -> None:
    assert canonical.described(value) == words


def test_dotted_quotes_keys_that_are_no_names() -> None:
    assert canonical.dotted(("model", "a b\n", "c")) == 'model."a b\\n".c'


class Loud(str):
    """Text of another type."""

    __slots__ = ()


class Padded(int):
    """A number that prints otherwise."""

    def __str__(self) -> str:
        return "01"


@pytest.mark.parametrize(
    "wrong",
    [{1: 2}, {1: 2, "a": 1}, Padded(1), 10**5000, 10**39, -1, [1.5]],
    ids=["key", "keys", "subclass", "huge", "forty-digits", "negative", "float"],
)
def test_only_what_canonical_text_holds_is_written(wrong: Any) -> None:
    assert refusal_of(canonical.encode, wrong, what="text").code is Code.FIELD_TYPE


@pytest.mark.parametrize("value", [Padded(1), Loud("a")], ids=["number", "text"])
def test_a_subclass_is_described_by_its_name(value: Any) -> None:
    assert canonical.described(value) == f"a {type(value).__name__}"


@pytest.mark.parametrize("character", ["\x7f", "\x85", "\u2028", "\u202e", "\ud800", "\ue000"])
def test_foreign_text_is_quoted_in_one_printable_line(character: str) -> None:
    assert canonical.quoted(f"a{character}b").isprintable()
    assert canonical.dotted(("model", f"a{character}b")).isprintable()
