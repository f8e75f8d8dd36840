"""Laws over what a tokenizer reads as text, how it tells its passes, and what it learns."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from logitproof.properties.oracles import tokenizer as oracle
from logitproof.properties.scalar import Generator

from .components import Components
from .difference import Difference
from .drawn import Draw, answered, draws, equal, first
from .law import Law
from .telling import tells

__all__ = ["LAWS"]

# Whole characters of every length, and every way to break one: first bytes without the rest, rests
# without a first, characters written too long, halves of a pair, and beyond the last.
WHOLE = tuple(c.encode() for c in ("a", "\u007f", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000",
                                   "\uffff", "\U00010000", "\U0010ffff"))  # fmt: skip
BROKEN = (
    b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xe0", b"\xe0\x80\x80", b"\xe0\xa0",
    b"\xe2\x82", b"\xed\xa0\x80", b"\xed\x9f", b"\xf0", b"\xf0\x80\x80\x80", b"\xf0\x9f",
    b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xf4\x8f\xbf", b"\xf5\x80\x80\x80", b"\xff",
)  # fmt: skip


def _choice(g: Generator, *options: bytes) -> bytes:
    return options[g.below(len(options))]


def _text(implementation: Components, draw: Draw) -> Difference | None:
    """Every break, between and behind whole characters drawn anew."""
    g, tokenizer = draw.generator(), implementation.parts.BpeTokenizer([(0xE2, 0x82)])
    before, after = (b"".join(_choice(g, *WHOLE) for _ in range(g.below(4))) for _ in range(2))
    return first(
        _read(tokenizer, before + broken + behind)
        for broken in (b"", *BROKEN)
        for behind in (b"", after)
    )


def _read(tokenizer: Any, data: bytes) -> Difference | None:
    """As text, or refused at the byte where text ends, by the length of what is none."""
    ids = tokenizer.encode(data)
    fault = oracle.utf8_fault(data)
    calls = (partial(tokenizer.decode_content_utf8, ids),
             partial(tokenizer.decode_document_utf8, [0, *ids, 1]))  # fmt: skip
    if fault is None:
        return first(equal(f"text of {data!r}", data.decode(), call()) for call in calls)
    facts = {"valid_up_to": fault[0], "error_len": fault[1]}
    return first(tells(f"{data!r} as text", "record/invalid-utf8", c, **facts) for c in calls)


def _sequence(g: Generator, letters: bytes, most: int) -> bytes:
    return bytes(letters[g.below(len(letters))] for _ in range(g.below(1 + most)))


def _sequences(g: Generator, most: int) -> list[bytes]:
    """Few letters, the larger ones first, so that counts tie and the smallest pair comes late."""
    letters = b"zyxa"[: 2 + g.below(3)]
    return [_sequence(g, letters, most) for _ in range(1 + g.below(4))]


def _training(implementation: Components, draw: Draw) -> Difference | None:
    parts, tokens, g = implementation.parts, implementation.tokens, draw.generator()
    sequences, rounds = _sequences(g, 2 + draw.size % 12), g.below(7)
    merges = oracle.learn(sequences, rounds)
    data = b"".join(_sequences(g, 8))
    found = parts.BpeTokenizer(merges).encode_with_trace(data)
    told = [(p.rank, p.replacements, p.before, p.after) for p in found.passes]
    return first(
        equal(f"{what}, {rounds} merges of {sequences}", expected, actual)
        for what, expected, actual in (
            ("learned", merges, tuple(tokens.learn_merges(sequences, rounds))),
            (f"first ids of {data!r}", tuple(2 + b for b in data), found.initial),
            (f"passes over {data!r}", oracle.changing_passes(data, merges), told),
            (f"last ids of {data!r}", tuple(oracle.encode(data, merges)), found.ids),
        )
    ) or first(_windows(tokens.inputs_and_targets, g))


def _windows(window: Any, g: Generator) -> Iterator[Difference | None]:
    """A range of a document: its pairs of neighbours; a control stands at its own end alone."""
    content = [2 + g.below(260) for _ in range(g.below(6))]
    for ids in (content, [0, *content], [*content, 1], [0, *content, 1]):
        inputs, targets = window(ids)
        pairs = list(zip(inputs, targets, strict=True))
        yield equal(f"pairs of {ids}", list(pairwise(ids)), pairs)
    inside = "index/interior-control-token"
    for ids, at in (([2, 0, 3], 1), ([2, 1, 3], 1), ([1, 2], 0), ([2, 0], 1)):
        yield tells(f"a control inside {ids}", inside, partial(window, ids), at=at, index=ids[at])


LAWS = (
    Law(
        id="tokenizer.text",
        statement="Ids are read as text where their bytes are well-formed UTF-8; where not, they"
        " are refused at the byte, with the length of what is wrong.",
        source="tokenizer.md section 4; the Unicode standard, table 3-7",
        needs=("tokenizer",),
        faults=("fault-of-one-byte",),
        cases=draws("documents", first_seed=76_000),
        check=answered(_text),
    ),
    Law(
        id="tokenizer.training",
        statement="Merges are learned by the greatest count, of equals the smallest pair; passes"
        " are told with the ids before and after; a range gives its pairs of neighbours.",
        source="tokenizer.md sections 3, 5 and 7",
        needs=("tokenizer", "token-training"),
        faults=("equal-counts-to-the-largest", "passes-from-the-first-ids", "targets-are-inputs"),
        cases=draws("documents", first_seed=77_000),
        check=answered(_training),
    ),
)
