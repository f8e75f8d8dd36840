"""A Python decoder whose calls may take so long and no longer."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from .remote import AdapterFault

__all__ = ["EndedItself", "SlowDecoder", "Timed"]

STEPS = ("prefill", "extend", "decode")


class SlowDecoder(AdapterFault):
    """A call did not return in time."""


class EndedItself(AdapterFault):
    """A call asked Python to exit."""


class Timed:
    """The decoder; each call of its methods, and each step of its sessions, is broken off in time.

    It is done by an interval timer whose handler raises, which works where the system has one
    (POSIX), on the main thread, and while the call comes back to Python now and then. On another
    thread, as in a worker of Dask, and inside one call of a compiled library that does not return,
    nothing is broken off: `process:NAME` asks the same decoder in a process that is ended.
    A call that asks Python to exit does not end the one who asks.
    """

    def __init__(self, subject: Any, seconds: float) -> None:
        self._subject, self._seconds = subject, seconds

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._subject, name)
        if not callable(value) or name == "parts":
            return value
        call = _limited(name, value, self._seconds)
        return (lambda: _TimedSession(call(), self._seconds)) if name == "session" else call


class _TimedSession:
    """A session whose steps are limited; all else is the session's own."""

    def __init__(self, session: Any, seconds: float) -> None:
        self._session, self._seconds = session, seconds

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._session, name)
        return _limited(name, value, self._seconds) if name in STEPS else value

    def __enter__(self) -> _TimedSession:
        """A session that is no context is as good as one that holds nothing open."""
        if not hasattr(self._session, "__exit__"):
            return self
        return _TimedSession(self._session.__enter__(), self._seconds)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        if hasattr(self._session, "__exit__"):
            return self._session.__exit__(kind, error, trace)
        return None


def _limited(name: str, call: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def limited(*arguments: Any, **named: Any) -> Any:
        try:
            if not _can_break_off():
                return call(*arguments, **named)
            return _broken_off(name, seconds, lambda: call(*arguments, **named))
        except SystemExit as exit_:
            raise EndedItself(f"{name}: it asked Python to exit with {exit_.code!r}") from exit_

    return limited


def _broken_off(name: str, seconds: float, call: Callable[[], Any]) -> Any:
    def stop(_: int, __: FrameType | None) -> None:
        raise SlowDecoder(f"{name}: no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _can_break_off() -> bool:
    return hasattr(signal, "setitimer") and (threading.current_thread() is threading.main_thread())
