"""Bytes that a graph keeps alive: values of its nodes and what their reverse rules hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType

import numpy as np

from .backward import topology
from .floats import Array
from .tape import Tensor

__all__ = ["memory_owner", "retained_arrays", "retained_bytes"]


def retained_bytes(*tensors: Tensor) -> int:
    """Bytes of the distinct arrays that these tensors and all nodes above them hold.

    A view counts as the whole array it looks into; handles to one array count once. Leaves
    count, parameters among them; gradients and Python's own objects do not.
    """
    return sum(array.nbytes for array in retained_arrays(*tensors))


def retained_arrays(*tensors: Tensor) -> list[Array]:
    """The distinct arrays themselves, each the owner of its memory, in graph order."""
    owners: dict[int, Array] = {}
    for tensor in tensors:
        for node in topology(tensor):
            for held in (node._value, *_held(node._vjp)):
                owner = memory_owner(held)
                owners[id(owner)] = owner
    return list(owners.values())


def _held(vjp: object) -> Iterator[Array]:
    """Arrays in the saved evidence of a reverse rule and in the cells it closes over."""
    pending: list[object] = [getattr(vjp, "saved", ()), getattr(vjp, "rule", vjp)]
    seen: set[int] = set()
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            yield thing
        elif isinstance(thing, Tensor):
            yield thing._value
        elif isinstance(thing, Mapping):
            pending += thing.values()
        elif isinstance(thing, tuple | list):
            pending += thing
        elif isinstance(thing, FunctionType):
            pending += [cell.cell_contents for cell in thing.__closure__ or ()]


def memory_owner(array: Array) -> Array:
    """The array itself, or the one that it is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
