"""Which mutants of a module count, and a sample of them spread over the modules."""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Mutant", "changes_what_runs", "drawn"]

Place: TypeAlias = tuple[int, int]  # line from 1, column from 0
Span: TypeAlias = tuple[Place, Place]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mutant:
    """One change: where in a module, and what the tool calls it."""

    module: str
    at: Place
    operator: str
    occurrence: int

    @property
    def id(self) -> str:
        """A name that stands for it as long as the module stays as it is."""
        return f"{self.module}:{self.at[0]}:{self.at[1]} {self.operator}#{self.occurrence}"


def changes_what_runs(source: str) -> Callable[[Place], bool]:
    """Whether a change at a place of this text is one of code that runs.

    It is not in annotations, which no module of core evaluates; in the heads of functions apart
    from defaults, where the tool takes the star of keyword-only arguments for a product; and under
    TYPE_CHECKING.
    """
    idle = list(_idle(ast.parse(source)))
    running = list(_defaults(ast.parse(source)))

    def runs(at: Place) -> bool:
        return not _within(at, idle) or _within(at, running)

    return runs


def _idle(tree: ast.AST) -> Iterator[Span]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef():
                yield (node.lineno, node.col_offset), _start(node.body[0])
            case ast.AnnAssign():
                yield _span(node.annotation)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield _span(node)


def _defaults(tree: ast.AST) -> Iterator[Span]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            yield from (_span(value) for value in (*node.defaults, *node.kw_defaults) if value)


def _span(node: Any) -> Span:
    return _start(node), (node.end_lineno, node.end_col_offset)


def _start(node: Any) -> Place:
    return node.lineno, node.col_offset


def _within(at: Place, spans: Iterable[Span]) -> bool:
    return any(start <= at < end for start, end in spans)


def drawn(
    mutants: Iterable[Mutant], count: int, *, seed: int, lives: Callable[[Mutant], bool]
) -> list[Mutant]:
    """`count` mutants, from every module in proportion to how many it has, at least one.

    Modules take turns by Webster's highest averages. Inside one the order is that of
    SHA-256(seed, mutant): the same seed draws the same, and a larger sample holds the smaller one.
    Mutants that do not live (they do not compile) are passed over.
    Returns: in the order of their places; fewer than `count` only where there are no more
    """
    strata: dict[str, list[Mutant]] = {}
    for mutant in sorted(mutants, key=lambda mutant: _rank(seed, mutant)):
        strata.setdefault(mutant.module, []).append(mutant)
    living = {module: filter(lives, some) for module, some in strata.items()}
    taken: dict[str, list[Mutant]] = {module: [] for module in strata}
    while living and count:
        module = max(sorted(living), key=lambda name: _claim(len(strata[name]), len(taken[name])))
        found = next(living[module], None)
        if found is None:
            del living[module]
            continue
        taken[module].append(found)
        count -= 1
    return [mutant for module in sorted(taken) for mutant in sorted(taken[module])]


def _rank(seed: int, mutant: Mutant) -> bytes:
    return hashlib.sha256(f"{seed} {mutant.id}".encode()).digest()


def _claim(size: int, taken: int) -> float:
    """How much the next mutant is due to a module that has had so many."""
    return size / (taken + 0.5) if taken else math.inf
