from typing import Any

import pytest

from logitproof.core import shapes, traffic
from logitproof.core.census import census
from logitproof.core.codes import Code
from logitproof.core.records import TENSOR_PARALLEL, ModelRecord, RunRecord
from logitproof.properties import enumeration
from logitproof.properties.refusals import refusal_of

PRODUCTION = ModelRecord.scale("production")
ONE_DEVICE = RunRecord.fixture("production-plan-only")
RING = dict(zip(("topology", "sharding", "collectives"), TENSOR_PARALLEL, strict=True))
TP8 = ONE_DEVICE.replace(world_size=8, **RING)


def test_one_device_sends_nothing() -> None:
    sent = traffic.traffic(PRODUCTION, ONE_DEVICE, census(PRODUCTION), width=2)
    assert (sent.events, sent.sends, sent.rank_bytes, sent.total_bytes) == (0, 0, 0, 0)
    assert sent.rank_parameters == 69500936192


@pytest.mark.golden
def test_eight_ranks_send_the_published_bytes() -> None:
    sent = traffic.traffic(PRODUCTION, TP8, census(PRODUCTION), width=2)
    assert (sent.sends, sent.events, sent.message_elements) == (14, 160, 33554432)
    assert (sent.rank_event_bytes, sent.rank_bytes) == (939524096, 150323855360)
    assert sent.total_bytes == 1202590842880


@pytest.mark.golden
def test_a_rank_of_eight_holds_its_shards_and_every_gain() -> None:
    held = traffic.partition(census(PRODUCTION).groups, 8)
    assert held == 8688771072 != 69500936192 // 8


@pytest.mark.parametrize("W", [2, 4])
def test_the_ranks_own_what_enumeration_gives_them(W: int) -> None:
    sizes = (8, 8, 2, 4, 4, 12)
    tensors = enumeration.tensors(*sizes)
    shards = [enumeration.shard(tensors, W, rank) for rank in range(W)]
    assert [traffic.partition(shapes.parameter_shapes(*sizes), W)] * W == shards


@pytest.mark.parametrize("W", [2, 3, 4, 8])
def test_the_ring_sends_what_a_ring_done_by_hand_sends(W: int) -> None:
    elements = 24
    summed, sent = enumeration.ring([[rank + k for k in range(elements)] for rank in range(W)])
    total = [sum(rank + k for rank in range(W)) for k in range(elements)]
    assert summed == [total] * W
    assert sent == [2 * (W - 1) * (elements // W)] * W


@pytest.mark.parametrize(
    "changes",
    [
        {"world_size": 8},
        {"topology": "mesh"},
        {"sharding": "matrix-axes-v1"},
        {"collectives": "two-allreduces-per-block-forward-v1"},
        {**RING},
        {**RING, "world_size": 8, "sharding": "none"},
        {**RING, "world_size": 8, "collectives": "none\n"},
    ],
    ids=str,
)
def test_another_topology_is_an_error(changes: dict[str, Any]) -> None:
    fault = refusal_of(traffic.check_topology, ONE_DEVICE.replace(**changes))
    assert (fault.code, fault.what) == (Code.TOPOLOGY, "run.topology")
    assert "\n" not in str(fault)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"vocabulary_size": 128001}, "token_embedding.weight.rows"),
        ({"feed_forward_width": 28671}, "ffn.gate.weight.columns"),
        ({"kv_heads": 1, "model_width": 8192 + 64 * 2}, "attention.key.weight.columns"),
    ],
)
def test_a_tensor_that_does_not_divide_is_an_error(changes: dict[str, Any], what: str) -> None:
    model = PRODUCTION.replace(**changes)
    fault = refusal_of(traffic.traffic, model, TP8, census(model), width=2)
    assert (fault.code, fault.what) == (Code.INEXACT_DIVISION, what)


def test_more_traffic_than_64_bits_is_an_error() -> None:
    model = PRODUCTION.replace(max_positions=2**50)
    fault = refusal_of(traffic.traffic, model, TP8, census(model), width=2)
    assert (fault.code, fault.reason) == (Code.PLAN_OVERFLOW, "rank event bytes")
