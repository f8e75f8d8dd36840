"""Laws over softmax rows, causal ranges and the losses made of them."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from logitproof.properties.scalar import rounded

from .components import Components
from .difference import Difference, first_difference
from .drawn import Array, Draw, draws, equal, first, refused
from .law import Law

__all__ = ["LAWS"]

UNIT = 2.0**-53
POISONS = (1e308, -1e308, 1e9, -2e9, math.inf, math.nan)


def _statistics(row: Sequence[float]) -> tuple[float, list[float], float]:
    """Maximum, exponentials, and the sum of all but the first that is 1."""
    maximum = max(row)
    e = [rounded.exp(z - maximum) for z in row]
    tail, left_out = 0.0, row.index(maximum)
    for i, term in enumerate(e):
        tail = tail if i == left_out else tail + term
    return maximum, e, tail


def _rows(draw: Draw, most: int = 4) -> Array:
    """A few rows of a few classes."""
    g = draw.generator()
    return draw.values(g, draw.below(g, most), draw.below(g, 5))


def _log_slopes(p: Sequence[float], u: Sequence[float]) -> list[float]:
    """u_c - p_c R, R the sum of u."""
    R = 0.0
    for x in u:
        R += x
    return [x - share * R for x, share in zip(u, p, strict=True)]


def _logits(draw: Draw) -> Array:
    """A few numbers in one to four axes, any of which may be the classes'."""
    g = draw.generator()
    rank = 1 + (draw.size + draw.size // 6) % 4  # every rank in every regime
    return draw.values(g, *(draw.below(g, 12 // rank) for _ in range(rank)))


def _definition(implementation: Components, draw: Draw) -> Difference | None:
    """Log-probabilities, losses and their gradients by loops over the definition, every axis."""
    z = _logits(draw)
    return first(
        first_difference(f"{what}, axis {axis} of {list(z.shape)}", want, got)
        for axis in range(z.ndim)
        for what, want, got in _along(implementation.parts.ops, draw, z, axis)
    )


def _along(ops: Any, draw: Draw, z: Array, axis: int) -> Iterator[tuple[str, Any, Any]]:
    """What is said of the rows along one axis: what is wanted and what is found."""
    g = draw.generator()
    groups = [(*at[:axis], slice(None), *at[axis:])
              for at in np.ndindex(*z.shape[:axis], *z.shape[axis + 1 :])]  # fmt: skip
    G, targets = len(groups), [g.below(z.shape[axis]) for _ in groups]
    logs, slopes, gradient, summed = (np.empty(z.shape) for _ in range(4))
    upstream = draw.values(g, *z.shape, regime="uniform")
    seed = draw.values(g, regime="uniform")
    losses, k = [], float(seed) / G
    for group, target in zip(groups, targets, strict=True):
        row = z[group].tolist()
        maximum, e, tail = _statistics(row)
        log_sum = rounded.log1p(tail)
        logs[group] = [(x - maximum) - log_sum + 0.0 for x in row]
        losses.append((maximum - row[target]) + log_sum)
        p = [x / (1.0 + tail) for x in e]
        slopes[group] = _log_slopes(p, upstream[group].tolist())
        p[target] -= 1.0
        gradient[group] = [x * k + 0.0 for x in p]
        summed[group] = [x * float(seed) + 0.0 for x in p]
    total = 0.0
    for loss in losses:
        total += loss
    log_values, log_vjp = ops.log_softmax(z, axis=axis)
    mean, vjp = ops.indexed_mean_nll(z, axis=axis, targets=targets)
    yield "log-probabilities", logs, np.asarray(log_values)
    yield "gradient of log-probabilities", slopes, log_vjp(upstream)[0]
    yield "gradient of the mean loss", gradient, vjp(seed)[0]
    if math.isfinite(total):
        raw, raw_vjp = ops.indexed_sum_nll(z, axis=axis, targets=targets)
        yield "mean loss", np.array(total / G + 0.0), mean
        yield "raw sum", np.array(total), raw
        yield "gradient of the raw sum", summed, raw_vjp(seed)[0]


def _huge(implementation: Components, draw: Draw) -> Difference | None:
    """Losses near the largest doubles: the mean is formed where the sum is not.

    The sum overflows by the losses together, or at once by the gap of one row alone.
    """
    ops, g = implementation.parts.ops, draw.generator()
    G = 4 + g.below(4)
    gap = math.ldexp(1.0 + g.unit(), 1022)
    most, least = (sign * math.ldexp(1.0 + g.unit(), 1023) for sign in (1.0, -1.0))
    at = g.below(G)
    rows = [[most, least] if r == at else [0.0, -gap * g.unit() / 4] for r in range(G)]
    given = (
        (f"{G} losses of {gap!r}", [[0.0, -gap]] * G),
        (f"{G} losses, one of a gap from {most!r} to {least!r}", rows),
    )
    return first(d for what, z in given for d in _overflowing(ops, what, z))


def _overflowing(ops: Any, what: str, z: list[list[float]]) -> Iterator[Difference | None]:
    """Of losses that are their gaps, as exp(-gap) is 0: each is divided before it is added."""
    G, share = len(z), 0.0
    for most, target in z:
        gap = most - target
        share += gap / G if math.isfinite(gap) else most / G - target / G
    targets = [1] * G
    mean, _ = ops.indexed_mean_nll(np.array(z), axis=1, targets=targets)
    yield first_difference(f"mean of {what}", np.array(share), mean)
    yield refused(
        f"raw sum of {what}", "numeric/raw-sum-not-finite",
        lambda: ops.indexed_sum_nll(np.array(z), axis=1, targets=targets),
    )  # fmt: skip


def _shift(implementation: Components, draw: Draw) -> Difference | None:
    """Logits on a grid of eighths and a shift that both represent exactly."""
    ops, z = implementation.parts.ops, _rows(draw)
    g = draw.generator()
    shift = float((1, -1)[g.below(2)] * (1 << g.below(40)))
    targets = [g.below(z.shape[1]) for _ in range(len(z))]
    square = draw.values(draw.generator(), 4, 4)
    calls: tuple[tuple[str, Array, Callable[[Array], Any]], ...] = (
        ("log-probabilities", z, lambda z: ops.log_softmax(z, axis=1)),
        ("the mean loss", z, lambda z: ops.indexed_mean_nll(z, axis=1, targets=targets)),
        ("the raw sum", z, lambda z: ops.indexed_sum_nll(z, axis=1, targets=targets)),
        ("causal probabilities", square, ops.causal_softmax),
    )

    def one(what: str, z: Array, call: Callable[[Array], Any]) -> Iterator[Difference | None]:
        (value, vjp), (moved, vjp_moved) = call(z), call(z + shift)
        upstream = draw.values(draw.generator(), *value.shape)
        yield first_difference(f"{what} moved by {shift}", value, moved)
        yield first_difference(
            f"gradient of {what} moved by {shift}", vjp(upstream)[0], vjp_moved(upstream)[0]
        )

    return first(d for given in calls for d in one(*given))


def _row_sums(implementation: Components, draw: Draw) -> Difference | None:
    """Each row of probabilities lies in 0 .. 1 and sums to 1.

    p = fl(e / d), d the sum of k terms: one rounding of the quotient and at most k of the sum.
    """
    g, ops = draw.generator(), implementation.parts.ops
    T = draw.below(g, 9)
    p, _ = ops.causal_softmax(draw.values(g, T, T))

    def one(t: int, row: list[float]) -> Iterator[Difference | None]:
        hidden = np.array(row[t + 1 :])
        yield first_difference(f"hidden keys of query {t}", 0.0 * abs(hidden), hidden)
        yield equal(f"query {t}: all in 0 .. 1", True, all(0.0 <= x <= 1.0 for x in row))
        off, bound = abs(math.fsum(row) - 1.0), (t + 3) * UNIT
        if off > bound:
            yield Difference(
                what=f"row sum of query {t}",
                expected=f"1 within {bound:.3g}",
                actual=f"off by {off:.3g}",
            )

    return first(d for t, row in enumerate(p.tolist()) for d in one(t, row))


def _partition(implementation: Components, draw: Draw) -> Difference | None:
    """Raw sums of the rows one by one, added in order, against all at once."""
    ops, z = implementation.parts.ops, _rows(draw, most=11)
    g = draw.generator()
    G, C = z.shape
    targets = [g.below(C) for _ in range(G)]
    total = 0.0
    for r in range(G):
        total += float(ops.indexed_sum_nll(z[r : r + 1], axis=1, targets=targets[r : r + 1])[0])
    whole = ops.indexed_sum_nll(z, axis=1, targets=targets)[0]
    mean = ops.indexed_mean_nll(z, axis=1, targets=targets)[0]
    return first_difference(f"raw sum of {G} rows", np.array(total), whole) or first_difference(
        f"mean of {G} rows", np.array(total / G + 0.0), mean
    )


def _labels(implementation: Components, draw: Draw) -> Difference | None:
    ops, z = implementation.parts.ops, _rows(draw)
    G, C = z.shape
    good = [0] * (G - 1)
    names = ("indexed_mean_nll", "indexed_sum_nll")
    wrong: tuple[tuple[str, str, Array, list[Any]], ...] = (
        ("a target of -1", "index/target-out-of-bounds", z, [*good, -1]),
        ("a target of V", "index/target-out-of-bounds", z, [*good, C]),
        ("a target of -100", "index/target-out-of-bounds", z, [*good, -100]),
        ("a target too few", "shape/target-count-mismatch", z, good),
        ("a target that is no integer", "index/not-an-integer", z, [*good, 0.5]),
        ("no target at all", "shape/empty-targets", z[:0], []),
    )
    return first(
        refused(what, code, lambda n=name, r=rows, t=targets: getattr(ops, n)(r, axis=1, targets=t))  # type: ignore[misc]
        for what, code, rows, targets in wrong
        for name in names
    )


def _causal_prefix(implementation: Components, draw: Draw) -> Difference | None:
    """Query t of the fused operation against the softmax of its visible keys alone."""
    ops, g = implementation.parts.ops, draw.generator()
    T = draw.below(g, 6)
    scores, upstream = draw.values(g, T, T), draw.values(g, T, T, regime="uniform")
    p, vjp = ops.causal_softmax(scores)
    slopes = vjp(upstream)[0]

    def one(t: int) -> Iterator[Difference | None]:
        _, e, tail = _statistics(scores[t, : t + 1].tolist())
        row = [x / (1.0 + tail) for x in e]
        w = 0.0
        for u, x in zip(upstream[t].tolist(), row, strict=False):
            w += u * x
        back = [x * (u - w) + 0.0 for u, x in zip(upstream[t].tolist(), row, strict=False)]
        yield first_difference(f"keys of query {t}", row, p[t, : t + 1])
        yield first_difference(f"score gradients of query {t}", back, slopes[t, : t + 1])

    return first(d for t in range(T) for d in one(t))


def _hidden_scores(implementation: Components, draw: Draw) -> Difference | None:
    """Future, foreign and padded scores: any finite value there changes no bit."""
    ops, g = implementation.parts.ops, draw.generator()
    T = 1 + draw.below(g, 5)
    start, length = g.below(T), 1 + g.below(T)
    starts = np.array([0 if t < start else start for t in range(T)])
    scores, upstream = draw.values(g, T, T), draw.values(g, T, T, regime="uniform")
    t, j = np.indices((T, T))
    hidden = (j > t) | (j < starts[:, None]) | (t >= length)
    ranges = {"range_starts": starts, "lengths": np.array(length)}
    value, vjp = ops.causal_softmax(scores, **ranges)
    before = vjp(upstream)[0]

    def one(poison: float) -> Iterator[Difference | None]:
        p, rule = ops.causal_softmax(np.where(hidden, poison, scores), **ranges)
        yield first_difference(f"probabilities with hidden scores of {poison}", value, p)
        after = rule(np.where(hidden, poison, upstream))[0]
        yield first_difference(f"gradients with hidden cells of {poison}", before, after)

    return first(d for poison in POISONS for d in one(poison))


LAWS = (
    Law(
        id="softmax.definition",
        statement="Log-probabilities along any axis, mean loss, raw sum and their gradients have"
        " the bits of their definition for ordinary, nearly tied, huge and tiny logits, and around"
        " 1e17.",
        source="numerics.md sections 7 and 8, numerics_vjp.md section 3; cases: loss-huge-logits",
        needs=("operation-values",),
        faults=(
            "softmax-unshifted",
            "log-of-one-plus-tail",
            "logit-gradient-divided",
            "log-slopes-without-probabilities",
            "log-probabilities-laid-back-in-rows",
            "raw-sum-gradient-divided",
        ),
        cases=draws("uniform", "large", "huge", "tiny", "zero-rich", "offset", first_seed=25_000),
        check=_definition,
    ),
    Law(
        id="softmax.huge-losses",
        statement="The mean of losses whose sum overflows is formed, by the gap of one alone too;"
        " their raw sum is refused.",
        source="numerics.md section 8; cases: loss-huge-logits",
        needs=("operations",),
        faults=("mean-of-overflowing-sum", "mean-of-overflowing-gap"),
        cases=draws("huge", first_seed=26_000),
        check=_huge,
    ),
    Law(
        id="softmax.shift",
        statement="The same exact number added to all logits of a row changes no bit of"
        " probabilities, losses or gradients.",
        source="numerics.md section 7",
        needs=("operation-values",),
        faults=("softmax-unshifted",),
        cases=draws("dyadic", first_seed=27_000),
        check=_shift,
    ),
    Law(
        id="softmax.row-sums",
        statement="Causal probabilities lie in 0 .. 1, hidden ones are +0, and every row sums to 1"
        " within the rounding of its own length.",
        source="numerics.md section 12",
        needs=("operation-values",),
        faults=("one-key-too-many-in-sum",),
        cases=draws("uniform", "large", "wide", first_seed=28_000),
        check=_row_sums,
    ),
    Law(
        id="softmax.partition",
        statement="Raw sums of rows taken one by one add up, in order, to the raw sum of all; the"
        " mean is that over their number.",
        source="numerics.md section 8; cases: loss-accum-weighting",
        needs=("operation-values",),
        faults=("raw-sum-is-mean", "raw-sum-from-mean", "losses-summed-from-the-end"),
        cases=draws("uniform", "large", "offset", first_seed=29_000),
        check=_partition,
    ),
    Law(
        id="softmax.labels",
        statement="Targets that are outside the classes, too few, no integers or none are refused,"
        " each by its own code.",
        source="numerics.md section 8; cases: loss-label-range, loss-all-ignored",
        needs=("operations",),
        faults=("negative-label-wraps", "no-target-is-zero"),
        cases=draws("uniform", first_seed=30_000),
        check=_labels,
    ),
    Law(
        id="fused.causal-softmax",
        statement="A query of the fused causal softmax has the bits, forward and backward, of the"
        " softmax of its visible keys alone.",
        source="numerics.md section 12",
        needs=("operation-values",),
        faults=("softmax-sum-with-maximum", "softmax-slope-expanded", "mask-off-by-one"),
        cases=draws("uniform", "large", "wide", "offset", first_seed=31_000),
        check=_causal_prefix,
    ),
    Law(
        id="poison.hidden-scores",
        statement="Scores and upstream gradients of future, foreign and padded cells, whatever"
        " they hold, huge values and NaN among it, change no bit.",
        source="numerics.md section 12; cases: mask-full-row",
        needs=("operation-values",),
        faults=("mask-by-large-negative", "packed-segments-leak", "hidden-scores-times-zero"),
        cases=draws("uniform", "large", first_seed=32_000),
        check=_hidden_scores,
    ),
)
