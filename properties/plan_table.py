"""A plan as text: totals, ledgers, the timeline of its peak as bars, refusals."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from logitproof.core.ledgers import Ledger
from logitproof.core.limits import BYTES, COUNTS, Demand
from logitproof.core.liveness import Liveness, Point, Skipped
from logitproof.core.planned import Plan
from logitproof.core.sizes import UNKNOWN, Quantity, Unknown

NARROW, WIDE = 80, 120  # columns
BAR_ROWS = 28
ENTRIES = 30  # of a ledger, before it is told by role
LEGEND = "  + allocate  - release  * use  # owned  + workspace  ? workspace unknown"
_SIGNS = {"allocate": "+", "release": "-", "use": "*", "alias": "=", "rename": ">"}
_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_UNIT_WIDTH = len("1023.9 KiB")

Row = tuple[str, ...]


def lines(plan: Plan, *, width: int = NARROW) -> Iterator[str]:
    """The report of a plan, line by line, at most `width` columns wide."""
    yield from _section("plan", _head(plan), left=True)
    yield from _section("parameters (calculated)", _parameters(plan))
    yield from _section("key and value capacity (calculated)", _capacity(plan))
    yield from _section(
        "multiply-add pairs of one nominal full-context forward (calculated)", _work(plan)
    )
    yield from _section("state (calculated; rotation tables among it)", _ledger(plan.state))
    yield from _section("batch metadata (calculated)", _ledger(plan.layout_metadata))
    yield from _section(f"liveness, {plan.mode} (symbolic)", _peaks(plan))
    yield ""
    yield from timeline(plan.liveness, width=width)
    yield from _section("host (symbolic)", _host(plan))
    yield from _section("counts and ceilings (calculated)", _counts(plan))
    yield from _section("bytes and ceilings (symbolic)", _bytes(plan))
    yield from _section("partitions and ceilings (symbolic)", _partitions(plan))
    yield from _section("ring traffic, sent bytes of one forward (calculated)", _traffic(plan))
    yield ""
    yield f"refusals: {len(plan.refusals) or 'none'}"
    for reason in plan.refusals:
        yield from wrapped(f"{reason.code}: {reason}", width=width)


def wrapped(text: str, *, width: int = NARROW) -> list[str]:
    """An indented paragraph."""
    return textwrap.wrap(
        text, width, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False
    )


def timeline(lived: Liveness, *, width: int = NARROW, rows: int = BAR_ROWS) -> Iterator[str]:
    """The largest event of each stretch of the schedule, and the repetitions left out."""
    top = max((_at_event(point) for point in lived.events), default=0)
    peak, key, highest = "<- peak", _at_event, top
    if lived.combined_peak is UNKNOWN:
        peak, key, highest = "<- resident peak", _live, lived.resident_peak
    room = width - len(f"    {peak}") - _UNIT_WIDTH
    label = min(room * 5 // 8, max((len(_label(p, width)) for p in lived.events), default=0))
    bar = room - label - 1
    marked = False
    for stretch in _stretches(lived.timeline, rows):
        if isinstance(stretch, Skipped):
            yield f"  … {stretch.times:,} more blocks, {_change(stretch.change_bytes)} each"
            continue
        point = max(stretch, key=key)
        mark = "" if marked or key(point) < highest else f" {peak}"
        marked = marked or bool(mark)
        unknown = any(each.at_event is UNKNOWN for each in stretch)
        drawn = _bar(point, top, bar, unknown=unknown)
        amount = unit(_at_event(point))
        yield f"  {_label(point, label):<{label}} {drawn:<{bar}} {amount:>{_UNIT_WIDTH}}{mark}"
    yield LEGEND


def unit(quantity: Quantity) -> str:
    """Bytes in a rounded-down unit."""
    if isinstance(quantity, Unknown):
        return str(quantity.value)
    for size, name in _UNITS:
        if quantity >= size:
            tenths = quantity * 10 // size
            return f"{tenths // 10}.{tenths % 10} {name}"
    return f"{quantity} B"


def exact(quantity: Quantity) -> str:
    """A quantity in full."""
    return str(quantity.value) if isinstance(quantity, Unknown) else f"{quantity:,}"


def _section(title: str, rows: Iterable[Row], *, left: bool = False) -> Iterator[str]:
    """Rows of cells under a title; numbers stand at the right of their columns."""
    rows = tuple(rows)
    columns = max(len(row) for row in rows)
    filled = [(*row, *[""] * (columns - len(row))) for row in rows]
    widths = [max(len(row[i]) for row in filled) for i in range(columns)]
    yield ""
    yield title
    for name, *cells in filled:
        sides = [
            f"{c:<{w}}" if left else f"{c:>{w}}" for c, w in zip(cells, widths[1:], strict=True)
        ]
        yield "  ".join(("", f"{name:<{widths[0]}}", *sides)).rstrip()


def _head(plan: Plan) -> Iterator[Row]:
    yield "status", plan.status
    yield "mode", plan.mode
    yield "profile", f"{plan.profile.name} ({plan.profile.state})"
    yield "model", plan.model_sha256
    yield "run", plan.run_sha256


def _parameters(plan: Plan) -> Iterator[Row]:
    census = plan.census
    yield "", "scalars", "tensors", "shape"
    for group in census.groups:
        shape = " x ".join(map(str, group.shape))
        yield group.name, f"{group.parameter_elements:,}", f"{group.repetitions:,}", shape
    for name in ("embedding", "attention", "feed_forward", "norms"):
        yield name, f"{getattr(census, name):,}"
    yield "total", f"{census.total:,}", f"{census.tensors:,}"
    yield f"output head is {census.tied_head_alias}", "0", "0"


def _capacity(plan: Plan) -> Iterator[Row]:
    yield "nominal rows", f"{plan.run.rows:,}"
    for width, amount in plan.kv_bytes.items():
        yield f"{width} bytes per element", *_amount(amount)


def _work(plan: Plan) -> Iterator[Row]:
    macs = plan.macs
    yield "", "causal", "dense"
    for name, causal in macs.groups.items():
        yield name, f"{causal:,}", f"{macs.dense_groups[name]:,}"
    yield "linear", f"{macs.linear:,}", f"{macs.linear:,}"
    yield "total", f"{macs.causal:,}", f"{macs.dense:,}"


def _ledger(ledger: Ledger) -> Iterator[Row]:
    """Every buffer, or where they are many their sums by role."""
    yield "", "bytes", "", "buffers", "elements"
    entries = [entry for entry in ledger.entries if not entry.alias_of]
    if len(entries) <= ENTRIES:
        for entry in entries:
            yield entry.name, *_amount(entry.bytes), f"{entry.count:,}", f"{entry.elements:,}"
    else:
        for role in dict.fromkeys(entry.name.split(".")[0] for entry in entries):
            held = [entry for entry in entries if entry.name.split(".")[0] == role]
            count, elements = sum(e.count for e in held), sum(e.count * e.elements for e in held)
            yield role, *_amount(sum(e.bytes for e in held)), f"{count:,}", f"{elements:,}"
    yield from ((entry.name, "alias") for entry in ledger.entries if entry.alias_of)
    yield "total", *_amount(ledger.total)


def _peaks(plan: Plan) -> Iterator[Row]:
    yield "resident peak", *_amount(plan.liveness.resident_peak)
    yield "largest workspace", *_amount(plan.liveness.workspace)
    yield "combined peak", *_amount(plan.liveness.combined_peak)


def _host(plan: Plan) -> Iterator[Row]:
    host = plan.host
    yield "tensors", *_amount(host.tensors)
    yield "scratch", *_amount(host.scratch)
    yield "batch metadata", *_amount(host.layout_metadata)
    yield "envelope", *_amount(host.envelope)
    yield "total", *_amount(host.total)
    yield "cap", *_amount(host.cap)


def _counts(plan: Plan) -> Iterator[Row]:
    yield "", "demand", "limit"
    for name in COUNTS:
        yield name, f"{getattr(plan.demands, name):,}", f"{getattr(plan.profile, name):,}"


def _bytes(plan: Plan) -> Iterator[Row]:
    yield "", "demand", "known part", "limit"
    for name in BYTES:
        yield name, *_demand(getattr(plan.demands, name)), exact(getattr(plan.profile, name))


def _partitions(plan: Plan) -> Iterator[Row]:
    yield "", "demand", "known part", "limit"
    for name, demand in plan.demands.partitions.items():
        limit = plan.profile.partitions.get(name)
        yield name, *_demand(demand), "none" if limit is None else exact(limit)
    yield "slack reserve", exact(plan.slack_reserve_bytes)


def _traffic(plan: Plan) -> Iterator[Row]:
    traffic = plan.traffic
    yield traffic.topology, f"{traffic.world_size:,}", "ranks"
    yield "events", f"{traffic.events:,}"
    yield "sends of one rank in each", f"{traffic.sends:,}"
    yield "elements of one message", f"{traffic.message_elements:,}"
    yield "one rank, one event", *_amount(traffic.rank_event_bytes)
    yield "one rank", *_amount(traffic.rank_bytes)
    yield "all ranks", *_amount(traffic.total_bytes)
    yield "parameters of one rank", f"{traffic.rank_parameters:,}"


def _amount(quantity: Quantity) -> tuple[str, str]:
    """Bytes in full and in a unit."""
    if isinstance(quantity, Unknown):
        return str(quantity.value), ""
    return f"{quantity:,} B", "" if quantity < _UNITS[-1][0] else unit(quantity)


def _demand(demand: Demand) -> tuple[str, str]:
    return exact(demand.total), exact(demand.known)


def _stretches(steps: Sequence[Point | Skipped], rows: int) -> Iterator[Sequence[Point] | Skipped]:
    """Consecutive points in about `rows` parts of nearly equal length, between what is skipped."""
    total = sum(isinstance(step, Point) for step in steps)
    run: list[Point] = []
    for step in (*steps, None):
        if isinstance(step, Point):
            run.append(step)
            continue
        parts = min(len(run), max(1, rows * len(run) // max(1, total)))
        yield from (run[k * len(run) // parts : (k + 1) * len(run) // parts] for k in range(parts))
        run = []
        if step is not None:
            yield step


def _at_event(point: Point) -> int:
    return point.live if isinstance(point.at_event, Unknown) else point.at_event


def _live(point: Point) -> int:
    return point.live


def _bar(point: Point, top: int, width: int, *, unknown: bool) -> str:
    """Owned bytes and workspace to scale, each at least one mark where it is not nothing."""
    room = width - 1  # for the question mark
    workspace = _at_event(point) - point.live
    most = room - (1 if workspace else 0)
    owned = min(most, max(1, point.live * room // top)) if point.live else 0
    beside = max(1, _at_event(point) * room // top - owned) if workspace else 0
    return "#" * owned + "+" * beside + "?" * unknown


def _change(amount: int) -> str:
    return f"{'+' if amount >= 0 else '-'}{unit(abs(amount))}"


def _label(point: Point, width: int) -> str:
    """The event's sign and name; of a long name the middle is left out."""
    text = f"{_SIGNS[point.event.action]} {point.event.name}"
    half = (width - 1) // 2
    return text if len(text) <= width else f"{text[: width - 1 - half]}…{text[-half:]}"
