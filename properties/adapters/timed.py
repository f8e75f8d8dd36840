"""A Python decoder whose calls may take so long and no longer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from .remote import AdapterFault

__all__ = ["SlowDecoder", "Timed"]


class SlowDecoder(AdapterFault):
    """A call did not return in time."""


class Timed:
    """The decoder; each call of its methods is broken off after some seconds.

    Only where the system has an interval timer, and on the main thread: elsewhere, and inside a
    call that never returns to Python, nothing is broken off.
    """

    def __init__(self, subject: Any, seconds: float) -> None:
        self._subject, self._seconds = subject, seconds

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._subject, name)
        return self._limited(name, value) if callable(value) and name != "parts" else value

    def _limited(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def limited(*arguments: Any, **named: Any) -> Any:
            if not _can_break_off():
                return call(*arguments, **named)

            def stop(_: int, __: FrameType | None) -> None:
                raise SlowDecoder(f"{name}: no answer within {self._seconds:g} s")

            before = signal.signal(signal.SIGALRM, stop)
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
            try:
                return call(*arguments, **named)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                signal.signal(signal.SIGALRM, before)

        return limited


def _can_break_off() -> bool:
    return hasattr(signal, "setitimer") and (threading.current_thread() is threading.main_thread())
