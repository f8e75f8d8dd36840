"""A decoder that answers in a file: the requests that the laws would make, and what came back."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from logitproof.properties.laws import Law
from logitproof.properties.scalar import C_LIBRARY, EXACT
from logitproof.properties.subjects import CoreSubject, ScalarSubject
from logitproof.properties.verify.batch import given
from logitproof.properties.verify.reseeding import reseeded

from .answering import result_from
from .arrays import parsed
from .calls import OF_NO_MODEL, request_line, result_of
from .remote import AdapterFault, Remote
from .selftest import selftest

__all__ = ["Incomplete", "NotAnswered", "Requests", "offline_subject", "recorded"]

BEYOND = {"grouped-heads", "untied-head"}  # what the core does not execute
ID_DIGITS = 24  # of a SHA-256: an answer to another request does not fit by chance


class NotAnswered(AdapterFault):
    """The file of answers has none to this request."""


class Incomplete(Exception):
    """A law stopped before it had asked everything: there is nothing whole to export."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Lines of requests in order, each with its id; the answers to them may come in any order."""

    lines: list[str] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)  # id -> its call


class _Keys:
    """The id of each question: the digest of the weights it is asked of, the call, the arguments.

    A question asked again has another id where it is counted, so that both answers can be held
    against each other.
    """

    def __init__(self) -> None:
        self.model = ""
        self.asked = Counter[str]()

    def key(self, call: str, arguments: Mapping[str, Any]) -> str:
        """The question's own digest; a load is remembered."""
        body = request_line("", call, arguments, "hex")
        model = "" if call in OF_NO_MODEL else self.model
        key = hashlib.sha256(f"{model} {body}".encode()).hexdigest()[:ID_DIGITS]
        if call == "load":
            self.model = key
        return key

    def counted(self, key: str) -> str:
        """The id where every time counts."""
        self.asked[key] += 1
        return f"{key}-{self.asked[key]}"


class _Recorder:
    """Answers from a decoder of ours, and writes down what was asked."""

    def __init__(self, answerer: Any, encoding: str) -> None:
        self.requests, self.keys = Requests(), _Keys()
        self.answerer, self._encoding = answerer, encoding
        self._load: tuple[str, Mapping[str, Any]] | None = None
        self._written = ""  # the weights that the last line was about
        self.counts = True

    def ask(self, call: str, arguments: Mapping[str, Any]) -> Any:
        """The answer; a question that is new, or where every time counts, is one more line."""
        key = self.keys.key(call, arguments)
        if call == "load":
            self._load = key, arguments
        else:
            id_ = self.keys.counted(key) if self.counts else f"{key}-1"
            if id_ not in self.requests.ids:
                if call not in OF_NO_MODEL:
                    self._write_load()
                self._write(id_, call, arguments)
        return result_from(self.answerer, call, arguments)

    def _write_load(self) -> None:
        if self._load is not None and self._load[0] != self._written:
            key, arguments = self._load
            number = sum(id_.startswith(key) for id_ in self.requests.ids) + 1
            self._write(f"{key}-{number}", "load", arguments)
            self._written = key

    def _write(self, id_: str, call: str, arguments: Mapping[str, Any]) -> None:
        self.requests.ids[id_] = call
        self.requests.lines.append(request_line(id_, call, arguments, self._encoding))


def recorded(
    chosen: Sequence[Law],
    capabilities: Mapping[str, bool],
    conventions: Mapping[str, str],
    *,
    examples: int,
    seed: int | None,
    encoding: str,
) -> Requests:
    """Everything that the self-test and the laws would ask a decoder with these claims.

    The questions do not hang on the answers as long as these are right: ours are.
    Raises Incomplete where a law finds a difference in them all the same.
    """
    c_library = conventions["functions"] == "c-library"
    scalar = ScalarSubject(C_LIBRARY if c_library else EXACT)
    answerer: Any = scalar if c_library else CoreSubject()
    recorder = _Recorder(answerer, encoding)

    def make() -> Remote:
        return Remote(recorder.ask, capabilities, conventions)

    complaint = selftest(make)
    assert complaint is None, complaint
    recorder.counts = False
    for law in chosen:
        if not law.missing(make()):
            recorder.answerer = scalar if BEYOND & {*law.needs} else answerer
            _ask_all(law, make(), examples, seed)
    return recorder.requests


def _ask_all(law: Law, subject: Remote, examples: int, seed: int | None) -> None:
    for case in law.cases(examples):
        if not law.concerns(subject, case):
            continue
        if seed is not None:
            case = reseeded(case, seed)
        found = law.check(subject, case)
        difference = getattr(found, "difference", found)
        if difference is not None:
            raise Incomplete(f"{law.id} does not hold for our own decoder here: {difference}")
        batch = given(case)
        if batch is not None and subject.capabilities.get("taps", False):
            config, weights, ids, layout = batch
            subject.load(config, weights)
            # The core refuses what overflows, the scalar decoder finds no maximum in it; others may
            # show it.
            with suppress(ValueError, StopIteration):
                subject.taps(ids, layout)


def offline_subject(
    answers: Mapping[str, bytes],
    capabilities: Mapping[str, bool],
    conventions: Mapping[str, str],
) -> Callable[[], Remote]:
    """What makes decoders under test out of answers by id."""

    def make() -> Remote:
        keys = _Keys()

        def ask(call: str, arguments: Mapping[str, Any]) -> Any:
            id_ = keys.counted(keys.key(call, arguments))
            if id_ not in answers:
                id_ = id_.partition("-")[0] + "-1"  # asked more often than it counts
            if id_ in answers:
                return result_of(parsed(answers[id_]), call)
            if call == "load":
                return None  # nothing was asked of these weights, or the laws will say so
            raise NotAnswered(f"{call}: request {id_} has no answer")

        return Remote(ask, capabilities, conventions)

    return make
