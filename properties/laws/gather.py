"""Laws over the lookup, its scatter-add, and the rows that padding places."""

import math

import numpy as np

from .components import Components
from .difference import Difference, first_difference
from .drawn import Array, Draw, draws, first
from .law import Law

__all__ = ["LAWS"]

MANY_ROWS = 70_000  # beyond any 16-bit id


def _scattered(upstream: Array, ids: list[int], rows: int) -> Array:
    """Ascending flat positions, from +0.0; one addition each."""
    table = [[0.0] * upstream.shape[1] for _ in range(rows)]
    for p, i in enumerate(ids):
        table[i] = [sum_ + float(u) for sum_, u in zip(table[i], upstream[p], strict=True)]
    return np.array(table).reshape(rows, upstream.shape[1])


def _scatter(implementation: Components, draw: Draw) -> Difference | None:
    g = draw.generator()
    rows, width, n = draw.below(g, 6), draw.below(g, 3), g.below(4 + 2 * draw.size)
    ids = [g.below(rows) for _ in range(n)]
    table, upstream = draw.values(g, rows, width), draw.values(g, n, width)
    value, vjp = implementation.parts.ops.gather_rows(table, indices=np.array(ids, dtype=np.int64))
    return first_difference("rows", table[ids], value) or first_difference(
        f"scatter of ids {ids}", _scattered(upstream, ids, rows), vjp(upstream)[0]
    )


def _duplicates(implementation: Components, draw: Draw) -> Difference | None:
    """k times one id against k times its row, exactly: dyadic."""
    g = draw.generator()
    rows, k = 1 + draw.below(g, 4), draw.below(g, 9)
    row = draw.values(g, 1, 2)
    at = g.below(rows)
    _, vjp = implementation.parts.ops.gather_rows(np.zeros((rows, 2)), indices=[at] * k)
    expected = np.zeros((rows, 2))
    expected[at] = float(k) * row[0] + 0.0
    return first_difference(f"id {at}, {k} times", expected, vjp(np.repeat(row, k, axis=0))[0])


def _wide(implementation: Components, draw: Draw) -> Difference | None:
    g = draw.generator()
    table = np.arange(MANY_ROWS, dtype=np.float64)[:, None]
    ids = [g.below(MANY_ROWS) for _ in range(8)] + [MANY_ROWS - 1]
    value, vjp = implementation.parts.ops.gather_rows(table, indices=ids)
    used = np.flatnonzero(vjp(np.ones((len(ids), 1)))[0][:, 0])
    return first_difference("rows", table[ids], value) or first_difference(
        "rows with a gradient", np.array(sorted({*ids}), dtype=float), used.astype(np.float64)
    )


def _placed(implementation: Components, draw: Draw) -> Difference | None:
    """Placed rows, looked up again where they were placed, are the rows; the gradients likewise."""
    g, ops = draw.generator(), implementation.parts.ops
    n, extra, width = draw.below(g, 5), g.below(3), draw.below(g, 3)
    order = list(range(n + extra))
    for i in range(len(order) - 1, 0, -1):
        j = g.below(i + 1)
        order[i], order[j] = order[j], order[i]
    places, rest = order[:n], order[n:]
    rows, upstream = draw.values(g, n, width), draw.values(g, n + extra, width)
    placed, place = ops.place_rows(rows, positions=places, count=n + extra)
    again, gather = ops.gather_rows(placed, indices=places)
    composed, _ = ops.gather_rows(upstream, indices=places)
    back = gather(rows)[0]
    return first(
        first_difference(what, expected, actual)
        for what, expected, actual in (
            (f"rows placed at {places}", rows, again),
            ("cells without a row", np.zeros((extra, width)), placed[rest]),
            (f"gradient of rows placed at {places}", composed, place(upstream)[0]),
            ("what the lookup gives back", ops.place_rows(rows + 0.0, positions=places,
                                                          count=n + extra)[0], back),
        )
    )  # fmt: skip


def _shaped(implementation: Components, draw: Draw) -> Difference | None:
    """Flat ids with a shape and nested ids name the same rows; axes of one and of none are axes."""
    g, parts = draw.generator(), implementation.parts
    a, b = draw.below(g, 3), draw.below(g, 4)
    layer = parts.Embedding.from_parameter(parts.Parameter("table", draw.values(g, 5, 2)))

    def one(*shape: int) -> Difference | None:
        nested = np.array([g.below(5) for _ in range(math.prod(shape))], dtype=np.int64)
        nested = nested.reshape(shape)
        flat = layer.forward(nested.reshape(-1).tolist(), list(shape)).value
        return first_difference(f"rows in shape {list(shape)}", layer.forward(nested).value, flat)

    return first(one(*shape) for shape in ((a, b), (1, a), (a, 1), (1,), (a, 0), (0, b), ()))


LAWS = (
    Law(
        id="gather.scatter-order",
        statement="A lookup's gradient adds every occurrence to its row in the order of the ids,"
        " and leaves +0 in the rows that nobody names.",
        source="numerics_vjp.md section 3",
        needs=("operation-values",),
        faults=("scatter-overwrites-third-repeat", "scatter-from-the-end"),
        cases=draws("uniform", "wide", "zero-rich", first_seed=12_000),
        check=_scatter,
    ),
    Law(
        id="gather.duplicates",
        statement="An id named k times has k times the gradient, exactly.",
        source="cases: emb-repeated-ids",
        needs=("operation-values",),
        faults=("scatter-overwrites-third-repeat", "scatter-overwrites"),
        cases=draws("dyadic", first_seed=13_000),
        check=_duplicates,
    ),
    Law(
        id="gather.wide-ids",
        statement="Ids beyond 16 bits name their own rows, forward and backward.",
        source="cases: emb-id-narrowing",
        needs=("operation-values",),
        faults=("ids-narrowed",),
        cases=draws("dyadic", first_seed=14_000),
        check=_wide,
    ),
    Law(
        id="fused.placed-rows",
        statement="Placing rows and looking them up again gives them back, in any order of places;"
        " the gradient is the lookup's.",
        source="inputs.md section 7",
        needs=("operation-values",),
        faults=("places-sorted", "placed-gradient-of-first-rows"),
        cases=draws("uniform", "zero-rich", first_seed=15_000),
        check=_placed,
    ),
    Law(
        id="gather.shapes",
        statement="Flat ids with a shape give the rows of the same ids nested, also where an axis"
        " has one id or none.",
        source="layers.md section 1",
        needs=("layers",),
        faults=("flat-ids-in-column-order",),
        cases=draws("uniform", first_seed=15_500),
        check=_shaped,
    ),
)
