"""Which laws hold of decoders in a framework, configuration by configuration.

`python -m logitproof.properties.adapters.framework_table torch` (or `transformers`): a row for
each configuration, a column for each law and layout, what the detective asks and what was reported
of others. A failure is made small, kept as a replay file and explained, or the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from logitproof.properties.detective import examined
from logitproof.properties.laws import REGISTRY, Law
from logitproof.properties.laws.levels import layout_levels
from logitproof.properties.verify.divergence import place
from logitproof.properties.verify.replay import Replay, text_of
from logitproof.properties.verify.shrinking import finding, shrunk
from logitproof.properties.verify.subject import Make, maker

from .framework_reported import PROBES

__all__ = [
    "COLUMNS",
    "EXPLANATIONS",
    "FAMILIES",
    "Cell",
    "Explanation",
    "explained",
    "judged_cells",
    "main",
]

EXAMPLES = 40  # two of every regime
HOLDS, FAILS, UNDECIDED = "ok", "FAILS", "?"
UNDECIDABLE = 0.5  # of a column's entries: more decide nothing
HERE = "logitproof.properties.adapters"


def _grid(*choices: Sequence[str]) -> tuple[str, ...]:
    return tuple("_".join(words) for words in product(*choices))


DTYPES, ATTENTION = ("float64", "float32"), ("eager", "sdpa")
CACHE, SIDES = ("dynamic", "static"), ("right", "left")
FAMILIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "torch": (f"{HERE}.torch_module", _grid(DTYPES, ATTENTION, CACHE)),
    "transformers": (
        f"{HERE}.transformers_llama",
        (
            *_grid(DTYPES, ATTENTION, CACHE, SIDES),
            *_grid(("float64",), ("mixed",), ATTENTION, CACHE, SIDES),
            *_grid(("float64",), ("wide",), ATTENTION, CACHE, SIDES),
        ),
    ),
}


def _ordinary(case: Any) -> bool:
    return not layout_levels(case)


def _any(_: Any) -> bool:
    return True


# Column -> the law, and which of its cases.
COLUMNS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "logits": ("truth.logits", _ordinary),
    "padded": ("truth.logits", lambda case: layout_levels(case) == ("padded",)),
    "packed": ("truth.logits", lambda case: "packed" in layout_levels(case)),
    "loss": ("truth.loss", _any),
    "gradients": ("truth.gradients", _any),
    "cached": ("truth.cached-logits", _any),
    "grouped": ("grouped.logits", _any),
    "grouped gradients": ("grouped.gradients", _any),
    "untied": ("untied.logits", _any),
    "untied gradients": ("untied.gradients", _any),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one column says of one configuration.

    ratio: the largest error as a share of its bound, over the cases before the first that fails
    """

    configuration: str
    column: str
    word: str
    cases: int = 0
    ratio: float = 0.0
    seconds: float = 0.0
    found: str | None = None
    place: str | None = None
    why: str | None = None
    replay: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a failure is, where words of its configuration and of what was found agree."""

    why: str
    words: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def fits(self, cell: Cell) -> bool:
        """Whether it explains this cell."""
        told, named = f"{cell.place} {cell.found}", set(cell.configuration.split("_"))
        return (
            set(self.words) <= named
            and not set(self.without) & named
            and (not self.columns or cell.column in self.columns)
            and (not self.found or any(words in told for words in self.found))
        )


# The first that fits is told. What float32 steps do is shown by the configurations beside it:
# `mixed` declares them and holds, `wide` has float64 in their place and holds.
EXPLANATIONS: Mapping[str, tuple[Explanation, ...]] = {
    "torch": (),
    "transformers": (
        Explanation(
            why="declared: a mean loss over nothing is NaN in PyTorch; the specification refuses",
            columns=("reported: loss-all-ignored",),
        ),
        Explanation(
            why="theirs: eager attention masks float64 scores with the smallest float64, which is"
            " -inf in the float32 of its softmax; a query that sees padding alone becomes NaN, and"
            " reaches the others as 0 * NaN",
            words=("float64", "eager", "left"),
            found=("not finite", "got nan", "off by nan"),
        ),
        Explanation(
            why="theirs: the softmax of eager attention is in float32, whatever the dtype",
            words=("wide", "eager"),
        ),
        Explanation(
            why="theirs: the slope of rsqrt has the cube of the root, which underflows where a"
            " row's squares are huge; x / sqrt has not",
            words=("wide", "sdpa"),
            columns=("gradients", "grouped gradients", "untied gradients"),
            found=("values=huge", "huge weights"),
        ),
        Explanation(
            why="theirs: norms, rotation tables, the softmax of eager attention and the loss are in"
            " float32, whatever the dtype",
            words=("float64",),
            without=("mixed", "wide"),
        ),
    ),
}


def judged_cells(name: str, make: Make, examples: int, replays: Path | None) -> Iterator[Cell]:
    """Every column, then the questions of the detective, then the reported cases."""
    short = name.partition(":")[2]
    for column, (law, chosen) in COLUMNS.items():
        yield _law_cell(name, make, column, REGISTRY[law], chosen, examples, replays)
    start = time.perf_counter()
    examination = examined(make)
    seconds = time.perf_counter() - start
    for answer in examination.answers:
        told = answer.refused or "; ".join(
            f"{match.conventions} (off by {match.distance:.2g})" for match in answer.matches
        )
        word = HOLDS if answer.as_specified else FAILS
        found = None if answer.as_specified else told
        column = f"detective: {answer.question}"
        yield Cell(configuration=short, column=column, word=word, found=found, seconds=seconds)
        seconds = 0.0
    for case, probe in PROBES.items():
        start = time.perf_counter()
        try:
            found = probe(make)
        except Exception as error:  # noqa: BLE001 - whatever a foreign decoder raises
            found = f"raised {type(error).__name__}: {error}"
        yield Cell(
            configuration=short,
            column=f"reported: {case}",
            word=HOLDS if found is None else FAILS,
            found=found,
            seconds=time.perf_counter() - start,
        )


def _law_cell(
    name: str,
    make: Make,
    column: str,
    law: Law,
    chosen: Callable[[Any], bool],
    examples: int,
    replays: Path | None,
) -> Cell:
    start, ratio, entries, undecidable, number = time.perf_counter(), 0.0, 0, 0, 0
    short, subject = name.partition(":")[2], make()
    for number, case in enumerate(filter(chosen, law.cases(examples)), 1):
        measured, failed = finding(law, subject, case)
        if failed is None:
            ratio = max(ratio, measured.worst_ratio)
            entries, undecidable = entries + measured.entries, undecidable + measured.undecidable
            continue
        small = shrunk(law, make, case) if replays is not None else case
        again = finding(law, make(), small)[1] or failed
        kept = None
        if replays is not None:
            path = replays / f"{short}.{column}.replay.json"
            path.write_text(
                text_of(Replay(law=law.id, decoder=name, case=small, found=again.words))
            )
            kept = path.name
        return Cell(
            configuration=short, column=column, word=FAILS, cases=number, ratio=ratio,
            seconds=time.perf_counter() - start, found=f"{small}: {again.words}",
            place=place(make, small, again), replay=kept,
        )  # fmt: skip
    word = UNDECIDED if undecidable > UNDECIDABLE * max(entries, 1) else HOLDS
    seconds = time.perf_counter() - start
    return Cell(
        configuration=short, column=column, word=word, cases=number, ratio=ratio, seconds=seconds
    )


def explained(family: str, cell: Cell) -> Cell:
    """The cell, with what its failure is where that is known."""
    if cell.word != FAILS:
        return cell
    why = next((e.why for e in EXPLANATIONS[family] if e.fits(cell)), None)
    return Cell(**{**asdict(cell), "why": why})


def _lines(cells: Sequence[Cell]) -> Iterator[str]:
    """A table of Markdown, then every failure with what it is."""
    names = list(dict.fromkeys(c.configuration for c in cells))
    columns = list(dict.fromkeys(c.column for c in cells))
    numbers = {why: n for n, why in enumerate(dict.fromkeys(c.why for c in cells if c.why), 1)}
    at = {(c.configuration, c.column): c for c in cells}
    yield "| configuration | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for name in names:
        row = [_word(at[name, column], numbers) for column in columns]
        yield f"| {name} | " + " | ".join(row) + " |"
    for why, number in numbers.items():
        yield f"{number}. {why}"
    for cell in cells:
        if cell.word == FAILS:
            yield f"{cell.configuration} {cell.column}: {cell.place or ''} | {cell.found}"


def _word(cell: Cell, numbers: Mapping[str, int]) -> str:
    if cell.word != FAILS:
        return f"{cell.word} {cell.ratio:.1g}" if cell.cases else cell.word
    return f"FAILS ({numbers.get(cell.why or '', 'unexplained')})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table. 0 where every failure is explained, else 1."""
    parser = argparse.ArgumentParser(prog="framework_table", description=__doc__)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="cases of each law")
    parser.add_argument("--only", default="", help="configurations that hold these words, as a_b")
    parser.add_argument("--json", type=Path, help="write the cells to this file too")
    parser.add_argument("--replays", type=Path, help="make failures small, keep them in this DIR")
    args = parser.parse_args(arguments)
    module, names = FAMILIES[args.family]
    wanted = set(filter(None, args.only.split("_")))
    if args.replays is not None:
        args.replays.mkdir(parents=True, exist_ok=True)
    cells = []
    for name in (name for name in names if wanted <= set(name.split("_"))):
        whole = f"{module}:{name}"
        for cell in judged_cells(whole, maker(whole), args.examples, args.replays):
            cells.append(explained(args.family, cell))
            print(f"{cell.configuration} {cell.column}: {cell.word}", file=sys.stderr, flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    print("\n".join(_lines(cells)))
    return int(any(cell.word == FAILS and cell.why is None for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
