"""Boundaries of the prepared input: construction, validation and consumption."""

from __future__ import annotations

import numpy as np

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    DecoderBackbone,
    DecoderBlock,
    DecoderBlockConfig,
    Linear,
    Parameter,
    PreparedDecoderInput,
    RmsNorm,
    SequenceLayout,
    SwiGlu,
    constant,
)
from logitproof.core.backbone import ExecutionIdentity
from logitproof.core.codes import Code
from logitproof.core.prepared import PREPARED_ORDER

from .arguments import kind_fault
from .boundary import Apart, Boundary, Fault, Plant, Situation, fault
from .making import decoder, ramp, weight

__all__ = ["BOUNDARIES"]

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


def reason(code: Code, name: str, plant: Plant, **facts: object) -> Fault:
    """A broken binding, with the published reason among its facts."""
    return fault(code, name, plant, reason=REASONS[code], **facts)


def _layout(s: Situation) -> SequenceLayout:
    """Full rows whose very last cell stands at `position`."""
    positions = np.tile(np.arange(s.cells), (s.rows, 1))
    if s.position is not None:
        positions[-1, -1] = s.position
    return SequenceLayout(
        lengths=np.array([s.cells] * s.rows),
        range_starts=np.zeros_like(positions),
        positions=positions,
    )


def _make(s: Situation) -> None:
    values = ramp(s.rows, s.cells, s.width)
    s.set(
        decoder=decoder(),
        backbone=decoder().backbone,
        embeddings=Parameter("x", values) if s.tracked else constant(values),
        layout=_layout(s),
        producers=[decoder().table],
    )
    s.late(s)
    if s.max_rows is not None:
        s.set(backbone=_admitted(s.backbone, s.max_rows))


def _admitted(backbone: DecoderBackbone, rows: int) -> DecoderBackbone:
    """The same blocks under an execution identity, as an admitted construction attaches it."""
    twin = DecoderBackbone(backbone.config, backbone.blocks, backbone.final_norm)
    twin._identity = ExecutionIdentity(semantic="s", run="r", construction="c", max_rows=rows)
    return twin


SHAPES = (
    reason(
        Code.PREPARED_SHAPE,
        "vectors of width 3",
        lambda s: s.set(width=3),
        actual=(2, 3, 3),
    ),
    reason(Code.PREPARED_SHAPE, "five positions", lambda s: s.set(cells=5), actual="T = 5"),
    reason(Code.PREPARED_SHAPE, "more rows than admitted", lambda s: s.set(max_rows=1)),
)

construct = Boundary(
    name="PreparedDecoderInput",
    order=(Code.FIELD_TYPE, *PREPARED_ORDER),
    build=lambda: Situation(
        rows=2, cells=3, width=2, position=None, tracked=False, max_rows=None,
        provenance="text", context=NO_GRAD, late=Situation.unchanged,
    ),
    ready=_make,
    call=lambda s: PreparedDecoderInput(
        s.backbone, s.context, s.embeddings, s.layout, s.provenance, s.producers
    ),
    faults=(
        kind_fault("backbone", None, what="backbone"),
        fault(Code.FIELD_TYPE, "no context", lambda s: s.set(context=None), actual="NoneType"),
        fault(
            Code.FIELD_TYPE,
            "array as vectors",
            lambda s: s.set(late=lambda t: t.set(embeddings=t.embeddings.value)),
            actual="ndarray",
        ),
        fault(Code.FIELD_TYPE, "number as provenance", lambda s: s.set(provenance=1), actual="int"),
        kind_fault("producers", None, what="prepared input producer_parameters"),
        fault(
            Code.FIELD_TYPE,
            "constant as producer",
            lambda s: s.set(late=lambda t: t.set(producers=[constant(1.0)])),
            actual="Tensor",
        ),
        *SHAPES,
        reason(
            Code.PREPARED_POSITION_CAPACITY,
            "position 4",
            lambda s: s.set(position=4),
            expected=4,
            actual=4,
        ),
        reason(Code.PREPARED_PROVENANCE, "no provenance", lambda s: s.set(provenance="")),
        reason(
            Code.PREPARED_RECORDING,
            "tracked vectors without recording",
            lambda s: s.set(tracked=True, context=NO_GRAD),
        ),
    ),
    apart=(
        Apart("one provenance is given", {"number as provenance"}, {"no provenance"}),
        Apart("one context is given", {"no context"}, {"tracked vectors without recording"}),
        Apart("one late change is made", {"array as vectors"}, {"constant as producer"}),
        Apart(
            "the facts name one shape", {"vectors of width 3"}, {"five positions"}
        ),
    ),
    unreachable={
        Code.PREPARED_CONFIGURATION: "captured in the same moment",
        Code.PREPARED_EMBEDDING: "captured in the same moment",
        Code.PREPARED_PARAMETER: "captured in the same moment",
        Code.PREPARED_PRODUCER: "captured in the same moment",
    },
)  # fmt: skip


# --- after the construction ------------------------------------------------------------------


def _backbone(
    parameters: list[Parameter], *, eps: float = 1e-6, blocks: int = 1, biased: bool = False
) -> DecoderBackbone:
    facts = DecoderBlockConfig(
        model_width=2, heads=1, feed_forward_width=2, max_positions=4, rms_epsilon=eps
    )
    block = DecoderBlock.from_parameters(facts, parameters[:9])
    if biased:
        gate = Linear.from_parameters(block.ffn.gate.weight, weight("bias", 2))
        ffn = SwiGlu(gate, block.ffn.up, block.ffn.down)
        block = DecoderBlock(block.attention_norm, block.attention, block.ffn_norm, ffn)
    return DecoderBackbone(
        facts,
        [block] * blocks,
        RmsNorm.from_gain(parameters[9], eps),
    )


def _prepare(s: Situation) -> None:
    nodes = [Parameter(p.name, p.value) for p in decoder().backbone.parameters]
    s.set(table=weight("table", 5, 2), nodes=nodes)
    embeddings = Parameter("x", ramp(2, 3, 2))
    made = _backbone(nodes)
    prepared = PreparedDecoderInput(made, RECORDING, embeddings, _layout(s), "by hand", (s.table,))
    s.set(prepared=prepared, backbone=made)
    for change in s.changes:
        change(s)
    if (s.eps, s.blocks, s.biased) != (1e-6, 1, False):
        s.set(backbone=_backbone(s.nodes, eps=s.eps, blocks=s.blocks, biased=s.biased))
    if s.max_rows:
        s.set(backbone=_admitted(s.backbone, s.max_rows))
    if (s.late_rows, s.late_position) != (2, None):
        s.set(rows=s.late_rows, position=s.late_position)
        prepared.layout = _layout(s)


def _foreign(s: Situation) -> None:
    s.set(nodes=[Parameter(p.name, p.value) for p in s.nodes])
    s.set(backbone=_backbone(s.nodes))


def _later(change: Plant) -> Plant:
    return lambda s: s.changes.insert(0, change)


LATE = (
    reason(
        Code.PREPARED_SHAPE, "layout of three rows", lambda s: s.set(late_rows=3), actual=(2, 3, 2)
    ),
    reason(Code.PREPARED_SHAPE, "more rows than admitted", lambda s: s.set(max_rows=1)),
    reason(
        Code.PREPARED_POSITION_CAPACITY,
        "position 7",
        lambda s: s.set(late_position=7),
        expected=4,
        actual=7,
    ),
    reason(Code.PREPARED_CONFIGURATION, "another epsilon", lambda s: s.set(eps=2e-6)),
    reason(Code.PREPARED_CONFIGURATION, "no block", lambda s: s.set(blocks=0)),
    reason(
        Code.PREPARED_PROVENANCE,
        "provenance erased",
        _later(lambda s: setattr(s.prepared, "provenance", "")),
    ),
    reason(
        Code.PREPARED_EMBEDDING,
        "vectors assigned",
        _later(lambda s: s.prepared.embeddings.assign(s.prepared.embeddings.value)),
        expected="revision 0",
        actual="revision 1",
    ),
    reason(
        Code.PREPARED_EMBEDDING,
        "equal vectors of another node",
        _later(
            lambda s: setattr(s.prepared, "embeddings", Parameter("x", s.prepared.embeddings.value))
        ),
        actual="another node",
    ),
    reason(
        Code.PREPARED_RECORDING,
        "recording given up",
        _later(lambda s: setattr(s.prepared, "context", NO_GRAD)),
    ),
    reason(
        Code.PREPARED_PARAMETER,
        "a bias more",
        lambda s: s.set(biased=True),
        expected=10,
        actual=11,
    ),
    reason(
        Code.PREPARED_PARAMETER,
        "equal parameters of other nodes",
        _later(_foreign),
        what="blocks.0.attention_norm.gain",
        actual="another node",
    ),
    reason(
        Code.PREPARED_PARAMETER,
        "gain assigned",
        _later(lambda s: s.nodes[9].assign([1.0, 1.0])),
        what="final_norm.gain",
        actual="revision 1",
    ),
    reason(
        Code.PREPARED_PRODUCER,
        "table assigned",
        _later(lambda s: s.table.assign(s.table.value)),
        what="table",
        actual="revision 1",
    ),
)


def _after(name: str, call: Plant, kind: Fault) -> Boundary:
    return Boundary(
        name=name,
        order=(Code.FIELD_TYPE, *PREPARED_ORDER),
        build=lambda: Situation(
            rows=2, cells=3, position=None, late_rows=2, late_position=None, changes=[],
            eps=1e-6, blocks=1, biased=False, max_rows=None,
        ),
        ready=_prepare,
        call=call,
        faults=(kind, *LATE),
        apart=(
            Apart("one node is bound", {"vectors assigned"}, {"equal vectors of another node"}),
            Apart("without blocks there is no bias", {"no block"}, {"a bias more"}),
        ),
    )  # fmt: skip


NO_BACKBONE = kind_fault("backbone", 1, what="backbone")
NOT_PREPARED = kind_fault("prepared", ramp(2, 3, 2), what="prepared input")

validate = _after(
    "PreparedDecoderInput.validate", lambda s: s.prepared.validate(s.backbone), NO_BACKBONE
)
consume = _after("DecoderBackbone.forward", lambda s: s.backbone.forward(s.prepared), NOT_PREPARED)
fused = _after("DecoderBackbone.hidden", lambda s: s.backbone.hidden(s.prepared), NOT_PREPARED)
recompute = _after(
    "DecoderBackbone.forward_recomputed",
    lambda s: s.backbone.forward_recomputed(s.prepared),
    NOT_PREPARED,
)

BOUNDARIES = (construct, validate, consume, fused, recompute)
