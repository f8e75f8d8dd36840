"""The derived cases, from the scalar decoder, the oracles and counting; never from the core."""

from collections.abc import Callable, Iterator

from logitproof.golden.load import Case

from . import counts, decoders, layers, operations, plain

__all__ = ["LAYERS", "OPERATIONS", "SUBJECTS", "derived"]

LAYERS = tuple(layers.LAYERS)
OPERATIONS = tuple(operations.RECIPES)  # in the order in which they are explained

# Subject -> its cases, in the order in which a decoder is built up.
SUBJECTS: dict[str, Callable[[], Iterator[Case]]] = {
    "functions": operations.functions,
    "operations": operations.operations,
    "layers": layers.layers,
    "generators": plain.generators,
    "rotations": plain.rotations,
    "layouts": plain.layouts,
    "tokenizers": plain.tokenizers,
    "decoders": decoders.decoders,
    "sessions": decoders.sessions,
    "chains": decoders.chains,
    "records": counts.records,
    "counts": counts.counts,
}


def derived(subject: str) -> list[Case]:
    """The cases of a subject, from nothing."""
    found = list(SUBJECTS[subject]())
    assert all(case.origin == "derived" and case.subject == subject for case in found)
    return found
