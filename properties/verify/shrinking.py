"""A smaller case that fails in the same way: fewer layers, rows, tokens, heads; plainer weights."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from logitproof.properties.adapters.timed import contained
from logitproof.properties.laws.cases import PAD, Case
from logitproof.properties.laws.difference import Difference
from logitproof.properties.laws.drawn import REGIMES, Draw
from logitproof.properties.laws.fused import Steep
from logitproof.properties.laws.law import Finding, Law
from logitproof.properties.laws.protocol import DecoderUnderTest
from logitproof.properties.laws.regimes import Override, Regime, TruthCase
from logitproof.properties.laws.ulps import Counts
from logitproof.properties.scalar import Config, Layout

from .places import place_of

__all__ = ["ATTEMPTS", "Failure", "failure", "finding", "shrunk", "smaller"]

ATTEMPTS = 300  # checks that one failure is worth; counted, so that every run ends alike
SMALL_SEEDS = range(4)
WHOLE = (0.0, 1.0, -1.0, 2.0)  # what a weight set by hand becomes, if that does
PLAIN_VALUES = ("dyadic", "xavier")
NUMBER = re.compile(r"-?(\d|inf|nan)")
EMPTY = Finding(difference=None, entries=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How one case fails, in words and with its place where known; `kind` groups failures.

    ulps: how far the entries of the array that failed lie away, where that was counted
    """

    kind: str
    words: str
    place: str | None = None
    ulps: Counts = ()


def finding(
    law: Law, implementation: DecoderUnderTest, case: Any
) -> tuple[Finding, Failure | None]:
    """What the law measures in one case, and how it fails."""
    try:
        found = contained(law.id, lambda: law.check(implementation, case))
    except Exception as error:  # noqa: BLE001 - whatever it raises is its failure
        kind = f"raised {type(error).__name__}"
        return EMPTY, Failure(kind=kind, words=f"{kind}: {error}")
    if not isinstance(found, Finding):
        found = Finding(difference=found, entries=0)
    difference = found.difference
    if difference is None:
        return found, None
    place = place_of(difference, case)
    ulps = found.ulps or difference.ulps
    return found, Failure(kind=_kind(difference), words=str(difference), place=place, ulps=ulps)


def _kind(difference: Difference) -> str:
    """Wrong bits are alike; a wrong refusal is like itself alone."""
    for kind in ("shape", "names"):
        if difference.what.endswith(f", {kind}"):
            return kind
    if difference.at or NUMBER.match(difference.expected):
        return "bits"
    return f"{difference.expected} / {difference.actual}"


def failure(law: Law, make: Callable[[], DecoderUnderTest], case: Any) -> Failure | None:
    """How a fresh implementation fails the law in one case; None where it holds."""
    return finding(law, make(), case)[1]


def shrunk(law: Law, make: Callable[[], DecoderUnderTest], case: Any) -> Any:
    """The case, or the smallest found from it, step by step, that fails in the same way.

    The same steps in the same order every time; cases of published figures are what they are. A
    refusal does not stand for a wrong bit.
    """
    first = failure(law, make, case)
    if first is None:
        return case
    left, tried = ATTEMPTS, {repr(case)}
    candidates = _smaller_of(law, case)
    while left and (candidate := next(candidates, None)) is not None:
        if repr(candidate) in tried:
            continue
        tried.add(repr(candidate))
        left -= 1
        again = failure(law, make, candidate)
        if again is not None and again.kind == first.kind:
            case, candidates = candidate, _smaller_of(law, candidate)
    return case


def _smaller_of(law: Law, case: Any) -> Iterator[Any]:
    """`smaller`, and of parts the plainer kinds of values that the law is tried on."""
    if isinstance(case, Draw):
        drawn = {own.regime for own in law.cases(len(REGIMES)) if isinstance(own, Draw)}
        plainer = [*REGIMES][: [*REGIMES].index(case.regime)] if case.regime in REGIMES else []
        yield from (replace(case, regime=regime) for regime in plainer if regime in drawn)
    yield from smaller(case)


def smaller(case: Any) -> Iterator[Any]:
    """Valid cases that are one step simpler, the largest steps first; none of a published one."""
    if isinstance(case, Case):
        yield from (own for own in _steps(case) if _has_loss(own) and _has_parameters(own))
    elif hasattr(case, "size") and hasattr(case, "seed"):  # drawn whole from these
        yield from (replace(case, size=size) for size in range(case.size))
        yield from (replace(case, seed=seed) for seed in SMALL_SEEDS if seed < case.seed)


def _has_loss(case: Case) -> bool:
    return case.valid is None or any(map(any, case.valid))


def _has_parameters(case: Case) -> bool:
    """Whether every parameter that the case names is still there."""
    overridden = {o.name for o in case.overrides} if isinstance(case, TruthCase) else set[str]()
    steep = {*case.names} if isinstance(case, Steep) else set[str]()
    return overridden | steep <= {*case.config.parameter_shapes()}


def _steps(case: Case) -> Iterator[Case]:
    yield from _fewer_rows(case)
    yield from (_sized(case, layers=n) for n in range(case.config.layers))
    yield from _fewer_tokens(case)
    yield from _plainer_layout(case)
    yield from _narrower(case)
    if isinstance(case, TruthCase):
        yield from _plainer_regime(case)
    yield from _plainer_weights(case)
    yield from _plainer_ids(case)


def _fewer_rows(case: Case) -> Iterator[Case]:
    B = len(case.ids)
    if B > 1:
        yield from (_cut(case, [b], None) for b in range(B))
        yield from (_cut(case, [c for c in range(B) if c != b], None) for b in range(B))


def _fewer_tokens(case: Case) -> Iterator[Case]:
    """One segment less, one token less in a segment, one empty column less."""
    rows = range(len(case.ids))
    if case.segments is None:
        T = len(case.ids[0])
        yield from (_cut(case, list(rows), slice(0, t)) for t in sorted({1, T // 2, T - 1}) if t)
        if case.layout is None:  # or a first key would be cut away
            yield from (_cut(case, list(rows), slice(1, T)) for _ in range(T > 1))
        return
    for b, sizes in enumerate(case.segments):
        for s, size in enumerate(sizes):
            kept = [sizes[:s] + sizes[s + 1 :]] if len(sizes) > 1 else []
            kept += [(*sizes[:s], size - 1, *sizes[s + 1 :])] if size > 1 else []
            yield from (_resegmented(case, b, sum(sizes[: s + 1]), new) for new in kept)
    longest = max(map(sum, case.segments))
    if longest < len(case.ids[0]):
        yield _laid_out(_cut(case, list(rows), slice(0, longest)), case.segments)


def _resegmented(case: Case, b: int, end: int, new: tuple[int, ...]) -> Case:
    """The case with another division of row b, whose cells before `end` are the ones to go."""
    assert case.segments is not None
    T, gone = len(case.ids[0]), sum(case.segments[b]) - sum(new)

    def row(values: Any, blank: Any) -> list[Any]:
        return [*values[b][: end - gone], *values[b][end:], *[blank] * gone][:T]

    def rows(values: Any, blank: Any) -> Any:
        return [row(values, blank) if c == b else list(values[c]) for c in range(len(values))]

    segments = tuple(new if c == b else sizes for c, sizes in enumerate(case.segments))
    valid = None if case.valid is None else rows(case.valid, False)
    changed = replace(case, ids=rows(case.ids, PAD), targets=rows(case.targets, PAD), valid=valid)
    return _laid_out(changed, segments)


def _laid_out(case: Case, segments: tuple[tuple[int, ...], ...], first: int | None = None) -> Case:
    """The case in these segments, whose positions begin where they did, or at `first`."""
    assert case.layout is not None
    first = case.layout.positions[0][0] if first is None else first
    layout = Layout.packed(segments, len(case.ids[0]))
    positions = tuple(
        tuple(p + first if t < length else 0 for t, p in enumerate(row))
        for row, length in zip(layout.positions, layout.lengths, strict=True)
    )
    return replace(case, segments=segments, layout=replace(layout, positions=positions))


def _plainer_layout(case: Case) -> Iterator[Case]:
    """Positions from 0; and no layout at all where it says what ordinary text says."""
    if case.layout is None or case.segments is None:
        return
    yield _named(_laid_out(case, case.segments, first=0), positions="start")
    if case.layout == Layout.full(*case.layout.shape):
        yield _named(replace(case, layout=None, segments=None), layout="full")


def _cut(case: Case, rows: list[int], cells: slice | None) -> Case:
    """Some rows, and of each row some cells."""
    cells = cells or slice(None)

    def part(values: Any) -> Any:
        return None if values is None else [list(values[b][cells]) for b in rows]

    cut = replace(case, ids=part(case.ids), targets=part(case.targets), valid=part(case.valid))
    if case.segments is None:
        return replace(cut, layout=case.layout and _part(case.layout, rows, cells))
    return _laid_out(cut, tuple(case.segments[b] for b in rows))


def _part(layout: Layout, rows: list[int], cells: slice) -> Layout:
    """Some rows, and of each its first cells."""
    starts, positions = (
        tuple(values[b][cells] for b in rows) for values in (layout.range_starts, layout.positions)
    )
    lengths = tuple(min(layout.lengths[b], len(starts[0])) for b in rows)
    return Layout(lengths=lengths, range_starts=starts, positions=positions)


def _narrower(case: Case) -> Iterator[Case]:
    config = case.config
    if config.heads > 1:
        yield _sized(case, heads=1, model_width=config.head_width)
        yield _sized(case, heads=1)
    if config.head_width > 2:
        yield _sized(case, model_width=2 * config.heads)
    least = 1 + max(*map(max, case.ids), *map(max, case.targets), 1)
    yield _sized(case, vocabulary_size=least)
    yield _sized(case, feed_forward_width=1)
    yield _sized(case, max_positions=_positions(case))
    defaults = Config.__dataclass_fields__
    yield _sized(case, rope_base=defaults["rope_base"].default)
    yield _sized(case, rms_epsilon=defaults["rms_epsilon"].default)


def _positions(case: Case) -> int:
    """The least that a decoder must hold for this batch: all cells, all positions."""
    T = len(case.ids[0])
    return T if case.layout is None else max(T, 1 + max(map(max, case.layout.positions)))


def _sized(case: Case, **sizes: Any) -> Case:
    config = replace(case.config, **sizes)
    if config.kv_heads is not None:
        config = replace(config, kv_heads=math.gcd(config.heads, config.kv_heads))
    return replace(case, config=config)


def _named(case: Case, **dimensions: str) -> Case:
    """The case under the name of the regime that it now stands in."""
    if not isinstance(case, TruthCase):
        return case
    changed: dict[str, Any] = dimensions
    return replace(case, regime=replace(case.regime, **changed))


def _plainer_regime(case: TruthCase) -> Iterator[Case]:
    """No weight set by hand; one dimension of the weights' regime as ordinary as it gets."""
    yield from (
        replace(case, overrides=case.overrides[:i] + case.overrides[i + 1 :])
        for i in range(len(case.overrides))
    )
    yield from (
        replace(case, overrides=_instead(case.overrides, i, replace(o, value=value)))
        for i, o in enumerate(case.overrides)
        for value in WHOLE
        if abs(value) < abs(o.value) or not o.value.is_integer()
    )
    plain = Regime()
    for name in ("attention", "norm", "logits"):
        yield _named(case, **{name: getattr(plain, name)})
    for values in PLAIN_VALUES[: _rank(case.regime.values)]:
        yield _named(case, values=values)


def _instead(overrides: tuple[Override, ...], i: int, other: Override) -> tuple[Override, ...]:
    return (*overrides[:i], other, *overrides[i + 1 :])


def _rank(values: str) -> int:
    """How many kinds of weights are plainer."""
    return PLAIN_VALUES.index(values) if values in PLAIN_VALUES else len(PLAIN_VALUES)


def _plainer_weights(case: Case) -> Iterator[Case]:
    if not isinstance(case, TruthCase) and not case.dyadic:
        yield replace(case, dyadic=True, scale=1.0)
    if case.scale != 1.0:
        yield replace(case, scale=1.0)
    yield from (replace(case, seed=seed) for seed in SMALL_SEEDS if seed < case.seed)


def _plainer_ids(case: Case) -> Iterator[Case]:
    """Numbered anew, all zero, then one by one; inactive cells stay as they are."""
    used = sorted({v for row in (*case.ids, *case.targets) for v in row if v >= 0})
    number = {PAD: PAD} | {v: n for n, v in enumerate(used)}
    ids, targets = ([[number[v] for v in row] for row in r] for r in (case.ids, case.targets))
    yield replace(case, ids=ids, targets=targets)
    for name in ("ids", "targets"):
        rows = getattr(case, name)
        cells = [(b, t) for b, row in enumerate(rows) for t, v in enumerate(row) if v > 0]
        yield from (_zeroed(case, name, chosen) for chosen in (cells, *([c] for c in cells)))


def _zeroed(case: Case, name: str, cells: list[tuple[int, int]]) -> Case:
    rows = [
        [0 if (b, t) in cells else v for t, v in enumerate(row)]
        for b, row in enumerate(getattr(case, name))
    ]
    changed: dict[str, Any] = {name: rows}
    return replace(case, **changed)
