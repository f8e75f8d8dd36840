"""Laws over what a caller hands in: the numbers taken, the integers taken, documents as batches."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .components import Components
from .difference import Difference, first_difference
from .drawn import Draw, draws, equal, first
from .law import Law
from .telling import tells

__all__ = ["LAWS"]

HELD = 1 << 53  # beyond it float64 leaves integers out
SIZES = 1 << 64  # what bounds an integer where nothing else does
IDS = 1 << 32  # what bounds an id where no vocabulary does
SHAPES = (
    ("a tuple", (3, 0, 2)),
    ("a list", [3, 0, 2]),
    ("an array", np.array([3, 0, 2])),
    ("numpy's integers", (np.int8(3), np.int64(0), np.uint64(2))),
)
DEEPEST = 32  # levels of a nest, axes of an array


def _forms(exact: np.ndarray[Any, Any]) -> Iterator[tuple[str, object]]:
    """The same numbers, n / 8 below 4 or integers, as callers have them."""
    yield "nested lists", exact.tolist()
    yield "tuples of lists", tuple(exact.tolist())
    yield "a list of arrays", list(exact)
    yield "lists of numpy scalars", [list(row) for row in exact.astype(np.float32)]
    yield "lists of arrays of no axis", [[np.array(x) for x in row] for row in exact]
    for kind in ("f2", "f4", "f8", ">f8"):
        yield f"an array of {kind}", exact.astype(kind)
    yield "columns in memory", np.asfortranarray(exact)
    yield "every second cell", np.repeat(exact, 2, axis=1)[:, ::2]


def _integer_forms(whole: np.ndarray[Any, Any]) -> Iterator[tuple[str, object]]:
    """Integers of 0 .. 100 as callers have them."""
    yield "nested lists", whole.tolist()
    yield "tuples of lists", tuple(whole.tolist())
    yield "a list of arrays", list(whole)
    yield "lists of numpy scalars", [list(row) for row in whole.astype(np.uint8)]
    for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4"):
        yield f"an array of {kind}", whole.astype(kind)
    yield "columns in memory", np.asfortranarray(whole)
    yield "every second cell", np.repeat(whole, 2, axis=1)[:, ::2]


def _beyond() -> Iterator[tuple[str, object, list[float]]]:
    """Integers that float64 holds though most of their neighbours it does not."""
    for n in (HELD, -HELD, HELD + 2, 3 << 60):
        yield f"{n} in a list", [n], [float(n)]
        yield f"{n} in an array", np.array([n]), [float(n)]
    yield "2**63 unsigned", np.array([1 << 63], dtype=np.uint64), [2.0**63]
    yield "1000 digits of a power of two", [1 << 1000], [2.0**1000]


def _no_numbers() -> Iterator[tuple[str, str, object, int | None]]:
    """What is no real number, or none that float64 holds: code, input, flat position."""
    no = "numeric/not-real"
    for n in (HELD + 1, HELD + 3, -HELD - 1, -HELD - 3, 10**400):
        yield f"{n} in a list" if abs(n) < SIZES else "10**400 in a list", no, [1, 2, n], 2
    for n in (HELD + 1, HELD + 3, -HELD - 1, -HELD - 3):
        yield f"{n} in an array", no, np.array([1, n]), None
    yield "a bool", no, [1.0, True], 1
    yield "text", no, ["1.0"], 0
    yield "nothing", no, [[0.5, None]], 1
    yield "a complex number", no, [1.0, 1j], 1
    yield "an extended float", no, [np.longdouble(1)], 0
    yield "a duration", no, [1.0, 2.0, np.timedelta64(1, "s")], 2
    yield "an array of booleans", no, np.array([True]), None
    yield "an array of complex numbers", no, np.array([1j]), None
    yield "an array of extended floats", no, np.array([1], dtype=np.longdouble), None
    yield "an array of objects", no, np.array([1.0], dtype=object), None
    yield "an array of texts", no, np.array(["1"]), None
    yield "a masked array", no, np.ma.MaskedArray([1.0]), None
    yield "a masked array in a list", no, [np.ma.MaskedArray([1.0])], 0
    yield "an array of objects in a list", no, [np.array([[0], [None]], dtype=object)], 0
    yield from ((what, code, given, None) for what, code, given in _ragged())


def _no_integers() -> Iterator[tuple[str, str, object, int | None]]:
    """What is no integer, though it may equal one: code, input, flat position."""
    no = "index/not-an-integer"
    for what, item in (("a float", 1.0), ("a bool", False), ("text", "1"), ("nothing", None)):
        yield what, no, [0, 1, item], 2
        yield f"{what} first", no, [item, 0], 0
    yield "a duration", no, [0, np.timedelta64(1, "s")], 1
    yield "an array of floats", no, np.array([1.0, 0.0]), 0
    yield "an array of booleans", no, np.array([True]), 0
    yield "an array of durations", no, np.array([0], dtype="m8[s]"), 0
    yield "an array of objects", no, np.array([0], dtype=object), 0
    yield "an array of no floats", no, np.array([], dtype=np.float64), 0
    yield "a masked array", no, np.ma.MaskedArray([0]), 0
    yield "a masked array in a list", no, [np.ma.MaskedArray([0])], 0
    yield "an array of objects in a list", no, [np.array([[0], [None]], dtype=object)], 0
    yield from ((what, code, given, None) for what, code, given in _ragged())


def _out_of_bounds() -> Iterator[tuple[int, str, object]]:
    """Integers that name no row of 101, to those beyond 64 bits, behind one that does."""
    for n in (-1, 101, -(1 << 63), -(1 << 63) - 1, (1 << 63) - 1, 1 << 63, SIZES, -(10**30)):
        yield n, "a list", [0, n]
    yield -(1 << 63), "an array", np.array([0, -(1 << 63)])
    for n in (1 << 63, SIZES - 1):
        yield n, "an array", np.array([0, n], dtype=np.uint64)


def _ragged() -> Iterator[tuple[str, str, object]]:
    """Nests of which no array can be made."""
    ragged = "shape/ragged-ids"
    yield "rows of two lengths", ragged, [[0, 1], [0]]
    yield "a number among rows", ragged, [[0], 1]
    yield "a row among numbers", ragged, [0, [1]]
    endless: list[Any] = []
    endless.append(endless)
    yield "a list in itself", ragged, endless
    for levels in (DEEPEST + 1, 10_000):
        yield f"{levels} levels", ragged, _nest(levels)
    axes = (1,) * (DEEPEST + 1)
    yield f"an array of {len(axes)} axes", ragged, np.zeros(axes, dtype=np.int64)


def _nest(levels: int) -> Any:
    """0 in so many lists."""
    nest: Any = 0
    for _ in range(levels):
        nest = [nest]
    return nest


def _numbers(implementation: Components, draw: Draw) -> Difference | None:
    parts, g = implementation.parts, draw.generator()
    shape = draw.below(g, 3), draw.below(g, 4)
    exact = draw.values(g, *shape)
    zeros = np.zeros(shape)

    def one(what: str, given: object, expected: Any) -> Iterator[Difference | None]:
        yield first_difference(what, expected, parts.constant(given).value)
        if isinstance(given, np.ndarray):
            added = parts.ops.add(given, np.zeros_like(given))[0]
            yield equal(f"type of a sum with {what}", "float64", str(added.dtype))
            yield first_difference(f"{what}, as an operand", np.add(expected, 0.0), added)
            values = np.array(expected, dtype=np.float64)
            yield first_difference(
                f"cosine of {what}", parts.floats.cos(values), parts.floats.cos(given)
            )

    wanted = [
        *((what, given, exact) for what, given in _forms(exact)),
        *((what, given, 8 * exact) for what, given in _integers_of(exact)),
        *_beyond(),
        (f"{DEEPEST} levels", _nest(DEEPEST), np.zeros((1,) * DEEPEST)),
    ]
    return first(d for case in wanted for d in one(*case)) or first(
        tells(what, code, lambda given=given: parts.constant(given), **_at(code, at))  # type: ignore[misc]
        for what, code, given, at in _no_numbers()
    ) or first(
        tells(f"{what}, as an operand", code, lambda given=given: parts.ops.exp(given))  # type: ignore[misc]
        for what, code, given, _ in _no_numbers()
    ) or first(
        tells(f"cosine of {what}", code, lambda given=given: parts.floats.cos(given))  # type: ignore[misc]
        for what, code, given, _ in _no_numbers()
        if isinstance(given, np.ndarray) and given.ndim == 1 and type(given) is np.ndarray
    ) or tells(
        "a matrix of single precision as indices",
        "index/not-an-integer",
        lambda: parts.ops.gather_rows(zeros, indices=zeros.astype(np.float32)),
        at=0,
    )  # fmt: skip


def _integers_of(exact: np.ndarray[Any, Any]) -> Iterator[tuple[str, object]]:
    whole = (8 * exact).astype(np.int64)
    for kind in ("i1", "i2", "i4", "i8"):
        yield f"integers of {kind}", whole.astype(kind)
    yield "lists of integers", whole.tolist()


def _at(code: str, at: int | None) -> dict[str, object]:
    return {} if code.startswith("shape/") else {"at": at}


def _integers(implementation: Components, draw: Draw) -> Difference | None:
    """By a lookup: each row of the table is its own number."""
    parts, g = implementation.parts, draw.generator()
    table, nothing = np.arange(101.0).reshape(101, 1), np.zeros((2, 0))
    whole = np.array([[g.below(101) for _ in range(1 + g.below(4))]] * draw.below(g, 3))

    def taken(what: str, given: object) -> Difference | None:
        found = parts.ops.gather_rows(table, indices=given)[0]
        return first_difference(what, whole[..., None].astype(np.float64), found)

    def drawn(given: object) -> Any:
        return parts.SplitMix64(given)

    return first(taken(what, given) for what, given in _integer_forms(whole)) or first(
        d
        for what, code, given, at in _no_integers()
        for d in (
            tells(
                what,
                code,
                lambda given=given: parts.ops.gather_rows(table, indices=given),  # type: ignore[misc]
                **({} if at is None else {"at": at, "bound": 101}),
            ),
        )
    ) or first(
        tells(
            f"index {n} in {how}",
            "index/gather-index-out-of-bounds",
            lambda given=given: parts.ops.gather_rows(table, indices=given),  # type: ignore[misc]
            at=1, index=n, bound=101,
        )
        for n, how, given in _out_of_bounds()
    ) or first(
        equal(f"a shape as {how}", (3, 0, 2), parts.ops.reshape(nothing, shape=given)[0].shape)
        for how, given in SHAPES
    ) or first(
        equal(f"state of seed {seed!r}", int(seed), drawn(seed).state)
        for seed in (0, SIZES - 1, np.uint64(SIZES - 1), np.int8(7))
    ) or first(
        tells(what, "index/not-an-integer", call, at=0, bound=bound)
        for what, bound, call in (
            ("a seed that is a float", SIZES, lambda: drawn(1.0)),
            ("lengths that are floats", SIZES, lambda: _layout(parts, [1.0])),
            ("masked lengths", SIZES, lambda: _layout(parts, np.ma.MaskedArray([1]))),
            ("merges of floats", IDS, lambda: parts.BpeTokenizer([(97.0, 98)])),
        )
    )  # fmt: skip


def _layout(parts: Any, lengths: object) -> object:
    return parts.SequenceLayout(lengths=lengths, range_starts=[[0]], positions=[[0]])


def _documents(draw: Draw) -> tuple[list[list[int]], int, int]:
    """Documents of 2 to 7 ids, the size of the vocabulary, and a capacity that holds each."""
    g = draw.generator()
    V = 2 + g.below(9)
    documents = [[g.below(V) for _ in range(2 + g.below(6))] for _ in range(1 + g.below(6))]
    longest = max(len(ids) for ids in documents) - 1
    return documents, V, longest + g.below(5)


def _rows(documents: Sequence[Sequence[int]], capacity: int) -> list[list[int]]:
    """Next fit: which documents stand in which row."""
    rows: list[list[int]] = []
    for index, ids in enumerate(documents):
        filled = sum(len(documents[i]) - 1 for i in rows[-1]) if rows else capacity
        rows = [*rows, []] if filled + len(ids) - 1 > capacity else rows
        rows[-1].append(index)
    return rows


def _cells(
    documents: Sequence[Sequence[int]], rows: Sequence[Sequence[int]], T: int
) -> dict[str, Any]:
    """Every field of a batch, cell by cell: one cell per pair of neighbours, then unused ones."""
    pairs = [
        [(i, a, b, t) for i in row
         for t, (a, b) in enumerate(zip(documents[i], documents[i][1:], strict=False))]
        for row in rows
    ]  # fmt: skip
    lengths = [len(row) for row in pairs]
    starts = [[[cell[0] for cell in row].index(i) for i, *_ in row] for row in pairs]
    return {
        "ids": [[a for _, a, _, _ in row] + [-1] * (T - len(row)) for row in pairs],
        "targets": [[b for _, _, b, _ in row] + [-1] * (T - len(row)) for row in pairs],
        "segments": [[i for i, *_ in row] + [-1] * (T - len(row)) for row in pairs],
        "valid": [[True] * n + [False] * (T - n) for n in lengths],
        "lengths": lengths,
        "starts": starts,
        "positions": [[t for *_, t in row] for row in pairs],
        "bytes": 8 * (len(rows) + 2 * len(rows) * T),
    }


def _found(batch: Any) -> dict[str, Any]:
    lengths = batch.layout.lengths.tolist()
    active = [(batch.layout.range_starts[b, :n], batch.layout.positions[b, :n])
              for b, n in enumerate(lengths)]  # fmt: skip
    return {
        **{name: getattr(batch, name).tolist() for name in ("ids", "targets", "segments", "valid")},
        "lengths": lengths,
        "starts": [starts.tolist() for starts, _ in active],
        "positions": [positions.tolist() for _, positions in active],
        "bytes": batch.layout.nbytes,
    }


def _batches(implementation: Components, draw: Draw) -> Difference | None:
    parts = implementation.parts
    documents, V, capacity = _documents(draw)
    longest = max(len(ids) for ids in documents) - 1
    forms = (
        ("padded", parts.pad_documents, [[i] for i in range(len(documents))], longest),
        ("packed", parts.pack_documents, _rows(documents, capacity), capacity),
    )

    def one(name: str, make: Any, rows: Any, T: int) -> Iterator[Difference | None]:
        batch = make(documents, vocabulary_size=V, capacity=capacity)
        wanted, found = _cells(documents, rows, T), _found(batch)
        for field, value in wanted.items():
            yield equal(f"{field} of {documents} {name} to {T}", value, found[field])
        held = (batch.ids, batch.targets, batch.segments, batch.valid)
        yield equal(f"{name}: writable", [False] * 4, [a.flags.writeable for a in held])

    return first(d for form in forms for d in one(*form))


LAWS = (
    Law(
        id="inputs.numbers",
        statement="Numbers of every type and nest that float64 holds are taken exactly; what is no"
        " number, or none that it holds, is refused at its place.",
        source="STYLE.md sections 5 and 7; the Taken: and Refuses: lines of the public names",
        needs=("operations", "functions", "tape"),
        faults=("single-precision-kept", "integers-rounded-down"),
        cases=draws("dyadic", first_seed=80_000),
        check=_numbers,
    ),
    Law(
        id="inputs.integers",
        statement="Integers of every type and nest are taken; what only equals one is refused at"
        " its place, with what bounds it.",
        source="STYLE.md section 7; cases: emb-id-narrowing",
        needs=("operations", "tape", "tokenizer"),
        faults=("whole-floats-are-integers",),
        cases=draws("dyadic", first_seed=81_000),
        check=_integers,
    ),
    Law(
        id="inputs.batches",
        statement="Documents give one cell per pair of neighbours: a row each, or next fit; what is"
        " left over holds -1 and counts nowhere.",
        source="inputs.md sections 7 and 8",
        needs=("batches",),
        faults=("packed-by-first-fit", "targets-not-shifted"),
        cases=draws("dyadic", first_seed=82_000),
        check=_batches,
    ),
)
