"""Laws over what lives at once: the planned events against the arrays that really are there."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from logitproof.properties.scalar import Config, Generator, initial_weights

from .components import Components
from .difference import Difference
from .drawn import Draw, draws, equal, first, refusal
from .law import Law

__all__ = ["LAWS"]

MODES = ("tracked-full", "untracked-full", "cached")
NOT_NODES = ("state", "kv_cache", "newest_logits")


def _is_node(event: Any) -> bool:
    name = event.name
    apart = name in NOT_NODES or ".saved." in name or name.endswith((".adjoint", ".gradient"))
    return event.action == "allocate" and not apart


def _sizes(g: Generator) -> dict[str, Any]:
    heads = 1 + g.below(3)
    return {
        "vocabulary_size": 2 + g.below(9),
        "model_width": heads * 2 * (1 + g.below(3)),
        "layers": 1 + g.below(2),  # of more, a plan tells the first and the last
        "heads": heads,
        "feed_forward_width": 1 + g.below(7),
        "max_positions": 2 + g.below(5),
    }


def _births(implementation: Components, draw: Draw) -> Difference | None:
    """Bytes of every value, and of all values and saved arrays alive when it is made."""
    g, mode = draw.generator(), MODES[draw.size % 3]
    sizes = _sizes(g)
    rows = 1 if mode == "cached" else 1 + g.below(3)
    parts = implementation.parts
    model = parts.ModelRecord.scale("reference").replace(kv_heads=sizes["heads"], **sizes)
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


def _recomputed(implementation: Components, draw: Draw) -> Difference | None:
    """Bytes of every value, in the order in which blocks make them and make them again."""
    g = draw.generator()
    sizes, rows = _sizes(g), 1 + g.below(3)
    T = sizes["max_positions"]
    config = Config(**sizes, rope_base=10000.0, rms_epsilon=1e-6)
    implementation.load(config, initial_weights(config, Generator(draw.seed)))
    events = implementation.recomputed_events(rows, T)
    planned = [event.bytes for event in events if _is_node(event)]
    found = [size for size, _ in implementation.births("recomputed", rows, T)]
    return equal(f"bytes at every birth, {rows} rows of {sizes}", planned, found)


Script = list[tuple[str, str, int, int, str]]  # action, name, bytes, workspace, of


# Large enough that arrays outweigh what numpy and the interpreter hold at any size.
MEASURED: dict[str, Any] = {
    "vocabulary_size": 512, "model_width": 128, "layers": 1, "heads": 4,
    "feed_forward_width": 160, "max_positions": 64,
}  # fmt: skip
MEASURED_ROWS = 4
# For one token: many scores, for which the plan declares more than for all else together.
TOKEN: dict[str, Any] = {
    "vocabulary_size": 16, "model_width": 128, "layers": 1, "heads": 64,
    "feed_forward_width": 8, "max_positions": 256,
}  # fmt: skip
# Iteration buffers of numpy and objects of the interpreter: constant, part of the envelope.
ENVELOPE_SHARE = 98_304


def _workspaces(implementation: Components, draw: Draw) -> Difference | None:
    """What each operation and each reverse rule really needs beside its value, traced."""
    parts, rows = implementation.parts, MEASURED_ROWS
    model = parts.ModelRecord.scale("reference").replace(kv_heads=MEASURED["heads"], **MEASURED)
    run = parts.RunRecord.fixture("reference-ci").replace(rows=rows, microbatch=rows)
    config = Config(**MEASURED, rope_base=10000.0, rms_epsilon=1e-6)
    implementation.load(config, initial_weights(config, Generator(draw.seed)))
    events = [point.event for point in parts.plan(model, run).liveness.events]
    leaves = (".epsilon", ".exponent", ".scale")
    declared = [e for e in events if _is_node(e) and not e.name.endswith(leaves)]
    declared += [e for e in events if e.name.endswith(".vjp")]
    needed = list(implementation.needed_bytes(rows, config.max_positions))
    pairs = zip(declared, needed, strict=False)
    over = [(event.name, event.workspace, size) for event, size in pairs
            if size > event.workspace + ENVELOPE_SHARE]  # fmt: skip
    return (
        equal("primitives traced", len(declared), len(needed))
        or equal("primitives that need more than they declare", [], over)
        or _of_token(implementation, draw)
    )


def _of_token(implementation: Components, draw: Draw) -> Difference | None:
    """What one token needs at once beside the cache, behind as many as there may be."""
    parts = implementation.parts
    model = parts.ModelRecord.scale("reference").replace(kv_heads=TOKEN["heads"], **TOKEN)
    run = parts.RunRecord.fixture("reference-ci").replace(rows=1, microbatch=1)
    plan = parts.plan(model, run, "cached")
    config = Config(**TOKEN, rope_base=10000.0, rms_epsilon=1e-6)
    implementation.load(config, initial_weights(config, Generator(draw.seed)))
    declared = plan.liveness.combined_peak - plan.state.total - plan.kv_bytes[8]
    needed = implementation.token_bytes(config.max_positions)
    within = needed <= declared + ENVELOPE_SHARE
    return None if within else equal("bytes of the last token", declared, needed)


def _once(count: int) -> Iterator[Draw]:
    """One case, however many are asked for: it is large, and nothing in it is drawn."""
    yield from islice(draws("sizes", first_seed=99_000)(count), 1)


SCRIPTS = 40  # of one case


def _script(g: Generator) -> Script:
    """Events over a few names."""
    steps: Script = []
    for _ in range(8 + g.below(24)):
        action = ("allocate", "alias", "rename", "release", "use")[g.below(5)]
        name, of = ("abcd"[g.below(4)] for _ in range(2))
        size = 1 + g.below(9) if action == "allocate" else 0
        of = of if action in ("alias", "rename") else ""
        steps.append((action, name, size, g.below(7), of))
    return steps


class _Model:
    """Buffers one by one: what each owns, whose alias each is, and which are gone."""

    def __init__(self) -> None:
        self.owned: dict[str, int] = {}
        self.owner: dict[str, str] = {}
        self.gone: set[str] = set()

    def fault(self, action: str, name: str, of: str) -> str:
        """The code of the first rule that the event breaks, or nothing."""
        if action == "alias" and of == name:
            return "state/alias-cycle"
        needed = {"alias": of, "rename": of, "release": name}.get(action, "")
        if needed in self.gone:
            return "state/released-buffer"
        if needed and needed not in (*self.owned, *self.owner):
            return "state/unknown-buffer"
        if action == "rename" and of in self.owner:
            return "state/unknown-buffer"
        taken = action in ("allocate", "alias", "rename") and name in (*self.owned, *self.owner)
        return "state/buffer-exists" if taken else ""

    def step(self, action: str, name: str, size: int, of: str) -> None:
        """One event that breaks no rule."""
        if action == "release":
            aliases = [alias for alias, owner in self.owner.items() if owner == name]
            for each in (name, *aliases):
                self.owned.pop(each, None)
                self.owner.pop(each, None)
                self.gone.add(each)
        elif action != "use":
            self.gone.discard(name)
            if action == "allocate":
                self.owned[name] = size
            elif action == "alias":
                self.owner[name] = self.owner.get(of, of)
            else:
                self.owned[name] = self.owned.pop(of)
                self.owner = {a: name if o == of else o for a, o in self.owner.items()}


def _events(implementation: Components, draw: Draw) -> Difference | None:
    g = draw.generator()
    return first(_scripted(implementation, _script(g)) for _ in range(SCRIPTS))


def _scripted(implementation: Components, script: Script) -> Difference | None:
    """A script without the events that must be refused; each of them is, where it would stand."""
    model, kept = _Model(), Script()
    resident = combined = 0
    for step in script:
        action, name, size, workspace, of = step
        code = model.fault(action, name, of)
        if code:
            found = refusal(lambda step=step: implementation.measured([*kept, step]))  # type: ignore[misc]
            if found != code:
                return Difference(what=f"{step} after {kept}", expected=code, actual=found)
            continue
        model.step(action, name, size, of)
        kept.append(step)
        resident = max(resident, sum(model.owned.values()))
        combined = max(combined, sum(model.owned.values()) + workspace)
    largest = max((step[3] for step in kept), default=0)
    return equal(f"peaks of {kept}", (resident, largest, combined),
                 tuple(implementation.measured(kept)))  # fmt: skip


def _repeated(implementation: Components, draw: Draw) -> Difference | None:
    """A repetition in full: its first and last rounds, and one entry for those between."""
    g = draw.generator()
    times, descending = draw.below(g, 6), bool(g.below(2))
    kept, released = 1 + g.below(90), 1 + g.below(90)
    events = [
        ("allocate", "kept.{i}", kept, 0, ""),
        ("allocate", "passing", released, 0, ""),
        ("alias", "view.{i}", 0, 0, "kept.{i}"),
        ("release", "passing", 0, 0, ""),
    ]
    lives = (kept, kept + released, kept + released, kept)
    rounds = []
    for number, i in enumerate(range(times)[:: -1 if descending else 1]):
        names = [event[1].replace("{i}", str(i)) for event in events]
        rounds += list(zip(names, [number * kept + live for live in lives], strict=True))
    between = [(times - 2, kept, (times - 1) * kept)] if times > 2 else []
    elided = [*rounds[:4], *between, *rounds[-4:]] if between else rounds

    back = [("release", "kept.{i}", 0, 0, "")]
    names = [name for name, _ in rounds[::4]][::-1]
    undone = [(name, kept * (times - n)) for n, name in enumerate(names, 1)]
    few = [*undone[:1], (times - 2, -kept, kept), *undone[-1:]] if times > 2 else undone

    def told(elide: bool) -> list[Any]:
        ways: dict[str, Any] = {"descending": descending, "elide": elide, "back": back}
        return list(implementation.repeated(events, times, **ways))

    what = f"{times} rounds, {'descending' if descending else 'ascending'}, and back"
    return equal(f"{what}, in full", [*rounds, *undone], told(False)) or equal(
        f"{what}, those between as one", [*elided, *few], told(True)
    )


LAWS = (
    Law(
        id="counts.births",
        statement="Every value that a forward makes has the planned bytes, and as many bytes live"
        " at its birth as the plan says, in each mode.",
        source="config_planner.md section 8",
        needs=("planner", "records", "lifetimes"),
        faults=("activation-keeps-a-copy", "final-norm-kept-to-the-end"),
        cases=draws("sizes", first_seed=95_000),
        check=_births,
    ),
    Law(
        id="counts.recomputed",
        statement="Blocks that run again make the values planned for them, in order.",
        source="numerics_vjp.md section 6; config_planner.md section 8",
        needs=("lifetimes", "recomputation"),
        faults=("blocks-run-again-twice",),
        cases=draws("sizes", first_seed=98_000),
        check=_recomputed,
    ),
    Law(
        id="counts.workspaces",
        statement="No operation and no reverse rule of a loss needs more beside its value than the"
        " plan declares for it, nor does a cached token beside its cache.",
        source="config_planner.md section 8",
        needs=("planner", "records", "lifetimes"),
        faults=("matrix-products-undeclared",),
        cases=_once,
        check=_workspaces,
    ),
    Law(
        id="counts.events",
        statement="Owners, aliases and renamed buffers live and go as their events say; an event of"
        " what is unknown, gone or taken is refused.",
        source="config_planner.md section 8",
        needs=("lifetimes",),
        faults=("aliases-stay-behind", "released-names-unknown"),
        cases=draws("events", first_seed=96_000),
        check=_events,
    ),
    Law(
        id="counts.repeated",
        statement="Of repeated events the first and the last round are told as they are in full,"
        " and those between by their number and what each leaves alive.",
        source="config_planner.md section 8",
        needs=("lifetimes",),
        faults=("last-round-of-another-number",),
        cases=draws("events", first_seed=97_000),
        check=_repeated,
    ),
)
