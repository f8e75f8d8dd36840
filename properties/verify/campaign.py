"""Tasks done by the workers of a Dask scheduler, which runs the tasks of a dead worker again."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from logitproof.properties.cli import HarnessError, UsageError

__all__ = ["campaign"]

SECONDS = 10  # to reach the scheduler

Task = TypeVar("Task")
Result = TypeVar("Result")


@contextmanager
def campaign(
    address: str, tasks: Sequence[Task], work: Callable[[Task], Result]
) -> Iterator[Callable[[Task], Result]]:
    """Task -> its result, worked at ahead by whoever the scheduler has.

    The tasks are those of processes on one machine, and so are the results.
    Raises UsageError without Dask or a scheduler there, HarnessError where workers die over and
    over at one task.
    """
    distributed = _distributed()
    try:
        client = distributed.Client(address, timeout=SECONDS)
    except (OSError, ValueError, TimeoutError) as fact:
        raise UsageError(f"--scheduler {address}: {type(fact).__name__}: {fact}") from fact
    with client:
        futures = {task: client.submit(work, task, pure=False) for task in tasks}

        def result(task: Task) -> Result:
            try:
                found: Result = futures[task].result()
            except distributed.KilledWorker as fact:
                raise HarnessError(f"workers died over and over: {fact}") from fact
            del futures[task]  # nobody keeps what was read
            return found

        yield result
        client.cancel(list(futures.values()))


def _distributed() -> Any:
    """Dask's part for many machines, which nothing else here needs."""
    try:
        return importlib.import_module("distributed")
    except ImportError as fact:
        raise UsageError(
            f"--scheduler needs Dask: pip install 'logitproof[dask]' ({fact})"
        ) from fact
