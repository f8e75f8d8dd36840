"""The decoder under test by its name: one of ours, or `package.module:factory`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from logitproof.properties.cli import UsageError
from logitproof.properties.laws import DecoderUnderTest
from logitproof.properties.subjects import BlasSubject, CoreSubject, ScalarSubject, StepsSubject

from .environment import check_subnormals

__all__ = ["SHIPPED", "Make", "maker"]

Make: TypeAlias = Callable[[], DecoderUnderTest]

SHIPPED: Mapping[str, Make] = {
    "core": CoreSubject,
    "core-steps": StepsSubject,
    "core-blas": BlasSubject,
    "scalar": ScalarSubject,
}
METHODS = ("load", "logits", "loss_and_gradients")
FUNCTIONS = ("correctly-rounded", "c-library")


def maker(name: str) -> Make:
    """What makes a fresh decoder under test; one was made and looked at.

    Modules are found as Python finds them, and in the current folder.
    Raises UsageError where there is none, HarnessError where its import changed the arithmetic.
    """
    make = SHIPPED.get(name) or _foreign(name)
    try:
        subject: Any = make()
    except Exception as error:
        raise UsageError(f"{name}: the factory raised {_named(error)}") from error
    check_subnormals(f"after {name} was made")
    _check(name, subject)
    return make


def _foreign(name: str) -> Make:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        known = ", ".join(SHIPPED)
        raise UsageError(f"--decoder {name}: neither one of {known} nor module:factory")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise UsageError(f"--decoder {name}: {_named(error)}") from error
    check_subnormals(f"after {module} was imported")
    if not callable(factory):
        raise UsageError(f"--decoder {name}: {attribute} cannot be called")
    make: Make = factory
    return make


def _check(name: str, subject: Any) -> None:
    """That what the laws read without asking is there."""
    missing = [method for method in METHODS if not callable(getattr(subject, method, None))]
    if missing:
        raise UsageError(f"{name}: no method {', '.join(missing)}")
    capabilities = getattr(subject, "capabilities", None)
    if not isinstance(capabilities, Mapping) or not all(
        isinstance(able, bool) for able in capabilities.values()
    ):
        raise UsageError(f"{name}: capabilities must map names to True or False")
    conventions = getattr(subject, "conventions", None)
    if not isinstance(conventions, Mapping) or conventions.get("functions") not in FUNCTIONS:
        raise UsageError(f"{name}: conventions['functions'] must be one of {', '.join(FUNCTIONS)}")


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
