"""Separate, padded and packed documents: the same bits wherever the additions are the same.

A cell's numbers (logits, loss, adjoint) come from its own document, in one order, however the
batch is laid out. Sums over cells group differently: a matrix's gradient is summed within a batch
row and then over rows, so padding keeps its bits and packing does not; a gain's gradient runs
through all cells, and the tied table adds lookup and head once per pass, so only the bound of
`regrouping` is left for them.
"""

import math
from typing import Any

import numpy as np
import pytest

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Code,
    Decoder,
    NumericRefusal,
    Parameter,
    Refusal,
    SequenceLayout,
    ShapeRefusal,
    Tensor,
    TextBatch,
    constant,
    ops,
)
from logitproof.core.attention import scaled_dot_product
from logitproof.properties.compare import same_bits
from logitproof.properties.regrouping import gradient_terms, regrouping_bound
from logitproof.properties.situations import (
    TINY,
    Run,
    batch_of,
    cells_of,
    composed,
    documents,
    drawn_vectors,
    gradients,
    leaf_run,
    learned_state,
    shaken_decoder,
    warm_decoder,
)

SEVERAL = 0  # five documents of 2 to 7 ids
LONGEST = float(np.finfo(np.float64).max)
# The largest |x| whose D squares can be added up.
HIGHEST = math.sqrt(LONGEST / TINY.model_width) * (1 - 2.0**-50)
PACKED = pytest.mark.parametrize("packed", [False, True])
SEEDS = pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(s, marks=pytest.mark.slow) for s in range(8, 128))]
)


class Laid:
    """Drawn documents in one batch and each alone, over decoders of equal values."""

    def __init__(self, seed: int, *, packed: bool) -> None:
        self.documents = documents(TINY, seed, rows=5)
        self.batch = batch_of(TINY, self.documents, packed=packed)
        self.decoder, self.apart = shaken_decoder(TINY, seed), shaken_decoder(TINY, seed)
        self.run, self.leaf = leaf_run(self.decoder, self.batch)
        alone = [batch_of(TINY, [ids], packed=False) for ids in self.documents]
        self.alone = [leaf_run(self.apart, batch) for batch in alone]

    def cells(self, values: Any) -> list[Any]:
        """Per document its rows of a batch's values."""
        return [cells_of(self.batch, i, values) for i in range(len(self.documents))]

    def texts(self) -> tuple[Any, list[Any]]:
        """The trace of the batch, and the losses of the documents; gradients are in place."""
        trace = composed(self.decoder, self.batch).loss.backward_with_trace()
        losses = []
        for ids in self.documents:
            run = composed(self.apart, batch_of(TINY, [ids], packed=False))
            run.loss.backward()
            losses.append(run.loss.value)
        return trace, losses


def masked(batch: TextBatch, document: int) -> np.ndarray[Any, Any]:
    return np.asarray(batch.valid & (batch.segments != document))


def backward_all(runs: list[Run]) -> None:
    for run in runs:
        run.loss.backward()


def refusal(call: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call()
    return caught.value


def rows_nll(operation: Any, rows: Any, targets: Any) -> Tensor:
    return NO_GRAD.apply(operation, constant(rows), axis=1, targets=targets)


def attended(given: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Mixture and gradients of the second of two documents in a row, beside another row."""
    starts, lengths = SequenceLayout.packed([[2, 3], [3]], 6).lanes(1)
    leaves = {name: Parameter(name, array) for name, array in given.items()}
    query, key, value = leaves.values()
    mix = scaled_dot_product(query, key, value, range_starts=starts, lengths=lengths)["mix"]
    seed = np.zeros((2, 6, 2))
    seed[0, 2:5] = 1 / 8
    mix.backward(seed)
    return np.stack(
        [array[0, 2:5] for array in (mix.value, *(v.gradient for v in leaves.values()))]
    )


# parity


@PACKED
@SEEDS
def test_a_cell_has_the_logits_of_its_document_alone(seed: int, packed: bool) -> None:
    laid = Laid(seed, packed=packed)
    together = np.concatenate(laid.cells(laid.run.logits.value))
    assert same_bits(together, np.concatenate([run.logits.value[0] for run, _ in laid.alone]))


@PACKED
@SEEDS
def test_a_cell_has_the_input_gradient_of_its_document_alone(seed: int, packed: bool) -> None:
    laid = Laid(seed, packed=packed)
    laid.run.loss.backward()
    backward_all([run for run, _ in laid.alone])
    together = np.concatenate(laid.cells(laid.leaf.gradient))
    assert same_bits(together, np.concatenate([leaf.gradient[0] for _, leaf in laid.alone]))


@PACKED
@SEEDS
def test_cells_without_a_target_have_no_gradient(seed: int, packed: bool) -> None:
    laid = Laid(seed, packed=packed)
    laid.run.loss.backward()
    assert not laid.leaf.gradient[~laid.batch.valid].any()


@SEEDS
def test_padding_keeps_the_bits_of_every_matrix_gradient(seed: int) -> None:
    laid = Laid(seed, packed=False)
    laid.texts()
    pairs = zip(laid.decoder.parameters.values(), laid.apart.parameters.values(), strict=True)
    matrices = [(a.gradient, b.gradient) for a, b in pairs if a.name.endswith(".weight")][1:]
    assert len(matrices) == 7 * TINY.layers
    assert all(same_bits(together, apart) for together, apart in matrices)


@PACKED
@SEEDS
def test_other_gradients_differ_by_regrouping_alone(seed: int, packed: bool) -> None:
    laid = Laid(seed, packed=packed)
    trace, _ = laid.texts()
    terms = gradient_terms(trace)
    additions = 2 * int(laid.batch.valid.sum()) + len(laid.documents) + 2
    assert set(terms) == set(laid.decoder.parameters)
    together, apart = gradients(laid.decoder), gradients(laid.apart)
    bounds = {name: regrouping_bound(terms[name], additions) for name in terms}
    assert [n for n in terms if (abs(together[n] - apart[n]) > bounds[n]).any()] == []


@PACKED
@SEEDS
def test_the_raw_loss_differs_by_regrouping_alone(seed: int, packed: bool) -> None:
    laid = Laid(seed, packed=packed)
    trace, losses = laid.texts()
    count = int(laid.batch.valid.sum())
    total = composed(laid.decoder, laid.batch).loss.value
    assert abs(total - sum(losses)) <= regrouping_bound(total, count + len(losses))
    assert trace.seed == 1.0


@PACKED
@SEEDS
def test_the_mean_is_the_raw_sum_over_the_valid_count(seed: int, packed: bool) -> None:
    batch, decoder = Laid(seed, packed=packed).batch, shaken_decoder(TINY, seed)
    arguments: dict[str, Any] = {"layout": batch.layout, "valid": batch.valid}
    mean = decoder.loss(batch.ids, batch.targets, **arguments)
    total = decoder.loss_sum(batch.ids, batch.targets, **arguments)
    assert same_bits(mean.value, np.asarray(total.value / float(batch.valid.sum())))
    assert same_bits(total.value, composed(decoder, batch).loss.value)


@PACKED
def test_one_document_has_one_order_of_additions(packed: bool) -> None:
    decoder, alone = shaken_decoder(TINY), shaken_decoder(TINY)
    ids = list(range(5))
    composed(decoder, batch_of(TINY, [ids], packed=packed)).loss.backward()
    alone.loss_sum([ids[:-1]], [ids[1:]]).backward()
    assert learned_state(decoder) == learned_state(alone)


# isolation


@PACKED
@SEEDS
def test_another_document_changes_no_bit(seed: int, packed: bool) -> None:
    laid = Laid(seed, packed=packed)
    own = cells_of(laid.batch, 0, laid.run.logits.value)
    vectors = laid.leaf.value.copy()
    vectors[masked(laid.batch, 0)] = drawn_vectors(seed, *vectors[masked(laid.batch, 0)].shape)
    other, leaf = leaf_run(laid.decoder, laid.batch, vectors)
    laid.run.loss.backward()
    other.loss.backward()
    gradient = [cells_of(laid.batch, 0, each.gradient) for each in (laid.leaf, leaf)]
    assert same_bits(cells_of(laid.batch, 0, other.logits.value), own)
    assert same_bits(gradient[1], gradient[0])


@pytest.mark.parametrize("poison", [HIGHEST, -HIGHEST])
@PACKED
def test_the_largest_vectors_elsewhere_change_no_bit(packed: bool, poison: float) -> None:
    laid = Laid(SEVERAL, packed=packed)
    vectors = laid.leaf.value.copy()
    vectors[laid.batch.segments != 0] = poison
    logits = leaf_run(laid.decoder, laid.batch, vectors)[0].logits.value
    assert same_bits(*[cells_of(laid.batch, 0, v) for v in (logits, laid.run.logits.value)])


@pytest.mark.parametrize("poison", [HIGHEST, -HIGHEST])
@PACKED
def test_the_largest_padding_changes_no_gradient(packed: bool, poison: float) -> None:
    laid, clean = Laid(SEVERAL, packed=packed), Laid(SEVERAL, packed=packed)
    vectors = laid.leaf.value.copy()
    vectors[~laid.batch.valid] = poison
    assert not laid.batch.valid.all()
    leaf_run(laid.decoder, laid.batch, vectors)[0].loss.backward()
    clean.run.loss.backward()
    assert learned_state(laid.decoder) == learned_state(clean.decoder)


@PACKED
def test_larger_padding_is_refused_as_an_overflow(packed: bool) -> None:
    laid = Laid(SEVERAL, packed=packed)
    vectors = laid.leaf.value.copy()
    vectors[~laid.batch.valid] = HIGHEST * (1 + 2.0**-40)
    refused = refusal(lambda: leaf_run(laid.decoder, laid.batch, vectors))
    assert (type(refused), refused.code) == (NumericRefusal, Code.NON_FINITE_FORWARD)
    assert (refused.facts()["op"], refused.facts()["layer"]) == ("mean", 0)


@pytest.mark.parametrize("name", ["key", "value"])
def test_the_largest_keys_and_values_of_others_change_no_bit(name: str) -> None:
    given = {n: drawn_vectors(7 + i, 2, 6, 2) / 4 for i, n in enumerate(("query", "key", "value"))}
    poisoned = {**given, name: given[name].copy()}
    poisoned[name][0, :2], poisoned[name][0, 5], poisoned[name][1] = LONGEST, -LONGEST, LONGEST
    assert same_bits(attended(poisoned), attended(given))


@PACKED
def test_ineligible_cells_leave_no_gradient(packed: bool) -> None:
    laid = Laid(SEVERAL, packed=packed)
    chosen = masked(laid.batch, 0)
    targets = np.where(chosen, laid.batch.targets, -1)
    loss = laid.decoder.loss_sum(laid.batch.ids, targets, layout=laid.batch.layout, valid=chosen)
    trace = loss.backward_with_trace()
    rows: Any = next(n.adjoint for n in trace.nodes if n.op == "reshape" and n.shape[1:] == (5,))
    assert not rows[~chosen.reshape(-1)].any()
    assert rows[chosen.reshape(-1)].any(axis=1).all()


# numerics.md section 8


@pytest.mark.parametrize(
    ("rows", "total", "mean", "product"),
    [
        ([(0, 0), (1.5, 0), (0, 0)], "4008b3a0100c7119", "3ff077c00ab2f611", "4008b3a0100c711a"),
    ],
)
def test_the_raw_sum_is_not_the_mean_times_the_count(
    rows: Any, total: str, mean: str, product: str
) -> None:
    targets = [1] * len(rows)
    raw = rows_nll(ops.indexed_sum_nll, rows, targets).value
    average = rows_nll(ops.indexed_mean_nll, rows, targets).value
    shown = [np.float64(v).tobytes()[::-1].hex() for v in (raw, average, average * len(rows))]
    assert shown == [total, mean, product]


@pytest.mark.parametrize(
    ("rows", "mean", "at"),
    [
        ([(1e308, 0.0), (1e308, 0.0)], 1e308, 1),
        ([(1.7e308, -1.7e308), (0.0, 0.0)], 1.7e308, 0),
    ],
)
def test_a_raw_sum_may_be_refused_where_the_mean_is_finite(rows: Any, mean: float, at: int) -> None:
    assert rows_nll(ops.indexed_mean_nll, rows, [1, 1]).value == mean
    refused = refusal(lambda: rows_nll(ops.indexed_sum_nll, rows, [1, 1]))
    assert (type(refused), refused.code) == (NumericRefusal, Code.RAW_SUM_NOT_FINITE)
    assert (refused.at, refused.facts()["value"]) == (at, math.inf)


def test_a_refused_raw_sum_changes_nothing() -> None:
    decoder = large_head()
    before = learned_state(decoder)
    assert decoder.loss([[0, 1]], [[1, 1]]).value > 1e307
    assert refusal(lambda: decoder.loss_sum([[0] * 6] * 9, [[1] * 6] * 9)).code == (
        Code.RAW_SUM_NOT_FINITE
    )
    assert learned_state(decoder) == before


def large_head() -> Decoder:
    """Logits near 5e307: two losses add up, fifty do not."""
    decoder = warm_decoder(TINY)
    decoder.parameters["final_norm.gain"].assign(np.full(4, 2.0**1020))
    table = np.zeros((5, 4))
    table[0] = [1.0, 2.0, 3.0, 4.0]
    decoder.table.assign(table)
    return decoder


# reported cases

# A logit log(expm1(l)) is off by one ulp of each function: 2^-52 and, for l <= 4, 2^-50; the loss
# rounds twice by at most 2^-51; so 2^-49 a loss. Four of them and three sums up to 8 (2^-50 each),
# divided by 4: 1.4 * 2^-49.
WEIGHED_TOLERANCE = 2.0**-48
# Losses 1 and 3, slopes 0.64 and 0.95, expm1 within 1 and log within 0.52 ulp: 1.8 and 3.94 times
# 2^-52 with two roundings each; their sum rounds by 2 * 2^-52; half of 7.74 * 2^-52.
TWO_LOSSES_TOLERANCE = 2.0**-50


def test_accumulated_losses_weigh_every_target_alike() -> None:
    groups, slopes = [[4.0], [1.0, 1.0, 2.0]], [[1.0], [2.0, 3.0, 4.0]]
    rows = [[[math.log(math.expm1(loss)), 0.0] for loss in group] for group in groups]
    totals = [rows_nll(ops.indexed_sum_nll, part, [1] * len(part)).value for part in rows]
    weight = Parameter("weight", 0.0)
    products = [RECORDING.apply(ops.mul, weight, constant(part)) for part in slopes]
    both = RECORDING.apply(
        ops.add, *[RECORDING.apply(ops.sum, product, axis=0) for product in products]
    )
    both.backward(1 / 4)
    assert sum(totals) / 4 == pytest.approx(2.0, abs=WEIGHED_TOLERANCE)
    assert float(weight.gradient) == 2.5


@pytest.mark.parametrize("cut", range(1, 5))
def test_a_batch_cut_in_two_has_the_loss_and_gradients_of_the_whole(cut: int) -> None:
    given = [[0, 1], [0, 2, 3, 4], [0, 3, 1], [1, 2], [4, 0, 0]]
    whole, parts = shaken_decoder(TINY), shaken_decoder(TINY)
    run = composed(whole, batch_of(TINY, given, packed=False))
    terms = gradient_terms(run.loss.backward_with_trace())
    halves = [composed(parts, batch_of(TINY, p, packed=False)) for p in (given[:cut], given[cut:])]
    backward_all(halves)
    assert abs(run.loss.value - (halves[0].loss.value + halves[1].loss.value)) <= (
        regrouping_bound(run.loss.value, 12)
    )
    ours, theirs = gradients(whole), gradients(parts)
    bounds = {name: regrouping_bound(terms[name], 26) for name in terms}
    assert all((abs(ours[n] - theirs[n]) <= bounds[n]).all() for n in terms)


def test_a_loss_without_any_target_is_refused() -> None:
    decoder = warm_decoder(TINY)
    before = learned_state(decoder)
    refused = refusal(lambda: decoder.loss([[0]], [[-1]], valid=np.array([[False]])))
    assert (type(refused), refused.code) == (ShapeRefusal, Code.NO_VALID_TARGET)
    assert learned_state(decoder) == before
    rows = [[math.log(math.expm1(loss)), 0.0] for loss in (1.0, 3.0)]
    assert rows_nll(ops.indexed_mean_nll, rows, [1, 1]).value == pytest.approx(
        2.0, abs=TWO_LOSSES_TOLERANCE
    )


def test_an_ignored_row_changes_no_bit_of_loss_or_gradient() -> None:
    alone, beside = shaken_decoder(TINY), shaken_decoder(TINY)
    valid = np.array([[True, True], [False, False]])
    ours = alone.loss([[0, 1]], [[1, 2]])
    theirs = beside.loss([[0, 1], [3, 4]], [[1, 2], [-1, -1]], valid=valid)
    ours.backward()
    theirs.backward()
    assert same_bits(theirs.value, ours.value)
    assert learned_state(beside) == learned_state(alone)
