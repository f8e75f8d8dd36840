"""A freshly drawn decoder under the depth policy, with the record of how it was drawn."""

from __future__ import annotations

from dataclasses import dataclass

from .config import DecoderConfig
from .errors import CapacityRefusal, Code
from .floats import Array
from .initial import BASE_INITIALIZER, DEPTH_POLICY, SplitMix64, depth_factor
from .kernels import ORDERED, Kernel
from .tape import Parameter
from .text import Decoder

__all__ = ["ConstructionRecord", "depth_scaled", "fresh_decoder"]

SCALED_ROLES = ("attention.output.weight", "ffn.down.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstructionRecord:
    """What made a fresh decoder: policy, initialiser, generator states, depth, seed."""

    policy: str
    base_initializer: str
    initial_state: int
    final_state: int
    depth: int


def depth_scaled(name: str, values: Array, *, layers: int) -> Array:
    """values * alpha for a residual output matrix of L > 1 blocks, else the values unchanged.

    Source: numerics_init.md section 5
    """
    if layers == 1 or not name.endswith(SCALED_ROLES):
        return values
    return values * depth_factor(layers)


def fresh_decoder(
    config: DecoderConfig,
    rng: SplitMix64,
    *,
    max_parameters: int | None = None,
    max_positions: int | None = None,
    kernel: Kernel | None = ORDERED,
) -> tuple[Decoder, ConstructionRecord]:
    """A drawn decoder whose attention output and down matrices are multiplied once by alpha.

    No draw is added, no run-time multiplier remains, and nothing scales loaded parameters.

    Refuses: shape/zero-depth, capacity/position-budget, the decoder's own,
        capacity/parameter-budget; a refusal keeps `rng`
    Source:  numerics_init.md section 5
    """
    depth_factor(config.layers)
    if max_positions is not None and config.max_positions > max_positions:
        raise CapacityRefusal(
            code=Code.POSITION_BUDGET,
            what="fresh decoder",
            required=config.max_positions,
            limit=max_positions,
        )
    if max_parameters is not None and parameter_count(config) > max_parameters:
        raise CapacityRefusal(
            code=Code.PARAMETER_BUDGET,
            what="fresh decoder",
            required=parameter_count(config),
            limit=max_parameters,
        )
    draft = rng.copy()
    base = Decoder(config, draft)
    scaled = [
        Parameter(p.name, depth_scaled(p.name, p.value, layers=config.layers))
        for p in base.parameters.values()
    ]
    decoder = Decoder.from_parameters(config, scaled, kernel=kernel)
    record = ConstructionRecord(
        policy=DEPTH_POLICY,
        base_initializer=BASE_INITIALIZER,
        initial_state=rng.state,
        final_state=draft.state,
        depth=config.layers,
    )
    rng.state = draft.state
    return decoder, record


def parameter_count(config: DecoderConfig) -> int:
    """P = V D + L (4 D^2 + 3 D F + 2 D) + D, with equal heads.

    Source: config_planner.md section 4
    """
    return sum(group.parameter_elements for group in config.parameter_groups())
