"""What cosmic-ray does for us: it finds mutants, writes them into a file and calls the killer."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome

from .sample import Mutant

__all__ = ["found", "tested", "text_of"]

IDLE = "core/NoOp"  # changes nothing


def found(folder: Path, modules: Sequence[str]) -> list[Mutant]:
    """Every mutant of some modules of a folder, by all operators that need no arguments."""
    with tempfile.TemporaryDirectory() as place, use_db(Path(place) / "session.sqlite") as session:
        init([folder / module for module in modules], session, {})
        specs = [spec for item in session.work_items for spec in item.mutations]
    return [
        Mutant(
            module=spec.module_path.name,
            operator=spec.operator_name,
            occurrence=spec.occurrence,
            at=spec.start_pos,
        )
        for spec in specs
        if spec.operator_name != IDLE
    ]


def text_of(source: str, mutant: Mutant) -> str:
    """The module with the mutant in it."""
    text: str = mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)
    return text


def tested(folder: Path, mutant: Mutant, command: str, *, seconds: float) -> tuple[bool, str, str]:
    """Whether the command failed or did not end in time, what it printed, and the difference.

    The file has the mutant in it as long as the command runs, and its own text again afterwards.
    """
    spec = MutationSpec(
        module_path=folder / mutant.module,
        operator_name=mutant.operator,
        occurrence=mutant.occurrence,
        start_pos=mutant.at,
        end_pos=(mutant.at[0], mutant.at[1] + 1),
    )
    result = mutate_and_test([spec], command, seconds)
    if result.test_outcome not in (TestOutcome.KILLED, TestOutcome.SURVIVED):
        raise RuntimeError(f"{mutant.id}: {result.worker_outcome}: {result.output}")
    return result.is_killed, result.output, result.diff
