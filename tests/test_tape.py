"""Nodes, contexts and the reverse pass: identity, revisions, retention, order of additions."""

import copy
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Code,
    Parameter,
    Refusal,
    StateRefusal,
    Tensor,
    Trace,
    constant,
    ops,
)

apply = RECORDING.apply


def worked_tape() -> tuple[Parameter, Parameter, Tensor]:
    """The worked tape of tape.md section 5: parameters x and bias, and the means [11, 18]."""
    x = Parameter("x", [[1, 2, 3], [4, 5, 6]])
    bias = Parameter("bias", [1, -1, 0])
    turned = apply(ops.transpose, apply(ops.reshape, x, shape=(3, 2)), axes=(0, 1))
    summed = apply(ops.add, turned, apply(ops.broadcast_to, bias, shape=(2, 3)))
    return x, bias, apply(ops.mean, apply(ops.mul, summed, summed), axis=1)


@pytest.fixture
def traced() -> tuple[Parameter, Parameter, Trace]:
    x, bias, means = worked_tape()
    return x, bias, means.backward_with_trace([3, 6])


def test_worked_tape_gives_the_published_gradients(
    traced: tuple[Parameter, Parameter, Trace],
) -> None:
    x, bias, _ = traced
    assert x.gradient.reshape(-1).tolist() == [4, 12, 4, 12, 10, 24]
    assert bias.gradient.tolist() == [16, 16, 34]


def test_worked_tape_has_the_published_order(traced: tuple[Parameter, Parameter, Trace]) -> None:
    ops_in_order = [node.op for node in traced[2].nodes]
    assert ops_in_order == [
        "parameter", "reshape", "transpose", "parameter", "broadcast", "add", "mul", "mean",
    ]  # fmt: skip
    assert len(traced[2].edges) == 8


def test_second_use_of_an_operand_adds_to_the_first(
    traced: tuple[Parameter, Parameter, Trace],
) -> None:
    second = next(edge for edge in traced[2].edges if edge.operand == 1 and edge.child == 6)
    assert second.adjoint_before is not None
    assert second.adjoint_after is not None
    assert second.adjoint_after.reshape(-1).tolist() == [4, 4, 10, 12, 12, 24]
    assert (2 * second.adjoint_before).tolist() == second.adjoint_after.tolist()


def test_trace_and_lean_backward_give_the_same_bits() -> None:
    x, _, means = worked_tape()
    means.backward([3, 6])
    y, _, other = worked_tape()
    other.backward_with_trace([3, 6])
    assert x.gradient.tobytes() == y.gradient.tobytes()


def test_trace_holds_copies(traced: tuple[Parameter, Parameter, Trace]) -> None:
    x, _, trace = traced
    adjoint = trace.nodes[0].adjoint
    assert adjoint is not None
    with pytest.raises(ValueError, match="read-only"):
        adjoint[:] = 99.0
    assert x.gradient.max() == 24.0


def test_trace_adjoint_refuses_an_operation_that_is_there_twice() -> None:
    x = Parameter("x", [1.0])
    doubled = apply(ops.add, apply(ops.add, x, x), x)
    trace = doubled.backward_with_trace([1.0])
    with pytest.raises(StateRefusal) as refused:
        trace.adjoint("add")
    assert refused.value.code == "state/ambiguous-trace-node"


def test_trace_shows_only_ancestors_of_the_output() -> None:
    x = Parameter("x", [[1.0, 2.0]])
    apply(ops.log_softmax, x, axis=1)
    loss = apply(ops.indexed_mean_nll, x, axis=1, targets=[0])
    assert "log_softmax" not in [node.op for node in loss.backward_with_trace().nodes]


def test_untracked_parents_show_no_adjoint_in_the_trace() -> None:
    x = Parameter("x", [2.0])
    trace = apply(ops.mul, x, constant([3.0])).backward_with_trace([1.0])
    edge = trace.edges[1]
    assert (edge.parent_tracked, edge.adjoint_before, edge.adjoint_after) == (False, None, None)
    assert edge.contribution.tolist() == [2.0]


def test_gradients_accumulate_exactly_over_calls() -> None:
    x, _, means = worked_tape()
    means.backward([3, 6])
    once = x.gradient
    means.backward([3, 6])
    assert x.gradient.tobytes() == (once + once).tobytes()


def test_parameter_as_output_adds_the_seed() -> None:
    x = Parameter("x", [1.0, 2.0])
    x.backward([5.0, -7.0])
    assert x.gradient.tolist() == [5.0, -7.0]


def test_equal_values_are_not_the_same_node() -> None:
    x, y = Parameter("x", [1.0]), Parameter("x", [1.0])
    assert x.is_same_node(x)
    assert not x.is_same_node(y)


def test_detached_value_stops_the_gradient() -> None:
    x = Parameter("x", [3.0])
    apply(ops.mul, x.detach(), x).backward([1.0])
    assert x.gradient.tolist() == [3.0]
    assert x.detach().op == "detached"


@pytest.mark.parametrize(
    ("left", "tracked"), [(Parameter("x", [1.0]), True), (constant([1.0]), False)]
)
def test_recording_result_is_tracked_where_a_parent_is(left: Tensor, tracked: bool) -> None:
    assert apply(ops.add, left, constant([1.0])).tracked is tracked


def test_no_grad_result_is_an_untracked_root() -> None:
    x = Parameter("x", [1.0])
    result = NO_GRAD.apply(ops.add, x, x)
    assert not result.tracked
    assert [node.op for node in apply(ops.add, result, x).backward_with_trace([1.0]).nodes] == [
        "add", "parameter", "add",
    ]  # fmt: skip


def test_no_grad_keeps_the_bits_and_the_finite_rule() -> None:
    x = constant([1e200, 3.0])
    assert NO_GRAD.apply(ops.add, x, x).value.tobytes() == apply(ops.add, x, x).value.tobytes()
    with pytest.raises(Refusal) as refused:
        NO_GRAD.apply(ops.mul, x, x)
    assert (refused.value.op, refused.value.index) == ("mul", 0)


def test_contexts_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        RECORDING.recording = False  # type: ignore[misc]


def test_release_frees_the_graph_and_leaves_the_leaves() -> None:
    x, _, means = worked_tape()
    means.backward([3, 6], retain=False)
    with pytest.raises(Refusal) as refused:
        means.backward([3, 6])
    assert (refused.value.code, refused.value.op) == ("state/graph-released", "mean")
    assert apply(ops.add, x, x).tracked


def test_released_ancestor_is_named_downstream() -> None:
    x = Parameter("x", [1.0])
    inner = apply(ops.mul, x, x)
    outer = apply(ops.add, inner, x)
    inner.backward([1.0], retain=False)
    with pytest.raises(Refusal) as refused:
        outer.backward([1.0])
    assert (refused.value.code, refused.value.op) == ("state/graph-released", "mul")


def test_released_operand_is_refused_before_its_shape() -> None:
    x = Parameter("x", [1.0])
    inner = apply(ops.mul, x, x)
    inner.backward([1.0], retain=False)
    with pytest.raises(Refusal) as refused:
        apply(ops.matmul, x, inner)
    assert (refused.value.code, refused.value.operand) == ("state/released-operand", 1)


def test_release_elsewhere_leaves_a_live_graph_usable() -> None:
    x, y = Parameter("x", [1.0]), Parameter("y", [1.0])
    live = apply(ops.mul, y, y)
    apply(ops.mul, x, x).backward([1.0], retain=False)
    assert apply(ops.add, live, y).tracked


def test_release_takes_results_that_were_not_recorded_too() -> None:
    leaf = Parameter("p", 2.0)
    root = NO_GRAD.apply(ops.add, leaf, leaf)
    RECORDING.apply(ops.mul, leaf, root).backward(retain=False)
    with pytest.raises(StateRefusal) as refused:
        RECORDING.apply(ops.mul, leaf, root)
    assert (refused.value.code, refused.value.operand) == ("state/released-operand", 1)


def test_refused_release_releases_nothing() -> None:
    x = Parameter("x", [1.0])
    out = apply(ops.mul, x, x)
    with x.reading_gradient(), pytest.raises(Refusal):
        out.backward([1.0], retain=False)
    out.backward([1.0])
    assert x.gradient.tolist() == [2.0]


def test_assignment_raises_the_revision_and_stales_the_graph() -> None:
    x = Parameter("x", [1.0])
    out = apply(ops.mul, x, x)
    x.assign([2.0])
    assert x.revision == 1
    with pytest.raises(Refusal) as refused:
        out.backward([1.0])
    facts = refused.value
    assert (facts.child, facts.parent, facts.operand) == (1, 0, 0)
    assert (facts.recorded, facts.current) == (0, 1)


def test_readers_coexist_and_refuse_assignment() -> None:
    x = Parameter("x", [1.0])
    with x.reading(), x.reading():
        with pytest.raises(Refusal) as refused:
            x.assign([2.0])
        assert (refused.value.code, x.revision) == ("state/value-borrowed", 0)
    x.assign([2.0])


def test_a_reader_lets_go_when_its_block_raises() -> None:
    x = Parameter("x", [1.0])
    with pytest.raises(KeyError), x.reading(), x.reading_gradient():
        raise KeyError
    x.assign([2.0])
    x.zero_gradient()


def test_only_a_parameter_has_a_gradient_to_clear() -> None:
    with pytest.raises(Refusal) as refused:
        constant([1.0]).zero_gradient()
    assert (refused.value.code, refused.value.op) == ("state/not-a-parameter", "constant")


def chain_of_additions(x: Tensor, length: int) -> Tensor:
    for _ in range(length):
        x = apply(ops.add, x, constant([0.0]))
    return x


def test_deep_chain_needs_no_recursion() -> None:
    x = Parameter("x", [1.0])
    chain_of_additions(x, 5000).backward([1.0])
    assert x.gradient.tolist() == [1.0]


def test_first_arrival_turns_a_negative_zero_positive() -> None:
    x = Parameter("x", [1.0])
    apply(ops.mul, x, constant([-0.0])).backward([1.0])
    assert x.gradient.tobytes() == np.zeros(1).tobytes()


def test_an_operand_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        apply(ops.add, constant([1.0]), 1.0)  # type: ignore[arg-type]
    assert refused.value.code == "record/field-type"


def test_a_deep_copy_is_a_node_of_its_own_with_the_same_gradient() -> None:
    x = Parameter("x", [1.0])
    x.backward([4.0])
    twin = copy.deepcopy(x)
    twin.assign([9.0])
    assert (x.value.tolist(), twin.gradient.tolist()) == ([1.0], [4.0])


def test_a_graph_node_cannot_be_copied() -> None:
    with pytest.raises(TypeError):
        copy.deepcopy(apply(ops.add, constant([1.0]), constant([1.0])))


def chain_of_doublings() -> tuple[Parameter, Tensor]:
    x = Parameter("x", [1.0])
    y: Tensor = x
    for _ in range(40):
        y = apply(ops.add, y, y)
    return x, y


def test_doublings_visit_every_node_once() -> None:
    x, y = chain_of_doublings()
    trace = y.backward_with_trace([1.0])
    assert x.gradient.tolist() == [2.0**40]
    assert (len(trace.nodes), len(trace.edges)) == (41, 80)


class Twice:
    """A user's own operation: 2 x, told to the tape by its call alone."""

    __name__ = "twice"

    def __call__(self, x: np.ndarray[Any, Any]) -> Any:
        return 2.0 * x, lambda upstream: (2.0 * upstream,)


def test_the_tape_runs_an_operation_it_has_never_seen() -> None:
    x = Parameter("x", [3.0])
    out = apply(Twice(), x)
    out.backward([1.0])
    assert (out.op, x.gradient.tolist()) == ("twice", [2.0])


def test_a_reader_that_held_nothing_cannot_let_go() -> None:
    with pytest.raises(AssertionError, match="held nothing"):
        Parameter("p", 1.0).let_go()


def custom(result: object, *contributions: object) -> Any:
    """An operation of one operand, with this result and these contributions."""
    return lambda _: (result, lambda upstream: contributions)  # noqa: ARG005


@pytest.mark.parametrize(
    "contributions", [(), ([1.0],), ([1.0, 1.0], [1.0, 1.0]), ([[1.0, 1.0]],)], ids=repr
)
def test_a_rule_gives_one_contribution_of_its_shape_per_operand(contributions: Any) -> None:
    x = Parameter("x", [1.0, 2.0])
    out = apply(custom(np.ones(2), *contributions), x)
    with pytest.raises(Refusal) as caught:
        out.backward([1.0, 1.0])
    assert caught.value.code == Code.CONTRIBUTION_MISMATCH
    assert x.gradient.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "result", [np.float32(1.5), np.array(1.5, np.float16), 1.5, np.float64(1.5)], ids=repr
)
def test_a_result_of_another_kind_becomes_float64(result: Any) -> None:
    x = Parameter("x", 3.0)
    out = apply(custom(result, np.float32(0.1)), x)
    trace = out.backward_with_trace()
    assert (str(out.value.dtype), out.shape, float(out.value)) == ("float64", (), 1.5)
    assert [trace.nodes[0].adjoint.dtype, x.gradient.dtype] == [np.float64] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "given", [np.ones(2, complex), np.array(["1", "2"]), [None, None]], ids=repr
)
def test_what_a_users_operation_gives_must_be_real(given: Any) -> None:
    x = Parameter("x", [1.0, 2.0])
    with pytest.raises(Refusal) as caught:
        apply(custom(given), x)
    assert caught.value.code == Code.NOT_REAL
    with pytest.raises(Refusal) as caught:
        apply(custom(np.ones(2), given), x).backward([1.0, 1.0])
    assert caught.value.code == Code.NOT_REAL


def test_of_two_stale_operands_the_one_of_the_last_node_is_told() -> None:
    a, b, c = (Parameter(name, 1.0) for name in "abc")
    out = apply(ops.add, apply(ops.mul, a, b), c)
    a.assign(2.0)
    c.assign(2.0)
    with pytest.raises(Refusal) as caught:
        out.backward()
    assert caught.value.code == Code.STALE_OPERAND_VALUE
    assert (caught.value.what, caught.value.child, caught.value.operand) == ("add", 4, 1)


def test_a_contribution_to_an_untracked_parent_must_be_finite_too() -> None:
    p = Parameter("p", 1e200)
    out = apply(ops.mul, p, constant(1e-200))
    with pytest.raises(Refusal) as caught:
        out.backward(1e200)
    assert caught.value.code == Code.NON_FINITE_VJP
    assert (caught.value.operand, p.gradient.tolist()) == (1, 0.0)


def test_a_trace_starts_from_zeros_and_ends_with_all_that_is_stored() -> None:
    p = Parameter("p", [1.0, 2.0])
    p.backward([10.0, 20.0])
    trace = apply(ops.add, p, p).backward_with_trace([1.0, 2.0])
    before = [edge.adjoint_before.tolist() for edge in trace.edges]  # type: ignore[union-attr]
    assert before == [[0.0, 0.0], [1.0, 2.0]]
    adjoint, gradient = trace.nodes[0].adjoint, trace.nodes[0].gradient
    assert adjoint is not None
    assert gradient is not None
    assert (adjoint.tolist(), gradient.tolist()) == ([2.0, 4.0], [12.0, 24.0])


def test_what_a_trace_holds_shares_no_memory() -> None:
    p, q = Parameter("p", [1.0, 2.0]), constant([3.0, 4.0])
    out = apply(ops.mul, p, q)
    trace = out.backward_with_trace([1.0, 1.0])
    saved = [fact for edge in trace.edges for fact in edge.saved.values()]
    given = [edge.upstream for edge in trace.edges] + [edge.contribution for edge in trace.edges]
    arrays = [x for x in (*saved, *given, trace.seed) if isinstance(x, np.ndarray)]
    live = [p.value, q.value, *[x for s in out._vjp.saved for x in s.values()]]
    pairs = [*combinations(arrays, 2), *product(arrays, live)]
    assert len(arrays) == 2 + 4 + 1
    assert not any(x.flags.writeable for x in arrays)
    assert not any(np.shares_memory(x, y) for x, y in pairs if isinstance(y, np.ndarray))


def test_the_evidence_of_a_trace_cannot_be_written() -> None:
    saved: Any = apply(ops.exp, Parameter("p", 1.0)).backward_with_trace().edges[0].saved
    with pytest.raises(TypeError):
        saved["output"] = 0.0
    assert not any(x.flags.writeable for x in saved.values() if isinstance(x, np.ndarray))


def test_a_refusal_shows_no_integer_that_python_cannot_print() -> None:
    with pytest.raises(Refusal) as caught:
        apply(ops.sum, constant([1.0]), axis=10**5000)
    assert "an integer of 16610 bits" in repr(caught.value)
