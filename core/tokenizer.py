"""Byte-level BPE: bytes to ids and back, with one pass per merge rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .arrays import as_integers
from .codes import Code
from .errors import IndexRefusal, RecordRefusal, ShapeRefusal
from .floats import Ids

__all__ = ["BpeTokenizer", "Encoding", "MergePass", "inputs_and_targets", "learn_merges"]

BOS = 0
EOS = 1
_CONTROLS = (BOS, EOS)
_BYTES = 256
ID_LIMIT = 1 << 32  # ids fit unsigned 32 bits
_SHIFT = 2  # from training space, where merge rules live, to vocabulary ids

Pair: TypeAlias = tuple[int, int]

_NONE = -1  # no neighbour in a linked sequence; the id of a consumed place


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePass:
    """What the pass of one rank changed, in content ids."""

    rank: int
    replacements: int
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """The trace of one encoding: the byte ids and every rank that changed something."""

    initial: tuple[int, ...]
    passes: tuple[MergePass, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The content ids after the last pass."""
        return self.passes[-1].after if self.passes else self.initial


class BpeTokenizer:
    """Ids 0 BOS, 1 EOS, 2 + b for byte b, 258 + r for the merge of rank r.

    merges:  pairs in rank order, in training space (ids two smaller: bytes 0..255, rank r
             256 + r); a list, a tuple or an integer array [ranks, 2]
    Refuses: index/not-an-integer, shape/ragged-ids, record/field-type (no pairs), then by rank
             index/unknown-merge-operand (left before right), record/duplicate-merge-pair
    Source:  tokenizer.md sections 1 and 2
    """

    __slots__ = ("_merges", "_ranks")

    def __init__(self, merges: Sequence[Pair] | Ids = ()) -> None:
        self._ranks = _checked_ranks(merges)
        self._merges = tuple(self._ranks)

    @property
    def merges(self) -> tuple[Pair, ...]:
        """The merge pairs in rank order, in training space."""
        return self._merges

    @property
    def vocabulary_size(self) -> int:
        """258 and one id per merge."""
        return _SHIFT + _BYTES + len(self._merges)

    def encode(self, data: bytes | bytearray) -> list[int]:
        """The canonical content ids of some bytes.

        Refuses: record/not-bytes
        Source:  tokenizer.md section 3
        """
        pieces = _Pieces([_checked_bytes(data, "data")])
        for _ in self._run_passes(pieces):
            pass
        return pieces.vocabulary_ids()

    def encode_with_trace(self, data: bytes | bytearray) -> Encoding:
        """The same encoding, with the ids before and after every rank that changed some.

        Refuses: record/not-bytes
        Source:  tokenizer.md section 3
        """
        pieces = _Pieces([_checked_bytes(data, "data")])
        initial = before = tuple(pieces.vocabulary_ids())
        passes = []
        for rank, replacements in self._run_passes(pieces):
            after = tuple(pieces.vocabulary_ids())
            passes.append(
                MergePass(rank=rank, replacements=replacements, before=before, after=after)
            )
            before = after
        return Encoding(initial=initial, passes=tuple(passes))

    def encode_document(self, text: str | bytes | bytearray) -> list[int]:
        """BOS, the content ids of the text's UTF-8 bytes (or of the bytes), EOS.

        Refuses: record/not-bytes (another type, or a surrogate, which has no UTF-8 form)
        Source:  tokenizer.md section 3
        """
        data = _utf8(text) if isinstance(text, str) else _checked_bytes(text, "text")
        return [BOS, *self.encode(data), EOS]

    def decode_content(self, ids: Sequence[int] | Ids) -> bytes:
        """The bytes of content ids.

        Refuses: index/not-an-integer, shape/ragged-ids, shape/token-shape (not flat),
                 index/control-token-in-content, index/unknown-token (each a whole scan)
        Source:  tokenizer.md section 4
        """
        content = _checked_ids(ids, bound=self.vocabulary_size)
        _check_no_control(content, Code.CONTROL_TOKEN_IN_CONTENT)
        self._check_known(content)
        return b"".join(map(self._expand, content))

    def decode_document(self, ids: Sequence[int] | Ids) -> bytes:
        """The bytes between BOS and EOS.

        Refuses: index/not-an-integer, shape/ragged-ids, shape/token-shape (not flat),
                 shape/document-too-short, index/expected-bos, index/expected-eos,
                 index/interior-control-token, index/unknown-token; positions count from BOS
        Source:  tokenizer.md section 4
        """
        document = _checked_ids(ids, bound=self.vocabulary_size)
        if len(document) < len(_CONTROLS):
            raise ShapeRefusal(
                code=Code.DOCUMENT_TOO_SHORT,
                what="ids",
                expected=len(_CONTROLS),
                actual=len(document),
            )
        ends = ((Code.EXPECTED_BOS, 0, BOS), (Code.EXPECTED_EOS, len(document) - 1, EOS))
        for code, at, control in ends:
            if document[at] != control:
                raise IndexRefusal(code=code, what="ids", at=at, index=document[at])
        content = document[1:-1]
        _check_no_control(content, Code.INTERIOR_CONTROL_TOKEN, first=1)
        self._check_known(content, first=1)
        return b"".join(map(self._expand, content))

    def decode_content_utf8(self, ids: Sequence[int] | Ids) -> str:
        """The text of content ids.

        Refuses: as decode_content, then record/invalid-utf8
        """
        return _text(self.decode_content(ids))

    def decode_document_utf8(self, ids: Sequence[int] | Ids) -> str:
        """The text between BOS and EOS.

        Refuses: as decode_document, then record/invalid-utf8
        """
        return _text(self.decode_document(ids))

    def token_bytes(self, id: int) -> bytes:
        """The bytes one id stands for; a control stands for none.

        The lengths over the ids of a text sum to its length in bytes, which decoding id by id
        to text does not give.

        Refuses: index/not-an-integer, shape/token-shape (several ids), index/unknown-token
        """
        known = _checked_ids([id], bound=self.vocabulary_size)
        self._check_known(known)
        return b"" if known[0] in _CONTROLS else self._expand(known[0])

    def _run_passes(self, pieces: _Pieces) -> Iterator[Pair]:
        """Each rank that changed something, with its count, right after its pass."""
        for pair, rank in self._ranks.items():
            replacements = pieces.replace(pair, _BYTES + rank)
            if replacements:
                yield rank, replacements

    def _expand(self, id: int) -> bytes:
        # Not stored: a table of n ranks may describe 2**n bytes.
        expanded = bytearray()
        waiting = [id - _SHIFT]
        while waiting:
            piece = waiting.pop()
            if piece < _BYTES:
                expanded.append(piece)
            else:
                waiting.extend(reversed(self._merges[piece - _BYTES]))
        return bytes(expanded)

    def _check_known(self, ids: list[int], *, first: int = 0) -> None:
        V = self.vocabulary_size
        for at, i in enumerate(ids, first):
            if not 0 <= i < V:
                raise IndexRefusal(code=Code.UNKNOWN_TOKEN, what="ids", at=at, index=i, bound=V)


class _Pieces:
    """Sequences of training ids with the places of every adjacent pair.

    A rank then costs its own occurrences instead of a walk over everything.
    """

    __slots__ = ("_after", "_before", "_ids", "_places")

    def __init__(self, sequences: Iterable[bytes]) -> None:
        self._ids: list[int] = []
        self._before: list[int] = []
        self._after: list[int] = []
        self._places: dict[Pair, set[int]] = {}
        for sequence in filter(None, sequences):
            first = len(self._ids)
            end = first + len(sequence)
            self._ids.extend(sequence)
            self._before.extend([_NONE, *range(first, end - 1)])
            self._after.extend([*range(first + 1, end), _NONE])
        for at in range(len(self._ids)):
            self._enter(at)

    def replace(self, pair: Pair, merged: int) -> int:
        """Replaces the pair from left to right; returns how often it did."""
        replacements = 0
        places = self._places.get(pair, set())
        for at in sorted(places):
            if at in places:  # not if an overlapping pair took its left operand
                self._join(at, merged)
                replacements += 1
        return replacements

    def most_frequent_pair(self) -> Pair | None:
        """The pair with most places, the numerically smallest of equals; None without pairs."""
        counted = [(-len(places), pair) for pair, places in self._places.items() if places]
        return min(counted)[1] if counted else None

    def vocabulary_ids(self) -> list[int]:
        """The present ids in order, as vocabulary ids."""
        return [_SHIFT + i for i in self._ids if i != _NONE]

    def _join(self, at: int, merged: int) -> None:
        taken = self._after[at]
        for place in (self._before[at], at, taken):
            self._leave(place)
        self._ids[at], self._ids[taken] = merged, _NONE
        self._after[at] = self._after[taken]
        if self._after[at] != _NONE:
            self._before[self._after[at]] = at
        self._enter(self._before[at])
        self._enter(at)

    def _enter(self, at: int) -> None:
        if at != _NONE and self._after[at] != _NONE:
            self._places.setdefault(self._pair(at), set()).add(at)

    def _leave(self, at: int) -> None:
        if at != _NONE and self._after[at] != _NONE:
            self._places[self._pair(at)].remove(at)

    def _pair(self, at: int) -> Pair:
        return self._ids[at], self._ids[self._after[at]]


def learn_merges(sequences: Sequence[bytes | bytearray], rounds: int) -> tuple[Pair, ...]:
    """Merge pairs for `BpeTokenizer`, by greatest pair count, ties to the smallest pair.

    Pairs are counted inside each sequence, overlapping ones too; learning ends early when no
    pair is left. To be given the training partition only.

    Refuses: record/field-type (sequences), record/not-bytes (by position),
             record/field-range (rounds)
    Source:  tokenizer.md section 5
    """
    if not isinstance(sequences, list | tuple):
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what="sequences",
            expected="a list or tuple of bytes",
            actual=type(sequences).__name__,
        )
    pieces = _Pieces([_checked_bytes(s, f"sequences[{at}]") for at, s in enumerate(sequences)])
    if not _is_count(rounds):
        raise RecordRefusal(
            code=Code.FIELD_RANGE, what="rounds", expected="an integer from 0", actual=rounds
        )
    merges: list[Pair] = []
    while len(merges) < rounds and (pair := pieces.most_frequent_pair()) is not None:
        pieces.replace(pair, _BYTES + len(merges))
        merges.append(pair)
    return tuple(merges)


def inputs_and_targets(
    ids: Sequence[int] | Ids,
) -> tuple[list[int], list[int]]:
    """The ids of a range and, for each, the id that follows it: one pair less than ids.

    ids:     a range of one document: BOS at its start at most, EOS at its end at most
    Returns: (inputs, targets); BOS is never a target, EOS never an input
    Refuses: index/not-an-integer, shape/ragged-ids, shape/token-shape (not flat),
             index/interior-control-token
    Source:  tokenizer.md section 7
    """
    checked = _checked_ids(ids, bound=ID_LIMIT)
    last = len(checked) - 1
    for at, i in enumerate(checked):
        if (i == BOS and at != 0) or (i == EOS and at != last):
            raise IndexRefusal(code=Code.INTERIOR_CONTROL_TOKEN, what="ids", at=at, index=i)
    return checked[:-1], checked[1:]


def _checked_ranks(merges: object) -> dict[Pair, int]:
    pairs = as_integers(merges, what="merges", bound=ID_LIMIT)
    if pairs.shape != (0,) and (pairs.ndim != 2 or pairs.shape[1] != 2):
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what="merges",
            expected="pairs of ids",
            actual=f"integers of shape {pairs.shape}",
        )
    ranks: dict[Pair, int] = {}
    for rank, (left, right) in enumerate(pairs.tolist()):
        bound = _BYTES + rank
        for i in (left, right):
            if not 0 <= i < bound:
                code = Code.UNKNOWN_MERGE_OPERAND
                raise IndexRefusal(code=code, what="merges", at=rank, index=i, bound=bound)
        if (left, right) in ranks:
            raise RecordRefusal(
                code=Code.DUPLICATE_MERGE_PAIR,
                what="merges",
                actual=(left, right),
                details={"rank": rank, "left": left, "right": right},
            )
        ranks[left, right] = rank
    return ranks


def _checked_ids(ids: object, *, bound: int) -> list[int]:
    """The ids as Python integers; their range is not judged."""
    integers = as_integers(ids, what="ids", bound=bound)
    if integers.ndim != 1:
        raise ShapeRefusal(
            code=Code.TOKEN_SHAPE, what="ids", expected="a flat list", actual=integers.shape
        )
    return list(map(int, integers.tolist()))


def _check_no_control(ids: list[int], code: Code, *, first: int = 0) -> None:
    for at, i in enumerate(ids, first):
        if i in _CONTROLS:
            raise IndexRefusal(code=code, what="ids", at=at, index=i)


def _checked_bytes(data: Any, what: str) -> bytes:
    if not isinstance(data, bytes | bytearray):
        raise RecordRefusal(
            code=Code.NOT_BYTES, what=what, expected="bytes", actual=type(data).__name__
        )
    return bytes(data)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as fault:
        at = fault.start
    raise RecordRefusal(
        code=Code.NOT_BYTES,
        what="text",
        expected="text with a UTF-8 form",
        actual=f"the surrogate {text[at]!r} at index {at}",
        details={"at": at},
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as fault:
        cut_short = fault.reason == "unexpected end of data"
        place = {
            "valid_up_to": fault.start,
            "error_len": None if cut_short else fault.end - fault.start,
        }
    raise RecordRefusal(
        code=Code.INVALID_UTF8, what="bytes", expected="UTF-8", actual=data, details=place
    )
