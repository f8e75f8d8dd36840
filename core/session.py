"""Incremental decoding of one sequence: the only writer of cached rows."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from .arrays import as_integers, sealed
from .cache import KvCache, Ticket, WorkCounters
from .errors import (
    BindingRefusal,
    CapacityRefusal,
    Code,
    IndexRefusal,
    RecordRefusal,
    ShapeRefusal,
    StateRefusal,
    check_equal,
    check_not_zero,
)
from .floats import Array, Ids
from .incremental import run_cached
from .initial import check_integer
from .layout import SequenceLayout
from .row import Rows, Undecided, run_rows
from .tape import NO_GRAD, Parameter
from .text import Decoder, TextInputEncoder
from .vjp import quiet_pass

__all__ = ["DECODE_ORDER", "EXTEND_ORDER", "PREFILL_ORDER", "DecodeSession", "TokenOutput"]

# The checks of each call in order (cache.md sections 3 and 4).
PREFILL_ORDER = (
    Code.SESSION_CLOSED,
    Code.RAGGED_IDS,
    Code.NOT_AN_INTEGER,
    Code.TOKEN_RANK,
    Code.EMPTY_PROMPT,
    Code.PREFILL_REQUIRES_EMPTY,
    Code.PROMPT_TOO_LONG,
    Code.PROMPT_TOKEN_OUT_OF_BOUNDS,
)
EXTEND_ORDER = (
    Code.SESSION_CLOSED,
    Code.RAGGED_IDS,
    Code.NOT_AN_INTEGER,
    Code.TOKEN_RANK,
    Code.EXTEND_REQUIRES_PREFILL,
    Code.EMPTY_EXTENSION,
    Code.EXTENSION_TOO_LONG,
    Code.EXTENSION_TOKEN_OUT_OF_BOUNDS,
)
DECODE_ORDER = (
    Code.SESSION_CLOSED,
    Code.RAGGED_IDS,
    Code.NOT_AN_INTEGER,
    Code.TOKEN_RANK,
    Code.DECODE_REQUIRES_PREFILL,
    Code.DECODE_TOKEN_OUT_OF_BOUNDS,
    Code.FULL,
)
# Rows of a prompt that are computed at once, each with the bits it has alone: as many as let
# every weight be read a few times less often, while scores and logits stay small.
BLOCK_TOKENS = 32
TRUNCATE_ORDER = (Code.SESSION_CLOSED, Code.FIELD_TYPE, Code.TRUNCATE_LENGTH_OUT_OF_RANGE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenOutput:
    """The newest token's logits [V], its position, the cache length, its score values.

    `tracked` is that of the logits tensor the array comes from: cached results have no graph.
    """

    logits: Array
    position: int
    length: int
    score_values: int
    tracked: bool


class DecodeSession:
    """A decoder, a cache and read guards on every parameter for the session's whole life.

    Every call is all or nothing. A failed prefill empties the cache; any other refused or
    failed call leaves rows, length and counters as they were. Ending a session keeps its
    cache; a new session may continue it while it still binds, never two at a time.

    Refuses: `BIND_ORDER` for a given cache
    Source:  cache.md
    """

    __slots__ = ("__weakref__", "_release", "cache", "decoder")

    def __init__(self, decoder: Decoder, cache: KvCache | None = None) -> None:
        for name, given, kind in (("decoder", decoder, Decoder), ("cache", cache, KvCache)):
            if not isinstance(given, kind) and not (name == "cache" and given is None):
                raise RecordRefusal(
                    code=Code.FIELD_TYPE,
                    what=f"session {name}",
                    expected=f"a {kind.__name__}",
                    actual=type(given).__name__,
                )
        if cache is not None:
            cache.check_free()
            cache.check_binding(decoder)
        self.decoder = decoder
        self.cache = KvCache(decoder) if cache is None else cache
        guarded = list(decoder.parameters.values())
        for parameter in guarded:
            parameter.hold()
        self.cache.hold()
        self._release = weakref.finalize(self, _let_go, guarded, self.cache)

    def __enter__(self) -> DecodeSession:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session: its guards are dropped, its cache is kept. Closing again is nothing."""
        self._release()

    @property
    def length(self) -> int:
        """Committed tokens."""
        return self.cache.length

    @property
    def work(self) -> WorkCounters:
        """The work counters of the committed tokens."""
        return self.cache.work

    def prefill(self, ids: object) -> TokenOutput:
        """Commit a prompt into an empty cache; the last token's output.

        A failure after the checks empties the whole logical cache, counters included.

        Refuses: `PREFILL_ORDER`, then the token's
        """
        flat = self._flat(ids)
        cache = self.cache
        check_not_zero(Code.EMPTY_PROMPT, "prompt", len(flat))
        if cache.length or cache.prefill_complete:
            raise StateRefusal(
                code=Code.PREFILL_REQUIRES_EMPTY, what="session", expected=0, actual=cache.length
            )
        capacity = self._capacity
        if len(flat) > capacity:
            raise CapacityRefusal(
                code=Code.PROMPT_TOO_LONG, what="prompt", required=len(flat), limit=capacity
            )
        prompt = self._bounded(flat, Code.PROMPT_TOKEN_OUT_OF_BOUNDS, "prompt")
        try:
            output = self._prompt(prompt)
            cache.prefill_complete = True
        except BaseException:
            cache.rewind(0, WorkCounters(), complete=False)
            raise
        return output

    def extend(self, ids: object) -> TokenOutput:
        """Commit more prompt tokens behind a finished prefill; the last token's output.

        A failure restores the state before the call.

        Refuses: `EXTEND_ORDER`, then the token's
        """
        flat = self._flat(ids)
        cache = self.cache
        if not cache.prefill_complete:
            raise _needs_prefill(Code.EXTEND_REQUIRES_PREFILL)
        check_not_zero(Code.EMPTY_EXTENSION, "extension", len(flat))
        if cache.length + len(flat) > self._capacity:
            raise CapacityRefusal(
                code=Code.EXTENSION_TOO_LONG,
                what="extension",
                required=cache.length + len(flat),
                limit=self._capacity,
            )
        extension = self._bounded(flat, Code.EXTENSION_TOKEN_OUT_OF_BOUNDS, "extension")
        length, work = cache.length, cache.work
        try:
            return self._prompt(extension)
        except BaseException:
            cache.rewind(length, work, complete=True)
            raise

    def decode(self, id: int) -> TokenOutput:
        """Commit one token; its output.

        Refuses: `DECODE_ORDER`, then the token's
        """
        self._check_open()
        if type(id) is int:
            token = id
        else:
            given = as_integers(id, what="token", bound=self._vocabulary)
            if given.ndim:
                code = Code.TOKEN_RANK
                raise ShapeRefusal(code=code, what="token", expected=0, actual=given.ndim)
            token = int(given[()])
        if not self.cache.prefill_complete:
            raise _needs_prefill(Code.DECODE_REQUIRES_PREFILL)
        if not 0 <= token < self._vocabulary:
            raise IndexRefusal(
                code=Code.DECODE_TOKEN_OUT_OF_BOUNDS,
                what="token",
                index=token,
                bound=self._vocabulary,
            )
        if self.cache.length >= self._capacity:
            raise CapacityRefusal(
                code=Code.FULL,
                what="cache",
                required=self.cache.length + 1,
                limit=self._capacity,
            )
        return self._token(token, prefill=False)

    def truncate(self, length: int) -> None:
        """Forget the rows from `length` on; the next token stands at position `length`.

        Counters keep what was done; length 0 is `reset`.

        Refuses: state/session-closed, record/field-type, index/truncate-length-out-of-range
        """
        self._check_open()
        length = check_integer(length, what="truncate length")
        if not 0 <= length <= self.cache.length:
            raise IndexRefusal(
                code=Code.TRUNCATE_LENGTH_OUT_OF_RANGE,
                what="session",
                index=length,
                bound=self.cache.length,
            )
        if length == 0:
            self.reset()
        else:
            self.cache.rewind(length, self.cache.work, complete=True)

    def fork(self) -> DecodeSession:
        """A session of its own over a copy of rows and counters. Refuses: state/session-closed"""
        self._check_open()
        return DecodeSession(self.decoder, self.cache.copy())

    def reset(self) -> None:
        """Length and counters 0, not prefilled; storage and bindings stay.

        Refuses: state/session-closed
        Source:  cache.md section 7
        """
        self._check_open()
        self.cache.rewind(0, WorkCounters(), complete=False)

    @property
    def _capacity(self) -> int:
        return self.decoder.config.max_positions

    @property
    def _vocabulary(self) -> int:
        return self.decoder.config.vocabulary_size

    def _check_open(self) -> None:
        if not self._release.alive:
            raise StateRefusal(
                code=Code.SESSION_CLOSED, what="session", expected="open", actual="closed"
            )

    def _flat(self, ids: object) -> np.ndarray[Any, Any]:
        """Refuses: state/session-closed, `as_integers`', shape/token-rank"""
        self._check_open()
        flat = as_integers(ids, what="ids", bound=self._vocabulary)
        check_equal(Code.TOKEN_RANK, "ids", 1, flat.ndim)
        return flat

    def _bounded(self, flat: np.ndarray[Any, Any], code: Code, what: str) -> list[int]:
        for at, token in enumerate(flat.tolist()):
            if not 0 <= token < self._vocabulary:
                raise IndexRefusal(code=code, what=what, at=at, index=token, bound=self._vocabulary)
        return [int(token) for token in flat]

    def _prompt(self, tokens: list[int]) -> TokenOutput:
        """Every token committed in order, computed in blocks; the last one's output."""
        outputs = []
        for start in range(0, len(tokens), BLOCK_TOKENS):
            outputs = self._block(tokens[start : start + BLOCK_TOKENS])
        return outputs[-1]

    def _block(self, tokens: list[int]) -> list[TokenOutput]:
        """The last output of a block; where it is undecided, of its tokens one by one."""
        if len(tokens) > 1:
            rows = self._rows(tokens, self.cache.length)
            if rows is not None:
                return [self._commit_rows(rows)]
        return [self._token(token, prefill=True) for token in tokens]

    def _rows(self, tokens: Sequence[int], position: int) -> Rows | None:
        """The rows on plain arrays, or None where the checked path must tell."""
        with quiet_pass():
            try:
                return run_rows(self.decoder, tokens, self.cache.layers, position)
            except (ValueError, Undecided):  # a part that does not fit, or a refusal
                return None

    def _commit_rows(self, rows: Rows) -> TokenOutput:
        first = self.cache.length
        for t, score_values in enumerate(rows.score_values):
            tickets = [
                layer.ticket(key[t], value[t], score_values, length=first + t)
                for layer, key, value in zip(self.cache.layers, rows.keys, rows.values, strict=True)
            ]
            output = self._commit(tickets, rows.logits, prefill=True, tracked=False)
        return output

    def _token(self, token: int, *, prefill: bool) -> TokenOutput:
        """One token: everything is computed, then checked, and only then written.

        Source: cache.md section 5
        """
        position = self.cache.length
        rows = self._rows((token,), position)
        if rows is None:
            logits, tracked, tickets = self._checked(token, position)
        else:
            logits, tracked = rows.logits, False
            tickets = [
                layer.ticket(key[0], value[0], rows.score_values[0], length=position)
                for layer, key, value in zip(self.cache.layers, rows.keys, rows.values, strict=True)
            ]
        return self._commit(tickets, logits, prefill=prefill, tracked=tracked)

    def _checked(self, token: int, position: int) -> tuple[Array, bool, list[Ticket]]:
        """Logits [V], whether their tensor was tracked, and the tickets, with every refusal."""
        cache, decoder = self.cache, self.decoder
        layout = SequenceLayout(
            lengths=_ids([1]), range_starts=_ids([[0]]), positions=_ids([[position]])
        )
        encoder = TextInputEncoder(decoder, _ids([[token]]), layout)
        with quiet_pass():
            prepared = encoder.encode(NO_GRAD, decoder.backbone)
            hidden, tickets = run_cached(decoder.backbone, prepared, cache.layers, position)
            output = decoder.head.forward(NO_GRAD, hidden)
        return output.value.reshape(-1).copy(), output.tracked, tickets

    def _commit(
        self, tickets: list[Ticket], logits: Array, *, prefill: bool, tracked: bool
    ) -> TokenOutput:
        """The output of a token whose tickets still hold, once they are written."""
        cache, position = self.cache, self.cache.length
        self._check_tickets(tickets)
        score_values = sum(int(ticket.score_values) for ticket in tickets)
        work = cache.work.after_token(
            layers=len(cache.layers), score_values=score_values, prefill=prefill
        )
        cache.commit(tickets, work)
        return TokenOutput(
            logits=sealed(logits),
            position=position,
            length=cache.length,
            score_values=score_values,
            tracked=tracked,
        )

    def _check_tickets(self, tickets: list[Ticket]) -> None:
        """Refuses: binding/prepared-cache-changed (layers ascending)"""
        for index, (layer, ticket) in enumerate(zip(self.cache.layers, tickets, strict=True)):
            if not layer.accepts(ticket):
                raise BindingRefusal(
                    code=Code.PREPARED_CACHE_CHANGED,
                    what=f"layers.{index}",
                    expected=ticket.length,
                    actual=layer.length,
                    details={"layer": index},
                )


def _ids(nested: list[Any]) -> Ids:
    return np.array(nested, dtype=np.int64)


def _needs_prefill(code: Code) -> StateRefusal:
    return StateRefusal(code=code, what="session", expected="prefilled", actual="not prefilled")


def _let_go(parameters: list[Parameter], cache: KvCache) -> None:
    cache.let_go()
    for parameter in parameters:
        parameter.let_go()
