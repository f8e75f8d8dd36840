"""Laws that hold up to rounding: answers against the truth to 50 digits and a derived bound.

Three verdicts: an entry is wrong where it lies further from the truth than the bound allows,
consistent with rounding where it does not, and undecidable where the bound itself is too wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from logitproof.properties.truth import BINARY32, BINARY64, DECLARED_CLASS, Answer, Format, Truth

from .cases import PAD
from .difference import Difference, Values, doubles
from .law import Finding, Law
from .levels import LAYOUTS
from .precision import answered, format_of
from .protocol import DecoderUnderTest
from .regimes import DECIDABLE, NATS, TruthCase, largest, truth_cases
from .ulps import Counts, added, ulp_counts

__all__ = [
    "CLASS", "DECIDABLE", "DECLARED_CLASS", "LAWS", "Compared", "gradients", "judged", "largest",
    "logits", "loss",
]  # fmt: skip

Array: TypeAlias = NDArray[np.float64]

UNDERFLOW = 2.0**24  # times eta: a bound of so few smallest numbers decides, whatever the scale


class Compared(NamedTuple):
    """One array of answers beside the truth."""

    what: str
    answer: Answer
    actual: Values
    scale: float


def finding(case: TruthCase, compared: Iterable[Compared], format: Format = BINARY64) -> Finding:
    """The first wrong entry, and the ratios of error to bound over all arrays."""
    difference, ratios, entries, undecidable = None, [], 0, 0
    ulps: Counts = ()
    for one in compared:
        actual = doubles(one.actual)
        if actual.shape != one.answer.shape:
            shapes = [str(list(shape)) for shape in (one.answer.shape, actual.shape)]
            difference = difference or Difference(
                what=f"{one.what}, shape", expected=shapes[0], actual=shapes[1]
            )
            continue
        bounds = one.answer.roundings.bounds(format).reshape(actual.shape)
        errors = _errors(one.answer, actual)
        decided = bounds <= max(DECIDABLE * one.scale, UNDERFLOW * format.eta)
        wrong = decided & ~(errors <= bounds)
        if difference is None and wrong.any():
            difference = _told(one, actual, errors, bounds, wrong)
        with np.errstate(all="ignore"):
            shares = np.where(errors == 0.0, 0.0, errors / bounds)
        ratios.append(shares[decided])
        ulps = added(ulps, ulp_counts(errors[decided], one.answer.doubles[0][decided]))
        entries += actual.size
        undecidable += int(np.count_nonzero(~decided))
    kept = np.concatenate(ratios) if ratios else np.zeros(0)
    kept = np.where(np.isnan(kept), np.inf, kept)
    return Finding(
        difference=difference,
        entries=entries,
        undecidable=undecidable,
        median_ratio=float(np.median(kept)) if kept.size else 0.0,
        worst_ratio=float(kept.max()) if kept.size else 0.0,
        regimes=case.regime.cells,
        ulps=ulps,
    )


def _errors(answer: Answer, actual: Array) -> Array:
    """|actual - truth|; the truth is two doubles, so a near answer's error is not rounded off."""
    near, rest = answer.doubles
    with np.errstate(all="ignore"):
        return np.abs((actual - near) - rest)


def _told(
    one: Compared, actual: Array, errors: Array, bounds: Array, wrong: NDArray[np.bool_]
) -> Difference:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    error, bound = float(errors[at]), float(bounds[at])
    times = f"{error / bound:.2g} times its bound" if bound else "where nothing may be rounded"
    return Difference(
        what=one.what,
        at=at,
        expected=f"{float(one.answer.doubles[0][at])!r} within {bound:.2g}",
        actual=f"{float(actual[at])!r}, off by {error:.2g}, {times}"
        f" ({int(wrong.sum())} of {wrong.size} are wrong)",
    )


def _refused(implementation: DecoderUnderTest, case: TruthCase, ask: Any) -> Finding:
    """What passes the largest double must not come back as numbers unless these are finite."""
    undecided = Finding(difference=None, entries=1, regimes=case.regime.cells)
    if not implementation.capabilities.get("refusals", False):
        return undecided
    try:
        answers = list(ask())
    except ValueError:
        return undecided
    for one in answers:
        if not np.isfinite(doubles(one.actual)).all():
            difference = Difference(
                what=f"{one.what} of values that overflow",
                expected="a ValueError, or finite numbers",
                actual="numbers that are not finite",
            )
            return Finding(difference=difference, entries=1, regimes=case.regime.cells)
    return undecided


def judged(
    implementation: DecoderUnderTest,
    case: TruthCase,
    ask: Callable[[TruthCase], Iterable[Compared]],
) -> Finding:
    """What a decoder loaded with the case answers, beside the truth.

    Where roundings are those of float32, so are the weights, and the truth is theirs.

    ask: gives everything asked for as `Compared`
    """
    format = format_of(implementation)
    if format == BINARY32:
        case = case.single
        if not case.fits:
            return Finding(difference=None, entries=1, regimes=case.regime.cells)
    implementation.load(case.config, case.weights)
    if overflows(case.truth, format):
        return _refused(implementation, case, lambda: ask(case))
    return finding(case, ask(case), format)


def overflows(truth: Truth, format: Format) -> bool:
    """Whether a format does not hold what the answers are made of."""
    return truth.overflows or not truth.largest <= format.largest


def logits(implementation: DecoderUnderTest, case: TruthCase) -> Finding:
    """Every logit of the batch beside its truth."""

    def ask(case: TruthCase) -> Iterator[Compared]:
        answer = case.truth.logits
        actual = answered(implementation, implementation.logits(case.ids, case.layout))
        if actual.shape == answer.shape:  # nothing is asked of cells that are not active
            active = np.array(case.ids)[..., None] != PAD
            actual = np.where(active, actual, answer.doubles[0])
        yield Compared("logits", answer, actual, largest(answer))

    return judged(implementation, case, ask)


def loss(implementation: DecoderUnderTest, case: TruthCase) -> Finding:
    """The mean loss beside its truth."""

    def ask(case: TruthCase) -> Iterator[Compared]:
        mean, _ = implementation.loss_and_gradients(case.ids, case.targets, case.layout, case.valid)
        answer = case.truth.loss
        actual = answered(implementation, mean)
        yield Compared("mean loss", answer, actual, max(largest(answer), NATS))

    return judged(implementation, case, ask)


def gradients(implementation: DecoderUnderTest, case: TruthCase) -> Finding:
    """Every gradient entry beside its truth."""

    def ask(case: TruthCase) -> Iterator[Compared]:
        _, given = implementation.loss_and_gradients(
            case.ids, case.targets, case.layout, case.valid
        )
        if differing := sorted({*given} ^ {*case.truth.gradients}):
            raise TypeError(f"missing or of no parameter: gradient of {', '.join(differing)}")
        scale = max(case.truth.reach, *map(largest, case.truth.gradients.values()))
        for name, answer in case.truth.gradients.items():
            actual = answered(implementation, given[name])
            yield Compared(f"gradient of {name}", answer, actual, scale)

    return judged(implementation, case, ask)


CLASS = "properties/truth/decoder.py, notes/bounds.md"

LAWS = (
    Law(
        id="truth.logits",
        statement="Every logit lies as near to its true value as rounding must leave it, in every "
        "regime; what overflows is refused.",
        source=CLASS,
        levels=("forward", *LAYOUTS),
        faults=(
            "subnormal-logits-flushed-where-tied",
            "epsilon-added-to-sum",
            "squares-in-single-precision",
            "gain-plus-one",
            "norm-subtracts-mean",
            "score-scale-missing",
            "score-scale-without-root",
            "rotation-missing",
            "frequency-without-two",
            "rotary-base-hard-coded",
            "query-one-position-on",
            "heads-interleaved",
            "own-key-masked",
            "mask-off-by-one",
            "packed-segments-leak",
            "softmax-off-by-one",
            "probabilities-in-single-precision",
            "gelu-by-sigmoid",
            "gate-and-up-exchanged",
            "residual-after-norm",
            "embeddings-times-root",
            "norm-input-clamped",
            "logits-clamped",
            "hidden-subnormals-flushed",
            "positions-wrap-at-512",
            "epsilon-outside-root",
            "epsilon-fixed",
            "pairs-by-halves",
            "frequencies-in-single",
            "exponent-one-step-late",
            "positions-in-half-precision",
            "one-key-too-many-in-sum",
        ),
        grants=DECLARED_CLASS,
        cases=truth_cases,
        check=logits,
    ),
    Law(
        id="truth.loss",
        statement="The mean loss lies as near to its true value as rounding must leave it.",
        source=CLASS,
        levels=("loss", *LAYOUTS),
        faults=(
            "mean-over-all-cells",
            "mean-of-row-means",
            "targets-of-previous-cell",
        ),
        grants=DECLARED_CLASS,
        cases=truth_cases,
        check=loss,
    ),
    Law(
        id="truth.gradients",
        statement="Every gradient entry lies as near to the true slope of the loss as rounding "
        "must leave it.",
        source=CLASS,
        levels=("gradients", *LAYOUTS),
        faults=(
            "norm-root-held-fixed",
            "softmax-slope-without-mean",
            "silu-slope-is-sigmoid",
            "residual-slope-dropped",
            "logit-gradient-not-divided",
            "head-gradient-halved",
            "head-gradient-dropped",
            "scatter-overwrites",
            "scatter-overwrites-head",
            "scatter-overwrites-third-repeat",
            "gradient-turned-on",
            "silu-slope-from-value",
            "reused-node-overwrites",
        ),
        grants=DECLARED_CLASS,
        cases=truth_cases,
        check=gradients,
    ),
)
