"""The same figures by hand: plain lists and loops, no tape, no operation of the core."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Matrix = list[list[float]]
Rows = Sequence[Sequence[float]]

# The sizes of the model-ops fixture; nothing here fits another.
_VOCABULARY, _WIDTH, _CLASSES, _POSITIONS = 3, 2, 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBackward:
    """The five results of the forward pass and the five of the backward pass."""

    gathered: Matrix
    preactivations: Matrix
    activated: Matrix
    log_probabilities: Matrix
    loss: float
    loss_input_gradient: Matrix
    matmul_output_gradient: Matrix
    gathered_gradient: Matrix
    embedding_gradient: Matrix
    weight_gradient: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class OneHotProduct:
    """Indicator rows and their product with the table."""

    indicators: Matrix
    values: Matrix


def model_backward(
    embeddings: Rows, ids: Sequence[int], weights: Rows, targets: Sequence[int]
) -> ModelBackward:
    """The repeated-token chain in textbook form, which is not how the core rounds it.

    p = exp(z - max) / sum; loss = sum(-log p[target] / 4); dz = (p - [target]) / 4
    SiLU rule: s * (1 + x * (1 - s))

    embeddings: 3 rows of 2; ids: 4; weights: 2 rows of 2; targets: 4
    Source:     demos.md section 5b
    """
    assert len(embeddings) == _VOCABULARY, embeddings
    assert len(ids) == len(targets) == _POSITIONS, (ids, targets)
    gathered = [list(embeddings[i]) for i in ids]
    preactivations = _product(gathered, weights)
    activated = [[x * _sigmoid(x) for x in row] for row in preactivations]

    loss = 0.0
    log_probabilities: Matrix = []
    loss_input_gradient: Matrix = []
    for row, target in zip(activated, targets, strict=True):
        probabilities = _softmax(row)
        log_probabilities.append([math.log(p) for p in probabilities])
        loss += -math.log(probabilities[target]) / _POSITIONS
        loss_input_gradient.append(
            [(p - (1.0 if c == target else 0.0)) / _POSITIONS for c, p in enumerate(probabilities)]
        )

    matmul_output_gradient = [
        [u * _silu_rule(x) for u, x in zip(upstream, row, strict=True)]
        for upstream, row in zip(loss_input_gradient, preactivations, strict=True)
    ]
    gathered_gradient = _product(matmul_output_gradient, _transposed(weights))
    weight_gradient = _product(_transposed(gathered), matmul_output_gradient)
    embedding_gradient = [[0.0] * _WIDTH for _ in range(_VOCABULARY)]
    for i, row in zip(ids, gathered_gradient, strict=True):
        for d in range(_WIDTH):
            embedding_gradient[i][d] += row[d]
    return ModelBackward(
        gathered=gathered,
        preactivations=preactivations,
        activated=activated,
        log_probabilities=log_probabilities,
        loss=loss,
        loss_input_gradient=loss_input_gradient,
        matmul_output_gradient=matmul_output_gradient,
        gathered_gradient=gathered_gradient,
        embedding_gradient=embedding_gradient,
        weight_gradient=weight_gradient,
    )


def one_hot_product(table: Rows, ids: Sequence[int]) -> OneHotProduct:
    """An indicator row of V zeros and a one per id, times the table, by a sum over its rows.

    An explanation of the lookup; nobody is said to store the indicators.

    table:  V rows of equal width; ids: each below V
    Source: demos.md section 5c
    """
    assert len({len(row) for row in table}) == 1, table
    assert all(0 <= i < len(table) for i in ids), ids
    indicators = [[1.0 if v == i else 0.0 for v in range(len(table))] for i in ids]
    return OneHotProduct(indicators=indicators, values=_product(indicators, table))


def _product(left: Rows, right: Rows) -> Matrix:
    columns = _transposed(right)
    return [[_dot(row, column) for column in columns] for row in left]


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    total = 0.0
    for a, b in zip(left, right, strict=True):
        total += a * b
    return total


def _transposed(rows: Rows) -> Matrix:
    return [list(column) for column in zip(*rows, strict=True)]


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def _silu_rule(x: float) -> float:
    s = _sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def _softmax(row: Sequence[float]) -> list[float]:
    assert len(row) == _CLASSES, row
    largest = max(row)
    exponentials = [math.exp(z - largest) for z in row]
    return [e / (exponentials[0] + exponentials[1]) for e in exponentials]
