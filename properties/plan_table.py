"""A plan as text: totals, ledgers, the timeline of its peak as bars, refusals."""

from collections.abc import Iterable, Iterator, Sequence

from logitproof.core.ledgers import Ledger
from logitproof.core.liveness import Liveness, Point
from logitproof.core.planned import Plan
from logitproof.core.sizes import Quantity, Unknown

BAR_WIDTH = 40
BAR_ROWS = 28
_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

Row = tuple[str, str]


def lines(plan: Plan) -> Iterator[str]:
    """The report of a plan, line by line."""
    yield from _section("plan", _head(plan))
    yield from _section("parameters (calculated)", _parameters(plan))
    yield from _section("one nominal forward (calculated)", _work(plan))
    for title, ledger in (
        ("state (calculated; rotation tables among it)", plan.state),
        ("batch metadata (calculated)", plan.layout_metadata),
    ):
        yield from _section(title, _ledger(ledger))
    yield from _section(f"liveness, {plan.mode} (symbolic)", _peaks(plan))
    yield ""
    yield from timeline(plan.liveness)
    yield from _section("demand and ceiling (symbolic)", _demands(plan))
    yield from _section("ring traffic, sent bytes of one forward (calculated)", _traffic(plan))
    yield ""
    yield f"refusals: {len(plan.refusals) or 'none'}"
    yield from (f"  {reason.code}: {reason}" for reason in plan.refusals)


def timeline(lived: Liveness, *, rows: int = BAR_ROWS) -> Iterator[str]:
    """The largest event of each stretch of the schedule: # owned bytes, + workspace, ? unknown."""
    points = lived.events
    top = max((_at_event(point) for point in points), default=0)
    width = max((len(_label(point)) for point in points), default=0)
    for stretch in _stretches(points, rows):
        point = max(stretch, key=_at_event)
        owned = _scaled(point.live, top)
        workspace = _scaled(_at_event(point), top) - owned
        unknown = "?" if isinstance(point.at_event, Unknown) else ""
        mark = " <- peak" if _at_event(point) == top else ""
        bar = "#" * owned + "+" * workspace + unknown
        yield f"  {_label(point):<{width}} {bar:<{BAR_WIDTH + 1}} {size(_at_event(point))}{mark}"


def size(quantity: Quantity) -> str:
    """Bytes in full and, from one KiB, in a rounded-down unit."""
    if isinstance(quantity, Unknown):
        return "unknown"
    for unit, name in _UNITS:
        if quantity >= unit:
            tenths = quantity * 10 // unit
            return f"{quantity:,} B ({tenths // 10}.{tenths % 10} {name})"
    return f"{quantity:,} B"


def _section(title: str, rows: Iterable[Row]) -> Iterator[str]:
    rows = tuple(rows)
    width = max(len(name) for name, _ in rows)
    yield ""
    yield title
    yield from (f"  {name:<{width}}  {value}" for name, value in rows)


def _head(plan: Plan) -> Iterator[Row]:
    yield "status", plan.status
    yield "mode", plan.mode
    yield "profile", f"{plan.profile.name} ({plan.profile.state})"
    yield "model", plan.model_sha256
    yield "run", plan.run_sha256


def _parameters(plan: Plan) -> Iterator[Row]:
    for group in plan.census.groups:
        shape = " x ".join(map(str, group.shape))
        yield group.name, f"{group.parameter_elements:,} = {group.repetitions} of {shape}"
    for name in ("embedding", "attention", "feed_forward", "norms", "total"):
        yield name, f"{getattr(plan.census, name):,}"
    yield "tensors", f"{plan.census.tensors:,}"
    yield "output head", f"alias of {plan.census.tied_head_alias}"


def _work(plan: Plan) -> Iterator[Row]:
    for width, amount in plan.kv_bytes.items():
        yield f"KV capacity, {width} bytes per element", size(amount)
    for name in ("linear", "causal", "dense"):
        yield f"{name} multiply-add pairs", f"{getattr(plan.macs, name):,}"


def _ledger(ledger: Ledger) -> Iterator[Row]:
    for entry in ledger.entries:
        if entry.alias_of:
            yield entry.name, f"alias of {entry.alias_of}"
        else:
            yield entry.name, f"{entry.bytes:,} B = {entry.count} of {entry.elements:,} elements"
    yield "total", size(ledger.total)


def _peaks(plan: Plan) -> Iterator[Row]:
    yield "resident peak", size(plan.liveness.resident_peak)
    yield "largest workspace", size(plan.liveness.workspace)
    yield "combined peak", size(plan.liveness.combined_peak)


def _demands(plan: Plan) -> Iterator[Row]:
    demands, limits = plan.demands, plan.profile
    for name in ("parameters", "positions", "tokens", "microbatch", "accumulation"):
        yield name, f"{getattr(demands, name):,} of {getattr(limits, name):,}"
    for name in ("host", "device", "disk", "download"):
        demand = getattr(demands, name)
        known = f", known {size(demand.known)}" if isinstance(demand.total, Unknown) else ""
        yield name, f"{size(demand.total)}{known} of {size(getattr(limits, name))}"
    for name, limit in limits.partitions.items():
        demand = demands.partitions[name]
        yield f"partition {name}", f"{size(demand.total)} of {size(limit)}"


def _traffic(plan: Plan) -> Iterator[Row]:
    traffic = plan.traffic
    yield "topology", f"{traffic.topology}, world size {traffic.world_size}"
    yield "events", f"{traffic.events:,}, {traffic.sends} sends per rank in each"
    yield "one rank", size(traffic.rank_bytes)
    yield "all ranks", size(traffic.total_bytes)
    yield "parameters of one rank", f"{traffic.rank_parameters:,}"


def _stretches(points: Sequence[Point], rows: int) -> Iterator[Sequence[Point]]:
    """Consecutive points in at most `rows` parts of nearly equal length."""
    parts = min(rows, len(points))
    for k in range(parts):
        yield points[k * len(points) // parts : (k + 1) * len(points) // parts]


def _at_event(point: Point) -> int:
    return point.live if isinstance(point.at_event, Unknown) else point.at_event


def _scaled(amount: int, top: int) -> int:
    return amount * BAR_WIDTH // top if top else 0


def _label(point: Point) -> str:
    return f"{point.event.action} {point.event.name}"
