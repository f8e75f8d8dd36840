"""Canonical JSON: bounded, strict bytes in, plain values out, and the same bytes back."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from .codes import Code
from .errors import RecordRefusal

MAX_BYTES: Final = 1_048_576
MAX_DEPTH: Final = 16
MAX_VALUES: Final = 16_384  # of one text, at any depth; a record holds about twenty
MAX_DIGITS: Final = 39  # those of 2^128 - 1, the largest number a plan may meet
_LARGEST: Final = int("9" * MAX_DIGITS)


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number that is no canonical unsigned integer, as it was written."""

    text: str


Value: TypeAlias = "dict[str, Value] | list[Value] | str | int | Number | bool | None"
Path = tuple[str, ...]

_SPACE = re.compile(rb"[ \t\n\r]*+")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_INTEGER = re.compile(rb"0|[1-9][0-9]*")
_DIGITS = re.compile(rb"[0-9]{%d,}+" % (MAX_DIGITS + 1))
_STRING = re.compile(rb'"((?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+)')
_ESCAPE = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)"
)
_WORDS: Final[dict[bytes, bool | None]] = {b"true": True, b"false": False, b"null": None}
_SHORT: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPED: Final = {
    **{code: f"\\u{code:04x}" for code in range(32)},
    **{ord(value): "\\" + key for key, value in _SHORT.items()},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}|\*")
_SHOWN: Final = 48  # characters of foreign text that a sentence quotes
_SHOWN_BITS: Final = 128


def decode(data: object, *, what: str, limit: int = MAX_BYTES) -> Value:
    """The value of one JSON text; numbers that are no unsigned integers stay text.

    what:    the name of the text, first part of every path
    limit:   bytes
    Refuses: record/not-bytes, record/text-size, record/text-encoding, then in textual order
             record/text-syntax, record/text-values, record/text-nesting, record/text-digits,
             record/lone-surrogate, and at last
             record/duplicate-key
    Source:  config_planner.md section 2
    """
    if not isinstance(data, bytes):
        raise RecordRefusal(
            code=Code.NOT_BYTES, what=what, expected="bytes", actual=type(data).__name__
        )
    if len(data) > limit:
        raise RecordRefusal(code=Code.TEXT_SIZE, what=what, expected=limit, actual=len(data))
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise RecordRefusal(
            code=Code.TEXT_ENCODING, what=what, details={"at": fault.start}
        ) from None
    return _Scanner(data, what).document()


def encode(value: object, *, what: str) -> bytes:
    """The canonical bytes: compact, keys sorted, one final line feed.

    Refuses: record/field-type for what canonical JSON does not hold, floats among it;
             record/lone-surrogate
    """
    text = "".join(_parts(value, (what,))) + "\n"
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise RecordRefusal(
            code=Code.LONE_SURROGATE, what=what, actual=f"U+{ord(text[fault.start]):04X}"
        ) from None


def check_bytes(data: bytes, value: object, *, what: str) -> None:
    """Refuses bytes that are not the canonical form of the value read from them."""
    canonical = encode(value, what=what)
    if data == canonical:
        return
    at = next(
        (i for i, (a, b) in enumerate(zip(data, canonical, strict=False)) if a != b),
        min(len(data), len(canonical)),
    )
    raise RecordRefusal(
        code=Code.NOT_CANONICAL,
        what=what,
        expected=_byte(canonical, at),
        actual=_byte(data, at),
        details={"at": at},
    )


def dotted(path: Sequence[str]) -> str:
    """A path as one word; keys that are no plain names are quoted and shortened."""
    first, *keys = path
    return ".".join([first, *(k if _PLAIN_KEY.fullmatch(k) else quoted(k) for k in keys)])


def quoted(text: str) -> str:
    """Foreign text for one line of a sentence."""
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    escaped = (c if c.isprintable() else ascii(c)[1:-1] for c in shown.translate(_ESCAPED))
    return f'"{"".join(escaped)}"'


def described(value: object) -> str:
    """A value for one line of a sentence."""
    match value:
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case str() if type(value) is str:
            return f"the text {quoted(value)}"
        case Number():
            return f"the number {value.text[:_SHOWN]}"
        case int() if type(value) is int:
            return f"the number {value}" if value.bit_length() <= _SHOWN_BITS else "a huge number"
        case dict():
            return "an object"
        case list():
            return "an array"
        case _:
            return f"a {type(value).__name__}"


def _parts(value: object, path: Path) -> list[str]:
    """The pieces of the canonical text."""
    match value:
        case bool() | None:
            return [{True: "true", False: "false", None: "null"}[value]]
        case str() if type(value) is str:
            return ['"', value.translate(_ESCAPED), '"']
        case int() if type(value) is int and 0 <= value <= _LARGEST:
            return [str(value)]
        case dict() if all(type(key) is str for key in value):
            members = [
                ['"', key.translate(_ESCAPED), '":', *_parts(value[key], (*path, key))]
                for key in sorted(value)
            ]
            return ["{", *_joined(members), "}"]
        case list():
            return ["[", *_joined([_parts(v, (*path, str(i))) for i, v in enumerate(value)]), "]"]
    raise RecordRefusal(
        code=Code.FIELD_TYPE,
        what=dotted(path),
        expected="text, an unsigned integer, an object with text keys or an array",
        actual=described(value),
    )


def _joined(members: list[list[str]]) -> list[str]:
    return [part for member in members for part in (",", *member)][1:]


def _byte(data: bytes, at: int) -> str:
    return f"byte {data[at]:02x}" if at < len(data) else "the end"


class _Scanner:
    """One pass over valid UTF-8.

    at:        the next byte
    values:    how many were begun
    path:      the keys that lead to it
    duplicate: the path of the first key met twice
    """

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.what = what
        self.at = 0
        self.values = 0
        self.path = [what]
        self.duplicate: Path | None = None

    def document(self) -> Value:
        """The whole text; a repeated key is refused only once the syntax holds."""
        value = self.value()
        self.space()
        if self.at < len(self.data):
            raise self.fault("the end")
        if self.duplicate is not None:
            raise RecordRefusal(
                code=Code.DUPLICATE_KEY,
                what=dotted(self.duplicate),
                expected="one value",
                actual=self.duplicate[-1],
            )
        return value

    def value(self) -> Value:
        """The value that begins at the next byte which is no white space."""
        self.space()
        self.values += 1
        if self.values > MAX_VALUES:
            raise self.bound(Code.TEXT_VALUES, MAX_VALUES)
        match self.data[self.at : self.at + 1]:
            case b'"':
                return self.string()
            case b"{":
                return self.object()
            case b"[":
                return self.array()
            case b"t" | b"f" | b"n":
                return self.word()
            case _:
                return self.number()

    def object(self) -> dict[str, Value]:
        """Members up to the closing brace; a repeated key keeps its first value."""
        self.open()
        members: dict[str, Value] = {}
        if self.take(b"}"):
            return members
        while True:
            self.space()
            if self.data[self.at : self.at + 1] != b'"':
                raise self.fault("a key")
            key = self.string()
            if not self.take(b":"):
                raise self.fault("a colon")
            self.path.append(key)
            if key in members and self.duplicate is None:
                self.duplicate = tuple(self.path)
            members.setdefault(key, self.value())
            self.path.pop()
            if self.take(b"}"):
                return members
            if not self.take(b","):
                raise self.fault("a comma or a closing brace")

    def array(self) -> list[Value]:
        """Elements up to the closing bracket."""
        self.open()
        elements: list[Value] = []
        if self.take(b"]"):
            return elements
        self.path.append("*")
        while True:
            elements.append(self.value())
            if self.take(b"]"):
                self.path.pop()
                return elements
            if not self.take(b","):
                raise self.fault("a comma or a closing bracket")

    def open(self) -> None:
        """Enters an object or array, while the depth allows it."""
        if len(self.path) > MAX_DEPTH:
            raise self.bound(Code.TEXT_NESTING, MAX_DEPTH)
        self.at += 1

    def string(self) -> str:
        """The text between two quotes, escapes replaced."""
        match = _STRING.match(self.data, self.at)
        assert match is not None
        self.at = match.end()
        if self.data[self.at : self.at + 1] != b'"':
            raise self.fault("a closing quote, a character or an escape")
        self.at += 1
        text = match[1].decode("utf-8")
        return _ESCAPE.sub(self.unescaped, text) if "\\" in text else text

    def unescaped(self, escape: re.Match[str]) -> str:
        """The character of one escape or of one pair of surrogates."""
        high, low, single, short = escape.groups()
        if short is not None:
            return _SHORT.get(short, short)
        if single is None:
            return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
        if 0xD800 <= int(single, 16) <= 0xDFFF:
            raise RecordRefusal(
                code=Code.LONE_SURROGATE, what=dotted(self.path), actual=f"U+{single.upper()}"
            )
        return chr(int(single, 16))

    def word(self) -> bool | None:
        """true, false or null."""
        for word, value in _WORDS.items():
            if self.data.startswith(word, self.at):
                self.at += len(word)
                return value
        raise self.fault("a value")

    def number(self) -> int | Number:
        """A number; its digits are counted before they are converted."""
        match = _NUMBER.match(self.data, self.at)
        if match is None:
            raise self.fault("a value")
        token = match[0]
        if digits := _DIGITS.search(token):
            raise RecordRefusal(
                code=Code.TEXT_DIGITS,
                what=self.what,
                expected=MAX_DIGITS,
                actual=len(digits[0]),
                details={"at": self.at},
            )
        self.at = match.end()
        return int(token) if _INTEGER.fullmatch(token) else Number(token.decode())

    def space(self) -> None:
        """Skips white space."""
        match = _SPACE.match(self.data, self.at)
        assert match is not None
        self.at = match.end()

    def take(self, byte: bytes) -> bool:
        """Whether the byte comes next, white space aside; if so it is consumed."""
        self.space()
        if self.data[self.at : self.at + 1] != byte:
            return False
        self.at += 1
        return True

    def bound(self, code: Code, most: int) -> RecordRefusal:
        """Which bound the next byte would break."""
        return RecordRefusal(code=code, what=self.what, expected=most, details={"at": self.at})

    def fault(self, expected: str) -> RecordRefusal:
        """What is wrong at the next byte."""
        return RecordRefusal(
            code=Code.TEXT_SYNTAX,
            what=self.what,
            expected=expected,
            actual=_byte(self.data, self.at),
            details={"at": self.at},
        )
