"""Boundaries of the operations that look rows up, or place them."""

from __future__ import annotations

from logitproof.core import ops
from logitproof.core.codes import Code

from .boundary import fault
from .operations import argument, boundary_of, operand, shape_faults

__all__ = ["BOUNDARIES"]

gather = boundary_of(
    ops.gather_rows,
    [(4, 2)],
    (
        fault(Code.GATHER_TABLE_RANK, "table of rank 1", operand(0, lambda a: a[:, 0]), rank=1),
        fault(Code.RAGGED_IDS, "ragged indices", argument("indices", lambda i: [*i, [0]])),
        fault(
            Code.NOT_AN_INTEGER,
            "float index",
            argument("indices", lambda i: [1.0, *i[1:]]),
            position=0,
            id=1.0,
        ),
        *shape_faults()[:3],
        fault(
            Code.SIZE_OVERFLOW,
            "2**64 indices",
            argument("shape", lambda _: [2**64]),
            required=2**64,
        ),
        fault(
            Code.GATHER_INDEX_COUNT_MISMATCH,
            "one index less",
            argument("indices", lambda i: i[:3]),
            expected=4,
            actual=3,
        ),
        fault(
            Code.GATHER_INDEX_OUT_OF_BOUNDS,
            "index 4",
            argument("indices", lambda i: [i[0], 4, *i[2:]]),
            position=1,
            index=4,
            rows=4,
        ),
        fault(
            Code.GATHER_INDEX_OUT_OF_BOUNDS,
            "index 9",
            argument("indices", lambda i: [i[0], 9, *i[2:]]),
            position=1,
            index=9,
        ),
        fault(
            Code.GATHER_INDEX_OUT_OF_BOUNDS,
            "index -1",
            argument("indices", lambda i: [*i[:2], -1, *i[3:]]),
            position=2,
            index=-1,
            rows=4,
        ),
    ),
    arguments=lambda: {"indices": [0, 1, 2, 3], "shape": [2, 2]},
)

place = boundary_of(
    ops.place_rows,
    [(2, 3)],
    (
        fault(Code.GATHER_TABLE_RANK, "rows of rank 1", operand(0, lambda a: a[:, 0]), rank=1),
        fault(Code.FIELD_RANGE, "negative count", argument("count", lambda _: -1)),
        fault(Code.RAGGED_IDS, "ragged positions", argument("positions", lambda p: [*p, [0]])),
        fault(
            Code.NOT_AN_INTEGER,
            "float position",
            argument("positions", lambda p: [0.0, *p[1:]]),
            id=0.0,
        ),
        fault(
            Code.GATHER_INDEX_COUNT_MISMATCH,
            "one position more",
            argument("positions", lambda p: [*p, 3]),
            expected=2,
            actual=3,
        ),
        fault(
            Code.GATHER_INDEX_OUT_OF_BOUNDS,
            "position 4",
            argument("positions", lambda p: [4, *p[1:]]),
            position=0,
            index=4,
            rows=4,
        ),
        fault(
            Code.GATHER_INDEX_OUT_OF_BOUNDS,
            "position 9",
            argument("positions", lambda p: [9, *p[1:]]),
            position=0,
            index=9,
        ),
        fault(
            Code.REPEATED_ROW_POSITION,
            "position twice",
            argument("positions", lambda _: [1, 1]),
            position=1,
            index=1,
        ),
    ),
    arguments=lambda: {"positions": [0, 2], "count": 4},
)

BOUNDARIES = (gather, place)
