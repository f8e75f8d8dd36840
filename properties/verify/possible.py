"""Whether a case that was read is one that its law could be tried on, told before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from logitproof.properties.laws import Law
from logitproof.properties.laws.cases import PAD, Case
from logitproof.properties.laws.fused import Steep
from logitproof.properties.laws.law import EXAMPLES
from logitproof.properties.laws.regimes import CHOICES, TruthCase
from logitproof.properties.scalar import Config, Layout

from .plain import NotPlain

__all__ = ["LARGEST", "MOST_CASES", "check_case"]

MOST_CASES = 250  # that a profile draws: sizes and shares are counted below it
SEEDS = 1 << 64
# Multiply-adds of one forward, and entries of the rotary table. The largest of our own has a third.
LARGEST = 1 << 22
EXPONENTS = range(-1074, 1024)  # powers of two that are doubles
LEAST = {
    "vocabulary_size": 1,
    "model_width": 2,
    "heads": 1,
    "feed_forward_width": 1,
    "layers": 0,
    "max_positions": 1,
}


def check_case(law: Law, case: Any) -> None:
    """Raises NotPlain, with the place, for a case that the law cannot be tried on.

    A batch fits its decoder and has nothing that no case of the law has; what is drawn has a seed,
    a size and a regime as these are drawn; a published figure is one of the law's.
    """
    own = list(law.cases(EXAMPLES))
    if type(case) not in {type(c) for c in own}:
        raise NotPlain(f"case: {law.id} is not tried on a {type(case).__name__}")
    if isinstance(case, Case):
        _check_batch(case)
        more = [t for t in _traits(case) if not any(t in _traits(c) for c in own)]
        _want(not more, "case", f"{law.id} is tried on nothing with {', '.join(more)}")
    elif hasattr(case, "seed") and hasattr(case, "size"):
        _check_seed(case.seed)
        _want(0 <= case.size < MOST_CASES, "case.size", f"0 to {MOST_CASES - 1} is wanted")
        regime = getattr(case, "regime", None)
        known = regime in {getattr(c, "regime", None) for c in own}
        _want(known, "case.regime", f"{law.id} is not tried on {regime!r} values")
    elif hasattr(case, "start") and hasattr(case, "step"):
        fits = 0 <= case.start < case.step <= MOST_CASES
        _want(fits, "case.start", f"below step is wanted, and step to {MOST_CASES}")
    else:
        _want(case in own, "case", f"{law.id} is tried on no such {type(case).__name__}")


def _want(holds: bool, at: str, words: str) -> None:
    if not holds:
        raise NotPlain(f"{at}: {words}")


def _check_seed(seed: int) -> None:
    _want(0 <= seed < SEEDS, "case.seed", "a word of 64 bits is wanted")


def _traits(case: Any) -> Iterator[str]:
    """What some laws do not look at, or cannot read."""
    if isinstance(case, Case):
        yield from ("several rows",) * (len(case.ids) > 1)
        yield from ("a layout",) * (case.layout is not None)
        yield from ("valid cells",) * (case.valid is not None)
        yield from ("fewer key/value heads",) * (case.config.kv_heads is not None)
        yield from ("a head of its own",) * (not case.config.tied)


def _check_batch(case: Case) -> None:
    _check_seed(case.seed)
    _want(0.0 < case.scale < math.inf, "case.scale", "a positive finite number is wanted")
    _check_config(case.config)
    shape = _shape(case.ids, "case.ids")
    work = _work(case.config, *shape)
    _want(work <= LARGEST, "case", f"{work} multiply-adds and table entries, {LARGEST} at most")
    capacity = case.config.max_positions
    _want(shape[1] <= capacity, "case.ids", f"at most {capacity} cells are wanted in a row")
    lengths = (shape[1],) * shape[0]
    if case.layout is not None:
        _check_layout(case.layout, shape, capacity)
        lengths = case.layout.lengths
    active = [[t < length for t in range(shape[1])] for length in lengths]
    chosen = active if case.valid is None else _valid(case, active)
    _check_cells(case.ids, active, case.config.vocabulary_size, "case.ids")
    _check_shape(case.targets, shape, "case.targets")
    _check_cells(case.targets, chosen, case.config.vocabulary_size, "case.targets")
    _check_segments(case)
    _check_more(case)


def _check_config(config: Config) -> None:
    for name, least in LEAST.items():
        at = f"case.config.{name}"
        _want(getattr(config, name) >= least, at, f"{least} or more is wanted")
    D, heads, kv_heads = config.model_width, config.heads, config.kv_heads
    _want(D % heads == 0, "case.config.heads", f"a divisor of the width {D} is wanted")
    _want(D // heads % 2 == 0, "case.config.heads", "heads of an even width are wanted")
    if kv_heads is not None:
        divides = kv_heads >= 1 and heads % kv_heads == 0
        _want(divides, "case.config.kv_heads", f"a divisor of the {heads} heads is wanted")
    for name in ("rope_base", "rms_epsilon"):
        positive = 0.0 < getattr(config, name) < math.inf
        _want(positive, f"case.config.{name}", "a positive finite number is wanted")


def _work(config: Config, B: int, T: int) -> int:
    """Multiply-adds of a forward pass, and entries of the rotary table."""
    D, F = config.model_width, config.feed_forward_width
    block = 4 * D * D + 3 * D * F + 2 * D * T  # at most: the heads may share keys and values
    table = config.max_positions * config.head_width
    return B * T * (max(1, config.layers) * block + D * config.vocabulary_size) + table


def _shape(rows: Sequence[Sequence[Any]], at: str) -> tuple[int, int]:
    widths = {len(row) for row in rows}
    _want(len(widths) == 1 and widths != {0}, at, "rows of one length, 1 or more, are wanted")
    return len(rows), widths.pop()


def _check_shape(rows: Sequence[Sequence[Any]], shape: tuple[int, int], at: str) -> None:
    same = [len(row) for row in rows] == [shape[1]] * shape[0]
    _want(same, at, f"the shape {list(shape)} of the ids is wanted")


def _check_layout(layout: Layout, shape: tuple[int, int], capacity: int) -> None:
    """As inputs.md section 2 has it, and every position within the capacity."""
    B, T = shape
    lengths, at = layout.lengths, "case.layout"
    within = len(lengths) == B and all(1 <= length <= T for length in lengths)
    _want(within, f"{at}.lengths", f"{B} lengths from 1 to {T} are wanted")
    for name, below in (("range_starts", None), ("positions", capacity)):
        rows = getattr(layout, name)
        _check_shape(rows, shape, f"{at}.{name}")
        fits = all(
            0 <= value < (t + 1 if below is None else below) if t < length else value == 0
            for row, length in zip(rows, lengths, strict=True)
            for t, value in enumerate(row)
        )
        most = "its own cell" if below is None else f"position {below - 1}"
        _want(fits, f"{at}.{name}", f"0 to {most} is wanted, and 0 in inactive cells")


def _valid(case: Case, active: list[list[bool]]) -> list[list[bool]]:
    valid = [list(row) for row in case.valid or ()]
    _check_shape(valid, (len(active), len(active[0])), "case.valid")
    pairs = [pair for rows in zip(valid, active, strict=True) for pair in zip(*rows, strict=True)]
    _want(not any(v and not a for v, a in pairs), "case.valid", "an inactive cell is valid")
    _want(any(v for v, _ in pairs), "case.valid", "no cell is valid")
    return valid


def _check_cells(
    rows: Sequence[Sequence[int]], chosen: Sequence[Sequence[bool]], V: int, at: str
) -> None:
    for b, (row, here) in enumerate(zip(rows, chosen, strict=True)):
        for t, (token, counts) in enumerate(zip(row, here, strict=True)):
            wanted = f"a token below {V}" if counts else f"{PAD}"
            fits = 0 <= token < V if counts else token == PAD
            _want(fits, f"{at}[{b}][{t}]", f"{wanted} is wanted")


def _check_segments(case: Case) -> None:
    if case.segments is None:
        return
    at = "case.segments"
    _want(case.layout is not None, at, "they need a layout")
    assert case.layout is not None
    sums = tuple(map(sum, case.segments))
    fits = sums == case.layout.lengths and all(min(sizes) >= 1 for sizes in case.segments)
    _want(fits, at, "sizes of 1 or more are wanted that add up to the lengths")
    laid = Layout.packed(case.segments, case.layout.shape[1])
    _want(laid.range_starts == case.layout.range_starts, at, "they begin where the layout has it")


def _check_more(case: Case) -> None:
    """What the kinds of batches add."""
    shapes = case.config.parameter_shapes()
    if isinstance(case, TruthCase):
        for field in fields(case.regime):
            choices = CHOICES[field.name]
            known = getattr(case.regime, field.name) in choices
            _want(known, f"case.regime.{field.name}", f"one of {', '.join(choices)} is wanted")
        for i, override in enumerate(case.overrides):
            at = f"case.overrides[{i}]"
            _want(override.name in shapes, f"{at}.name", "a parameter is wanted")
            _want(override.place >= 0, f"{at}.place", "0 or more is wanted")
            _want(math.isfinite(override.value), f"{at}.value", "a finite number is wanted")
    if isinstance(case, Steep):
        _want({*case.names} <= {*shapes}, "case.names", "parameters are wanted")
        _want(case.exponent in EXPONENTS, "case.exponent", "-1074 to 1023 is wanted")
