"""Laws over copies and pickles: other nodes that hold what the first ones held."""

import pickle
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from typing import Any

import numpy as np

from logitproof.properties.scalar import Generator

from .components import Components
from .difference import Difference, first_difference, first_named_difference
from .drawn import Draw, answered, draws, equal, first
from .law import Law

__all__ = ["LAWS"]

SHAPES = ((), (3,), (2, 1, 3), (0, 2))
BASES = (100.5, 10000.0, 1.5)


def _unpickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - bytes of our own making


WAYS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("deep copy", deepcopy), ("pickle", _unpickled), ("copy", copy),
)  # fmt: skip
DEEP = WAYS[:2]  # of a decoder; a shallow copy of one stands over the same nodes


def _parameters(implementation: Components, draw: Draw) -> Difference | None:
    parts, g = implementation.parts, draw.generator()
    shape = SHAPES[draw.size % len(SHAPES)]
    x = parts.Parameter("layers.x", draw.values(g, *shape))
    x.assign(draw.values(g, *shape))
    x.backward(draw.values(g, *shape))
    value, gradient, other = x.value.copy(), x.gradient.copy(), draw.values(g, *shape)

    def one(what: str, way: Callable[[Any], Any]) -> Iterator[Difference | None]:
        with x.reading(), x.reading_gradient():
            twin = way(x)
        told = (twin.name, twin.revision, twin.tracked, twin.is_same_node(x))
        yield equal(
            f"name, revision, tracked, one node: {what}", ("layers.x", 0, True, False), told
        )
        yield first_difference(f"value of a {what}", value, twin.value)
        yield first_difference(f"gradient of a {what}", gradient, twin.gradient)
        twin.assign(other)
        twin.backward(other)
        yield first_difference(f"gradient of a {what} and a pass", gradient + other, twin.gradient)
        yield first_difference(f"value behind a {what}", value, x.value)
        yield first_difference(f"gradient behind a {what}", gradient, x.gradient)

    return first(d for way in WAYS for d in one(*way))


def _decoder(parts: Any, g: Generator, size: int, kernel: Any) -> tuple[Any, list[list[int]]]:
    """A drawn decoder and ids for it: the smallest first, of a base that is no integer."""
    heads, T = 1 + g.below(min(3, 1 + size)), 1 + g.below(min(4, 1 + size))
    config = parts.DecoderConfig(
        vocabulary_size=1 + g.below(5), model_width=2 * heads, heads=heads,
        feed_forward_width=1 + g.below(3), layers=g.below(3), max_positions=T,
        rope_base=BASES[size % len(BASES)],
    )  # fmt: skip
    decoder = parts.Decoder(config, parts.SplitMix64(g.below(1 << 32)), kernel=kernel)
    return decoder, [[g.below(config.vocabulary_size) for _ in range(T)]]


def _held(decoder: Any, what: str) -> dict[str, Any]:
    return {name: getattr(p, what).copy() for name, p in decoder.parameters.items()}


def _decoders(implementation: Components, draw: Draw) -> Difference | None:
    parts, kernels = implementation.parts, tuple(implementation.kernels)
    kernel = kernels[draw.size % len(kernels)]
    decoder, ids = _decoder(parts, draw.generator(), draw.size, kernel)
    loss = decoder.loss(ids, ids)
    loss.backward()
    values, gradients = _held(decoder, "value"), _held(decoder, "gradient")
    doubled = {name: gradient + gradient for name, gradient in gradients.items()}
    exact = getattr(kernel, "claims_bits", True)  # products may else hang on where arrays lie

    def one(what: str, way: Callable[[Any], Any]) -> Iterator[Difference | None]:
        twin = way(decoder)
        yield equal(f"kernel of a {what}", repr(decoder.kernel), repr(twin.kernel))
        yield equal(f"configuration of a {what}", decoder.config, twin.config)
        yield first_named_difference(f"{what}: value", values, _held(twin, "value"))
        yield first_named_difference(f"{what}: gradient", gradients, _held(twin, "gradient"))
        nodes = list(zip(twin.parameters.values(), decoder.parameters.values(), strict=True))
        yield equal(f"nodes that a {what} shares", [], [a.name for a, b in nodes if a is b])
        tied = [node.is_same_node(twin.table) for node in (nodes[0][0], twin.head.table)]
        yield equal(f"the table of a {what} in lookup and head", [True, True], tied)
        again = twin.loss(ids, ids)
        again.backward()
        if exact:
            yield first_difference(f"loss of a {what}", loss.value, again.value)
            added = _held(twin, "gradient")
            yield first_named_difference(f"{what}: gradient after a pass", doubled, added)
        twin.table.assign(np.zeros(twin.table.shape))
        yield first_named_difference(f"behind a {what}: value", values, _held(decoder, "value"))
        kept = _held(decoder, "gradient")
        yield first_named_difference(f"behind a {what}: gradient", gradients, kept)

    return first(d for way in DEEP for d in one(*way))


LAWS = (
    Law(
        id="copies.parameters",
        statement="A copy or pickle of a parameter is another node of its name, value and gradient,"
        " read by nobody and assigned never; what becomes of it leaves the first as it was.",
        source="tape.md sections 1 and 2; the docstring of Parameter.__reduce__",
        needs=("tape", "copies"),
        faults=("copied-parameter-without-gradient",),
        cases=draws("dyadic", first_seed=77_500),
        check=answered(_parameters),
    ),
    Law(
        id="copies.decoders",
        statement="A deep copy or pickle of a decoder, of any base, has its kernel, values,"
        " gradients and tied table, in nodes of its own; it runs and is taught alike and alone.",
        source="layers.md section 11; the docstring of Decoder.__reduce__",
        needs=("layers", "copies"),
        faults=(
            "copied-decoder-with-one-gradient",
            "copied-decoder-of-the-usual-kernel",
            "copied-decoder-untied",
            "copied-table-of-a-whole-base",
        ),
        cases=draws("dyadic", first_seed=78_000),
        check=answered(_decoders),
    ),
)
