"""Hypothesis profiles: how many examples a law is given, and whether they may vary."""

import os

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

DEFAULT = "quick"
VARIABLE = "LOGITPROOF_PROFILE"


def register() -> None:
    """Registers `quick`, `ci` and `soak`, each complete: nothing is inherited from a default."""
    fixed = settings(
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=True,
        suppress_health_check=(),  # none is suppressed
    )
    settings.register_profile("quick", fixed, max_examples=25)
    settings.register_profile("ci", fixed, max_examples=60)
    settings.register_profile(
        "soak",
        fixed,
        max_examples=250,
        derandomize=False,
        database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    )


def load() -> None:
    """Registers the profiles and loads the one that `LOGITPROOF_PROFILE` names, or `quick`."""
    register()
    settings.load_profile(os.environ.get(VARIABLE, DEFAULT))


def examples() -> int:
    """How many cases the loaded profile gives a law that draws them itself."""
    return settings().max_examples


def new_seed() -> int:
    """Of a run that varies: no two are alike, and it is shown, so that each can be repeated."""
    return int.from_bytes(os.urandom(4), "big")
