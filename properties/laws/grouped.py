"""Laws over decoders whose query heads share key/value heads, as most published models do.

The specification states such decoders and executes none: they are judged where they are claimed.
"""

from __future__ import annotations

from collections.abc import Iterator

from logitproof.properties.truth import DECLARED_CLASS

from .cached import cached_logits
from .decoder import prefix_causality
from .law import Law
from .levels import LAYOUTS
from .regimes import TruthCase, grouped_cases
from .truth import CLASS, gradients, logits, loss

__all__ = ["LAWS"]

NEEDS = ("grouped-heads",)
SOURCE = f"{CLASS}; notes/field.md (conventions)"
GRANTS = {
    **DECLARED_CLASS,
    "groups": "what the heads of a group owe to their key or value summed in any order, with the"
    " sums over queries or after them, before or after it is turned back; not weights repeated"
    " for each head and their gradients summed",
}


def _texts(count: int) -> Iterator[TruthCase]:
    return (case for case in grouped_cases(count) if case.layout is None)


def _held(count: int) -> Iterator[TruthCase]:
    """Those that any decoder answers with numbers, wherever it computes them."""
    return (case for case in _texts(count) if case.regime.values != "overflow")


LAWS = (
    Law(
        id="grouped.logits",
        statement="Where query head h reads key/value head h // (H / H_kv), every logit lies as"
        " near to its true value as rounding must leave it, in every regime.",
        source=SOURCE,
        needs=NEEDS,
        levels=("forward", *LAYOUTS),
        faults=("kv-heads-in-turn", "kv-heads-reversed", "kv-repeated-along-positions"),
        grants=GRANTS,
        cases=grouped_cases,
        check=logits,
    ),
    Law(
        id="grouped.loss",
        statement="The mean loss over shared key/value heads lies as near to its true value as"
        " rounding must leave it.",
        source=SOURCE,
        needs=NEEDS,
        levels=("loss", *LAYOUTS),
        faults=("kv-heads-in-turn", "values-in-turn"),
        grants=GRANTS,
        cases=grouped_cases,
        check=loss,
    ),
    Law(
        id="grouped.gradients",
        statement="Every gradient entry over shared key/value heads is the true slope up to"
        " rounding: a shared head's is the sum over the heads that read it.",
        source=SOURCE,
        needs=NEEDS,
        levels=("gradients", *LAYOUTS),
        faults=(
            "shared-gradient-of-last-head",
            "shared-gradient-averaged",
            "shared-gradient-summed-in-turn",
        ),
        grants=GRANTS,
        cases=grouped_cases,
        check=gradients,
    ),
    Law(
        id="grouped.cached-logits",
        statement="However a text is split into prompt, chunk and decoded tokens, a session over"
        " shared key/value heads gives logits as near to the truth as rounding must leave them.",
        source=f"{SOURCE}; cache.md section 6",
        needs=(*NEEDS, "decode"),
        levels=("decode",),
        faults=("cached-kv-heads-in-turn",),
        grants=GRANTS,
        cases=_texts,
        check=cached_logits,
    ),
    Law(
        id="grouped.prefix-causality",
        statement="Over shared key/value heads later ids change no bit of earlier logits, and"
        " neither does leaving them away.",
        source=f"numerics.md section 12; {SOURCE}",
        needs=(*NEEDS, "row-bits"),
        levels=("forward",),
        faults=("group-rows-masked-as-positions",),
        cases=_held,
        check=prefix_causality,
    ),
)
