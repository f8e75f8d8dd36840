"""The options of the suite; nothing else is imported until it is collected."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["OPTIONS", "pytest_addoption", "pytest_configure", "pytest_report_header"]

OPTIONS = {
    "decoder": ("NAME", None, "package.module:factory, exec:COMMAND or offline:DIR"),
    "profile": ("NAME", "quick", "quick, ci or soak: how many cases a law is tried on"),
    "law": ("GLOB", "*", "only the laws whose id matches"),
    "seed": ("N", None, "draw other cases than the fixed ones"),
    "time-limit": ("SECONDS", "60", "that one answer of the decoder may take"),
    "known": ("FILE", None, "laws that are known to fail, and why"),
    "replays": ("DIR", ".", "where the cases that fail are written"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares `--logitproof-decoder` and what goes with it."""
    group = parser.getgroup("logitproof", "a decoder under the laws of logitproof")
    for name, (metavar, default, what) in OPTIONS.items():
        group.addoption(f"--logitproof-{name}", metavar=metavar, default=default, help=what)


def pytest_configure(config: pytest.Config) -> None:
    """The profile that varies, without a seed of the caller's, has one of its own."""
    if config.option.logitproof_profile == "soak" and config.option.logitproof_seed is None:
        config.option.logitproof_seed = str(int.from_bytes(os.urandom(4), "big"))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """The seed that the laws draw from, where they do not take the fixed cases."""
    seed = config.option.logitproof_seed
    return [] if seed is None else [f"laws drawn from --logitproof-seed={seed}"]
