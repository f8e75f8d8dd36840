"""The parts of the core as what the laws over components can judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import is_dataclass
from importlib import import_module
from itertools import pairwise
from pkgutil import iter_modules
from typing import Any, TypeAlias

from logitproof import core
from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Decoder,
    DecodeSession,
    Tensor,
    TextInputEncoder,
    TextOutputHead,
    attention,
    gradcheck,
    identity,
    liveness,
    modes,
    ops,
    profiles,
    schedule,
    tokenizer,
)
from logitproof.core.kernels import KERNELS
from logitproof.core.retained import retained_bytes
from logitproof.core.rope import RotaryTable

from .allocations import observed
from .counting import counting
from .elsewhere import Product, products_by
from .interrupts import on_checked_path
from .invalid.boundary import Boundary, NearMiss, state
from .invalid.registry import BOUNDARIES, refusal
from .invalid.told import untold, untold_sizes
from .workspaces import peak_bytes, traced

__all__ = ["CoreComponents"]

Rows: TypeAlias = Sequence[Sequence[int]]


def _event(action: Any, name: str, size: int, workspace: int, of: str) -> liveness.Event:
    return liveness.Event(action=action, name=name, bytes=size, workspace=workspace, of=of)


class CoreComponents:
    """The methods behind the capabilities of `laws.protocol.Components`."""

    component_capabilities: Mapping[str, bool] = {
        "operation-values": True,
        "operations": True,
        "functions": True,
        "tape": True,
        "layers": True,
        "sessions": True,
        "tokenizer": True,
        "records": True,
        "planner": True,
        "batches": True,
        "gradient-checks": True,
        "graph-bytes": True,
        "lifetimes": True,
        "boundaries": True,
        "prepared": True,
        "counted-work": True,
        "identities": True,
        "token-training": True,
        "copies": True,
        "elsewhere": True,
    }

    parts: Any = core
    checks: Any = gradcheck
    identities: Any = identity
    tokens: Any = tokenizer
    kernels: Any = (None, *KERNELS.values())
    decoder: Decoder

    def counted(self, call: Callable[[], object]) -> Mapping[str, int]:
        """By hooks in the core."""
        with counting() as counted:
            call()
        return counted

    def elsewhere(self, product: Product) -> AbstractContextManager[None]:
        """By what the core asks of numpy."""
        return products_by(product)

    def loss_of(self, ids: Rows, targets: Rows) -> Tensor:
        """A loss and its graph."""
        return self.decoder.loss(ids, targets)

    def value_types(self) -> Iterator[type]:
        """Every dataclass, where it is defined."""
        for module in iter_modules(core.__path__, f"{core.__name__}."):
            for kind in vars(import_module(module.name)).values():
                if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.name:
                    yield kind

    def rotation(self, width: int, capacity: int, base: float) -> Any:
        """The core's rotary table."""
        return RotaryTable(width, capacity, base)

    def attended(self, query: Tensor, key: Tensor, value: Tensor) -> Mapping[str, Tensor]:
        """By the core that every attention layer calls."""
        return attention.scaled_dot_product(query, key, value)

    def session(self) -> Any:
        """A session over the loaded decoder."""
        return DecodeSession(self.decoder)

    def resumed(self, session: Any) -> Any:
        """Another session over the cache of one that ended."""
        return DecodeSession(self.decoder, session.cache)

    @contextmanager
    def _one_by_one(self) -> Iterator[Decoder]:
        """The same parameters, every step by itself: the program that the plan describes."""
        whole = self.decoder
        parameters = list(whole.parameters.values())
        self.decoder = Decoder.from_parameters(whole.config, parameters, kernel=None)
        try:
            with on_checked_path():
                yield self.decoder
        finally:
            self.decoder = whole

    def births(self, mode: str, rows: int, T: int) -> list[tuple[int, int]]:
        """Float arrays, as the tape makes them."""
        with self._one_by_one() as decoder:
            return self._births(decoder, mode, rows, T)

    def _births(self, decoder: Decoder, mode: str, rows: int, T: int) -> list[tuple[int, int]]:
        ids = [[0] * T] * rows
        turns = [block.attention.rotation for block in decoder.backbone.blocks]
        tables = [t for turn in turns for t in (turn.frequencies, turn.cosines, turn.sines)]
        values = [parameter._value for parameter in decoder.parameters.values()]
        session = self.session()
        if mode == "cached":
            session.prefill([0] * (T - 1))
        calls: dict[str, Callable[[], object]] = {
            "tracked-full": lambda: decoder.loss(ids, ids),
            "untracked-full": lambda: decoder.forward(ids, context=NO_GRAD),
            "cached": lambda: session.decode(0),
            "recomputed": lambda: self._loss(ids, ids, recomputed=True).backward(),
        }
        with observed([*values, *tables]) as seen:
            held = calls[mode]()
        del held
        session.close()
        return list(zip(seen.node_bytes, seen.live_bytes, strict=True))

    def measured(self, events: Iterable[tuple[Any, str, int, int, str]]) -> tuple[Any, Any, Any]:
        """By the planner's measure."""
        lived = liveness.measure(_event(*event) for event in events)
        return lived.resident_peak, lived.workspace, lived.combined_peak

    def repeated(
        self,
        events: Iterable[tuple[Any, str, int, int, str]],
        times: int,
        *,
        descending: bool,
        elide: bool,
        back: Iterable[tuple[Any, str, int, int, str]] = (),
    ) -> Iterator[tuple[Any, ...]]:
        """By the planner's timeline."""
        rounds = [
            liveness.Repeat(
                times=times, events=tuple(_event(*event) for event in told), descending=down
            )
            for told, down in ((events, descending), (back, not descending))
        ]
        for point in liveness.measure(rounds, elide=elide).timeline:
            if isinstance(point, liveness.Point):
                yield point.event.name, point.live
            else:
                yield point.times, point.change_bytes, point.live

    def projection_fits(self, tokens: int, tokens_per_second: int, wall_seconds: int) -> bool:
        """The planner's projection."""
        return profiles.projection_fits(tokens, tokens_per_second, wall_seconds)

    def needed_bytes(self, rows: int, T: int) -> list[int]:
        """Peaks of the second of two runs: the first fills caches and imports what is late."""
        V = self.decoder.config.vocabulary_size
        ids = [[(row * T + t) % V for t in range(T)] for row in range(rows)]
        with self._one_by_one() as decoder:
            decoder.loss(ids, ids).backward()
            with traced() as peaks:
                decoder.loss(ids, ids).backward()
        return [*peaks.forward, *peaks.reverse]

    def token_bytes(self, T: int) -> int:
        """The peak of the last of T tokens, each path's first taken before."""
        ids = [t % self.decoder.config.vocabulary_size for t in range(T)]
        with self._one_by_one() as decoder, DecodeSession(decoder) as session:
            session.prefill(ids[:-2])
            session.decode(ids[-2])
            with peak_bytes() as peak:
                session.decode(ids[-1])
        return peak()

    def recomputed_events(self, rows: int, T: int) -> list[Any]:
        """The schedule of blocks that run again, every block's events."""
        held = self.decoder.config
        sizes = schedule.Sizes(
            V=held.vocabulary_size, D=held.model_width, L=held.layers, H_q=held.heads,
            H_kv=held.heads, F=held.feed_forward_width, B=rows, T=T, C=held.max_positions,
        )  # fmt: skip
        payload = modes.Payload(width=8, declares_workspace=True)
        events = modes.recomputed(sizes, payload)
        return [point.event for point in liveness.measure(events, elide=False).events]

    def graph_bytes(self, ids: Rows, targets: Rows, *, recomputed: bool) -> int:
        """The distinct arrays that the loss holds on to."""
        return retained_bytes(self._loss(ids, targets, recomputed=recomputed))

    def _loss(self, ids: Rows, targets: Rows, *, recomputed: bool) -> Tensor:
        decoder, flat = self.decoder, [v for row in targets for v in row]
        prepared = TextInputEncoder(decoder, ids).encode(RECORDING, decoder.backbone)
        backbone = decoder.backbone
        run = backbone.forward_recomputed if recomputed else backbone.forward
        logits = TextOutputHead(decoder.table).forward(RECORDING, run(prepared).hidden)
        return RECORDING.apply(ops.indexed_mean_nll, logits, axis=2, targets=flat)

    def retained(self, tensor: Any) -> int:
        """Each array once, whole."""
        return retained_bytes(tensor)

    def assign(self, name: str, value: Any) -> None:
        """Another value for one parameter of the loaded decoder."""
        self.decoder.parameters[name].assign(value)

    def rows(self, session: Any) -> bytes:
        """The bytes of every committed cached row, with lengths and counters."""
        cache = session.cache
        facts = [repr((cache.length, cache.prefill_complete, cache.work)).encode()]
        for layer in cache.layers:
            keys, values = layer.prefix()
            facts += [str(layer.length).encode(), keys.tobytes()]
            facts.append(values[:, : layer.length].tobytes())
        return b"|".join(facts)

    def cached(self, session: Any) -> list[tuple[Any, Any]]:
        """By the public copies of each layer's storage."""
        return [
            (layer.keys[0, :, : layer.length], layer.values[0, :, : layer.length])
            for layer in session.cache.layers
        ]

    def poison_unused_rows(self, session: Any, poison: float) -> None:
        """Overwrites what lies behind the committed rows."""
        for layer in session.cache.layers:
            layer._key_columns[..., layer.length :] = poison
            layer._value_rows[:, :, layer.length :] = poison

    def refused_in_order(self, start: int, step: int) -> Iterator[str]:
        """Near misses that another rule refuses, or none."""
        for boundary in BOUNDARIES[start::step]:
            if (without := refusal(boundary, boundary.valid())) is not None:
                yield f"{boundary.name} without a fault: {without}"
            for miss in _adjacent(boundary):
                refused = refusal(boundary, miss.situation())
                found = ["accepted"] if refused is None else miss.complaints(refused)
                yield from (f"{miss}: {complaint}" for complaint in found)

    def changed_by_refusals(self, start: int, step: int) -> Iterator[str]:
        """Near misses whose refusal leaves something else than before."""
        for boundary in BOUNDARIES[start::step]:
            for miss in boundary.near_misses(upto=1):
                situation = miss.situation()
                before = state(situation)
                if refusal(boundary, situation) is not None and state(situation) != before:
                    yield f"{miss}: something changed"

    def untold_by_refusals(self, start: int, step: int) -> Iterator[str]:
        """Refusals that hide a fact, or lose one on the way to another process."""
        for boundary in BOUNDARIES[start::step]:
            for miss in boundary.near_misses(upto=1):
                refused = refusal(boundary, miss.situation())
                if refused is not None:
                    yield from (f"{miss}: {what}" for what in untold(miss, refused))
        if start == 0:
            yield from untold_sizes()


def _adjacent(boundary: Boundary) -> Iterator[NearMiss]:
    """Every fault alone, and with the next one that can stand beside it."""
    yield from boundary.near_misses(upto=1)
    for one, other in pairwise(boundary.faults):
        if boundary.can_coexist(one, other):
            yield NearMiss(boundary=boundary, faults=(one, other))
