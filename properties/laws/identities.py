"""A law over identities: which names and texts are framed, and what is hashed."""

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from logitproof.properties.scalar import Generator

from .components import Components
from .difference import Difference
from .drawn import Draw, answered, draws, equal, first
from .law import Law
from .telling import tells

__all__ = ["LAWS"]

FIELDS, VALUE_BYTES, TOTAL_BYTES, NAME = 128, 65_536, 262_144, 64
NOT_CANONICAL = "record/not-canonical"
GRAMMAR, COUNT, VALUE, TOTAL = (
    f"record/identity-{kind}" for kind in ("grammar", "field-count", "value-size", "total-size")
)
WIDTHS = ("x", "\u00e9", "\u20ac", "\U0001f600")  # of 1 to 4 bytes
TEXTS = (*WIDTHS, "", " ", "\n", "\x01", "\x7f", '"', "\\", "/", "\u2028", "\ufeff")
TAKEN = ("a", "z0", "a.b-c_d", "a" * NAME, "a--", "z" + "9" * (NAME - 1))
REFUSED = ("", "a" * (NAME + 1), "A", "aB", "0a", ".a", "_a", "-a", "a b", "a\n", "\u00e9",
           "a\u00e9")  # fmt: skip


def _framed(domain: str, pairs: Any) -> bytes:
    frame = {"domain": domain, "fields": dict(pairs), "schema_version": 1}
    text = json.dumps(frame, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # Short escapes, and \u00xx for the other controls, are what json writes.
    return text.encode() + b"\n"


def _pairs(g: Generator) -> list[tuple[str, str]]:
    """A few fields in no order, whose texts hold what must be escaped and what must not."""
    names = [f"{'kab'[g.below(3)]}{i}" for i in range(1 + g.below(4))]
    return [(n, "".join(TEXTS[g.below(len(TEXTS))] for _ in range(g.below(9)))) for n in names]


def _filled(size: int, unit: str) -> str:
    """A text of so many bytes, of one character as far as it goes."""
    width = len(unit.encode())
    return unit * (size // width) + "x" * (size % width)


def _identity(implementation: Components, draw: Draw) -> Difference | None:
    frame, g = implementation.identities.frame, draw.generator()
    unit, pairs = WIDTHS[draw.size % len(WIDTHS)], _pairs(g)
    domain = "d" * (1 + g.below(NAME))

    def made(what: str, domain: str, pairs: Any) -> Difference | None:
        found, bytes_ = frame(domain, pairs), _framed(domain, pairs)
        digest = hashlib.sha256(bytes_).hexdigest()
        return equal(f"bytes of {what}", bytes_, found.to_bytes()) or (
            equal(f"digest of {what}", digest, found.sha256)
        )

    return (
        made(f"{pairs} under {domain}", domain, pairs)
        or first(made(f"the domain {name!r}", name, pairs) for name in TAKEN)
        or first(made(f"the key {name!r}", domain, [(name, unit)]) for name in TAKEN)
        or first(tells(f"{what} {name!r}", GRAMMAR, partial(frame, *given))
                 for name in REFUSED
                 for what, given in (("the domain", (name, pairs)),
                                     ("the key", (domain, [(name, "")]))))
        or made(f"{FIELDS} fields", domain, _many(FIELDS))
        or first(_read(implementation.identities, domain, pairs))
        or first(_limits(frame, domain, unit))
    )  # fmt: skip


def _read(
    identities: Any, domain: str, pairs: list[tuple[str, str]]
) -> Iterator[Difference | None]:
    """The framed bytes alone are read back."""
    framed, frame = _framed(domain, pairs), identities.frame
    yield equal(f"{pairs} read back", frame(domain, pairs), identities.decode(framed))
    wrong = (
        ("another version", "record/schema-version", framed.replace(b'n":1}', b'n":2}')),
        ("a version that is a text", "record/field-type", framed.replace(b'n":1}', b'n":"1"}')),
        ("white space", NOT_CANONICAL, framed.replace(b'"fields":', b'"fields": ')),
        ("no line feed", NOT_CANONICAL, framed[:-1]),
        (
            "an escape that is none",
            NOT_CANONICAL,
            framed.replace(b'"domain":"d', b'"domain":"\\u0064'),
        ),
        ("an unknown key", "record/unknown-key", framed.replace(b'{"domain"', b'{"a":1,"domain"')),
        ("a domain beside the grammar", GRAMMAR, _framed("D", pairs)),
        ("a text that is a number", "record/field-type", _framed(domain, {"k": 1})),
        ("no field", COUNT, _framed(domain, [])),
    )
    for what, code, data in wrong:
        yield tells(f"{what} in {data!r}", code, partial(identities.decode, data))


def _many(count: int) -> list[tuple[str, str]]:
    return [(f"k{i}", "") for i in range(count)]


def _limits(frame: Any, domain: str, unit: str) -> Iterator[Difference | None]:
    """Sizes count bytes, of the domain and keys too; the limits are met and not passed."""

    def count(given: list[tuple[str, str]], found: int) -> Difference | None:
        return tells(f"{found} fields", COUNT, lambda: frame(domain, given), actual=found)

    yield count(_many(FIELDS + 1), FIELDS + 1)
    yield count([*_many(FIELDS), ("K", "")], FIELDS + 1)
    yield count([], 0)
    full, over = _filled(VALUE_BYTES, unit), _filled(VALUE_BYTES + 1, unit)
    yield tells("a key twice", "record/duplicate-key",
                lambda: frame(domain, [("k", "x"), ("k", over)]))  # fmt: skip
    kept = frame(domain, [("k", full)]).fields[0][1]
    yield equal(f"a text of {VALUE_BYTES} bytes", VALUE_BYTES, len(kept.encode()))
    yield tells(f"a text of {VALUE_BYTES + 1} bytes", VALUE,
                lambda: frame(domain, [("k", over)]),
                expected=VALUE_BYTES, actual=VALUE_BYTES + 1)  # fmt: skip
    rest = TOTAL_BYTES - len(domain) - 3 * VALUE_BYTES - len("abc") - len("last")
    long = [(name, full) for name in "abc"]
    most = [*long, ("last", _filled(rest, unit))]
    more = [*long, ("last", _filled(rest + 1, unit))]
    yield equal("texts of the largest total", 4, len(frame(domain, most).fields))
    yield tells(f"{TOTAL_BYTES + 1} bytes in all", TOTAL, lambda: frame(domain, more),
                expected=TOTAL_BYTES, actual=TOTAL_BYTES + 1)  # fmt: skip


LAWS = (
    Law(
        id="records.identity-frames",
        statement="An identity is the digest of its framed names and texts, which alone are read"
        " back; names of the grammar, fields and bytes, the domain's among them, are taken to their"
        " limits and not beyond.",
        source="records.md section 4",
        needs=("identities",),
        faults=(
            "one-field-too-many",
            "names-of-65-characters",
            "texts-counted-in-characters",
            "domain-not-counted",
            "frames-of-any-version",
            "frames-in-any-spelling",
        ),
        cases=draws("records", first_seed=75_000),
        check=answered(_identity),
    ),
)
