"""Work that is counted, not timed: the same on every machine, so that a test can hold it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from logitproof.core import Decoder, DecodeSession, Tensor
from logitproof.core.backward import topology
from logitproof.properties.counting import counting

from . import sizes

__all__ = ["by_layers", "nodes", "of_a_pass", "of_a_token"]


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
