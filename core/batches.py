"""Documents as padded or packed batches of next-token pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import as_integers, check_bounds, sealed
from .errors import CapacityRefusal, Code, ShapeRefusal, check_kind, check_not_zero
from .floats import Ids
from .initial import check_size
from .layout import SequenceLayout

__all__ = ["BATCH_ORDER", "NO_SEGMENT", "PAD", "TextBatch", "pack_documents", "pad_documents"]

PAD = -1  # an input or target cell without a token; no vocabulary id
NO_SEGMENT = -1

# The checks of a batch in order (inputs.md section 7); per document the last four.
BATCH_ORDER = (
    Code.FIELD_TYPE,
    Code.EMPTY_BATCH,
    Code.EMPTY_TOKENS,
    Code.NOT_AN_INTEGER,
    Code.DOCUMENT_RANGE_TOO_SHORT,
    Code.ROW_TOO_LONG,
    Code.TOKEN_ID_OUT_OF_BOUNDS,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextBatch:
    """Ids, targets, segments [B, T] with -1 in unused cells, their layout, and what counts.

    `valid` says which targets enter the loss; the layout knows nothing of it.

    Source: inputs.md sections 7 and 8
    """

    ids: Ids
    targets: Ids
    segments: Ids
    valid: np.ndarray[Any, np.dtype[np.bool_]]
    layout: SequenceLayout


def pad_documents(documents: Sequence[object], *, vocabulary_size: int, capacity: int) -> TextBatch:
    """One row per document, right-padded to the longest; L ids give L - 1 pairs.

    Refuses: `BATCH_ORDER`; nothing is truncated
    Source:  inputs.md section 7
    """
    ranges = _checked(documents, vocabulary_size, capacity)
    rows = [[index] for index in range(len(ranges))]
    return _batch(ranges, rows, T=max(len(ids) - 1 for ids in ranges))


def pack_documents(
    documents: Sequence[object], *, vocabulary_size: int, capacity: int
) -> TextBatch:
    """Documents in order, next fit: a row takes the next one while it fits, then is closed.

    No row is visited again, nothing is sorted or split; rows are right-padded to `capacity`.

    Refuses: `BATCH_ORDER`
    Source:  inputs.md section 8
    """
    ranges = _checked(documents, vocabulary_size, capacity)
    rows: list[list[int]] = []
    free = 0
    for index, ids in enumerate(ranges):
        if not rows or len(ids) - 1 > free:
            rows.append([])
            free = capacity
        rows[-1].append(index)
        free -= len(ids) - 1
    return _batch(ranges, rows, T=capacity)


def _checked(documents: Sequence[object], vocabulary_size: int, capacity: int) -> list[Ids]:
    """Every document's ids. Refuses: `BATCH_ORDER`"""
    V = check_size(vocabulary_size, what="vocabulary size")
    cells = check_size(capacity, what="row capacity")
    check_kind(documents, (list, tuple), "documents")
    check_not_zero(Code.EMPTY_BATCH, "batch", len(documents))
    check_not_zero(Code.EMPTY_TOKENS, "batch", cells)
    ranges = []
    for index, document in enumerate(documents):
        what = f"documents[{index}]"
        given = as_integers(document, what=what, bound=V)
        if given.ndim != 1 or len(given) < 2:
            raise ShapeRefusal(
                code=Code.DOCUMENT_RANGE_TOO_SHORT,
                what=what,
                expected="2 ids or more",
                actual=given.size if given.ndim == 1 else f"rank {given.ndim}",
            )
        if len(given) - 1 > cells:
            raise CapacityRefusal(
                code=Code.ROW_TOO_LONG, what=what, required=len(given) - 1, limit=cells
            )
        ranges.append(check_bounds(given, bound=V, code=Code.TOKEN_ID_OUT_OF_BOUNDS, what=what))
    return ranges


def _batch(ranges: Sequence[Ids], rows: Sequence[Sequence[int]], *, T: int) -> TextBatch:
    ids, targets = np.full((2, len(rows), T), PAD, dtype=np.int64)
    segments = np.full((len(rows), T), NO_SEGMENT, dtype=np.int64)
    for row, members in enumerate(rows):
        first = 0
        for index in members:
            cells = slice(first, first + len(ranges[index]) - 1)
            ids[row, cells], targets[row, cells] = ranges[index][:-1], ranges[index][1:]
            segments[row, cells] = index
            first = cells.stop
    layout = SequenceLayout.packed([[len(ranges[i]) - 1 for i in m] for m in rows], T)
    return TextBatch(
        ids=sealed(ids),
        targets=sealed(targets),
        segments=sealed(segments),
        valid=sealed(segments != NO_SEGMENT),
        layout=layout,
    )
