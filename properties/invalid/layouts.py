"""Boundaries of sequence layouts and document batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from logitproof.core import SequenceLayout, pack_documents, pad_documents
from logitproof.core.batches import BATCH_ORDER
from logitproof.core.codes import Code
from logitproof.core.layout import LAYOUT_ORDER

from .arguments import TYPE_AND_RANGE, kind_fault, one, size_faults
from .boundary import Apart, Boundary, Fault, Plant, Situation, fault

__all__ = ["BOUNDARIES"]

NO_ROWS = {"flat positions", "positions of rank 3"}
SIZES = (Code.EMPTY_BATCH, Code.EMPTY_TOKENS, Code.SIZE_OVERFLOW)


def _changed(name: str, change: Callable[[Any], object]) -> Plant:
    return lambda s: s.set(**{name: change(getattr(s, name))})


def _cell(name: str, row: int, t: int, value: object) -> Plant:
    """Replace one cell of a [B, T] argument."""

    def change(rows: Any) -> object:
        return [
            [value if (r, c) == (row, t) else cell for c, cell in enumerate(cells)]
            for r, cells in enumerate(rows)
        ]

    return _changed(name, change)


def _array_faults(name: str, first: object) -> tuple[Fault, Fault]:
    """An argument nested unequally, and one with a float in it."""
    return (
        fault(Code.RAGGED_IDS, f"ragged {name}", _changed(name, lambda rows: [*rows, [[0]]])),
        fault(
            Code.NOT_AN_INTEGER,
            f"float in {name}",
            _changed(name, lambda rows: [first, *rows[1:]]),
        ),
    )


general = Boundary(
    name="SequenceLayout",
    order=LAYOUT_ORDER,
    build=lambda: Situation(
        lengths=[3, 2],
        range_starts=[[0, 0, 2], [0, 1, 0]],
        positions=[[0, 1, 0], [0, 0, 0]],
    ),
    call=lambda s: SequenceLayout(
        lengths=s.lengths, range_starts=s.range_starts, positions=s.positions
    ),
    faults=(
        *_array_faults("lengths", 3.0),
        *_array_faults("range_starts", [0.0, 0, 0]),
        *_array_faults("positions", [0.0, 0, 0]),
        fault(
            Code.EMPTY_BATCH,
            "no row",
            lambda s: s.set(positions=_empty(0, 3)),
        ),
        fault(Code.EMPTY_TOKENS, "no cell", lambda s: s.set(positions=_empty(2, 0))),
        fault(
            Code.LENGTH_COUNT_MISMATCH,
            "three lengths",
            _changed("lengths", lambda lengths: [*lengths, 1]),
            actual=(3,),
        ),
        fault(
            Code.LENGTH_OUT_OF_RANGE,
            "length 4",
            _changed("lengths", lambda lengths: [4, *lengths[1:]]),
            row=0,
            length=4,
            bound=3,
        ),
        fault(
            Code.LENGTH_OUT_OF_RANGE,
            "length 0",
            _changed("lengths", lambda lengths: [lengths[0], 0, *lengths[2:]]),
            row=1,
            length=0,
            bound=3,
        ),
        fault(
            Code.RANGE_START_COUNT_MISMATCH,
            "starts of three rows",
            _changed("range_starts", lambda rows: [*rows, [0, 0, 0]]),
            expected=(2, 3),
            actual=(3, 3),
        ),
        fault(
            Code.RANGE_START_AFTER_QUERY,
            "start -1",
            _cell("range_starts", 0, 0, -1),
            position=0,
            index=-1,
            bound=0,
        ),
        fault(
            Code.RANGE_START_AFTER_QUERY,
            "start after its query",
            _cell("range_starts", 0, 1, 2),
            position=1,
            index=2,
            bound=1,
        ),
        fault(
            Code.INACTIVE_RANGE_START,
            "start of an inactive cell",
            _cell("range_starts", 1, 2, 1),
            position=5,
            index=1,
        ),
        fault(
            Code.POSITION_COUNT_MISMATCH,
            "flat positions",
            _changed("positions", lambda rows: [cell for cells in rows for cell in cells]),
            expected=(2, 3),
            actual=(6,),
        ),
        fault(
            Code.POSITION_COUNT_MISMATCH,
            "positions of rank 3",
            _changed("positions", lambda rows: [rows]),
            expected=(2, 3),
            actual=(1, 2, 3),
        ),
        fault(
            Code.NEGATIVE_POSITION,
            "position -1",
            _cell("positions", 0, 2, -1),
            position=2,
            index=-1,
        ),
        fault(
            Code.NEGATIVE_POSITION,
            "position 2**63",
            _cell("positions", 1, 0, 2**63),
            position=3,
            index=2**63,
            bound=2**63 - 1,
        ),
        fault(
            Code.INACTIVE_POSITION,
            "position of an inactive cell",
            _cell("positions", 1, 2, 1),
            position=5,
            index=1,
        ),
    ),
    apart=(
        Apart(
            "the positions give rows and cells",
            {"no row", "no cell"},
            {"no row", "no cell", *NO_ROWS, "float in positions", "ragged positions",
             "position -1", "position 2**63", "position of an inactive cell"},
        ),
        Apart(
            "where positions are flat, the starts give rows and cells",
            NO_ROWS,
            {"starts of three rows", *NO_ROWS, "float in positions", "ragged positions"},
        ),
        Apart("an inactive cell of a row that is longer", {"length 0"}, {"position 2**63"}),
    ),
    unreachable={Code.SIZE_OVERFLOW: "no array of Python's memory has so many elements"},
)  # fmt: skip


def _empty(rows: int, cells: int) -> object:
    return np.zeros((rows, cells), dtype=np.int64)


full = Boundary(
    name="SequenceLayout.full",
    order=(*TYPE_AND_RANGE * 2, *SIZES),
    build=lambda: Situation(B=2, T=3),
    call=lambda s: SequenceLayout.full(s.B, s.T),
    faults=(
        *size_faults("B"),
        *size_faults("T"),
        fault(Code.EMPTY_BATCH, "no row", lambda s: s.set(B=0)),
        fault(Code.EMPTY_TOKENS, "no cell", lambda s: s.set(T=0)),
        fault(Code.SIZE_OVERFLOW, "2**64 rows", lambda s: s.set(B=2**64), limit=2**64 - 1),
        fault(
            Code.SIZE_OVERFLOW,
            "2**33 rows of as many cells",
            lambda s: s.set(B=2**33, T=2**33),
            required=2**66,
        ),
    ),
    apart=(
        one("B", "no row", "2**64 rows", "2**33 rows of as many cells"),
        one("T", "no cell", "2**33 rows of as many cells"),
    ),
)

BEYOND = (-2, 4, 9)  # lengths on either side of 1 .. 3

padded = Boundary(
    name="SequenceLayout.padded",
    order=(
        Code.RAGGED_IDS,
        Code.NOT_AN_INTEGER,
        Code.RAGGED_IDS,
        *TYPE_AND_RANGE,
        *SIZES,
        Code.LENGTH_OUT_OF_RANGE,
    ),
    build=lambda: Situation(lengths=[3, 1], T=3),
    call=lambda s: SequenceLayout.padded(s.lengths, s.T),
    faults=(
        *_array_faults("lengths", 3.0),
        fault(Code.RAGGED_IDS, "nested lengths", _changed("lengths", lambda n: [[k] for k in n])),
        *size_faults("T"),
        fault(Code.EMPTY_BATCH, "no row", lambda s: s.set(lengths=[])),
        fault(Code.EMPTY_TOKENS, "no cell", lambda s: s.set(T=0)),
        fault(Code.SIZE_OVERFLOW, "2**64 cells", lambda s: s.set(T=2**64), limit=2**64 - 1),
        fault(
            Code.LENGTH_OUT_OF_RANGE,
            "length 0",
            _changed("lengths", lambda n: [*n[:1], 0]),
            row=1,
            length=0,
        ),
        *[
            fault(
                Code.LENGTH_OUT_OF_RANGE,
                f"length {length}",
                _changed("lengths", lambda n, length=length: [*n[:1], length]),  # type: ignore[misc]
                row=1,
                length=length,
            )
            for length in BEYOND
        ],
    ),
    apart=(
        one("T", "no cell", "2**64 cells"),
        Apart("without rows there is no length", {"no row"},
              {"length 0", *(f"length {length}" for length in BEYOND), "nested lengths",
               "float in lengths", "ragged lengths"}),
        Apart("one nesting", {"nested lengths"}, {"float in lengths"}),
    ),
)  # fmt: skip

packed = Boundary(
    name="SequenceLayout.packed",
    order=(
        Code.FIELD_TYPE,
        *TYPE_AND_RANGE,
        *SIZES,
        Code.RAGGED_IDS,
        Code.NOT_AN_INTEGER,
        Code.EMPTY_SEGMENT,
        Code.ROW_TOO_LONG,
    ),
    build=lambda: Situation(rows=[[1, 2], [2]], T=3),
    call=lambda s: SequenceLayout.packed(s.rows, s.T),
    faults=(
        fault(Code.FIELD_TYPE, "a number of rows", lambda s: s.set(rows=2), actual="int"),
        *size_faults("T"),
        fault(Code.EMPTY_BATCH, "no row", lambda s: s.set(rows=[])),
        fault(Code.EMPTY_TOKENS, "no cell", lambda s: s.set(T=0)),
        fault(Code.SIZE_OVERFLOW, "2**64 cells", lambda s: s.set(T=2**64)),
        fault(Code.RAGGED_IDS, "ragged row", _changed("rows", lambda rows: [[1, [2]], *rows[1:]])),
        fault(
            Code.NOT_AN_INTEGER,
            "bool segment",
            _changed("rows", lambda rows: [[*rows[0], True], *rows[1:]]),
            position=2,
            id=True,
        ),
        fault(
            Code.EMPTY_SEGMENT,
            "segment of 0",
            _changed("rows", lambda rows: [[rows[0][0], 0], *rows[1:]]),
            row=0,
            index=1,
        ),
        fault(
            Code.EMPTY_SEGMENT,
            "segment of -1",
            _changed("rows", lambda rows: [[rows[0][0], -1], *rows[1:]]),
            row=0,
            index=1,
            actual=-1,
        ),
        fault(
            Code.EMPTY_SEGMENT,
            "row without segments",
            _changed("rows", lambda rows: [rows[0], []]),
            row=1,
        ),
        fault(
            Code.ROW_TOO_LONG,
            "row of 4",
            _changed("rows", lambda rows: [*rows, [2, 2]]),
            required=4,
            limit=3,
        ),
    ),
    apart=(
        one("T", "no cell", "2**64 cells"),
        Apart("without rows there is no segment", {"no row"},
              {"ragged row", "bool segment", "segment of 0", "segment of -1",
               "row without segments", "row of 4"}),
    ),
)  # fmt: skip

DOCUMENT_FAULTS = (
    *size_faults("V"),
    *size_faults("capacity"),
    kind_fault("documents", "01", what="documents"),
    fault(Code.EMPTY_BATCH, "no document", lambda s: s.set(documents=[])),
    fault(Code.EMPTY_TOKENS, "no cell", lambda s: s.set(capacity=0)),
    fault(Code.RAGGED_IDS, "ragged document", lambda s: s.documents.__setitem__(0, [0, [1]])),
    fault(
        Code.NOT_AN_INTEGER,
        "float in document",
        lambda s: s.documents[0].__setitem__(1, 3.0),
        id=3.0,
        what="documents[0]",
    ),
    fault(
        Code.DOCUMENT_RANGE_TOO_SHORT,
        "a document of rows",
        lambda s: s.documents.__setitem__(0, [[0, 3, 1]]),
        what="documents[0]",
        actual="rank 2",
    ),
    fault(
        Code.DOCUMENT_RANGE_TOO_SHORT,
        "one id",
        lambda s: s.documents[0].__delitem__(slice(1, None)),
        actual=1,
    ),
    fault(
        Code.ROW_TOO_LONG,
        "four pairs",
        lambda s: s.documents[0].extend([2, 2]),
        required=4,
        limit=3,
    ),
    fault(
        Code.TOKEN_ID_OUT_OF_BOUNDS,
        "id 5",
        lambda s: s.documents[0].__setitem__(2, 5),
        position=2,
        id=5,
        vocabulary_size=5,
    ),
    fault(
        Code.TOKEN_ID_OUT_OF_BOUNDS,
        "id 9",
        lambda s: s.documents[0].__setitem__(2, 9),
        position=2,
        id=9,
    ),
    fault(
        Code.TOKEN_ID_OUT_OF_BOUNDS,
        "id -1 in the second",
        lambda s: s.documents[1].__setitem__(0, -1),
        position=0,
        id=-1,
    ),
)
IN_DOCUMENTS = {f.name for f in DOCUMENT_FAULTS[7:]}

padding, packing = (
    Boundary(
        name=make.__name__,
        order=(
            *TYPE_AND_RANGE * 2,
            *BATCH_ORDER[BATCH_ORDER.index(Code.EMPTY_BATCH) - 1 :][:3],
            Code.RAGGED_IDS,
            *BATCH_ORDER[BATCH_ORDER.index(Code.NOT_AN_INTEGER) :],
        ),
        build=lambda: Situation(documents=[[0, 3, 1], [0, 4, 2, 1]], V=5, capacity=3),
        call=lambda s, make=make: make(  # type: ignore[misc]
            s.documents, vocabulary_size=s.V, capacity=s.capacity
        ),
        faults=DOCUMENT_FAULTS,
        apart=(
            one("V"),
            one("capacity", "no cell"),
            Apart("without documents there is no id", {"no document"}, IN_DOCUMENTS),
            Apart("one id has no second", {"one id"}, {"four pairs", "float in document"}),
            Apart("one row has no second id", {"a document of rows"}, {"float in document"}),
        ),
    )
    for make in (pad_documents, pack_documents)
)

BOUNDARIES = (general, full, padded, packed, padding, packing)
