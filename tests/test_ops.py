import math
from decimal import Decimal
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitproof.core import ops
from logitproof.core.attention import Attention, scaled_dot_product
from logitproof.core.errors import Code, IndexRefusal, NumericRefusal, ShapeRefusal
from logitproof.core.gradcheck import check_gradient
from logitproof.core.layers import Linear, RmsNorm, SwiGlu, add_residual
from logitproof.core.rope import RotaryTable
from logitproof.core.tape import RECORDING, Parameter, Tensor, constant
from logitproof.properties import bounds, operands
from logitproof.properties.compare import same_bits, within_bound
from logitproof.properties.oracles import operations as oracle

EYE = np.eye(2)
# Truth and written rule are both taken to 120 digits. Where terms cancel, what is left of
# them is compared with the bound, which is u = 2^-53 of the terms and never less.
AGREEMENT = mpmath.mpf(10) ** -60


def printed(values: Any, decimals: int) -> list[str]:
    return [f"{x:z.{decimals}f}" for x in np.asarray(values).reshape(-1).tolist()]


def digits(text: str, decimals: int) -> list[str]:
    return [f"{Decimal(number):.{decimals}f}" for number in text.split()]


def weighted(values: Any, weights: Any) -> float:
    return math.fsum((np.asarray(values) * weights).reshape(-1).tolist())


def parameter(name: str, rows: Any) -> Parameter:
    return Parameter(name, np.array(rows, dtype=np.float64))


def apart(truth: Any, written: bounds.Estimate) -> list[Any]:
    """The places where the oracle's number and the written formula's disagree."""
    with mpmath.workdps(oracle.DIGITS):
        pairs = zip(truth.cells, written.pairs, strict=True)
        return [(t, w) for t, w in pairs if abs(t - w.value) > AGREEMENT * w.error]


# every operation, over drawn operands
def test_every_operation_has_operands_an_oracle_and_bounds() -> None:
    named = set(ops.__all__)
    assert set(operands.OPERATIONS) == set(oracle.FORWARD) == named
    assert {*bounds.LINEAR, *bounds.NONLINEAR} == named


@pytest.mark.property
@pytest.mark.parametrize("name", ops.__all__)
@given(data=st.data())
def test_a_value_is_within_its_bound_of_the_equation(name: str, data: st.DataObject) -> None:
    case = data.draw(operands.cases(name))
    value, _ = getattr(ops, name)(*case.operands, **case.arguments)
    truth = oracle.value(name, *case.operands, **case.arguments)
    bound = bounds.forward(name, *case.operands, **case.arguments)
    assert within_bound(value, truth, bound, empty=True)


@pytest.mark.property
@pytest.mark.parametrize("name", ops.__all__)
@given(data=st.data())
def test_every_contribution_is_within_its_bound_of_the_derivative(
    name: str, data: st.DataObject
) -> None:
    case = data.draw(operands.cases(name))
    _, vjp = getattr(ops, name)(*case.operands, **case.arguments)
    truths = oracle.derivatives(name, case.upstream, *case.operands, **case.arguments)
    limits = bounds.contributions(name, case.upstream, *case.operands, **case.arguments)
    parts = zip(vjp(case.upstream), truths, limits, strict=True)
    assert [v for v in (within_bound(*part, empty=True) for part in parts) if not v] == []


@pytest.mark.property
@pytest.mark.parametrize("name", ops.__all__)
@given(data=st.data())
def test_a_written_rule_is_the_derivative_of_the_equation(name: str, data: st.DataObject) -> None:
    case = data.draw(operands.cases(name))
    truth = oracle.value(name, *case.operands, **case.arguments)
    assert apart(truth, bounds.forward(name, *case.operands, **case.arguments)) == []
    truths = oracle.derivatives(name, case.upstream, *case.operands, **case.arguments)
    written = bounds.contributions(name, case.upstream, *case.operands, **case.arguments)
    assert [apart(t, w) for t, w in zip(truths, written, strict=True)] == [[]] * len(truths)


@pytest.mark.property
@pytest.mark.parametrize("name", ops.__all__)
@given(data=st.data())
def test_operands_and_upstream_keep_their_bits(name: str, data: st.DataObject) -> None:
    case = data.draw(operands.cases(name))
    given_arrays = (*case.operands, case.upstream)
    before = [array.copy() for array in given_arrays]
    value, vjp = getattr(ops, name)(*case.operands, **case.arguments)
    parts = vjp(case.upstream)
    pairs = zip(before, given_arrays, strict=True)
    assert [v for v in (same_bits(a, b, empty=True) for a, b in pairs) if not v] == []
    assert not any(np.shares_memory(out, a) for out in (value, *parts) for a in given_arrays)


# The first was found by a search: 120 digits did not reach from 10^114 to a unit.
@pytest.mark.parametrize("name", ["log_softmax", "indexed_mean_nll", "indexed_sum_nll"])
@pytest.mark.parametrize(
    "row", [[-1.16507229e114, -5.3e-6, -2.4e4, -6e-52], [-1e308, 0.5, 0.25, 0]]
)
def test_rows_of_any_spread_are_judged(name: str, row: Any) -> None:
    arguments = {"axis": 0} if name == "log_softmax" else {"axis": 0, "targets": np.array([0])}
    value, vjp = getattr(ops, name)(np.array(row), **arguments)
    upstream = np.full(value.shape, -2.0)
    (truth,) = oracle.derivatives(name, upstream, np.array(row), **arguments)
    (bound,) = bounds.contributions(name, upstream, np.array(row), **arguments)
    assert within_bound(vjp(upstream)[0], truth, bound)
    assert apart(truth, bound) == []


# the oracle against a second method: central differences of its own forward
@pytest.mark.parametrize(
    ("name", "points", "arguments"),
    [
        ("mul", [[[0.5, -2.0]], [[3.0], [0.25]]], {}),
        ("matmul", [[[0.5, -2.0], [1.0, 0.25]], [[3.0, 1.0], [0.25, -1.0]]], {}),
        ("mean", [[[0.5, -2.0, 4.0]]], {"axis": 1}),
        ("exp", [[0.5, -2.0]], {}),
        ("log", [[0.5, 2.0]], {}),
        ("silu", [[0.5, -1.25, 3.0]], {}),
        ("log_softmax", [[[0.5, -1.25, 3.0]]], {"axis": 1}),
        ("causal_softmax", [[[0.5, 9.0], [-1.25, 3.0]]], {}),
        ("rotary", [[[0.5, -1.25]]],
         {"cosines": np.array([[0.5]]), "sines": np.array([[0.75]])}),
        ("indexed_mean_nll", [[[0.5, -1.25], [1.0, 2.0]]],
         {"axis": 1, "targets": np.array([1, 0])}),
    ],
)  # fmt: skip
def test_the_derivative_agrees_with_differences_of_the_equation(
    name: str, points: Any, arguments: Any
) -> None:
    arrays = [np.array(point) for point in points]
    upstream = np.arange(1.0, 1.0 + len(oracle.value(name, *arrays, **arguments).cells))
    slopes = oracle.derivatives(name, upstream, *arrays, **arguments)
    differences = oracle.differences(name, upstream, *arrays, **arguments)
    pairs = [(a, b) for s, d in zip(slopes, differences, strict=True)
             for a, b in zip(s.cells, d.cells, strict=True)]  # fmt: skip
    with mpmath.workdps(oracle.DIGITS):
        assert max(abs(a - b) for a, b in pairs) < mpmath.mpf(10) ** -70


# the published central-difference checks: fixtures.md section 3
LEFT, RIGHT = [[0.4, -0.7], [1.2, 0.3]], [[0.2, -0.4], [0.9, 0.5]]
LOGITS = [[0.7, -0.4, 1.1], [-0.2, 0.3, 0.8]]


@pytest.mark.parametrize(
    ("name", "points", "operand", "arguments", "weights"),
    [
        ("matmul", [LEFT, RIGHT], 0, {}, 1.0),
        ("matmul", [LEFT, RIGHT], 1, {}, 1.0),
        ("gather_rows", [[[0.2, -0.4], [0.7, 1.1], [-0.3, 0.6]]], 0, {"indices": [2, 1, 2]}, 1.0),
        ("exp", [[-0.8, 0.2, 1.1]], 0, {}, 1.0),
        ("silu", [[-0.8, 0.2, 1.1]], 0, {}, 1.0),
        ("log", [[0.4, 1.1, 2.3]], 0, {}, 1.0),
        ("log_softmax", [LOGITS], 0, {"axis": 1}, [[0.2, -0.5, 0.7], [1.1, -0.4, 0.3]]),
        ("indexed_mean_nll", [LOGITS], 0, {"axis": 1, "targets": [2, 0]}, 1.0),
    ],
    ids=["matmul-left", "matmul-right", "gather_rows", "exp", "silu", "log", "log_softmax", "nll"],
)
def test_the_published_gradient_check_passes(
    name: str, points: Any, operand: int, arguments: Any, weights: Any
) -> None:
    arrays = [np.array(point) for point in points]

    def objective(point: Any) -> float:
        probed = [point if i == operand else array for i, array in enumerate(arrays)]
        return weighted(getattr(ops, name)(*probed, **arguments)[0], weights)

    value, vjp = getattr(ops, name)(*arrays, **arguments)
    analytic = vjp(np.ones(value.shape) * weights)[operand]
    checked = check_gradient(
        objective, arrays[operand], analytic, step=1e-6, tolerance=2e-6, samples=4
    )
    assert checked.passed
    assert len(checked.coordinates) == min(4, arrays[operand].size)


# fixtures.md section 3: typed errors, the gradient unchanged
TABLE = [[1.0, 2.0], [3.0, 4.0]]
REFUSED = [
    (TABLE, ops.gather_rows, {"indices": [2], "shape": [1]}, IndexRefusal,
     Code.GATHER_INDEX_OUT_OF_BOUNDS, {"position": 0, "index": 2, "rows": 2}),
    ([[1.0, -1.0], [0.5, -0.5]], ops.indexed_mean_nll, {"axis": 1, "targets": [0, 2]},
     IndexRefusal, Code.TARGET_OUT_OF_BOUNDS, {"group": 1, "target": 2, "classes": 2}),
    (np.zeros((0, 2)), ops.indexed_mean_nll, {"axis": 1, "targets": []}, ShapeRefusal,
     Code.EMPTY_TARGETS, {}),
    (np.finfo(np.float64).max, ops.exp, {}, NumericRefusal, Code.NON_FINITE_FORWARD,
     {"op": "exp", "index": 0, "value": math.inf}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "op", "arguments", "family", "code", "fields"),
    REFUSED,
    ids=["invalid-id", "invalid-target", "empty-targets", "exp-overflow"],
)
def test_a_refused_operation_names_the_fault_and_keeps_the_gradient(
    value: Any, op: Any, arguments: Any, family: Any, code: Code, fields: Any
) -> None:
    leaf = parameter("leaf", value)
    leaf.backward(np.ones(leaf.shape))
    before = leaf.gradient
    with pytest.raises(family) as caught:
        RECORDING.apply(op, leaf, **arguments)
    assert (type(caught.value), caught.value.code) == (family, code)
    assert {name: getattr(caught.value, name) for name in fields} == fields
    assert same_bits(leaf.gradient, before, empty=True)


# fixtures_derived.md section 3: worked figures, to the printed digits
SHIFTED = np.array([[0.0, 1.0], [1000.0, 1001.0], [-1001.0, -1000.0]])


def test_softmax_rows_print_the_worked_figures_whatever_their_shift() -> None:
    value, vjp = ops.log_softmax(SHIFTED, axis=1)
    assert printed(value, 12) == digits("-1.313261687518 -0.313261687518", 12) * 3
    assert printed(vjp.saved[0]["probabilities"], 12) == (
        digits("0.268941421370 0.731058578630", 12) * 3
    )
    assert printed(SHIFTED[:, 1] - value[:, 1], 12) == digits(
        "1.313261687518 1001.313261687518 -999.686738312482", 12
    )


def test_nll_prints_the_worked_figure() -> None:
    loss, _ = ops.indexed_mean_nll(SHIFTED, axis=1, targets=[1, 0, 1])
    assert printed(loss, 12) == ["0.646595020852"]


def test_linear_gives_the_worked_figures() -> None:
    x = parameter("x", [[[1.0, 2.0], [-1.0, 3.0]]])
    W, b = parameter("w", [[1, 0, -1], [2, 0.5, 1]]), parameter("b", [0.5, -0.5, 1])
    y = Linear.from_parameters(W, b).forward(x)
    y.backward([[[1.0, 0.0, -1.0], [0.5, 2.0, 1.0]]])
    assert y.value.tolist() == [[[5.5, 0.5, 2.0], [5.5, 1.0, 5.0]]]
    assert x.gradient.tolist() == [[[2.0, 1.0], [-0.5, 3.0]]]
    assert W.gradient.tolist() == [[0.5, -2.0, -2.0], [3.5, 6.0, 1.0]]
    assert b.gradient.tolist() == [1.5, 2.0, 0.0]


def swiglu_run() -> dict[str, Any]:
    x, gate = parameter("x", EYE), parameter("gate", [[-1, 0, 1], [0, 1, -1]])
    up, down = parameter("up", [[1, 2, 3], [3, 2, 1]]), parameter("down", [[1, 0], [0, 1], [1, -1]])
    layer = SwiGlu(*(Linear.from_parameters(p) for p in (gate, up, down)))
    out = layer.forward(x)
    out.backward(EYE)
    activated = RECORDING.apply(ops.silu, layer.gate.forward(x))
    return {
        "product": RECORDING.apply(ops.mul, activated, layer.up.forward(x)).value,
        "out": out.value,
        **{p.name: p.gradient for p in (x, gate, up, down)},
    }


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("product", "-0.268941421370 0 2.193175735890 0 1.462117157260 -0.268941421370"),
        ("out", "1.924234314520 -2.193175735890 -0.268941421370 1.731058578630"),
        ("x", "4.634916362006 -2.858777221094 2.196611933241 3.658729090501"),
        ("gate", "0.072329488129 0 2.783011535614 0 1.855341023743 -0.072329488129"),
        ("up", "-0.268941421370 0 0.731058578630 0 0.731058578630 0.268941421370"),
        ("down", "-0.268941421370 0 0 1.462117157260 2.193175735890 -0.268941421370"),
    ],
)
def test_swiglu_prints_the_worked_figures(name: str, figures: str) -> None:
    assert printed(swiglu_run()[name], 12) == digits(figures, 12)


def test_rmsnorm_prints_the_worked_figures() -> None:
    x, gain = parameter("x", [3.0, 4.0]), parameter("gain", [1.5, 0.5])
    steps = RmsNorm.from_gain(gain, 1e-5).inspect(x)
    steps["output"].backward([1.0, -2.0])
    assert printed(steps["mean_square"].value, 6) == ["12.500000"]
    assert printed(steps["inverse_rms"].value, 6) == ["0.282843"]
    assert printed(steps["output"].value, 6) == ["1.272792", "0.565685"]
    assert printed(x.gradient, 6) == ["0.407293", "-0.305470"]
    assert printed(gain.gradient, 6) == ["0.848528", "-2.262741"]


def test_residual_gives_the_worked_figures() -> None:
    x, W = parameter("x", [2.0, -1.0]), parameter("w", [[0.5, -1.0], [2.0, 0.25]])
    branch = Linear.from_parameters(W).forward(x)
    out = add_residual(x, branch, context=RECORDING, what="residual")
    out.backward([1.0, 1.0])
    assert branch.value.tolist() == [-1.0, -2.25]
    assert out.value.tolist() == [1.0, -3.25]
    assert x.gradient.tolist() == [0.5, 3.25]
    assert W.gradient.tolist() == [[2.0, 2.0], [-1.0, -1.0]]


def attention_run() -> dict[str, Any]:
    q = parameter("q", [[[0, 3], [2, -1], [1, 1]]])
    k = parameter("k", [[[3, 0], [-1, 2], [2, 1]]])
    v = parameter("v", [[[3, -3], [1, 3], [-2, 4]]])
    steps = scaled_dot_product(q, k, v)
    upstream = np.array([[[1, -0.5], [0.25, 2], [-1, 0.75]]])
    steps["mix"].backward(upstream)
    return {
        "weights": steps["probabilities"].value,
        "out": steps["mix"].value,
        "loss": weighted(steps["mix"].value, upstream),
        **{p.name: p.gradient for p in (q, k, v)},
    }


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("weights", "1 0 0 0.999151 0.000849 0 0.445808 0.108383 0.445808"),
        ("out", "3 -3 2.998303 -2.994908 0.554192 0.770959"),
        ("loss", "-0.716214"),
        ("q", "0 0 -0.027579 0.013790 -1.944424 1.756510"),
        ("k", "-1.676343 -1.655658 0.107746 0.087062 1.568596 1.568596"),
        ("v", "0.803980 1.832659 -0.108171 0.082985 -0.445808 0.334356"),
    ],
)
def test_attention_prints_the_worked_figures(name: str, figures: str) -> None:
    assert printed(attention_run()[name], 6) == digits(figures, 6)


@pytest.mark.parametrize(
    ("position", "figures"),
    [
        (0, "1 0 1 0"),
        (1, "0.540302 0.841471 0.995004 0.099833"),
        (2, "-0.416147 0.909297 0.980067 0.198669"),
    ],
)
def test_rope_prints_the_worked_rotation(position: int, figures: str) -> None:
    table = RotaryTable(4, 6, 100.0)
    turned = table.rotate(constant([[1.0, 0.0, 1.0, 0.0]]), position)
    assert printed(table.frequencies, 6) == ["1.000000", "0.100000"]
    assert printed(turned.value, 6) == digits(figures, 6)


@pytest.mark.parametrize("shift", [0, 3])
def test_rope_products_print_the_worked_grid_whatever_the_shift(shift: int) -> None:
    rows = constant(np.tile([1.0, 0.0, 1.0, 0.0], (3, 1)))
    turned = RotaryTable(4, 6, 100.0).rotate(rows, shift).value
    grid, _ = ops.matmul(turned, turned.T)
    by_distance = ["2.000000", "1.535306", "0.563920"]
    assert printed(grid, 6) == [by_distance[abs(i - j)] for i in range(3) for j in range(3)]


def multi_head_run() -> dict[str, Tensor]:
    swap = np.eye(4)[[2, 3, 0, 1]]
    c, s = np.cos([1.0, 2.0]), np.sin([1.0, 2.0])
    x = constant([[[1, 0, 1, 0], [c[0], -s[0], 0, 1], [c[1], -s[1], 1, 1]]])
    query, key, value = (parameter(name, np.eye(4)) for name in "qkv")
    attention = Attention.from_parameters(
        query, key, value, parameter("o", swap), heads=2, max_positions=6, rope_base=100.0
    )
    return attention.inspect(x)


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("probabilities", "1 0 0 0.5 0.5 0 0.333333 0.333333 0.333333 "
         "1 0 0 0.213809 0.786191 0 0.054696 0.370956 0.574348"),
        ("output", "1 0 1 0 0.213809 0.786191 0.770151 -0.420735 "
         "0.629044 0.945304 0.374718 -0.583589"),
    ],
)  # fmt: skip
def test_multi_head_attention_prints_the_worked_figures(name: str, figures: str) -> None:
    assert printed(multi_head_run()[name].value, 6) == digits(figures, 6)


def test_an_axis_may_be_an_integer_of_numpy() -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert ops.sum(x, axis=np.int64(1))[0].tolist() == [3.0, 7.0]
