"""The decoder under test by its name: ours, `package.module:factory`, a program, or answers."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from logitproof.properties.adapters.hello import FUNCTIONS
from logitproof.properties.adapters.making import messaged
from logitproof.properties.adapters.selftest import selftest
from logitproof.properties.adapters.timed import Timed, contained
from logitproof.properties.cli import UsageError
from logitproof.properties.laws import DecoderUnderTest
from logitproof.properties.laws.precision import format_of
from logitproof.properties.subjects import BlasSubject, CoreSubject, ScalarSubject, StepsSubject

from .environment import check_subnormals

__all__ = ["SECONDS", "SHIPPED", "Make", "adapter_complaint", "check_adapter", "maker"]

Make: TypeAlias = Callable[[], DecoderUnderTest]

SHIPPED: Mapping[str, Make] = {
    "core": CoreSubject,
    "core-steps": StepsSubject,
    "core-blas": BlasSubject,
    "scalar": ScalarSubject,
}
METHODS = ("load", "logits", "loss_and_gradients")
SECONDS = 60.0  # that one answer of somebody else's decoder may take


def maker(name: str, seconds: float = SECONDS) -> Make:
    """What makes a fresh decoder under test; one was made and looked at.

    Modules are found as Python finds them, and in the current folder.
    Raises UsageError where there is none, HarnessError where its import changed the arithmetic.
    What is made later raises UsageError too, where it is none or nothing is made.
    """
    found = SHIPPED.get(name) or messaged(name, seconds) or _foreign(name, seconds)

    def make() -> DecoderUnderTest:
        return _made(name, found)

    make()
    check_subnormals(f"after {name} was made")
    return make


def adapter_complaint(named: tuple[str, float]) -> str | None:
    """What the adapter of a decoder, told with its time limit, does wrong."""
    name, seconds = named
    return None if name in SHIPPED else selftest(maker(name, seconds))


def check_adapter(name: str, complaint: str | None) -> None:
    """That what lies between us and a decoder of somebody else's does its work.

    Raises UsageError: its fault is not to be told as the decoder's.
    """
    if complaint is not None:
        raise UsageError(f"--decoder {name}: the adapter fails its self-test: {complaint}")


def _foreign(name: str, seconds: float) -> Make:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        known = ", ".join(SHIPPED)
        forms = "module:factory, process:module:factory, exec:COMMAND, offline:DIR"
        raise UsageError(f"--decoder {name}: neither one of {known} nor {forms}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory = contained(module, lambda: getattr(importlib.import_module(module), attribute))
    except Exception as error:
        raise UsageError(f"--decoder {name}: {_named(error)}") from error
    check_subnormals(f"after {module} was imported")
    if not callable(factory):
        raise UsageError(f"--decoder {name}: {attribute} cannot be called")
    return lambda: cast("DecoderUnderTest", Timed(contained(attribute, factory), seconds))


def _made(name: str, make: Make) -> DecoderUnderTest:
    """A decoder, looked at. Raises UsageError where its factory raises, or it is none."""
    try:
        subject: Any = make()
    except Exception as error:
        raise UsageError(f"{name}: the factory raised {_named(error)}") from error
    try:
        _check(name, subject)
        return contained("claims", subject.settled) if isinstance(subject, Timed) else subject
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{name}: looked at, it raised {_named(error)}") from error


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
    try:
        format_of(subject)
    except ValueError as error:
        raise UsageError(f"{name}: conventions: {error}") from error


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
