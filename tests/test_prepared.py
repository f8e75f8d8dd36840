"""The hand-over of vectors to the backbone: eight reasons, live bindings, one block loop."""

from typing import Any

import numpy as np
import pytest

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    BindingRefusal,
    Code,
    Context,
    Decoder,
    DecoderBackbone,
    DecoderBlock,
    DecoderBlockConfig,
    Parameter,
    PreparedDecoderInput,
    Refusal,
    RmsNorm,
    SequenceLayout,
    SplitMix64,
    StateRefusal,
    Tensor,
    TextInputEncoder,
    TextOutputHead,
    constant,
    ops,
)
from logitproof.core.backbone import ExecutionIdentity
from logitproof.properties.compare import same_bits
from logitproof.properties.interrupts import before_first, calls_of
from logitproof.properties.situations import (
    CH10,
    TINY,
    batch_of,
    composed,
    copied,
    drawn_vectors,
    learned_state,
    new_decoder,
    run_of,
    shaken_decoder,
    warm_decoder,
    with_layers,
)

IDS, TARGETS = [[0, 99, 100]], [[99, 100, 1]]
BLOCK = DecoderBlockConfig(model_width=4, heads=2, feed_forward_width=3, max_positions=6)
REASONS = {
    Code.PREPARED_SHAPE: "B,T,D or admitted row count",
    Code.PREPARED_POSITION_CAPACITY: "position capacity",
    Code.PREPARED_CONFIGURATION: "backbone configuration or execution identity",
    Code.PREPARED_PROVENANCE: "empty producer provenance",
    Code.PREPARED_EMBEDDING: "prepared hidden tensor identity or revision",
    Code.PREPARED_RECORDING: "graph-recording mode",
    Code.PREPARED_PARAMETER: "backbone parameter node or revision",
    Code.PREPARED_PRODUCER: "producer parameter revision",
}


class Spectrum:
    """A user's own source: rows of measurements through a learned matrix of its own."""

    def __init__(self, measured: Any, *, declared: bool = True) -> None:
        self.measured = np.asarray(measured, dtype=np.float64)
        self.matrix = Parameter("spectrum.weight", drawn_vectors(3, self.measured.shape[2], 4))
        self.declared = declared

    def encode(self, context: Context, backbone: DecoderBackbone) -> PreparedDecoderInput:
        vectors = context.apply(ops.matmul, constant(self.measured), self.matrix)
        layout = SequenceLayout.full(*self.measured.shape[:2])
        declared = (self.matrix,) if self.declared else ()
        return PreparedDecoderInput(backbone, context, vectors, layout, "spectrum", declared)


def lone_backbone(layers: int = 2) -> DecoderBackbone:
    """Blocks and a norm without any text model."""
    rng = SplitMix64(5)
    blocks = [DecoderBlock.new(f"b{i}", BLOCK, rng) for i in range(layers)]
    return DecoderBackbone(BLOCK, blocks, RmsNorm.new("end.gain", 4, 1e-6))


def vectors(*shape: int) -> Tensor:
    return constant(drawn_vectors(1, *shape))


def hand_over(decoder: Decoder, **changes: Any) -> PreparedDecoderInput:
    """A prepared input of two cells with one part of it changed."""
    parts = {
        "context": NO_GRAD,
        "embeddings": vectors(1, 2, 4),
        "layout": SequenceLayout.full(1, 2),
        "provenance": "by hand",
        "producer_parameters": (),
        **changes,
    }
    return PreparedDecoderInput(decoder.backbone, **parts)


def refusal(call: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call()
    return caught.value


def at(position: int) -> SequenceLayout:
    one, start, cell = np.array([1]), np.array([[0]]), np.array([[position]])
    return SequenceLayout(lengths=one, range_starts=start, positions=cell)


def shaken_ch10() -> Decoder:
    return shaken_decoder(CH10)


# the eight reasons


@pytest.mark.parametrize("code", REASONS, ids=str)
def test_every_reason_has_the_published_text(code: Code) -> None:
    assert code.reason == REASONS[code]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"embeddings": vectors(1, 1, 3), "layout": at(0)}, Code.PREPARED_SHAPE),
        ({"embeddings": vectors(2, 2, 4)}, Code.PREPARED_SHAPE),
        ({"embeddings": vectors(1, 3, 4)}, Code.PREPARED_SHAPE),
        ({"embeddings": vectors(2, 4)}, Code.PREPARED_SHAPE),
        (
            {"embeddings": vectors(1, 7, 4), "layout": SequenceLayout.full(1, 7)},
            Code.PREPARED_SHAPE,
        ),
        ({"embeddings": vectors(1, 1, 4), "layout": at(6)}, Code.PREPARED_POSITION_CAPACITY),
        ({"provenance": ""}, Code.PREPARED_PROVENANCE),
        ({"embeddings": Parameter("x", drawn_vectors(1, 1, 2, 4))}, Code.PREPARED_RECORDING),
    ],
)
def test_a_false_hand_over_is_refused_when_it_is_made(changes: Any, code: Code) -> None:
    decoder = warm_decoder(TINY)
    before = learned_state(decoder)
    refused = refusal(lambda: hand_over(decoder, **changes))
    assert (type(refused), refused.code) == (BindingRefusal, code)
    assert refused.reason == REASONS[code]
    assert learned_state(decoder) == before


def test_the_largest_position_is_taken() -> None:
    decoder = new_decoder(TINY)
    hand_over(decoder, embeddings=vectors(1, 1, 4), layout=at(5)).validate(decoder.backbone)


def test_a_tracked_lookup_under_no_grad_is_refused() -> None:
    decoder = new_decoder(TINY)
    tracked = TextInputEncoder(decoder, [[0, 1]]).encode(RECORDING, decoder.backbone).embeddings
    assert refusal(lambda: hand_over(decoder, embeddings=tracked)).code == Code.PREPARED_RECORDING


def test_recording_over_untracked_vectors_is_taken() -> None:
    decoder = new_decoder(TINY)
    output = decoder.backbone.forward(hand_over(decoder, context=RECORDING))
    assert output.hidden.tracked


@pytest.mark.parametrize(
    ("stale", "code"),
    [
        ("vectors", Code.PREPARED_EMBEDDING),
        ("final_norm.gain", Code.PREPARED_PARAMETER),
        ("blocks.0.attention.query.weight", Code.PREPARED_PARAMETER),
        ("made.by", Code.PREPARED_PRODUCER),
    ],
)
def test_an_assignment_after_the_hand_over_is_found(stale: str, code: Code) -> None:
    decoder = warm_decoder(TINY)
    leaf, made_by = Parameter("vectors", drawn_vectors(1, 1, 2, 4)), Parameter("made.by", 1.0)
    prepared = hand_over(
        decoder, context=RECORDING, embeddings=leaf, producer_parameters=(made_by,)
    )
    changed = {**decoder.parameters, "vectors": leaf, "made.by": made_by}[stale]
    changed.assign(changed.value)
    with calls_of(DecoderBlock, "inspect") as blocks:
        refused = refusal(lambda: decoder.backbone.forward(prepared))
    assert (refused.code, refused.reason, blocks) == (code, REASONS[code], [])


def test_a_table_changed_after_encoding_is_a_changed_producer() -> None:
    decoder = new_decoder(TINY)
    prepared = TextInputEncoder(decoder, [[0, 1]]).encode(RECORDING, decoder.backbone)
    assert prepared.producer_parameters == (decoder.table,)
    decoder.table.assign(decoder.table.value)
    assert refusal(lambda: prepared.validate(decoder.backbone)).code == Code.PREPARED_PRODUCER


@pytest.mark.parametrize("recomputed", [False, True])
def test_equal_values_in_another_model_are_other_nodes(recomputed: bool) -> None:
    decoder = warm_decoder(TINY)
    prepared = hand_over(decoder, context=RECORDING)
    other = copied(decoder).backbone
    forward = other.forward_recomputed if recomputed else other.forward
    with calls_of(DecoderBlock, "forward") as run, calls_of(DecoderBlock, "inspect") as kept:
        assert refusal(lambda: forward(prepared)).code == Code.PREPARED_PARAMETER
    assert run == kept == []


@pytest.mark.parametrize(
    "other", [with_layers(TINY, 1), with_layers(TINY, 2, rms_epsilon=2e-6)], ids=["depth", "eps"]
)
def test_another_backbone_is_another_configuration(other: Any) -> None:
    prepared = hand_over(new_decoder(TINY))
    refused = refusal(lambda: prepared.validate(new_decoder(other).backbone))
    assert refused.code == Code.PREPARED_CONFIGURATION


def test_an_identity_that_appears_later_is_another_configuration() -> None:
    decoder = new_decoder(TINY)
    prepared = hand_over(decoder)
    decoder.backbone._identity = admitted(rows=1)
    assert refusal(lambda: prepared.validate(decoder.backbone)).code == Code.PREPARED_CONFIGURATION


def admitted(*, rows: int) -> ExecutionIdentity:
    return ExecutionIdentity(semantic="a", run="b", construction="c", max_rows=rows)


def test_a_batch_above_the_admitted_rows_is_refused() -> None:
    decoder = new_decoder(TINY)
    decoder.backbone._identity = admitted(rows=2)
    decoder.forward([[0], [1]], context=NO_GRAD)
    refused = refusal(lambda: decoder.forward([[0], [1], [2]], context=NO_GRAD))
    assert (refused.code, refused.reason) == (Code.PREPARED_SHAPE, REASONS[Code.PREPARED_SHAPE])


def test_a_provenance_text_authorises_nothing() -> None:
    decoder = new_decoder(TINY)
    prepared = hand_over(decoder, provenance="text token lookup")
    decoder.parameters["final_norm.gain"].assign(np.ones(4))
    assert refusal(lambda: prepared.validate(decoder.backbone)).code == Code.PREPARED_PARAMETER


# reuse


def test_a_prepared_input_may_be_consumed_again() -> None:
    decoder = shaken_decoder(TINY)
    prepared = hand_over(decoder)
    first, again = (decoder.backbone.forward(prepared).hidden for _ in range(2))
    assert same_bits(again.value, first.value)
    decoder.parameters["final_norm.gain"].assign(np.ones(4))
    assert refusal(lambda: decoder.backbone.forward(prepared)).code == Code.PREPARED_PARAMETER


def test_the_same_node_is_kept() -> None:
    decoder = new_decoder(TINY)
    leaf = Parameter("vectors", drawn_vectors(1, 1, 2, 4))
    prepared = hand_over(decoder, context=RECORDING, embeddings=leaf)
    assert prepared.embeddings.is_same_node(leaf)


# other sources


def test_a_backbone_needs_no_text_model() -> None:
    backbone = lone_backbone()
    layout = SequenceLayout.padded([2, 3], 3)
    prepared = PreparedDecoderInput(backbone, RECORDING, vectors(2, 3, 4), layout, "by hand")
    output = backbone.forward(prepared)
    seed = np.ones((2, 3, 4))
    output.hidden.backward(seed)
    assert [p.name for p in backbone.parameters][::9] == [
        "b0.attention_norm.gain",
        "b1.attention_norm.gain",
        "end.gain",
    ]
    assert all(p.gradient.any() for p in backbone.parameters)


def test_a_backbone_may_have_no_blocks() -> None:
    backbone = lone_backbone(layers=0)
    layout = SequenceLayout.full(1, 2)
    prepared = PreparedDecoderInput(backbone, NO_GRAD, vectors(1, 2, 4), layout, "by hand")
    normed = backbone.final_norm.forward(prepared.embeddings, context=NO_GRAD)
    assert same_bits(backbone.forward(prepared).hidden.value, normed.value)


def test_a_users_own_encoder_learns() -> None:
    backbone, encoder = lone_backbone(), Spectrum(drawn_vectors(2, 1, 3, 5))
    hidden = backbone.forward(encoder.encode(RECORDING, backbone)).hidden
    hidden.backward(np.ones(hidden.shape))
    assert encoder.matrix.gradient.any()


def test_a_declared_producer_that_changes_is_found() -> None:
    backbone, encoder = lone_backbone(), Spectrum(drawn_vectors(2, 1, 3, 5))
    prepared = encoder.encode(NO_GRAD, backbone)
    encoder.matrix.assign(2 * encoder.matrix.value)
    assert refusal(lambda: backbone.forward(prepared)).code == Code.PREPARED_PRODUCER


def test_an_undeclared_producer_that_changes_cannot_be_found() -> None:
    """The stated limit: nothing leads from the vectors to a parameter that nobody named."""
    backbone = lone_backbone()
    encoder = Spectrum(drawn_vectors(2, 1, 3, 5), declared=False)
    prepared = encoder.encode(NO_GRAD, backbone)
    before = backbone.forward(prepared).hidden.value
    encoder.matrix.assign(2 * encoder.matrix.value)
    assert same_bits(backbone.forward(prepared).hidden.value, before)


# guards


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("name", ["blocks.1.ffn.up.weight", "final_norm.gain", "vectors", "made"])
def test_nothing_is_assigned_while_a_forward_reads_it(name: str, recomputed: bool) -> None:
    decoder = warm_decoder(TINY)
    leaf, made = Parameter("vectors", drawn_vectors(1, 1, 2, 4)), Parameter("made", 1.0)
    prepared = hand_over(decoder, context=RECORDING, embeddings=leaf, producer_parameters=(made,))
    read = {**decoder.parameters, "vectors": leaf, "made": made}[name]
    forward = decoder.backbone.forward_recomputed if recomputed else decoder.backbone.forward
    with before_first(DecoderBackbone, "run_blocks", lambda: read.assign(read.value)):
        refused = refusal(lambda: forward(prepared))
    assert (type(refused), refused.code, refused.what) == (StateRefusal, Code.VALUE_BORROWED, name)
    read.assign(read.value)
    assert read.revision == (2 if name.endswith("gain") else 1)


@pytest.mark.parametrize("place", ["encode", "forward"])
def test_the_table_is_read_until_the_head_is_done(place: str) -> None:
    decoder = warm_decoder(TINY)
    owner = {"encode": TextInputEncoder, "forward": TextOutputHead}[place]
    with before_first(owner, place, lambda: decoder.table.assign(decoder.table.value)):
        assert refusal(lambda: decoder.forward([[0, 1]])).code == Code.VALUE_BORROWED
    decoder.table.assign(decoder.table.value)
    assert decoder.table.revision == 1


# composition


@pytest.mark.parametrize(
    ("given", "packed"),
    [
        ([[0, 99, 100, 1]], False),
        ([[0, 99, 1], [0, 100, 101, 102, 1]], False),
        ([[0, 99, 100, 1], [0, 101, 1], [0, 102, 103, 104, 1]], True),
    ],
    ids=["ordinary", "padded", "packed"],
)
def test_the_model_is_the_composition_of_its_parts(given: Any, packed: bool) -> None:
    decoder, parts = shaken_ch10(), shaken_ch10()
    batch = batch_of(CH10, given, packed=packed)
    whole = decoder.forward(batch.ids, layout=batch.layout)
    run = composed(parts, batch)
    assert same_bits(whole.embeddings.value, run.prepared.embeddings.value)
    assert same_bits(whole.hidden.value, run.output.hidden.value)
    assert same_bits(whole.logits.value, run.logits.value)
    seed = drawn_vectors(9, *whole.logits.shape)
    whole.logits.backward(seed)
    run.logits.backward(seed)
    assert learned_state(parts) == learned_state(decoder)


def test_no_grad_and_recording_give_the_same_bits() -> None:
    decoder = shaken_ch10()
    logits = [decoder.forward(IDS, context=context).logits for context in (RECORDING, NO_GRAD)]
    assert same_bits(logits[1].value, logits[0].value)
    assert [each.tracked for each in logits] == [True, False]


def test_a_detached_head_has_the_same_numbers_and_no_path_to_the_table() -> None:
    decoder = shaken_ch10()
    hidden = constant(drawn_vectors(4, 1, 3, 4))
    live, detached = decoder.head, TextOutputHead(decoder.table.detach())
    logits = [head.forward(RECORDING, hidden) for head in (live, detached)]
    assert same_bits(logits[1].value, logits[0].value)
    assert [each.tracked for each in logits] == [True, False]


def test_lookup_and_head_share_one_node() -> None:
    decoder = new_decoder(CH10)
    assert decoder.embedding.table.is_same_node(decoder.head.table)
    assert list(decoder.parameters.values()).count(decoder.table) == 1
    assert (len(decoder.parameters), sum(p.value.size for p in decoder.parameters.values())) == (
        20,
        1372,
    )


# inputs.md section 6


def partition() -> tuple[Any, Any, Any]:
    """Total, lookup and head gradient of the ch10 table, each from a pass of its own."""
    decoder = new_decoder(CH10)
    batch = batch_of(CH10, [[0, 99, 100, 1]], packed=False)
    decoder.loss(IDS, TARGETS).backward()
    total = decoder.table.gradient
    lookup = lookup_gradient(decoder)
    prepared = PreparedDecoderInput(
        decoder.backbone,
        RECORDING,
        composed(decoder, batch).prepared.embeddings.detach(),
        batch.layout,
        "detached lookup",
    )
    decoder.table.zero_gradient()
    run_of(decoder, batch, prepared, mean=True).loss.backward()
    return total, lookup, decoder.table.gradient


def lookup_gradient(decoder: Decoder) -> Any:
    """The table's gradient through the lookup alone: the head reads a detached table."""
    decoder.table.zero_gradient()
    prepared = TextInputEncoder(decoder, IDS).encode(RECORDING, decoder.backbone)
    hidden = decoder.backbone.forward(prepared).hidden
    logits = TextOutputHead(decoder.table.detach()).forward(RECORDING, hidden)
    RECORDING.apply(ops.indexed_mean_nll, logits, axis=2, targets=TARGETS[0]).backward()
    return decoder.table.gradient


def test_the_table_gradient_is_lookup_plus_head_in_every_coordinate() -> None:
    total, lookup, head = partition()
    assert total.size == 1032
    assert float(np.max(abs(total - (lookup + head)))) == 0.0


def test_the_published_coordinate_of_the_partition_has_its_bits() -> None:
    parts = [float(gradient.reshape(-1)[396]) for gradient in partition()]
    assert parts == [0.021167554563529468, 0.02265892535638777, -0.0014913707928583008]


def test_the_ch10_loss_has_its_bits() -> None:
    loss = new_decoder(CH10).loss(IDS, TARGETS)
    assert loss.value.tobytes()[::-1].hex() == "4016ac70bf03b620"
