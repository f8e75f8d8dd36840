"""Parts of a plan as plain values: integers, texts, and the label of every quantity."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from .census import Census
from .errors import CapacityRefusal, Refusal
from .ledgers import Ledger
from .limits import BYTES, COUNTS, Demand, Demands
from .liveness import Liveness, Point, Skipped
from .macs import Macs
from .profiles import PROBE, Profile
from .sizes import Quantity, Unknown


def calculated(quantities: Mapping[str, Any]) -> dict[str, Any]:
    """Counts and formulas.

    Source: claims.md section 1
    """
    return {"label": "calculated", **quantities}


def symbolic(quantities: Mapping[str, Any]) -> dict[str, Any]:
    """Quantities of a schedule, never measured."""
    return {"label": "symbolic", **quantities}


def census(counted: Census) -> dict[str, Any]:
    """A census with its groups."""
    groups = [
        {**values(group), "shape": list(group.shape), "parameters": group.parameter_elements}
        for group in counted.groups
    ]
    return calculated({**values(counted), "groups": groups})


def macs(counted: Macs) -> dict[str, Any]:
    """MACs with their groups."""
    groups = {"groups": dict(counted.groups), "dense_groups": dict(counted.dense_groups)}
    return calculated({**values(counted), **groups})


def profile(limits: Profile) -> dict[str, Any]:
    """A profile's limits: ceilings, never consumption."""
    held = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in values(limits).items()
    }
    return {**held, "probe": values(PROBE) if limits.calibration_tokens else None}


def ledger(held: Ledger) -> dict[str, Any]:
    """A ledger with every allocation."""
    entries = [
        {**values(entry), "bytes": entry.bytes, "alias_of": entry.alias_of or None}
        for entry in held.entries
    ]
    return calculated({"entries": entries, "total": held.total})


def liveness(lived: Liveness) -> dict[str, Any]:
    """A timeline and its peaks."""
    return symbolic(
        {
            "events": [_step(step) for step in lived.timeline],
            "resident_peak": lived.resident_peak,
            "workspace": shown(lived.workspace),
            "combined_peak": shown(lived.combined_peak),
        }
    )


def demands(asked: Demands, limits: Profile) -> dict[str, Any]:
    """What is asked for, beside what is allowed; null where nothing is said."""
    counts = {n: {"demand": getattr(asked, n), "limit": getattr(limits, n)} for n in COUNTS}
    sizes = {name: _demand(getattr(asked, name), getattr(limits, name)) for name in BYTES}
    partitions = {
        name: _demand(demand, limits.partitions.get(name))
        for name, demand in asked.partitions.items()
    }
    return {
        "counts": calculated(counts),
        "bytes": symbolic(sizes),
        "partitions": symbolic(partitions),
    }


def _demand(demand: Demand, limit: int | None) -> dict[str, Any]:
    return {"known": demand.known, "total": shown(demand.total), "limit": limit}


def refusals(reasons: Iterable[Refusal]) -> list[dict[str, Any]]:
    """Entries of a plan, each with its code, place, demand and limit, and what these are."""
    return [
        {
            "code": str(reason.code),
            "what": reason.what,
            "required": getattr(reason, "required", getattr(reason, "feature", None)),
            "limit": getattr(reason, "limit", None),
            **_label(reason),
        }
        for reason in reasons
    ]


def _label(reason: Refusal) -> dict[str, Any]:
    """What the quantities of an entry are, if it has any."""
    if not isinstance(reason, CapacityRefusal):
        return {}
    return calculated({}) if reason.what in COUNTS else symbolic({})


def shown(quantity: Quantity) -> int | str:
    """A quantity; the unknown one as its word."""
    return quantity.value if isinstance(quantity, Unknown) else quantity


def values(record: Any) -> dict[str, Any]:
    """The fields of a record, tuples as lists."""
    held = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in held.items()}


def _step(step: Point | Skipped) -> dict[str, Any]:
    if isinstance(step, Skipped):
        return {"action": "repeat", **values(step)}
    return {
        "action": step.event.action,
        "name": step.event.name,
        "bytes": step.event.bytes,
        "workspace": shown(step.event.workspace),
        "live": step.live,
        "at_event": shown(step.at_event),
    }
