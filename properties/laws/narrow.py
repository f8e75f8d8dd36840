"""Laws over single operations in float16 and bfloat16, by bounds of their own units.

Two classes of programs, of which a subject declares one by its convention `accumulation`, or of one
operation by `accumulation:softmax`: "format", in which every step is rounded to the format, and
"float32", in which the steps of an operation are taken in float32 and what it hands out is rounded
once. What a reverse rule reads of the forward pass may be what was handed out. In either class a
step may be taken in float32 and rounded then.

What surely passes the largest number is infinite, and finite what does not reach the one that would
follow it; where a step may pass it in some order, nothing is asked. Below the smallest normal
number a rounding is half the smallest one: nothing is flushed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitproof.properties import bounds
from logitproof.properties.bounds import Estimate, Rules
from logitproof.properties.scalar import Generator
from logitproof.properties.truth import BFLOAT16, BINARY16, BINARY32, Format

from .components import Components
from .difference import Difference
from .drawn import Array, Draw, draws
from .law import Finding, Law

__all__ = ["FORMATS", "LAWS", "RULES", "Call", "calls", "holds", "nearest"]

FORMATS: Mapping[str, Format] = {"float16": BINARY16, "bfloat16": BFLOAT16}
INNER_FORMS = 8  # float32 roundings of each step: every textbook form has fewer
INNER_ULPS = 4.0  # of float32 functions, as vector libraries declare
ULPS = 1.0  # of functions that are rounded to the format themselves
GRANTS = {
    "format": f"every step rounded to the format, functions within {ULPS:g} ulp of it, sums in any"
    " order; or each step in float32 and rounded then",
    "float32": f"steps in float32 in any textbook form, functions within {INNER_ULPS:g} of its"
    " ulps, what an operation hands out rounded once",
    "softmax": "exponentials shifted by the maximum; its sum with it or as 1 + the others; log p"
    " as z - log-sum-exp too while |z| stays below 2^20",
    "sigmoid": "e / (1 + e), or 1 / (1 + exp(-x)), which is 0 where exp(-x) overflows",
    "norm": "the scaled row rounded before the gain, or not",
    "reverse": "values read as they were handed out, p as exp(log p) too",
    "excluded": "what overflows on the way in some order of additions",
}


def _rules(format: Format, accumulation: str) -> Rules:
    kept = Rules(unit=format.unit, eta=format.eta, largest=format.largest)
    if accumulation == "float32":
        return Rules(
            unit=BINARY32.unit,
            eta=BINARY32.eta,
            ulps=INNER_ULPS,
            forms=INNER_FORMS,
            largest=BINARY32.largest,
            kept=kept,
            granted=True,
        )
    # A float32 rounding before each: (1 + u)(1 + v) - 1, and two of its etas, 2^-149, which are
    # less than a thousandth of the format's.
    before = format.unit * BINARY32.unit + BINARY32.unit
    unit, eta = format.unit + before, format.eta * (1.0 + 2.0**-10)
    return replace(kept, unit=unit, eta=eta, ulps=ULPS, granted=True)


RULES: Mapping[tuple[str, str], Rules] = {
    (name, accumulation): _rules(format, accumulation)
    for name, format in FORMATS.items()
    for accumulation in ("format", "float32")
}


# --- numbers of a format -----------------------------------------------------------------------


def _exponents(format: Format) -> tuple[int, int]:
    """Of the smallest normal number, and of the largest."""
    return round(math.log2(format.eta / format.unit)), math.frexp(format.largest)[1] - 1


def nearest(format: Format, x: float) -> float:
    """The nearest number of the format that is not beyond its largest."""
    lowest, _ = _exponents(format)
    spacing = math.ldexp(2.0 * format.unit, max(math.frexp(x)[1] - 1, lowest))
    size = round(abs(x) / spacing) * spacing
    return math.copysign(min(format.largest, size), x)


def holds(format: Format, values: Array) -> NDArray[np.bool_]:
    """Where there is a number of the format, an infinity or a NaN."""
    cells = values.reshape(-1).tolist()
    same = [not math.isfinite(x) or x == nearest(format, x) for x in cells]
    return np.array(same, dtype=np.bool_).reshape(values.shape)


def _ordinary(g: Generator, _: Format) -> float:
    return 4.0 * g.unit() - 2.0


def _whole(g: Generator, format: Format) -> float:
    """Integers with as many digits as there are: their sums are ties."""
    most = round(1.0 / format.unit)
    return float(g.below(2 * most + 1) - most)


def _wide(g: Generator, format: Format) -> float:
    span = _exponents(format)[1]
    return math.ldexp(_ordinary(g, format), g.below(span) - span // 2)


def _tiny(g: Generator, format: Format) -> float:
    """Around the smallest normal number."""
    return math.ldexp(_ordinary(g, format), _exponents(format)[0] + 2 - g.below(7))


def _large(g: Generator, format: Format) -> float:
    """Some of which overflow in sums."""
    size = math.ldexp(1.0 + g.unit(), _exponents(format)[1] - 1 - g.below(4))
    return -size if g.below(2) else size


def _hot(g: Generator, _: Format) -> float:
    return 80.0 * g.unit() - 40.0


def _positive(g: Generator, _: Format) -> float:
    """Whose sums grow until a coarse accumulation stands still."""
    return 0.5 + g.unit()


REGIMES: Mapping[str, Callable[[Generator, Format], float]] = {
    "ordinary": _ordinary,
    "tiny": _tiny,
    "large": _large,
    "hot": _hot,
    "wide": _wide,
    "whole": _whole,
    "positive": _positive,
}


def _values(g: Generator, format: Format, regime: str, *shape: int) -> Array:
    cells = [nearest(format, REGIMES[regime](g, format)) for _ in range(math.prod(shape))]
    return np.array(cells, dtype=np.float64).reshape(shape)


# --- calls -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """One call of an operation, and what arrives at its value."""

    name: str
    operands: tuple[Array, ...]
    upstream: Array
    arguments: dict[str, Any] = field(default_factory=dict)

    def estimate(self, rules: Rules) -> Estimate:
        """The bound of its value."""
        if self.name == "rms_norm":
            return bounds.rms_norm(*self.operands, rules=rules, **self.arguments)
        return bounds.forward(self.name, *self.operands, rules=rules, **self.arguments)

    def estimates(self, rules: Rules) -> tuple[Estimate, ...]:
        """The bounds of its contributions; none where no reverse rule is asked for."""
        if self.name == "rms_norm":
            return ()
        return bounds.contributions(
            self.name, self.upstream, *self.operands, rules=rules, **self.arguments
        )


def calls(format: Format, draw: Draw) -> Iterator[Call]:
    """Every operation once; functions where their results overflow and underflow too."""
    g = draw.generator()
    R, C, K = (1 + draw.below(g, 3) for _ in range(3))

    def drawn(*shape: int, regime: str = draw.regime) -> Array:
        return _values(g, format, regime, *shape)

    def ordinary(*shape: int) -> Array:
        return drawn(*shape, regime="ordinary")

    x, y = drawn(R, C), drawn(R, C)
    yield Call(name="add", operands=(x, y), upstream=ordinary(R, C))
    yield Call(name="mul", operands=(x, y), upstream=drawn(R, C))
    for name in ("sum", "mean"):
        yield Call(name=name, operands=(x,), upstream=drawn(R), arguments={"axis": 1})
    yield Call(name="matmul", operands=(x, drawn(C, K)), upstream=ordinary(R, K))
    for name in ("softmax", "log_softmax"):
        yield Call(name=name, operands=(x,), upstream=ordinary(R, C), arguments={"axis": 1})
    edge = 1.3 * math.log(format.largest)  # exp overflows there, and is subnormal on the other side
    powers = np.vectorize(lambda u: nearest(format, edge * u))(ordinary(R, C) / 2.0)
    yield Call(name="exp", operands=(powers,), upstream=ordinary(R, C))
    yield Call(name="silu", operands=(powers,), upstream=ordinary(R, C))
    yield Call(name="silu", operands=(x,), upstream=ordinary(R, C))
    positive = np.where(x == 0.0, 1.0, np.abs(x))
    yield Call(name="log", operands=(positive,), upstream=ordinary(R, C))
    angles = 6.25 * np.vectorize(lambda _: g.unit())(np.zeros((R, C)))
    turns = {"cosines": np.cos(angles), "sines": np.sin(angles)}
    turns = {n: np.vectorize(lambda v: nearest(format, v))(part) for n, part in turns.items()}
    yield Call(name="rotary", operands=(drawn(R, 2 * C),), upstream=ordinary(R, 2 * C),
               arguments=turns)  # fmt: skip
    epsilon = nearest(format, (1e-2, 1e-5)[g.below(2)])
    yield Call(name="rms_norm", operands=(x, ordinary(C)), upstream=ordinary(R, C),
               arguments={"epsilon": epsilon})  # fmt: skip


LONG = (300, 150, 70, 40)


def long_calls(format: Format, draw: Draw) -> Iterator[Call]:
    """Sums and products of many terms."""
    g, n = draw.generator(), LONG[draw.size % len(LONG)]

    def drawn(*shape: int) -> Array:
        return _values(g, format, draw.regime, *shape)

    row = drawn(1, n)
    for name in ("sum", "mean"):
        upstream = _values(g, format, "ordinary", 1)
        yield Call(name=name, operands=(row,), upstream=upstream, arguments={"axis": 1})
    upstream = _values(g, format, "ordinary", 1, 2)
    yield Call(name="matmul", operands=(row, drawn(n, 2)), upstream=upstream)


# --- judging -----------------------------------------------------------------------------------


class Tally:
    """The first difference, and the ratios of error to bound of what was decided."""

    def __init__(self, name: str) -> None:
        self.name, self.format = name, FORMATS[name]
        self.difference: Difference | None = None
        self.ratios = list[float]()

    def judge(self, what: str, estimate: Estimate, answered: Any) -> None:
        """One array beside the truth."""
        given = np.asarray(answered)
        actual = given.astype(np.float64)
        if actual.shape != estimate.shape:
            shapes = [str(list(shape)) for shape in (estimate.shape, actual.shape)]
            self._differs(f"{what}, shape", (), *shapes)
            return
        strange = np.argwhere(~holds(self.format, actual))
        if len(strange):
            at = tuple(int(i) for i in strange[0])
            self._differs(what, at, f"a number of {self.name}", repr(float(actual[at])))
            return
        _, highest = _exponents(self.format)
        ends = {"largest": self.format.largest, "following": 2.0 * 2.0**highest}
        for at, pair in zip(np.ndindex(actual.shape), estimate.pairs, strict=True):
            ratio = bounds.share(pair, float(actual[at]), **ends)
            if ratio is None:  # it may overflow on the way
                continue
            self.ratios.append(ratio)
            if not ratio <= 1.0:
                beyond = abs(pair.value) - pair.error > self.format.largest
                edge = "infinity: beyond the largest is " if beyond else ""
                expected = f"{edge}{float(pair.value):.8g} within {float(pair.error):.3g}"
                told = f"{float(actual[at])!r}, {ratio:.3g} times its bound"
                self._differs(what, at, expected, told)

    def _differs(self, what: str, at: tuple[int, ...], expected: str, actual: str) -> None:
        found = Difference(what=what, at=at, expected=expected, actual=actual)
        self.difference = self.difference or found

    def finding(self) -> Finding:
        """What was found."""
        ratios = np.array(self.ratios or [0.0])
        return Finding(
            difference=self.difference,
            entries=len(self.ratios),
            median_ratio=float(np.median(ratios)),
            worst_ratio=float(ratios.max()),
        )


def _judge(
    name: str, drawn: Callable[[Format, Draw], Iterator[Call]], *, slopes: bool
) -> Callable[[Components, Draw], Finding]:
    """Each operation that the namespace has; a refusal is a difference unless it overflows."""

    def check(implementation: Components, draw: Draw) -> Finding:
        ops, tally = implementation.narrow(name), Tally(name)
        declared = implementation.conventions
        whole = declared.get("accumulation", "format")
        offered = [c for c in drawn(FORMATS[name], draw) if hasattr(ops, c.name)]
        if not offered:
            tally._differs(f"operations of {name}", (), "one at least", "none")
        for call in offered:
            rules = RULES[name, declared.get(f"accumulation:{call.name}", whole)]
            with np.errstate(all="ignore"):
                answer = getattr(ops, call.name)(*call.operands, **call.arguments)
            where = f"{call.name} of {[list(x.shape) for x in call.operands]}"
            if not slopes:
                value = answer if call.name == "rms_norm" else answer[0]
                tally.judge(where, call.estimate(rules), value)
                continue
            estimates = call.estimates(rules)
            if estimates:
                with np.errstate(all="ignore"):
                    given = answer[1](call.upstream)
                for i, (estimate, part) in enumerate(zip(estimates, given, strict=True)):
                    tally.judge(f"{where}, contribution {i}", estimate, part)
        return tally.finding()

    return check


def _laws(name: str, seed: int, *own: str) -> tuple[Law, ...]:
    """The laws of one format; `own` are faults that the other format does not show."""
    needs, source = (f"operations:{name}",), "notes/bounds.md, properties/laws/narrow.py"
    every = ("ordinary", "tiny", "large", "hot", "wide", "whole")
    return (
        Law(
            id=f"{name}.operations",
            statement=f"Every single operation on {name} numbers gives one within the bound derived"
            " for its roundings, down to the smallest, and infinite where it surely overflows.",
            source=source,
            needs=needs,
            faults=(*own, "narrow-truncated", "narrow-subnormals-flushed",
                    "narrow-softmax-not-shifted"),
            grants=GRANTS,
            cases=draws(*every, first_seed=seed),
            check=_judge(name, calls, slopes=False),
        ),
        Law(
            id=f"{name}.slopes",
            statement=f"Every reverse rule on {name} numbers gives such numbers, within the bound"
            " derived for its roundings.",
            source=source,
            needs=needs,
            faults=("narrow-truncated", "narrow-slopes-in-float32", "narrow-slope-by-coarse-sum"),
            grants=GRANTS,
            cases=draws(*every, first_seed=seed + 100),
            check=_judge(name, calls, slopes=True),
        ),
        Law(
            id=f"{name}.long-sums",
            statement=f"Sums, means and products over hundreds of {name} terms lose no more than"
            " the accumulation that is declared.",
            source=source,
            needs=needs,
            faults=("narrow-sums-in-format",),
            grants=GRANTS,
            cases=draws("ordinary", "positive", "hot", "whole", first_seed=seed + 200),
            check=_judge(name, long_calls, slopes=False),
        ),
    )  # fmt: skip


LAWS = (
    *_laws("float16", 41_000, "float16-saturates", "float16-squares-in-format"),
    *_laws("bfloat16", 42_000, "bfloat16-cut-from-float32"),
)
