"""A decoder that is a program: a line of JSON on its standard input, a line as its reply."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from .arrays import Malformed, parsed, refuse
from .calls import request_line, result_of
from .hello import HELLO, Hello, hello_line, read_hello
from .remote import AdapterFault, Remote

__all__ = [
    "Crashed", "Garbage", "Limits", "Program", "ProgramSubject", "TimeLimit", "TooLarge",
    "program_subjects",
]  # fmt: skip

CHUNK = 65_536  # bytes read at once
AHEAD = 64  # chunks that wait to be looked at
TAIL = 2_000  # bytes kept of standard error
SHOWN = 300  # characters told of them
PATIENCE = 1.0  # seconds to end by itself


class Crashed(AdapterFault):
    """The program ended in the middle of a question."""


class Garbage(AdapterFault):
    """The program wrote something else than the reply."""


class TimeLimit(AdapterFault):
    """The program did not reply in time, and was ended."""


class TooLarge(AdapterFault):
    """The reply passed the most bytes allowed, and the program was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds and bytes that one reply may take; the first one after a start takes more."""

    seconds: float = 60.0
    start_seconds: float = 60.0
    reply_bytes: int = 1 << 28


class Program:
    """A command, started when first asked and again after it died.

    It has a process group of its own, which ends with it. One question at a time.
    """

    def __init__(self, command: Sequence[str], limits: Limits) -> None:
        self.command, self.limits = list(command), limits
        self.holds: object = None  # whose weights it has
        self._running: _Running | None = None

    def ask(self, line: str) -> bytes:
        """The line that the program replies. Raises AdapterFault; after that it is not running."""
        running = self._running
        if running is None:
            running = self._running = _Running(self.command)
        try:
            return running.exchange(line.encode("utf-8"), self.limits)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the program and everything that it started."""
        self.holds = None
        if self._running is not None:
            self._running.finish()
            self._running = None


class _Tail:
    """The end of what a program wrote to standard error."""

    def __init__(self) -> None:
        self.kept = bytearray()

    def take(self, chunk: bytes) -> None:
        """Some more of it."""
        self.kept += chunk
        del self.kept[:-TAIL]

    def __str__(self) -> str:
        text = " ".join(bytes(self.kept).decode("utf-8", "replace").split())
        return f"; its standard error ends: {text[-SHOWN:]}" if text else ""


class _Running:
    """One process, with threads that read what it writes; they must not keep this object alive."""

    def __init__(self, command: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(  # noqa: S603 - the caller's own program, no shell
            command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
        )
        self.chunks = queue.Queue[bytes](AHEAD)
        self.rest, self.tail = b"", _Tail()
        self.has_replied = False
        self.readers = [
            threading.Thread(target=_read, args=(stream, take), daemon=True)
            for stream, take in (
                (self.process.stdout, self.chunks.put),
                (self.process.stderr, self.tail.take),
            )
        ]
        for reader in self.readers:
            reader.start()
        self.finish = weakref.finalize(self, _end, self.process, self.readers, self.chunks)

    def exchange(self, line: bytes, limits: Limits) -> bytes:
        """Writes a line, reads a line."""
        if self.rest:
            raise Garbage(f"more than one line for one request: {_shown(self.rest)}{self.tail}")
        seconds = limits.seconds + (0.0 if self.has_replied else limits.start_seconds)
        deadline = time.monotonic() + seconds
        writer = threading.Thread(target=_write, args=(self.process.stdin, line), daemon=True)
        writer.start()  # beside the reading: neither side may wait for the other
        parts, size = list[bytes](), 0
        while True:
            head, found, rest = self._chunk(deadline, seconds).partition(b"\n")
            parts.append(head)
            size += len(head)
            if size > limits.reply_bytes:
                raise TooLarge(f"a reply of more than {limits.reply_bytes} bytes{self.tail}")
            if found:
                self.rest, self.has_replied = rest, True
                return b"".join(parts)

    def _chunk(self, deadline: float, seconds: float) -> bytes:
        try:
            chunk = self.chunks.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeLimit(f"no reply within {seconds:g} s{self.tail}") from None
        if not chunk:
            raise Crashed(f"{self._ended()}{self.tail}")
        return chunk

    def _ended(self) -> str:
        """How the process ended, which closed its output."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return "it closed its output and runs on"
        self.readers[1].join(PATIENCE)
        return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"


def _read(stream: IO[bytes], take: Callable[[bytes], None]) -> None:
    """Everything that comes, and an empty chunk at the end."""
    with contextlib.suppress(OSError, ValueError):
        while chunk := os.read(stream.fileno(), CHUNK):
            take(chunk)
    take(b"")


def _write(stream: IO[bytes], line: bytes) -> None:
    """A program that died does not read; who waits for its reply finds out."""
    with contextlib.suppress(OSError, ValueError):
        left = memoryview(line)
        while left:
            left = left[os.write(stream.fileno(), left) :]


def _end(
    process: subprocess.Popen[bytes],
    readers: Sequence[threading.Thread],
    chunks: queue.Queue[bytes],
) -> None:
    """The group goes, whatever the program itself does about it."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    until = time.monotonic() + PATIENCE  # a pipe may be open in a process that left the group
    while any(reader.is_alive() for reader in readers) and time.monotonic() < until:
        with contextlib.suppress(queue.Empty):
            chunks.get(timeout=0.01)  # a reader may wait for room
    for stream, reader in zip((process.stdout, process.stderr), readers, strict=True):
        if stream is not None and not reader.is_alive():
            stream.close()
    if process.stdin is not None:
        process.stdin.close()


def _shown(content: bytes) -> str:
    return repr(content[:SHOWN].decode("utf-8", "replace"))


class ProgramSubject(Remote):
    """A decoder under test over a program that others may ask too.

    Its weights go again to a program that was started anew, or holds another subject's.
    """

    def __init__(self, program: Program, hello: Hello) -> None:
        super().__init__(self._ask_program, hello.capabilities, hello.conventions)
        self._program, self._encoding = program, hello.encoding
        self._model: Mapping[str, Any] | None = None
        self._requests = 0

    def _ask_program(self, call: str, arguments: Mapping[str, Any]) -> Any:
        if call == "load":
            self._model = arguments
        elif self._model is not None and self._program.holds is not self:
            self._send("load", self._model)
        return self._send(call, arguments)

    def _send(self, call: str, arguments: Mapping[str, Any]) -> Any:
        self._requests += 1
        id_ = str(self._requests)
        line = request_line(id_, call, arguments, self._encoding)
        if call == "load":
            self._program.holds = None  # until it has said so
        result = exchanged(self._program, line, id_, call)
        if call == "load":
            self._program.holds = self
        return result


def exchanged(program: Program, line: str, id_: str, call: str) -> Any:
    """What the program replies to a request. Raises Garbage where that is no reply to it."""
    content = program.ask(line)
    try:
        message = parsed(content)
        if message.get("id") != id_:
            refuse("id", repr(id_), message.get("id"))
        return read_hello(message) if call == HELLO else result_of(message, call)
    except Malformed as wrong:
        program.close()
        raise Garbage(f"in reply to {call}: {wrong}") from wrong


def program_subjects(text: str, limits: Limits) -> Callable[[], ProgramSubject]:
    """What makes decoders under test over one program, which was asked for its claims.

    text: the command and its arguments, quoted as in a shell that does nothing else with them
    Raises ValueError where it is none, OSError where it cannot be started, AdapterFault where it
    does not answer.
    """
    command = shlex.split(text)
    if not command:
        raise ValueError("no command")
    program = Program(command, limits)
    hello: Hello = exchanged(program, hello_line("0"), "0", HELLO)
    return lambda: ProgramSubject(program, hello)
