"""A law over what a traced pass shows of every operation: what its reverse rule saved."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from logitproof.properties.scalar import EXACT, rounded
from logitproof.properties.scalar.forward import sigmoid, softmax

from .components import Components
from .difference import Difference, first_difference
from .drawn import Array, Draw, answered, draws, equal, first
from .law import Law

__all__ = ["LAWS"]

# Operation, operands, arguments, and per operand what is saved for its rule.
Case = tuple[str, tuple[Array, ...], dict[str, Any], tuple[dict[str, Any], ...]]


def _by_rows(rows: Array) -> Array:
    return np.array([softmax(EXACT, row)[0] for row in rows.tolist()]).reshape(rows.shape)


def _by_prefixes(scores: Array) -> Array:
    out = np.zeros(scores.shape)
    for t, row in enumerate(scores.tolist()):
        out[t, : t + 1] = softmax(EXACT, row[: t + 1])[0]
    return out


def _each(function: Any, x: Array) -> Array:
    return np.array([function(v) for v in x.ravel().tolist()]).reshape(x.shape)


def _cases(draw: Draw) -> Iterator[Case]:
    g = draw.generator()
    rows, n = draw.below(g, 3), draw.below(g, 4)
    x, y, w = draw.values(g, rows, n), draw.values(g, n), draw.values(g, n, 2)
    yield "mul", (x, y), {}, ({"other": y}, {"other": x})
    yield "matmul", (x, w), {}, ({"right": w}, {"left": x})
    yield "exp", (x,), {}, ({"output": _each(rounded.exp, x)},)
    yield "log", (abs(x) + 1.0,), {}, ({"input": abs(x) + 1.0},)
    gate = _each(lambda v: sigmoid(EXACT, v), x)
    yield "silu", (x,), {}, ({"input": x, "sigmoid": gate},)
    for op, divisor in (("sum", 1.0), ("mean", float(n))):
        given = {"axis": 1, "keep": bool(g.below(2))}
        yield op, (x,), given, ({**given, "divisor": divisor},)
    ids = np.array([[g.below(rows), g.below(rows)]])
    looked_up = {"index_shape": (1, 2), "table_shape": (rows, n), "output_shape": (1, 2, n)}
    yield "gather_rows", (x,), {"indices": ids}, ({"indices": ids.reshape(-1), **looked_up},)
    p, targets = _by_rows(x), [g.below(n) for _ in range(rows)]
    yield "log_softmax", (x,), {"axis": 1}, ({"probabilities": p, "axis": 1},)
    chosen = {"probabilities": p, "targets": np.array(targets), "axis": 1, "groups": rows}
    for loss in ("indexed_mean_nll", "indexed_sum_nll"):
        yield loss, (x,), {"axis": 1, "targets": targets}, (chosen,)
    square = draw.values(g, n, n)
    yield "causal_softmax", (square,), {}, ({"probabilities": _by_prefixes(square)},)
    tables = {name: draw.values(g, rows, n) for name in ("cosines", "sines")}
    yield "rotary", (draw.values(g, rows, 2 * n),), tables, (tables,)


def _evidence(implementation: Components, draw: Draw) -> Difference | None:
    parts = implementation.parts

    def one(
        op: str, operands: tuple[Array, ...], given: dict[str, Any], wanted: tuple[Any, ...]
    ) -> Iterator[Difference | None]:
        leaves = [parts.Parameter(f"p{i}", x) for i, x in enumerate(operands)]
        result = parts.RECORDING.apply(getattr(parts.ops, op), *leaves, **given)
        edges = result.backward_with_trace(np.ones(result.shape)).edges
        yield equal(f"edges of {op}", list(range(len(leaves))), [e.operand for e in edges])
        for edge, saved in zip(edges, wanted, strict=True):
            for name, fact in saved.items():
                found = edge.saved.get(name)
                yield _same(f"{name} saved by operand {edge.operand} of {op}", fact, found)

    return first(d for case in _cases(draw) for d in one(*case)) or _of_own_rule(parts, draw)


def _of_own_rule(parts: Any, draw: Draw) -> Difference | None:
    """An operation of the caller's own saves nothing that a trace could show."""
    x = parts.Parameter("x", draw.values(draw.generator(), 2))
    doubled = parts.RECORDING.apply(lambda a: (2.0 * a, lambda upstream: (2.0 * upstream,)), x)
    edges = doubled.backward_with_trace(np.ones(2)).edges
    return equal("evidence of an own rule", [{}], [dict(edge.saved) for edge in edges])


def _same(what: str, expected: Any, actual: Any) -> Difference | None:
    """One fact or array, which nobody can write."""
    if not isinstance(expected, np.ndarray):
        return equal(what, expected, actual)
    if not isinstance(actual, np.ndarray):
        return Difference(what=what, expected="an array", actual=str(actual))
    if expected.dtype != np.float64:
        return equal(what, expected.tolist(), actual.tolist())
    return first_difference(what, expected, actual) or (
        equal(f"{what}, writable", False, actual.flags.writeable)
    )


LAWS = (
    Law(
        id="tape.evidence",
        statement="A traced pass shows of every operation what its reverse rule reads: operands and"
        " outputs, sigmoids, probabilities and tables, divisors, axes and places.",
        source="numerics_vjp.md section 4; tape.md section 5",
        needs=("tape", "operations"),
        faults=("probabilities-shown-as-logarithms", "divisor-shown-as-one"),
        cases=draws("uniform", "zero-rich", first_seed=92_500),
        check=answered(_evidence),
    ),
)
