"""One call of the protocol on a Python decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .forms import Output

__all__ = ["result_from"]

BY_NAME = ("depth_scaled",)  # the protocol's only argument that is not given by its place


def result_from(subject: Any, call: str, arguments: Mapping[str, Any]) -> Any:
    """What the decoder gives, or raises."""
    if call == "echo":
        return arguments["value"]
    if call == "cached":
        return _outputs(subject.session(), arguments["steps"])
    by_name = {name: value for name, value in arguments.items() if name in BY_NAME}
    in_order = (value for name, value in arguments.items() if name not in BY_NAME)
    return getattr(subject, call)(*in_order, **by_name)


def _outputs(session: Any, steps: Sequence[tuple[str, Sequence[int]]]) -> list[Output]:
    opened: AbstractContextManager[Any] = (
        session if hasattr(session, "__exit__") else nullcontext(session)
    )
    with opened as entered:
        outputs = [
            getattr(entered, name)(ids[0] if name == "decode" else ids) for name, ids in steps
        ]
        return [Output(output.logits, int(output.position)) for output in outputs]
