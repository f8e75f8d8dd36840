"""Tasks done by processes of this machine; one that dies costs nothing but time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from logitproof.properties.cli import HarnessError

__all__ = ["DEATHS", "processes"]

DEATHS = 3  # of workers while one task's result is waited for: then it is the task that kills

Task = TypeVar("Task")
Result = TypeVar("Result")


@contextmanager
def processes(
    jobs: int, tasks: Sequence[Task], work: Callable[[Task], Result]
) -> Iterator[Callable[[Task], Result]]:
    """Task -> its result, worked at ahead.

    A process that dies takes the others with it; what they had not finished begins again.
    Raises HarnessError, when a result is asked for, where that happens too often.
    """
    pool = _Pool(jobs, tasks, work)
    try:
        yield pool.result
    finally:
        pool.close()


class _Pool(Generic[Task, Result]):
    """The processes and what they were given."""

    def __init__(self, jobs: int, tasks: Sequence[Task], work: Callable[[Task], Result]) -> None:
        self.jobs, self.tasks, self.work = jobs, tasks, work
        self.futures: dict[Task, Future[Result]] = {}
        self._start()

    def _start(self) -> None:
        """New processes for everything that is not finished."""
        spawn = multiprocessing.get_context("spawn")  # a fork would copy whatever is held here
        self.pool = ProcessPoolExecutor(self.jobs, mp_context=spawn)
        with suppress(BrokenProcessPool):  # one died at once: who waits for a result finds out
            for task in self.tasks:
                if not _finished(self.futures.get(task)):
                    self.futures[task] = self.pool.submit(self.work, task)

    def result(self, task: Task) -> Result:
        """Waits for one result."""
        deaths = 0
        while True:
            try:
                return self.futures[task].result()
            except (BrokenProcessPool, CancelledError) as death:
                deaths += 1
                if deaths == DEATHS:
                    raise HarnessError(
                        f"a worker process died, {DEATHS} times over one task: {death}"
                    ) from death
                self.close()
                self._start()

    def close(self) -> None:
        """Ends the processes."""
        self.pool.shutdown(wait=True, cancel_futures=True)


def _finished(future: Future[Result] | None) -> bool:
    """With a result, or with an exception that is not about the processes."""
    if future is None or future.cancelled() or not future.done():
        return False
    return not isinstance(future.exception(), BrokenProcessPool)
