"""Boundaries of the byte-level tokenizer."""

from __future__ import annotations

from logitproof.core import BpeTokenizer
from logitproof.core.codes import Code
from logitproof.core.tokenizer import inputs_and_targets, learn_merges

from .boundary import Apart, Boundary, Fault, Situation, fault, refuses

__all__ = ["BOUNDARIES"]

PLAIN = BpeTokenizer([(97, 98)])
V = 259


def _put(at: int, id: object, s: Situation) -> None:
    s.ids = [id if i == at else old for i, old in enumerate(s.ids)]


def _merge(rank: int, pair: object, s: Situation) -> None:
    s.merges = [pair if i == rank else old for i, old in enumerate(s.merges)]


merges = Boundary(
    name="BpeTokenizer",
    order=refuses(BpeTokenizer),
    build=lambda: Situation(merges=[(97, 98), (256, 99), (98, 97)]),
    call=lambda s: BpeTokenizer(s.merges),
    faults=(
        fault(Code.RAGGED_IDS, "ragged merges", lambda s: s.set(merges=[*s.merges, [[1]]])),
        fault(Code.NOT_AN_INTEGER, "float in a pair", lambda s: _merge(0, (97.0, 98), s), id=97.0),
        fault(Code.FIELD_TYPE, "a number", lambda s: s.set(merges=5)),
        fault(Code.FIELD_TYPE, "a flat pair", lambda s: s.set(merges=[97, 98])),
        fault(
            Code.UNKNOWN_MERGE_OPERAND,
            "id 256 at rank 0",
            lambda s: _merge(0, (97, 256), s),
            rank=0,
            token_id=256,
        ),
        fault(
            Code.UNKNOWN_MERGE_OPERAND,
            "id -1 at rank 1",
            lambda s: _merge(1, (-1, 99), s),
            rank=1,
            token_id=-1,
        ),
        fault(
            Code.DUPLICATE_MERGE_PAIR,
            "rank 2 repeats rank 0",
            lambda s: _merge(2, s.merges[0], s),
            rank=2,
            left=97,
            right=98,
        ),
    ),
    apart=(
        Apart("one pair of rank 0", {"float in a pair", "id 256 at rank 0"}),
        Apart("two integers are no pairs", {"a flat pair"}, {"float in a pair"}),
        Apart("a number has no items", {"a number"}, {"float in a pair", "ragged merges"}),
    ),
)

IDS: tuple[Fault, ...] = (
    fault(Code.RAGGED_IDS, "ragged ids", lambda s: s.set(ids=[*s.ids, [0]])),
    fault(
        Code.NOT_AN_INTEGER, "float id", lambda s: _put(2, 99.0, s), position=2, id=99.0, bound=V
    ),
    fault(Code.TOKEN_SHAPE, "nested ids", lambda s: s.set(ids=[s.ids])),
)
NESTED = Apart("one nesting is given", {"ragged ids", "nested ids"})
FLOAT = Apart("the float is put into flat ids", {"float id"}, {"nested ids"})
UNKNOWN = (
    fault(
        Code.UNKNOWN_TOKEN,
        "id 259",
        lambda s: _put(1, V, s),
        position=1,
        token_id=V,
        bound=V,
    ),
    fault(Code.UNKNOWN_TOKEN, "id -1", lambda s: _put(3, -1, s), position=3, token_id=-1),
)
BROKEN_TEXT = fault(Code.INVALID_UTF8, "no UTF-8", lambda s: _put(4, 257, s), valid_up_to=3)

content = Boundary(
    name="decode_content",
    order=(*refuses(BpeTokenizer.decode_content), Code.INVALID_UTF8),
    build=lambda: Situation(ids=[99, 100, 101, 102, 103]),
    call=lambda s: PLAIN.decode_content_utf8(s.ids),
    faults=(
        *IDS,
        fault(
            Code.CONTROL_TOKEN_IN_CONTENT,
            "end in content",
            lambda s: _put(4, 1, s),
            position=4,
            token_id=1,
        ),
        *UNKNOWN,
        fault(Code.INVALID_UTF8, "no UTF-8", lambda s: _put(0, 257, s), valid_up_to=0),
    ),
    apart=(NESTED, FLOAT),
)

document = Boundary(
    name="decode_document",
    order=(*refuses(BpeTokenizer.decode_document), Code.INVALID_UTF8),
    build=lambda: Situation(ids=[0, 99, 100, 101, 102, 103, 1], short=False),
    call=lambda s: PLAIN.decode_document_utf8(s.ids[:1] if s.short else s.ids),
    faults=(
        *IDS[:2],
        fault(Code.DOCUMENT_TOO_SHORT, "one id", lambda s: s.set(short=True), length=1),
        fault(Code.EXPECTED_BOS, "begin 99", lambda s: _put(0, 99, s), found=99),
        fault(Code.EXPECTED_EOS, "end 0", lambda s: _put(6, 0, s), found=0),
        fault(
            Code.INTERIOR_CONTROL_TOKEN,
            "begin inside",
            lambda s: _put(5, 0, s),
            position=5,
            token_id=0,
        ),
        *UNKNOWN,
        BROKEN_TEXT,
    ),
    apart=(Apart("one id alone", {"one id"}, {"ragged ids", "float id"}),),
    unreachable={Code.TOKEN_SHAPE: "planted for decode_content; one check serves both"},
)

data = Boundary(
    name="encode",
    order=refuses(BpeTokenizer.encode),
    build=lambda: Situation(data=b"ab"),
    call=lambda s: PLAIN.encode(s.data),
    faults=(
        fault(Code.NOT_BYTES, "text", lambda s: s.set(data="ab"), expected="bytes", actual="str"),
    ),
)

text = Boundary(
    name="encode_document",
    order=refuses(BpeTokenizer.encode_document),
    build=lambda: Situation(text="ab"),
    call=lambda s: PLAIN.encode_document(s.text),
    faults=(
        fault(Code.NOT_BYTES, "number", lambda s: s.set(text=5), actual="int"),
        fault(Code.NOT_BYTES, "surrogate", lambda s: s.set(text="a\ud800"), at=1),
    ),
    apart=(Apart("one text is given", {"number", "surrogate"}),),
)

SINGLE = {
    "float": (Code.NOT_AN_INTEGER, 99.0),
    "list": (Code.TOKEN_SHAPE, [99]),
    "id 259": (Code.UNKNOWN_TOKEN, 259),
}
single = Boundary(
    name="token_bytes",
    order=refuses(BpeTokenizer.token_bytes),
    build=lambda: Situation(id=99),
    call=lambda s: PLAIN.token_bytes(s.id),
    faults=tuple(
        fault(code, name, lambda s, id=id: s.set(id=id))  # type: ignore[misc]
        for name, (code, id) in SINGLE.items()
    ),
    apart=(Apart("one id is given", set(SINGLE)),),
)

learning = Boundary(
    name="learn_merges",
    order=refuses(learn_merges),
    build=lambda: Situation(sequences=[b"ab", b"cd"], rounds=1),
    call=lambda s: learn_merges(s.sequences, s.rounds),
    faults=(
        fault(Code.FIELD_TYPE, "bytes alone", lambda s: s.set(sequences=b"ab"), actual="bytes"),
        fault(
            Code.NOT_BYTES,
            "text",
            lambda s: s.set(sequences=[*s.sequences, "ef"]),
            what="sequences[2]",
            actual="str",
        ),
        fault(Code.FIELD_RANGE, "rounds of -1", lambda s: s.set(rounds=-1), actual=-1),
    ),
)

pairs = Boundary(
    name="inputs_and_targets",
    order=refuses(inputs_and_targets),
    build=lambda: Situation(ids=[0, 99, 100, 101, 1]),
    call=lambda s: inputs_and_targets(s.ids),
    faults=(
        IDS[0],
        fault(Code.NOT_AN_INTEGER, "float id", lambda s: _put(2, 99.0, s), position=2, id=99.0),
        IDS[2],
        fault(
            Code.INTERIOR_CONTROL_TOKEN,
            "end inside",
            lambda s: _put(1, 1, s),
            position=1,
            token_id=1,
        ),
        fault(
            Code.INTERIOR_CONTROL_TOKEN,
            "begin inside",
            lambda s: _put(3, 0, s),
            position=3,
            token_id=0,
        ),
    ),
    apart=(NESTED, FLOAT),
)

BOUNDARIES = (merges, content, document, data, text, single, learning, pairs)
