"""A measurement as one picture: cost against size, decode cost against prefix, and growth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from logitproof.core.fresh import parameter_count

from .contenders import TRAINING, WHO
from .measuring import Measured
from .sizes import SIZES

__all__ = ["draw"]

COLOURS = dict(
    zip(WHO, ("#0072b2", "#009e73", "#777777", "#d55e00", "#cc79a7", "#e69f00"), strict=True)
)


def draw(measured: Measured, path: Path) -> None:
    """Writes an SVG whose text is text. Raises OSError."""
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "logitproof"
    panels = [
        panel
        for panel, given in (
            (_sizes, len(measured.timings) > 1),
            (_prefixes, measured.curve is not None),
            (_growth, measured.growths is not None),
        )
        if given
    ]
    figure = Figure(figsize=(6.0 * max(len(panels), 1), 4.6), layout="constrained")
    for place, panel in enumerate(panels, 1):
        panel(figure.add_subplot(1, len(panels), place), measured)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _lines(axes: Any, points: Sequence[float], costs: Mapping[str, Sequence[float]]) -> None:
    for who, figures in costs.items():
        axes.loglog(points, figures, "o-", markersize=3.5, label=who, color=COLOURS[who])
    axes.grid(visible=True, which="major", linewidth=0.4)
    axes.set_ylabel("CPU seconds, one thread")
    axes.legend(fontsize="small")


def _sizes(axes: Any, measured: Measured) -> None:
    timed = {size: by_task[TRAINING] for size, by_task in measured.timings.items()}
    points = [parameter_count(SIZES[size]) for size in timed]
    costs = {
        who: [by_who[who].seconds if who in by_who else math.nan for by_who in timed.values()]
        for who in WHO
        if any(who in by_who for by_who in timed.values())
    }
    _lines(axes, points, costs)
    axes.set_title("Forward and backward of one full row")
    axes.set_xlabel(f"parameters ({', '.join(timed)})")


def _prefixes(axes: Any, measured: Measured) -> None:
    assert measured.curve is not None
    _lines(axes, measured.curve.prefixes, measured.curve.seconds)
    axes.set_title("One decoded token, V1000 D128 L4 H4 F344")
    axes.set_xlabel("tokens before it")


def _growth(axes: Any, measured: Measured) -> None:
    """Exponents as bars: the counted one in outline, the measured ones filled."""
    growths = measured.growths or ()
    names = [who for who in WHO if any(who in one.seconds for one in growths)]
    width = 0.8 / max(len(names), 1)
    for i, who in enumerate(names):
        places = [at - 0.4 + (i + 0.5) * width for at in range(len(growths))]
        bars = [one.measured(who) if who in one.seconds else 0.0 for one in growths]
        axes.bar(places, bars, width, color=COLOURS[who], label=who)
    axes.bar(
        range(len(growths)), [one.expected for one in growths], 0.86, fill=False,
        edgecolor="black", label="multiply-adds",
    )  # fmt: skip
    axes.set_xticks(range(len(growths)), [one.axis for one in growths])
    axes.set_title("Exponent of forward and backward at the largest sizes")
    axes.legend(fontsize="small")
