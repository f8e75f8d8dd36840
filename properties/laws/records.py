"""Laws over records, identities, canonical bytes and the tokenizer."""

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from logitproof.properties.oracles import tokenizer as oracle
from logitproof.properties.scalar import Generator

from .components import Components
from .difference import Difference
from .drawn import Draw, answered, draws, equal, first, refusal, refused
from .law import Law
from .telling import tells

__all__ = ["LAWS"]

DOMAINS = {"ModelRecord": "decoder-model-v1", "RunRecord": "decoder-run-v1"}
FIXED = ("schema_version", "parameter_family")  # one value each
SHORT = 400  # characters of any value that a refusal tells
FLOATS = (5e-324, 1.5, 0.0, -5e-324, -1.5, math.inf, -math.inf, math.nan)
# What stands where an unsigned integer should.
WORDS = ("true", "false", "null", "7.0", "1e999", "-1", '"1"', f'"{"x" * (SHORT + 1)}"')
NO_TEXTS = ("5", "true", "null", "1.5")  # what stands where a text should
LONGEST_TEXT = 65_536  # bytes of a text value
LONGEST = 1_048_576  # bytes of a record's text


def _record(implementation: Components, draw: Draw) -> Any:
    g, parts = draw.generator(), implementation.parts
    if draw.size % 2:
        run = parts.RunRecord.fixture("reference-ci")
        seeds = {**run.seeds, "sampling": g.below(1 << 40)}
        return run.replace(rows=1 + g.below(9), seeds=seeds)
    names = ("reference", "bridge", "laptop", "seed-sensitivity")
    return parts.ModelRecord.scale(names[g.below(4)]).replace(max_positions=1 + g.below(9))


def _plain(record: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(record.to_bytes())
    return loaded


def _canonical(value: Any) -> bytes:
    return (
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    ).encode()


# What canonical JSON does not hold.
UNWRITTEN = (
    ("half of a pair", "record/lone-surrogate", ["no", "\ud800"]),
    ("a number of 40 digits", "record/field-type", {"no": 10**39}),
    ("a number below zero", "record/field-type", [-1]),
    ("a fraction", "record/field-type", 0.5),
    ("a tuple", "record/field-type", [(1,)]),
    ("a number as a key", "record/field-type", {1: 1}),
)


def _bytes(implementation: Components, draw: Draw) -> Difference | None:
    """Canonical bytes are a fixed point, and the identity is their digest in a frame."""
    record = _record(implementation, draw)
    text = record.to_bytes()
    frame = {
        "domain": DOMAINS[type(record).__name__],
        "fields": {"configuration": text.decode()},
        "schema_version": 1,
    }
    again = type(record).from_bytes(text)
    words = {"no": [None, False, [draw.seed, {}]], "yes": True, "most": 10**39 - 1}
    canonical = implementation.parts.canonical
    written = canonical.encode(words, what="words")
    return first(
        equal(what, expected, actual)
        for what, expected, actual in (
            ("canonical bytes", _canonical(_plain(record)), text),
            ("bytes read and written again", text, again.to_bytes()),
            ("identity", hashlib.sha256(_canonical(frame)).hexdigest(), record.identity),
            ("equality after reading", True, again == record),
            ("bytes of words", _canonical(words), written),
            ("words", words, canonical.decode(written, what="words")),
        )
    ) or first(
        tells(f"{what} written", code, lambda no=no: canonical.encode(no, what="words"))  # type: ignore[misc]
        for what, code, no in UNWRITTEN
    )


def _changes(record: Any) -> Iterator[tuple[str, Any]]:
    """Each field with another value that its table allows alone."""
    for name, value in _plain(record).items():
        if name in FIXED or name == "heads" or name.endswith("_policy"):
            continue
        if isinstance(value, dict):
            yield from ((f"{name}.{k}", {**value, k: v + 1}) for k, v in value.items())
        elif name == "kv_heads":
            if value > 1:
                yield name, 1
        elif isinstance(value, int):
            yield name, 2 * value
        elif name in ("rope_base", "rms_epsilon"):
            yield name, value[:-1] + ("0" if value[-1] != "0" else "1")
        elif name.endswith("_id"):
            yield name, value + "x"


def _identity(implementation: Components, draw: Draw) -> Difference | None:
    """The identity changes with every bound field, and with nothing else."""
    record = _record(implementation, draw)

    def one(path: str, value: Any) -> Iterator[Difference | None]:
        name = path.partition(".")[0]
        changed = record.replace(**{name: value})
        yield equal(f"{path} binds the identity", True, changed.identity != record.identity)
        back = changed.replace(**{name: _plain(record)[name]})
        yield equal(f"identity with {path} changed back", record.identity, back.identity)

    return first(d for change in _changes(record) for d in one(*change))


def _damaged(record: Any, g: Generator) -> Iterator[tuple[str, str, bytes]]:
    """Texts that must be refused, with the code; `_mistyped` apart."""
    text = record.to_bytes().decode()
    plain = _plain(record)
    numbers = [name for name, value in plain.items() if isinstance(value, int)]
    name = numbers[g.below(len(numbers))]
    held = f'"{name}":{plain[name]}'
    twice = "record/duplicate-key"
    yield "a key twice", twice, text.replace(held, f"{held},{held}").encode()
    escaped = f'"\\u{ord(name[0]):04x}{name[1:]}":{plain[name]}'
    yield "a key twice, once escaped", twice, text.replace(held, f"{held},{escaped}").encode()
    pair = f'"\U0001f600":1,"\\ud83d\\ude00":1,{held}'
    yield "a key beyond 16 bits twice, once in halves", twice, text.replace(held, pair).encode()
    for word in ("NaN", "Infinity"):
        wrong = text.replace(held, f'"{name}":{word}')
        yield f"{name} as {word}", "record/text-syntax", wrong.encode()
    unsorted = json.dumps(dict(reversed(plain.items())), separators=(",", ":")) + "\n"
    yield "keys in another order", "record/not-canonical", unsorted.encode()
    yield "white space", "record/not-canonical", text.replace(",", ", ").encode()
    yield "no line feed", "record/not-canonical", text[:-1].encode()
    yield (
        "a missing key",
        "record/missing-key",
        _canonical({k: v for k, v in plain.items() if k != name}),
    )
    yield "an unknown key", "record/unknown-key", _canonical({**plain, "colour": 1})


def _refused_texts(implementation: Components, draw: Draw) -> Difference | None:
    record = _record(implementation, draw)
    read: Callable[[bytes], Any] = type(record).from_bytes

    def one(what: str, code: str, data: bytes) -> Difference | None:
        if code != "record/not-canonical":
            return refused(what, code, lambda: read(data))
        at = _first_other(data, record.to_bytes())
        return equal(f"code and byte for {what}", (code, at), _refusal(lambda: read(data)))

    return first(one(*damaged) for damaged in _damaged(record, draw.generator())) or first(
        _told(f"{name} as {word}", word, partial(read, data))
        for name, word, data in _mistyped(record, draw.generator())
    )


def _mistyped(record: Any, g: Generator) -> Iterator[tuple[str, str, bytes]]:
    """A number and a text, each with words that stand where it should, and the whole text."""
    text, plain = record.to_bytes().decode(), _plain(record)
    numbers = [name for name, value in plain.items() if isinstance(value, int)]
    texts = [name for name, value in plain.items() if isinstance(value, str)]
    for names, words in ((numbers, WORDS), (texts, NO_TEXTS)):
        name = names[g.below(len(names))]
        held = json.dumps(plain[name])
        for word in words:
            yield name, word, text.replace(f'"{name}":{held}', f'"{name}":{word}').encode()


def _told(what: str, word: str, call: Callable[[], object]) -> Difference | None:
    """The refusal of a type tells the value as it was written, a long text by its beginning."""
    actual = str(_fact("actual", call))
    tells = len(actual) <= SHORT if len(word) > SHORT else word in actual
    return refused(what, "record/field-type", call) or (
        None if tells else Difference(what=f"value of {what}", expected=word, actual=actual)
    )


def _fact(name: str, call: Callable[[], object]) -> object:
    """What the refusal that the call ends in says by that name."""
    try:
        call()
    except ValueError as refusal:
        return getattr(refusal, name, None)
    return "a result"


def _first_other(data: bytes, canonical: bytes) -> int:
    """Where two texts part; the length of the shorter where that is its end."""
    at = 0
    while data[at : at + 1] == canonical[at : at + 1] != b"":
        at += 1
    return at


SHARES = 5  # of the values below, one per case: some of them are long
SYNTAX, UNKNOWN = "record/text-syntax", "record/unknown-key"
# Values of a key that no record has: the text holds as far as that key, or breaks at the byte told.
VALUES: tuple[tuple[str, str, str, int | None], ...] = (
    ("an array of 16 levels", "[" * 15 + "]" * 15, UNKNOWN, None),
    ("an array of 17 levels", "[" * 16 + "]" * 16, "record/text-nesting", 15),
    ("objects of 17 levels", '{"a":' * 16 + "1" + "}" * 16, "record/text-nesting", 75),
    ("39 digits", "9" * 39, UNKNOWN, None),
    ("40 digits", "9" * 40, "record/text-digits", 0),
    ("40 digits after a point", "0." + "9" * 40, "record/text-digits", 0),
    ("16384 values", "[" + ",".join("1" * 16382) + "]", UNKNOWN, None),
    ("16385 values", "[" + ",".join("1" * 16383) + "]", "record/text-values", 32765),
    ("a character before the surrogates", '"\\ud7ff"', UNKNOWN, None),
    ("the first high half alone", '"\\uD800"', "record/lone-surrogate", None),
    ("the last low half alone", '"\\udfff"', "record/lone-surrogate", None),
    ("a character after the surrogates", '"\\ue000"', UNKNOWN, None),
    ("two halves", '"\\ud800\\udc00"', UNKNOWN, None),
    ("two halves exchanged", '"\\udc00\\ud800"', "record/lone-surrogate", None),
    ("every short escape", '"\\"\\\\\\/\\b\\f\\n\\r\\t"', UNKNOWN, None),
    ("another escape", '"\\x"', SYNTAX, 1),
    ("a control character", '"\x1f"', SYNTAX, 1),
    ("half a word", "tru", SYNTAX, 0),
    ("a leading zero", "01", SYNTAX, 1),
    ("a negative zero", "-0", UNKNOWN, None),
    ("a number with all its parts", "-1.5e+10", UNKNOWN, None),
    ("nothing after a point", "1.", SYNTAX, 1),
    ("nothing after an exponent", "1e", SYNTAX, 1),
    ("nothing before a point", ".5", SYNTAX, 0),
    ("a comma at the end of an array", "[1,]", SYNTAX, 3),
    ("a comma at the end of an object", '{"a":1,}', SYNTAX, 7),
    ("a key without quotes", "{a:1}", SYNTAX, 1),
    ("no colon", '{"a" 1}', SYNTAX, 5),
    ("no comma", "[1 2]", SYNTAX, 3),
    ("no value", "", SYNTAX, 0),
    ("an empty array and object", '[[],{}," "]', UNKNOWN, None),
    ("white space of every kind", " \t\r\n1", UNKNOWN, None),
)


def _texts(implementation: Components, draw: Draw) -> Difference | None:
    """A text alone decides how far it is read: the limits themselves are met, one more is not."""
    read: Callable[[bytes], Any] = type(_record(implementation, draw)).from_bytes

    def one(what: str, text: str, code: str, at: int | None) -> Difference | None:
        before = '{"colour":'
        data = f"{before}{text}}}\n".encode()
        place = None if at is None else len(before) + at
        return equal(f"code and byte for {what}", (code, place), _refusal(lambda: read(data)))

    some = first(one(*value) for value in VALUES[draw.size % SHARES :: SHARES])
    if some is not None or draw.size % SHARES:
        return some
    parts = implementation.parts  # what follows is the same in every case
    return _choices(parts) or first(_ranges(parts)) or first(_whole_texts(read))


def _whole_texts(read: Callable[[bytes], Any]) -> Iterator[Difference | None]:
    """What is refused before any value is looked at, or beside all of them."""
    for what, code, given in (
        ("text that is no bytes", "record/not-bytes", "{}"),
        ("bytes that are no text", "record/text-encoding", b'{"\xff":1}'),
        ("two texts", SYNTAX, b"{}{}"),
        ("the most bytes", SYNTAX, b" " * LONGEST),
        ("a byte more", "record/text-size", b" " * (LONGEST + 1)),
        ("twice the most bytes", "record/text-size", b" " * 2 * LONGEST),
        ("an array", "record/field-type", b"[]\n"),
    ):
        yield refused(what, code, partial(read, given))  # type: ignore[arg-type]


def _choices(parts: Any) -> Difference | None:
    """What a refused word should have been, the one choice or one of several; the longest text."""
    model, run = parts.ModelRecord.scale("reference"), parts.RunRecord.fixture("reference-ci")

    def told(expected: str, call: Callable[[], object]) -> Difference | None:
        return equal("words that are choices", expected, _fact("expected", call))

    def long(count: int, code: str, unit: str = "x") -> Difference | None:
        text = unit * (count // len(unit.encode())) + "x" * (count % len(unit.encode()))
        what = f"a text of {count} bytes, of {unit}"
        return refused(what, code, lambda: model.replace(tokenizer_id=text))

    return (
        told("causal", lambda: model.replace(mask_policy="none"))
        or told("one of cpu, gpu, none", lambda: run.replace(device="tpu"))
        or long(LONGEST_TEXT, "record/identity-value-size")  # a text, of too long a record
        or long(LONGEST_TEXT + 1, "record/field-range")
        or long(LONGEST_TEXT, "record/identity-value-size", "\u20ac")
        or long(LONGEST_TEXT + 1, "record/field-range", "\u20ac")
        or long(0, "record/field-range")
    )


def _ranges(parts: Any) -> Iterator[Difference | None]:
    """Floats by their bits, and characters that UTF-8 holds or not."""
    model, taken = parts.ModelRecord.scale("reference"), "a result"

    def told(code: str, **changed: str) -> Difference | None:
        return equal(f"{changed}", code, refusal(lambda: model.replace(**changed)))

    for value in FLOATS:
        bits = struct.pack(">d", value).hex()
        within = 0.0 <= value < math.inf
        yield told(taken if within else "record/field-range", rms_epsilon=bits)
        yield told(taken if within and value else "record/field-range", rope_base=bits)
    for spelled in ("3FF0000000000000", "3ff000000000000", "3ff00000000000000", "0x3ff", " ", ""):
        yield told("record/field-type", rope_base=spelled)
    for code_point in (0xD7FF, 0xD800, 0xDABC, 0xDC00, 0xDEAD, 0xDFFF, 0xE000):
        half = 0xD800 <= code_point <= 0xDFFF
        yield told("record/lone-surrogate" if half else taken, tokenizer_id=chr(code_point))


def _refusal(call: Callable[[], object]) -> tuple[str, int | None]:
    """Code and `at` of the refusal that the call ends in."""
    try:
        call()
    except ValueError as refusal:
        at = getattr(refusal, "at", None)
        return str(getattr(refusal, "code", refusal)), at if isinstance(at, int) else None
    return "a result", None


def _document(g: Generator, size: int) -> bytes:
    """Few letters, so that pairs repeat and overlap; some bytes that are no text."""
    letters = b"aaab" if g.below(2) else "aaé\U0001f600".encode()
    return bytes(
        letters[g.below(len(letters))] if g.below(8) else g.below(256)
        for _ in range(g.below(4 + 3 * size))
    )


def _tokenizer(implementation: Components, draw: Draw) -> Difference | None:
    g = draw.generator()
    corpus = [_document(g, 6) + b"aaaa" for _ in range(3)]
    merges = oracle.learn(corpus, g.below(2 + min(draw.size, 12)))
    tokenizer = implementation.parts.BpeTokenizer(merges)
    data = _document(g, draw.size) + (b"aaa" if draw.size % 2 else b"")
    ids = tokenizer.encode(data)
    document = tokenizer.encode_document(data)
    joined = b"".join(tokenizer.token_bytes(i) for i in ids)
    text = data.decode("utf-8", "replace") + " \r\n"  # white space at the end is text too
    spelled = [0, *oracle.encode(text.encode(), merges), 1]
    return first(
        equal(f"{what} of {data!r} by {merges}", expected, actual)
        for what, expected, actual in (
            ("vocabulary", 258 + len(merges), tokenizer.vocabulary_size),
            ("ids", oracle.encode(data, merges), list(ids)),
            ("content read back", data, tokenizer.decode_content(ids)),
            ("document", [0, *ids, 1], list(document)),
            ("document read back", data, tokenizer.decode_document(document)),
            ("bytes token by token", data, joined),
            ("bytes of the controls", [b"", b""], [tokenizer.token_bytes(i) for i in (0, 1)]),
            ("document of the text", spelled, list(tokenizer.encode_document(text))),
            ("merges", merges, tuple(tokenizer.merges)),
        )
    )


LAWS = (
    Law(
        id="records.canonical-bytes",
        statement="Canonical bytes are sorted, compact and a fixed point; the identity is the"
        " digest of their frame.",
        source="records.md sections 3 and 4",
        needs=("records",),
        faults=("keys-unsorted", "identity-of-another-domain"),
        cases=draws("records", first_seed=70_000),
        check=_bytes,
    ),
    Law(
        id="records.identity",
        statement="The identity changes with every bound field and only then.",
        source="records.md section 4",
        needs=("records",),
        faults=("identity-without-epsilon", "identity-without-seeds"),
        cases=draws("records", first_seed=71_000),
        check=_identity,
    ),
    Law(
        id="records.refused-texts",
        statement="Keys twice, escaped or not, numbers that are no integers, other orders, white"
        " space, missing and unknown keys are refused, each by its code.",
        source="records.md section 3; cases: json-duplicate-key, json-nonfinite, cfg-head-dim",
        needs=("records",),
        faults=(
            "duplicate-keys-kept",
            "duplicate-keys-before-unescaping",
            "booleans-are-integers",
            "white-space-accepted",
            "infinite-number-read",
        ),
        cases=draws("records", first_seed=72_000),
        check=_refused_texts,
    ),
    Law(
        id="records.texts",
        statement="A text is read to its limits of depth, digits and values and not beyond; what"
        " breaks its syntax is refused at its byte.",
        source="config_planner.md section 2; records.md section 3",
        needs=("records",),
        faults=("nesting-without-bound", "lone-surrogates-read"),
        cases=draws("records", first_seed=74_000),
        check=_texts,
    ),
    Law(
        id="tokenizer.definition",
        statement="Encoding is one pass per merge, left to right, of bytes or of a text's bytes;"
        " contents, documents and tokens read back byte for byte, and controls as none.",
        source="tokenizer.md; cases: tok-byte-length",
        needs=("tokenizer",),
        faults=(
            "merges-from-the-right",
            "merges-in-reverse-rank",
            "bytes-through-text",
            "end-marker-dropped",
            "text-stripped",
            "controls-spelled",
        ),
        cases=draws("documents", first_seed=73_000),
        check=answered(_tokenizer),
    ),
)
