"""Loads the Hypothesis profiles; `--hypothesis-profile` still takes precedence.

A profile that varies has one seed for a whole run: Hypothesis, the laws and every worker draw from
it, and the header says it.
"""

import gc
import os

import pytest
from hypothesis import settings

from logitproof.properties import profiles
from logitproof.properties.laws import Law

SEED = "--hypothesis-seed"
COSTLY = [  # whose cases have a truth each: laws, then files
    *("truth", "grouped", "untied"),
    *("test_precision", "test_bounds_decoder", "test_sharing"),
]

# Workers inherit it: threads of several workers on the same cores wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

profiles.load()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    chosen = config.getoption("--hypothesis-profile", None)
    varies = not (settings.get_profile(chosen) if chosen else settings()).derandomize
    if varies and config.getoption(SEED) is None:
        config.option.hypothesis_seed = str(profiles.new_seed())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who asks for the same truths comes first and together: one worker computes them once.

    And what is long does not come last, when the other workers have nothing left to do.
    """
    items.sort(key=_place)


def pytest_collection_finish() -> None:
    """What stays to the end is not searched for garbage again: it is most of what there is."""
    gc.collect()
    gc.freeze()


def _place(item: pytest.Item) -> int:
    law = getattr(getattr(item, "callspec", None), "params", {}).get("law")
    asks = law.id.partition(".")[0] if isinstance(law, Law) else item.path.stem
    return COSTLY.index(asks) if asks in COSTLY else len(COSTLY)


def pytest_report_header(config: pytest.Config) -> list[str]:
    seed = config.getoption(SEED)
    return [] if seed is None else [f"drawn from {SEED}={seed}"]


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int | None:
    """What a law's cases are drawn from, or None for the fixed ones."""
    given = pytestconfig.getoption(SEED)
    return None if given is None else int(given)
