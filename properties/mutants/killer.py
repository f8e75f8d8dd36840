"""The laws with the examples of the quick profile, up to the first that fails.

On the core by its default kernel, then by its fast one, then step by step, each as far as it
claims what a law needs.

`python -m logitproof.properties.mutants.killer SECONDS` ends with 0 where all laws hold.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from hypothesis import settings

from logitproof import core
from logitproof.properties import laws, profiles
from logitproof.properties.subjects import BlasSubject, CoreSubject, StepsSubject

__all__ = ["main"]

FORMS = (CoreSubject, BlasSubject, StepsSubject)
MEMORY_BYTES = 4 << 30  # many times what the laws take; a mutant that wants more fails


def main(seconds: int) -> int:
    """1 at the first law that does not hold; the process ends after so many CPU seconds.

    Printed: the folder of core, which tells whose laws these are; the name of each law before it
    is tried, so that what ends without another word ended there; the case that failed.
    """
    _limit(seconds)
    print(Path(core.__file__).parent, flush=True)
    profiles.register()
    examples = settings.get_profile("quick").max_examples
    tried = ((make, law) for make in FORMS for law in laws.REGISTRY.values())
    for make, law in tried:
        if law.missing(make()):
            continue
        print(f"trying {law.id}", flush=True)
        outcome = law(make(), examples)
        if not outcome.holds:
            print(f"failed {law.id}\n{outcome.case}\n{outcome.difference}", flush=True)
            return 1
    return 0


def _limit(seconds: int) -> None:
    """CPU time, not time on a clock: a busy machine kills nothing."""
    signal.signal(signal.SIGXCPU, _too_long)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _too_long(_signal: int, _frame: object) -> None:
    print("timeout", flush=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
