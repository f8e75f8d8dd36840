"""The reverse pass of one row, every contribution in the specification's order."""

from collections.abc import Sequence

from .arithmetic import Arithmetic, Number
from .forward import (
    Block,
    Head,
    Matrix,
    Norm,
    Rotation,
    Row,
    Vector,
    Weights,
    head_name,
    plus,
    product,
    scale,
)  # fmt: skip

__all__ = ["Gradients", "backward_row"]


class Gradients:
    """The running gradients of a batch, its rows added in ascending order.

    A matrix gradient is formed per row of the batch and then added; a gain gradient and the
    lookup's scatter are one running sum over all cells; the table is head plus lookup at last, or
    lookup alone where the head has a matrix of its own.

    Source: numerics_vjp.md sections 2, 3 and 5
    """

    def __init__(self, arithmetic: Arithmetic, weights: Weights) -> None:
        self.arithmetic = arithmetic
        self.sums = {name: self.zeros(value) for name, value in weights.items()}
        self.lookup = self.zeros(weights["token_embedding.weight"])

    def zeros(self, like: Matrix) -> Matrix:
        """Zeros in the shape of a matrix."""
        return [[self.arithmetic.number(0.0)] * len(row) for row in like]

    def add_matrix(self, name: str, left: Matrix, right: Matrix) -> None:
        """sums[k][n] += sum over t ascending of left[t][k] * right[t][n]."""
        columns = [list(column) for column in zip(*right, strict=True)]
        rows = [list(row) for row in zip(*left, strict=True)]
        own = [[self.arithmetic.dot(row, column) for column in columns] for row in rows]
        self.sums[name] = plus(self.sums[name], own)

    def add_gain(self, name: str, terms: Matrix) -> None:
        """sums[d] += terms[t][d], t ascending: one running sum."""
        for cell in terms:
            self.sums[name] = plus(self.sums[name], [cell])

    def add_lookup(self, ids: Sequence[int], cells: Matrix) -> None:
        """Each cell into the row of its id, one after the other."""
        for token, cell in zip(ids, cells, strict=False):  # inactive cells come last
            self.lookup[token] = [x + y for x, y in zip(self.lookup[token], cell, strict=True)]

    def finished(self) -> dict[str, Matrix]:
        """Name -> gradient in stable order."""
        table = "token_embedding.weight"
        return {**self.sums, table: plus(self.sums[table], self.lookup)}


def backward_row(
    a: Arithmetic,
    weights: Weights,
    rotation: Rotation,
    row: Row,
    logits_grad: Matrix,
    gradients: Gradients,
) -> None:
    """Adds the row's share to every gradient. Source: numerics_vjp.md section 5"""
    head = head_name(weights)
    columns = [list(column) for column in zip(*weights[head], strict=True)]
    hidden_grad = _times_transposed(a, logits_grad, columns)
    gradients.add_matrix(head, logits_grad, row.final.out)
    residual_grad = _norm(a, weights, "final_norm.gain", row.final, hidden_grad, None, gradients)
    for block in reversed(row.blocks):
        residual_grad = _block(a, weights, rotation, row, block, residual_grad, gradients)
    gradients.add_lookup(row.cells.ids[: row.cells.length], residual_grad)


def _times_transposed(a: Arithmetic, rows: Matrix, weight: Matrix) -> Matrix:
    """rows @ weight^T: the sum over output columns ascending."""
    return [[a.dot(row, line) for line in weight] for row in rows]


def _norm(
    a: Arithmetic,
    weights: Weights,
    name: str,
    norm: Norm,
    upstream: Matrix,
    skip: Matrix | None,
    gradients: Gradients,
) -> Matrix:
    """The adjoint of a norm's input: what lies on it, then the scaled path, then x twice."""
    gradients.add_gain(name, product(upstream, norm.scaled))
    gain = weights[name][0]
    width, minus_half = a.number(float(len(gain))), a.number(-0.5)
    out: Matrix = []
    for t, (cell, u) in enumerate(zip(norm.x, upstream, strict=True)):
        inverse = norm.inverse[t]
        scaled_grad = [v * g for v, g in zip(u, gain, strict=True)]
        inverse_grad = a.dot(scaled_grad, cell)
        mean_grad = inverse_grad * inverse * minus_half / norm.stabilised[t]
        square_grad = mean_grad / width
        before = [a.number(0.0)] * len(cell) if skip is None else skip[t]
        first = [b + v * inverse for b, v in zip(before, scaled_grad, strict=True)]
        out.append(
            [f + square_grad * x + square_grad * x for f, x in zip(first, cell, strict=True)]
        )
    return out


def _block(
    a: Arithmetic,
    weights: Weights,
    rotation: Rotation,
    row: Row,
    block: Block,
    out_grad: Matrix,
    gradients: Gradients,
) -> Matrix:
    gate, up, down = (f"{block.prefix}.ffn.{role}.weight" for role in ("gate", "up", "down"))
    product_grad = _times_transposed(a, out_grad, weights[down])
    gradients.add_matrix(down, block.product, out_grad)
    activated_grad = product(product_grad, block.up)
    up_grad = product(product_grad, block.activated)
    gate_grad = [
        [u * _silu_slope(a, x, s) for u, x, s in zip(*cells, strict=True)]
        for cells in zip(activated_grad, block.gate, block.sigmoid, strict=True)
    ]
    gradients.add_matrix(up, block.ffn_norm.out, up_grad)
    gradients.add_matrix(gate, block.ffn_norm.out, gate_grad)
    normed_grad = plus(
        _times_transposed(a, up_grad, weights[up]), _times_transposed(a, gate_grad, weights[gate])
    )
    after_grad = _norm(
        a,
        weights,
        f"{block.prefix}.ffn_norm.gain",
        block.ffn_norm,
        normed_grad,
        out_grad,
        gradients,
    )
    normed_grad = _attention(a, weights, rotation, row, block, after_grad, gradients)
    return _norm(
        a,
        weights,
        f"{block.prefix}.attention_norm.gain",
        block.norm,
        normed_grad,
        after_grad,
        gradients,
    )


def _silu_slope(a: Arithmetic, x: Number, s: Number) -> Number:
    one = a.number(1.0)
    return s * (one + x * (one - s))


def _attention(
    a: Arithmetic,
    weights: Weights,
    rotation: Rotation,
    row: Row,
    block: Block,
    upstream: Matrix,
    gradients: Gradients,
) -> Matrix:
    """The adjoint of the normed input: value's, then key's, then query's contribution."""
    names = {
        role: f"{block.prefix}.attention.{role}.weight"
        for role in ("value", "key", "query", "output")
    }
    mixed_grad = _times_transposed(a, upstream, weights[names["output"]])
    gradients.add_matrix(names["output"], block.mixed, upstream)
    grads: dict[str, Matrix] = {"value": [], "key": [], "query": []}
    groups = _groups(block.heads)
    parts = [
        _head(a, rotation, row, head, [cell[head.features] for cell in mixed_grad], len(groups[0]))
        for head in block.heads
    ]
    for t in range(len(mixed_grad)):
        grads["query"].append([v for part in parts for v in part["query"][t]])
        for role in ("value", "key"):
            grads[role].append([v for g in groups for v in _over_heads(a, g, parts, role, t)])
    total: Matrix | None = None
    for role, grad in grads.items():
        gradients.add_matrix(names[role], block.norm.out, grad)
        contribution = _times_transposed(a, grad, weights[names[role]])
        total = contribution if total is None else plus(total, contribution)
    assert total is not None
    return total


def _groups(heads: Sequence[Head]) -> list[list[int]]:
    """The query heads that read one key/value head, ascending."""
    firsts = sorted({head.shared.start for head in heads})
    return [[h for h, head in enumerate(heads) if head.shared.start == f] for f in firsts]


def _over_heads(
    a: Arithmetic, group: Sequence[int], parts: Sequence[dict[str, Matrix]], role: str, t: int
) -> Vector:
    """The sum over the heads of a group; what one head alone reads is its own adjoint."""
    cells = [parts[h][role][t] for h in group]
    return cells[0] if len(cells) == 1 else [a.total(list(v)) for v in zip(*cells, strict=True)]


def _head(
    a: Arithmetic, rotation: Rotation, row: Row, head: Head, mixed_grad: Matrix, sharers: int
) -> dict[str, Matrix]:
    """Adjoints of what one head reads of a value, and of key and query before they were turned.

    sharers: heads that read the same key and value
    """
    factor = scale(a, len(head.query[0]))
    raw_grad = [
        _scores(a, p, [a.dot(u, v) for v in head.value[s : s + len(p)]], factor)
        for p, s, u in zip(head.probabilities, row.cells.starts, mixed_grad, strict=True)
    ]
    value, key, query = [], [], []
    for j, position in enumerate(row.cells.positions):
        starts = row.cells.starts
        value.append(_over_queries(a, head.probabilities, starts, j, mixed_grad, sharers))
        turned = _over_queries(a, raw_grad, starts, j, head.query, sharers)
        key.append(rotation.turned_back(turned, position))
        allowed = head.key[row.cells.starts[j] : row.cells.starts[j] + len(raw_grad[j])]
        turned = [a.dot(raw_grad[j], [k[i] for k in allowed]) for i in range(len(turned))]
        query.append(rotation.turned_back(turned, position))
    return {"value": value, "key": key, "query": query}


def _scores(a: Arithmetic, probabilities: Vector, upstream: Vector, factor: Number) -> Vector:
    """The softmax's reverse rule over the allowed keys, then the scale's."""
    w = a.dot(upstream, probabilities, swaps=True)
    return [a.clean(p * (u - w)) * factor for p, u in zip(probabilities, upstream, strict=True)]


def _over_queries(
    a: Arithmetic,
    per_query: Matrix,
    starts: Sequence[int],
    j: int,
    other: Matrix,
    sharers: int,
) -> Vector:
    """sum over the queries that read key j, ascending, of per_query[t][j] * other[t].

    With the sums of the heads that share the key it may be one sum.
    """
    readers = [t for t, s in enumerate(starts) if s <= j < s + len(per_query[t])]
    column = [per_query[t][j - starts[t]] for t in readers]
    return [
        a.dot(column, [other[t][i] for t in readers], among=sharers) for i in range(len(other[0]))
    ]
