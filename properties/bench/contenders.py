"""Who is timed at what: our kernels, the peers that are installed, and bare matrix products."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from logitproof.core import Decoder, DecoderConfig, DecodeSession, Parameter
from logitproof.core.floats import Array
from logitproof.properties import peers
from logitproof.properties.peers import products

from . import sizes

__all__ = [
    "DECODE",
    "FORWARD",
    "KERNELS",
    "TASKS",
    "TRAINING",
    "WHO",
    "Contenders",
    "contenders",
    "decode_steps",
    "decoder",
    "missing",
]

Call: TypeAlias = Callable[[], object]

FORWARD, TRAINING, DECODE = TASKS = ("forward", "forward+backward", "decode")

# Our kernels by the short name of the tables; an admitted run record has the long one.
KERNELS = {"ordered": "ordered-f64", "blas": "blas-f64"}
PRODUCTS = "products"
WHO = (*KERNELS, PRODUCTS, *peers.PEERS)


@dataclass(slots=True)
class Contenders:
    """Calls by name, and why the others are not among them."""

    calls: dict[str, Call] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def missing(who: str) -> str | None:
    """Why a contender cannot run here, or None."""
    if who in peers.PEERS:
        return peers.missing(who)
    if who == "blas" and importlib.util.find_spec("logitproof.core.kernels") is None:
        return "no decoder here runs the blas kernel"
    return None


def decoder(config: DecoderConfig, kernel: str, weights: dict[str, Array]) -> Decoder:
    """A decoder over these values under one of `KERNELS`."""
    parameters = [Parameter(name, value) for name, value in weights.items()]
    if kernel == "ordered":
        return Decoder.from_parameters(config, parameters)
    kernels: Any = importlib.import_module("logitproof.core.kernels")
    chosen = {"kernel": kernels.KERNELS[KERNELS[kernel]]}
    return Decoder.from_parameters(config, parameters, **chosen)


def contenders(
    config: DecoderConfig, task: str, who: Iterable[str] = WHO, *, rows: int = 1
) -> Contenders:
    """One call per contender: a forward, a forward and backward, or one cached token.

    A token is decoded behind a window that is full but for it; the others take a full window.
    """
    if task == DECODE:
        return decode_steps(config, config.max_positions - 1, who)
    values = sizes.weights(config)
    found = Contenders()
    for name in who:
        reason = missing(name)
        if reason is not None:
            found.missing[name] = reason
        else:
            found.calls[name] = _pass(name, config, values, task, rows)
    return found


def _pass(name: str, config: DecoderConfig, values: dict[str, Array], task: str, rows: int) -> Call:
    """One pass over a batch. Ours adds to the gradients that are there, as its contract says."""
    if name == PRODUCTS:
        made = products.forward if task == FORWARD else products.forward_backward
        return made(config, config.max_positions)
    ids, targets = sizes.batch(config, rows)
    if name in peers.PEERS:
        work = peers.peer(name).work(config, values, ids, targets)
        return work.forward if task == FORWARD else work.forward_backward
    ours = decoder(config, name, values)
    if task == FORWARD:
        return lambda: ours.loss(ids, targets)
    return lambda: ours.loss(ids, targets).backward()


def decode_steps(config: DecoderConfig, prefix: int, who: Iterable[str] = WHO) -> Contenders:
    """One token behind `prefix` cached ones, at the same place at every call."""
    values = sizes.weights(config)
    prompt = sizes.batch(config, T=max(prefix, 1))[0][0, :prefix]
    found = Contenders()
    for name in who:
        reason = missing(name)
        step: Call | None = None
        if reason is None and name == PRODUCTS:
            step = products.decode_step(config, prefix)
        elif reason is None and name in peers.PEERS:
            by_token = peers.peer(name).decoding(config, values, prompt)
            step = None if by_token is None else (lambda ask=by_token: ask(1))
            reason = "no eager step to compare with" if step is None else None
        elif reason is None:
            session = DecodeSession(decoder(config, name, values))
            session.prefill(prompt)
            step = again(session, prefix)
        if step is None:
            found.missing[name] = str(reason)
        else:
            found.calls[name] = step
    return found


def again(session: DecodeSession, prefix: int) -> Call:
    """Decodes the token behind `prefix`, whatever was decoded there before."""

    def step() -> None:
        session.truncate(prefix)
        session.decode(1)

    return step
