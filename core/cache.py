"""Cached key and value rows of one growing sequence, bound to the parameters that made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .arrays import SIZE_LIMIT, sealed
from .attention import Attention
from .config import DecoderConfig, float_bits
from .errors import (
    BindingRefusal,
    CapacityRefusal,
    Code,
    NumericRefusal,
    StateRefusal,
    check_equal,
    check_kind,
    check_not_zero,
)
from .floats import Array, is_finite
from .initial import check_size
from .tape import Binding, Parameter
from .text import Decoder

__all__ = ["BIND_ORDER", "KvCache", "LayerCache", "Ticket", "WorkCounters"]

# The checks that let a session continue a cache, in order (cache.md section 2).
BIND_ORDER = (
    Code.FIELD_TYPE,
    Code.CACHE_IN_USE,
    Code.MODEL_CONFIG_MISMATCH,
    Code.MODEL_PARAMETER_COUNT_MISMATCH,
    Code.MODEL_PARAMETER_MISMATCH,
    Code.MODEL_PARAMETER_REVISION_MISMATCH,
    Code.CACHE_LAYER_COUNT_MISMATCH,
    Code.LAYER_LENGTH_INVARIANT,
    Code.CACHE_LAYER_MISMATCH,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCounters:
    """Work of the committed tokens; rejected calls add nothing. Source: cache.md section 6"""

    token_forwards: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    cache_appends: int = 0
    qkv_projection_rows: int = 0
    attention_score_values: int = 0

    def after_token(self, *, layers: int, score_values: int, prefill: bool) -> WorkCounters:
        """The counters with one more committed token.

        Refuses: capacity/work-overflow (3 L first, then the counters in order)
        """
        qkv = _checked(3 * layers, "qkv_projection_rows")
        added = (1, int(prefill), int(not prefill), layers, qkv, score_values)
        return WorkCounters(
            **{
                name: _checked(getattr(self, name) + increment, name)
                for name, increment in zip(self.__slots__, added, strict=True)
            }
        )


def _checked(count: int, counter: str) -> int:
    if count > SIZE_LIMIT:
        raise CapacityRefusal(
            code=Code.WORK_OVERFLOW,
            what="session.work",
            required=count,
            limit=SIZE_LIMIT,
            details={"counter": counter},
        )
    return count


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """New rows of one layer, computed and checked but not yet written; used once."""

    key: Array  # [H, d_h], rotated
    value: Array  # [H, d_h]
    length: int
    storage: Array
    score_values: int


class LayerCache:
    """Rows of one layer: zero-filled storage, of which the first `length` rows are real.

    Keys are stored feature-major, so that a step's scores read whole runs and copy nothing.

    Refuses: shape/zero-cache-batch, shape/zero-cache-capacity,
        capacity/cache-capacity-exceeded, capacity/size-overflow
    Source:  cache.md section 1
    """

    __slots__ = (
        "_bindings",
        "_facts",
        "_key_columns",
        "_value_rows",
        "batch",
        "capacity",
        "length",
    )

    def __init__(self, attention: Attention, *, batch: int, capacity: int) -> None:
        what = "cache"
        batch = check_size(batch, what=f"{what} batch")
        capacity = check_size(capacity, what=f"{what} capacity")
        check_not_zero(Code.ZERO_CACHE_BATCH, what, batch)
        check_not_zero(Code.ZERO_CACHE_CAPACITY, what, capacity)
        if capacity > attention.rotation.capacity:
            raise CapacityRefusal(
                code=Code.CACHE_CAPACITY_EXCEEDED,
                what=what,
                required=capacity,
                limit=attention.rotation.capacity,
            )
        H, d_h = attention.heads, attention.head_width
        elements = batch * H * capacity * d_h
        if elements > SIZE_LIMIT:
            raise CapacityRefusal(
                code=Code.SIZE_OVERFLOW, what=what, required=elements, limit=SIZE_LIMIT
            )
        self.batch, self.capacity, self.length = batch, capacity, 0
        self._key_columns = np.zeros((batch, H, d_h, capacity))
        self._value_rows = np.zeros((batch, H, capacity, d_h))
        self._bindings = tuple(Binding.of(p) for p in attention.parameters)
        self._facts = _facts(attention)

    @property
    def keys(self) -> Array:
        """A copy of the rotated keys [batch, H, capacity, d_h]; past `length` they mean nothing."""
        copy: Array = sealed(self._key_columns.swapaxes(2, 3).copy())
        return copy

    @property
    def values(self) -> Array:
        """A copy of the values [batch, H, capacity, d_h]; past `length` they mean nothing."""
        copy: Array = sealed(self._value_rows.copy())
        return copy

    @property
    def nbytes(self) -> int:
        """Allocated bytes of keys and values; a reset frees none."""
        return self._key_columns.nbytes + self._value_rows.nbytes

    def prefix(self) -> tuple[Array, Array]:
        """Key columns [H, d_h, length] and value rows [H, capacity, d_h] of the one sequence."""
        return self._key_columns[0, :, :, : self.length], self._value_rows[0]

    def ticket(
        self, key: Array, value: Array, score_values: int, *, length: int | None = None
    ) -> Ticket:
        """The rows to append, checked.

        length: the rows before them when they were computed; default those of now
        Refuses: shape/cache-row-shape (key, then value), capacity/full,
            numeric/non-finite-cache-row (key, then value)
        """
        H, d_h = self._key_columns.shape[1:3]
        rows = {"key": key, "value": value}
        for name, row in rows.items():
            check_equal(Code.CACHE_ROW_SHAPE, name, (H, d_h), row.shape)
        if self.length >= self.capacity:
            raise CapacityRefusal(
                code=Code.FULL, what="cache", required=self.length + 1, limit=self.capacity
            )
        for name, row in rows.items():
            if not is_finite(row):
                at = int(np.isfinite(row.reshape(-1)).argmin())
                raise NumericRefusal(
                    code=Code.NON_FINITE_CACHE_ROW,
                    what=name,
                    at=at,
                    value=float(row.reshape(-1)[at]),
                )
        before = self.length if length is None else length
        return Ticket(key, value, before, self._key_columns, score_values)

    def accepts(self, ticket: Ticket) -> bool:
        """True while nothing was appended or replaced since the ticket was made."""
        return ticket.length == self.length and ticket.storage is self._key_columns

    def append(self, ticket: Ticket) -> None:
        """Write an accepted ticket's rows; only the session calls this."""
        self._key_columns[0, :, :, self.length] = ticket.key
        self._value_rows[0, :, self.length] = ticket.value
        self.length += 1

    def matches(self, attention: Attention, *, capacity: int) -> tuple[object, object] | None:
        """The first fact that differs from this attention, as (expected, actual), or None."""
        if self.batch != 1:
            return "batch 1", f"batch {self.batch}"
        if self.capacity != capacity:
            return f"capacity {capacity}", f"capacity {self.capacity}"
        return self.binds(attention)

    def binds(self, attention: Attention) -> tuple[object, object] | None:
        """Widths, parameter nodes, revisions and RoPE facts, in this order; None when all agree."""
        now = _facts(attention)
        if now == self._facts:
            for binding, parameter in zip(self._bindings, attention.parameters, strict=True):
                if binding.node is not parameter or binding.revision != parameter._revision:
                    break
            else:
                return None
        for expected, actual in zip(now[:3], self._facts[:3], strict=True):
            if expected != actual:
                return expected, actual
        for binding, parameter in zip(self._bindings, attention.parameters, strict=True):
            if not binding.node_matches(parameter):
                return f"the bound {parameter.name}", "another node"
        for binding, parameter in zip(self._bindings, attention.parameters, strict=True):
            if not binding.revision_matches(parameter):
                return f"{parameter.name} at revision {binding.revision}", parameter.revision
        return None if now[3:] == self._facts[3:] else (now[3:], self._facts[3:])

    def copy(self) -> LayerCache:
        """The same rows and bindings in storage of its own."""
        twin = LayerCache.__new__(LayerCache)
        twin.batch, twin.capacity, twin.length = self.batch, self.capacity, self.length
        twin._key_columns, twin._value_rows = self._key_columns.copy(), self._value_rows.copy()
        twin._bindings, twin._facts = self._bindings, self._facts
        return twin


def _facts(attention: Attention) -> tuple[object, ...]:
    """Model width, head count, head width; then the RoPE width, capacity and base bits."""
    rotation = attention.rotation
    return (
        attention.model_width,
        attention.heads,
        attention.head_width,
        rotation.width,
        rotation.capacity,
        float_bits(rotation.base),
    )


class KvCache:
    """One layer cache per block, bindings of all parameters, length and work counters.

    Refuses: record/field-type
    Source:  cache.md sections 1 and 2
    """

    __slots__ = ("_bindings", "_held", "config", "layers", "length", "prefill_complete", "work")

    config: DecoderConfig
    layers: tuple[LayerCache, ...]

    def __init__(self, decoder: Decoder) -> None:
        check_kind(decoder, Decoder, "cache decoder")
        self.config = decoder.config
        self._bindings = tuple(Binding.of(p) for p in decoder.parameters.values())
        self.layers = tuple(
            LayerCache(block.attention, batch=1, capacity=decoder.config.max_positions)
            for block in decoder.backbone.blocks
        )
        self.length = 0
        self.prefill_complete = False
        self.work = WorkCounters()
        self._held = False

    @property
    def nbytes(self) -> int:
        """Allocated key and value bytes of all layers."""
        return sum(layer.nbytes for layer in self.layers)

    def check_free(self) -> None:
        """Refuses: state/cache-in-use (rows have one writer at a time)"""
        if self._held:
            raise StateRefusal(
                code=Code.CACHE_IN_USE,
                what="cache",
                expected="no session",
                actual="an open session",
            )

    def hold(self) -> None:
        """Give the rows to one session."""
        self._held = True

    def let_go(self) -> None:
        """Take the rows back from a session that ended."""
        self._held = False

    def check_binding(self, decoder: Decoder) -> None:
        """Refuses: `BIND_ORDER`. Source: cache.md section 2"""
        if decoder.config != self.config:
            raise _mismatch(Code.MODEL_CONFIG_MISMATCH, "config", self.config, decoder.config)
        parameters = list(decoder.parameters.values())
        if len(parameters) != len(self._bindings):
            raise _mismatch(
                Code.MODEL_PARAMETER_COUNT_MISMATCH,
                "parameters",
                len(self._bindings),
                len(parameters),
            )
        self._check_parameters(parameters)
        blocks = decoder.backbone.blocks
        if len(blocks) != len(self.layers):
            raise _mismatch(
                Code.CACHE_LAYER_COUNT_MISMATCH, "layers", len(blocks), len(self.layers)
            )
        for index, layer in enumerate(self.layers):
            if layer.length != self.length:
                raise _mismatch(
                    Code.LAYER_LENGTH_INVARIANT,
                    f"layers.{index}",
                    self.length,
                    layer.length,
                    layer=index,
                )
        for index, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            differing = layer.matches(block.attention, capacity=self.config.max_positions)
            if differing is not None:
                raise _mismatch(
                    Code.CACHE_LAYER_MISMATCH, f"layers.{index}", *differing, layer=index
                )

    def _check_parameters(self, parameters: Sequence[Parameter]) -> None:
        """Nodes of all parameters first, then revisions of all."""
        pairs = list(zip(self._bindings, parameters, strict=True))
        for index, (binding, parameter) in enumerate(pairs):
            if not binding.node_matches(parameter):
                raise _mismatch(
                    Code.MODEL_PARAMETER_MISMATCH,
                    parameter.name,
                    "the bound node",
                    "another node",
                    index=index,
                )
        for index, (binding, parameter) in enumerate(pairs):
            if not binding.revision_matches(parameter):
                raise _mismatch(
                    Code.MODEL_PARAMETER_REVISION_MISMATCH,
                    parameter.name,
                    binding.revision,
                    parameter.revision,
                    index=index,
                )

    def commit(self, tickets: Sequence[Ticket], work: WorkCounters) -> None:
        """Append every layer's rows, then length and counters; only the session calls this.

        Whatever breaks in (an interrupt between two layers), all layers are written or none.
        """
        length, work_before = self.length, self.work
        try:
            for layer, ticket in zip(self.layers, tickets, strict=True):
                layer.append(ticket)
            self.length += 1
            self.work = work
        except BaseException:
            self.rewind(length, work_before, complete=self.prefill_complete)
            raise

    def rewind(self, length: int, work: WorkCounters, *, complete: bool) -> None:
        """Forget the rows from `length` on; storage and bindings stay."""
        for layer in self.layers:
            layer.length = length
        self.length = length
        self.work = work
        self.prefill_complete = complete

    def copy(self) -> KvCache:
        """The same rows, counters and bindings in storage of its own."""
        twin = KvCache.__new__(KvCache)
        twin._held = False
        twin.config, twin._bindings = self.config, self._bindings
        twin.layers = tuple(layer.copy() for layer in self.layers)
        twin.length, twin.prefill_complete, twin.work = (
            self.length,
            self.prefill_complete,
            self.work,
        )
        return twin


def _mismatch(
    code: Code, what: str, expected: object, actual: object, **details: object
) -> BindingRefusal:
    return BindingRefusal(code=code, what=what, expected=expected, actual=actual, details=details)
