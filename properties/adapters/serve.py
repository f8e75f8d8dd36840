"""A Python decoder as a program: this module, run with the name of its factory.

Who asks has a limit of time of its own, and ends the process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from logitproof.properties.cli import HarnessError, UsageError
from logitproof.properties.verify.subject import maker

from .answering import result_from
from .arrays import Malformed, parsed
from .calls import CARRIED, FORMAT, arguments_of, reply_line

__all__ = ["answers", "main"]

A_DAY = 86_400.0  # seconds: no limit that anybody meets


def answers(subject: Any, lines: Iterable[str], encoding: str = "base64") -> Iterator[str]:
    """One reply for each request. Raises Malformed for a line that is none."""
    for line in lines:
        message = parsed(line)
        if message.get("call") == "hello":
            yield _hello(subject, message)
        else:
            yield _answer(subject, message, encoding)


def _hello(subject: Any, message: Mapping[str, Any]) -> str:
    able = {name: able for name, able in subject.capabilities.items() if name in CARRIED}
    facts = {"protocol": FORMAT, "capabilities": able, "conventions": dict(subject.conventions)}
    return json.dumps({"id": message["id"], "result": facts}) + "\n"


def _answer(subject: Any, message: Mapping[str, Any], encoding: str) -> str:
    call, arguments = arguments_of(message)
    id_ = message["id"]
    try:
        result = result_from(subject, call, arguments)
        return reply_line(id_, call, result, encoding)
    except Malformed as wrong:
        return _failed(id_, "error", str(wrong))
    except ValueError as refusal:
        return _failed(id_, "refused", str(refusal))
    except Exception as error:  # noqa: BLE001 - whatever the decoder raises is its answer
        return _failed(id_, "error", f"{type(error).__name__}: {error}")


def _failed(id_: str, key: str, words: str) -> str:
    return json.dumps({"id": id_, key: words}) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Answers on standard output what is asked on standard input; 2 where nothing can be served."""
    try:
        if len(arguments) != 1:
            raise UsageError("serve: the name of one decoder is wanted")
        for reply in answers(maker(arguments[0], A_DAY)(), sys.stdin):
            sys.stdout.write(reply)
            sys.stdout.flush()
    except (UsageError, HarnessError, Malformed) as wrong:
        print(wrong, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
