"""One call of the protocol on a Python decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .forms import Output

__all__ = ["result_from"]


def result_from(subject: Any, call: str, arguments: Mapping[str, Any]) -> Any:
    """What the decoder gives, or raises."""
    if call == "echo":
        return arguments["value"]
    if call == "cached":
        return _outputs(subject.session(), arguments["steps"])
    return getattr(subject, call)(**arguments)


def _outputs(session: Any, steps: Sequence[tuple[str, Sequence[int]]]) -> list[Output]:
    opened: AbstractContextManager[Any] = (
        session if hasattr(session, "__exit__") else nullcontext(session)
    )
    with opened as entered:
        outputs = [
            getattr(entered, name)(ids[0] if name == "decode" else ids) for name, ids in steps
        ]
        return [Output(output.logits, int(output.position)) for output in outputs]
