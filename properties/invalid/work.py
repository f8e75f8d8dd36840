"""Boundaries of work counters and of tickets that outlived their cache."""

from __future__ import annotations

import numpy as np

from logitproof.core import Decoder, DecodeSession, Parameter
from logitproof.core.cache import WorkCounters
from logitproof.core.codes import Code

from .boundary import Boundary, Situation, fault, refuses
from .making import config, decoder

__all__ = ["BOUNDARIES"]


def _session(s: Situation) -> None:
    """A session of two tokens, and a ticket made before its layer is left with `rows`."""
    nodes = [Parameter(p.name, p.value) for p in decoder().parameters.values()]
    session = DecodeSession(Decoder.from_parameters(config(), nodes))
    session.prefill([0, 1])
    layer = session.cache.layers[0]
    s.set(session=session, tickets=[layer.ticket(np.ones((1, 2)), np.ones((1, 2)), 3)])
    layer.length = s.rows


tickets = Boundary(
    name="DecodeSession tickets",
    order=refuses(DecodeSession._check_tickets),
    build=lambda: Situation(rows=2),
    ready=_session,
    call=lambda s: s.session._check_tickets(s.tickets),
    faults=(
        fault(
            Code.PREPARED_CACHE_CHANGED,
            "a row less",
            lambda s: s.set(rows=1),
            layer=0,
            expected=2,
            actual=1,
        ),
    ),
)

COUNTERS = (
    "token_forwards",
    "prefill_tokens",
    "cache_appends",
    "qkv_projection_rows",
    "attention_score_values",
)

counters = Boundary(
    name="WorkCounters.after_token",
    order=refuses(WorkCounters.after_token),
    build=lambda: Situation(full={}, layers=1),
    ready=lambda s: s.set(work=WorkCounters(**s.full)),
    call=lambda s: s.work.after_token(layers=s.layers, score_values=3, prefill=True),
    faults=(
        fault(
            Code.WORK_OVERFLOW,
            "more layers than countable",
            lambda s: s.set(layers=2**63),
            counter="qkv_projection_rows",
            required=3 * 2**63,
        ),
        *[
            fault(
                Code.WORK_OVERFLOW,
                f"full {name}",
                lambda s, name=name: s.full.update({name: 2**64 - 1}),  # type: ignore[misc]
                counter=name,
                limit=2**64 - 1,
            )
            for name in COUNTERS
        ],
    ),
)

BOUNDARIES = (tickets, counters)
