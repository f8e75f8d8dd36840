"""What a refusal tells: its code, and the facts that are asked for by name."""

from collections.abc import Callable

from .difference import Difference
from .drawn import equal

__all__ = ["tells"]


def tells(what: str, code: str, call: Callable[[], object], **facts: object) -> Difference | None:
    """None where the call is refused with this code and these facts, in one line."""
    try:
        call()
    except ValueError as refusal:
        found = str(getattr(refusal, "code", type(refusal).__name__))
        known = {name: getattr(refusal, name, "nothing") for name in facts}
        return (
            equal(f"refusal of {what}", code, found)
            or equal(f"facts of the refusal of {what}", facts, known)
            or equal(f"one line about {what}", True, str(refusal).isprintable())
        )
    return Difference(what=what, expected=code, actual="taken")
