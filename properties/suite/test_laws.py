"""One test for each law: it passes, fails, or is skipped for what the decoder does not claim."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

from logitproof.properties import laws, profiles
from logitproof.properties.adapters.known import read_known
from logitproof.properties.cli import HarnessError, UsageError
from logitproof.properties.verify.command import verify
from logitproof.properties.verify.report import (
    HOLDS,
    KNOWN,
    NOT_APPLICABLE,
    Report,
    failure_facts,
)
from logitproof.properties.verify.running import Plan
from logitproof.properties.verify.subject import adapter_complaint, check_adapter, maker

PROFILES = ("quick", "ci", "soak")
Judge: TypeAlias = Callable[[str], Report]


def option(config: pytest.Config, name: str) -> Any:
    """What the command line says after `--logitproof-`."""
    return config.getoption(f"--logitproof-{name}")


def examples(config: pytest.Config) -> int:
    """How many cases the profile gives a law."""
    if option(config, "profile") not in PROFILES:
        raise pytest.UsageError(f"--logitproof-profile: one of {', '.join(PROFILES)} is wanted")
    profiles.register()
    return settings.get_profile(option(config, "profile")).max_examples


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """An item for each law that was asked for."""
    config = metafunc.config
    if option(config, "decoder") is None:
        raise pytest.UsageError("--logitproof-decoder NAME is wanted: there is nothing to judge")
    chosen = [id_ for id_ in laws.REGISTRY if fnmatchcase(id_, option(config, "law"))]
    count = examples(config)
    metafunc.parametrize("law", chosen, ids=[f"{id_}-{count}" for id_ in chosen])


@pytest.fixture(scope="session")
def judge(pytestconfig: pytest.Config) -> Judge:
    """Tries one law on the decoder, whose adapter was tried first."""
    name, seed = option(pytestconfig, "decoder"), option(pytestconfig, "seed")
    known = option(pytestconfig, "known")
    today = datetime.now(UTC).date()
    try:
        seconds = float(option(pytestconfig, "time-limit"))
        entries = read_known(Path(known), laws.REGISTRY, today) if known else ()
        make = maker(name, seconds)
        check_adapter(name, adapter_complaint((name, seconds)))
        plan = Plan(
            decoder=name,
            examples=examples(pytestconfig),
            seed=None if seed is None else int(seed),
            seconds=seconds,
            shrinks=not name.startswith("offline:"),
        )
    except (UsageError, HarnessError, OSError, ValueError) as wrong:
        pytest.fail(str(wrong), pytrace=False)
    profile, replays = option(pytestconfig, "profile"), Path(option(pytestconfig, "replays"))

    def judged(law: str) -> Report:
        chosen = {law: laws.REGISTRY[law]}
        return verify(chosen, make, plan, profile, replays, lambda _: None, entries)

    return judged


def test_law(law: str, judge: Judge) -> None:
    """The law holds, or is known not to."""
    report = judge(law)
    (verdict,) = report.verdicts
    if verdict.verdict == NOT_APPLICABLE:
        pytest.skip(f"not claimed: {', '.join(verdict.missing)}")
    if verdict.verdict == KNOWN:
        pytest.xfail(verdict.known or "")
    if verdict.verdict != HOLDS:
        facts = failure_facts(report, verdict).items()
        told = "\n".join(f"  {name:<8}{text}" for name, text in facts)
        pytest.fail(f"{law} {verdict.verdict}\n{told}", pytrace=False)
