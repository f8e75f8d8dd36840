"""Boundaries of cached rows: binding a session to them, cached execution, one layer's rows."""

from __future__ import annotations

import numpy as np

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Decoder,
    DecodeSession,
    KvCache,
    Parameter,
    PreparedDecoderInput,
    SequenceLayout,
    constant,
)
from logitproof.core.cache import BIND_ORDER, LayerCache
from logitproof.core.codes import Code
from logitproof.core.incremental import CACHED_ORDER, run_cached
from logitproof.core.prepared import PREPARED_ORDER

from .arguments import kind_fault
from .boundary import Apart, Boundary, Fault, Plant, Situation, fault, refuses
from .hand_over import reason
from .making import config, decoder, parameter, ramp

__all__ = ["BOUNDARIES", "CAPACITY", "model"]

CAPACITY = 4


def model() -> Decoder:
    """A decoder of two blocks, with gradients, that no other situation guards."""
    shared = decoder(layers=2)
    nodes = [parameter(p.name, p.value) for p in shared.parameters.values()]
    return Decoder.from_parameters(shared.config, nodes)


# --- binding a cache -------------------------------------------------------------------------


def _bind_ready(s: Situation) -> None:
    """The cache of an ended session, offered to a decoder over `nodes`."""
    made = model()
    with DecodeSession(made, KvCache(made)) as session:  # a new cache is free
        session.prefill([0, 1])
    facts = config(layers=2, max_positions=CAPACITY, rms_epsilon=s.eps)
    nodes = list(made.parameters.values())
    if s.foreign:
        nodes = [Parameter(p.name, p.value) for p in nodes]
    if s.stale:
        nodes[3].assign(nodes[3].value)
    s.set(decoder=Decoder.from_parameters(facts, nodes), cache=session.cache)
    for change in s.changes:
        change(s)


def _later(change: Plant) -> Plant:
    """A change of the live objects, made after those of the later rules."""
    return lambda s: s.changes.append(change)


def _first_layer(**facts: object) -> Plant:
    def change(s: Situation) -> None:
        for name, value in facts.items():
            setattr(s.cache.layers[0], name, value)

    return _later(change)


def _turned_otherwise(layer: int, step: int) -> Plant:
    """Rows whose keys were turned by frequencies of another base, the next one up or down."""

    def change(s: Situation) -> None:
        layers = s.layers if hasattr(s, "layers") else s.cache.layers
        *facts, bits = layers[layer]._facts
        layers[layer]._facts = (*facts, f"{int(bits, 16) + step:016x}")

    return _later(change)


def _of_another_attention(s: Situation) -> None:
    other = KvCache(model())
    s.cache.layers[0]._bindings = other.layers[0]._bindings


bind = Boundary(
    name="DecodeSession",
    order=BIND_ORDER,
    build=lambda: Situation(changes=[], eps=1e-6, foreign=False, stale=False),
    ready=_bind_ready,
    call=lambda s: DecodeSession(s.decoder, s.cache),
    faults=(
        fault(
            Code.FIELD_TYPE,
            "backbone as decoder",
            _later(lambda s: s.set(decoder=s.decoder.backbone)),
            what="session decoder",
            actual="DecoderBackbone",
        ),
        fault(
            Code.FIELD_TYPE,
            "layer as cache",
            _later(lambda s: s.set(cache=s.cache.layers[0])),
            what="session cache",
            actual="LayerCache",
        ),
        fault(
            Code.CACHE_IN_USE,
            "a session still open",
            _later(lambda s: s.cache.hold()),
            actual="an open session",
        ),
        fault(Code.MODEL_CONFIG_MISMATCH, "another epsilon", lambda s: s.set(eps=2e-6)),
        fault(
            Code.MODEL_PARAMETER_COUNT_MISMATCH,
            "a binding lost",
            _later(lambda s: setattr(s.cache, "_bindings", s.cache._bindings[1:])),
            expected=19,
            actual=20,
        ),
        fault(
            Code.MODEL_PARAMETER_MISMATCH,
            "equal parameters of other nodes",
            lambda s: s.set(foreign=True),
            index=0,
        ),
        fault(
            Code.MODEL_PARAMETER_REVISION_MISMATCH,
            "key weight assigned",
            lambda s: s.set(stale=True),
            index=3,
            cache=0,
            model=1,
        ),
        fault(
            Code.CACHE_LAYER_COUNT_MISMATCH,
            "a layer lost",
            _later(lambda s: setattr(s.cache, "layers", s.cache.layers[:1])),
            expected=2,
            actual=1,
        ),
        fault(
            Code.LAYER_LENGTH_INVARIANT,
            "a row of one layer lost",
            _first_layer(length=1),
            layer=0,
            expected=2,
            actual=1,
        ),
        fault(
            Code.LAYER_LENGTH_INVARIANT,
            "a row of one layer too many",
            _first_layer(length=3),
            layer=0,
            expected=2,
            actual=3,
        ),
        fault(Code.CACHE_LAYER_MISMATCH, "batch of two", _first_layer(batch=2), layer=0),
        fault(Code.CACHE_LAYER_MISMATCH, "capacity of nine", _first_layer(capacity=9), layer=0),
        fault(
            Code.CACHE_LAYER_MISMATCH,
            "rows of another attention",
            _later(_of_another_attention),
            layer=0,
            actual="another node",
        ),
        fault(Code.CACHE_LAYER_MISMATCH, "rows of a lower base", _turned_otherwise(1, -1), layer=1),
        fault(Code.CACHE_LAYER_MISMATCH, "rows of a higher base", _turned_otherwise(1, 1), layer=1),
    ),
    apart=(Apart("one base is stored", {"rows of a lower base", "rows of a higher base"}),),
)


fresh = Boundary(
    name="KvCache",
    order=refuses(KvCache),
    build=lambda: Situation(decoder=decoder()),
    call=lambda s: KvCache(s.decoder),
    faults=(kind_fault("decoder", None, what="cache decoder"),),
)

# --- cached execution ------------------------------------------------------------------------


def _run_ready(s: Situation) -> None:
    s.set(decoder=model())
    with DecodeSession(s.decoder) as session:
        session.prefill([0, 1])
    s.set(layers=session.cache.layers)
    layout = SequenceLayout(
        lengths=np.array([s.cells]),
        range_starts=np.zeros((1, s.cells), dtype=np.int64),
        positions=np.arange(s.position, s.position + s.cells)[None],
    )
    prepared = PreparedDecoderInput(
        s.decoder.backbone, s.context, constant(ramp(1, s.cells, 2)), layout, "by hand",
        (s.decoder.table,),
    )  # fmt: skip
    s.set(prepared=prepared)
    for change in s.changes:
        change(s)


def _set_layer(layer: int, **facts: object) -> Plant:
    def change(s: Situation) -> None:
        for name, value in facts.items():
            setattr(s.layers[layer], name, value)

    return _later(change)


def _other_rows(layer: int) -> Plant:
    def change(s: Situation) -> None:
        s.layers[layer]._bindings = KvCache(model()).layers[layer]._bindings

    return _later(change)


def _cached(code: Code, name: str, plant: Plant, **facts: object) -> Fault:
    texts = {
        Code.PREPARED_CACHED_MODE: "cached mode, position or layers",
        Code.PREPARED_CACHE_PREFIX: "cache prefix/batch/capacity",
        Code.PREPARED_CACHE_BINDING: "cache parameter binding",
    }
    return fault(code, name, plant, reason=texts[code], **facts)


cached = Boundary(
    name="run_cached",
    order=(*PREPARED_ORDER, *CACHED_ORDER, *CACHED_ORDER[1:]),  # the last two per layer
    build=lambda: Situation(changes=[], cells=1, position=2, context=NO_GRAD),
    ready=_run_ready,
    call=lambda s: run_cached(s.decoder.backbone, s.prepared, s.layers, 2),
    faults=(
        reason(
            Code.PREPARED_PROVENANCE,
            "provenance erased",
            _later(lambda s: setattr(s.prepared, "provenance", "")),
        ),
        reason(
            Code.PREPARED_PRODUCER,
            "table assigned",
            _later(lambda s: s.decoder.table.assign(s.decoder.table.value)),
        ),
        _cached(Code.PREPARED_CACHED_MODE, "recording", lambda s: s.set(context=RECORDING)),
        _cached(Code.PREPARED_CACHED_MODE, "two new rows", lambda s: s.set(cells=2)),
        _cached(Code.PREPARED_CACHED_MODE, "position one", lambda s: s.set(position=1)),
        _cached(
            Code.PREPARED_CACHED_MODE,
            "a layer less",
            _later(lambda s: s.set(layers=s.layers[:1])),
        ),
        _cached(
            Code.PREPARED_CACHE_PREFIX, "a row less in layer 0", _set_layer(0, length=1), layer=0
        ),
        _cached(
            Code.PREPARED_CACHE_PREFIX, "batch of two in layer 0", _set_layer(0, batch=2), layer=0
        ),
        _cached(
            Code.PREPARED_CACHE_PREFIX,
            "capacity of nine in layer 0",
            _set_layer(0, capacity=9),
            layer=0,
        ),
        _cached(
            Code.PREPARED_CACHE_BINDING,
            "rows of another attention",
            _other_rows(0),
            layer=0,
            expected="the bound blocks.0.attention.query.weight",
            actual="another node",
        ),
        _cached(
            Code.PREPARED_CACHE_PREFIX, "a row less in layer 1", _set_layer(1, length=1), layer=1
        ),
        _cached(
            Code.PREPARED_CACHE_BINDING, "layer 1 of another attention", _other_rows(1), layer=1
        ),
        _cached(
            Code.PREPARED_CACHE_BINDING,
            "layer 1 of a lower base",
            _turned_otherwise(1, -1),
            layer=1,
        ),
        _cached(
            Code.PREPARED_CACHE_BINDING,
            "layer 1 of a higher base",
            _turned_otherwise(1, 1),
            layer=1,
        ),
    ),
    apart=(
        Apart(
            "a layer that is gone has no fault",
            {"a layer less"},
            {
                "a row less in layer 1",
                "layer 1 of another attention",
                "layer 1 of a lower base",
                "layer 1 of a higher base",
            },
        ),
        Apart("one base is stored", {"layer 1 of a lower base", "layer 1 of a higher base"}),
    ),
    unreachable=dict.fromkeys(
        (c for c in PREPARED_ORDER if c not in (Code.PREPARED_PROVENANCE, Code.PREPARED_PRODUCER)),
        "the same validation as the backbone's forward, whose boundary plants it",
    ),
)


# --- one layer's rows ------------------------------------------------------------------------


layer_cache = Boundary(
    name="LayerCache",
    order=(
        Code.FIELD_TYPE,
        Code.FIELD_RANGE,
        Code.FIELD_TYPE,
        Code.FIELD_RANGE,
        Code.ZERO_CACHE_BATCH,
        Code.ZERO_CACHE_CAPACITY,
        Code.CACHE_CAPACITY_EXCEEDED,
        Code.SIZE_OVERFLOW,
    ),
    build=lambda: Situation(batch=1, capacity=CAPACITY),
    ready=lambda s: s.set(attention=model().backbone.blocks[0].attention),
    call=lambda s: LayerCache(s.attention, batch=s.batch, capacity=s.capacity),
    faults=(
        fault(
            Code.FIELD_TYPE,
            "float batch",
            lambda s: s.set(batch=float(s.batch)),
            what="cache batch",
        ),
        fault(Code.FIELD_RANGE, "batch -1", lambda s: s.set(batch=-1), what="cache batch"),
        fault(
            Code.FIELD_TYPE,
            "float capacity",
            lambda s: s.set(capacity=float(s.capacity)),
            what="cache capacity",
        ),
        fault(Code.FIELD_RANGE, "capacity -1", lambda s: s.set(capacity=-1), what="cache capacity"),
        fault(Code.ZERO_CACHE_BATCH, "batch 0", lambda s: s.set(batch=0)),
        fault(Code.ZERO_CACHE_CAPACITY, "capacity 0", lambda s: s.set(capacity=0)),
        fault(
            Code.CACHE_CAPACITY_EXCEEDED,
            "capacity 5",
            lambda s: s.set(capacity=5),
            required=5,
            limit=CAPACITY,
        ),
        fault(Code.SIZE_OVERFLOW, "batch 2^62", lambda s: s.set(batch=2**62), required=2**65),
    ),
    apart=(
        Apart("one batch is given", {"batch -1", "batch 0", "batch 2^62"}),
        Apart("one capacity is given", {"capacity -1", "capacity 0", "capacity 5"}),
    ),
)


def _spoil(name: str, value: float) -> Plant:
    def plant(s: Situation) -> None:
        row = getattr(s, name).copy()
        row[..., -1] = value
        s.set(**{name: row})

    return plant


def _ticket_ready(s: Situation) -> None:
    with DecodeSession(model()) as session:
        session.prefill([0] * s.rows)
    s.set(layer=session.cache.layers[0])


ticket = Boundary(
    name="LayerCache.ticket",
    order=(Code.CACHE_ROW_SHAPE, Code.FULL, Code.NON_FINITE_CACHE_ROW),
    build=lambda: Situation(key=ramp(1, 2), value=ramp(1, 2), rows=2),
    ready=_ticket_ready,
    call=lambda s: s.layer.ticket(s.key, s.value, 3),
    faults=(
        fault(
            Code.CACHE_ROW_SHAPE, "flat key", lambda s: s.set(key=s.key.reshape(-1)), what="key",
            expected=(1, 2), actual=(2,),
        ),
        fault(
            Code.CACHE_ROW_SHAPE, "two values", lambda s: s.set(value=np.stack([s.value[0]] * 2)),
            what="value", expected=(1, 2), actual=(2, 2),
        ),
        fault(
            Code.FULL, "four rows", lambda s: s.set(rows=CAPACITY), capacity=CAPACITY
        ),
        fault(
            Code.NON_FINITE_CACHE_ROW, "infinite key", _spoil("key", np.inf), what="key", index=1
        ),
        fault(
            Code.NON_FINITE_CACHE_ROW, "nan value", _spoil("value", np.nan), what="value", index=1
        ),
    ),
)  # fmt: skip

BOUNDARIES = (bind, fresh, cached, layer_cache, ticket)
