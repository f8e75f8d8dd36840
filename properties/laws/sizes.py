"""Laws that hold up to rounding where one size is larger than the regimes' cases have it."""

from __future__ import annotations

from collections.abc import Iterator

from logitproof.properties.truth import DECLARED_CLASS

from .cached import cached_logits
from .decoder import scalar_bits
from .difference import Difference, first_difference
from .larger import LargerCase, WiderCase, larger_cases, long_cases, ranged_cases, wider_cases
from .law import Law
from .levels import LAYOUTS, VALUES
from .precision import answered
from .protocol import DecoderUnderTest
from .truth import CLASS, gradients, logits, loss

__all__ = ["LAWS"]

RANGES = f"{CLASS}, inputs.md section 2"


def _texts(count: int) -> Iterator[LargerCase]:
    return (case for case in larger_cases(count) if case.layout is None and case.valid is None)


def _long_text(implementation: DecoderUnderTest, case: WiderCase) -> Difference | None:
    """The logits of a text's first half, alone and with another half behind it."""
    implementation.load(case.config, case.weights)
    (ids,), V = case.ids, case.config.vocabulary_size
    half = len(ids) // 2
    first_half, rest = list(ids[:half]), [(i + 1) % V for i in ids[half:]]
    whole = answered(implementation, implementation.logits([ids]))[0, :half]

    def same(what: str, other: list[int]) -> Difference | None:
        logits = answered(implementation, implementation.logits([other]))[0, :half]
        return first_difference(f"logits of the first {half} ids {what}", whole, logits)

    return same("alone", first_half) or same("before others", [*first_half, *rest])


LAWS = (
    Law(
        id="sizes.logits",
        statement="In a long text, many layers, heads, rows, documents or classes, wide heads,"
        " late positions, and with any epsilon and base, every logit lies as near to its true"
        " value as rounding must leave it.",
        source=CLASS,
        levels=("forward", *LAYOUTS),
        faults=(
            "window-of-sixteen",
            "layers-from-third-as-second",
            "heads-from-fourth-reversed",
            "features-from-sixth-ignored",
            "inner-rest-of-four-dropped",
            "third-row-as-first",
            "positions-wrap-at-2048",
            "third-document-sees-second",
            "epsilon-at-least-usual",
            "epsilon-at-most-hundredth",
            "base-rounded-down",
        ),
        grants=DECLARED_CLASS,
        cases=larger_cases,
        check=logits,
    ),
    Law(
        id="sizes.loss",
        statement="However many cells and classes there are and whichever cells are counted, none"
        " of a row or not its first among them, the mean loss lies as near to its true value as"
        " rounding must leave it.",
        source=f"{CLASS}, inputs.md section 7",
        levels=("loss", *LAYOUTS),
        faults=("classes-rest-of-eight-dropped", "first-cell-always-counted",
                "chosen-cells-forgotten-in-full-rows", "row-without-targets-is-nan"),
        grants=DECLARED_CLASS,
        cases=larger_cases,
        check=loss,
    ),
    Law(
        id="sizes.gradients",
        statement="However large one size is, every gradient entry lies as near to the true slope"
        " of the loss as rounding must leave it.",
        source=CLASS,
        levels=("gradients", *LAYOUTS),
        faults=("gradient-of-two-rows", "gradient-cut-after-eight-cells"),
        grants=DECLARED_CLASS,
        cases=larger_cases,
        check=gradients,
    ),
    Law(
        id="sizes.cached-logits",
        statement="However long a text, and however many layers, heads, classes and features"
        " decode it, each logit that a session gives lies as near to its true value as rounding"
        " must leave it.",
        source=f"{CLASS}, cache.md section 6",
        needs=("decode",),
        levels=("decode",),
        faults=("cache-of-eight-rows", "second-chunk-reversed"),
        grants=DECLARED_CLASS,
        cases=_texts,
        check=cached_logits,
    ),
    Law(
        id="sizes.scalar-bits",
        statement="In texts beyond 64 tokens, with hundreds of classes or inner features, many"
        " features, heads, rows or layers, logits, mean loss and every gradient have the bits of"
        " the scalar decoder.",
        source="numerics.md section 1, numerics_vjp.md section 1",
        needs=("specified-bits",),
        levels=VALUES,
        faults=("contraction-halved-beyond-64",),
        cases=wider_cases,
        check=scalar_bits,
    ),
    Law(
        id="sizes.prefix-causality",
        statement="Of a text beyond 512 tokens later ids change no bit of earlier logits, and"
        " neither does leaving them away.",
        source="numerics.md section 12",
        needs=("row-bits",),
        levels=("forward",),
        faults=("long-texts-see-every-key",),
        cases=long_cases,
        check=_long_text,
    ),
    Law(
        id="ranges.logits",
        statement="Whatever first key and position each query has, every logit lies as near to its"
        " true value as rounding must leave it.",
        source=RANGES,
        needs=("ranges",),
        levels=("forward",),
        faults=("keys-of-equal-start-alone", "positions-counted-from-start"),
        grants=DECLARED_CLASS,
        cases=ranged_cases,
        check=logits,
    ),
    Law(
        id="ranges.gradients",
        statement="Whatever first key and position each query has, every gradient entry lies as"
        " near to the true slope of the loss as rounding must leave it.",
        source=RANGES,
        needs=("ranges",),
        levels=("gradients",),
        faults=("keys-of-equal-start-alone", "gradient-turned-by-place"),
        grants=DECLARED_CLASS,
        cases=ranged_cases,
        check=gradients,
    ),
)  # fmt: skip
