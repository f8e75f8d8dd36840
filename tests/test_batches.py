"""Documents as padded and packed batches: fixtures A and B of the specification, exactly."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from logitproof.core import (
    NO_GRAD,
    CapacityRefusal,
    Code,
    IndexRefusal,
    Refusal,
    SequenceLayout,
    ShapeRefusal,
    TextBatch,
    constant,
    ops,
    pack_documents,
    pad_documents,
)
from logitproof.properties import strategies
from logitproof.properties.situations import REFERENCE, documents

V = 266
A = [[0, 99, 1], [0, 100, 101, 102, 1]]
B = [[0, 99, 100, 1], [0, 101, 1], [0, 102, 103, 104, 1]]
GOLD_A = [[1 / 2, 1 / 4], [1 / 2, 1 / 2, 1 / 4, 1 / 2]]
GOLD_B = [[1 / 2] * 3, [1 / 4] * 2, [1 / 2] * 4]
LN2 = math.log(2.0)
# In units of 2^-52: a loss of 1/2 is log1p(1), off by 1/4. One of 1/4 has a logit log(1/3) off by
# 3/2 (quotient, and one ulp of log), slope 3/4, then exp and log1p 1/8 in all and a sum 1/2: 7/4.
# Of nine losses at most two are such: 21/4. Their sums stay below 8 and round eight times by 2; a
# stated 8 ln 2 is off by 2. Together below 24; a mean is a sixth of that, and one rounding more.
PROBE_TOLERANCE = 24 * 2.0**-52

PADDED = pad_documents(A, vocabulary_size=V, capacity=4)
PACKED = pack_documents(B, vocabulary_size=V, capacity=6)

lists_of_documents = strategies.documents(vocabulary_size=V)


def lengths_of(*pairs: int) -> list[list[int]]:
    """Documents of these pair counts."""
    return [[0] * (n + 1) for n in pairs]


def probe(batch: TextBatch, gold: list[list[float]]) -> tuple[float, float]:
    """Sum and mean loss where document by document the target has these probabilities."""
    wanted = [q for document in gold for q in document]
    targets = batch.targets[batch.valid]
    rows = np.arange(len(targets))
    logits = np.full((len(targets), V), -1000.0)  # of which exp is 0: one class stands against
    logits[rows, (targets + 1) % V] = 0.0
    logits[rows, targets] = [math.log(q / (1 - q)) for q in wanted]
    arguments = {"axis": 1, "targets": targets}
    losses = [
        NO_GRAD.apply(operation, constant(logits), **arguments)
        for operation in (ops.indexed_sum_nll, ops.indexed_mean_nll)
    ]
    return float(losses[0].value), float(losses[1].value)


def edges(batch: TextBatch) -> set[tuple[int, int, int]]:
    """(row, query, key) of every allowed edge by the rule of inputs.md section 8."""
    rows, T = batch.segments.shape
    return {
        (b, t, j)
        for b in range(rows)
        for t in range(T)
        for j in range(t + 1)
        if batch.segments[b, t] == batch.segments[b, j] != -1
    }


def layout_edges(layout: SequenceLayout) -> set[tuple[int, int, int]]:
    return {
        (b, t, j)
        for b, length in enumerate(layout.lengths.tolist())
        for t in range(length)
        for j in range(int(layout.range_starts[b, t]), t + 1)
    }


def test_padding_gives_fixture_a() -> None:
    batch = pad_documents(A, vocabulary_size=V, capacity=4)
    assert batch.ids.tolist() == [[0, 99, -1, -1], [0, 100, 101, 102]]
    assert batch.targets.tolist() == [[99, 1, -1, -1], [100, 101, 102, 1]]
    assert batch.layout.positions.tolist() == [[0, 1, 0, 0], [0, 1, 2, 3]]
    assert batch.segments.tolist() == [[0, 0, -1, -1], [1, 1, 1, 1]]
    assert batch.valid.tolist() == [[True, True, False, False], [True] * 4]
    assert batch.layout.lengths.tolist() == [2, 4]


def test_packing_gives_fixture_b() -> None:
    batch = pack_documents(B, vocabulary_size=V, capacity=6)
    assert batch.ids.tolist() == [[0, 99, 100, 0, 101, -1], [0, 102, 103, 104, -1, -1]]
    assert batch.targets.tolist() == [[99, 100, 1, 101, 1, -1], [102, 103, 104, 1, -1, -1]]
    assert batch.segments.tolist() == [[0, 0, 0, 1, 1, -1], [2, 2, 2, 2, -1, -1]]
    assert batch.layout.positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 0]]
    assert batch.layout.range_starts.tolist() == [[0, 0, 0, 3, 3, 0], [0] * 6]
    assert batch.valid.tolist() == [[True] * 5 + [False], [True] * 4 + [False] * 2]
    assert batch.layout.lengths.tolist() == [5, 4]


def test_fixture_b_allows_nineteen_edges() -> None:
    batch = pack_documents(B, vocabulary_size=V, capacity=6)
    assert len(edges(batch)) == 19
    assert layout_edges(batch.layout) == edges(batch)


def test_fixture_a_loses_eight_ln2() -> None:
    total, mean = probe(PADDED, GOLD_A)
    assert total == pytest.approx(8 * LN2, abs=PROBE_TOLERANCE)
    assert mean == pytest.approx(0.9241962407465937, abs=PROBE_TOLERANCE)


def test_fixture_b_loses_eleven_ln2() -> None:
    total, mean = probe(PACKED, GOLD_B)
    assert total == pytest.approx(7.6246189861593985, abs=PROBE_TOLERANCE)
    assert mean == pytest.approx(0.8471798873510443, abs=PROBE_TOLERANCE)


@pytest.mark.parametrize(
    ("batch", "gold", "wrong"),
    [
        (PADDED, GOLD_A, LN2),  # divided by cells
        (PADDED, GOLD_A, 0.9530773732699248),  # mean of row means
        (PACKED, GOLD_B, 0.8317766166719344),  # mean of row means
        (PACKED, GOLD_B, 4 / 3 * LN2),  # mean of document means
    ],
)
def test_the_mean_is_none_of_the_named_wrong_answers(
    batch: TextBatch, gold: list[list[float]], wrong: float
) -> None:
    assert abs(probe(batch, gold)[1] - wrong) > 0.01


@pytest.mark.parametrize(
    ("pairs", "lengths"), [((4, 4, 2, 2), [4, 6, 2]), ((4, 2, 4, 2), [6, 6]), ((6, 1), [6, 1])]
)
def test_packing_is_next_fit(pairs: tuple[int, ...], lengths: list[int]) -> None:
    batch = pack_documents(lengths_of(*pairs), vocabulary_size=V, capacity=6)
    assert batch.layout.lengths.tolist() == lengths
    assert batch.layout.shape == (len(lengths), 6)


def test_packing_is_denser_and_keeps_the_edges() -> None:
    given = lengths_of(4, 2, 4, 2)
    packed = pack_documents(given, vocabulary_size=V, capacity=6)
    padded = pad_documents(given, vocabulary_size=V, capacity=6)
    assert (packed.ids.size, padded.ids.size) == (12, 16)
    assert [b * T * T for b, T in (packed.ids.shape, padded.ids.shape)] == [72, 64]
    assert len(edges(packed)) == len(edges(padded)) == 26


def test_repeated_documents_get_segments_of_their_own() -> None:
    batch = pack_documents([A[0], A[0]], vocabulary_size=V, capacity=4)
    assert batch.segments.tolist() == [[0, 0, 1, 1]]


@given(lists_of_documents)
def test_packing_loses_and_reorders_nothing(given: list[list[int]]) -> None:
    batch = pack_documents(given, vocabulary_size=V, capacity=6)
    cells = [batch.segments == index for index in range(len(given))]
    assert [batch.ids[own].tolist() for own in cells] == [ids[:-1] for ids in given]
    assert [batch.targets[own].tolist() for own in cells] == [ids[1:] for ids in given]


@given(lists_of_documents)
def test_the_layout_allows_the_edges_of_the_segments(given: list[list[int]]) -> None:
    batch = pack_documents(given, vocabulary_size=V, capacity=6)
    assert layout_edges(batch.layout) == edges(batch)


@given(lists_of_documents)
def test_padding_is_as_wide_as_its_longest_row(given: list[list[int]]) -> None:
    batch = pad_documents(given, vocabulary_size=V, capacity=6)
    assert batch.ids.shape == (len(given), max(len(ids) for ids in given) - 1)
    assert layout_edges(batch.layout) == edges(batch)


def test_drawn_documents_fit_their_decoder() -> None:
    sizes = [len(ids) for seed in range(50) for ids in documents(REFERENCE, seed)]
    assert (min(sizes), max(sizes)) == (2, REFERENCE.max_positions + 1)


@pytest.mark.parametrize("make", [pad_documents, pack_documents])
@pytest.mark.parametrize(
    ("given", "capacity", "family", "code"),
    [
        ([], 4, ShapeRefusal, Code.EMPTY_BATCH),
        ([[0, 1]], 0, ShapeRefusal, Code.EMPTY_TOKENS),
        ([[]], 4, ShapeRefusal, Code.DOCUMENT_RANGE_TOO_SHORT),
        ([[0]], 4, ShapeRefusal, Code.DOCUMENT_RANGE_TOO_SHORT),
        ([[0, 1, 2]], 1, CapacityRefusal, Code.ROW_TOO_LONG),
        ([[0, 1], [0, -1]], 4, IndexRefusal, Code.TOKEN_ID_OUT_OF_BOUNDS),
        ([[0, V]], 4, IndexRefusal, Code.TOKEN_ID_OUT_OF_BOUNDS),
        ([[0, 2**80]], 4, IndexRefusal, Code.TOKEN_ID_OUT_OF_BOUNDS),
        ([[0, 1.0]], 4, IndexRefusal, Code.NOT_AN_INTEGER),
    ],
)
def test_a_document_that_does_not_fit_is_refused(
    make: Any, given: Any, capacity: int, family: type[Refusal], code: Code
) -> None:
    with pytest.raises(family) as caught:
        make(given, vocabulary_size=V, capacity=capacity)
    assert caught.value.code == code
