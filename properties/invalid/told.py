"""What a refusal must tell and keep: its facts, in one line, in any process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import numpy as np

from logitproof.core.codes import Code
from logitproof.core.errors import Refusal, ShapeRefusal

from .boundary import NearMiss

__all__ = ["untold", "untold_sizes"]

LONGEST = 400  # characters of a sentence about an integer of any size
HUGE = 1 << 20_000
SHOWN_BITS = 256  # a digest, the largest number that anybody reads


def untold(miss: NearMiss, refusal: Refusal) -> Iterator[str]:
    """Facts that the sentence hides, that its parts hide, or that a copy has lost."""
    sentence, shown = str(refusal), repr(refusal)
    if not sentence.isprintable():
        yield f"the sentence has breaks: {sentence!r}"
    yield from (f"the sentence does not tell {name}" for name in miss.unnamed(refusal))
    yield from (
        f"the parts do not tell {name}" for name in refusal.facts() if f"{name}=" not in shown
    )
    for how, again in (
        ("a copy", copy.copy(refusal)),
        ("a pickle", pickle.loads(pickle.dumps(refusal))),  # noqa: S301 - our own bytes
    ):
        if type(again) is not type(refusal) or repr(again) != shown or str(again) != sentence:
            yield f"{how} says {again!r}"
    for given, named in (
        ((refusal.code, refusal.what), {}),
        ((None,), {"code": refusal.code, "what": refusal.what}),
    ):
        try:
            type(refusal)(*given, **named)  # type: ignore[arg-type]
        except TypeError:
            continue
        yield "it can be made without naming its facts"


def untold_sizes() -> Iterator[str]:
    """Sentences about integers that no screen holds, alone and among others."""
    for what, size in (("an integer", HUGE), ("a negative one", -HUGE), ("a list", [1, HUGE]),
                       ("a tuple", (HUGE, 2))):  # fmt: skip
        refusal = ShapeRefusal(code=Code.RAGGED_IDS, what="x", expected=size, actual=3)
        try:
            lines = (str(refusal), repr(refusal))
        except ValueError:
            yield f"{what} of {HUGE.bit_length()} bits cannot be told"
            continue
        if any(len(line) > LONGEST or "bits" not in line for line in lines):
            yield f"{what} of {HUGE.bit_length()} bits fills the screen"
        if any(("-(" in line) is not (size == -HUGE) for line in lines):
            yield f"{what} is told by the wrong sign: {lines[0]}"
    for size, words in (((1 << SHOWN_BITS) - 1, "115792089"), (1 << SHOWN_BITS, "257 bits")):
        sentence = str(ShapeRefusal(code=Code.RAGGED_IDS, what="x", expected=size, actual=3))
        if words not in sentence:
            yield f"an integer of {size.bit_length()} bits is told so: {sentence}"
    matrix = [[*range(70)] for _ in range(70)]
    for what, fact, cut in (("a list of rows", matrix, True),
                            ("an array of rows", np.array(matrix), False),
                            ("a small array of rows", np.zeros((2, 2)), False)):  # fmt: skip
        refusal = ShapeRefusal(code=Code.RAGGED_IDS, what="x", expected=fact, actual=3)
        sentence, shown = str(refusal), repr(refusal)
        if len(sentence) > LONGEST or not (sentence + shown).isprintable():
            yield f"{what} fills lines"
        if ("…" in sentence) is not cut:
            yield f"{what} does not say whether it is told as a whole: {sentence}"
    whole = ShapeRefusal(code=Code.RAGGED_IDS, what="x", expected=[1, 2], actual=(3,))
    if "[1, 2]" not in str(whole) or "(3,)" not in repr(whole):
        yield f"sizes are told otherwise than they are: {whole}"
