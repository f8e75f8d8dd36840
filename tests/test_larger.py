"""Cases in which one size is large: each is what its kind says, and stays so when drawn anew."""

from typing import Any

import numpy as np
import pytest

from logitproof.properties.laws import REGISTRY
from logitproof.properties.laws.larger import (
    KINDS,
    WIDER,
    LargerCase,
    larger_cases,
    long_cases,
    ranged_cases,
    redrawn,
    wider_cases,
)
from logitproof.properties.verify.census import by_kind, cells
from logitproof.properties.verify.plain import from_plain, to_plain
from logitproof.properties.verify.reseeding import drawn_from
from logitproof.properties.verify.shrinking import smaller

QUICK, CI, SOAK = 25, 100, 250
USUAL_EPSILONS = (1e-6, 1e-5, 1e-2)


def targets_per_row(case: LargerCase) -> list[int]:
    assert case.valid is not None
    return [sum(row) for row in case.valid]


# What the regimes' cases never have, kind by kind.
PROMISES: dict[str, Any] = {
    "text": lambda c: len(c.ids[0]) > 16,
    "layers": lambda c: c.config.layers > 2,
    "heads": lambda c: c.config.heads > 3,
    "head width": lambda c: c.config.head_width > 4,
    "inner width": lambda c: c.config.feed_forward_width > 3,
    "classes": lambda c: c.config.vocabulary_size > 6,
    "rows": lambda c: len(c.ids) > 2 and c.layout is None,
    "padded rows": lambda c: len(c.ids) > 2 and c.ids[0][-1] == -1,
    "packed rows": lambda c: len(c.ids) > 2 and max(map(max, c.layout.range_starts)) > 0,
    "positions": lambda c: {2 ** n for n in range(11, 14)} & set(c.layout.positions[0]),
    "documents in a row": lambda c: len(c.segments[0]) > 2,
    "chosen cells": lambda c: c.layout is None and not np.array(c.valid)[:, 0].any(),
    "rows without targets": lambda c: min(targets_per_row(c)) == 0 < max(targets_per_row(c)),
    "small epsilon": lambda c: c.config.rms_epsilon < min(USUAL_EPSILONS),
    "large epsilon": lambda c: c.config.rms_epsilon > max(USUAL_EPSILONS),
    "base": lambda c: not c.config.rope_base.is_integer(),
    "one class": lambda c: c.config.vocabulary_size == 1,
}  # fmt: skip


def test_every_kind_is_in_the_smallest_run_and_more_in_larger_ones() -> None:
    assert [case.larger for case in larger_cases(QUICK)] == list(KINDS) == list(PROMISES)
    assert [case.larger for case in wider_cases(QUICK)] == list(WIDER)
    assert len([*larger_cases(SOAK)]) > len(KINDS)
    assert len([*wider_cases(CI)]) > len(WIDER)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("case", [*larger_cases(QUICK)], ids=lambda case: case.larger)
def test_a_case_is_what_its_kind_says_drawn_anew_too(case: LargerCase, seed: int | None) -> None:
    drawn = case if seed is None else redrawn(case, seed)
    assert drawn.larger == case.larger
    assert PROMISES[case.larger](drawn)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_turns_the_cases_of_every_law_of_sizes_into_others(seed: int) -> None:
    laws = [law for law in REGISTRY.values() if law.id.startswith(("sizes.", "ranges."))]
    before = [[case.larger for case in law.cases(QUICK)] for law in laws]
    after = [[case.larger for case in drawn_from(seed, law).cases(QUICK)] for law in laws]
    assert before == after
    assert len(laws) == 8
    assert all(
        drawn.seed != case.seed
        for law in laws
        for drawn, case in zip(drawn_from(seed, law).cases(QUICK), law.cases(QUICK), strict=True)
    )


def test_ranges_are_no_documents_and_positions_no_places() -> None:
    layouts = [case.layout for case in ranged_cases(QUICK)]
    falls = [np.diff(layout.range_starts).min() < 0 for layout in layouts if layout]
    turns = [np.diff(layout.positions).min() < 0 for layout in layouts if layout]
    assert (sum(falls) > 3, sum(turns) > 3) == (True, True)


def test_a_long_text_is_beyond_what_is_kept() -> None:
    assert [len(case.ids[0]) > 512 for case in long_cases(SOAK)] == [True, True]


@pytest.mark.parametrize("case", [*larger_cases(QUICK), *wider_cases(QUICK)][::5], ids=str)
def test_a_case_is_written_and_read_back(case: Any) -> None:
    assert from_plain(to_plain(case), type(case)) == case


def test_a_range_of_keys_is_made_smaller_row_by_row_and_cell_by_cell() -> None:
    whole = max(ranged_cases(QUICK), key=lambda case: np.size(case.ids))
    shapes = {less.layout.shape for less in smaller(whole) if less.layout}
    B, T = np.shape(whole.ids)
    assert {(B - 1, T), (B, T - 1), (B, 1)} <= shapes


def test_the_census_tells_what_is_large() -> None:
    counted = by_kind(dict.fromkeys([c for case in larger_cases(QUICK) for c in cells(case)], 1))
    assert [*counted["large"]] == sorted(KINDS)
    told = {cell for case in ranged_cases(QUICK) for cell in cells(case)}
    assert "layout=ranges" in told
