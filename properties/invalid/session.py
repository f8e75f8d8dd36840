"""Boundaries of the cache and the session: binding, prompts, tokens, cached execution."""

from __future__ import annotations

from collections.abc import Sequence

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
from logitproof.core.session import DECODE_ORDER, EXTEND_ORDER, PREFILL_ORDER, TRUNCATE_ORDER

from .boundary import Apart, Boundary, Fault, Plant, Situation, fault
from .hand_over import reason
from .making import config, decoder, parameter, ramp

__all__ = ["BOUNDARIES"]

CAPACITY = 4


def _model() -> Decoder:
    """A decoder of two blocks, with gradients, that no other situation guards."""
    shared = decoder(layers=2)
    nodes = [parameter(p.name, p.value) for p in shared.parameters.values()]
    return Decoder.from_parameters(shared.config, nodes)


# --- calls of an open session ----------------------------------------------------------------


def _open(s: Situation) -> None:
    s.set(session=DecodeSession(_model()))
    if s.committed:
        s.session.prefill(s.committed)
    if s.closed:
        s.session.close()


CLOSED = fault(Code.SESSION_CLOSED, "closed session", lambda s: s.set(closed=True), actual="closed")


def _ids_faults() -> tuple[Fault, ...]:
    return (
        CLOSED,
        fault(Code.RAGGED_IDS, "ragged ids", lambda s: s.set(ids=[s.ids, 0])),
        fault(Code.NOT_AN_INTEGER, "float ids", lambda s: s.set(ids=s.ids.astype(float)), bound=5),
        fault(Code.TOKEN_RANK, "ids of rank 2", lambda s: s.set(ids=s.ids[None]), rank=2),
    )


def _longer(s: Situation) -> None:
    s.set(ids=np.concatenate([s.ids] * 3))


def _bad_id(s: Situation) -> None:
    s.ids[1] = 5


def _last_id_negative(s: Situation) -> None:
    s.ids[-1] = -1


def _ids_boundary(name: str, order: tuple[Code, ...], committed: Sequence[int], call: Plant,
                  faults: tuple[Fault, ...]) -> Boundary:  # fmt: skip
    return Boundary(
        name=f"DecodeSession.{name}",
        order=order,
        build=lambda: Situation(ids=np.array([1, 2]), committed=list(committed), closed=False),
        ready=_open,
        call=call,
        faults=(*_ids_faults(), *faults),
        apart=(
            Apart("no tokens are not six", {"no token"}, {"six tokens"}),
            Apart("the same cell", {"id 5"}, {"id -1"}),
        ),
    )


prefill = _ids_boundary(
    "prefill",
    PREFILL_ORDER,
    (),
    lambda s: s.session.prefill(s.ids),
    (
        fault(Code.EMPTY_PROMPT, "no token", lambda s: s.set(ids=s.ids[:0])),
        fault(
            Code.PREFILL_REQUIRES_EMPTY, "committed rows", lambda s: s.set(committed=[0, 1]), len=2
        ),
        fault(Code.PROMPT_TOO_LONG, "six tokens", _longer, tokens=6, capacity=CAPACITY),
        fault(
            Code.PROMPT_TOKEN_OUT_OF_BOUNDS,
            "id 5",
            _bad_id,
            position=1,
            token_id=5,
            vocabulary_size=5,
        ),
        fault(
            Code.PROMPT_TOKEN_OUT_OF_BOUNDS,
            "id -1",
            _last_id_negative,
            position=1,
            token_id=-1,
            vocabulary_size=5,
        ),
    ),
)
extend = _ids_boundary(
    "extend",
    EXTEND_ORDER,
    (0,),
    lambda s: s.session.extend(s.ids),
    (
        fault(
            Code.EXTEND_REQUIRES_PREFILL,
            "nothing committed",
            lambda s: s.set(committed=[]),
            actual="not prefilled",
        ),
        fault(Code.EMPTY_EXTENSION, "no token", lambda s: s.set(ids=s.ids[:0])),
        fault(Code.EXTENSION_TOO_LONG, "six tokens", _longer, tokens=7, capacity=CAPACITY),
        fault(
            Code.EXTENSION_TOKEN_OUT_OF_BOUNDS,
            "id 5",
            _bad_id,
            position=1,
            token_id=5,
            vocabulary_size=5,
        ),
        fault(
            Code.EXTENSION_TOKEN_OUT_OF_BOUNDS,
            "id -1",
            _last_id_negative,
            position=1,
            token_id=-1,
            vocabulary_size=5,
        ),
    ),
)

decode = Boundary(
    name="DecodeSession.decode",
    order=DECODE_ORDER,
    build=lambda: Situation(id=np.int64(1), committed=[0], closed=False),
    ready=_open,
    call=lambda s: s.session.decode(s.id),
    faults=(
        CLOSED,
        fault(Code.RAGGED_IDS, "ragged id", lambda s: s.set(id=[s.id, [0, 0]])),
        fault(
            Code.NOT_AN_INTEGER, "float id", lambda s: s.set(id=np.asarray(s.id, float)), bound=5
        ),
        fault(Code.TOKEN_RANK, "a list of one id", lambda s: s.set(id=[s.id]), rank=1),
        fault(
            Code.DECODE_REQUIRES_PREFILL,
            "nothing committed",
            lambda s: s.set(committed=[]),
            actual="not prefilled",
        ),
        fault(
            Code.DECODE_TOKEN_OUT_OF_BOUNDS,
            "id 5",
            lambda s: s.set(id=np.int64(5)),
            token_id=5,
            vocabulary_size=5,
        ),
        fault(Code.FULL, "four rows", lambda s: s.set(committed=[0] * CAPACITY), capacity=CAPACITY),
    ),
    apart=(Apart("no rows are not four", {"nothing committed"}, {"four rows"}),),
)

truncate = Boundary(
    name="DecodeSession.truncate",
    order=TRUNCATE_ORDER,
    build=lambda: Situation(length=1, committed=[0, 1], closed=False),
    ready=_open,
    call=lambda s: s.session.truncate(s.length),
    faults=(
        CLOSED,
        fault(
            Code.FIELD_TYPE,
            "float length",
            lambda s: s.set(length=float(s.length)),
            what="truncate length",
        ),
        fault(
            Code.TRUNCATE_LENGTH_OUT_OF_RANGE,
            "length 3",
            lambda s: s.set(length=3),
            length=3,
            bound=2,
        ),
        fault(
            Code.TRUNCATE_LENGTH_OUT_OF_RANGE,
            "length -1",
            lambda s: s.set(length=-1),
            length=-1,
            bound=2,
        ),
    ),
    apart=(Apart("one length is given", {"length 3"}, {"length -1"}),),
)


def _closed(name: str, call: Plant) -> Boundary:
    return Boundary(
        name=f"DecodeSession.{name}",
        order=(Code.SESSION_CLOSED,),
        build=lambda: Situation(committed=[0, 1], closed=False),
        ready=_open,
        call=call,
        faults=(CLOSED,),
    )


reset = _closed("reset", lambda s: s.session.reset())
fork = _closed("fork", lambda s: s.session.fork())
enter = _closed("__enter__", lambda s: s.session.__enter__())


# --- binding a cache -------------------------------------------------------------------------


def _bind_ready(s: Situation) -> None:
    """A cache that held a session of `model`, offered to a decoder over `nodes`."""
    model = _model()
    with DecodeSession(model) as session:
        session.prefill([0, 1])
    facts = config(layers=2, max_positions=CAPACITY, rms_epsilon=s.eps)
    nodes = list(model.parameters.values())
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


def _of_another_attention(s: Situation) -> None:
    other = KvCache(_model())
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
        fault(Code.CACHE_LAYER_MISMATCH, "batch of two", _first_layer(batch=2), layer=0),
        fault(Code.CACHE_LAYER_MISMATCH, "capacity of nine", _first_layer(capacity=9), layer=0),
        fault(
            Code.CACHE_LAYER_MISMATCH,
            "rows of another attention",
            _later(_of_another_attention),
            layer=0,
            actual="another node",
        ),
    ),
)


# --- cached execution ------------------------------------------------------------------------


def _run_ready(s: Situation) -> None:
    s.set(decoder=_model())
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
        s.layers[layer]._bindings = KvCache(_model()).layers[layer]._bindings

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
        _cached(Code.PREPARED_CACHE_BINDING, "rows of another attention", _other_rows(0), layer=0),
        _cached(
            Code.PREPARED_CACHE_PREFIX, "a row less in layer 1", _set_layer(1, length=1), layer=1
        ),
        _cached(
            Code.PREPARED_CACHE_BINDING, "layer 1 of another attention", _other_rows(1), layer=1
        ),
    ),
    apart=(
        Apart(
            "a layer that is gone has no fault",
            {"a layer less"},
            {"a row less in layer 1", "layer 1 of another attention"},
        ),
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
    ready=lambda s: s.set(attention=_model().backbone.blocks[0].attention),
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
    with DecodeSession(_model()) as session:
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

BOUNDARIES = (
    prefill,
    extend,
    decode,
    truncate,
    reset,
    fork,
    enter,
    bind,
    cached,
    layer_cache,
    ticket,
)
