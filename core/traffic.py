"""Tensor-parallel partition and ring traffic: bytes sent by one forward."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from . import sizes
from .canonical import quoted
from .census import Census
from .codes import Code
from .errors import SupportRefusal
from .records import SINGLE_DEVICE, TENSOR_PARALLEL, ModelRecord, RunRecord
from .shapes import TensorGroup

# Where a block's two sums over all ranks stand.
REDUCTIONS: Final = ("attention.output", "ffn.down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Sent bytes of one forward; no receive side, no backward, never memory.

    events:            reductions over all ranks, all blocks
    sends:             messages of one rank in one event
    message_elements:  of one message
    rank_parameters:   scalars that one rank holds; gains are replicated
    """

    topology: str
    world_size: int
    events: int
    sends: int
    message_elements: int
    rank_event_bytes: int
    rank_bytes: int
    total_bytes: int
    rank_parameters: int


def traffic(model: ModelRecord, run: RunRecord, census: Census, *, width: int) -> Traffic:
    """The traffic of a run.

    chunk = B*C*D / W; sends = 2*(W - 1); events = 2*L
    width:   bytes per element sent
    Refuses: support/topology, shape/inexact-division (partition first), capacity/plan-overflow
    Source:  config_planner.md section 9
    """
    check_topology(run)
    W = run.world_size
    rank_parameters = partition(census.groups, W)
    if W == 1:
        return Traffic(
            topology=run.topology,
            world_size=1,
            events=0,
            sends=0,
            message_elements=0,
            rank_event_bytes=0,
            rank_bytes=0,
            total_bytes=0,
            rank_parameters=rank_parameters,
        )
    elements = sizes.product(
        (run.rows, model.max_positions, model.model_width), what="traffic", label="ring payload"
    )
    message = sizes.exact_quotient(elements, W, what="traffic.payload")
    sends, events = 2 * (W - 1), len(REDUCTIONS) * model.layers
    per_event = sizes.payload((sends, message, width), what="traffic", label="rank event bytes")
    per_rank = sizes.payload((per_event, events), what="traffic", label="rank bytes")
    return Traffic(
        topology=run.topology,
        world_size=W,
        events=sizes.kept(events, what="traffic", label="events"),
        sends=sizes.kept(sends, what="traffic", label="sends"),
        message_elements=sizes.kept(message, what="traffic", label="message elements"),
        rank_event_bytes=per_event,
        rank_bytes=per_rank,
        total_bytes=sizes.payload((per_rank, W), what="traffic", label="total bytes"),
        rank_parameters=rank_parameters,
    )


def check_topology(run: RunRecord) -> None:
    """Refuses what is neither one device nor the ring of two ranks or more.

    Refuses: support/topology
    """
    names = (run.topology, run.sharding, run.collectives)
    if names == SINGLE_DEVICE and run.world_size == 1:
        return
    if names == TENSOR_PARALLEL and run.world_size >= 2:
        return
    raise SupportRefusal(
        code=Code.TOPOLOGY,
        what="run.topology",
        feature=f"{' / '.join(map(quoted, names))} of world size {run.world_size}",
        details={
            "expected": f"{' / '.join(SINGLE_DEVICE)} of world size 1 or "
            f"{' / '.join(TENSOR_PARALLEL)} of world size 2 or more"
        },
    )


def partition(groups: Sequence[TensorGroup], W: int) -> int:
    """Scalars of one rank: each tensor divided on its axis, gains whole.

    Refuses: shape/inexact-division
    """
    scalars = 0
    for group in groups:
        if group.partition_axis == "replicated":
            scalars += group.parameter_elements
            continue
        axis = group.rows if group.partition_axis == "rows" else group.columns
        part = sizes.exact_quotient(axis, W, what=f"{group.name}.{group.partition_axis}")
        scalars += group.parameter_elements // axis * part
    return scalars
