"""Identities: named texts framed as one canonical object, and its SHA-256."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from . import canonical, fields
from .codes import Code
from .errors import RecordRefusal
from .fields import Field

MAX_FIELDS: Final = 128
MAX_VALUE_BYTES: Final = 65_536
MAX_TOTAL_BYTES: Final = 262_144  # domain, keys and values
MAX_ENCODED_BYTES: Final = 2_097_152
SCHEMA_VERSION: Final = 1

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,63}")
_FRAME: Final = (
    Field(name="domain", kind="text"),
    Field(name="fields", kind="object"),
    Field(name="schema_version", kind="integer"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A domain and its fields; made by `frame` or `decode`."""

    domain: str
    fields: tuple[tuple[str, str], ...]

    def to_bytes(self) -> bytes:
        """The framed bytes, which are what is hashed."""
        frame = {
            "domain": self.domain,
            "fields": dict(self.fields),
            "schema_version": SCHEMA_VERSION,
        }
        return canonical.encode(frame, what="identity")

    @property
    def sha256(self) -> str:
        """The digest, 64 lowercase hex digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def frame(domain: str, pairs: Iterable[tuple[str, str]]) -> Identity:
    """The identity of some named texts; keys come out sorted.

    Refuses: record/identity-grammar of the domain; then per field, in this order,
             record/identity-field-count, record/identity-grammar, record/field-type of a value,
             record/duplicate-key,
             record/identity-value-size, record/identity-total-size; at last
             record/identity-field-count for no field at all
    Source:  records.md section 4
    """
    _check_name(domain, "identity.domain")
    held: dict[str, str] = {}
    size = len(domain)
    for key, value in pairs:
        if len(held) == MAX_FIELDS:
            raise _count_fault(len(held) + 1)
        _check_name(key, "identity.fields")
        what = f"identity.fields.{key}"
        if key in held:
            raise RecordRefusal(
                code=Code.DUPLICATE_KEY, what=what, expected="one value", actual=key
            )
        value_size = _utf8_size(value, what)
        if value_size > MAX_VALUE_BYTES:
            raise RecordRefusal(
                code=Code.IDENTITY_VALUE_SIZE,
                what=what,
                expected=MAX_VALUE_BYTES,
                actual=value_size,
            )
        size += len(key) + value_size
        if size > MAX_TOTAL_BYTES:
            raise RecordRefusal(
                code=Code.IDENTITY_TOTAL_SIZE,
                what="identity",
                expected=MAX_TOTAL_BYTES,
                actual=size,
            )
        held[key] = value
    if not held:
        raise _count_fault(0)
    return Identity(domain=domain, fields=tuple(sorted(held.items())))


def decode(data: bytes) -> Identity:
    """The identity that framed bytes hold.

    Refuses: what canonical.decode refuses, unknown or missing keys, other types, another
             schema version, what `frame` refuses, and bytes that are not the canonical ones
    """
    value = canonical.decode(data, what="identity", limit=MAX_ENCODED_BYTES)
    fields.check_keys(value, _FRAME, path=("identity",))
    assert isinstance(value, dict)
    fields.check_types(value, _FRAME, path=("identity",))
    domain, inner, version = (value[field.name] for field in _FRAME)
    assert isinstance(domain, str)
    assert isinstance(inner, dict)
    texts = tuple(Field(name=key, kind="text") for key in inner)
    fields.check_types(inner, texts, path=("identity", "fields"))
    fields.check_choice(
        version, (SCHEMA_VERSION,), code=Code.SCHEMA_VERSION, what="identity.schema_version"
    )
    identity = frame(domain, ((key, str(text)) for key, text in inner.items()))
    canonical.check_bytes(data, value, what="identity")
    return identity


def _check_name(name: object, what: str) -> None:
    if type(name) is not str or not _NAME.fullmatch(name):
        raise RecordRefusal(code=Code.IDENTITY_GRAMMAR, what=what, actual=canonical.described(name))


def _utf8_size(text: object, what: str) -> int:
    if type(text) is not str:
        raise RecordRefusal(
            code=Code.FIELD_TYPE, what=what, expected="text", actual=canonical.described(text)
        )
    try:
        return len(text.encode())
    except UnicodeEncodeError as fault:
        raise RecordRefusal(
            code=Code.LONE_SURROGATE, what=what, actual=f"U+{ord(text[fault.start]):04X}"
        ) from None


def _count_fault(count: int) -> RecordRefusal:
    return RecordRefusal(
        code=Code.IDENTITY_FIELD_COUNT,
        what="identity.fields",
        expected=f"1 .. {MAX_FIELDS}",
        actual=count,
    )
