"""Two kernels under the same fused operations: what both must do, and what each claims."""

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Code,
    Decoder,
    DecodeSession,
    Parameter,
    PreparedDecoderInput,
    Refusal,
    SequenceLayout,
    SplitMix64,
    Tensor,
    TextInputEncoder,
    constant,
    floats,
    kernels,
    ops,
)
from logitproof.core.backbone import residual_sites
from logitproof.core.kernels import BLAS, KERNELS, ORDERED, Kernel
from logitproof.core.layers import RmsNorm
from logitproof.core.unfolding import pull_back, unfolded
from logitproof.properties import laws
from logitproof.properties.compare import same_bits
from logitproof.properties.situations import BRIDGE, TINY, learned_state
from logitproof.properties.subjects import BlasSubject

IDS = [[0, 2, 3], [1, 1, 0]]
FORMS = [None, ORDERED, BLAS]
TRUTH = [law for law in laws.REGISTRY if law.startswith("truth.")]


def made(kernel: Kernel | None, config: Any = TINY) -> Decoder:
    return Decoder(config, SplitMix64(7), kernel=kernel)


def refusal(call: Any) -> str:
    with pytest.raises(Refusal) as caught:
        call()
    return repr(caught.value)


def refusals(call: Any) -> list[str]:
    """What each form says, the steps first."""
    return [refusal(partial(call, made(kernel))) for kernel in FORMS]


def assign_again(decoder: Decoder, name: str) -> None:
    decoder.parameters[name].assign(decoder.parameters[name].value)


def by_hand(decoder: Decoder) -> PreparedDecoderInput:
    """Vectors that nothing made: the first operation of the graph is a block's."""
    vectors = constant(np.arange(24.0).reshape(2, 3, 4))
    layout = SequenceLayout.full(2, 3)
    return PreparedDecoderInput(decoder.backbone, RECORDING, vectors, layout, "by hand")


def chain(node: Tensor) -> list[str]:
    """The operations from a node up along the first operands, leaves left out."""
    above = chain(node._parents[0]) if node._parents[0]._parents else []
    return [node.op, *above]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_kernel_is_one_value_by_its_name(kernel: Kernel) -> None:
    assert KERNELS[kernel.name] is kernel
    assert copy.deepcopy(kernel) is copy.copy(kernel) is kernel
    assert repr(kernel) == f"<kernel {kernel.name}>"


def test_only_the_ordered_kernel_claims_bits() -> None:
    assert [kernel.name for kernel in KERNELS.values() if kernel.claims_bits] == ["ordered-f64"]


@pytest.mark.parametrize("kernel", FORMS, ids=str)
def test_a_copied_decoder_keeps_its_kernel(kernel: Kernel | None) -> None:
    twin = copy.deepcopy(made(kernel))
    assert twin.kernel is twin.backbone.kernel is twin.head.kernel is kernel


@pytest.mark.parametrize("given", ["ordered-f64", 1, Kernel])
def test_a_kernel_is_no_name_and_no_class(given: Any) -> None:
    with pytest.raises(Refusal) as caught:
        made(given)
    assert (caught.value.code, caught.value.what) == (Code.FIELD_TYPE, "kernel")


def test_ordered_is_the_default() -> None:
    assert Decoder(TINY, SplitMix64(7)).kernel is ORDERED


ASKED = [law.id for law in laws.REGISTRY.values() if not law.missing(BlasSubject())]


@pytest.mark.parametrize("law", ASKED)
def test_the_fast_kernel_keeps_what_it_claims(law: str) -> None:
    outcome = laws.REGISTRY[law](BlasSubject())
    assert outcome.holds, outcome.difference
    assert outcome.cases > 0


def test_the_fast_kernel_claims_no_law_of_bits() -> None:
    assert not [law for law in ASKED if "specified-bits" in laws.REGISTRY[law].needs]
    assert set(TRUTH) < set(ASKED)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_graph_of_fused_operations_has_a_node_for_each(kernel: Kernel) -> None:
    nodes = chain(made(kernel).loss(IDS, IDS))
    assert nodes == ["indexed_mean_nll", "matmul", "mul", *["add"] * TINY.layers, "gather_rows"]


def test_a_parameter_assigned_since_is_named_by_the_steps() -> None:
    def stale(decoder: Decoder) -> None:
        loss = decoder.loss(IDS, IDS)
        assign_again(decoder, "blocks.1.ffn.up.weight")
        assign_again(decoder, "blocks.0.attention.key.weight")
        loss.backward()

    expected, *fused = refusals(stale)
    assert "stale" in expected
    assert fused == [expected] * 2


def test_a_parameter_assigned_what_overflows_is_named_all_the_same() -> None:
    def stale(decoder: Decoder) -> None:
        loss = decoder.loss(IDS, IDS)
        gate = decoder.parameters["blocks.0.ffn.gate.weight"]
        gate.assign(np.full(gate.shape, 1e300))  # its steps cannot be made again
        loss.backward()

    assert ["stale-operand-value" in words for words in refusals(stale)] == [True] * 3


def test_a_local_pass_that_overflows_in_a_sum_refuses_as_its_steps() -> None:
    def overflowing(decoder: Decoder) -> None:
        norm, x = RmsNorm.new("norm", 2, 1e-6), Parameter("x", [[3.0, 4.0], [3.0, 4.0]])
        norm.gain.assign([1e-300, 1e-300])  # the input's contribution stays small
        output = norm.forward(x, kernel=decoder.kernel)
        pull_back(output, np.full((2, 2), 1e308), [x, norm.gain])

    expected, *fused = refusals(overflowing)
    assert "non-finite-vjp" in expected
    assert fused == [expected] * 2


def test_what_nothing_tracks_may_overflow_as_in_the_steps() -> None:
    """The constant input's contribution would: the steps have none for it."""

    def gradient(kernel: Kernel | None) -> bytes:
        norm = RmsNorm.new("norm", 2, 1e-6)
        x = constant([[1e-3, -1e-3]])
        norm.forward(x, kernel=kernel).backward([[1e306, 1e306]])
        return norm.gain.gradient.tobytes()

    assert gradient(ORDERED) == gradient(None)


def test_a_norm_of_very_many_rows_has_the_bits_of_its_steps() -> None:
    rows = np.arange(200_002.0).reshape(-1, 2) - 1e5

    def gradients(kernel: Kernel | None) -> tuple[bytes, bytes]:
        norm, x = RmsNorm.new("norm", 2, 1e-6), Parameter("x", rows)
        norm.forward(x, kernel=kernel).backward(np.ones(rows.shape))
        return x.gradient.tobytes(), norm.gain.gradient.tobytes()

    assert gradients(ORDERED) == gradients(None)


def test_a_released_operand_is_named_by_the_steps() -> None:
    def released(decoder: Decoder) -> None:
        hidden = decoder.forward(IDS).hidden
        hidden.backward(np.ones(hidden.shape), retain=False)
        decoder.backbone.blocks[0].forward(
            hidden, layout=SequenceLayout.full(2, 3), kernel=decoder.kernel
        )

    expected, *fused = refusals(released)
    assert "released" in expected
    assert fused == [expected] * 2


def test_a_released_ancestor_is_named_by_the_steps() -> None:
    def released(decoder: Decoder) -> None:
        prepared = by_hand(decoder)
        hidden = decoder.backbone.hidden(prepared)
        again, other = (RECORDING.apply(ops.mul, hidden, constant(c)) for c in (2.0, 3.0))
        again.backward(np.ones(hidden.shape), retain=False)
        other.backward(np.ones(hidden.shape))

    expected, *fused = refusals(released)
    assert "graph-released" in expected
    assert "op='mul'" in expected
    assert fused == [expected] * 2


def test_a_wrong_input_of_a_layer_is_refused_alike() -> None:
    norm = RmsNorm.new("gain", 4, 1e-6)
    wrong = (np.ones((2, 4)), constant(np.ones((2, 3))), constant(1.0), 3)
    said = [[refusal(partial(norm.forward, x, kernel=k)) for x in wrong] for k in FORMS]  # type: ignore[arg-type]
    assert said[1:] == said[:1] * 2


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_traced_pass_commits_the_gradients_of_the_steps(kernel: Kernel) -> None:
    steps, fused = made(None), made(kernel)
    steps.loss(IDS, IDS).backward()
    fused.loss(IDS, IDS).backward_with_trace()
    assert learned_state(fused) == learned_state(steps)


def test_a_graph_without_fused_nodes_is_its_own_unfolding() -> None:
    loss = made(None).loss(IDS, IDS)
    assert unfolded(loss) is loss


@pytest.mark.parametrize("site", range(2 * BRIDGE.layers + 1))
def test_a_resumed_run_has_the_bits_of_the_whole(site: int) -> None:
    decoder, layout = made(ORDERED, BRIDGE), SequenceLayout.full(2, 3)
    prepared = TextInputEncoder(decoder, IDS).encode(NO_GRAD, decoder.backbone)
    run = decoder.backbone.forward(prepared)
    state = residual_sites(run)[site]
    again = decoder.backbone.resume(site, state, layout=layout, context=NO_GRAD)
    assert same_bits(again.value, run.hidden.value)
    assert same_bits(decoder.backbone.hidden(prepared).value, run.hidden.value)


def test_cached_rows_have_the_bits_of_the_fused_forward() -> None:
    decoder, ids = made(ORDERED, BRIDGE), [0, 99, 100, 1, 7]
    with DecodeSession(decoder) as session:
        newest = [session.prefill(ids[:2]).logits, *(session.decode(i).logits for i in ids[2:])]
    whole = decoder.forward([ids], context=NO_GRAD).logits.value[0, 1:]
    assert same_bits(np.array(newest), whole)


@pytest.mark.parametrize("edge", [-1.0, 1.0])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_moderate_is_a_finite_magnitude_below_the_edge(kernel: Kernel, edge: float) -> None:
    given = [edge * 1e149, edge * 1.0000001e150, edge * np.inf, np.nan]
    found = [kernel.is_moderate(np.array([0.0, value])) for value in given]
    assert found == [True, False, False, False]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_head_over_vectors_of_another_width_is_refused_alike(kernel: Kernel) -> None:
    decoder = made(kernel)
    wrong = constant(np.ones((1, 2, 5)))
    steps = made(None).head
    assert refusal(lambda: decoder.head.forward(NO_GRAD, wrong)) == refusal(
        lambda: steps.forward(NO_GRAD, wrong)
    )


def test_the_module_gives_the_names_that_records_know() -> None:
    assert tuple(kernels.KERNELS) == ("ordered-f64", "blas-f64")
    assert isinstance(made(ORDERED).table, Parameter)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_lookup_alone_gives_its_table_every_occurrence(kernel: Kernel) -> None:
    decoder = made(kernel)
    seed = np.arange(24.0).reshape(2, 3, 4)
    decoder.forward(IDS).embeddings.backward(seed)
    expected = np.zeros(decoder.table.shape)
    np.add.at(expected, np.array(IDS), seed)
    assert same_bits(decoder.table.gradient, expected)


def test_rows_are_added_to_a_table_of_any_layout() -> None:
    rows, indices = np.arange(900.0).reshape(300, 3), np.arange(300) % 7
    tables = np.zeros((7, 3)), np.zeros((3, 7)).T
    floats.add_rows(tables[0], rows, indices=indices)
    floats.add_rows(tables[1], rows, indices=indices)
    assert same_bits(*tables)
    assert same_bits(tables[0], floats.scatter_add(rows, indices=indices, count=7))


def test_a_gradient_that_overflows_when_it_is_added_is_refused_as_by_the_steps() -> None:
    def overflowing(decoder: Decoder) -> None:
        norm, x = RmsNorm.new("norm", 2, 1e-6), constant([[3.0, 4.0]])
        norm.gain.assign([1e-200, 1e-200])  # what x gets stays small
        norm.gain.commit_gradient(np.full(2, np.finfo(np.float64).max))
        norm.forward(x, kernel=decoder.kernel).backward(np.full((1, 2), 1e300))

    expected, *fused = refusals(overflowing)
    assert "non-finite-accumulated-gradient" in expected
    assert fused == [expected] * 2


def test_what_overflows_on_its_way_to_an_ordinary_operation_is_refused_as_by_the_steps() -> None:
    def overflowing(decoder: Decoder) -> None:
        norm, x = RmsNorm.new("norm", 2, 1e-6), Parameter("x", [[1e-3, -1e-3]])
        twice = RECORDING.apply(ops.mul, x, constant(1.0))
        norm.forward(twice, kernel=decoder.kernel).backward([[1e306, 1e306]])

    expected, *fused = refusals(overflowing)
    assert "non-finite" in expected
    assert fused == [expected] * 2


def test_a_row_of_zeros_without_epsilon_is_refused_alike() -> None:
    def empty(decoder: Decoder) -> None:
        norm = RmsNorm.new("norm", 2, 0.0)
        norm.forward(constant([[3.0, 4.0], [0.0, 0.0]]), kernel=decoder.kernel)

    expected, *fused = refusals(empty)
    assert "zero-energy-row" in expected
    assert fused == [expected] * 2


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_probabilities_of_the_fast_kernel_need_no_shift_where_scores_are_small(size: float) -> None:
    # At most 1, and off by the shift (x e^-x), an exponential, two sums, its share and a division.
    scores = np.linspace(-size, size, 9).reshape(1, 1, 3, 3)
    allowed = SequenceLayout.full(1, 3).allowed()
    exact = ORDERED.causal(scores.copy(), *allowed)
    fast = BLAS.causal(scores.copy(), *allowed)
    assert np.abs(fast - exact).max() <= 8 * 2.0**-53


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_what_follows_attention_has_the_gradients_of_its_block(kernel: Kernel) -> None:
    """Of a block whose attention gives zeros: its own contributions are zeros too."""
    block, layout = made(None).backbone.blocks[0], SequenceLayout.full(2, 3)
    block.attention.output.weight.assign(np.zeros((4, 4)))
    whole, rest = (Parameter("x", np.arange(24.0).reshape(2, 3, 4) / 8) for _ in range(2))
    block.forward(whole, layout=layout, kernel=kernel).backward(np.ones(whole.shape))
    block.feed_forward(rest, context=RECORDING, kernel=kernel).backward(np.ones(rest.shape))
    assert same_bits(whole.gradient, rest.gradient)
