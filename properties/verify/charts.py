"""Pictures for the page, as inline SVG: a strip of verdicts, histograms, bars, a heat map."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from logitproof.properties.laws.ulps import EDGES, Counts

from .matrix import Cell, KillMatrix
from .report import FAILS, HOLDS, KNOWN, NOT_APPLICABLE, UNDECIDED, UNEXPECTED, Verdict

__all__ = ["CLASSES", "heat_map", "histogram", "ratio_bar", "strip", "ulp_histogram"]

CLASSES = {HOLDS: "ok", FAILS: "bad", UNDECIDED: "open", NOT_APPLICABLE: "none", KNOWN: "open",
           UNEXPECTED: "bad"}  # fmt: skip

SQUARE, GAP, IN_ROW = 16, 3, 14  # of a strip
LOWEST, PER_DECADE = -4, 2  # histogram: bins from 10^-4, two each decade, then one from 1 on
BIN, HIGH = 22, 64
ULP_BIN = 34
WIDEST, CELLS = 1110, (9.0, 15.0)  # heat map: its width where that leaves cells of these sizes
EARLY = 5  # examples up to which a fault is seen early
CHARACTER = 6.5  # width of one in labels


def strip(verdicts: Sequence[Verdict]) -> str:
    """A square per law."""
    squares = []
    for n, verdict in enumerate(verdicts):
        x, y = n % IN_ROW * (SQUARE + GAP), n // IN_ROW * (SQUARE + GAP)
        squares.append(
            _rect(
                x,
                y,
                SQUARE,
                SQUARE,
                CLASSES[verdict.verdict],
                f"{verdict.id}: {verdict.verdict}",
                round_=3,
            )
        )
    columns, rows = min(len(verdicts), IN_ROW), -(-len(verdicts) // IN_ROW)
    size = (columns * (SQUARE + GAP) - GAP, rows * (SQUARE + GAP) - GAP)
    return _svg(*size, squares, "one square per law")


def ratio_bar(ratio: float) -> str:
    """An error over its bound: a full bar is the bound."""
    width, height = 90, 8
    kind = "bad" if ratio > 1 else "ok"
    shapes = [
        _rect(0, 0, width, height, "track"),
        _rect(0, 0, max(1.0, min(ratio, 1.0) * width), height, kind),
    ]
    return _svg(width, height, shapes, f"{ratio:.3g} of the bound")


def histogram(ratios: Sequence[float]) -> str:
    """How many cases came how near to their bound, on a logarithmic scale."""
    bins = [0] * (-LOWEST * PER_DECADE + 2)
    for ratio in ratios:
        bins[_bin(ratio, len(bins))] += 1
    most, shapes = max(bins), []
    for n, count in enumerate(bins):
        high = HIGH * count / most
        kind = "bad" if n == len(bins) - 1 else "ok"
        shapes.append(_rect(n * BIN + 1, 12 + HIGH - high, BIN - 2, high, kind, _range(n, bins)))
        if count:
            shapes.append(_text(n * BIN + BIN / 2, 9 + HIGH - high, str(count), "middle"))
    base, width = 12 + HIGH, len(bins) * BIN
    shapes.append(f'<path d="M0 {base}H{width}" class="axis"/>')
    edge = (len(bins) - 1) * BIN
    shapes.append(f'<path d="M{edge} 4V{base + 4}" class="limit"/>')
    for decade in range(LOWEST, 1):
        x = BIN * (1 + (decade - LOWEST) * PER_DECADE)
        words = "bound" if decade == 0 else f"1e{decade}"
        shapes.append(_text(x, base + 13, words, "middle"))
    return _svg(width + 14, base + 18, shapes, "cases by their largest error over its bound")


def ulp_histogram(counts: Counts, kind: str) -> str:
    """How many entries lie how many units in the last place away; `kind` is the verdict's class.

    No distance is wrong by itself: where terms cancel, a bound of many ulps is as near as it gets.
    """
    most, shapes = max(counts), []
    for n, (count, words) in enumerate(zip(counts, _ulp_names(), strict=True)):
        high, x = HIGH * count / most, n * ULP_BIN
        tip = f"{words} ulp: {count}"
        shapes.append(_rect(x + 1, 12 + HIGH - high, ULP_BIN - 2, high, kind, tip))
        if count:
            shapes.append(_text(x + ULP_BIN / 2, 9 + HIGH - high, str(count), "middle"))
        shapes.append(_text(x + ULP_BIN / 2, 12 + HIGH + 13, words, "middle"))
    width = len(counts) * ULP_BIN
    shapes.append(f'<path d="M0 {12 + HIGH}H{width}" class="axis"/>')
    return _svg(width, 12 + HIGH + 18, shapes, "entries by their distance in ulps")


def _ulp_names() -> list[str]:
    """What stands below each bin: the most ulps in it."""
    named = [f"{e:g}" if e < 1000 else f"2^{int(math.log2(e))}" for e in EDGES]
    return [f"\N{LESS-THAN OR EQUAL TO}{name}" for name in named] + ["more"]


def _bin(ratio: float, count: int) -> int:
    """The first bin is below 10^-4, the last above 1."""
    if ratio > 1:
        return count - 1
    if ratio < 10.0**LOWEST:
        return 0
    return min(count - 2, 1 + math.floor((math.log10(ratio) - LOWEST) * PER_DECADE))


def _range(n: int, bins: Sequence[int]) -> str:
    if n == 0:
        return f"below 1e{LOWEST}: {bins[n]}"
    if n == len(bins) - 1:
        return f"above the bound: {bins[n]}"
    low = 10.0 ** (LOWEST + (n - 1) / PER_DECADE)
    return f"{low:.2g} to {low * 10 ** (1 / PER_DECADE):.2g}: {bins[n]}"


def heat_map(matrix: KillMatrix) -> str:
    """A row per fault, a column per law; names in red where nothing kills, or is killed."""
    shapes: list[str] = []
    left = max((len(f) for f in matrix.faults), default=0) * CHARACTER + 10
    top = max((len(law) for law in matrix.laws), default=0) * CHARACTER + 8
    room = (WIDEST - left) / max(len(matrix.laws), 1)
    cell = min(max(room, CELLS[0]), CELLS[1])
    for c, law in enumerate(matrix.laws):
        kills = any(row[c] is True for row in matrix.killed)
        x, y = left + c * cell + cell / 2 + 3, top - 5
        kind = "" if kills else ' class="alarm"'
        shapes.append(
            f'<text transform="translate({x:g} {y:g}) rotate(-90)"{kind}>{escape(law)}</text>'
        )
    for r, (fault, row) in enumerate(zip(matrix.faults, matrix.killed, strict=True)):
        y = top + r * cell
        kind = "" if True in row else "alarm"
        shapes.append(_text(left - 6, y + cell - 4, fault, "end", kind))
        for c, (law, killed) in enumerate(zip(matrix.laws, row, strict=True)):
            needed = matrix.examples_at(r, c)
            word = _word(killed)
            tip = f"{fault} / {law}: {word}"
            tip += f" by {needed} examples" if killed and needed else ""
            shapes.append(
                _rect(
                    left + c * cell,
                    y,
                    cell - 1,
                    cell - 1,
                    word.replace(" ", "-") + _speed(killed, needed),
                    tip,
                    round_=2,
                )
            )
    width = left + len(matrix.laws) * cell
    return _svg(width, top + len(matrix.faults) * cell + 2, shapes, "kill matrix")


def _speed(killed: Cell, needed: int | None) -> str:
    """A class of its own for a kill that needs more than one example."""
    if not killed or needed is None or needed <= 1:
        return ""
    return " early" if needed <= EARLY else " late"


def _word(cell: Cell) -> str:
    return "not run" if cell is None else "killed" if cell else "survived"


def _svg(width: float, height: float, shapes: Iterable[str], title: str) -> str:
    return (
        f'<svg width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
        f' role="img" aria-label="{escape(title)}">{"".join(shapes)}</svg>'
    )


def _rect(
    x: float, y: float, width: float, height: float, kind: str, title: str = "", *, round_: int = 0
) -> str:
    tip = f"<title>{escape(title)}</title>" if title else ""
    corner = f' rx="{round_}"' if round_ else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{corner}'
        f' class="{kind}">{tip}</rect>'
    )


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{named}>{escape(words)}</text>'
