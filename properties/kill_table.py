"""The kill matrix for a screen: a strip per fault, one cell per family of laws."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from logitproof.properties import faults

from .killing import Kill, Matrix, family

__all__ = ["lines"]

FIRST, EARLY, LATE, SURVIVED, UNTRIED = "█", "▓", "░", "·", " "
FEW = 5  # examples up to which a kill is early
RED, PLAIN = "\x1b[1;31m", "\x1b[0m"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def lines(matrix: Matrix, *, width: int, colour: bool) -> Iterator[str]:
    """Legend, strips, families, and what it all comes to."""
    families = list(matrix.families())
    letters = dict(zip(families, LETTERS, strict=False))
    longest = max(len(f) for f in matrix.faults)
    yield f"  {'fault':<{longest}}  {''.join(letters.values())}  examples  margin"
    for fault in matrix.faults:
        cells = [k for k in matrix.kills if k.fault == fault]
        strip = "".join(_mark([k for k in cells if family(k.law) == name]) for name in families)
        row = f"  {fault:<{longest}}  {strip}  {_examples(cells):>8}  {_margin(cells):>6}"
        survives = fault in matrix.survivors
        yield (
            f"{RED}{row.rstrip()}  SURVIVES{PLAIN}"
            if survives and colour
            else (f"{row.rstrip()}  SURVIVES" if survives else row.rstrip())
        )
    yield ""
    legend = f"""{FIRST} seen by the first example, {EARLY} by one of the first {FEW}, {LATE} later,
        {SURVIVED} not seen, blank: not asked. One column per family of laws:"""
    yield from textwrap.wrap(" ".join(legend.split()), width)
    yield ""
    yield f"  {'family':<14} {'laws':>5} {'sees':>5} {'alone':>6}"
    for name, (count, sees, alone) in matrix.families().items():
        yield f"{letters[name]} {name:<14} {count:>5} {sees:>5} {alone:>6}"
    yield ""
    yield from (line for part in _summary(matrix) for line in textwrap.wrap(part, width))


def _mark(cells: list[Kill]) -> str:
    if not cells:
        return UNTRIED
    needed = [k.examples for k in cells if k.killed]
    if not needed:
        return SURVIVED
    return FIRST if min(needed) == 1 else EARLY if min(needed) <= FEW else LATE


def _examples(cells: list[Kill]) -> str:
    needed = [k.examples for k in cells if k.killed]
    return str(min(needed)) if needed else "-"


def _margin(cells: list[Kill]) -> str:
    margins = [k.margin for k in cells if k.margin is not None]
    return f"{max(margins):.1g}" if margins else ""


def _summary(matrix: Matrix) -> Iterator[str]:
    killed, tried = (sum(getattr(k, what) for k in matrix.kills) for what in ("killed", "reached"))
    crashed = sum(k.crashed for k in matrix.kills)
    yield (
        f"{len(matrix.faults)} faults, {len(matrix.laws)} laws, {tried} cells tried in"
        f" {matrix.seconds:.0f} s; {killed} cells killed, {crashed} of them by a crash."
    )
    if unreached := len(matrix.kills) - tried:
        yield f"{unreached} cells cannot differ: the law calls nothing of what the fault replaces."
    for kill in matrix.broken_promises:
        yield f"Promised and not seen: {kill.fault} by {kill.law}."
    if matrix.idle_laws:
        yield f"Laws that saw nothing: {', '.join(matrix.idle_laws)}."
    names = ", ".join(faults.EQUIVALENTS)
    yield f"Known equivalents, not counted: {names} (`logitproof faults list` tells why)."
    if matrix.survivors:
        yield f"{len(matrix.survivors)} SURVIVE: {', '.join(matrix.survivors)}."
    else:
        yield "No fault survives."
