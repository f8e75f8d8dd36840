"""Boundaries of an open session: prompts, extensions, tokens, truncation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from logitproof.core import DecodeSession
from logitproof.core.codes import Code
from logitproof.core.session import DECODE_ORDER, EXTEND_ORDER, PREFILL_ORDER, TRUNCATE_ORDER

from .boundary import Apart, Boundary, Fault, Plant, Situation, fault
from .caches import CAPACITY, model

__all__ = ["BOUNDARIES"]


def _open(s: Situation) -> None:
    s.set(session=DecodeSession(model()))
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
            Apart("the same cell", {"id 5", "id 9", "id -1"}),
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
            "id 9",
            lambda s: s.ids.__setitem__(1, 9),
            position=1,
            token_id=9,
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
            "id 9",
            lambda s: s.ids.__setitem__(1, 9),
            position=1,
            token_id=9,
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
        fault(
            Code.DECODE_TOKEN_OUT_OF_BOUNDS,
            "id 9",
            lambda s: s.set(id=np.int64(9)),
            token_id=9,
        ),
        fault(
            Code.FULL,
            "four rows",
            lambda s: s.set(committed=[0] * CAPACITY),
            capacity=CAPACITY,
            required=CAPACITY + 1,
        ),
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


def _open_spoiled(s: Situation) -> None:
    """A session whose first layer holds otherwise than the others."""
    s.set(session=DecodeSession(model()))
    s.session.prefill([0, 1])
    for name, value in s.spoiled.items():
        setattr(s.session.cache.layers[0], name, value)


def _spoiled(name: str, **facts: int) -> Fault:
    def spoil(s: Situation) -> None:
        s.spoiled.update(facts)

    return fault(Code.PREPARED_CACHE_PREFIX, name, spoil, layer=0)


# Nobody but a caller who reaches into a cache brings it about; a token tells it all the same.
uneven = Boundary(
    name="DecodeSession.decode, one layer otherwise",
    order=(Code.PREPARED_CACHE_PREFIX,),
    build=lambda: Situation(spoiled={}),
    ready=_open_spoiled,
    call=lambda s: s.session.decode(1),
    faults=(
        _spoiled("a row less", length=1),
        _spoiled("a row more", length=3),
        _spoiled("no batch", batch=0),
        _spoiled("batch of two", batch=2),
        _spoiled("less room", capacity=CAPACITY - 1),
        _spoiled("more room", capacity=CAPACITY + 1),
    ),
)

BOUNDARIES = (uneven, prefill, extend, decode, truncate, reset, fork, enter)
