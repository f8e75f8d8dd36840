"""What a decoded token costs against its prefix, in time and in bytes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from logitproof.core import DecoderConfig, DecodeSession
from logitproof.properties import peers
from logitproof.properties.decoding import fitted

from . import sizes
from .contenders import KERNELS, again, decode_steps, decoder, missing
from .timing import interleaved

__all__ = ["LONG", "Curve", "Memory", "curve", "memory"]

LONG = sizes.config(1000, 128, 4, 4, 344, 2048)
PREFIXES = (1, 16, 64, 128, 256, 512, 768, 1024, 1536, 2047)
TRACED_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Seconds per token behind each prefix, by contender."""

    prefixes: tuple[int, ...]
    seconds: Mapping[str, tuple[float, ...]]

    def fit(self, who: str) -> tuple[float, float, float]:
        """Constant, linear and quadratic coefficient of the best parabola."""
        return fitted(np.array(self.prefixes, dtype=np.float64), np.array(self.seconds[who]))

    def quadratic_share(self, who: str) -> float:
        """The quadratic term at the longest prefix as a share of the cost there."""
        longest, quadratic = self.prefixes[-1], self.fit(who)[2]
        return quadratic * longest**2 / self.seconds[who][-1]


def curve(
    *,
    rounds: int,
    least: float,
    config: DecoderConfig = LONG,
    prefixes: tuple[int, ...] = PREFIXES,
) -> Curve:
    """Every contender that decodes, longest prefix first: a session only ever forgets rows."""
    values = sizes.weights(config)
    prompt = sizes.batch(config, T=prefixes[-1])[0][0]
    sessions = {}
    for kernel in KERNELS:
        if missing(kernel) is None:
            sessions[kernel] = DecodeSession(decoder(config, kernel, values))
            sessions[kernel].prefill(prompt)
    seconds: dict[str, list[float]] = {}
    for prefix in reversed(prefixes):
        calls = {name: again(session, prefix) for name, session in sessions.items()}
        calls |= decode_steps(config, prefix, peers.PEERS).calls
        for who, timing in interleaved(calls, rounds=rounds, least=least).items():
            seconds.setdefault(who, []).insert(0, timing.seconds)
    return Curve(
        prefixes=prefixes, seconds={who: tuple(figures) for who, figures in seconds.items()}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of a session: its storage, what tokens leave behind, what the last one held at most."""

    cache_bytes: int
    bytes_per_token: int
    left_by_tokens: int
    tokens: int
    peak_of_a_token: int


def memory(config: DecoderConfig = LONG) -> Memory:
    """A session that decodes some tokens while every allocation is counted."""
    with DecodeSession(decoder(config, "ordered", sizes.weights(config))) as session:
        session.prefill([1])
        session.decode(1)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(TRACED_TOKENS):
            session.decode(1)
        gc.collect()  # Python keeps freed tuples for later ones: they are no token's
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        session.decode(1)
        peak = tracemalloc.get_traced_memory()[1] - after
        tracemalloc.stop()
        held = session.cache.nbytes
    return Memory(
        cache_bytes=held,
        bytes_per_token=held // config.max_positions,
        left_by_tokens=after - before,
        tokens=TRACED_TOKENS,
        peak_of_a_token=peak,
    )
