"""What a boundary of the system is: an order of rules, and ways to break every one of them."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from itertools import combinations
from types import MappingProxyType, SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from logitproof.core import errors
from logitproof.core.codes import Code

__all__ = [
    "Apart",
    "Boundary",
    "Fault",
    "NearMiss",
    "Plant",
    "Situation",
    "fault",
    "refuses",
    "state",
]

FAMILIES = {
    "record": errors.RecordRefusal,
    "shape": errors.ShapeRefusal,
    "index": errors.IndexRefusal,
    "binding": errors.BindingRefusal,
    "numeric": errors.NumericRefusal,
    "capacity": errors.CapacityRefusal,
    "support": errors.SupportRefusal,
    "state": errors.StateRefusal,
    "admission": errors.AdmissionRefusal,
}
CODE = re.compile(rf"\b(?:{'|'.join(FAMILIES)})/[a-z0-9-]+")
# What a refused call may change: the note that a graph was found free of released nodes.
UNWATCHED = {"_checked_at", "__weakref__"}
ATOMS = (int, str, bytes, type(None))  # hold nothing else, and == tells them apart


Plant: TypeAlias = Callable[["Situation"], object]


class Situation(SimpleNamespace):
    """The arguments and live objects of one call, to be spoiled."""

    def set(self, **changes: object) -> Situation:
        """Put other arguments or objects in place."""
        vars(self).update(changes)
        return self

    def unchanged(self) -> None:
        """Do nothing: everything is in place."""

    def afterwards(self, change: Plant) -> Situation:
        """Make a change once everything is ready."""
        return self.set(last=[*vars(self).get("last", []), change])

    def finish(self) -> Situation:
        """Make the changes that waited."""
        for change in vars(self).pop("last", []):
            change(self)
        return self


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One broken rule: how to break it, and the facts its refusal must then carry."""

    code: Code
    name: str
    plant: Plant
    facts: Mapping[str, object]


def fault(code: Code, name: str, plant: Plant, **facts: object) -> Fault:
    """A fault; the facts are named as the specification names them."""
    return Fault(code=code, name=name, plant=plant, facts=facts)


@dataclass(frozen=True)
class Apart:
    """Names of faults of which one situation can hold one at most, and why."""

    reason: str
    names: frozenset[str] | set[str]
    others: frozenset[str] | set[str] | None = None

    def parts(self, one: str, other: str) -> bool:
        """True when the two faults cannot coexist."""
        others = self.names if self.others is None else self.others
        return (one in self.names and other in others) or (one in others and other in self.names)


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """A call with its rules in order, a valid situation, and faults in the order of the rules.

    build:       a fresh valid situation
    faults:      earlier ones win; they are planted from the last to the first
    ready:       makes the live objects out of the spoiled facts, before anything is watched
    unreachable: rules that no call can break here, with the reason
    """

    name: str
    order: tuple[Code, ...]
    build: Callable[[], Situation]
    call: Plant
    faults: tuple[Fault, ...]
    ready: Plant = Situation.unchanged
    apart: tuple[Apart, ...] = ()
    unreachable: Mapping[Code, str] = field(default_factory=dict)

    def valid(self) -> Situation:
        """The situation that nothing spoils."""
        return NearMiss(boundary=self, faults=()).situation()

    def can_coexist(self, *faults: Fault) -> bool:
        """True when no two of the faults are declared apart."""
        return not any(
            rule.parts(one.name, other.name)
            for one, other in combinations(faults, 2)
            for rule in self.apart
        )

    def near_misses(self, *, upto: int = 3) -> Iterator[NearMiss]:
        """Every set of up to `upto` faults that can coexist."""
        for first in self.faults:
            yield from self.beginning_with(first, upto=upto)

    def beginning_with(self, first: Fault, *, upto: int = 3) -> Iterator[NearMiss]:
        """Those of the sets in which this fault comes first and must win."""
        later = self.faults[self.faults.index(first) + 1 :]
        for size in range(upto):
            for chosen in combinations(later, size):
                if self.can_coexist(first, *chosen):
                    yield NearMiss(boundary=self, faults=(first, *chosen))

    def disorder(self) -> list[str]:
        """Where faults leave the declared order, and rules that no fault breaks."""
        place, found = 0, []
        for planted in self.faults:
            if planted.code not in self.order[place:]:
                found.append(f"{planted.name}: {planted.code} does not follow here")
            else:
                place = self.order.index(planted.code, place)
        planned = {planted.code for planted in self.faults} | set(self.unreachable)
        found += [f"{code} is never planted" for code in self.order if code not in planned]
        found += [f"{code} is planted after all" for code in self.unreachable
                  if code in {planted.code for planted in self.faults}]  # fmt: skip
        return found


@dataclass(frozen=True, kw_only=True)
class NearMiss:
    """A valid situation with chosen faults; the first of them must be refused."""

    boundary: Boundary
    faults: tuple[Fault, ...]

    @property
    def expected(self) -> Fault:
        """The fault whose rule comes first."""
        return self.faults[0]

    def situation(self) -> Situation:
        """A fresh spoiled situation."""
        situation = self.boundary.build()
        for planted in reversed(self.faults):
            planted.plant(situation)
        self.boundary.ready(situation)
        return situation.finish()

    def complaints(self, refusal: errors.Refusal) -> list[str]:
        """What differs from the refusal that must win: code, type, facts."""
        expected = self.expected
        if refusal.code is not expected.code:
            return [f"{refusal.code} instead of {expected.code}: {refusal}"]
        family = FAMILIES[expected.code.partition("/")[0]]
        found = [] if type(refusal) is family else [f"a {type(refusal).__name__}"]
        for name, want in expected.facts.items():
            got = getattr(refusal, name, "nothing")
            if type(got) is not type(want) or not (got == want or repr(got) == repr(want)):
                found.append(f"{name} is {got!r} instead of {want!r}")
        return found

    def unnamed(self, refusal: errors.Refusal) -> list[str]:
        """The facts that the refusal's sentence does not show."""
        sentence = str(refusal)
        return [name for name, fact in self.expected.facts.items()
                if str(fact) not in sentence and repr(fact) not in sentence]  # fmt: skip

    def __str__(self) -> str:
        return f"{self.boundary.name}: {' + '.join(f.name for f in self.faults) or 'valid'}"


def refuses(function: object) -> tuple[Code, ...]:
    """The codes that a docstring declares, in their order.

    The order stands beside the code: in the `Refuses:` part of the function's description.
    """
    _, _, declared = (getattr(function, "__doc__", None) or "").partition("Refuses:")
    return tuple(Code(code) for code in CODE.findall(declared))


def state(thing: object) -> object:
    """Every bit a thing holds, private ones included, comparable by ==.

    Arrays by type, shape, access and bytes; floats by bits; objects by identity and fields.
    """
    return _state(thing, {})


def _state(thing: object, seen: dict[int, object]) -> object:
    if isinstance(thing, ATOMS):
        return thing
    if isinstance(thing, np.ndarray):
        bits = [repr(x) for x in thing.flat] if thing.dtype == object else thing.tobytes()
        return (thing.dtype.str, thing.shape, thing.strides, thing.flags.writeable, bits)
    if isinstance(thing, float):
        return thing.hex()
    if id(thing) in seen:
        return id(thing)
    seen[id(thing)] = thing
    if isinstance(thing, list | tuple):
        return (type(thing).__name__, [_state(item, seen) for item in thing])
    if isinstance(thing, dict | MappingProxyType):
        return [(_state(key, seen), _state(value, seen)) for key, value in thing.items()]
    if isinstance(thing, weakref.finalize):
        return thing.alive
    return (id(thing), [(name, _state(value, seen)) for name, value in _attributes(thing)])


def _attributes(thing: object) -> Iterator[tuple[str, Any]]:
    if callable(thing) and not is_dataclass(thing):
        return
    kind: Any = type(thing)
    for name in dict.fromkeys([*_declared(kind), *getattr(thing, "__dict__", {})]):
        if name not in UNWATCHED and hasattr(thing, name):
            yield name, getattr(thing, name)


@cache
def _declared(kind: type[Any]) -> tuple[str, ...]:
    """The names that a class gives its things' fields."""
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    return (*slots, *([f.name for f in fields(kind)] if is_dataclass(kind) else []))
