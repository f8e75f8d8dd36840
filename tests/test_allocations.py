"""The planned schedules against what tape and session allocate, event by event."""

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Decoder,
    DecoderConfig,
    DecodeSession,
    SequenceLayout,
    SplitMix64,
    TextInputEncoder,
    ledgers,
    modes,
    ops,
)
from logitproof.core.kernels import KERNELS, Kernel
from logitproof.core.liveness import Event, Liveness, measure
from logitproof.core.planner import admit
from logitproof.core.records import ModelRecord, RunRecord
from logitproof.core.schedule import Sizes
from logitproof.core.sizes import known
from logitproof.properties import allocations, workspaces
from logitproof.properties.allocations import Observation
from logitproof.properties.interrupts import on_checked_path

PAYLOAD = modes.Payload(width=8, declares_workspace=True)
# Reference, bridge, and three made-up sizes: V, D, heads, F, L, C; then B, T.
CASES = [
    ((266, 4, 1, 4, 1, 4), 1, 3),
    ((266, 16, 2, 20, 2, 16), 2, 5),
    ((11, 12, 3, 7, 3, 6), 3, 6),
    ((5, 8, 4, 3, 4, 9), 1, 1),
    ((7, 2, 1, 1, 2, 4), 1, 1),
]
IDS = ["reference", "bridge", "three-blocks", "one-cell", "one-feature"]
NOT_NODES = ("state", "kv_cache", "newest_logits")


# The last step of each fused operation, as the plan names it.
ENDS = r"embeddings|blocks\.\d+\.output|final_norm\.output|logits|loss"


def decoder(sizes: tuple[int, ...], *, kernel: Kernel | None = None) -> Decoder:
    """Without a kernel the plan's program: every step."""
    V, D, heads, F, L, C = sizes
    config = DecoderConfig(
        vocabulary_size=V,
        model_width=D,
        heads=heads,
        feed_forward_width=F,
        layers=L,
        max_positions=C,
    )
    return Decoder(config, SplitMix64(4701), kernel=kernel)


def planned(mode: str, sizes: tuple[int, ...], B: int, T: int) -> Liveness:
    V, D, heads, F, L, C = sizes
    n = Sizes(V=V, D=D, L=L, H_q=heads, H_kv=heads, F=F, B=B, T=T, C=C)
    schedule = modes.events(mode, n, PAYLOAD, state_bytes=0)
    return measure(schedule, elide=False)


def births(lived: Liveness, *, elsewhere: int = 0) -> list[tuple[int, int]]:
    """Bytes of each node and bytes alive at its birth, in the plan."""
    points = [point for point in lived.events if is_node(point.event)]
    return [(point.event.bytes, point.live - elsewhere) for point in points]


def is_node(event: Event) -> bool:
    name = event.name
    apart = name in NOT_NODES or ".saved." in name or name.endswith((".adjoint", ".gradient"))
    return event.action == "allocate" and not apart


def is_operation(event: Event) -> bool:
    return is_node(event) and not event.name.endswith((".epsilon", ".exponent", ".scale"))


def seen(observation: Observation) -> list[tuple[int, int]]:
    return list(zip(observation.node_bytes, observation.live_bytes, strict=True))


def batch(sizes: tuple[int, ...], B: int, T: int) -> Any:
    return np.arange(B * T).reshape(B, T) % sizes[0]


def persistent(made: Decoder) -> list[Any]:
    """Values of parameters and rotation tables: the state ledger counts them."""
    turns = [block.attention.rotation for block in made.backbone.blocks]
    tables = [table for turn in turns for table in (turn.frequencies, turn.cosines, turn.sines)]
    return [*(parameter._value for parameter in made.parameters.values()), *tables]


@pytest.mark.parametrize(("sizes", "B", "T"), CASES, ids=IDS)
def test_a_recorded_loss_holds_what_the_plan_says(sizes: tuple[int, ...], B: int, T: int) -> None:
    made, ids = decoder(sizes), batch(sizes, B, T)
    with allocations.observed(persistent(made)) as observation:
        loss = made.loss(ids, ids)
    lived = planned("tracked-full", sizes, B, T)
    assert seen(observation) == births(lived)
    end = next(i for i, p in enumerate(lived.events) if p.event.name == "loss.adjoint")
    assert observation.alive_bytes() == lived.events[end - 1].live
    del loss


@pytest.mark.parametrize(("sizes", "B", "T"), CASES, ids=IDS)
def test_a_forward_without_a_graph_holds_what_the_plan_says(
    sizes: tuple[int, ...], B: int, T: int
) -> None:
    made = decoder(sizes)
    with allocations.observed(persistent(made)) as observation:
        result = made.forward(batch(sizes, B, T), context=NO_GRAD)
    lived = planned("untracked-full", sizes, B, T)
    assert seen(observation) == births(lived)
    kept = (result.embeddings, result.hidden, result.logits)
    assert observation.alive_bytes() == sum(tensor.value.nbytes for tensor in kept)
    assert lived.events[-4].live == observation.alive_bytes()


@pytest.mark.parametrize(("sizes", "B", "T"), CASES, ids=IDS)
def test_a_cached_token_holds_what_the_plan_says(sizes: tuple[int, ...], B: int, T: int) -> None:
    made = decoder(sizes)
    session = DecodeSession(made)
    session.prefill([0] * min(T, sizes[-1] - 1))
    with on_checked_path(), allocations.observed(persistent(made)) as observation:
        session.decode(B)
    lived = planned("cached", sizes, 1, 1)
    cache = next(point for point in lived.events if point.event.name == "kv_cache")
    assert cache.event.bytes == session.cache.nbytes
    assert seen(observation) == births(lived, elsewhere=session.cache.nbytes)


@pytest.mark.parametrize(("sizes", "B", "T"), CASES, ids=IDS)
def test_checkpoints_hold_what_the_plan_says(sizes: tuple[int, ...], B: int, T: int) -> None:
    made, ids = decoder(sizes), batch(sizes, B, T)
    V, D, heads, F, L, C = sizes
    n = Sizes(V=V, D=D, L=L, H_q=heads, H_kv=heads, F=F, B=B, T=T, C=C)
    lived = measure(modes.recomputed(n, PAYLOAD), elide=False)
    with allocations.observed(persistent(made)) as observation:
        prepared = TextInputEncoder(made, ids).encode(RECORDING, made.backbone)
        hidden = made.backbone.forward_recomputed(prepared).hidden
        logits = made.head.forward(RECORDING, hidden)
        loss = RECORDING.apply(ops.indexed_mean_nll, logits, axis=2, targets=ids)
        loss.backward()
    assert observation.node_bytes == [size for size, _ in births(lived)]
    assert observation.live_bytes == live_without_adjoints(lived)


def ends(lived: Liveness) -> list[int]:
    """Bytes alive in the plan when the last step of each fused operation is born."""
    points = [point for point in lived.events if point.event.action == "allocate"]
    return [point.live for point in points if re.fullmatch(ENDS, point.event.name)]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("mode", ["tracked-full", "untracked-full"])
@pytest.mark.parametrize(("sizes", "B", "T"), CASES, ids=IDS)
def test_fused_operations_hold_no_more_than_their_steps(
    sizes: tuple[int, ...], B: int, T: int, mode: str, kernel: Kernel
) -> None:
    made, ids = decoder(sizes, kernel=kernel), batch(sizes, B, T)
    recorded = mode == "tracked-full"
    with allocations.observed(persistent(made)) as observation:
        kept = made.loss(ids, ids) if recorded else made.forward(ids, context=NO_GRAD)
    allowed = ends(planned(mode, sizes, B, T))
    assert len(observation.live_bytes) == len(allowed)
    assert [a for a, b in zip(observation.live_bytes, allowed, strict=True) if a > b] == []
    del kept


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_fused_pass_needs_no_more_than_the_planned_peak(kernel: Kernel) -> None:
    sizes, B, T = (512, 128, 4, 160, 1, 64), 4, 64
    made, ids = decoder(sizes, kernel=kernel), batch(sizes, B, T)
    made.loss(ids, ids).backward()  # caches and lazy imports are made
    tracemalloc.start()
    made.loss(ids, ids).backward()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    lived = planned("tracked-full", sizes, B, T)
    assert peak <= lived.resident_peak + known(lived.workspace) + workspaces.ENVELOPE_SHARE


def live_without_adjoints(lived: Liveness) -> list[int]:
    """Bytes alive at each birth but for adjoints and gradients, which no node owns."""
    apart, live = 0, []
    for point in lived.events:
        if point.event.name.endswith((".adjoint", ".gradient")):
            sign = {"allocate": 1, "release": -1}[point.event.action]
            sizes = {p.event.name: p.event.bytes for p in lived.events if p.event.bytes}
            apart += sign * sizes[point.event.name]
        if is_node(point.event):
            live.append(point.live - apart)
    return live


@pytest.mark.parametrize(("sizes", "B", "T"), CASES, ids=IDS)
def test_a_reverse_pass_makes_the_adjoints_of_the_plan(
    sizes: tuple[int, ...], B: int, T: int
) -> None:
    made, ids = decoder(sizes), batch(sizes, B, T)
    trace = made.loss(ids, ids).backward_with_trace()
    first = {edge.parent: edge for edge in reversed(trace.edges) if edge.parent_tracked}
    order = sorted(first.values(), key=trace.edges.index)
    adjoints = [p.event for p in planned("tracked-full", sizes, B, T).events]
    expected = [e.bytes for e in adjoints if e.action == "allocate" and e.name.endswith("adjoint")]
    assert [8, *(edge.contribution.nbytes for edge in order)] == expected


@pytest.mark.parametrize(("sizes", "B", "T"), CASES, ids=IDS)
def test_a_commit_makes_one_new_gradient_per_parameter(
    sizes: tuple[int, ...], B: int, T: int
) -> None:
    made = decoder(sizes)
    events = [p.event for p in planned("tracked-full", sizes, B, T).events]
    fresh = [e.bytes for e in events if e.action == "allocate" and e.name.endswith("gradient")]
    gradients = [parameter.gradient.nbytes for parameter in made.parameters.values()]
    assert sorted(fresh) == sorted(gradients)


@pytest.mark.parametrize("scale", ["reference", "bridge"])
def test_the_state_is_values_gradients_and_tables(scale: str) -> None:
    admission = admit(ModelRecord.scale(scale), RunRecord.fixture(f"{scale}-ci"))
    made = admission.construct(SplitMix64(4701)).decoder
    learned = sum(p.value.nbytes + p.gradient.nbytes for p in made.parameters.values())
    tables = sum(block.attention.rotation.nbytes for block in made.backbone.blocks)
    assert admission.plan.rope_tables.total == tables
    assert admission.plan.state.total == learned + tables


def test_the_layout_metadata_are_the_arrays_of_a_layout() -> None:
    planned_bytes = ledgers.layout_metadata(3, 5, targets=False).total
    ids = np.zeros((3, 5), dtype=np.int64)
    assert planned_bytes == SequenceLayout.full(3, 5).nbytes + ids.nbytes


def test_no_primitive_needs_more_than_it_declares() -> None:
    sizes, B, T = (512, 128, 4, 160, 1, 64), 4, 64
    made, ids = decoder(sizes), batch(sizes, B, T)
    made.loss(ids, ids).backward()  # caches and lazy imports are made
    with workspaces.traced() as peaks:
        made.loss(ids, ids).backward()
    events = [p.event for p in planned("tracked-full", sizes, B, T).events]
    nodes = [e for e in events if is_operation(e)]
    rules = [e for e in events if e.name.endswith(".vjp")]
    declared = [known(e.workspace) + workspaces.ENVELOPE_SHARE for e in (*nodes, *rules)]
    needed = [*peaks.forward, *peaks.reverse]
    assert len(needed) == len(declared)
    assert [n for n, d in zip(needed, declared, strict=True) if n > d] == []
