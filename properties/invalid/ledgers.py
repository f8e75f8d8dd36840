"""Boundaries of what a plan adds up: ledgers of allocations, and events in the life of buffers."""

from __future__ import annotations

from typing import Any

from logitproof.core.codes import Code
from logitproof.core.ledgers import Allocation, ledger
from logitproof.core.liveness import Event, measure

from .boundary import Apart, Boundary, Fault, Plant, Situation, fault, refuses

__all__ = ["BOUNDARIES"]

FROM_0, FROM_1 = "an integer from 0", "an integer from 1"


def _of(which: str, /, **changes: object) -> Plant:
    """Other facts of what stands in the situation by that name."""
    return lambda s: getattr(s, which).update(changes)


def _sizes(which: str, **sizes: tuple[object, object, str]) -> tuple[Fault, ...]:
    """Per field a wrong value, what the refusal says of it, and what it expects."""
    return tuple(
        fault(Code.FIELD_RANGE, f"{field} {value}", _of(which, **{field: value}),
              actual=actual, expected=expected)
        for field, (value, actual, expected) in sizes.items()
    )  # fmt: skip


def _allocations(s: Situation) -> list[Allocation]:
    return [Allocation(**facts) for facts in (s.alias, s.owner)]


added = Boundary(
    name="ledger",
    order=refuses(ledger),
    build=lambda: Situation(
        alias={"name": "head", "elements": 6, "element_bytes": 8, "alias_of": "table"},
        owner={"name": "table", "elements": 6, "element_bytes": 8, "alignment": 8},
    ),
    ready=lambda s: s.set(entries=_allocations(s)),
    call=lambda s: ledger(s.entries, what="state"),
    faults=(
        fault(Code.BUFFER_EXISTS, "a name twice", _of("owner", name="head"), what="state.head"),
        *_sizes(
            "alias",
            elements=(-1, -1, FROM_0),
            element_bytes=(8.0, "a float", FROM_0),
            count=(True, "a bool", FROM_0),
            alignment=(0, 0, FROM_1),
        ),
        fault(
            Code.UNKNOWN_BUFFER,
            "an alias of nobody",
            _of("alias", alias_of="tail"),
            what="state.head",
            actual="tail",
        ),
        fault(
            Code.ALIAS_CYCLE,
            "an alias of itself",
            _of("alias", alias_of="head"),
            what="state.head",
            actual="head",
        ),
        fault(Code.PLAN_OVERFLOW, "2**128 elements", _of("owner", elements=2**128)),
    ),
)

ONE_EVENT = {
    "an alias of itself",
    "a release of nobody",
    "a release of what is released",
    "a name that lives",
    "2**128 bytes",
}


def _events(s: Situation) -> list[Event]:
    """Two buffers, one of them released, then the event that is looked at."""
    before: list[dict[str, Any]] = [
        {"action": "allocate", "name": "x", "bytes": 8},
        {"action": "allocate", "name": "y", "bytes": 8},
        {"action": "release", "name": "y"},
    ]
    return [Event(**facts) for facts in (*before, s.event)]


lived = Boundary(
    name="liveness",
    order=refuses(measure),
    build=lambda: Situation(event={"action": "use", "name": "x", "bytes": 0, "workspace": 1}),
    ready=lambda s: s.set(events=_events(s)),
    call=lambda s: measure(s.events),
    faults=(
        *_sizes("event", bytes=(-1, -1, FROM_0), workspace=(0.5, "a float", FROM_0)),
        fault(Code.UNKNOWN_NAME, "another action", _of("event", action="free")),
        fault(
            Code.ALIAS_CYCLE,
            "an alias of itself",
            _of("event", action="alias", name="z", of="z"),
            what="liveness.z",
        ),
        fault(
            Code.UNKNOWN_BUFFER,
            "a release of nobody",
            _of("event", action="release", name="z"),
            what="liveness.z",
        ),
        fault(
            Code.RELEASED_BUFFER,
            "a release of what is released",
            _of("event", action="release", name="y"),
            what="liveness.y",
        ),
        fault(
            Code.BUFFER_EXISTS,
            "a name that lives",
            _of("event", action="allocate", name="x"),
            what="liveness.x",
        ),
        fault(
            Code.PLAN_OVERFLOW,
            "2**128 bytes",
            _of("event", action="allocate", name="z", bytes=2**128),
        ),
    ),
    apart=(Apart("one event", ONE_EVENT),),
)

BOUNDARIES = (added, lived)
