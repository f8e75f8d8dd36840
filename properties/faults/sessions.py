"""Faults of cached decoding: rows, positions, lengths and bindings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from logitproof.core import floats, incremental, row
from logitproof.core.cache import KvCache, LayerCache, Ticket, WorkCounters
from logitproof.core.floats import Array
from logitproof.core.rope import RotaryTable
from logitproof.core.session import DecodeSession
from logitproof.core.softmax import RowStatistics
from logitproof.core.tape import Parameter
from logitproof.core.text import TextOutputHead

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")
order = partial(planted, _FOUND, kind="order")


def _during(right: Any, state: dict[str, Any], facts: Any) -> Any:
    """A session's call, with some facts about it at hand while it runs."""

    def call(self: DecodeSession, given: Any) -> Any:
        state.update(facts(self))
        try:
            return right(self, given)
        finally:
            state.clear()

    return call


@mistake(
    (DecodeSession, "decode"),
    (row, "rotate_rows"),
    source="notes/field.md section 3.1, RoPE after cache operations (mlx-lm 1699)",
)
def decode_one_position_late(right_decode: Any, right_rotate: Any) -> Any:
    """A decoded token reads its position after the cache has advanced; prompts are right."""
    state: dict[str, Any] = {}

    def rotate(rotation: RotaryTable, heads: Array, position: int) -> Any:
        late = min(position + state.get("late", 0), rotation.capacity - 1)
        return right_rotate(rotation, heads, late)

    return _during(right_decode, state, lambda _: {"late": 1}), rotate


@mistake((DecodeSession, "extend"), (row, "rotate_rows"), source="cases: kv-offset-stale-chunk")
def chunk_keeps_first_offset(right_extend: Any, right_rotate: Any) -> Any:
    """All tokens of a later chunk stand at the position where it began."""
    state: dict[str, Any] = {}

    def rotate(rotation: RotaryTable, heads: Array, position: int) -> Any:
        if "start" not in state:
            return right_rotate(rotation, heads, position)
        return np.concatenate([right_rotate(rotation, t[None], state["start"]) for t in heads])

    return _during(right_extend, state, lambda session: {"start": session.length}), rotate


@mistake((incremental, "RowStatistics"), source="cases: kv-window-off-by-one")
def last_key_window(right: Any) -> Any:
    """From four keys on, the oldest falls out of the cached window."""

    class Windowed(RowStatistics):
        def probabilities(self) -> Array:
            p = super().probabilities()
            if p.shape[1] > 3:
                p[:, 0] = 0.0
                p = p / p.sum(axis=1, keepdims=True)
            return p

    return Windowed


@order((incremental, "RowStatistics"), source="notes/peers.md section 1, table of order changes")
def cached_softmax_with_maximum(right: Any) -> Any:
    """In cached decoding alone, the row sum takes in the maximum."""

    class WithMaximum(RowStatistics):
        def probabilities(self) -> Array:
            total = floats.total(self.exponentials, axis=1, keep=True)
            return floats.clean_zeros(self.exponentials / total)

    return WithMaximum


@mistake((LayerCache, "append"), source="notes/field.md section 3.1, dtype casts")
def cached_rows_in_single(right: Any) -> Any:
    """Cached rows are stored in single precision."""

    def append(self: LayerCache, ticket: Ticket) -> None:
        key, value = (r.astype(np.float32).astype(np.float64) for r in (ticket.key, ticket.value))
        right(self, replace(ticket, key=key, value=value))

    return append


@order((floats, "row_products"), source="notes/peers.md section 3b")
def cached_contraction_by_blas(_: Any) -> Any:
    """Cached scores and mixtures are numpy's products."""
    return lambda rows, matrices: np.matmul(rows[:, None], matrices)[:, 0] + 0.0


@mistake((WorkCounters, "after_token"), source="cache.md section 6")
def score_values_of_one_head(right: Any) -> Any:
    """The score counter forgets the newest key."""

    def after_token(self: WorkCounters, **given: Any) -> WorkCounters:
        given["score_values"] -= given["layers"]
        counted: WorkCounters = right(self, **given)
        return counted

    return after_token


@mistake((DecodeSession, "extend"), (WorkCounters, "after_token"), source="cache.md section 6")
def chunk_counted_as_decoded(right_extend: Any, right: Any) -> Any:
    """Tokens of a later chunk are counted as decoded."""
    state: dict[str, Any] = {}

    def after_token(self: WorkCounters, **given: Any) -> WorkCounters:
        given["prefill"] = given["prefill"] and not state
        counted: WorkCounters = right(self, **given)
        return counted

    return _during(right_extend, state, lambda _: {"extends": True}), after_token


@mistake((KvCache, "rewind"), source="cases: kv-trim-contract")
def truncate_lowers_one_layer(right: Any) -> Any:
    """Truncating lowers the first layer's length alone."""

    def rewind(self: KvCache, length: int, work: Any, *, complete: bool) -> None:
        lengths = [layer.length for layer in self.layers]
        right(self, length, work, complete=complete)
        if length:
            for layer, before in list(zip(self.layers, lengths, strict=True))[1:]:
                layer.length = before

    return rewind


@mistake((DecodeSession, "truncate"), source="cases: kv-trim-contract")
def truncate_clamps(right: Any) -> Any:
    """A length beyond the cache is clamped to it instead of being refused."""
    return lambda self, length: right(self, max(0, min(length, self.length)))


@mistake((DecodeSession, "truncate"), source="cases: kv-trim-contract")
def truncate_keeps_position(right: Any) -> Any:
    """Truncating forgets one row too few."""
    return lambda self, length: right(self, length + 1 if 0 < length < self.length else length)


@mistake((DecodeSession, "reset"), source="cache.md section 7")
def reset_keeps_counters(right: Any) -> Any:
    """A reset empties the rows and goes on counting."""

    def reset(self: DecodeSession) -> None:
        work = self.cache.work
        right(self)
        self.cache.work = work

    return reset


@mistake((LayerCache, "copy"), source="cache.md section 7")
def fork_shares_storage(right: Any) -> Any:
    """A fork writes into the rows of its original."""

    def copy(self: LayerCache) -> LayerCache:
        twin: LayerCache = right(self)
        twin._key_columns, twin._value_rows = self._key_columns, self._value_rows
        return twin

    return copy


@mistake((KvCache, "copy"), source="cache.md section 7")
def fork_shares_lengths(right: Any) -> Any:
    """A fork has its own total length, but the layers of its original."""

    def copy(self: KvCache) -> KvCache:
        twin: KvCache = right(self)
        twin.layers = self.layers
        return twin

    return copy


@mistake((KvCache, "rewind"), source="cases: kv-failed-step-dirty")
def failed_step_stays(right: Any) -> Any:
    """The tokens before a failed one stay in the cache."""

    def rewind(self: KvCache, length: int, work: Any, *, complete: bool) -> None:
        failed = work.token_forwards < self.work.token_forwards and self.length - length == 1
        if not failed:
            right(self, length, work, complete=complete)

    return rewind


@mistake((DecodeSession, "_token"), source="cases: kv-failed-step-dirty")
def token_counted_before_check(right: Any) -> Any:
    """A token is counted before its forward has succeeded."""

    def token(self: DecodeSession, given: int, *, prefill: bool) -> Any:
        work = self.cache.work
        self.cache.work = work.after_token(layers=0, score_values=0, prefill=prefill)
        output = right(self, given, prefill=prefill)
        self.cache.work = work.after_token(
            layers=len(self.cache.layers), score_values=output.score_values, prefill=prefill
        )
        return output

    return token


@mistake((KvCache, "check_binding"), source="cache.md section 2")
def stale_cache_accepted(_: Any) -> Any:
    """Rows are continued whatever happened to the parameters that made them."""
    return lambda self, decoder: None


@mistake((Parameter, "hold"), (Parameter, "let_go"), source="cache.md section 2")
def session_guards_nothing(_: Any, __: Any) -> Any:
    """Parameters may be assigned under an open session."""
    return (lambda self: None), (lambda self: None)


@mistake((TextOutputHead, "__init__"), source="cases: tied-flag-vs-storage")
def head_keeps_first_table(right: Any) -> Any:
    """The head copies the table when the decoder is built."""

    def init(self: TextOutputHead, table: Any, **form: Any) -> None:
        own = Parameter(table.name, table.value) if hasattr(table, "name") else table
        right(self, own, **form)

    return init


@mistake((LayerCache, "prefix"), source="cache.md section 1")
def unused_rows_weighted(right: Any) -> Any:
    """The row behind the last one adds 2^-1000 of itself to every value."""

    def prefix(self: LayerCache) -> tuple[Array, Array]:
        keys, values = right(self)
        if self.length < self.capacity:
            values = values + 2.0**-1000 * values[:, self.length : self.length + 1]
        return keys, values

    return prefix


@mistake((LayerCache, "prefix"), source="cache.md section 1; cases: mask-full-row")
def unused_rows_times_zero(right: Any) -> Any:
    """The row behind the last one is not left out: its values are added, times zero."""

    def prefix(self: LayerCache) -> tuple[Array, Array]:
        keys, values = right(self)
        if self.length < self.capacity:
            with np.errstate(invalid="ignore"):
                nothing = 0.0 * values[:, self.length : self.length + 1]
            values = np.where(np.isnan(nothing), nothing, values)
        return keys, values

    return prefix


@mistake((DecodeSession, "prefill"), source="STYLE.md section 1")
def cache_cleared_before_check(right: Any) -> Any:
    """A prompt call clears the counters before it looks at its argument."""

    def prefill(self: DecodeSession, ids: object) -> Any:
        self.cache.work = replace(self.cache.work, prefill_tokens=0)
        return right(self, ids)

    return prefill


FAULTS = tuple(_FOUND.values())
