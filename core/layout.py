"""Which cells of a batch are active, which keys they read and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from .arrays import SIZE_LIMIT, as_integers, check_reservable, sealed
from .errors import (
    CapacityRefusal,
    Code,
    IndexRefusal,
    RecordRefusal,
    ShapeRefusal,
    check_equal,
    check_not_zero,
)
from .floats import Ids
from .initial import check_size

__all__ = ["LAYOUT_ORDER", "Mask", "SequenceLayout"]

KEPT_TOKENS = 512
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

# The checks of a layout in order; the first false one is refused (inputs.md section 2).
LAYOUT_ORDER = (
    *(Code.RAGGED_IDS, Code.NOT_AN_INTEGER) * 3,  # lengths, range starts, positions
    Code.EMPTY_BATCH,
    Code.EMPTY_TOKENS,
    Code.SIZE_OVERFLOW,
    Code.LENGTH_COUNT_MISMATCH,
    Code.LENGTH_OUT_OF_RANGE,
    Code.RANGE_START_COUNT_MISMATCH,
    Code.RANGE_START_AFTER_QUERY,
    Code.INACTIVE_RANGE_START,
    Code.POSITION_COUNT_MISMATCH,
    Code.NEGATIVE_POSITION,
    Code.INACTIVE_POSITION,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceLayout:
    """Active prefix lengths, first allowed keys and RoPE positions of a [B, T] batch.

    Query t of a row is active while t < length; it reads the keys range_start .. t of its
    row. Positions turn queries and keys; they never select keys. No mask is held.

    lengths:      [B], 1 .. T
    range_starts: [B, T], 0 .. t where active, 0 elsewhere
    positions:    [B, T], 0 or more where active, 0 elsewhere
    Refuses: `LAYOUT_ORDER`; range starts before positions, row-major
    Source:  inputs.md section 2
    """

    lengths: Ids
    range_starts: Ids
    positions: Ids
    last_position: int = field(init=False, repr=False)
    is_full: bool = field(init=False, repr=False)  # every cell is active
    is_ordinary: bool = field(init=False, repr=False)  # as `full` makes it

    def __post_init__(self) -> None:
        lengths = as_integers(self.lengths, what="layout.lengths")
        starts = as_integers(self.range_starts, what="layout.range_starts")
        positions = as_integers(self.positions, what="layout.positions")
        B, T = _rows_and_tokens(starts, positions)
        _check_lengths(lengths, B, T)
        active = np.arange(T) < lengths[:, None]
        _check_starts(starts, active)
        _check_positions(positions, active)
        for name, array in zip(
            ("lengths", "range_starts", "positions"), (lengths, starts, positions), strict=True
        ):
            object.__setattr__(self, name, sealed(array.astype(np.int64)))
        full = bool(active.all())
        ordinary = full and not starts.any() and bool((positions == np.arange(T)).all())
        object.__setattr__(self, "last_position", int(positions.max()))
        object.__setattr__(self, "is_full", full)
        object.__setattr__(self, "is_ordinary", ordinary)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or pickle is checked and sealed like any other layout."""
        return _laid_out, (self.lengths, self.range_starts, self.positions)

    @classmethod
    def full(cls, B: int, T: int) -> SequenceLayout:
        """Ordinary text: every cell active, keys 0 .. t, positions 0 .. T - 1.

        Refuses: record/field-type, record/field-range (B, then T), shape/empty-batch,
            shape/empty-tokens, capacity/size-overflow
        """
        B, T = _checked_sizes(B, T)
        return cls._padded(np.broadcast_to(np.int64(T), (B,)), T)

    @classmethod
    def padded(cls, lengths: Sequence[int], T: int) -> SequenceLayout:
        """Rows of the given lengths, right-padded to T cells.

        Refuses: shape/ragged-ids, index/not-an-integer, record/field-type, record/field-range
            (T), shape/empty-batch, shape/empty-tokens, capacity/size-overflow,
            index/length-out-of-range
        """
        given = _row_lengths(lengths)
        B, T = _checked_sizes(len(given), T)
        _check_lengths(given, B, T)
        return cls._padded(given, T)

    @classmethod
    def _padded(cls, lengths: Ids, T: int) -> SequenceLayout:
        positions = np.empty((len(lengths), T), dtype=np.int64)  # no memory is told here, at once
        positions[:] = np.arange(T)
        positions[positions >= lengths[:, None]] = 0
        return cls(lengths=lengths, range_starts=np.zeros_like(positions), positions=positions)

    @classmethod
    def packed(cls, row_segments: Sequence[Sequence[int]], T: int) -> SequenceLayout:
        """Rows of segments laid end to end; keys and positions start again in each segment.

        row_segments: per row the lengths of its segments
        Refuses: record/field-type, record/field-range (T), shape/empty-batch,
            shape/empty-tokens, capacity/size-overflow, then per row shape/ragged-ids,
            index/not-an-integer, shape/empty-segment, capacity/row-too-long
        """
        if not _is_list(row_segments):
            raise RecordRefusal(
                code=Code.FIELD_TYPE,
                what="layout rows",
                expected="a list of segment lengths per row",
                actual=type(row_segments).__name__,
            )
        B, T = _checked_sizes(len(row_segments), T)
        starts, positions = np.zeros((2, B, T), dtype=np.int64)
        lengths = np.zeros(B, dtype=np.int64)
        for row, segments in enumerate(row_segments):
            sizes = _row_lengths(segments).tolist()
            _check_segments(sizes, row, T)
            for size in sizes:
                first = int(lengths[row])
                starts[row, first : first + size] = first
                positions[row, first : first + size] = np.arange(size)
                lengths[row] += size
        return cls(lengths=lengths, range_starts=starts, positions=positions)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and stored cells per row."""
        B, T = self.positions.shape
        return B, T

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.lengths.nbytes + self.range_starts.nbytes + self.positions.nbytes

    def active_cells(self) -> Ids:
        """Flat row-major indices of the active cells."""
        T = self.shape[1]
        return np.flatnonzero(np.arange(T) < self.lengths[:, None])

    def first_inactive_cell(self) -> int | None:
        """Flat index of the first inactive cell, or None."""
        T = self.shape[1]
        inactive = np.flatnonzero(np.arange(T) >= self.lengths[:, None])
        return int(inactive[0]) if len(inactive) else None

    def allowed(self) -> tuple[Mask, Mask]:
        """Where a query may read a key, and where not.

        [T, T] for ordinary text, else [B, 1, T, T]
        """
        T = self.shape[1]
        if self.is_ordinary:
            return _triangle(T)
        t = np.arange(T)
        reach = _triangle(T)[0] & (t >= self.range_starts[:, :, None])
        allowed = (reach & (t < self.lengths[:, None])[:, :, None])[:, None]
        return allowed, ~allowed

    def lanes(self, heads: int) -> tuple[Ids | None, Ids | None]:
        """Range starts and lengths per [B * H] lane; None where the default says the same."""
        starts = np.repeat(self.range_starts, heads, axis=0) if self.range_starts.any() else None
        lengths = None if self.is_full else np.repeat(self.lengths, heads)
        return starts, lengths


def _triangle(T: int) -> tuple[Mask, Mask]:
    """True on and below the diagonal, and above it; long ones are not kept."""
    return _kept_triangle(T) if T <= KEPT_TOKENS else _made_triangle(T)


@lru_cache(maxsize=8)
def _kept_triangle(T: int) -> tuple[Mask, Mask]:
    return _made_triangle(T)


def _made_triangle(T: int) -> tuple[Mask, Mask]:
    t = np.arange(T)
    return sealed(t <= t[:, None]), sealed(t > t[:, None])


def _laid_out(lengths: Ids, range_starts: Ids, positions: Ids) -> SequenceLayout:
    return SequenceLayout(lengths=lengths, range_starts=range_starts, positions=positions)


def _rows_and_tokens(starts: Ids, positions: Ids) -> tuple[int, int]:
    """B and T, from the positions; the range starts must agree later."""
    shape = positions.shape if positions.ndim == 2 else starts.shape
    if len(shape) != 2:
        raise ShapeRefusal(
            code=Code.POSITION_COUNT_MISMATCH,
            what="layout.positions",
            expected="[B, T]",
            actual=positions.shape,
        )
    return _checked_sizes(*shape)


def _checked_sizes(B: object, T: object) -> tuple[int, int]:
    """Refuses: record/field-type, record/field-range, shape/empty-batch, shape/empty-tokens,
    capacity/size-overflow
    """
    rows, tokens = check_size(B, what="layout rows"), check_size(T, what="layout cells per row")
    check_not_zero(Code.EMPTY_BATCH, "layout", rows)
    check_not_zero(Code.EMPTY_TOKENS, "layout", tokens)
    if rows * tokens > SIZE_LIMIT:
        raise CapacityRefusal(
            code=Code.SIZE_OVERFLOW, what="layout", required=rows * tokens, limit=SIZE_LIMIT
        )
    check_reservable(rows, tokens)
    return rows, tokens


def _is_list(given: object) -> bool:
    return given.ndim > 0 if isinstance(given, np.ndarray) else isinstance(given, list | tuple)


def _row_lengths(given: object) -> Ids:
    integers = as_integers(given, what="layout segment lengths")
    if integers.ndim != 1:
        raise ShapeRefusal(
            code=Code.RAGGED_IDS,
            what="layout segment lengths",
            expected="a flat list",
            actual=f"rank {integers.ndim}",
        )
    return integers


def _check_segments(sizes: list[int], row: int, T: int) -> None:
    """Refuses: shape/empty-segment, capacity/row-too-long"""
    for index, size in enumerate(sizes or [0]):
        if size <= 0:
            raise ShapeRefusal(
                code=Code.EMPTY_SEGMENT,
                what="layout",
                expected="1 or more",
                actual=size,
                details={"row": row, "index": index},
            )
    if sum(sizes) > T:
        raise CapacityRefusal(
            code=Code.ROW_TOO_LONG, what=f"layout row {row}", required=sum(sizes), limit=T
        )


def _check_lengths(lengths: Ids, B: int, T: int) -> None:
    if lengths.shape != (B,):
        raise ShapeRefusal(
            code=Code.LENGTH_COUNT_MISMATCH,
            what="layout.lengths",
            expected=B,
            actual=lengths.shape,
        )
    for row, length in enumerate(lengths.tolist()):
        if not 1 <= length <= T:
            raise IndexRefusal(
                code=Code.LENGTH_OUT_OF_RANGE, what="layout.lengths", at=row, index=length, bound=T
            )


def _check_starts(starts: Ids, active: np.ndarray[Any, Any]) -> None:
    check_equal(Code.RANGE_START_COUNT_MISMATCH, "layout.range_starts", active.shape, starts.shape)
    t = np.broadcast_to(np.arange(active.shape[1]), active.shape)
    _refuse_first(
        active & ((starts < 0) | (starts > t)),
        starts,
        t,
        Code.RANGE_START_AFTER_QUERY,
        "range_starts",
    )
    _refuse_first(~active & (starts != 0), starts, None, Code.INACTIVE_RANGE_START, "range_starts")


def _check_positions(positions: Ids, active: np.ndarray[Any, Any]) -> None:
    check_equal(Code.POSITION_COUNT_MISMATCH, "layout.positions", active.shape, positions.shape)
    limit = 2**63 - 1
    bounds = np.full(active.shape, limit)
    outside = active & ((positions < 0) | (positions > limit))
    _refuse_first(outside, positions, bounds, Code.NEGATIVE_POSITION, "positions")
    _refuse_first(~active & (positions != 0), positions, None, Code.INACTIVE_POSITION, "positions")


def _refuse_first(
    false: np.ndarray[Any, Any],
    values: Ids,
    bounds: Ids | None,
    code: Code,
    name: str,
) -> None:
    """Refuses: `code` at the first flat cell where `false` holds"""
    if not false.any():
        return
    at = int(false.reshape(-1).argmax())
    raise IndexRefusal(
        code=code,
        what=f"layout.{name}",
        at=at,
        index=int(values.reshape(-1)[at]),
        bound=0 if bounds is None else int(bounds.reshape(-1)[at]),
    )
