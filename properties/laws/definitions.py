"""A law over every operation: its value and its reverse rule by the definition, along any axes."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from logitproof.properties.scalar import Generator
from logitproof.properties.scalar.operations import Array as Cells
from logitproof.properties.scalar.operations import contributions, value

from .components import Components
from .difference import Difference, first_difference
from .drawn import Array, Draw, answered, draws, first
from .law import Law

__all__ = ["LAWS"]

Shape = tuple[int, ...]
Application = tuple[str, tuple[Array, ...], dict[str, Any]]


def _cells(given: Any) -> Cells:
    array = np.asarray(given)
    return Cells(array.shape, array.ravel().tolist())


def _array(cells: Cells) -> Array:
    return np.array(cells.cells, dtype=np.float64).reshape(cells.shape)


def _shape(draw: Draw, g: Generator, most: int) -> Shape:
    """Up to `most` axes, one of them empty now and then."""
    sizes = [draw.below(g, 3) for _ in range(g.below(most + 1))]
    return tuple(0 if g.below(16) == 0 else n for n in sizes)


def _narrower(g: Generator, shape: Shape) -> Shape:
    """A shape that is repeated to this one: some first axes dropped, of the others some 1."""
    return tuple(n if g.below(3) else 1 for n in shape[g.below(len(shape) + 1) :])


def _elementwise(draw: Draw, g: Generator) -> Iterator[Application]:
    shape = _shape(draw, g, 4)
    x, y = draw.values(g, *shape), draw.values(g, *_narrower(g, shape))
    for op in ("add", "mul"):
        yield op, (x, y), {}
        yield op, (y, x), {}
        yield op, (x, x[:1] if shape else x), {}
    yield "broadcast_to", (y,), {"shape": shape}
    yield "reshape", (x,), {"shape": shape[::-1]}
    small = draw.values(g, *shape, regime="uniform")
    yield "exp", (small,), {}
    yield "log", (abs(x) + 2.0**-60,), {}
    yield "silu", (small,), {}


def _axes(draw: Draw, g: Generator) -> Iterator[Application]:
    """Every pair and every axis of up to four."""
    x = draw.values(g, *_shape(draw, g, 4))
    for axis, n in enumerate(x.shape):
        for keep in (False, True):
            yield "sum", (x,), {"axis": axis, "keep": keep}
            if n > 0:
                yield "mean", (x,), {"axis": axis, "keep": keep}
        yield "transpose", (x,), {"axes": (axis, g.below(x.ndim))}


def _products(draw: Draw, g: Generator) -> Iterator[Application]:
    batch = _shape(draw, g, 2)
    rows, inner, columns = (draw.below(g, 4) for _ in range(3))
    inner = 0 if g.below(16) == 0 else inner
    left, right = draw.values(g, *batch, rows, inner), draw.values(g, *batch, inner, columns)
    yield "matmul", (left, right), {}
    yield "matmul", (left, draw.values(g, *_narrower(g, batch), inner, columns)), {}
    yield "matmul", (draw.values(g, *_narrower(g, batch), rows, inner), right), {}


def _looked_up(draw: Draw, g: Generator) -> Iterator[Application]:
    rows, width, shape = draw.below(g, 4), draw.below(g, 3), _shape(draw, g, 3)
    ids = np.array([g.below(rows) for _ in range(int(np.prod(shape)))], dtype=np.int64)
    yield "gather_rows", (draw.values(g, rows, width),), {"indices": ids.reshape(shape)}
    places = np.array([3 * i % 7 for i in range(rows)])
    yield "place_rows", (draw.values(g, rows, width),), {"positions": places, "count": 7}


def _attended(draw: Draw, g: Generator) -> Iterator[Application]:
    """Lanes of their own ranges, and turns by a table of one row per token or per cell."""
    lead, T = _shape(draw, g, 2), draw.below(g, 4)
    count = int(np.prod(lead))
    scores = draw.values(g, *lead, T, T)
    starts = np.array([[g.below(t + 1) for t in range(T)] for _ in range(count)], dtype=np.int64)
    lengths = np.array([g.below(T + 1) for _ in range(count)], dtype=np.int64)
    ranges = {"range_starts": starts.reshape(*lead, T), "lengths": lengths.reshape(lead)}
    yield "causal_softmax", (scores,), {}
    for name, given in ranges.items():
        yield "causal_softmax", (scores,), {name: given}
    yield "causal_softmax", (scores,), ranges
    pairs = draw.below(g, 3)
    x = draw.values(g, *lead, T, 2 * pairs)
    for shape in ((T, pairs), (*lead, T, pairs), (*lead[:1], *(1 for _ in lead[1:]), T, pairs)):
        cosines, sines = (draw.values(g, *shape, regime="uniform") for _ in range(2))
        yield "rotary", (x,), {"cosines": cosines, "sines": sines}


def _definition(implementation: Components, draw: Draw) -> Difference | None:
    ops, g = implementation.parts.ops, draw.generator()
    kinds = (_elementwise, _axes, _products, _looked_up, _attended)
    return first(
        d for kind in kinds for applied in kind(draw, g) for d in _applied(ops, g, draw, *applied)
    )


def _applied(
    ops: Any, g: Generator, draw: Draw, op: str, operands: tuple[Array, ...], given: dict[str, Any]
) -> Iterator[Difference | None]:
    shapes = " and ".join(str(list(x.shape)) for x in operands)
    told = {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in given.items()}
    what = f"{op} of {shapes}, {told}" if told else f"{op} of {shapes}"
    cells = [_cells(x) for x in operands]
    facts: dict[str, Any] = {
        name: _cells(x) if isinstance(x, np.ndarray) else x for name, x in given.items()
    }
    found, vjp = getattr(ops, op)(*operands, **given)
    yield first_difference(what, _array(value(op, *cells, **facts)), found)
    upstream = draw.values(g, *found.shape, regime="zero-rich")
    wanted = contributions(op, _cells(upstream), *cells, **facts)
    for place, (back, part) in enumerate(zip(wanted, vjp(upstream), strict=True)):
        yield first_difference(f"gradient {place} of {what}", _array(back), part)


LAWS = (
    Law(
        id="operations.definition",
        statement="Every operation has, forward and backward, the bits of its definition along any"
        " axis, of any number of axes, repeated or empty ones among them.",
        source="numerics.md sections 2 to 6, 11 and 12, numerics_vjp.md sections 2 and 3",
        needs=("operations",),
        faults=("mean-slope-by-reciprocal", "ranges-of-the-first-lane"),
        cases=draws("uniform", "zero-rich", "wide", first_seed=12_500),
        check=answered(_definition),
    ),
)
