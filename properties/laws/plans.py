"""Laws over plans as a whole: profiles, reasons not to run, and what an admission gives."""

import hashlib
import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import groupby
from typing import Any

from logitproof.properties.scalar import Config, Generator, initial_weights
from logitproof.properties.scalar.generator import depth_scaled

from .components import Components
from .difference import Difference, doubles, first_named_difference
from .drawn import Draw, draws, equal, first, refused
from .law import Law
from .plan_tables import (
    EXCEEDED,
    FIELDS,
    PARTITIONS,
    PROBE,
    PROFILES,
    REASONS,
    RUNS,
    SCALES,
    SIZE_FIELDS,
    SIZES,
    UNKNOWN,
)

__all__ = ["LAWS"]

ENVELOPE = 33_554_432  # of the runtime on the host: config_planner.md section 8
# What a record's field is called among the limits.
COUNTED = {"token_budget": "tokens", "microbatch": "microbatch", "accumulation": "accumulation"}


def _named(draw: Draw) -> str:
    return list(PROFILES)[draw.size % len(PROFILES)]


def _pair(implementation: Components, name: str) -> tuple[Any, Any]:
    """Both as they are read, with texts of their own."""
    parts = implementation.parts
    records = parts.ModelRecord.scale(SCALES[name]), parts.RunRecord.fixture(name)
    model, run = (type(record).from_bytes(record.to_bytes()) for record in records)
    return model, run


def _profile(implementation: Components, draw: Draw) -> Difference | None:
    name = _named(draw)
    model, run = _pair(implementation, name)
    held = implementation.parts.plan(model, run).profile
    partitions = PARTITIONS if name == "8gb-gpu-core" else {}
    nominal = (run.rows, run.token_budget, run.microbatch, run.accumulation)
    return (
        first(
            equal(f"{field} of {name}", value, dict(got) if isinstance(value, dict) else got)
            for field, value in zip(FIELDS, PROFILES[name], strict=True)
            for got in (getattr(held, field),)
        )
        or equal(f"partitions of {name}", partitions, dict(held.partitions))
        or equal(f"sum of the partitions of {name}", sum(partitions.values()),
                 held.device if partitions else 0)
        or equal(f"sizes of {SCALES[name]}", SIZES[SCALES[name]],
                 tuple(getattr(model, field) for field in SIZE_FIELDS))
        or equal(f"counts of the run {name}", RUNS[name], (*nominal, run.seeds.initialization))
    )  # fmt: skip


def _reasons(implementation: Components, draw: Draw) -> Difference | None:
    """A limit admits itself; one more adds one reason, in its place, and takes none away."""
    parts, name = implementation.parts, _named(draw)
    model, run = _pair(implementation, name)
    mode = ("tracked-full", "untracked-full", "cached")[draw.size // len(PROFILES) % 3]
    before = parts.plan(model, run, mode)
    codes = tuple(str(reason.code) for reason in before.refusals)
    limits = dict(zip(FIELDS, PROFILES[name], strict=True))

    def over(field: str) -> Iterator[Difference | None]:
        limit = limits[COUNTED[field]]
        at, above = (run.replace(**{field: limit + more}) for more in (0, 1))  # type: ignore[operator]
        yield from _added(f"{field} of {name}", COUNTED[field], limit, limit + 1, before,  # type: ignore[operator]
                          parts.plan(model, at, mode), parts.plan(model, above, mode))  # fmt: skip

    heads = 257 + draw.size  # two numbers of the same value, not the same object
    many = model.replace(heads=heads, kv_heads=heads, model_width=2 * heads).to_bytes()
    ungrouped = parts.plan(type(model).from_bytes(many), run, mode)
    longer = model.replace(max_positions=int(str(limits["positions"])) + 1)
    wider = model.replace(vocabulary_size=model.vocabulary_size + 1)
    P = before.census.total
    limits_of = parts.limits
    total = limits_of.Demand(terms=(0, parts.sizes.UNKNOWN))
    asked = limits_of.compare(limits_of.Demands(host=total, disk=total), before.profile)
    unknown = [(UNKNOWN, of, "unknown", limits[of]) for of in ("host", "disk")]
    return (
        equal("totals that nobody knows", unknown, [_facts(entry) for entry in asked][-2:])
        or equal(f"reasons of {name}, {mode}", REASONS[name], codes)
        or equal("admissible", not codes, before.admissible)
        or equal(f"grouping of {heads} heads of their own", False,
                 "support/grouped-heads" in {str(reason.code) for reason in ungrouped.refusals})
        or first(d for field in COUNTED for d in over(field))
        or first(_added(f"positions of {name}", "positions", limits["positions"],
                        longer.max_positions, before, before, parts.plan(longer, run, mode)))
        or (None if limits["parameters"] != P else first(
            _added(f"parameters of {name}", "parameters", P, P + model.model_width, before, before,
                   parts.plan(wider, run, mode))))
    )  # fmt: skip


def _added(
    what: str, field: str, limit: object, required: object, before: Any, at: Any, above: Any
) -> Iterator[Difference | None]:
    """The reasons at a limit are those before; above it there is one more, with its facts."""
    yield equal(f"reasons at the limit: {what}", *(_told(plan) for plan in (before, at)))
    more = [reason for reason in above.refusals if _facts(reason) not in _told(before)]
    own = [_facts(reason) for reason in more if reason.what == field]
    yield equal(f"reasons above the limit: {what}", [(EXCEEDED, field, required, limit)], own)


def _told(plan: Any) -> list[tuple[object, ...]]:
    return [_facts(reason) for reason in plan.refusals]


def _facts(reason: Any) -> tuple[object, ...]:
    facts = (getattr(reason, name, None) for name in ("required", "limit"))
    return (str(reason.code), reason.what, *facts)


def _report(implementation: Components, draw: Draw) -> Difference | None:
    """Plain values that JSON holds, no float among them; every part as the plan says it."""
    name = _named(draw)
    mode = ("tracked-full", "untracked-full", "cached")[draw.size // len(PROFILES) % 3]
    plan = implementation.parts.plan(*_pair(implementation, name), mode)
    spelled = "".join([*mode])  # equal to that mode, and another object
    again = implementation.parts.plan(*_pair(implementation, name), spelled).as_json()
    told, lived = plan.as_json(), plan.liveness
    few, many = (
        len(
            implementation.parts.plan(
                plan.model.replace(layers=n), plan.run, mode
            ).liveness.timeline
        )
        for n in (5, 9)
    )
    cached = plan.demands.partitions["kv"].known if mode == "cached" else 0
    on_device = plan.run.device == "gpu"
    owned = lived.resident_peak + plan.layout_metadata.total
    shown_workspace = 0 if on_device else lived.workspace
    reasons = [_entry(reason) for reason in plan.refusals]
    names = ("code", "what", "required", "limit", "label")
    found = [[entry.get(name) for name in names] for entry in told["refusals"]]
    text = json.dumps(told)
    facts: tuple[tuple[str, object, object], ...] = (
        ("read back", told, json.loads(text)),
        ("events of nine blocks", few, many),
        ("by the mode's letters", [], [key for key in told if told[key] != again.get(key)]),
        ("floats", [], [token for token in _leaves(told) if isinstance(token, float)]),
        ("digests", [plan.model_sha256, plan.run_sha256],
         [told["model_sha256"], told["run_sha256"]]),
        ("parameters", plan.census.total, told["census"]["total"]),
        ("KV bytes", {str(b): n for b, n in plan.kv_bytes.items()},
         {b: told["kv_bytes"][b] for b in map(str, plan.kv_bytes)}),
        ("macs", [plan.macs.causal, plan.macs.dense],
         [told["macs"]["causal"], told["macs"]["dense"]]),
        ("probe", PROBE if plan.profile.calibration_tokens else None, told["profile"]["probe"]),
        ("state", plan.state.total, told["state"]["total"]),
        ("activations", lived.resident_peak - plan.state.total - cached,
         plan.demands.partitions["activations"].known),
        *_held(plan, told),
        ("events", [(p.event.name, p.event.bytes, p.live) for p in lived.events],
         [(e["name"], e["bytes"], e["live"]) for e in told["liveness"]["events"]
          if e["action"] != "repeat"]),
        ("blocks on the way back", *_way_back(plan)),
        ("labels", {"calculated", "symbolic"}, set(_labels(told))),
        ("host", ENVELOPE + (0 if on_device else owned + shown_workspace), told["host"]["known"]),
        ("host in all", told["host"]["known"], told["host"]["total"]),
        ("device", owned if on_device else 0, told["device"]["known"]),
        ("device in all", "unknown" if on_device else 0, told["device"]["total"]),
        ("host cap", plan.profile.host, told["host"]["cap"]),
        ("device cap", plan.profile.device, told["device"]["cap"]),
        ("reasons", reasons, found),
        ("admissible", plan.admissible, told["admissible"]),
        ("status", "admitted" if not reasons else "planned but not executable", told["status"]),
    )  # fmt: skip
    return first(equal(f"{what} of {name}", expected, actual) for what, expected, actual in facts)


def _way_back(plan: Any) -> tuple[list[int], list[int]]:
    """The numbers of the blocks whose adjoints a reverse pass makes: as they fall, as they come."""
    made = (p.event.name for p in plan.liveness.events if p.event.action == "allocate")
    adjoints = (name.split(".") for name in made if name.endswith(".adjoint"))
    numbers = (int(parts[1]) for parts in adjoints if parts[0] == "blocks")
    walked = [number for number, _ in groupby(numbers)]
    return sorted(walked, reverse=True), walked


def _held(plan: Any, told: Any) -> Iterator[tuple[str, object, object]]:
    """Entries, demands and limits, as the plan has them and as they are told."""
    yield from (
        *(
            (f"entries of {what}", [(e.name, e.bytes, e.alias_of or None) for e in held.entries],
             [(e["name"], e["bytes"], e["alias_of"]) for e in told[what]["entries"]])
            for what, held in (("state", plan.state), ("layout_metadata", plan.layout_metadata))
        ),
        *(
            (name, [getattr(plan.demands, name), getattr(plan.profile, name)],
             [told["demands"]["counts"][name][k] for k in ("demand", "limit")])
            for name in FIELDS[1:6]
        ),
        *(
            (name, [getattr(plan.demands, name).known, getattr(plan.profile, name)],
             [told["demands"]["bytes"][name][k] for k in ("known", "limit")])
            for name in FIELDS[6:10]
        ),
        ("partitions", [[d.known, plan.profile.partitions.get(n)]
                        for n, d in plan.demands.partitions.items()],
         [[told["demands"]["partitions"][n][k] for k in ("known", "limit")]
          for n in plan.demands.partitions]),
    )  # fmt: skip


def _entry(reason: Any) -> list[object]:
    """Code, place, demand or what is missing, limit, and what the quantities are."""
    code, what, required, limit = _facts(reason)
    label = "calculated" if what in FIELDS[1:6] else "symbolic"
    of_quantity = str(code).startswith("capacity/")
    return [code, what, required if of_quantity else reason.feature, limit,
            label if of_quantity else None]  # fmt: skip


def _labels(value: Any) -> Iterator[object]:
    if isinstance(value, dict):
        yield from (label for label in (value.get("label"),) if label is not None)
        yield from (label for part in value.values() for label in _labels(part))


def _leaves(value: Any) -> Iterator[object]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield value


def _config(model: Any) -> Config:
    names = ("vocabulary_size", "model_width", "heads", "feed_forward_width", "layers",
             "max_positions")  # fmt: skip
    sizes = {name: getattr(model, name) for name in names}
    return Config(**sizes, rope_base=10000.0, rms_epsilon=1e-6)


def _construction(implementation: Components, draw: Draw) -> Difference | None:
    """The scalar decoder's initial values, and the digest of their frame; once."""
    parts = implementation.parts
    model, run = _pair(implementation, ("reference-ci", "bridge-ci")[draw.size % 2])
    seeds = {"initialization": draw.seed, "shuffle": 0, "sampling": draw.size}
    rows = 1 + draw.size % 3
    run = run.replace(seeds=seeds, rows=2 * rows, microbatch=rows)
    if draw.size > 2:
        model = model.replace(vocabulary_size=model.vocabulary_size - draw.size)
    token, generator = parts.admit(model, run), Generator(draw.seed)
    expected = depth_scaled(initial_weights(_config(model), generator), model.layers)
    rng = parts.SplitMix64(draw.seed)
    other = parts.SplitMix64(draw.seed + 1)
    early = _state_told(lambda: token.construct(other), draw.seed, draw.seed + 1)
    made = token.construct(rng)
    fields = {
        "semantic-sha256": model.identity,
        "run-sha256": run.identity,
        "initial-rng": str(draw.seed),
        "final-rng": str(generator.state),
        "policy": made.record.policy,
        "base-initializer": made.record.base_initializer,
    }
    frame = {"domain": "decoder-construction-v1", "fields": fields, "schema_version": 1}
    text = json.dumps(frame, sort_keys=True, separators=(",", ":")) + "\n"
    values = {name: p.value for name, p in made.decoder.parameters.items()}
    wanted = {name: doubles(value) for name, value in expected.items()}
    return (
        early
        or equal("the state after a refusal", draw.seed + 1, other.state)
        or first_named_difference("constructed", wanted, values)
        or equal("state of the generator", generator.state, rng.state)
        or equal("identity", hashlib.sha256(text.encode()).hexdigest(), made.identity)
        or equal("depth told", model.layers, made.record.depth)
        or equal(f"rows of a batch of {rows}", rows, len(_given(parts, made.decoder, rows)))
        or refused(f"{rows + 1} rows where {rows} are admitted", "binding/prepared-shape",
                   lambda: _given(parts, made.decoder, rows + 1))
        or refused("a second use", "state/admission-spent", lambda: token.construct(rng))
        or refused("a token of nobody", "state/admission-not-issued",
                   lambda: parts.Admission(token.plan))
    )  # fmt: skip


def _given(parts: Any, decoder: Any, rows: int) -> Any:
    """Hidden states of vectors in so many rows of one cell."""
    return decoder.forward([[0]] * rows, context=parts.NO_GRAD).hidden.value


def _state_told(call: Callable[[], object], expected: int, actual: int) -> Difference | None:
    """None where the call is refused with both states."""
    try:
        call()
    except ValueError as refusal:
        facts = [getattr(refusal, name, None) for name in ("code", "expected", "actual")]
        return equal("refusal of another state", ["state/generator-state", expected, actual],
                     [str(facts[0]), *facts[1:]])  # fmt: skip
    return Difference(what="another state", expected="a refusal", actual="a decoder")


def _projection(implementation: Components, draw: Draw) -> Difference | None:
    """In fractions: at the wall time itself, one token more, and where no integer divides."""
    g = draw.generator()
    rate, wall = 1 + g.below(400), 3600 + g.below(110_000)
    most = int(Fraction(2 * rate * (wall - 3600), 3))
    return first(
        equal(
            f"{tokens} tokens at {rate} a second within {wall} s",
            3600 + Fraction(3 * tokens, 2 * rate) <= wall,
            implementation.projection_fits(tokens, rate, wall),
        )
        for tokens in (0, most, most + 1, max(most - 1, 0), g.below(2 * most + 2))
    )


def _law(name: str, statement: str, check: Any, *faults: str, source: str, seed: int) -> Law:
    return Law(
        id=f"plans.{name}",
        statement=statement,
        source=source,
        needs=("planner", "records"),
        faults=faults,
        cases=draws("records", first_seed=seed),
        check=check,
    )


LAWS = (
    _law(
        "profiles",
        "Every ceiling of every profile, and every built-in model and run, has the values of its"
        " table.",
        _profile,
        "seeds-of-no-profile", "partitions-swapped",
        source="profiles.md section 1; records.md section 2",
        seed=88_000,
    ),
    _law(
        "reasons",
        "A plan tells every reason not to run, in order; a limit admits itself and one more adds"
        " one reason.",
        _reasons,
        "limit-refuses-itself", "first-reason-alone",
        source="profiles.md sections 2 and 3",
        seed=89_000,
    ),
    _law(
        "projection",
        "A run of so many tokens is projected in fractions of a second, exactly.",
        _projection,
        "projection-in-whole-seconds",
        source="profiles.md section 1",
        seed=94_000,
    ),
    _law(
        "report",
        "A plan as plain values says what the plan says, in integers and texts.",
        _report,
        "rates-in-floats", "refusals-not-reported",
        source="records.md section 5",
        seed=90_000,
    ),
    _law(
        "construction",
        "An admission gives, once and from the declared state alone, the scalar decoder's initial"
        " values, the digest that binds them to both records, and rows up to the microbatch.",
        _construction,
        "construction-forgets-run", "token-usable-twice", "rows-admitted-by-the-batch",
        source="config_planner.md sections 3 and 10",
        seed=91_000,
    ),
)  # fmt: skip
