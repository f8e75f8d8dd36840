"""Work that is counted, not timed: the same on every machine, so that a test can hold it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from logitproof.core import Context, Decoder, DecodeSession, Tensor, exact, floats
from logitproof.core.backward import topology
from logitproof.properties.interrupts import hooked
from logitproof.properties.scalar import ScalarDecoder

from . import sizes

__all__ = [
    "ORACLES",
    "OPERATIONS",
    "SETTLED",
    "SUMS",
    "by_layers",
    "counting",
    "nodes",
    "of_a_pass",
    "of_a_token",
]

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


def of_a_pass(decoder: Decoder) -> Counter[str]:
    """One loss and its reverse pass over a full row."""
    ids, targets = sizes.batch(decoder.config)
    decoder.loss(ids, targets).backward()  # what is done once in a process is no pass's
    with counting() as counted:
        decoder.loss(ids, targets).backward()
    return counted


def nodes(decoder: Decoder) -> int:
    """Nodes of the graph of one loss, leaves left out."""
    loss: Tensor = decoder.loss(*sizes.batch(decoder.config))
    return sum(1 for node in topology(loss) if node.op not in ("parameter", "constant"))


def of_a_token(decoder: Decoder, prefix: int) -> Counter[str]:
    """One decoded token behind so many cached ones."""
    with DecodeSession(decoder) as session:
        session.prefill(sizes.batch(decoder.config, T=prefix)[0][0])
        with counting() as counted:
            session.decode(1)
    return counted


def by_layers(count: Callable[[int], int]) -> tuple[int, int]:
    """What a count has beside its layers, and for each of them; asserts that it is so linear."""
    none, one, two, three = map(count, range(4))
    assert one - none == two - one == three - two, "not linear in the layers"
    return none, one - none
