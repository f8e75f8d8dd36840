"""A law over every record of an implementation: what a value is, and when two are equal."""

from collections.abc import Iterator
from dataclasses import fields
from inspect import Parameter, signature
from typing import Any

from .components import Components
from .difference import Difference
from .drawn import equal, first
from .law import Law

__all__ = ["LAWS"]

# Small ones whose fields have one obvious order.
BY_PLACE = frozenset({"Binding", "Context", "Number", "Rows", "Seeds", "Ticket"})
# They carry arrays, nodes or functions, which have no equality that is a truth value.
CARRIERS = frozenset({
    "BackboneOutput", "Constructed", "DecoderOutput", "Kernel", "Rows", "SequenceLayout",
    "TextBatch", "Ticket", "TokenOutput", "Trace", "TraceEdge", "TraceNode",
})  # fmt: skip


def _by_place(kind: type) -> list[str]:
    """The fields that a call may give without their names."""
    return [p.name for p in signature(kind).parameters.values() if p.kind != Parameter.KEYWORD_ONLY]


def _changes(kind: Any) -> bool:
    """Whether a field of a made value takes another one."""
    value = object.__new__(kind)
    try:
        setattr(value, fields(kind)[0].name, None)
    except AttributeError:
        return False
    return True


def _written(kind: type) -> set[str]:
    """What a kind and those above it define, `object` aside."""
    return {name for above in kind.__mro__ if above is not object for name in vars(above)}


def _differences(kind: type) -> Iterator[Difference | None]:
    name, refuses = kind.__name__, issubclass(kind, Exception)
    if name not in BY_PLACE:
        yield equal(f"fields of {name} given by place", [], _by_place(kind))
    alone = refuses or name in CARRIERS
    yield equal(f"{name} is equal only to itself", alone, "__eq__" not in _written(kind))
    if not refuses:  # test runners attach notes to an exception
        yield equal(f"fields of {name} can be changed", False, _changes(kind))
        yield equal(f"{name} takes other names", False, "__dict__" in dir(kind))


def _all(count: int) -> Iterator[str]:
    yield from ("every record",)[:count]


def _values(implementation: Components, _: str) -> Difference | None:
    kinds = list(implementation.value_types())
    return first(d for kind in kinds for d in _differences(kind)) or equal(
        "records found", True, len(kinds) > len(CARRIERS)
    )


LAWS = (
    Law(
        id="records.values",
        statement="A record is made by the names of its fields and keeps them; it equals another by"
        " its fields, or only itself where it carries arrays or is a refusal.",
        source="STYLE.md sections 5 and 7",
        needs=("records",),
        faults=("record-that-changes", "record-by-place", "refusals-equal-by-fields"),
        cases=_all,
        check=_values,
    ),
)
