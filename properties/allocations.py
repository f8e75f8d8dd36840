"""What the tape really holds: the float arrays alive at the birth of every node."""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from logitproof.core import tape
from logitproof.core.retained import memory_owner, retained_arrays
from logitproof.core.tape import Tensor


class Observation:
    """Nodes in order of birth.

    node_bytes: of each value
    live_bytes: of all float arrays of observed nodes, saved ones included, at each birth
    """

    def __init__(self, apart: Iterable[Any]) -> None:
        self.ops: list[str] = []
        self.node_bytes: list[int] = []
        self.live_bytes: list[int] = []
        self._apart = [memory_owner(array) for array in apart]
        self._known: dict[int, weakref.ref[Any]] = {}
        self._newest: weakref.ref[Tensor] | None = None

    def born(self, node: Tensor) -> None:
        """One more node; the rule of the one before is complete by now."""
        self.finish()
        self._add(node._value)
        self._newest = weakref.ref(node)
        self.ops.append(node.op)
        self.node_bytes.append(node._value.nbytes)
        self.live_bytes.append(self.alive_bytes())

    def finish(self) -> None:
        """Counts what the newest node saved."""
        node = None if self._newest is None else self._newest()
        if node is not None and node._vjp is not None:
            for array in retained_arrays(node):
                self._add(array)

    def alive_bytes(self) -> int:
        """Bytes of the observed arrays that something still holds."""
        arrays = [reference() for reference in self._known.values()]
        return sum(array.nbytes for array in arrays if array is not None)

    def _add(self, array: Any) -> None:
        owner = memory_owner(array)
        apart = any(owner is other for other in self._apart)
        known = self._known.get(id(owner))
        if owner.dtype == np.float64 and not apart and (known is None or known() is None):
            self._known[id(owner)] = weakref.ref(owner)


@contextmanager
def observed(apart: Iterable[Any]) -> Iterator[Observation]:
    """Observes every node that is made inside.

    apart: arrays that are counted elsewhere, such as values of parameters
    """
    observation = Observation(apart)
    original = Tensor.__init__

    def observing(self: Tensor, value: Any, op: str, *, tracked: bool = False) -> None:
        original(self, value, op, tracked=tracked)
        observation.born(self)

    tape.Tensor.__init__ = observing  # type: ignore[method-assign]
    try:
        yield observation
    finally:
        tape.Tensor.__init__ = original  # type: ignore[method-assign]
        observation.finish()
