"""A row on plain arrays: the checked path's bits, and its refusals wherever a guard fails."""

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from logitproof.core import (
    Code,
    Decoder,
    DecodeSession,
    NumericRefusal,
    Parameter,
    Refusal,
    ShapeRefusal,
    ops,
)
from logitproof.core.layers import Linear, RmsNorm
from logitproof.core.liveness import measure
from logitproof.core.modes import Payload, events
from logitproof.core.retained import memory_owner
from logitproof.core.schedule import Sizes
from logitproof.properties.compare import same_bits
from logitproof.properties.interrupts import calls_of, on_checked_path
from logitproof.properties.situations import (
    BRIDGE,
    CH10,
    REFERENCE,
    TINY,
    cached_state,
    new_decoder,
    shaken_decoder,
    with_layers,
)
from logitproof.properties.workspaces import ENVELOPE_SHARE

SIZES = ["reference", "bridge", "ch10", "tiny"]
LARGEST = np.finfo(np.float64).max
PARTS = [
    "token_embedding.weight",
    "blocks.0.attention_norm.gain",
    "blocks.0.attention.query.weight",
    "blocks.0.attention.key.weight",
    "blocks.0.attention.value.weight",
    "blocks.0.attention.output.weight",
    "blocks.1.ffn_norm.gain",
    "blocks.1.ffn.gate.weight",
    "blocks.1.ffn.up.weight",
    "blocks.1.ffn.down.weight",
    "final_norm.gain",
]


def run(decoder: Decoder) -> tuple[list[Any], Any]:
    """Logits of every token of a full cache, and what the cache holds then."""
    with DecodeSession(decoder) as session:
        outputs = [session.prefill([1])]
        while session.length < decoder.config.max_positions:
            outputs.append(session.decode(session.length % 3))
        return [output.logits for output in outputs], cached_state(session)


@pytest.mark.parametrize("config", [REFERENCE, BRIDGE, CH10, TINY], ids=SIZES)
def test_a_row_has_the_bits_of_the_checked_path(config: Any) -> None:
    decoder = shaken_decoder(config, 3)
    logits, state = run(decoder)
    with on_checked_path():
        wanted, wanted_state = run(decoder)
    assert all(same_bits(a, b) for a, b in zip(logits, wanted, strict=True))
    assert state == wanted_state


def test_an_ordinary_token_takes_no_checked_path() -> None:
    with DecodeSession(new_decoder(TINY)) as session, calls_of(RmsNorm, "forward") as norms:
        session.prefill([0, 1])
        session.decode(2)
    assert norms == []


@pytest.mark.parametrize("prompt", [2, 31, 33, 70])
@pytest.mark.parametrize("first", [1, 2, 40])
def test_a_block_has_the_bits_of_its_tokens_alone(prompt: int, first: int) -> None:
    decoder = shaken_decoder(replace(BRIDGE, max_positions=110), 3)
    ids = [token * 7 % 266 for token in range(first + prompt)]
    with DecodeSession(decoder) as session, DecodeSession(decoder) as alone:
        _ = session.prefill(ids[:first]), alone.prefill(ids[:1])
        seen = session.extend(ids[first:])
        wanted = [alone.extend([token]) for token in ids[1:]][-1]
        assert same_bits(seen.logits, wanted.logits)
        assert (seen.position, seen.score_values) == (wanted.position, wanted.score_values)
        assert cached_state(session) == cached_state(alone)


def test_a_block_keeps_no_logits_but_its_last() -> None:
    with DecodeSession(new_decoder(BRIDGE)) as session:
        logits = session.prefill([0, 1, 2]).logits
    assert memory_owner(logits).nbytes == logits.nbytes


def enlarged(name: str) -> Decoder:
    """A decoder one of whose parameters is so large that something overflows."""
    decoder = new_decoder(TINY)
    parameter = decoder.parameters[name]
    parameter.assign(np.full(parameter.shape, LARGEST))
    return decoder


def refused(decoder: Decoder) -> Refusal:
    with DecodeSession(decoder) as session, pytest.raises(Refusal) as caught:
        session.prefill([0, 1])
    assert session.length == 0
    return caught.value


@pytest.mark.parametrize("name", PARTS)
def test_what_overflows_is_refused_as_on_the_checked_path(name: str) -> None:
    seen = refused(enlarged(name))
    with on_checked_path():
        wanted = refused(enlarged(name))
    assert type(seen) is type(wanted) is NumericRefusal
    assert seen.code == Code.NON_FINITE_FORWARD
    assert seen.facts() == wanted.facts()
    assert seen.__context__ is None


def test_a_row_without_energy_is_refused_as_on_the_checked_path() -> None:
    decoder = new_decoder(with_layers(TINY, 2, rms_epsilon=0.0))
    decoder.table.assign(np.zeros(decoder.table.shape))
    assert refused(decoder).code == Code.ZERO_ENERGY_ROW


class Doubled(Linear):
    """A projection with a forward of its own."""

    def forward(self, x: Any, *, context: Any = None) -> Any:
        """Twice the projection: x plus x, projected."""
        return super().forward(context.apply(ops.add, x, x), context=context)


def test_a_part_of_another_type_keeps_its_own_forward() -> None:
    plain, other = new_decoder(TINY), new_decoder(TINY)
    ffn = other.backbone.blocks[0].ffn
    ffn.down = Doubled(ffn.down.weight)
    seen = [DecodeSession(decoder).prefill([0, 1]).logits for decoder in (plain, other)]
    assert not same_bits(*seen)


@pytest.mark.parametrize("name", ["up", "down"])
def test_a_part_that_does_not_fit_is_refused_as_on_the_checked_path(name: str) -> None:
    decoder = new_decoder(TINY)
    ffn = decoder.backbone.blocks[1].ffn
    setattr(ffn, name, Linear(Parameter("narrow", np.ones((1, 1)))))
    seen = refused(decoder)
    with on_checked_path():
        assert refused(decoder).facts() == seen.facts()
    assert isinstance(seen, ShapeRefusal)


@pytest.mark.parametrize("name", ["attention_norm", "ffn_norm"])
def test_a_gain_that_does_not_fit_is_refused(name: str) -> None:
    decoder = new_decoder(TINY)
    setattr(decoder.backbone.blocks[1], name, RmsNorm(Parameter("narrow", np.ones(1)), 1e-6))
    assert refused(decoder).code == Code.INPUT_WIDTH_MISMATCH


def test_a_branch_of_another_width_is_refused() -> None:
    decoder = new_decoder(TINY)
    down = decoder.backbone.blocks[0].ffn.down
    decoder.backbone.blocks[0].ffn.down = Linear(Parameter("n", np.ones((down.input_width, 1))))
    assert refused(decoder).code == Code.RESIDUAL_SHAPE_MISMATCH


def test_a_gate_of_another_width_is_refused() -> None:
    decoder = new_decoder(TINY)
    decoder.backbone.blocks[0].ffn.up = Linear(Parameter("n", np.ones((4, 2))))
    assert refused(decoder).code == Code.INCOMPATIBLE_BROADCAST


def refused_step(session: DecodeSession) -> Refusal:
    with session, pytest.raises(Refusal) as caught:
        session.decode(1)
    return caught.value


def prefilled() -> DecodeSession:
    session = DecodeSession(new_decoder(TINY))
    session.prefill([0])
    return session


def test_a_cache_that_no_longer_binds_is_refused() -> None:
    session = prefilled()
    attention = session.decoder.backbone.blocks[1].attention
    attention.value = Linear(Parameter("v", np.ones((4, 4))))
    assert refused_step(session).code == Code.PREPARED_CACHE_BINDING


@pytest.mark.parametrize("layers", [0, 1])
def test_a_cache_of_other_layers_is_refused(layers: int) -> None:
    session = prefilled()
    session.cache.layers = session.cache.layers[:layers]
    assert refused_step(session).code == Code.PREPARED_CACHED_MODE


def test_a_layer_of_another_length_is_refused() -> None:
    session = prefilled()
    session.cache.layers[1].length = 0
    assert refused_step(session).code == Code.PREPARED_CACHE_PREFIX


def test_a_bias_is_added() -> None:
    decoder = new_decoder(TINY)
    ffn = decoder.backbone.blocks[0].ffn
    ffn.up = Linear(ffn.up.weight, Parameter("bias", np.full(TINY.feed_forward_width, 0.3)))
    logits, state = run(decoder)
    with on_checked_path():
        wanted, wanted_state = run(decoder)
    assert all(same_bits(a, b) for a, b in zip(logits, wanted, strict=True))
    assert state == wanted_state


def test_a_row_needs_no_more_than_the_plan_of_a_token() -> None:
    decoder = new_decoder(BRIDGE)
    n = Sizes(V=266, D=16, L=2, H_q=2, H_kv=2, F=20, B=1, T=1, C=16)
    payload = Payload(width=8, declares_workspace=True)
    lived = measure(events("cached", n, payload, state_bytes=0), elide=False)
    with DecodeSession(decoder) as session:
        session.prefill([0] * 15)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        session.decode(1)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        planned = max(point.live for point in lived.events) - session.cache.nbytes
    assert peak <= planned + ENVELOPE_SHARE
