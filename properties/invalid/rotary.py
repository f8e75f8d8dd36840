"""Boundaries of rotary tables and of the positions they turn."""

from __future__ import annotations

from logitproof.core.codes import Code
from logitproof.core.rope import RotaryTable

from .arguments import TYPE_AND_RANGE, base_faults, one, one_base, rank, size, size_faults, tensors
from .boundary import Apart, Boundary, Situation, fault, refuses

__all__ = ["BASE_APART", "BOUNDARIES", "OFFSETS"]

BASE_APART = one_base()
BOTH = "2**33 positions of 2**32 pairs"

table = Boundary(
    name="RotaryTable",
    order=(*TYPE_AND_RANGE * 2, *refuses(RotaryTable)),
    build=lambda: Situation(width=4, capacity=3, base=10000.0),
    call=lambda s: RotaryTable(s.width, s.capacity, s.base),
    faults=(
        *size_faults("width"),
        *size_faults("capacity"),
        fault(Code.ZERO_FEATURE_WIDTH, "width of 0", lambda s: s.set(width=0)),
        fault(Code.ODD_FEATURE_WIDTH, "width of 3", lambda s: s.set(width=3), actual=3),
        fault(Code.ZERO_POSITION_CAPACITY, "capacity of 0", lambda s: s.set(capacity=0)),
        *base_faults(Code.INVALID_BASE),
        fault(
            Code.SIZE_OVERFLOW, "2**64 positions", lambda s: s.set(capacity=2**64), required=2**65
        ),
        fault(
            Code.SIZE_OVERFLOW,
            BOTH,
            lambda s: s.set(capacity=2**33, width=2**33),
            required=2**65,
        ),
        fault(
            Code.NON_FINITE_TABLE_VALUE,
            "tiny base of a wide head",
            lambda s: s.set(base=5e-324, width=64),
            position=0,
            value=float("inf"),
        ),
    ),
    apart=(
        one("width", "width of 0", "width of 3", "tiny base of a wide head", BOTH),
        one("capacity", "capacity of 0", "2**64 positions", BOTH),
        BASE_APART,
        Apart("one base", {"tiny base of a wide head"}, set(BASE_APART.names)),
        Apart("the facts name one width", {"2**64 positions"}, {"tiny base of a wide head"}),
    ),
)

angle = Boundary(
    name="RotaryTable angles",
    order=(Code.NON_FINITE_TABLE_VALUE,),
    build=lambda: Situation(capacity=1),
    call=lambda s: RotaryTable(40, s.capacity, 5e-324),
    faults=(
        fault(
            Code.NON_FINITE_TABLE_VALUE,
            "an angle overflows",
            lambda s: s.set(capacity=60),
            pair=19,
            position=13,
        ),
    ),
)

OFFSETS = (
    *size_faults("offset"),
    fault(
        Code.POSITION_OFFSET_OVERFLOW,
        "offset of 2**64",
        lambda s: s.set(offset=2**64),
        limit=2**64 - 1,
    ),
    fault(
        Code.POSITION_RANGE_EXCEEDED,
        "offset of 3",
        lambda s: s.set(offset=3),
        capacity=4,
        end=5,
    ),
)

rotate = Boundary(
    name="RotaryTable.rotate",
    order=(*refuses(RotaryTable.rotate)[:2], *TYPE_AND_RANGE, *refuses(RotaryTable.rotate)[2:]),
    build=lambda: Situation(table=RotaryTable(4, 4, 100.0), x=[1, 2, 4], offset=2),
    ready=tensors("x"),
    call=lambda s: s.table.rotate(*s.operands, s.offset),
    faults=(
        fault(Code.ROTATION_RANK, "vector", rank("x", 1), rank=1),
        fault(Code.ROTATION_WIDTH_MISMATCH, "width 6", size("x", 2, 6), expected=4, actual=6),
        *OFFSETS,
    ),
    apart=(one("offset", "offset of 2**64", "offset of 3"),),
)

BOUNDARIES = (table, angle, rotate)
