"""The cost of a decoded token against the length of its prefix: counted, and timed by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from logitproof.core import Decoder, DecoderConfig, DecodeSession, floats
from logitproof.core.floats import Array
from logitproof.core.softmax import RowStatistics

from .interrupts import hooked

__all__ = ["LONG", "decoded", "elements_per_token", "fitted", "seconds_per_token"]

LONG = DecoderConfig(
    vocabulary_size=256,
    model_width=128,
    heads=4,
    feed_forward_width=256,
    layers=2,
    max_positions=2048,
)


def decoded(session: DecodeSession, tokens: int) -> None:
    """Commit so many tokens, the first by prefill."""
    for token in range(tokens):
        id = token * 7 % session.decoder.config.vocabulary_size
        if session.length:
            session.decode(id)
        else:
            session.prefill([id])


@contextmanager
def counting() -> Iterator[list[int]]:
    """While open, the products and terms of every ordered contraction, sum and exponential."""
    counted = [0]

    def add(elements: int) -> None:
        counted[0] += elements

    def products(_: int, operands: tuple[Any, ...]) -> None:
        left, right = operands[:2]
        add(left.size * right.shape[-1])

    with ExitStack() as stack:
        stack.enter_context(hooked(floats, "_contract_matrix", products))
        stack.enter_context(hooked(floats, "row_products", products))
        stack.enter_context(hooked(RowStatistics, "__init__", lambda _, given: add(given[1].size)))
        yield counted


def elements_per_token(decoder: Decoder, tokens: int) -> list[int]:
    """Counted work of each of so many tokens decoded one after another."""
    floats.contraction_is_ordered()  # its own trial contractions are no token's
    touched = []
    with DecodeSession(decoder) as session, counting() as counted:
        for _ in range(tokens):
            before = counted[0]
            decoded(session, 1)
            touched.append(counted[0] - before)
    return touched


def seconds_per_token(decoder: Decoder, tokens: int) -> Array:
    """Measured time of each token on this machine, which is no fact about the code."""
    times = []
    with DecodeSession(decoder) as session:
        for _ in range(tokens):
            start = time.perf_counter()
            decoded(session, 1)
            times.append(time.perf_counter() - start)
    return np.array(times)


def fitted(prefix: Array, cost: Array) -> tuple[float, float, float]:
    """Constant, linear and quadratic coefficient of the least-squares parabola."""
    quadratic, linear, constant = np.polyfit(prefix, cost, 2)
    return float(constant), float(linear), float(quadratic)
