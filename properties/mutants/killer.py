"""The laws with the examples of the quick profile, up to the first that fails.

On the core by its default kernel, then by its fast one, then step by step, each as far as it
claims what a law needs. A law that never looks at the kernel says the same of every form: once.

`python -m logitproof.properties.mutants.killer SECONDS` ends with 0 where all laws hold, each
within so many seconds of CPU time.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hypothesis import settings

from logitproof import core
from logitproof.core.kernels import ORDERED, Kernel
from logitproof.properties import laws, profiles
from logitproof.properties.laws import Law
from logitproof.properties.subjects import BlasSubject, CoreSubject, StepsSubject

__all__ = ["main", "turns"]

# Families whose laws take most of the time, the dearest last: most mutants fall to cheap laws.
DEAR = (
    *("session", "functions", "modes", "poison", "rotary", "fused"),
    *("plans", "sizes", "decoder", "counts", "refusals", "truth"),
)
MEMORY_BYTES = 4 << 30  # many times what the laws take; a mutant that wants more fails


def main(seconds: int) -> int:
    """1 at the first law that does not hold; the process ends where one takes so many CPU seconds.

    Printed: the folder of core, which tells whose laws these are; the name of each law before it
    is tried, so that what ends without another word ended there; the case that failed.
    """
    _limit_memory()
    signal.signal(signal.SIGXCPU, _too_long)
    print(Path(core.__file__).parent, flush=True)
    profiles.register()
    examples = settings.get_profile("quick").max_examples
    for subject, law in turns():
        print(f"trying {law.id}", flush=True)
        _limit_time(seconds)
        outcome = law(subject, examples)
        if not outcome.holds:
            print(f"failed {law.id}\n{outcome.case}\n{outcome.difference}", flush=True)
            return 1
    return 0


class Watched(CoreSubject):
    """The core by its default kernel; tells whether anybody looked which one that is."""

    looked = False

    @property
    def kernel(self) -> Kernel | None:
        """The default."""
        Watched.looked = True
        return ORDERED

    @kernel.setter
    def kernel(self, kernel: Kernel | None) -> None:
        pass


def turns() -> Iterator[tuple[CoreSubject, Law]]:
    """Who is judged by which law; each law is tried before the next one is asked for."""
    looking = list[Law]()
    for law in sorted(laws.REGISTRY.values(), key=_dearness):
        if not law.missing(Watched()):
            Watched.looked = False
            yield Watched(), law
            looking += [law] if Watched.looked else []
    for make in (BlasSubject, StepsSubject):
        for law in looking:
            if not law.missing(make()):
                yield make(), law


def _dearness(law: Law) -> int:
    family = law.id.partition(".")[0]
    return DEAR.index(family) if family in DEAR else -1


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _limit_time(seconds: int) -> None:
    """CPU time from here on, not time on a clock: a busy machine kills nothing.

    For each law anew: on a slow machine all laws together take longer than any one may.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, most))


def _too_long(_signal: int, _frame: object) -> None:
    print("timeout", flush=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
