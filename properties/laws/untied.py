"""Laws over decoders whose head has a matrix of its own beside the embedding table.

The specification states such decoders and executes none: they are judged where they are claimed.
"""

from __future__ import annotations

from collections.abc import Iterator

from logitproof.properties.truth import DECLARED_CLASS

from .cached import cached_logits
from .law import Law
from .levels import LAYOUTS
from .regimes import TruthCase, untied_cases
from .truth import CLASS, gradients, logits, loss

__all__ = ["LAWS"]

NEEDS = ("untied-head",)
SOURCE = f"{CLASS}; notes/field.md (conventions)"


def _texts(count: int) -> Iterator[TruthCase]:
    return (case for case in untied_cases(count) if case.layout is None)


LAWS = (
    Law(
        id="untied.logits",
        statement="With a head of its own every logit is the hidden state times the head's row, as"
        " near to its true value as rounding must leave it, in every regime.",
        source=SOURCE,
        needs=NEEDS,
        levels=("forward", *LAYOUTS),
        faults=("logits-by-table",),
        grants=DECLARED_CLASS,
        cases=untied_cases,
        check=logits,
    ),
    Law(
        id="untied.loss",
        statement="The mean loss by a head of its own lies as near to its true value as rounding"
        " must leave it.",
        source=SOURCE,
        needs=NEEDS,
        levels=("loss", *LAYOUTS),
        faults=("logits-by-table",),
        grants=DECLARED_CLASS,
        cases=untied_cases,
        check=loss,
    ),
    Law(
        id="untied.gradients",
        statement="Every gradient entry beside a head of its own is the true slope up to rounding:"
        " the table's of its lookups alone, the head's of the logits alone.",
        source=SOURCE,
        needs=NEEDS,
        levels=("gradients", *LAYOUTS),
        faults=(
            "own-head-gradient-in-table",
            "own-head-gradient-missing",
            "lookups-in-own-head-gradient",
            "hidden-slope-by-table",
        ),
        grants=DECLARED_CLASS,
        cases=untied_cases,
        check=gradients,
    ),
    Law(
        id="untied.cached-logits",
        statement="However a text is split into prompt, chunk and decoded tokens, a session gives"
        " the logits of the head's own matrix, as near to the truth as rounding must leave them.",
        source=f"{SOURCE}; cache.md section 6",
        needs=(*NEEDS, "decode"),
        levels=("decode",),
        faults=("chunk-logits-by-table",),
        grants=DECLARED_CLASS,
        cases=_texts,
        check=cached_logits,
    ),
)
