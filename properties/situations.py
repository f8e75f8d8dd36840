"""Small decoders, ids and documents, and what a call must leave as it was."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Context,
    Decoder,
    DecoderConfig,
    DecodeSession,
    Parameter,
    PreparedDecoderInput,
    SplitMix64,
    Tensor,
    TextBatch,
    TextInputEncoder,
    ops,
    pack_documents,
    pad_documents,
)
from logitproof.core.backbone import BackboneOutput
from logitproof.core.floats import Array, Ids

__all__ = [
    "BRIDGE",
    "CH10",
    "CONFIGS",
    "REFERENCE",
    "SHORT",
    "TINY",
    "WIDER",
    "Run",
    "batch_of",
    "cached_state",
    "composed",
    "copied",
    "documents",
    "drawn_ids",
    "drawn_vectors",
    "full_logits",
    "gradients",
    "learned_state",
    "logits_of_split",
    "new_decoder",
    "probe_decoder",
    "cells_of",
    "leaf_run",
    "run_of",
    "shaken_decoder",
    "splits",
    "warm_decoder",
    "with_layers",
]


def _config(V: int, D: int, H: int, F: int, L: int, C: int) -> DecoderConfig:
    return DecoderConfig(
        vocabulary_size=V,
        model_width=D,
        heads=H,
        feed_forward_width=F,
        layers=L,
        max_positions=C,
    )


SHORT = _config(5, 4, 2, 3, 2, 3)  # the table of cache.md section 9
TINY = _config(5, 4, 2, 3, 2, 6)
CH10 = _config(258, 4, 1, 8, 2, 8)
REFERENCE = _config(266, 4, 1, 4, 1, 4)
BRIDGE = _config(266, 16, 2, 20, 2, 16)
WIDER = _config(40, 32, 4, 48, 3, 24)
CONFIGS = {
    "tiny": TINY,
    "ch10": CH10,
    "reference": REFERENCE,
    "bridge": BRIDGE,
    "wider": WIDER,
    "blockless": _config(7, 4, 1, 4, 0, 6),
}


def with_layers(
    config: DecoderConfig, layers: int, *, rms_epsilon: float | None = None
) -> DecoderConfig:
    """The same sizes at another depth, and with another epsilon where one is given."""
    epsilon = config.rms_epsilon if rms_epsilon is None else rms_epsilon
    return replace(config, layers=layers, rms_epsilon=epsilon)


def new_decoder(config: DecoderConfig, seed: int = 39) -> Decoder:
    """A decoder drawn from `seed`."""
    return Decoder(config, SplitMix64(seed))


def shaken_decoder(config: DecoderConfig, seed: int = 39) -> Decoder:
    """A drawn decoder whose gains, too, are drawn: no factor of one hides a missing one."""
    decoder = new_decoder(config, seed)
    for name, parameter in decoder.parameters.items():
        if name.endswith("gain"):
            parameter.assign(1.0 + drawn_vectors(seed + 1, *parameter.shape) / 2)
    return decoder


def warm_decoder(config: DecoderConfig, seed: int = 39) -> Decoder:
    """A decoder that holds gradients of one training step."""
    decoder = shaken_decoder(config, seed)
    ids = drawn_ids(config, min(4, config.max_positions))[None]
    decoder.loss(ids, (ids + 1) % config.vocabulary_size).backward()
    return decoder


def drawn_ids(config: DecoderConfig, count: int, seed: int = 1) -> Ids:
    """Token ids from a generator of their own."""
    return _integers(SplitMix64(seed), count, below=config.vocabulary_size)


def _integers(draw: SplitMix64, count: int, *, below: int) -> Ids:
    return (draw.uniforms(count) * below).astype(np.int64)


def drawn_vectors(seed: int, *shape: int) -> Array:
    """Values in [-1, 1) from a generator of their own."""
    return 2.0 * SplitMix64(seed).uniforms(int(np.prod(shape))).reshape(shape) - 1.0


def documents(config: DecoderConfig, seed: int, *, rows: int = 4) -> list[Ids]:
    """1 .. `rows` documents of 2 ids or more; one of them may fill every position."""
    draw = SplitMix64(seed)
    count = 1 + int(_integers(draw, 1, below=rows)[0])
    lengths = 2 + _integers(draw, count, below=config.max_positions)
    return [_integers(draw, int(n), below=config.vocabulary_size) for n in lengths]


def learned_state(decoder: Decoder) -> tuple[tuple[bytes, bytes, int], ...]:
    """Values, gradients and revisions of all parameters, as bits."""
    return tuple(
        (p.value.tobytes(), p.gradient.tobytes(), p.revision) for p in decoder.parameters.values()
    )


def gradients(decoder: Decoder) -> dict[str, Array]:
    """Every gradient by name."""
    return {name: p.gradient for name, p in decoder.parameters.items()}


def cached_state(session: DecodeSession) -> tuple[object, ...]:
    """What a session has committed: real rows as bits, lengths, counters, completeness."""
    cache = session.cache
    rows = tuple(
        (
            layer.length,
            layer.keys[:, :, : cache.length].tobytes(),
            layer.values[:, :, : cache.length].tobytes(),
        )
        for layer in cache.layers
    )
    return (cache.length, cache.prefill_complete, cache.work, rows, learned_state(session.decoder))


def full_logits(decoder: Decoder, ids: Sequence[int] | Ids, context: Context = NO_GRAD) -> Array:
    """Logits [T, V] of one full forward."""
    logits: Array = decoder.forward([list(map(int, ids))], context=context).logits.value[0]
    return logits


def splits(T: int) -> Iterator[tuple[int, ...]]:
    """All 2^(T - 1) ways to cut T tokens into consecutive chunks."""
    for cuts in product((False, True), repeat=T - 1):
        edges = [0, *(t + 1 for t, cut in enumerate(cuts) if cut), T]
        yield tuple(b - a for a, b in pairwise(edges))


def logits_of_split(
    session: DecodeSession, ids: Sequence[int] | Ids, sizes: Sequence[int], *, decode: bool
) -> list[Array]:
    """The newest logits after each chunk; later chunks of one token decode or extend."""
    outputs, first = [], 0
    for size in sizes:
        chunk = [int(token) for token in ids[first : first + size]]
        if first == 0:
            output = session.prefill(chunk)
        elif decode and size == 1:
            output = session.decode(chunk[0])
        else:
            output = session.extend(chunk)
        outputs.append(output.logits)
        first += size
    return outputs


def played(session: DecodeSession, script: Iterable[Any]) -> tuple[list[int], Array | None]:
    """The tokens held after a script of `strategies.Step`, and the newest logits if they stand.

    After a fork the copy goes on; the session given and all copies are closed at the end.
    """
    tokens: list[int] = []
    newest: Array | None = None
    for step in script:
        match step.name:
            case "fork":
                twin = session.fork()
                session.close()
                session = twin
            case "truncate":
                session.truncate(step.length)
                newest = newest if step.length == len(tokens) else None
                del tokens[step.length :]
            case "reset":
                session.reset()
                tokens, newest = [], None
            case name:
                given = step.ids[0] if name == "decode" else list(step.ids)
                newest = getattr(session, name)(given).logits
                tokens += step.ids
    session.close()
    return tokens, newest


def copied(decoder: Decoder) -> Decoder:
    """Equal values in nodes of its own."""
    twins = [Parameter(p.name, p.value) for p in decoder.parameters.values()]
    return Decoder.from_parameters(decoder.config, twins)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One batch through encoder, backbone, head and loss, each part at hand."""

    prepared: PreparedDecoderInput
    output: BackboneOutput
    logits: Tensor
    loss: Tensor


def composed(
    decoder: Decoder,
    batch: TextBatch,
    *,
    recomputed: bool = False,
    mean: bool = False,
    context: Context = RECORDING,
) -> Run:
    """The explicit composition of a decoder's parts over a batch and its valid targets."""
    prepared = TextInputEncoder(decoder, batch.ids, batch.layout).encode(context, decoder.backbone)
    return run_of(decoder, batch, prepared, recomputed=recomputed, mean=mean)


def run_of(
    decoder: Decoder,
    batch: TextBatch,
    prepared: PreparedDecoderInput,
    *,
    recomputed: bool = False,
    mean: bool = False,
) -> Run:
    """Backbone, head and loss from prepared vectors, under their context."""
    backbone, context = decoder.backbone, prepared.context
    output = (backbone.forward_recomputed if recomputed else backbone.forward)(prepared)
    logits = decoder.head.forward(context, output.hidden)
    rows = context.apply(ops.reshape, logits, shape=(batch.ids.size, logits.shape[2]))
    chosen = context.apply(ops.gather_rows, rows, indices=np.flatnonzero(batch.valid.reshape(-1)))
    operation = ops.indexed_mean_nll if mean else ops.indexed_sum_nll
    loss = context.apply(operation, chosen, axis=1, targets=batch.targets[batch.valid])
    return Run(prepared=prepared, output=output, logits=logits, loss=loss)


def leaf_run(
    decoder: Decoder, batch: TextBatch, vectors: Array | None = None
) -> tuple[Run, Parameter]:
    """A run from vectors of its own, default the lookup's, whose gradient is at hand."""
    if vectors is None:
        vectors = composed(decoder, batch, context=NO_GRAD).prepared.embeddings.value
    leaf = Parameter("vectors", vectors)
    prepared = PreparedDecoderInput(
        decoder.backbone, RECORDING, leaf, batch.layout, "vectors of its own", (leaf,)
    )
    return run_of(decoder, batch, prepared), leaf


def cells_of(batch: TextBatch, document: int, values: Array) -> Array:
    """The rows of `values` [B, T, ...] that belong to one document."""
    rows: Array = values[batch.segments == document]
    return rows


def batch_of(
    config: DecoderConfig, given: Sequence[Ids | Sequence[int]], *, packed: bool
) -> TextBatch:
    """Documents as one padded or packed batch of this decoder's sizes."""
    make = pack_documents if packed else pad_documents
    return make(list(given), vocabulary_size=config.vocabulary_size, capacity=config.max_positions)


def probe_decoder(values: Sequence[float], *, turning: bool = False) -> Decoder:
    """One block whose attention mixes `values[id]`: uniform, or with scores cos(p - j).

    A token's embedding is (cos, sin, 1, 0) of an angle of its own, so that every norm is one
    and the first two features say the value; the third makes all queries and keys alike.
    """
    largest = 2.0 * max(map(abs, values))
    config = replace(_config(len(values), 4, 2, 1, 1, len(values)), rms_epsilon=0.0)
    shares = np.array(values) / largest
    zero = {name: np.zeros((4, 4)) for name in ("query", "key", "value", "output")}
    zero["query"][2, 0] = 1.0 if turning else 0.0
    zero["key"][2, 0] = math.sqrt(0.5)
    zero["value"][0, 0] = largest * math.sqrt(0.5)
    table = np.stack([shares, np.sqrt(1.0 - shares**2), np.ones_like(shares), 0 * shares], axis=1)
    given: list[object] = [table, np.ones(4), *zero.values(), np.ones(4)]
    given += [np.zeros((4, 1)), np.zeros((4, 1)), np.zeros((1, 4)), np.ones(4)]
    named = zip(config.parameter_names(), given, strict=True)
    return Decoder.from_parameters(config, [Parameter(name, array) for name, array in named])
