"""Where order or the sign of a zero decides a bit, the bit is the specified one."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitproof.core import floats, ops
from logitproof.core.errors import Code, NumericRefusal
from logitproof.core.layers import Embedding
from logitproof.core.rope import RotaryTable
from logitproof.core.tape import RECORDING, Parameter, Tensor
from logitproof.properties import bounds, loops, operands
from logitproof.properties.compare import same_bits, within_bound
from logitproof.properties.oracles import operations as oracle

ZERO, MINUS = np.array([0.0]), np.array([-0.0])
Array = Any


# --- contractions ----------------------------------------------------------------------------

SHAPES = [
    ((1, 1), (1, 1)),
    ((3, 0), (0, 2)),
    ((0, 4), (4, 2)),
    ((2, 5), (5, 0)),
    ((1, 7), (7, 1)),
    ((4, 64), (64, 1)),  # a single column: einsum alone would add pairwise
    ((1, 33), (33, 5)),
    ((5, 17), (17, 8)),
    ((7, 129), (129, 3)),
    ((2, 3, 16), (16, 4)),
    ((2, 3, 16), (2, 16, 4)),
    ((2, 1, 3, 4), (3, 4, 2)),
    ((3, 4), (2, 4, 2)),
    ((6, 2, 3), (6, 3, 2)),  # more lanes than steps
    ((6, 2, 3), (6, 3, 1)),
    ((2, 2, 9), (2, 9, 1)),
    ((0, 2, 3), (3, 2)),
]
by_shape = pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)


@by_shape
def test_a_contraction_is_its_loop(a: Any, b: Any) -> None:
    left, right = loops.mixed(*a), loops.mixed(*b, seed=1)
    assert same_bits(floats.contract(left, right), loops.contract(left, right), empty=True)


@by_shape
def test_a_contraction_by_steps_is_its_loop(
    a: Any, b: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floats, "contraction_is_ordered", lambda: False)
    left, right = loops.mixed(*a), loops.mixed(*b, seed=1)
    assert same_bits(floats.contract(left, right), loops.contract(left, right), empty=True)


@pytest.mark.parametrize("right_layout", loops.LAYOUTS)
@pytest.mark.parametrize("left_layout", loops.LAYOUTS)
@pytest.mark.parametrize("steps", [False, True])
def test_no_layout_changes_a_contraction(
    left_layout: str, right_layout: str, steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = floats.contraction_is_ordered() and not steps
    monkeypatch.setattr(floats, "contraction_is_ordered", lambda: ordered)
    left, right = loops.mixed(2, 4, 33), loops.mixed(2, 33, 5, seed=1)
    seen = floats.contract(loops.LAYOUTS[left_layout](left), loops.LAYOUTS[right_layout](right))
    assert same_bits(seen, loops.contract(left, right))


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_transposed_view_is_contracted_like_its_copy(columns: int) -> None:
    left, right = loops.mixed(33, 4), loops.mixed(columns, 33, seed=1)
    want = loops.contract(left.T.copy(), right.T.copy())
    assert same_bits(floats.contract(left.T, right.T), want)


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("row", [0, 2, 4])
def test_a_row_alone_has_the_bits_of_the_row_in_a_batch(
    row: int, columns: int, steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = floats.contraction_is_ordered() and not steps
    monkeypatch.setattr(floats, "contraction_is_ordered", lambda: ordered)
    left, right = loops.mixed(5, 64), loops.mixed(64, columns, seed=1)
    together = floats.contract(left, right)
    assert same_bits(floats.contract(left[row : row + 1], right), together[row : row + 1])


def test_a_contraction_is_not_what_another_order_gives() -> None:
    left, right = loops.mixed(5, 64), loops.mixed(64, 33, seed=1)
    want = loops.contract(left, right)
    assert not same_bits(loops.contract(left[:, ::-1], right[::-1]), want)
    pairwise = (left[:, None] * np.ascontiguousarray(right.T)).sum(axis=2)
    assert not same_bits(pairwise, want)


@pytest.mark.parametrize("shape", floats.CHECKED_SHAPES)
def test_the_self_check_sees_another_order(shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = floats._einsum
    monkeypatch.setattr(floats, "_einsum", lambda a, b: ordered(a[:, ::-1], b[::-1]))
    assert not floats._einsum_keeps_order(*shape) or shape == floats.CHECKED_SHAPES[0]


@pytest.mark.parametrize("kept", [0, 1, 5, 33])
@pytest.mark.parametrize("D", [1, 4])
def test_weighted_rows_are_their_loop(kept: int, D: int) -> None:
    weights, rows = loops.mixed(3, kept), loops.mixed(3, 33, D, seed=1)
    want = loops.contract(weights[:, None], rows[:, :kept])[:, 0]
    assert same_bits(floats.weighted_rows(weights, rows), want)


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("shape", [(3, 17, 33), (1, 8, 2), (2, 5, 1), (4, 0, 3), (4, 3, 0)])
def test_products_of_a_row_are_their_loop(
    shape: Any, steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = floats.contraction_is_ordered() and not steps
    monkeypatch.setattr(floats, "contraction_is_ordered", lambda: ordered)
    N, K, C = shape
    rows, matrices = loops.mixed(N, K), loops.mixed(N, K + 2, C + 3, seed=1)[:, :K, :C]
    want = loops.contract(rows[:, None], np.ascontiguousarray(matrices))[:, 0]
    assert same_bits(floats.row_products(rows, matrices), want, empty=True)


def test_dots_of_rows_are_their_loop() -> None:
    left, right = loops.mixed(3, 33), loops.mixed(3, 33, seed=1)
    want = loops.contract(left[:, None], right[:, :, None])[:, 0, 0]
    assert same_bits(floats.row_dots(left, right), want)


@pytest.mark.parametrize("lanes", [2, 3])
@pytest.mark.parametrize("columns", [2, 7, 32])
def test_a_lane_turned_round_is_its_loop(lanes: int, columns: int) -> None:
    left, right = loops.mixed(lanes, 64, 65), loops.mixed(lanes, 65, columns, seed=1)
    assert left[0].size >= floats.TURNED_LANE
    assert same_bits(floats.contract(left, right), floats.contract_steps(left, right))


def test_a_large_transposed_matrix_is_copied_as_it_is() -> None:
    values = loops.mixed(130, 127)
    assert values.size >= floats.STRIPPED_COPY
    copy = floats.row_major(values.T)
    assert same_bits(copy, values.T.copy())
    assert copy.flags.c_contiguous
    assert floats.row_major(values) is values


# --- sums ------------------------------------------------------------------------------------

SUMMED = [((7,), 0), ((3, 5), 0), ((3, 5), 1), ((2, 33, 3), 1), ((1, 1), 1), ((129, 2), 0)]


@pytest.mark.parametrize("layout", loops.LAYOUTS)
@pytest.mark.parametrize(("shape", "axis"), SUMMED)
def test_a_total_is_its_loop_in_every_layout(shape: Any, axis: int, layout: str) -> None:
    values = loops.mixed(*shape)
    seen = floats.total(loops.LAYOUTS[layout](values), axis=axis)
    assert same_bits(seen, loops.total(values, axis))


@pytest.mark.parametrize("layout", loops.LAYOUTS)
@pytest.mark.parametrize(("shape", "axis"), SUMMED)
def test_running_sums_are_their_loop_in_every_layout(shape: Any, axis: int, layout: str) -> None:
    values = loops.mixed(*shape)
    seen = floats.running(loops.LAYOUTS[layout](values), axis=axis)
    assert same_bits(seen, loops.running(values, axis))


@pytest.mark.parametrize(("shape", "axis", "out"), [((0,), 0, ()), ((2, 0), 1, (2,))])
def test_a_total_of_nothing_is_plus_zero(shape: Any, axis: int, out: Any) -> None:
    assert same_bits(floats.total(np.zeros(shape), axis=axis), np.zeros(out))


LARGE = [((40, 33), 0), ((40, 33), 1), ((2, 20, 33), 2), ((33, 4, 5), 0), ((300, 1), 0),
         ((1, 300), 1), ((9, 2), 0), ((4, 70, 3), 1)]  # fmt: skip


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("layout", loops.LAYOUTS)
@pytest.mark.parametrize(("shape", "axis"), LARGE)
def test_a_large_total_is_its_running_sum(
    shape: Any, axis: int, layout: str, keep: bool, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    possible = floats.reduction_is_ordered() and ordered
    monkeypatch.setattr(floats, "reduction_is_ordered", lambda: possible)
    values = loops.mixed(*shape)
    seen = floats.total(loops.LAYOUTS[layout](values), axis=axis, keep=keep)
    want = loops.total(values, axis)
    assert same_bits(seen, np.expand_dims(want, axis) if keep else want)


def test_the_self_check_of_sums_sees_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = floats._sum_of_rows
    monkeypatch.setattr(floats, "_sum_of_rows", lambda rows: ordered(rows[::-1].copy()))
    assert not floats._reduction_keeps_order(5, 64)


def test_a_mean_divides_its_total_once() -> None:
    values = loops.mixed(5, 7)
    assert same_bits(floats.mean(values, axis=1), loops.total(values, 1) / 7.0)


# https://github.com/numpy/numpy/issues/13240
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_sum_ignores_the_memory_layout(order: Any) -> None:
    row = [1.0] + [2.0**-53] * 15  # each tie goes to the even 1.0: one by one they are lost
    rows = np.array([row, [0.0] * 16], order=order)
    value, _ = ops.sum(rows, axis=1)
    assert same_bits(value, np.array([1.0, 0.0]))
    bound = bounds.forward("sum", rows, axis=1)
    assert within_bound(value, oracle.value("sum", rows, axis=1), bound)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 5), (3, 1)), ((3, 5), (1, 5)), ((3, 5), (1, 1)),
        ((3, 5), ()), ((129,), ()), ((9, 17), (1, 1)),
        ((2, 3, 5), (3, 1)), ((2, 3, 5), (1, 3, 1)), ((2, 3, 5), (2, 1, 5)),
        ((0, 5), (5,)), ((0, 5), (1, 5)), ((2, 0), (2, 1)), ((), ()), ((1, 1), (1,)),
    ],
)  # fmt: skip
def test_unbroadcast_is_its_walk(wide: Any, narrow: Any) -> None:
    upstream = loops.mixed(*wide)
    seen = floats.unbroadcast(upstream, narrow)
    assert same_bits(seen, loops.unbroadcast(upstream, narrow), empty=True)


@pytest.mark.parametrize("layout", loops.LAYOUTS)
def test_no_layout_changes_an_unbroadcast(layout: str) -> None:
    upstream = loops.mixed(3, 4, 5)
    seen = floats.unbroadcast(loops.LAYOUTS[layout](upstream), (4, 1))
    assert same_bits(seen, loops.unbroadcast(upstream, (4, 1)))


LIMIT = floats.FLAT_SCATTER_SCALARS


@pytest.mark.parametrize(
    ("count", "n", "width"),
    [
        (3, 0, 2), (3, 2, 0), (1, 9, 1), (4, 9, 3),
        (5, LIMIT - 1, 1), (5, LIMIT, 1), (5, LIMIT + 1, 1), (7, LIMIT // 3, 3), (50, 2000, 4),
    ],
)  # fmt: skip
def test_a_scatter_adds_in_flat_order(count: int, n: int, width: int) -> None:
    rows = loops.mixed(n, width)
    indices = np.array([i * i % count for i in range(n)], dtype=np.int64)
    seen = floats.scatter_add(rows, indices=indices, count=count)
    assert same_bits(seen, loops.scatter_add(rows, indices.tolist(), count), empty=True)


def test_a_batched_weight_gradient_adds_rows_first() -> None:
    x, w, u = loops.mixed(3, 5, 4), loops.mixed(4, 2, seed=1), loops.mixed(3, 5, 2, seed=2)
    _, vjp = ops.matmul(x, w)
    by_row = loops.contract(x.swapaxes(1, 2), u)
    flat = loops.contract(x.reshape(15, 4).T, u.reshape(15, 2))
    want = loops.total(by_row, 0)
    assert same_bits(vjp(u)[1], want)
    assert not same_bits(flat, want)


# --- every operation -------------------------------------------------------------------------


@pytest.mark.property
@pytest.mark.parametrize("name", ops.__all__)
@given(data=st.data(), layout=st.sampled_from(sorted(loops.LAYOUTS)))
def test_no_layout_changes_an_operation(name: str, layout: str, data: st.DataObject) -> None:
    case = data.draw(operands.cases(name))
    call, move = getattr(ops, name), loops.LAYOUTS[layout]
    value, vjp = call(*case.operands, **case.arguments)
    seen, moved_vjp = call(*(move(a) for a in case.operands), **case.arguments)
    want = [value, *vjp(case.upstream)]
    got = [seen, *moved_vjp(move(case.upstream))]
    verdicts = [same_bits(a, b, empty=True) for a, b in zip(got, want, strict=True)]
    assert [v for v in verdicts if not v] == []


@pytest.mark.property
@pytest.mark.parametrize("name", ops.__all__)
@given(data=st.data())
def test_every_result_is_row_major_float64(name: str, data: st.DataObject) -> None:
    case = data.draw(operands.cases(name))
    value, vjp = getattr(ops, name)(*case.operands, **case.arguments)
    outs = [value, *vjp(case.upstream)]
    assert all(out.flags.c_contiguous and out.dtype == np.float64 for out in outs)


# A rule as it is written, and another association of it that gives other bits.
X, U, G = loops.mixed(3, 33), loops.mixed(3, 33, seed=1), np.array(5.0)
H = loops.mixed(1, seed=2)[0]
T = np.array([0, 3, 6])
SCORES, DOWN = loops.mixed(33, 33, seed=3), loops.mixed(33, 33, seed=4)
Saved = dict[str, Any]
RULES: dict[str, tuple[Any, Array, Callable[[Saved], Array], Callable[[Saved], Array]]] = {
    "mean": (
        ops.mean(X, axis=0, keep=True), U[:1],
        lambda _: np.broadcast_to(U[:1] / 3.0, (3, 33)),
        lambda _: np.broadcast_to(U[:1] * (1.0 / 3.0), (3, 33)),
    ),
    "log": (
        ops.log(np.abs(X)), U,
        lambda _: U / np.abs(X),
        lambda _: U * (1.0 / np.abs(X)),
    ),
    "silu": (
        ops.silu(X), U,
        lambda saved: U * (saved["sigmoid"] * (1.0 + X * (1.0 - saved["sigmoid"]))),
        lambda saved: U * saved["sigmoid"] * (1.0 + X * (1.0 - saved["sigmoid"])),
    ),
    "log_softmax": (
        ops.log_softmax(X, axis=1), U,
        lambda saved: U - saved["probabilities"] * loops.total(U, 1)[:, None],
        lambda saved: U - saved["probabilities"] * loops.total(U[:, ::-1], 1)[:, None],
    ),
    "causal_softmax": (
        ops.causal_softmax(SCORES), DOWN,
        lambda saved: np.tril(
            saved["probabilities"] * (DOWN - weighted_sum(saved["probabilities"]))) + 0.0,
        lambda saved: np.tril(saved["probabilities"] * DOWN
            - saved["probabilities"] * weighted_sum(saved["probabilities"])) + 0.0,
    ),
    "indexed_mean_nll": (
        ops.indexed_mean_nll(X, axis=1, targets=T), G,
        lambda saved: (saved["probabilities"] - np.eye(33)[T]) * (G / 3.0),
        lambda saved: (saved["probabilities"] - np.eye(33)[T]) * (G * (1.0 / 3.0)),
    ),
    "indexed_sum_nll": (
        ops.indexed_sum_nll(X, axis=1, targets=T), H,
        lambda saved: (saved["probabilities"] - np.eye(33)[T]) * H,
        lambda saved: saved["probabilities"] * H - np.eye(33)[T] * H,
    ),
}  # fmt: skip


def weighted_sum(probabilities: Array) -> Array:
    return loops.total(np.tril(DOWN) * probabilities, 1)[:, None]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_keeps_its_written_association(name: str) -> None:
    (_, vjp), upstream, written, other = RULES[name]
    (seen,) = vjp(upstream)
    assert same_bits(seen, written(vjp.saved[0]))
    assert not same_bits(seen, other(vjp.saved[0]))


def test_a_sigmoid_evaluates_the_exponential_of_no_positive_argument() -> None:
    e = floats.exp(-np.abs(X))
    want = X * np.where(X >= 0.0, 1.0 / (1.0 + e), e / (1.0 + e))
    assert same_bits(ops.silu(X)[0], want)
    assert not same_bits(X * (1.0 / (1.0 + floats.exp(-X))), want)


EXP, LOG1P = (lambda x, f=f: float(f(np.array(x))) for f in (floats.exp, floats.log1p))
WRITTEN = [loops.softmax_row(row, EXP, LOG1P) for row in SCORES.tolist()]


def test_softmax_rows_are_their_loop() -> None:
    value, vjp = ops.log_softmax(SCORES, axis=1)
    assert same_bits(value, np.array([row.log_probabilities for row in WRITTEN]))
    probabilities = np.array([row.probabilities for row in WRITTEN])
    assert same_bits(np.asarray(vjp.saved[0]["probabilities"]), probabilities)


def test_a_softmax_along_another_axis_has_the_same_bits() -> None:
    value, vjp = ops.log_softmax(SCORES.T, axis=0)
    rows, rows_vjp = ops.log_softmax(SCORES, axis=1)
    assert same_bits(value, rows.T)
    assert same_bits(vjp(DOWN.T)[0], rows_vjp(DOWN)[0].T)


def test_losses_are_their_loop() -> None:
    targets = [5 * t % 33 for t in range(33)]
    losses = [row.loss(z[t]) for row, z, t in zip(WRITTEN, SCORES.tolist(), targets, strict=True)]
    total = loops.total(np.array(losses), 0)
    assert same_bits(ops.indexed_sum_nll(SCORES, axis=1, targets=targets)[0], total)
    assert same_bits(ops.indexed_mean_nll(SCORES, axis=1, targets=targets)[0], total / 33.0)


def test_the_mean_that_divides_first_is_its_loop() -> None:
    rows = [[1.7e308, 1.6e308], [0.3, 0.1], [1e308, -1.7e308]]
    log_sum = loops.softmax_row(rows[1], EXP, LOG1P).log_sum  # of the others, log1p(0) = 0
    shares = [
        (1.7e308 - 1.6e308) / 3.0,
        (0.3 - 0.1) / 3.0 + log_sum / 3.0,
        1e308 / 3.0 - -1.7e308 / 3.0,  # the gap itself overflows
    ]
    seen, _ = ops.indexed_mean_nll(np.array(rows), axis=1, targets=[1, 1, 1])
    assert same_bits(seen, loops.total(np.array(shares), 0))


def test_a_causal_row_is_the_loop_over_its_keys() -> None:
    kept = [row[: t + 1] for t, row in enumerate(SCORES.tolist())]
    rows = [loops.softmax_row(row, EXP, LOG1P).probabilities for row in kept]
    want = np.array([row + [0.0] * (33 - len(row)) for row in rows])
    assert same_bits(ops.causal_softmax(SCORES)[0], want)


# --- zeros -----------------------------------------------------------------------------------
#
# Clean-ups that no input can show, for what they clean is never -0.0:
#   softmax and causal probability  e / S with e >= +0.0 and S >= 1
#   log-probability   d - logS with d <= 0 and logS >= +0.0 is zero only if both are. d = -0.0
#                     takes z = -0.0 beside a maximum +0.0; then two classes have d = 0, the
#                     tail is at least 1 and logS > 0. Else d = x - x = +0.0, and +0.0 - 0.0.
#   loss              a sum from +0.0 of terms, of which none is negative: gap = m - z is -0.0
#                     only beside logS > 0 as above, so a loss is +0.0 or more
#   RoPE sines        an angle is >= +0.0; sin(+0.0) = +0.0, and no other double is a multiple
#                     of pi, nor is its sine below half the smallest double
#   RoPE cosines      no double is an odd multiple of pi/2, so no cosine is zero
# All others have a case below: with the n-th clean-up of the call left out, its bits change.

ONE_KEY = np.array([[0.0, 0.0], [-800.0, 0.0]])  # row 1: the first key's weight is exactly 0
SITES: dict[str, tuple[int, Callable[[], Array]]] = {
    "nll gradient": (
        2,
        lambda: ops.indexed_mean_nll(np.array([[0.0, -800.0]]), axis=1, targets=[0])[1](
            np.array(-1.0)
        )[0],
    ),
    "raw-sum nll gradient": (
        1,
        lambda: ops.indexed_sum_nll(np.array([[0.0, -800.0]]), axis=1, targets=[0])[1](
            np.array(-1.0)
        )[0],
    ),
    "causal softmax vjp": (
        1,
        lambda: ops.causal_softmax(ONE_KEY)[1](np.array([[0.0, 0.0], [-1.0, 0.0]]))[0],
    ),
    "rotary left": (
        0,
        lambda: ops.rotary(
            np.array([[-0.0, 0.0]]), cosines=np.ones((1, 1)), sines=np.zeros((1, 1))
        )[0],
    ),
    "rotary right": (
        1,
        lambda: ops.rotary(
            np.array([[-1.0, -0.0]]), cosines=np.ones((1, 1)), sines=np.zeros((1, 1))
        )[0],
    ),
    "rotary vjp left": (
        2,
        lambda: ops.rotary(np.ones((1, 2)), cosines=np.ones((1, 1)), sines=np.zeros((1, 1)))[1](
            np.array([[-0.0, -0.0]])
        )[0],
    ),
    "rotary vjp right": (
        3,
        lambda: ops.rotary(np.ones((1, 2)), cosines=np.ones((1, 1)), sines=np.zeros((1, 1)))[1](
            np.array([[1.0, -0.0]])
        )[0],
    ),
}


@pytest.mark.parametrize("site", SITES)
def test_a_clean_up_decides_bits(site: str) -> None:
    nth, call = SITES[site]
    kept = call()
    with loops.without_clean_up(floats, nth):
        left_out = call()
    assert not np.signbit(kept[kept == 0.0]).any()
    assert np.signbit(left_out[left_out == 0.0]).any()


@pytest.mark.parametrize("name", ["sines", "cosines"])
def test_position_0_turns_nothing_but_negative_zeros(name: str) -> None:
    table, x = RotaryTable(4, 3, 1e4), np.array([[-0.0, 3.0, -2.5, -0.0]])
    turned, _ = ops.rotary(x, cosines=table.cosines[:1], sines=table.sines[:1])
    assert same_bits(turned, x + 0.0)
    assert same_bits(getattr(table, name)[0], np.full(2, float(name == "cosines")))


TIES = [[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0], [0.0, -800.0], [-0.0], [800.0, -0.0]]


@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize("row", TIES)
def test_a_softmax_clean_up_that_cannot_show_shows_nowhere(row: Any, nth: int) -> None:
    kept, kept_vjp = ops.log_softmax(np.array([row]), axis=1)
    with loops.without_clean_up(floats, nth):
        left_out, vjp = ops.log_softmax(np.array([row]), axis=1)
    assert same_bits(kept, left_out)
    upstream = -np.ones((1, len(row)))
    assert same_bits(kept_vjp(upstream)[0], vjp(upstream)[0])


@pytest.mark.parametrize("row", TIES)
def test_a_loss_clean_up_that_cannot_show_shows_nowhere(row: Any) -> None:
    kept, _ = ops.indexed_mean_nll(np.array([row]), axis=1, targets=[0])
    with loops.without_clean_up(floats, 0):
        left_out, _ = ops.indexed_mean_nll(np.array([row]), axis=1, targets=[0])
    assert same_bits(kept, left_out)


@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize("base", [1.7976931348623157e308, 1e4, 1.0, 1e-300])
def test_a_table_clean_up_that_cannot_show_shows_nowhere(base: float, nth: int) -> None:
    kept = RotaryTable(4, 9, base)
    with loops.without_clean_up(floats, nth):
        left_out = RotaryTable(4, 9, base)
    assert same_bits(kept.sines, left_out.sines)
    assert same_bits(kept.cosines, left_out.cosines)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (lambda: floats.running(MINUS, axis=0), lambda: floats.total(MINUS, axis=0, keep=True)),
        (lambda: MINUS, lambda: ops.sum(MINUS, axis=0, keep=True)[0]),
        (lambda: MINUS, lambda: ops.mean(MINUS, axis=0, keep=True)[0]),
        (lambda: MINUS, lambda: floats.unbroadcast(MINUS, (1,))),
        (lambda: MINUS, lambda: floats.unbroadcast(MINUS[None], (1,))),
        (lambda: MINUS, lambda: ops.add(ZERO, ZERO)[1](MINUS)[0]),
        (lambda: MINUS, lambda: ops.broadcast_to(ZERO, shape=(1,))[1](MINUS)[0]),
        (lambda: ZERO * -1.0, lambda: ops.mul(ZERO, np.array([-1.0]))[1](ZERO)[0]),
        (lambda: ZERO * -1.0, lambda: floats.contract(ZERO[None], -np.ones((1, 1)))[0]),
        (lambda: MINUS, lambda: floats.scatter_add(MINUS[None], indices=np.zeros(1, np.int64),
                                                   count=1)[0]),
    ],
    ids=["total", "sum", "mean", "unbroadcast equal", "unbroadcast", "add", "broadcast", "mul",
         "contract", "scatter"],
)  # fmt: skip
def test_a_sum_starts_at_plus_zero(raw: Callable[[], Array], clean: Callable[[], Array]) -> None:
    assert same_bits(raw(), MINUS)
    assert same_bits(clean(), ZERO)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_contraction_by_steps_starts_at_plus_zero(columns: int) -> None:
    seen = floats.contract_steps(np.zeros((1, 1)), -np.ones((1, columns)))
    assert same_bits(seen, np.zeros((1, columns)))


@pytest.mark.parametrize(
    ("name", "arrays", "want"),
    [
        ("add", [MINUS, MINUS], MINUS), ("mul", [ZERO, -np.ones(1)], MINUS),
        ("silu", [MINUS], MINUS),
    ],
)  # fmt: skip
def test_an_operation_without_clean_up_keeps_its_zero(name: str, arrays: Any, want: Array) -> None:
    assert same_bits(getattr(ops, name)(*arrays)[0], want)


def test_a_first_arrival_is_added_to_plus_zero() -> None:
    x = Parameter("x", [1.0])
    trace = RECORDING.apply(ops.reshape, x, shape=(1,)).backward_with_trace(MINUS)
    (edge,) = trace.edges
    assert same_bits(edge.contribution, MINUS)
    assert same_bits(np.asarray(edge.adjoint_after), ZERO)
    assert same_bits(x.gradient, ZERO)


def test_a_single_class_gradient_is_plus_zero() -> None:
    _, vjp = ops.indexed_mean_nll(np.array([[3.0], [-0.0]]), axis=1, targets=[0, 0])
    assert same_bits(vjp(np.array(1.0))[0], np.zeros((2, 1)))
    assert same_bits(vjp(np.array(-1.0))[0], np.zeros((2, 1)))


# --- losses ----------------------------------------------------------------------------------

ROWS = [[0.0, 0.0], [1.5, 0.0], [0.0, 0.0]]


def from_bits(word: str) -> Array:
    return np.array(np.frombuffer(bytes.fromhex(word), ">f8")[0], dtype=np.float64)


def test_the_raw_sum_is_not_the_mean_times_the_count() -> None:
    total, _ = ops.indexed_sum_nll(np.array(ROWS), axis=1, targets=[1, 1, 1])
    mean, _ = ops.indexed_mean_nll(np.array(ROWS), axis=1, targets=[1, 1, 1])
    assert same_bits(total, from_bits("4008b3a0100c7119"))
    assert same_bits(mean, from_bits("3ff077c00ab2f611"))
    assert same_bits(mean * 3.0, from_bits("4008b3a0100c711a"))


@pytest.mark.parametrize(
    ("rows", "at", "value"),
    [
        ([[1e308, 0.0], [1e308, 0.0]], 1, math.inf),
        ([[1.7e308, -1.7e308], [0.0, 0.0]], 0, math.inf),
    ],
    ids=["the total overflows", "the first loss overflows"],
)
def test_a_raw_sum_that_overflows_is_refused(rows: Any, at: int, value: float) -> None:
    with pytest.raises(NumericRefusal) as caught:
        ops.indexed_sum_nll(np.array(rows), axis=1, targets=[1, 1])
    assert caught.value.code is Code.RAW_SUM_NOT_FINITE
    assert (caught.value.at, caught.value.value) == (at, value)


@pytest.mark.parametrize(
    ("rows", "mean"),
    [
        ([[1e308, 0.0], [1e308, 0.0]], 1e308),
        # each loss is divided first: m/2 - z/2 = 1.7e308, and the other row adds log(2)/2
        ([[1.7e308, -1.7e308], [0.0, 0.0]], 1.7e308),
        ([[0.0, 0.0], [1.7e308, -1.7e308]], 1.7e308),
    ],
)
def test_the_mean_divides_first_where_the_raw_sum_overflows(rows: Any, mean: float) -> None:
    seen, _ = ops.indexed_mean_nll(np.array(rows), axis=1, targets=[1, 1])
    assert same_bits(seen, np.array(mean))


def test_a_mean_that_is_too_large_fails_the_finite_rule() -> None:
    logits = Parameter("logits", [[1.7e308, -1.7e308]])
    with pytest.raises(NumericRefusal) as caught:
        RECORDING.apply(ops.indexed_mean_nll, logits, axis=1, targets=[1])
    assert caught.value.code is Code.NON_FINITE_FORWARD
    assert (caught.value.op, caught.value.index) == ("indexed_mean_nll", 0)


# https://github.com/tenstorrent/tt-metal/pull/10001
@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize(
    ("label", "loss", "gradient"),
    [
        (0, 0.0, [0.0, 0.0, 0.0]),
        (1, 2000.0, [1.0, -1.0, 0.0]),
        (2, 1000.0, [1.0, 0.0, -1.0]),
    ],
)
def test_huge_logits_have_their_exact_loss_and_gradient(
    shift: float, label: int, loss: float, gradient: Any
) -> None:
    row = np.array([[1000.0, -1000.0, 0.0]]) + shift
    seen, vjp = ops.indexed_mean_nll(row, axis=1, targets=[label])
    assert same_bits(seen, np.array(loss))
    assert same_bits(vjp(np.array(1.0))[0], np.array([gradient]))


@pytest.mark.parametrize("offset", [0.0, 1e17, -1e17, 2.0**70])
def test_an_exact_offset_changes_no_bit_of_a_loss(offset: float) -> None:
    step = max(1.0, math.ulp(offset))
    row = step * np.array([[3.0, 0.0, 1.0, 3.0]])
    plain = ops.log_softmax(row, axis=1)[0]
    assert same_bits(ops.log_softmax(row + offset, axis=1)[0], plain)


def test_equal_maxima_are_counted_once_each() -> None:
    value, _ = ops.log_softmax(np.array([[1e300] * 3]), axis=1)
    assert same_bits(value, -floats.log1p(np.array([[2.0] * 3])))


def test_a_zero_row_of_either_sign_has_the_same_bits() -> None:
    rows = np.array([[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0], [0.0, 0.0]])
    value, _ = ops.log_softmax(rows, axis=1)
    assert same_bits(value, np.full((4, 2), value[0, 0]))


# https://github.com/huggingface/candle/pull/1722
#
# The slope s * (1 + x * (1 - s)) is the specified form, not the best one: at -800 the sigmoid
# has underflowed, so that value and slope are -0.0 while the truths are -2.9e-345; at 40 and
# 800 the rounded 1 - s is 0, the slope is exactly 1, and the truth at 40, 1 + 1.7e-16, is one
# ulp above (the case's 1.0000000000000002). Both lie within the bound of the written form.
SILU_AT = np.array([-800.0, -40.0, 0.0, 40.0, 800.0])


def test_silu_has_its_slope_far_from_zero() -> None:
    value, vjp = ops.silu(SILU_AT)
    (slope,) = vjp(np.ones(5))
    assert same_bits(value, np.array([-0.0, -1.6993417021166355e-16, 0.0, 40.0, 800.0]))
    assert same_bits(slope, np.array([-0.0, -1.6568581595637197e-16, 0.5, 1.0, 1.0]))
    (truth,) = oracle.derivatives("silu", np.ones(5), SILU_AT)
    (bound,) = bounds.contributions("silu", np.ones(5), SILU_AT)
    assert within_bound(value, oracle.value("silu", SILU_AT), bounds.forward("silu", SILU_AT))
    assert within_bound(slope, truth, bound)


# --- the tape --------------------------------------------------------------------------------


# https://github.com/HIPS/autograd/pull/136
def test_a_repeated_id_gathers_all_its_gradients() -> None:
    table = Parameter("table", np.zeros((4, 2)))
    rows = Embedding.from_parameter(table).forward([2, 0, 2, 2])
    rows.backward([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])
    want = np.array([[2.0, 20.0], [0.0, 0.0], [8.0, 80.0], [0.0, 0.0]])
    assert same_bits(table.gradient, want)


def reused_node(x: Parameter) -> Tensor:
    y = RECORDING.apply(ops.add, x, Parameter("one", 1.0))
    return RECORDING.apply(ops.mul, y, y)


# https://github.com/karpathy/micrograd/issues/2
def test_a_reused_node_adds_both_of_its_gradients() -> None:
    x = Parameter("x", 2.0)
    trace = reused_node(x).backward_with_trace()
    assert same_bits(x.gradient, np.array(6.0))
    assert [node.op for node in trace.nodes] == ["parameter", "parameter", "add", "mul"]
    assert [edge.child for edge in trace.edges] == [3, 3, 2, 2]


# https://github.com/karpathy/micrograd/issues/53
def test_a_second_backward_adds_the_same_gradient() -> None:
    x = Parameter("x", 2.0)
    z = reused_node(x)
    z.backward()
    z.backward()
    assert same_bits(x.gradient, np.array(12.0))
