"""The refusal that a call must end in."""

from collections.abc import Callable
from typing import Any

from logitproof.core.errors import Refusal


def refusal_of(call: Callable[..., object], *arguments: Any, **named: Any) -> Refusal:
    """The refusal of a call; that it returns is an AssertionError."""
    try:
        result = call(*arguments, **named)
    except Refusal as refusal:
        return refusal
    raise AssertionError(f"not refused: {result!r}")
