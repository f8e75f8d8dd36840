"""Loads the Hypothesis profiles; `--hypothesis-profile` still takes precedence.

A profile that varies has one seed for a whole run: Hypothesis, the laws and every worker draw from
it, and the header says it.
"""

import pytest
from hypothesis import settings

from logitproof.properties import profiles

SEED = "--hypothesis-seed"

profiles.load()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    chosen = config.getoption("--hypothesis-profile", None)
    varies = not (settings.get_profile(chosen) if chosen else settings()).derandomize
    if varies and config.getoption(SEED) is None:
        config.option.hypothesis_seed = str(profiles.new_seed())


def pytest_report_header(config: pytest.Config) -> list[str]:
    seed = config.getoption(SEED)
    return [] if seed is None else [f"drawn from {SEED}={seed}"]


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int | None:
    """What a law's cases are drawn from, or None for the fixed ones."""
    given = pytestconfig.getoption(SEED)
    return None if given is None else int(given)
