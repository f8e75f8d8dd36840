"""Laws over what lives at once: the planned events against the arrays that really are there."""

from typing import Any

from logitproof.properties.scalar import Config, Generator, initial_weights

from .components import Components
from .difference import Difference
from .drawn import Draw, draws, equal
from .law import Law

__all__ = ["LAWS"]

MODES = ("tracked-full", "untracked-full", "cached")
NOT_NODES = ("state", "kv_cache", "newest_logits")


def _is_node(event: Any) -> bool:
    name = event.name
    apart = name in NOT_NODES or ".saved." in name or name.endswith((".adjoint", ".gradient"))
    return event.action == "allocate" and not apart


def _births(implementation: Components, draw: Draw) -> Difference | None:
    """Bytes of every value, and of all values and saved arrays alive when it is made."""
    g, mode = draw.generator(), MODES[draw.size % 3]
    heads = 1 + g.below(3)
    sizes = {
        "vocabulary_size": 2 + g.below(9),
        "model_width": heads * 2 * (1 + g.below(3)),
        "layers": 1 + g.below(2),  # of more, a plan tells the first and the last
        "heads": heads,
        "feed_forward_width": 1 + g.below(7),
        "max_positions": 2 + g.below(5),
    }
    rows = 1 if mode == "cached" else 1 + g.below(3)
    parts = implementation.parts
    model = parts.ModelRecord.scale("reference").replace(kv_heads=heads, **sizes)
    run = parts.RunRecord.fixture("reference-ci").replace(rows=rows, microbatch=rows)
    config = Config(**sizes, rope_base=10000.0, rms_epsilon=1e-6)
    implementation.load(config, initial_weights(config, Generator(draw.seed)))
    plan = parts.plan(model, run, mode)
    elsewhere = plan.state.total + (plan.kv_bytes[8] if mode == "cached" else 0)
    planned = [
        (p.event.bytes, p.live - elsewhere) for p in plan.liveness.events if _is_node(p.event)
    ]
    found = implementation.births(mode, rows, config.max_positions)
    return equal(f"bytes at every birth, {mode}, {rows} rows of {sizes}", planned, list(found))


LAWS = (
    Law(
        id="counts.births",
        statement="Every value that a forward makes has the planned bytes, and as many bytes live"
        " at its birth as the plan says, in each mode.",
        source="config_planner.md section 8",
        needs=("planner", "records", "lifetimes"),
        faults=("activation-keeps-a-copy", "final-norm-forgotten-early"),
        cases=draws("sizes", first_seed=95_000),
        check=_births,
    ),
)
