"""Faults of records, identities, canonical bytes and the tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from logitproof.core import backbone, batches, canonical, errors, fields, identity, tokenizer
from logitproof.core.canonical import Number, _Scanner
from logitproof.core.initial import SplitMix64
from logitproof.core.tokenizer import BpeTokenizer, _Pieces

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")


@mistake((canonical, "encode"), source="records.md section 3")
def keys_unsorted(_: Any) -> Any:
    """Keys are written in the order of the fields."""

    def encode(value: object, *, what: str) -> bytes:
        return (json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n").encode()

    return encode


def _remade(right: type, **flags: bool) -> type:
    """The record with other flags."""
    members = {n: v for n, v in vars(right).items() if n in ("__annotations__", "__module__")}
    made = type(right.__name__, right.__mro__[1:2], members)
    flags = {"frozen": True, "kw_only": True, **flags}
    return dataclass(**flags)(made)


@mistake((backbone, "ExecutionIdentity"), source="STYLE.md section 5")
def record_that_changes(right: type) -> type:
    """A record's fields can be set."""
    return _remade(right, frozen=False, slots=True)


@mistake((batches, "TextBatch"), source="STYLE.md section 5")
def record_by_place(right: type) -> type:
    """A record takes its fields without their names."""
    return _remade(right, kw_only=False, slots=True, eq=False)


@mistake((errors, "StateRefusal"), source="STYLE.md section 7")
def refusals_equal_by_fields(right: type) -> type:
    """Two refusals of the same facts are equal, and none can be hashed."""
    return _remade(right, frozen=False, repr=False)


@mistake((identity, "frame"), source="records.md section 4")
def identity_of_another_domain(right: Any) -> Any:
    """All records share one domain."""
    return lambda domain, pairs: right("decoder-record-v1", pairs)


@mistake((identity, "MAX_FIELDS"), source="records.md section 4")
def one_field_too_many(right: int) -> int:
    """An identity may have one field more than the limit."""
    return right + 1


@mistake((identity, "_NAME"), source="records.md section 4")
def names_of_65_characters(_: Any) -> Any:
    """A name may be one character longer than the limit."""
    return re.compile(r"[a-z][a-z0-9._-]{0,64}")


@mistake((identity, "_utf8_size"), source="records.md section 4")
def texts_counted_in_characters(right: Any) -> Any:
    """A text is as large as its characters are many."""

    def size(text: Any, what: str) -> int:
        right(text, what)
        return len(text)

    return size


@mistake((identity, "frame"), source="records.md section 4")
def domain_not_counted(right: Any) -> Any:
    """The total counts one byte for any domain."""

    def frame(domain: str, pairs: Any) -> Any:
        return replace(right("d", pairs), domain=right(domain, [("k", "")]).domain)

    return frame


@mistake((identity, "decode"), source="records.md section 4")
def frames_of_any_version(right: Any) -> Any:
    """A frame is read whatever its version."""
    return lambda data: right(re.sub(rb'"schema_version":\d+}', b'"schema_version":1}', data))


@mistake((identity, "decode"), source="records.md section 4")
def frames_in_any_spelling(right: Any) -> Any:
    """A frame is read whatever the white space in it."""
    return lambda data: right(data.replace(b'": ', b'":'))


def _without(right: Any, pattern: str) -> Any:
    """Identities of texts from which a member is cut."""

    def frame(domain: str, pairs: Any) -> Any:
        return right(domain, [(key, re.sub(pattern, "", text)) for key, text in pairs])

    return frame


@mistake((identity, "frame"), source="records.md section 4")
def identity_without_epsilon(right: Any) -> Any:
    """The identity leaves out the norm's epsilon."""
    return _without(right, r'"rms_epsilon":"[0-9a-f]*",')


@mistake((identity, "frame"), source="records.md section 4")
def identity_without_seeds(right: Any) -> Any:
    """The identity leaves out the seeds."""
    return _without(right, r'"seeds":\{[^}]*\},')


@mistake((_Scanner, "document"), source="cases: json-duplicate-key")
def duplicate_keys_kept(_: Any) -> Any:
    """A key that is met twice keeps one of its values."""

    def document(self: Any) -> Any:
        value = self.value()
        self.space()
        if self.at < len(self.data):
            raise self.fault("the end")
        return value

    return document


@mistake((_Scanner, "document"), source="cases: json-duplicate-key")
def duplicate_keys_before_unescaping(right: Any) -> Any:
    """Keys are compared as they are written: one that is escaped is another."""

    def document(self: Any) -> Any:
        value = self.value()
        repeated = self.duplicate
        written = self.data.count(b'"%s"' % repeated[-1].encode()) if repeated else 0
        if written != 1:
            self.at = self.values = 0
            self.duplicate = None
            return right(self)
        return value

    return document


@mistake((fields, "_has_kind"), source="cases: cfg-head-dim")
def booleans_are_integers(right: Any) -> Any:
    """true is 1, as Python has it."""
    return lambda value, field: right(int(value) if isinstance(value, bool) else value, field)


@mistake((canonical, "check_bytes"), source="records.md section 3")
def white_space_accepted(right: Any) -> Any:
    """Bytes may have white space between their values."""
    return lambda data, value, *, what: right(data.replace(b", ", b","), value, what=what)


@mistake((_Scanner, "number"), source="cases: json-nonfinite")
def infinite_number_read(right: Any) -> Any:
    """Any number is read, and cut to an integer; 1e999 is the largest."""

    def number(self: Any) -> int:
        found = right(self)
        if not isinstance(found, Number):
            return int(found)
        value = float(found.text)
        return 2**63 if value == float("inf") else int(value)

    return number


@mistake((_Pieces, "replace"), source="tokenizer.md section 3")
def merges_from_the_right(_: Any) -> Any:
    """A pass replaces overlapping pairs from right to left."""

    def replace(self: Any, pair: Any, merged: int) -> int:
        replacements = 0
        places = self._places.get(pair, set())
        for at in sorted(places, reverse=True):
            if at in places:
                self._join(at, merged)
                replacements += 1
        return replacements

    return replace


@mistake((BpeTokenizer, "_run_passes"), source="tokenizer.md section 3")
def merges_in_reverse_rank(_: Any) -> Any:
    """The latest merges run first."""

    def run_passes(self: Any, pieces: Any) -> Iterator[Any]:
        for pair, rank in reversed(self._ranks.items()):
            replacements = pieces.replace(pair, 256 + rank)
            if replacements:
                yield rank, replacements

    return run_passes


@mistake((BpeTokenizer, "token_bytes"), source="cases: tok-byte-length")
def bytes_through_text(right: Any) -> Any:
    """A token's bytes are those of its text, replacement characters and all."""
    return lambda self, id: right(self, id).decode("utf-8", "replace").encode()


@mistake((BpeTokenizer, "encode_document"), source="tokenizer.md section 6")
def end_marker_dropped(right: Any) -> Any:
    """A document has no end marker."""
    return lambda self, text: right(self, text)[:-1]


@mistake((tokenizer, "_utf8"), source="tokenizer.md section 3")
def text_stripped(right: Any) -> Any:
    """A text is encoded without the white space around it."""
    return lambda text: right(text.strip())


@mistake((BpeTokenizer, "token_bytes"), source="tokenizer.md section 4")
def controls_spelled(right: Any) -> Any:
    """Controls have names, which are their bytes."""
    return lambda self, id: (b"<s>", b"</s>")[id] if id in (0, 1) else right(self, id)


@mistake((_Pieces, "most_frequent_pair"), source="tokenizer.md section 5")
def equal_counts_to_the_largest(_: Any) -> Any:
    """Of pairs that are equally frequent the largest is merged."""

    def most_frequent_pair(self: Any) -> Any:
        counted = [(len(places), pair) for pair, places in self._places.items() if places]
        return max(counted)[1] if counted else None

    return most_frequent_pair


@mistake((tokenizer, "_text"), source="tokenizer.md section 4")
def fault_of_one_byte(right: Any) -> Any:
    """What is no text is one byte long, however much of a character was there."""

    def text(data: bytes) -> str:
        try:
            return str(right(data))
        except errors.RecordRefusal as refusal:
            refusal.details = {**refusal.details, "error_len": 1}
            raise

    return text


@mistake((BpeTokenizer, "encode_with_trace"), source="tokenizer.md section 3")
def passes_from_the_first_ids(right: Any) -> Any:
    """Every pass is told with the ids before the first."""

    def encode_with_trace(self: Any, data: bytes) -> Any:
        told = right(self, data)
        return replace(told, passes=tuple(replace(p, before=told.initial) for p in told.passes))

    return encode_with_trace


@mistake((tokenizer, "inputs_and_targets"), source="tokenizer.md section 7")
def targets_are_inputs(right: Any) -> Any:
    """The targets of a range are its inputs once more."""
    return lambda ids: (right(ids)[0], right(ids)[0])


@mistake((SplitMix64, "uniform"), source="numerics_init.md section 1")
def draw_one_at_a_time_from_32_bits(_: Any) -> Any:
    """A unit value drawn alone is made of 32 bits of its word."""
    return lambda self: (self.next_u64() >> 32) * 2.0**-32


@mistake((canonical, "MAX_DEPTH"), source="config_planner.md section 2")
def nesting_without_bound(_: Any) -> Any:
    """Arrays and objects nest as deep as the interpreter goes."""
    return 900


@mistake((_Scanner, "unescaped"), source="config_planner.md section 2")
def lone_surrogates_read(right: Any) -> Any:
    """Half of a surrogate pair is read as a question mark."""

    def unescaped(self: Any, escape: Any) -> str:
        try:
            return str(right(self, escape))
        except errors.RecordRefusal:
            return "?"

    return unescaped


@mistake((errors.Refusal, "__reduce__"), source="STYLE.md section 7")
def facts_lost_by_pickling(_: Any) -> Any:
    """A copy of a refusal has its code and what it is about, and no facts."""
    return lambda self: (errors._rebuild, (type(self), {"code": self.code, "what": self.what}))


@mistake((errors, "_brief"), source="STYLE.md section 7")
def digits_printed_in_full(_: Any) -> Any:
    """An integer is printed digit by digit, or not at all."""
    return lambda fact: fact


FAULTS = tuple(_FOUND.values())
