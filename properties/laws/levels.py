"""The levels at which a decoder may claim to be right: each is claimed and judged apart."""

from __future__ import annotations

from typing import Any

from .protocol import DecoderUnderTest

__all__ = ["ASSUMED", "LAYOUTS", "LEVELS", "VALUES", "claimed", "layout_levels"]

VALUES = ("forward", "loss", "gradients")  # what of a batch is asked for
LAYOUTS = ("padded", "packed")  # batches that are more than rows of equal length
LEVELS = (*VALUES, "decode", *LAYOUTS)
# What counts as claimed unless it is denied: values, layouts, and that the bits of a row do not
# depend on what stands beside it.
ASSUMED = (*VALUES, *LAYOUTS, "row-bits")


def claimed(implementation: DecoderUnderTest, name: str) -> bool:
    """Whether a capability is declared, or assumed and not denied."""
    return implementation.capabilities.get(name, name in ASSUMED)


def layout_levels(case: Any) -> tuple[str, ...]:
    """What a decoder must claim of layouts to be asked for this case."""
    layout = getattr(case, "layout", None)
    if layout is None:
        return ()
    B, T = layout.shape
    padded = any(length < T for length in layout.lengths)
    cells = ((b, t) for b in range(B) for t in range(layout.lengths[b]))
    packed = any(layout.range_starts[b][t] > 0 for b, t in cells)
    return ("padded",) * padded + ("packed",) * packed
