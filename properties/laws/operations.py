"""Laws over single operations: reverse rules are adjoints, and memory order decides nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .components import Components
from .difference import Difference, first_difference
from .drawn import Array, Draw, draws, equal, first
from .law import Law

__all__ = ["LAWS"]

Call = Callable[..., Any]


def _linear(ops: Any, draw: Draw) -> Iterator[tuple[str, Call, int, Array]]:
    """Operations linear in one operand: name, call, place among its gradients, operand."""
    g = draw.generator()
    a, b, c = (draw.below(g, 4) for _ in range(3))
    x = draw.values(g, a, b, c)
    yield "sum", lambda x: ops.sum(x, axis=1), 0, x
    yield "sum kept", lambda x: ops.sum(x, axis=0, keep=True), 0, x
    yield "mean of four", lambda x: ops.mean(x, axis=0), 0, draw.values(g, 4, b)
    yield "reshape", lambda x: ops.reshape(x, shape=(c, a * b)), 0, x
    yield "transpose", lambda x: ops.transpose(x, axes=(0, 2)), 0, x
    yield "broadcast", lambda x: ops.broadcast_to(x, shape=(2, a, 3, c)), 0, draw.values(g, a, 1, c)
    ids = [[g.below(a) for _ in range(b)] for _ in range(c)]
    yield "gather", lambda x: ops.gather_rows(x, indices=ids), 0, draw.values(g, a, 2)
    right = draw.values(g, a, c, 2)
    yield "matmul by the left", lambda x: ops.matmul(x, right), 0, x
    yield "matmul by the right", lambda y: ops.matmul(x, y), 1, draw.values(g, c, 3)
    flat, deep = draw.values(g, b, c), draw.values(g, 3, a, c, 2)
    yield "matmul of matrices by one", lambda x: ops.matmul(x, right), 0, flat
    yield "matmul of more matrices by rows", lambda y: ops.matmul(x, y), 1, deep
    yield "matmul of repeated rows", lambda x: ops.matmul(x, deep), 0, draw.values(g, 1, b, c)
    factor, zeros = draw.values(g, b, 1), np.zeros((a, b, c))
    yield "mul by the left", lambda x: ops.mul(x, factor), 0, x
    yield "mul by the right", lambda y: ops.mul(x, y), 1, draw.values(g, b, 1)
    yield "mul by one cell", lambda y: ops.mul(x, y), 1, draw.values(g)
    yield "add by the left", lambda x: ops.add(x, zeros), 0, draw.values(g, a, 1, c)
    yield "add by the right", lambda y: ops.add(zeros, y), 1, draw.values(g, 1, b, 1)
    empty = np.zeros((a, 0, c))
    yield "add over no cell", lambda x: ops.add(x, empty), 0, draw.values(g, a, 1, c)
    yield "mul over no cell", lambda y: ops.mul(empty, y), 1, draw.values(g, 1, 1, c)


def _inner(left: Array, right: Array) -> float:
    return float(sum((a * b for a, b in zip(left.flat, right.flat, strict=True)), 0.0))


def _adjoint(implementation: Components, draw: Draw) -> Difference | None:
    g = draw.generator()

    def one(name: str, op: Call, place: int, x: Array) -> Difference | None:
        value, vjp = op(x)
        upstream = draw.values(g, *value.shape)
        back = vjp(upstream)[place]
        return equal(f"{name}, shape of the gradient", x.shape, back.shape) or first_difference(
            f"{name}: <u, A x> against <A* u, x>", _inner(upstream, value), _inner(back, x)
        )

    return first(one(*applied) for applied in _linear(implementation.parts.ops, draw))


def _orders(x: Array) -> Iterator[tuple[str, Array]]:
    """The same values in other memory orders."""
    yield "column order", np.asfortranarray(x)
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]))
    wide[..., ::2] = x
    yield "every second cell", wide[..., ::2]
    yield "backward strides", np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    yield "transposed strides", np.ascontiguousarray(x.swapaxes(0, -1)).swapaxes(0, -1)


def _any_order(ops: Any, draw: Draw) -> Iterator[tuple[str, Call, tuple[Array, ...]]]:
    g = draw.generator()
    a, b, c = (7 + draw.below(g, 12) for _ in range(3))
    x, y = draw.values(g, a, b), draw.values(g, a, b)
    yield "add", ops.add, (x, y)
    yield "mul", ops.mul, (x, y)
    yield "sum of columns", lambda x: ops.sum(x, axis=0), (x,)
    yield "sum of rows", lambda x: ops.sum(x, axis=1), (x,)
    yield "mean", lambda x: ops.mean(x, axis=1), (x,)
    yield "matmul", ops.matmul, (x, draw.values(g, b, c))
    yield "matmul of one column", ops.matmul, (x, draw.values(g, b, 1))
    yield "exp", ops.exp, (draw.values(g, a, b, regime="uniform"),)
    yield "silu", ops.silu, (x,)
    yield "log softmax", lambda x: ops.log_softmax(x, axis=0), (x,)
    yield "causal softmax", ops.causal_softmax, (draw.values(g, b, b, regime="uniform"),)
    targets = [g.below(b) for _ in range(a)]
    yield "loss", lambda x: ops.indexed_mean_nll(x, axis=1, targets=targets), (x,)
    yield "gather", lambda x: ops.gather_rows(x, indices=[0, 1, 0]), (x,)


def _memory(implementation: Components, draw: Draw) -> Difference | None:
    def one(name: str, op: Call, operands: tuple[Array, ...]) -> Difference | None:
        value, vjp = op(*operands)
        upstream = draw.values(draw.generator(), *value.shape)
        gradients = vjp(upstream)
        forms = zip(*(_orders(x) for x in operands), strict=True)
        for form in forms:
            order = form[0][0]
            again, vjp_again = op(*(x for _, x in form))
            found = first_difference(f"{name} in {order}", value, again) or first(
                first_difference(f"gradient {i} of {name} in {order}", left, right)
                for i, (left, right) in enumerate(zip(gradients, vjp_again(upstream), strict=True))
            )
            if found is not None:
                return found
        return None

    return first(one(*applied) for applied in _any_order(implementation.parts.ops, draw))


def _backwards(left: Array, right: Array) -> Array:
    return np.asarray(_in_steps(left[:, ::-1], right[::-1]))


def _kept_longer(left: Array, right: Array) -> Array:
    """A product is not rounded before it is added, nor is a sum rounded to the end."""
    longer = _in_steps(left.astype(np.longdouble), right.astype(np.longdouble))
    return np.asarray(longer, dtype=np.float64)


def _in_steps(left: Any, right: Any) -> Any:
    """sum over k ascending, from +0.0, of left[..., k] * right[k, ...]."""
    out = np.zeros((len(left), right.shape[1]), dtype=left.dtype)
    for column, row in zip(left.T, right, strict=True):
        out += column[:, None] * row
    return out


MACHINES = {"adds backwards": _backwards, "rounds at the end": _kept_longer}


def _elsewhere(implementation: Components, draw: Draw) -> Difference | None:
    """Products and sums of full-length mantissas, of one matrix, of several and row by row."""
    floats, g = implementation.parts.floats, draw.generator()
    N, R, K, C = 2 + g.below(2), draw.below(g, 6), 8 + draw.below(g, 40), 1 + draw.below(g, 6)
    left, right = (draw.values(g, N, *shape, regime="uniform") for shape in ((R, K), (K, C)))
    wanted = np.stack([_in_steps(*pair) for pair in zip(left, right, strict=True)])
    columns = _in_steps(np.ones((1, K)), right[0])[0]

    def on(machine: str) -> Iterator[Difference | None]:
        with implementation.elsewhere(MACHINES[machine]):
            product, products = floats.contract(left[0], right[0]), floats.contract(left, right)
            rows = floats.row_products(left[:, 0], right)
            sums = floats.total(right[0], axis=0)
        yield first_difference(f"a product where numpy {machine}", wanted[0], product)
        yield first_difference(f"products where numpy {machine}", wanted, products)
        yield first_difference(f"rows by matrices where numpy {machine}", wanted[:, 0], rows)
        yield first_difference(f"sums of columns where numpy {machine}", columns, sums)

    return first(difference for machine in MACHINES for difference in on(machine))


LAWS = (
    Law(
        id="operations.adjoint",
        statement="The reverse rule of every linear operation is its adjoint: <u, A x> = <A* u, x>,"
        " exactly, on small dyadic values, with broadcasting.",
        source="numerics_vjp.md sections 2 and 3",
        needs=("operation-values",),
        faults=(
            "unbroadcast-outer-axes-alone",
            "scatter-overwrites",
            "repeated-matrix-gradient-of-first",
        ),
        cases=draws("dyadic", first_seed=10_000),
        check=_adjoint,
    ),
    Law(
        id="memory.orders",
        statement="Rows, columns, strides and directions in memory change no bit of any operation"
        " or gradient.",
        source="numerics.md section 1; cases: num-sum-layout",
        needs=("operations",),
        faults=(
            "silu-in-the-order-of-memory",
            "sum-follows-memory",
        ),
        cases=draws("uniform", "wide", first_seed=11_000),
        check=_memory,
    ),
    Law(
        id="operations.elsewhere",
        statement="Where numpy multiplies matrices in another order, or rounds less often, products"
        " and sums have the specified bits all the same.",
        source="numerics.md sections 1, 3 and 4; notes/field.md section 5.2",
        needs=("elsewhere",),
        faults=("product-tried-on-tame-numbers",),
        cases=draws("uniform", first_seed=11_500),
        check=_elsewhere,
    ),
)
