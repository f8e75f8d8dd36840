"""Which cells are active, which keys they read and where they stand."""

import copy
import pickle
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitproof.core import Code, IndexRefusal, Refusal, SequenceLayout

rows_of_segments = st.lists(
    st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4
)


def keys(layout: SequenceLayout) -> list[list[list[int]]]:
    """The keys every cell reads, per row."""
    return [
        [list(range(start, t + 1)) if t < length else [] for t, start in enumerate(starts)]
        for starts, length in zip(layout.range_starts.tolist(), layout.lengths, strict=True)
    ]


def test_a_full_layout_reads_every_prefix() -> None:
    layout = SequenceLayout.full(2, 3)
    assert layout.lengths.tolist() == [3, 3]
    assert layout.positions.tolist() == [[0, 1, 2]] * 2
    assert keys(layout) == [[[0], [0, 1], [0, 1, 2]]] * 2


def test_a_padded_layout_has_the_rows_of_fixture_a() -> None:
    layout = SequenceLayout.padded([2, 4], 4)
    assert layout.lengths.tolist() == [2, 4]
    assert layout.positions.tolist() == [[0, 1, 0, 0], [0, 1, 2, 3]]
    assert keys(layout) == [[[0], [0, 1], [], []], [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]]


def test_a_packed_layout_has_the_rows_of_fixture_b() -> None:
    layout = SequenceLayout.packed([[3, 2], [4]], 6)
    assert layout.lengths.tolist() == [5, 4]
    assert layout.positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 0]]
    assert layout.range_starts.tolist() == [[0, 0, 0, 3, 3, 0], [0] * 6]
    assert sum(len(cell) for row in keys(layout) for cell in row) == 6 + 3 + 10


@given(rows_of_segments)
def test_no_packed_cell_reads_across_a_segment(rows: list[list[int]]) -> None:
    layout = SequenceLayout.packed(rows, max(map(sum, rows)) + 1)
    segment = [[i for i, size in enumerate(row) for _ in range(size)] for row in rows]
    crossing = [
        (b, t, j)
        for b, cells in enumerate(keys(layout))
        for t, cell in enumerate(cells)
        for j in cell
        if segment[b][j] != segment[b][t]
    ]
    assert crossing == []


@given(rows_of_segments)
def test_the_general_constructor_gives_the_packed_layout_back(rows: list[list[int]]) -> None:
    packed = SequenceLayout.packed(rows, max(map(sum, rows)))
    again = SequenceLayout(
        lengths=packed.lengths, range_starts=packed.range_starts, positions=packed.positions
    )
    assert keys(again) == keys(packed)
    assert again.positions.tolist() == packed.positions.tolist()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_padded_rows_are_packed_rows_of_one_segment(lengths: list[int]) -> None:
    padded, packed = (
        SequenceLayout.padded(lengths, 5),
        SequenceLayout.packed([[n] for n in lengths], 5),
    )
    assert keys(padded) == keys(packed)
    assert padded.positions.tolist() == packed.positions.tolist()


def test_a_layout_may_start_at_any_position() -> None:
    lengths: Any = [1]
    nested: Any = [[0]]
    layout = SequenceLayout(lengths=lengths, range_starts=nested, positions=np.array([[7]]))
    assert layout.positions.tolist() == [[7]]


def test_a_layout_keeps_copies_that_nobody_can_write() -> None:
    lengths = np.array([2])
    starts, positions = np.array([[[0, 0]], [[0, 1]]])
    layout = SequenceLayout(lengths=lengths, range_starts=starts, positions=positions)
    lengths[0] = 1
    assert layout.lengths.tolist() == [2]
    with pytest.raises(ValueError, match="read-only"):
        layout.lengths[0] = 1


def test_a_layout_counts_its_bytes_and_holds_no_mask() -> None:
    assert SequenceLayout.full(2, 1024).nbytes == 8 * (2 + 2 * 2 * 1024)


@pytest.mark.parametrize(
    ("layout", "cells", "first_inactive"),
    [
        (SequenceLayout.full(1, 2), [0, 1], None),
        (SequenceLayout.padded([1, 2], 2), [0, 2, 3], 1),
    ],
)
def test_a_layout_names_its_active_cells(
    layout: SequenceLayout, cells: list[int], first_inactive: int | None
) -> None:
    assert layout.active_cells().tolist() == cells
    assert layout.first_inactive_cell() == first_inactive


@pytest.mark.parametrize(
    ("facts", "code", "at"),
    [
        (([0], [[0, 0]], [[0, 1]]), Code.LENGTH_OUT_OF_RANGE, 0),
        (([3], [[0, 0]], [[0, 1]]), Code.LENGTH_OUT_OF_RANGE, 0),
        (([2], [[0, 2]], [[0, 1]]), Code.RANGE_START_AFTER_QUERY, 1),
        (([2], [[0, -1]], [[0, 1]]), Code.RANGE_START_AFTER_QUERY, 1),
        (([1], [[0, 1]], [[0, 0]]), Code.INACTIVE_RANGE_START, 1),
        (([2], [[0, 0]], [[0, -1]]), Code.NEGATIVE_POSITION, 1),
        (([1], [[0, 0]], [[0, 1]]), Code.INACTIVE_POSITION, 1),
        (([2, 2], [[0, 0], [2, 2]], [[-1, -1], [0, 1]]), Code.RANGE_START_AFTER_QUERY, 2),
    ],
)
def test_a_malformed_layout_names_its_first_cell(facts: Any, code: Code, at: int) -> None:
    lengths, starts, positions = facts
    with pytest.raises(IndexRefusal) as caught:
        SequenceLayout(lengths=lengths, range_starts=starts, positions=positions)
    assert (caught.value.code, caught.value.at) == (code, at)


@pytest.mark.parametrize(
    ("rows", "T", "code"),
    [
        ([], 2, Code.EMPTY_BATCH),
        ([[1]], 0, Code.EMPTY_TOKENS),
        ([[1], []], 2, Code.EMPTY_SEGMENT),
        ([[1, 0]], 2, Code.EMPTY_SEGMENT),
        ([[1, 2]], 2, Code.ROW_TOO_LONG),
    ],
)
def test_malformed_segments_are_refused(rows: list[list[int]], T: int, code: Code) -> None:
    with pytest.raises(Refusal) as caught:
        SequenceLayout.packed(rows, T)
    assert caught.value.code == code


def test_a_layout_that_no_memory_holds_ends_at_once() -> None:
    started = time.process_time()
    with pytest.raises(MemoryError):
        SequenceLayout.full(2**29, 2**29)
    assert time.process_time() - started < 1.0


def unpickled(layout: SequenceLayout) -> Any:
    return pickle.loads(pickle.dumps(layout))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, unpickled])
@pytest.mark.parametrize("name", ["lengths", "range_starts", "positions"])
def test_a_copied_layout_cannot_be_written(again: Any, name: str) -> None:
    layout = SequenceLayout.packed([[2, 1], [3]], 4)
    twin = getattr(again(layout), name)
    assert twin.tolist() == getattr(layout, name).tolist()
    with pytest.raises(ValueError, match="WRITEABLE"):
        twin.flags.writeable = True
