"""A measurement as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import law_costs, ratios
from .contenders import TASKS, WHO
from .measuring import Measured
from .prefixes import Curve, Memory
from .scaling import TAIL, Growth
from .shares import Shares

__all__ = ["aligned", "report", "seconds"]


def report(measured: Measured) -> str:
    """The machine, then a table for every part that was measured."""
    blocks = ["\n".join(f"{name}: {text}" for name, text in measured.machine.items())]
    if measured.timings:
        blocks.append(aligned(ratios.table(measured.timings)))
        blocks += [aligned(_costs(measured, size)) for size in measured.timings]
        blocks.append("\n".join(_absent(measured)))
    blocks += [aligned(_made_of(one)) for one in measured.shares or ()]
    if measured.growths is not None:
        blocks.append(aligned(_scaling(measured.growths)))
    if measured.curve is not None:
        blocks.append(aligned(_prefixes(measured.curve)))
    if measured.memory is not None:
        blocks.append("\n".join(_memory(measured.memory)))
    if measured.laws:
        blocks.append(aligned(law_costs.table(list(map(dict, measured.laws)))))
    return "\n\n".join(filter(None, blocks))


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns under one another, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def seconds(figure: float) -> str:
    """Three digits and a unit."""
    units = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
    unit, scale = next((pair for pair in units if figure >= pair[1]), units[-1])
    whole_digits = len(str(int(figure / scale)))
    return f"{figure / scale:.{max(0, 3 - whole_digits)}f} {unit}"


def _costs(measured: Measured, size: str) -> list[list[str]]:
    """CPU time per call at one size: the median, the lowest and the highest round."""
    by_task = measured.timings[size]
    rows = [[f"CPU time at {size}", *TASKS]]
    for who in WHO:
        cells = []
        for task in TASKS:
            timing = by_task[task].get(who)
            cells.append(
                "-"
                if timing is None
                else f"{seconds(timing.seconds)} ({seconds(min(timing.rounds))}"
                f" to {seconds(max(timing.rounds))})"
            )
        rows.append([who, *cells])
    return rows


def _made_of(one: Shares) -> list[list[str]]:
    """The functions in which a call spends most, itself alone, the numpy that it calls included."""
    rows = [[f"{one.who} {one.task} at {one.size}: where", "calls", "share of the time"]]
    rows += [[place, f"{calls:g}", f"{share:.1%}"] for place, calls, share in one.functions]
    return rows


def _absent(measured: Measured) -> list[str]:
    """Each contender's reason, with the tasks and sizes that it holds for."""
    places: dict[tuple[str, str], list[str]] = {}
    for size, by_task in measured.missing.items():
        reasons = [(who, why, task) for task in by_task for who, why in by_task[task].items()]
        for who, why, task in reasons:
            places.setdefault((who, why), []).append(f"{task} at {size}")
    return [f"not timed: {who}, {why}: {', '.join(at)}" for (who, why), at in places.items()]


def _scaling(growths: Sequence[Growth]) -> list[list[str]]:
    names = list(dict.fromkeys(who for one in growths for who in one.seconds))
    rows = [[f"exponent over the last {TAIL} points", "points", "multiply-adds", *names]]
    for one in growths:
        exponents = [f"{one.measured(who):.2f}" if who in one.seconds else "-" for who in names]
        rows.append([one.axis, " ".join(map(str, one.points)), f"{one.expected:.2f}", *exponents])
    return rows


def _prefixes(curve: Curve) -> list[list[str]]:
    names = list(curve.seconds)
    rows = [["CPU time of one token behind", *names]]
    for i, prefix in enumerate(curve.prefixes):
        rows.append([str(prefix), *(seconds(curve.seconds[who][i]) for who in names)])
    fits = [curve.fit(who) for who in names]
    rows.append(["fit: constant", *(seconds(max(fit[0], 0.0)) for fit in fits)])
    rows.append(["fit: per row of the prefix", *(f"{1e9 * fit[1]:.0f} ns" for fit in fits)])
    shares = (f"{curve.quadratic_share(who):.1%}" for who in names)
    rows.append([f"share of the quadratic term at {curve.prefixes[-1]}", *shares])
    return rows


def _memory(memory: Memory) -> Iterator[str]:
    yield (
        f"a session: {memory.cache_bytes} bytes of keys and values,"
        f" {memory.bytes_per_token} for each token it can hold"
    )
    yield (
        f"{memory.tokens} decoded tokens leave {memory.left_by_tokens} bytes behind;"
        f" the next one holds {memory.peak_of_a_token} at most"
    )
