"""The cells of a kill matrix that can differ: where a law calls what a fault replaces.

Each law is run once on the right decoder, while every function that some fault replaces tells when
it is called. A law that called none of a fault's functions would run the same with them replaced.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial, wraps
from types import FunctionType
from typing import Any, TypeAlias
from warnings import catch_warnings

from logitproof.properties import faults, laws
from logitproof.properties.faults.fault import Fault, Place

from .killing import SUBJECTS, Pairs

__all__ = ["Asked", "Calls", "asked", "calls", "reaching", "watch"]

FEW = 4  # faults of one form: to watch every law costs what one or two faults cost
Asked: TypeAlias = tuple[str, str]  # form, law
Calls: TypeAlias = frozenset[str] | None  # None: the law did not hold, and may see anything


def asked(pairs: Pairs, *, few: int = FEW) -> list[Asked]:
    """The laws to watch, in each form that more than `few` of the faults are planted in."""
    forms = Counter(faults.REGISTRY[fault].form for fault in pairs)
    laws_of = {
        form: {law for f, some in pairs.items() if faults.REGISTRY[f].form == form for law in some}
        for form in forms
        if forms[form] > few
    }
    return [(form, law) for form, some in laws_of.items() for law in laws.REGISTRY if law in some]


def calls(some: Sequence[Asked], *, examples: int, jobs: int = 1) -> Iterator[Calls]:
    """What each law calls on the right decoder of its form, of all that faults replace there."""
    look = partial(_calls, examples=examples)
    if jobs == 1:
        yield from map(look, some)
        return
    spawn = multiprocessing.get_context("spawn")  # as for the faults themselves
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        yield from pool.map(look, some)


def reaching(pairs: Pairs, called: Mapping[Asked, Calls]) -> dict[str, list[str]]:
    """Each fault with those of its laws that may see it; the others run as without it.

    A law stays where it calls what the fault replaces, where it promises to see the fault, where it
    was not watched or did not hold while it was, and where what is replaced is no function: a
    constant, a class or a property tells nobody that it is used.
    """
    return {
        fault: [law for law in some if _may_see(law, faults.REGISTRY[fault], called)]
        for fault, some in pairs.items()
    }


@contextmanager
def watch(some: Sequence[Fault]) -> Iterator[set[str]]:
    """While open, the functions that the faults replace tell in the set that they were called."""
    called = set[str]()
    places = {place for fault in some for place in fault.places}
    right = {(owner, name): vars(owner)[name] for owner, name in places}
    forgets = {fault.forget for fault in some if fault.forget is not None}
    for place, value in right.items():
        if isinstance(value, FunctionType):
            setattr(*place, _telling(value, partial(called.add, _label(place))))
    try:
        for forget in forgets:  # what was kept from before would be used without a call
            forget()
        yield called
    finally:
        for place, value in right.items():
            setattr(*place, value)


def _telling(function: Callable[..., Any], tell: Callable[[], None]) -> Callable[..., Any]:
    @wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        tell()
        return function(*args, **kwargs)

    return watched


def _label(place: Place) -> str:
    owner, name = place
    module = f"{owner.__module__}." if isinstance(owner, type) else ""
    return f"{module}{owner.__name__}.{name}"


def _calls(asked: Asked, examples: int) -> Calls:
    form, law = asked
    planted = [fault for fault in faults.REGISTRY.values() if fault.form == form]
    with watch(planted) as called, catch_warnings(action="ignore"):
        holds = laws.REGISTRY[law](SUBJECTS[form](), examples).holds
    return frozenset(called) if holds else None


def _may_see(law: str, fault: Fault, called: Mapping[Asked, Calls]) -> bool:
    calls = called.get((fault.form, law))
    return (
        calls is None
        or law in fault.killed_by
        or not all(isinstance(vars(owner)[name], FunctionType) for owner, name in fault.places)
        or any(_label(place) in calls for place in fault.places)
    )
