"""Faults real people reported against real decoders: each in its place, each value right."""

import ast
import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Attention,
    Code,
    Decoder,
    DecoderBlock,
    DecoderBlockConfig,
    DecoderConfig,
    DecodeSession,
    Embedding,
    Parameter,
    Refusal,
    RmsNorm,
    SequenceLayout,
    SplitMix64,
    Tensor,
    TextInputEncoder,
    constant,
    floats,
    ops,
    pad_documents,
)
from logitproof.core.attention import scaled_dot_product
from logitproof.core.rope import RotaryTable
from logitproof.properties import reported
from logitproof.properties.compare import within_ulps

HERE = Path(__file__).parent
CASES = {
    case["id"]: case
    for case in json.loads(
        (HERE.parent / "golden/reported-v1/reported_cases.json").read_text(encoding="utf-8")
    )
}
SMALL = DecoderConfig(
    vocabulary_size=8, model_width=4, heads=2, feed_forward_width=6, layers=2, max_positions=8
)


def expected(case: str) -> dict[str, Any]:
    found: dict[str, Any] = CASES[case]["expected"]
    return found


def given(case: str) -> dict[str, Any]:
    found: dict[str, Any] = CASES[case]["input"]
    return found


def small_decoder(seed: int = 3) -> Decoder:
    return Decoder(SMALL, SplitMix64(seed))


# --- the table -------------------------------------------------------------------------------


def test_every_reported_case_has_its_place() -> None:
    assert sorted(reported.PLACES) == sorted(CASES)


@pytest.mark.parametrize("case", reported.PLACES)
def test_a_place_says_what_its_kind_needs(case: str) -> None:
    place = reported.PLACES[case]
    tested = place.kind in (reported.Kind.VALUE, reported.Kind.REFUSED)
    assert bool(place.tests) or not tested
    assert bool(place.reason) is not tested
    assert (place.code in set(Code)) is (place.kind is reported.Kind.REFUSED)


NAMED = [(case, test) for case, place in reported.PLACES.items() for test in place.tests]


@pytest.mark.parametrize(("case", "test"), NAMED)
def test_a_place_names_a_test_that_exists(case: str, test: str) -> None:
    module, _, name = test.partition(".")
    tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert name in defined, f"{case} ({CASES[case]['source']})"


# --- rope ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "key"), [(1, "interleaved"), (0, "position_0")])
def test_rope_pairing_turns_neighbours(position: int, key: str) -> None:
    """https://github.com/NeuraLegion/shainet/pull/111"""
    table = RotaryTable(4, 2, given("rope-pairing")["base"])
    x = constant([given("rope-pairing")["x"]])
    turned = table.rotate(x, position).value[0]
    want = np.array(expected("rope-pairing")[key], dtype=np.float64)
    # two products and a sum per value, each rounded once, of terms below 2 |want|
    assert within_ulps(turned, want, 2)


def test_rope_table_keeps_full_precision_at_late_positions() -> None:
    """https://github.com/sgl-project/sglang-jax/issues/1472"""
    want = expected("rope-freq-low-precision")
    table = RotaryTable(8, 4096, 10000.0)
    pair = int(np.argmin(np.abs(table.frequencies - 0.1)))
    # the angle is off by half an ulp of itself and 4095 half ulps of the frequency
    phase = 4095 * 0.1 * 2.0**-53 * 2
    assert abs(table.cosines[4095, pair] - want["cos"]) <= phase
    assert abs(table.sines[4095, pair] - want["sin"]) <= phase


def test_rope_table_ignores_the_width_of_the_parameters() -> None:
    """https://github.com/sgl-project/sglang-jax/issues/1472"""
    weights = [Parameter(n, np.ones((4, 4), np.float16)) for n in ("q", "k", "v", "o")]
    attention = Attention.from_parameters(*weights, heads=1, max_positions=8, rope_base=1e4)
    assert attention.rotation.cosines.tobytes() == RotaryTable(4, 8, 1e4).cosines.tobytes()


# --- attention mask --------------------------------------------------------------------------


def uniform_attention(values: list[float], **ranges: Any) -> Tensor:
    """One lane of width 2 with zero queries and keys, so that weights are equal."""
    n = len(values)
    zero = constant(np.zeros((1, n, 2)))
    value = constant(np.array(values, dtype=np.float64).reshape(1, n, 1))
    return scaled_dot_product(zero, zero, value, **ranges)["mix"]


def test_an_inactive_query_gives_and_receives_exactly_zero() -> None:
    """https://github.com/pytorch/pytorch/issues/103963, with the dead row at the end"""
    q, k = Parameter("q", np.ones((1, 3, 1))), Parameter("k", [[[0.0], [1.0], [2.0]]])
    v = Parameter("v", [[[5.0], [7.0], [9.0]]])
    mix = scaled_dot_product(q, k, v, lengths=np.array([2]))["mix"]
    mix.backward(np.ones((1, 3, 1)))
    assert mix.value[0, 2].tolist() == [0.0]
    assert [p.gradient[0, 2].tolist() for p in (q, k, v)] == [[0.0], [0.0], [0.0]]
    assert all(np.isfinite(p.gradient).all() for p in (q, k, v))


def last_logits(decoder: Decoder, ids: list[int], path: str) -> bytes:
    """Logits of the first three tokens of `ids` on one of the core's execution paths."""
    padded = SequenceLayout.padded([4], 5)
    if path == "with cache":
        with DecodeSession(decoder) as session:
            return b"".join(
                step.logits.tobytes()
                for step in [session.prefill(ids[:1]), *map(session.decode, ids[1:3])]
            )
    if path == "padded batch":
        return decoder.forward([[*ids, -1]], layout=padded).logits.value[0, :3].tobytes()
    context = NO_GRAD if path == "no graph" else RECORDING
    backbone = decoder.backbone
    prepared = TextInputEncoder(decoder, [ids]).encode(context, backbone)
    run = backbone.forward_recomputed if path == "recomputed" else backbone.forward
    return decoder.head.forward(context, run(prepared).hidden).value[0, :3].tobytes()


PATHS = ["recording", "no graph", "recomputed", "with cache", "padded batch"]


@pytest.mark.parametrize("path", PATHS)
def test_a_later_token_changes_no_earlier_bit_on_any_path(path: str) -> None:
    """https://github.com/huggingface/transformers/issues/48745"""
    case, decoder = given("mask-future-leak"), small_decoder()
    a, b = last_logits(decoder, case["ids_a"], path), last_logits(decoder, case["ids_b"], path)
    assert a == b == last_logits(decoder, case["ids_a"], "recording")


@pytest.mark.parametrize("t", range(3))
def test_no_gradient_flows_from_an_earlier_output_to_a_later_input(t: int) -> None:
    """https://github.com/huggingface/transformers/issues/48745"""
    decoder = small_decoder()
    x = Parameter("x", decoder.forward([[1, 2, 3, 4]]).embeddings.value)
    hidden = decoder.backbone.resume(0, x, layout=SequenceLayout.full(1, 4), context=RECORDING)
    seed = np.zeros(hidden.shape)
    seed[0, t] = 1.0
    hidden.backward(seed)
    assert not x.gradient[0, t + 1 :].any()
    assert x.gradient[0, : t + 1].any()


def test_packed_documents_do_not_see_each_other() -> None:
    """https://github.com/huggingface/nanoVLM/pull/204"""
    layout = SequenceLayout.packed([[2, 2]], 4)
    mix = uniform_attention(given("mask-packed-leak")["v"], range_starts=layout.range_starts)
    assert mix.value.reshape(-1).tolist() == expected("mask-packed-leak")["output"]


def block_config(**stated: int) -> DecoderBlockConfig:
    return DecoderBlockConfig(
        model_width=8, heads=4, feed_forward_width=4, max_positions=4, **stated
    )


def test_grouped_heads_have_no_kernel() -> None:
    """https://github.com/ekzhang/jax-js/pull/180: stated for planning, never executed wrongly"""
    with pytest.raises(Refusal) as refused:
        DecoderBlock.new("b", block_config(kv_heads=2), SplitMix64(1))
    assert refused.value.code == Code.GROUPED_HEADS


def test_a_context_window_has_no_kernel() -> None:
    """https://github.com/ml-explore/mlx-lm/pull/390"""
    with pytest.raises(Refusal) as refused:
        DecoderBlock.new("b", block_config(context_window=3), SplitMix64(1))
    assert refused.value.code == Code.CONTEXT_WINDOW


# --- tied embeddings -------------------------------------------------------------------------


def test_the_tied_table_gets_both_gradients() -> None:
    """https://github.com/paiml/entrenar/issues/314"""
    E, want = Parameter("e", given("tied-grad-two-paths")["E"]), expected("tied-grad-two-paths")
    x = RECORDING.apply(ops.gather_rows, E, indices=[0])
    logits = RECORDING.apply(ops.matmul, x, RECORDING.apply(ops.transpose, E, axes=(0, 1)))
    loss = RECORDING.apply(ops.indexed_mean_nll, logits, axis=1, targets=[1])
    loss.backward()
    assert within_ulps(loss.value, np.array(want["loss"]), 1)
    assert within_ulps(E.gradient.reshape(-1), np.array(want["grad_E"]), 1)


def test_a_copied_decoder_stays_tied() -> None:
    """https://github.com/NVIDIA-NeMo/Automodel/pull/2511"""
    decoder = small_decoder()
    twin = copy.deepcopy(decoder)
    before = twin.forward([[1, 2]]).logits.value
    assert before.tobytes() == decoder.forward([[1, 2]]).logits.value.tobytes()
    moved = twin.table.value.copy()
    moved[2, 0] += 1.0
    twin.table.assign(moved)
    assert twin.head.table is twin.table is twin.parameters["token_embedding.weight"]
    assert twin.forward([[1, 1]]).logits.value[0, 0, 2] != before[0, 0, 2]


def test_a_decoder_of_other_nodes_for_one_name_is_refused() -> None:
    """https://github.com/NVIDIA-NeMo/Automodel/pull/2511: there is one entry for the table"""
    parameters = list(small_decoder().parameters.values())
    head = Parameter("head.weight", parameters[0].value)
    with pytest.raises(Refusal) as refused:
        Decoder.from_parameters(SMALL, [*parameters, head])
    assert refused.value.code == Code.PARAMETER_COUNT_MISMATCH


def test_the_tied_table_is_counted_once() -> None:
    """https://github.com/pytorch/torchtitan/pull/3225"""
    decoder = small_decoder()
    names = [name for name in decoder.parameters if "embedding" in name or "head" in name]
    V, D = SMALL.vocabulary_size, SMALL.model_width
    rest = sum(p.value.size for n, p in decoder.parameters.items() if n not in names)
    assert names == ["token_embedding.weight"]
    assert sum(p.value.size for p in decoder.parameters.values()) == V * D + rest


# --- ids and labels --------------------------------------------------------------------------

BAD_IDS = [[3, 100], [8], [-1], [-9], [True], [2.0], ["3"], [9223372036854775808]]


@pytest.mark.parametrize("bad", BAD_IDS, ids=repr)
def test_a_bad_id_is_refused_with_its_place(bad: list[Any]) -> None:
    """https://github.com/tinygrad/tinygrad/pull/5873"""
    embedding = Embedding.new("e", given("emb-id-range")["V"], 2, SplitMix64(1))
    with pytest.raises(Refusal) as refused:
        embedding.forward(bad)
    assert refused.value.at == len(bad) - 1
    assert refused.value.index == bad[-1] or refused.value.index == repr(bad[-1])


@pytest.mark.parametrize("good", given("emb-id-range")["good"])
def test_a_good_id_is_accepted(good: list[int]) -> None:
    """https://github.com/tinygrad/tinygrad/pull/5873"""
    embedding = Embedding.new("e", 8, 2, SplitMix64(1))
    assert embedding.forward(good).shape == (len(good), 2)


def test_large_ids_survive_storage_in_a_batch() -> None:
    """https://github.com/huggingface/transformers/issues/2825"""
    ids = expected("emb-id-narrowing")["ids"]
    batch = pad_documents([ids], vocabulary_size=119547, capacity=8)
    assert [*batch.ids[0].tolist(), int(batch.targets[0, -1])] == ids


@pytest.mark.parametrize("operation", [ops.indexed_mean_nll, ops.indexed_sum_nll])
@pytest.mark.parametrize("label", [-4, 5, -1])
def test_both_losses_refuse_the_same_labels(operation: Any, label: int) -> None:
    """https://github.com/pytorch/pytorch/issues/12670: no label is ignored by its value"""
    logits = np.array([given("loss-label-range")["logits"]], dtype=np.float64)
    with pytest.raises(Refusal) as refused:
        operation(logits, axis=1, targets=[label])
    assert (refused.value.code, refused.value.target) == (Code.TARGET_OUT_OF_BOUNDS, label)


@pytest.mark.parametrize("operation", [ops.indexed_mean_nll, ops.indexed_sum_nll])
def test_the_largest_label_has_the_reported_loss(operation: Any) -> None:
    """https://github.com/pytorch/pytorch/issues/12670"""
    logits = np.array([given("loss-label-range")["logits"]], dtype=np.float64)
    loss, _ = operation(logits, axis=1, targets=[4])
    assert within_ulps(loss, np.array(expected("loss-label-range")["4"]["loss"]), 1)


# --- norms -----------------------------------------------------------------------------------


def norm_of(row: list[float], epsilon: float) -> tuple[Parameter, Tensor]:
    x = Parameter("x", row)
    return x, RmsNorm.from_gain(Parameter("g", np.ones(len(row))), epsilon).forward(x)


def test_a_spike_row_is_normalised_with_its_own_epsilon() -> None:
    """https://github.com/apple/coremltools/pull/2822"""
    case = given("norm-eps-rescale")
    _, y = norm_of(case["rows"][0], case["eps"])
    want = expected("norm-eps-rescale")["y"][0]
    # exp(-log(2500.01) / 2): half an ulp of the logarithm 7.8 moves the result by 7.8 half ulps
    assert within_ulps(y.value, np.array(want), 8)


def test_a_zero_row_has_a_finite_norm_gradient() -> None:
    """https://github.com/apple/coremltools/pull/2822: 1 / sqrt(0.01) = 10"""
    case = given("norm-eps-rescale")
    x, y = norm_of(case["rows"][1], case["eps"])
    y.backward(np.ones(4))
    assert y.value.tolist() == [0.0] * 4
    assert within_ulps(x.gradient, np.full(4, 10.0), 6)  # |log(0.01) / 2| < 3, as above


def test_a_row_whose_squares_overflow_is_refused() -> None:
    """https://github.com/tenstorrent/tt-metal/issues/55159: the documented magnitude limit"""
    with pytest.raises(Refusal) as refused:
        norm_of(given("norm-huge-row")["x"], 1e-6)
    facts = refused.value
    assert (facts.code, facts.op, facts.index) == (Code.NON_FINITE_FORWARD, "mul", 0)


@pytest.mark.parametrize("exponent", [-200, -20, 20, 200])
def test_a_row_scaled_with_its_epsilon_is_normalised_alike(exponent: int) -> None:
    """https://github.com/tenstorrent/tt-metal/issues/55159"""
    scale = 2.0**exponent
    _, y = norm_of([0.75, -2.0, 1.5], 0.25)
    _, z = norm_of([0.75 * scale, -2.0 * scale, 1.5 * scale], 0.25 * scale * scale)
    # log(c^2 s) is larger than log(s) by up to 400 ln 2: so many half ulps of 1 enter the root
    assert within_ulps(y.value, z.value, 2 + int(2 * abs(exponent) * math.log(2)))


# --- modes -----------------------------------------------------------------------------------


def test_an_error_leaves_no_mode_behind() -> None:
    """https://github.com/huggingface/trl/issues/6659: a context is an argument, never a state"""
    x = Parameter("x", [1e200])
    with pytest.raises(Refusal):
        NO_GRAD.apply(ops.mul, x, x)
    assert RECORDING.apply(ops.add, x, x).tracked
    with pytest.raises(Refusal) as refused:
        NO_GRAD.apply(ops.add, x, x).backward([1.0])
    assert refused.value.code == Code.UNTRACKED_OUTPUT


def test_recomputation_draws_nothing() -> None:
    """https://github.com/allenai/OLMo-core/pull/828: no generator is reachable from a forward"""
    rng = SplitMix64(3)
    decoder = Decoder(SMALL, rng)
    state = rng.state
    prepared = TextInputEncoder(decoder, [[1, 2]]).encode(RECORDING, decoder.backbone)
    hidden = decoder.backbone.forward_recomputed(prepared).hidden
    hidden.backward(np.ones(hidden.shape))
    assert rng.state == state


# --- configuration ---------------------------------------------------------------------------

BAD_SIZES = [
    ({"model_width": 10, "heads": 4}, Code.MODEL_WIDTH_NOT_DIVISIBLE),
    ({"model_width": 10, "heads": 0}, Code.ZERO_HEAD_COUNT),
    ({"model_width": 12, "heads": 3, "kv_heads": 2}, Code.KV_HEADS_NOT_A_DIVISOR),
    ({"model_width": 12, "heads": 4.0}, Code.FIELD_TYPE),
    ({"model_width": True, "heads": 1}, Code.FIELD_TYPE),
]


@pytest.mark.parametrize(("sizes", "code"), BAD_SIZES)
def test_a_head_count_that_does_not_divide_is_refused_by_field(
    sizes: dict[str, Any], code: Code
) -> None:
    """https://github.com/sgl-project/sglang/pull/32028"""
    with pytest.raises(Refusal) as refused:
        DecoderBlockConfig(feed_forward_width=4, max_positions=4, **sizes)
    assert refused.value.code == code
    assert refused.value.what.startswith("config")


# --- numeric harness -------------------------------------------------------------------------


@pytest.mark.parametrize("index", range(5))
def test_exp_is_correctly_rounded_where_reported(index: int) -> None:
    """https://github.com/numpy/numpy/issues/23523"""
    x = given("num-exp-ulp")["x"][index]
    want = float.fromhex(expected("num-exp-ulp")["correctly_rounded_hex"][index])
    assert floats.exp(np.array([x])).tolist() == [want]


@pytest.mark.parametrize("row", [[0.0, -0.0], [-0.0, 0.0]])
def test_a_maximum_over_both_zeros_decides_no_bit(row: list[float]) -> None:
    """https://github.com/HypothesisWorks/hypothesis/issues/3606"""
    positive, _ = ops.log_softmax(np.zeros((1, 2)), axis=1)
    value, _ = ops.log_softmax(np.array([row]), axis=1)
    assert value.tobytes() == positive.tobytes()


@pytest.mark.parametrize("index", range(2))
def test_subnormal_numbers_are_not_flushed(index: int) -> None:
    """https://github.com/Qiskit/qiskit-aer/pull/1469"""
    smallest = np.array([2.0**-1022, 5e-324])
    halved = smallest * np.array([0.5, 1.0])
    want = float.fromhex(expected("num-ftz")["values"][index])
    assert halved[index] == want > 0


def test_figures_are_stored_as_bits() -> None:
    """https://github.com/biopython/biopython/issues/4676: 0.1 + 0.2 is not 0.3"""
    words = expected("num-repr")["hex"]
    values = np.array([0.1, np.float32(0.1), 0.1 + 0.2])
    assert [value.hex() for value in values.tolist()] == words


@pytest.mark.parametrize("name", ["quick", "ci"])
def test_derandomised_profiles_keep_no_examples(name: str) -> None:
    """https://github.com/HypothesisWorks/hypothesis/pull/819"""
    profile = settings.get_profile(name)
    assert profile.derandomize
    assert profile.database is None
