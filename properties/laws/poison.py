"""Laws over what nobody reads: whatever finite value stands there, no bit of the rest changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from logitproof.properties.truth import logits_of

from .cases import PAD, Case, mixed_cases, packed_cases
from .components import Components
from .difference import Difference, doubles, first_difference
from .drawn import answered, first
from .law import Law
from .levels import LAYOUTS, claimed
from .precision import answered as as_doubles
from .precision import dtype_of, format_of
from .protocol import DecoderUnderTest

__all__ = ["LAWS"]

Array: TypeAlias = NDArray[np.float64]

TABLE = "token_embedding.weight"
HUGE, TINY = 2.0**500, 2.0**-500  # squares of both stay finite, and neither is zero
HUGE_SINGLE = 2.0**50  # its squares stay in float32


def _documents(case: Case) -> Iterator[tuple[int, slice]]:
    """Row and cells of each document."""
    for b, row in enumerate(case.ids):
        sizes = (len(row),) if case.segments is None else case.segments[b]
        start = 0
        for size in sizes:
            yield b, slice(start, start + size)
            start += size


def _poisoned(table: Any, rows: Collection[int], huge: float = HUGE) -> list[list[float]]:
    """The table with huge and tiny numbers of both signs in these rows."""
    values = (huge, -TINY, -huge, TINY)
    return [
        [values[(v + d) % 4] for d in range(len(row))] if v in rows else list(row)
        for v, row in enumerate(table)
    ]


def _table_rows(implementation: DecoderUnderTest, case: Case) -> Difference | None:
    """One document's prefixes in turn, with every row poisoned that the prefix does not name."""
    huge = HUGE if dtype_of(implementation) == "float64" else HUGE_SINGLE
    bounds = cache(lambda: _bounds(implementation, case))  # only where a bit differs
    implementation.load(case.config, case.weights)
    plain = as_doubles(implementation, implementation.logits(case.ids, case.layout))

    def one(b: int, cells: slice, length: int) -> Iterator[Difference | None]:
        seen = slice(cells.start, cells.start + length)
        named = sorted({*case.ids[b][seen]})
        rows = {*range(case.config.vocabulary_size)} - {*named}
        weights = {**case.weights, TABLE: _poisoned(case.weights[TABLE], rows, huge)}
        implementation.load(case.config, weights)
        logits = as_doubles(implementation, implementation.logits(case.ids, case.layout))
        what = f"logits of row {b}, cells {seen.start} to {seen.stop - 1}, by tokens {named}"
        pair = plain[b, seen][:, named], logits[b, seen][:, named]
        found = first_difference(what, *pair)
        if found is not None and not claimed(implementation, "row-bits"):
            found = _further(what, *pair, 2.0 * bounds()[b, seen][:, named])
        yield found

    return first(
        d
        for b, cells in _documents(case)
        for length in range(1, cells.stop - cells.start + 1)
        for d in one(b, cells, length)
    )


def _bounds(implementation: DecoderUnderTest, case: Case) -> Array:
    """How far rounding may move each logit [B, T, V], whatever stands where nobody reads."""
    format, weights = format_of(implementation), case.weights
    if dtype_of(implementation) == "float32":
        weights = {name: np.float32(value).tolist() for name, value in weights.items()}
    truth = logits_of(case.config, weights, case.ids, case.layout, format)
    return truth.roundings.bounds(format).reshape(truth.shape)


def _further(what: str, plain: Array, other: Array, apart: Array) -> Difference | None:
    """Where two answers lie further apart than both may lie from the truth."""
    off = ~(np.abs(other - plain) <= apart * (1.0 + 2.0**-50))  # the difference is rounded
    if not off.any():
        return None
    at = tuple(int(i) for i in np.argwhere(off)[0])
    return Difference(
        what=what,
        at=at,
        expected=f"{float(plain[at])!r} within {float(apart[at]):.2g}",
        actual=repr(float(other[at])),
    )


def _cells(implementation: Components, case: Case) -> Difference | None:
    """One document in turn, with all later, foreign and padded vectors of its batch poisoned."""
    implementation.load(case.config, case.weights)
    table = np.array(case.weights[TABLE])
    ids = np.array(case.ids)
    vectors = np.where(ids[..., None] == PAD, 0.0, table[ids])
    plain = doubles(implementation.hidden(vectors, case.layout))

    def one(b: int, cells: slice, poison: float) -> Iterator[Difference | None]:
        half = slice(cells.start, cells.start + (cells.stop - cells.start + 1) // 2)
        changed = np.full_like(vectors, poison)
        changed[..., ::2] *= -0.5
        changed[b, half] = vectors[b, half]
        hidden = doubles(implementation.hidden(changed, case.layout))
        what = f"row {b}, cells {half.start} to {half.stop - 1}, beside vectors of {poison:g}"
        yield first_difference(what, plain[b, half], hidden[b, half])

    return first(
        d for b, cells in _documents(case) for poison in (HUGE, TINY) for d in one(b, cells, poison)
    )


LAWS = (
    Law(
        id="poison.table-rows",
        statement="Table rows that a document does not name, or names later, change no bit of its"
        " logits for the tokens it names, however large or small they are; where a row's bits hang"
        " on what stands beside it, nothing that rounding does not explain.",
        source="numerics.md section 12, inputs.md sections 5 and 8; cases: mask-full-row",
        levels=("forward", *LAYOUTS),
        faults=("packed-segments-leak", "mask-off-by-one", "table-rows-share-one-scale"),
        cases=mixed_cases,
        check=answered(_table_rows),
    ),
    Law(
        id="poison.cells",
        statement="Vectors of later, foreign and padded cells change no bit of a document's hidden"
        " states, however large or small they are.",
        source="numerics.md section 12, inputs.md sections 7 to 9; cases: mask-full-row",
        needs=("prepared",),
        faults=("packed-segments-leak", "mask-off-by-one", "values-share-one-scale"),
        cases=packed_cases,
        check=answered(_cells),
    ),
)
