"""Recomputed blocks give the bits of retained ones, keep less, and never guess."""

from typing import Any

import numpy as np
import pytest

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    BindingRefusal,
    Code,
    DecoderConfig,
    NumericRefusal,
    Parameter,
    PreparedDecoderInput,
    Refusal,
    StateRefusal,
    Tensor,
    TextBatch,
    constant,
    ops,
)
from logitproof.core.block import DecoderBlock
from logitproof.core.checkpoint import checkpoint
from logitproof.core.layout import SequenceLayout
from logitproof.core.retained import memory_owner, retained_arrays, retained_bytes
from logitproof.properties.compare import same_bits
from logitproof.properties.interrupts import Interrupted, calls_of, failing_operation
from logitproof.properties.situations import (
    BRIDGE,
    TINY,
    batch_of,
    composed,
    gradients,
    learned_state,
    new_decoder,
    shaken_decoder,
    warm_decoder,
    with_layers,
)

RAGGED = [[0, 1], [0, 2, 3, 4], [0, 3, 1], [1, 2]]
LONGEST = np.finfo(np.float64).max
NO_EPSILON = DecoderConfig(
    vocabulary_size=3,
    model_width=4,
    heads=1,
    feed_forward_width=4,
    layers=1,
    max_positions=3,
    rms_epsilon=0.0,
)
VALUE = "blocks.0.attention.value.weight"


def ragged(*, packed: bool) -> TextBatch:
    return batch_of(TINY, RAGGED, packed=packed)


class Doubling:
    """Two multiplications by weights of its own, in the place of a decoder block."""

    def __init__(self, name: str) -> None:
        self.parameters = tuple(Parameter(f"{name}.{i}", 2.0) for i in range(2))
        self.attention = shaken_decoder(TINY).backbone.blocks[0].attention
        self.contexts: list[Any] = []

    def forward(self, x: Tensor, *, layout: object, context: Any, kernel: object) -> Tensor:
        del layout, kernel
        self.contexts.append(context)
        for weight in self.parameters:
            x = context.apply(ops.mul, x, weight)
        return x


def chain(*, recomputed: bool) -> tuple[Parameter, list[Doubling], Tensor]:
    """h1 .. h4 from h0 = 1 through four weights of 2, two to a block."""
    start, blocks = Parameter("start", 1.0), [Doubling("first"), Doubling("second")]
    x: Tensor = start
    layout = SequenceLayout.full(1, 1)
    for layer, block in enumerate(blocks):
        if recomputed:
            given: Any = block
            x = checkpoint(given, x, layout=layout, context=RECORDING, layer=layer)
        else:
            x = block.forward(x, layout=layout, context=RECORDING, kernel=None)
    return start, blocks, x


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layers", range(4))
def test_recomputed_equals_retained_bit_for_bit(layers: int, packed: bool) -> None:
    retained, recomputed = (shaken_decoder(with_layers(TINY, layers)) for _ in range(2))
    kept = composed(retained, ragged(packed=packed), mean=True)
    again = composed(recomputed, ragged(packed=packed), mean=True, recomputed=True)
    assert same_bits(again.logits.value, kept.logits.value)
    assert same_bits(again.loss.value, kept.loss.value)
    kept.loss.backward()
    again.loss.backward()
    assert learned_state(recomputed) == learned_state(retained)


def test_recomputed_equals_retained_at_the_bridge_size() -> None:
    retained, recomputed = (shaken_decoder(BRIDGE) for _ in range(2))
    batch = batch_of(BRIDGE, [list(range(3, 20)), [0, 99, 100, 1]], packed=False)
    composed(retained, batch).loss.backward()
    composed(recomputed, batch, recomputed=True).loss.backward()
    assert learned_state(recomputed) == learned_state(retained)


def test_recomputed_gives_the_input_gradient_of_retained() -> None:
    decoder = shaken_decoder(TINY)
    kept, again = (composed(decoder, ragged(packed=True), recomputed=r) for r in (False, True))
    traces = [run.loss.backward_with_trace() for run in (kept, again)]
    lookups: list[Any] = [next(n.adjoint for n in t.nodes if n.op == "gather_rows") for t in traces]
    assert same_bits(lookups[1], lookups[0])


def test_two_backward_passes_recompute_twice_and_add_up() -> None:
    decoder, other = shaken_decoder(TINY), shaken_decoder(TINY)
    kept, again = (
        composed(decoder, ragged(packed=False)),
        composed(other, ragged(packed=False), recomputed=True),
    )
    kept.loss.backward()
    kept.loss.backward()
    with calls_of(DecoderBlock, "forward") as calls:
        again.loss.backward()
        again.loss.backward()
    assert len(calls) == 2 * TINY.layers
    assert learned_state(other) == learned_state(decoder)


@pytest.mark.parametrize(
    ("recomputed", "context", "blocks", "op"),
    [
        (False, RECORDING, TINY.layers, "add"),
        (False, NO_GRAD, TINY.layers, "add"),
        (True, RECORDING, 0, "checkpoint"),
        (True, NO_GRAD, TINY.layers, "add"),
    ],
)
def test_the_call_decides_what_is_kept(
    recomputed: bool, context: Any, blocks: int, op: str
) -> None:
    run = composed(
        shaken_decoder(TINY), ragged(packed=False), recomputed=recomputed, context=context
    )
    assert len(run.output.blocks) == blocks
    assert [boundary.op for boundary in run.output.boundaries[1:]] == [op] * TINY.layers
    assert run.output.hidden.tracked == context.recording


def test_recomputation_without_recording_is_the_plain_forward() -> None:
    decoder = shaken_decoder(TINY)
    kept, again = (
        composed(decoder, ragged(packed=True), recomputed=r, context=NO_GRAD) for r in (False, True)
    )
    assert same_bits(again.logits.value, kept.logits.value)
    assert not again.output.boundaries[-1]._parents


def test_a_checkpoint_reads_the_boundary_then_nine_parameters() -> None:
    decoder = shaken_decoder(TINY)
    run = composed(decoder, ragged(packed=False), recomputed=True)
    first, second = run.output.boundaries[1:]
    assert first._parents == (run.prepared.embeddings, *decoder.backbone.blocks[0].parameters)
    assert second._parents == (first, *decoder.backbone.blocks[1].parameters)


def test_a_changed_parameter_refuses_before_any_block_runs_again() -> None:
    decoder = warm_decoder(TINY)
    run = composed(decoder, ragged(packed=False), recomputed=True)
    decoder.parameters[VALUE].assign(decoder.parameters[VALUE].value)
    before = learned_state(decoder)
    with calls_of(DecoderBlock, "forward") as calls, pytest.raises(BindingRefusal) as caught:
        run.loss.backward()
    assert caught.value.code == Code.STALE_OPERAND_VALUE
    assert (calls, learned_state(decoder)) == ([], before)


def test_a_refusal_while_recomputing_commits_nothing() -> None:
    decoder = warm_decoder(TINY)
    run = composed(decoder, ragged(packed=False), recomputed=True)
    before = learned_state(decoder)
    decoder.backbone.blocks[0].ffn_norm.epsilon = 0.0  # padded cells now have no energy
    with pytest.raises(StateRefusal) as caught:
        run.loss.backward()
    assert caught.value.code == Code.CHECKPOINT_REFUSED
    assert (caught.value.what, caught.value.actual) == ("blocks.0", "numeric/zero-energy-row")
    assert learned_state(decoder) == before


@pytest.mark.parametrize("number", [0, 1])
def test_an_interrupt_while_recomputing_commits_nothing(number: int) -> None:
    decoder = warm_decoder(TINY)
    run = composed(decoder, ragged(packed=False), recomputed=True)
    before = learned_state(decoder)
    with failing_operation(number), pytest.raises(Interrupted):
        run.loss.backward()
    assert learned_state(decoder) == before


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_full_gradient_refuses_alike_on_both_paths(recomputed: bool) -> None:
    decoder = shaken_decoder(TINY)
    full = decoder.parameters[VALUE]
    run = composed(decoder, ragged(packed=False), recomputed=recomputed)
    full.commit_gradient(np.full(full.shape, LONGEST))
    before = learned_state(decoder)
    with pytest.raises(NumericRefusal) as caught:
        run.loss.backward(1e304)
    assert caught.value.code == Code.NON_FINITE_ACCUMULATED_GRADIENT
    assert (caught.value.what, learned_state(decoder)) == (VALUE, before)


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_borrowed_gradient_refuses_alike_on_both_paths(recomputed: bool) -> None:
    decoder = warm_decoder(TINY)
    run = composed(decoder, ragged(packed=False), recomputed=recomputed)
    before = learned_state(decoder)
    with decoder.parameters[VALUE].reading_gradient(), pytest.raises(Refusal) as caught:
        run.loss.backward()
    assert caught.value.code == Code.GRADIENT_BORROWED
    assert learned_state(decoder) == before


@pytest.mark.parametrize("packed", [False, True])
def test_recomputation_retains_less(packed: bool) -> None:
    decoder = shaken_decoder(with_layers(BRIDGE, 2))
    batch = batch_of(BRIDGE, [list(range(3, 20)), list(range(99, 110))], packed=packed)
    kept, again = (composed(decoder, batch, recomputed=r).output for r in (False, True))
    assert retained_bytes(again.hidden) < retained_bytes(kept.hidden) / 2


def test_a_recomputed_block_keeps_one_boundary() -> None:
    depths = [
        composed(shaken_decoder(with_layers(TINY, n)), ragged(packed=False), recomputed=True)
        for n in (1, 2)
    ]
    learned = [
        sum(p.value.nbytes for p in shaken_decoder(with_layers(TINY, n)).parameters.values())
        for n in (1, 2)
    ]
    tables = 8 * (1 + 2 * TINY.max_positions)  # of one block: frequency, cosines, sines
    grown = np.diff([retained_bytes(run.output.hidden) for run in depths])
    assert grown == [depths[0].output.hidden.value.nbytes + learned[1] - learned[0] + tables]


def test_a_recipe_holds_handles_and_no_copies() -> None:
    decoder = shaken_decoder(TINY)
    run = composed(decoder, ragged(packed=True), recomputed=True)
    tables = [block.attention.rotation for block in decoder.backbone.blocks]
    handles = [p._value for p in decoder.parameters.values()]
    handles += [a for t in tables for a in (t.frequencies, t.cosines, t.sines)]
    handles += [getattr(run.output.layout, n) for n in ("lengths", "range_starts", "positions")]
    owners = {id(array) for array in retained_arrays(run.logits)}
    assert {id(memory_owner(array)) for array in handles} <= owners


def test_retained_bytes_count_an_array_once() -> None:
    x = Parameter("x", np.ones(4))
    y = RECORDING.apply(ops.mul, x, x)
    assert retained_bytes(y) == retained_bytes(y, x, y) == 2 * 32


def test_retained_bytes_count_what_a_rule_closes_over() -> None:
    x = Parameter("x", np.ones(4))
    assert retained_bytes(RECORDING.apply(ops.silu, x)) == 3 * 32  # x, sigmoid, result


def test_without_recording_nothing_above_is_retained() -> None:
    x = NO_GRAD.apply(ops.silu, constant(np.ones(4)))
    assert retained_bytes(x) == 32


@pytest.mark.parametrize("recomputed", [False, True])
def test_the_worked_chain_has_its_gradients(recomputed: bool) -> None:
    start, blocks, out = chain(recomputed=recomputed)
    out.backward()
    assert out.value == 16.0
    assert [float(w.gradient) for block in blocks for w in block.parameters] == [8.0] * 4
    assert float(start.gradient) == 16.0


def test_the_worked_chain_retains_three_of_its_five_values() -> None:
    kept, again = (retained_arrays(chain(recomputed=r)[2]) for r in (False, True))
    weights, layout, rotations = 4, 3, 2 * 3
    assert (len(kept), len(again)) == (weights + 5, weights + 3 + layout + rotations)


def test_the_worked_chain_multiplies_each_block_again() -> None:
    """The packet counts two: ours runs a block to its end, whose value is at hand already."""
    _, _, out = chain(recomputed=True)
    with calls_of(ops, "mul") as calls:
        out.backward()
    assert len(calls) == 2 + 2


def test_gradients_by_name_are_in_stable_order() -> None:
    decoder = shaken_decoder(TINY)
    assert list(gradients(decoder)) == TINY.parameter_names()


def test_a_recomputed_block_records_in_the_reverse_pass_alone() -> None:
    _, blocks, out = chain(recomputed=True)
    assert [block.contexts for block in blocks] == [[NO_GRAD]] * 2
    out.backward()
    assert [block.contexts for block in blocks] == [[NO_GRAD, RECORDING]] * 2


def learned_from_constants(execution: str) -> object:
    """The state after one pass whose smallest vectors and largest seeds nothing tracks."""
    small = np.full((1, 2, 4), 1e-150) * [1, 2, 3, -1]
    seed = np.zeros((1, 2, 4))
    seed[0, 0, 0], seed[0, 1, 1] = 1e30, -3e200
    decoder = new_decoder(NO_EPSILON)
    prepared = PreparedDecoderInput(
        decoder.backbone, RECORDING, constant(small), SequenceLayout.full(1, 2), "by hand"
    )
    getattr(decoder.backbone, execution)(prepared).hidden.backward(seed)
    return learned_state(decoder)


def test_an_untracked_boundary_gives_the_bits_of_the_retained_path() -> None:
    assert learned_from_constants("forward_recomputed") == learned_from_constants("forward")


def test_an_overflow_of_the_recomputed_reverse_pass_names_its_place() -> None:
    decoder = warm_decoder(TINY)
    run = composed(decoder, ragged(packed=False), recomputed=True)
    before = learned_state(decoder)
    with pytest.raises(NumericRefusal) as caught:
        run.output.boundaries[2].backward(np.full(run.output.hidden.shape, LONGEST))
    assert caught.value.code == Code.NON_FINITE_VJP
    assert caught.value.place == "blocks.1.activation checkpoint"
    assert learned_state(decoder) == before
