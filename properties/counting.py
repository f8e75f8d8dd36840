"""Calls of the core counted while it runs: the same on every machine."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from logitproof.core import Context, exact, floats

from .interrupts import hooked
from .scalar import ScalarDecoder

__all__ = ["OPERATIONS", "ORACLES", "SETTLED", "SUMS", "counting"]

# What is counted: tape operations; calls into the module where sums and functions are rounded;
# roundings that only many digits settle; scalar decoders made, the truth's among them.
OPERATIONS, SUMS, SETTLED, ORACLES = "operations", "sums", "settled", "oracles"


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """While open, the calls of each kind."""
    counted: Counter[str] = Counter()
    places: list[tuple[str, object, str]] = [
        (OPERATIONS, Context, "apply"),
        (ORACLES, ScalarDecoder, "__init__"),
        (SETTLED, exact, "_libmp"),
        *((SUMS, floats, n) for n in floats.__all__ if inspect.isfunction(getattr(floats, n))),
    ]
    with ExitStack() as stack:
        for kind, owner, attribute in places:
            stack.enter_context(hooked(owner, attribute, _adding(counted, kind)))
        yield counted


def _adding(counted: Counter[str], kind: str) -> Callable[[int, tuple[Any, ...]], None]:
    def add(_: int, __: tuple[Any, ...]) -> None:
        counted[kind] += 1

    return add
