"""Random and mutated byte strings through both record parsers: refused, or the same bytes again."""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from logitproof.core.errors import Refusal
from logitproof.core.profiles import PROFILES
from logitproof.core.records import SCALES, ModelRecord, RunRecord

_DIGITS = tuple(b"%d" % digit for digit in range(10))
_PIECES = (
    b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\u005f", b"\\ud800", b"\\", b"\n", b" ", b"-0",
    b"1e999", b"1.0", b"007", b"9" * 40, b"true", b"null", b"NaN", b"Infinity", b"\xff", b"\x00",
    b"\xc3\xa9", b"\xef\xbb\xbf", b'"layers":1,', b'"seeds":{},', b'"layer\\u0073":1,',
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the strings, and the slowest of them."""

    refused: int
    round_tripped: int
    slowest_seconds: float
    slowest: bytes

    def __str__(self) -> str:
        start = self.slowest[:60] + (b"..." if len(self.slowest) > 60 else b"")
        return (
            f"{self.refused} refused, {self.round_tripped} round-tripped; slowest "
            f"{self.slowest_seconds * 1e3:.2f} ms: {len(self.slowest)} bytes, {start!r}"
        )


def run(count: int, *, seed: int = 0) -> Outcome:
    """Passes `count` strings to both parsers.

    Anything but a refusal or an exact round trip is an AssertionError or the exception itself.
    """
    refused = round_tripped = 0
    slowest = (0.0, b"")
    for data in strings(count, Draws(seed)):
        start = time.perf_counter()
        for parse in (ModelRecord.from_bytes, RunRecord.from_bytes):
            if passes(parse, data):
                round_tripped += 1
            else:
                refused += 1
        slowest = max(slowest, (time.perf_counter() - start, data))
    return Outcome(
        refused=refused,
        round_tripped=round_tripped,
        slowest_seconds=slowest[0],
        slowest=slowest[1],
    )


def passes(parse: Callable[[bytes], ModelRecord | RunRecord], data: bytes) -> bool:
    """Whether the bytes are a record, which then gives the same bytes; else one line says why."""
    sentence = ""
    try:
        record = parse(data)
    except Refusal as refusal:
        sentence = str(refusal)
    else:
        assert record.to_bytes() == data, data
    assert "\n" not in sentence, sentence
    return not sentence


class Draws:
    """Reproducible draws: the digests of a seed and a counter."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.drawn = 0

    def below(self, bound: int) -> int:
        """An integer in 0 .. bound - 1."""
        self.drawn += 1
        digest = hashlib.sha256(b"%d %d" % (self.seed, self.drawn)).digest()
        return int.from_bytes(digest[:8]) % bound

    def some_bytes(self, length: int) -> bytes:
        """Some bytes."""
        return hashlib.shake_128(b"%d" % self.below(2**64)).digest(length)

    def choice(self, items: Sequence[bytes]) -> bytes:
        """One of some strings."""
        return items[self.below(len(items))]


def strings(count: int, draws: Draws) -> Iterator[bytes]:
    """The hard strings, then random and mutated ones."""
    originals = [ModelRecord.scale(name).to_bytes() for name in SCALES]
    originals += [RunRecord.fixture(name).to_bytes() for name in PROFILES]
    hard = (*originals, *_hard())
    yield from hard[:count]
    for _ in range(count - len(hard)):
        kind = draws.below(10)
        if kind == 0:
            yield draws.some_bytes(draws.below(200))
        elif kind == 1:
            yield b"".join(draws.choice(_PIECES) for _ in range(1 + draws.below(30)))
        else:
            yield _mutated(draws.choice(originals), draws)


def _mutated(data: bytes, draws: Draws) -> bytes:
    """One to three edits."""
    for _ in range(1 + draws.below(3)):
        data = draws.choice(tuple(_edits(data, draws)))
    return data


def _edits(data: bytes, draws: Draws) -> Iterator[bytes]:
    """A byte changed, a piece put in, a stretch cut out or doubled, a digit changed."""
    at, end = sorted((draws.below(len(data) + 1), draws.below(len(data) + 1)))
    yield data[:at] + draws.some_bytes(1) + data[at + 1 :]
    yield data[:at] + draws.choice(_PIECES) + data[at:]
    yield data[:at] + data[end:]
    yield data[:end] + data[at:end] + data[end:]
    yield data.replace(draws.choice(_DIGITS), draws.choice(_DIGITS), 1)


def _hard() -> Iterator[bytes]:
    """Long numbers, deep nesting, long texts, many members, nothing at all."""
    model = ModelRecord.scale("reference").to_bytes()
    yield model.replace(b'"layers":1', b'"layers":' + b"1" * 5000)
    yield model.replace(b'"layers":1', b'"layers":-' + b"0." + b"1" * 5000)
    yield model.replace(b'"layers":1', b'"layers":' + b"[" * 5000)
    yield b'{"a":' * 100_000
    yield b"[" * 1_048_576
    yield b"[" + b"0," * 524_287 + b"]"
    yield b"[" + b"0," * 524_286 + b"0]\n"
    yield b'"' + b"\\u0041" * 170_000 + b'"\n'
    yield b"{" + b",".join(b'"%d":0' % i for i in range(90_000)) + b"}\n"
    yield b" " * 1_048_576
    yield b" " * 1_048_577
    yield b""


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
