"""Decoders with weights and batches, drawn by Hypothesis: every part shrinks to the plainest."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from .laws.regimes import (
    BASES,
    CHOICES,
    EPSILONS,
    Override,
    Regime,
    Sizes,
    TruthCase,
    case_of,
)

__all__ = ["decoder_cases", "overrides", "regimes", "sizes"]

# What an override sets a weight to: plain first, then what arithmetic is seldom tried on.
VALUES = (0.0, 1.0, -1.0, 0.125, -0.0, 5e-324, -(2.0**-1022), 2.0**-30, 1e17, 2.0**-500)
REFUSED = "overflow"


def regimes(*, overflowing: bool = False) -> st.SearchStrategy[Regime]:
    """One choice per dimension; of values that overflow only where asked for."""
    choices = {
        name: [c for c in given if overflowing or c != REFUSED] for name, given in CHOICES.items()
    }
    return st.builds(Regime, **{name: st.sampled_from(c) for name, c in choices.items()})


@st.composite
def sizes(
    draw: st.DrawFn,
    *,
    max_B: int = 2,
    max_T: int = 4,
    max_V: int = 6,
    max_L: int = 2,
    sharing: bool = False,
) -> Sizes:
    """B = T = L = H = 1 at the plainest.

    sharing: up to three heads read each key/value head, and the head may have its own matrix
    """
    plain = draw(_plain_sizes(max_B, max_T, max_V, max_L))
    if not sharing:
        return plain
    sharers, tied = draw(st.integers(1, 3)), draw(st.booleans())
    return replace(plain, heads=sharers * plain.heads, kv_heads=plain.heads, tied=tied)


def _plain_sizes(max_B: int, max_T: int, max_V: int, max_L: int) -> st.SearchStrategy[Sizes]:
    return st.builds(
        Sizes,
        B=st.integers(1, max_B),
        T=st.integers(1, max_T),
        V=st.integers(2, max_V),
        head_width=st.sampled_from((2, 4)),
        heads=st.integers(1, 2),
        F=st.integers(1, 3),
        L=st.sampled_from((1, 0, 2)[: max_L + 1]),
    )


@st.composite
def overrides(draw: st.DrawFn, *, names: tuple[str, ...], most: int = 3) -> tuple[Override, ...]:
    """A few weights set by hand."""
    one = st.builds(
        Override,
        name=st.sampled_from(names),
        place=st.integers(0, 50),
        value=st.sampled_from(VALUES),
    )
    return tuple(draw(st.lists(one, max_size=most)))


@st.composite
def decoder_cases(
    draw: st.DrawFn, *, overflowing: bool = False, sharing: bool = False
) -> TruthCase:
    """A decoder of few parameters, its weights by regime, seed and overrides, and a batch."""
    plain = case_of(
        draw(sizes(sharing=sharing)),
        draw(st.integers(0, 2**64 - 1)),
        draw(regimes(overflowing=overflowing)),
        epsilon=draw(st.sampled_from(EPSILONS)),
        base=draw(st.sampled_from(BASES)),
    )
    names = tuple(plain.config.parameter_shapes())
    return plain.with_overrides(draw(overrides(names=names)))
