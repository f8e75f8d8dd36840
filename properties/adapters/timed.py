"""A Python decoder whose calls may take so long and no longer, and end nobody but themselves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

from .remote import AdapterFault

__all__ = ["EndedItself", "SlowDecoder", "Timed", "contained"]

Answer = TypeVar("Answer")


class SlowDecoder(AdapterFault):
    """A call did not return in time."""


class EndedItself(AdapterFault):
    """A call asked Python to exit, or raised something else that is no Exception."""


def contained(name: str, call: Callable[[], Answer]) -> Answer:
    """What the call gives; the one place where somebody else's code runs unforeseen.

    Raises EndedItself where it would end who asks. KeyboardInterrupt is the user's and passes.
    """
    try:
        return call()
    except (Exception, KeyboardInterrupt):
        raise
    except SystemExit as end:
        raise EndedItself(f"{name}: it asked Python to exit with {end.code!r}") from end
    except BaseException as end:
        raise EndedItself(f"{name}: it raised {type(end).__name__}: {end}") from end


class Timed:
    """The decoder; each call of its methods, and each step of its sessions, is broken off in time.

    It is done by an interval timer whose handler raises, which works where the system has one
    (POSIX), on the main thread, and while the call comes back to Python now and then. On another
    thread, as in a worker of Dask, and inside one call of a compiled library that does not return,
    nothing is broken off: `process:NAME` asks the same decoder in a process that is ended.
    A call that asks Python to exit does not end the one who asks, nor does reading an attribute.
    """

    def __init__(self, subject: Any, seconds: float) -> None:
        self._subject, self._seconds = subject, seconds

    def settled(self) -> Timed:
        """The same, its claims as they are now: read later, they could run code of its own."""
        self.capabilities = {**self._subject.capabilities}
        self.conventions = {**self._subject.conventions}
        return self

    def __getattr__(self, name: str) -> Any:
        value = _attribute(self._subject, name)
        if not callable(value) or name == "parts":
            return value
        call = _limited(name, value, self._seconds)
        return (lambda: _TimedSession(call(), self._seconds)) if name == "session" else call


class _TimedSession:
    """A session whose calls are limited; all else is the session's own."""

    def __init__(self, session: Any, seconds: float) -> None:
        self._session, self._seconds = session, seconds

    def __getattr__(self, name: str) -> Any:
        value = _attribute(self._session, name)
        return _limited(name, value, self._seconds) if callable(value) else value

    def __enter__(self) -> _TimedSession:
        """A session that is no context is as good as one that holds nothing open."""
        if not self._opens():
            return self
        return _TimedSession(contained("session", self._session.__enter__), self._seconds)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        if not self._opens():
            return None
        return contained("session", lambda: self._session.__exit__(kind, error, trace))

    def _opens(self) -> bool:
        return contained("session", lambda: hasattr(self._session, "__exit__"))


def _attribute(owner: Any, name: str) -> Any:
    return contained(name, lambda: getattr(owner, name))


def _limited(name: str, call: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def limited(*arguments: Any, **named: Any) -> Any:
        def asked() -> Any:
            return contained(name, lambda: call(*arguments, **named))

        return _broken_off(name, seconds, asked) if _can_break_off() else asked()

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
