"""Calls of a Python decoder end in time, whoever it is that will not: in place, or in a process."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitproof.properties import cli, laws
from logitproof.properties.adapters.making import messaged
from logitproof.properties.adapters.program import Crashed, TimeLimit
from logitproof.properties.adapters.remote import AdapterFault
from logitproof.properties.adapters.timed import EndedItself, SlowDecoder, Timed, contained
from logitproof.properties.chunks import Newest
from logitproof.properties.foreign_subject import ForeignSubject
from logitproof.properties.laws.cases import full_cases
from logitproof.properties.subjects import CoreSubject
from logitproof.properties.verify.shrinking import failure
from logitproof.properties.verify.subject import maker

SECONDS = 2.0
CASE = next(case for case in full_cases(9) if len(case.ids[0]) > 2)
MODULE = """
import ctypes, os, sys
from logitproof.properties.foreign_subject import ForeignSubject

class Native(ForeignSubject):
    def logits(self, ids, layout=None):
        ctypes.PyDLL(None).sleep(60)  # holds the interpreter all the while

class Crashing(ForeignSubject):
    def logits(self, ids, layout=None):
        ctypes.string_at(0)

class Exiting(ForeignSubject):
    def logits(self, ids, layout=None):
        sys.exit(0)

def halves():
    return ForeignSubject(pairs="halves")

class Aborted(BaseException): pass

def exiting(): sys.exit(0)
def generator(): raise GeneratorExit("over")
def aborting(): raise Aborted("of its own")

class Claiming(ForeignSubject):
    @property
    def capabilities(self): sys.exit(0)

class Broken(ForeignSubject):
    @property
    def capabilities(self): raise RuntimeError("no claims")

class Following(ForeignSubject):
    @property
    def conventions(self): raise GeneratorExit

class Methodless(ForeignSubject):
    @property
    def logits(self): sys.exit(0)

class Values(ForeignSubject):
    def logits(self, ids, layout=None):
        return self

    def __array__(self, dtype=None, copy=None): raise GeneratorExit

class Loading(ForeignSubject):
    def load(self, config, weights): raise Aborted("while loading")

class Once(ForeignSubject):
    made = 0
    def __init__(self):
        Once.made += 1
        if Once.made > 1: sys.exit(0)
        super().__init__()

class Claims(ForeignSubject):
    asked = 0
    @property
    def capabilities(self):
        Claims.asked += 1
        if Claims.asked > 4: sys.exit(0)
        return {"gradients": False}
"""
# What ends who imports, makes, looks at or asks it, and what is told of it.
ENDING = [
    ("own_exit:make", "own_exit: it asked Python to exit with 3"),
    ("sys:exit", "exit: it asked Python to exit with None"),
    ("timed_decoder:exiting", "exiting: it asked Python to exit with 0"),
    ("timed_decoder:generator", "generator: it raised GeneratorExit: over"),
    ("timed_decoder:aborting", "aborting: it raised Aborted: of its own"),
    ("timed_decoder:Claiming", "capabilities: it asked Python to exit with 0"),
    ("timed_decoder:Broken", "looked at, it raised RuntimeError: no claims"),
    ("timed_decoder:Following", "conventions: it raised GeneratorExit"),
    ("timed_decoder:Methodless", "logits: it asked Python to exit with 0"),
    ("process:own_exit:make", "own_exit: it asked Python to exit with 3"),
    ("process:timed_decoder:exiting", "exiting: it asked Python to exit with 0"),
]

posix = pytest.mark.skipif(sys.platform == "win32", reason="the interval timer is of POSIX")


class Steps:
    """A session that is no context, and sleeps at some steps."""

    length = 3

    def __init__(self, naps: dict[str, float]) -> None:
        self.naps = naps

    def prefill(self, ids: Any) -> Newest:
        return self._step("prefill", ids)

    def extend(self, ids: Any) -> Newest:
        return self._step("extend", ids)

    def decode(self, id_: int) -> Newest:
        return self._step("decode", [id_])

    def _step(self, name: str, ids: Any) -> Newest:
        time.sleep(self.naps.get(name, 0.0))
        return Newest(np.zeros(2), len(ids) - 1)


class Opened(Steps):
    """The same as a context."""

    closed = False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


class Decoder:
    """What is made answers its sessions."""

    def __init__(self, session: Any) -> None:
        self.made = session

    def session(self) -> Any:
        return self.made

    def logits(self, seconds: float) -> str:
        time.sleep(seconds)
        return "answered"

    def leave(self) -> None:
        sys.exit("enough")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "timed_decoder.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "own_exit.py").write_text("import sys; sys.exit(3)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "timed_decoder"
    sys.modules.pop("timed_decoder", None)


def loaded(subject: Any) -> Any:
    subject.load(CASE.config, CASE.weights)
    return subject


@posix
def test_a_call_is_broken_off_and_the_next_one_is_not() -> None:
    timed = Timed(Decoder(None), 0.2)
    with pytest.raises(SlowDecoder, match=r"logits: no answer within 0.2 s"):
        timed.logits(60.0)
    assert timed.logits(0.0) == "answered"


@posix
@pytest.mark.parametrize("kind", [Steps, Opened])
@pytest.mark.parametrize("step", ["prefill", "extend", "decode"])
def test_a_step_of_a_session_is_broken_off(step: str, kind: type[Steps]) -> None:
    timed = Timed(Decoder(kind({step: 60.0})), 0.2)
    with timed.session() as session, pytest.raises(SlowDecoder, match=f"{step}: no answer"):
        getattr(session, step)(0 if step == "decode" else [0])


def test_a_session_is_closed_and_told_as_it_was() -> None:
    own = Opened({})
    with Timed(Decoder(own), SECONDS).session() as session:
        assert (session.length, session.closed, session.decode(0).position) == (3, False, 0)
    assert own.closed


def test_a_decoder_that_asks_python_to_exit_does_not_end_who_asks() -> None:
    with pytest.raises(EndedItself, match="leave: it asked Python to exit with 'enough'"):
        Timed(Decoder(None), SECONDS).leave()


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("command", ["verify", "detect"])
@pytest.mark.parametrize(("name", "words"), ENDING)
def test_what_ends_who_makes_it_is_bad_input(
    name: str, words: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, "--decoder", name]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), words in err) == ("", 1, True)


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        ("verify", "Exiting", "EndedItself: logits: it asked Python to exit with 0"),
        ("verify", "Loading", "EndedItself: load: it raised Aborted: while loading"),
        ("verify", "Values", "EndedItself: self-test: it raised GeneratorExit"),
        ("detect", "Values", "logitproof: the decoder raised GeneratorExit"),
        ("verify", "Once", "the factory raised EndedItself: Once: it asked Python to exit with 0"),
    ],
)
def test_what_ends_who_asks_is_bad_input(
    command: str, name: str, words: str, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, "--decoder", f"{own}:{name}"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), words in err) == ("", 1, True)


def test_claims_are_read_when_a_decoder_is_made_and_not_later(own: str) -> None:
    subject = maker(f"{own}:Claims")()
    facts = [dict(subject.capabilities) for _ in range(9)]
    assert facts == [{"gradients": False}] * 9


def test_the_user_may_interrupt_a_call() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        contained("call", interrupted)


def test_a_law_fails_where_an_answer_ends_who_reads_it() -> None:
    def check(_: Any, __: Any) -> None:
        raise GeneratorExit("late")

    law = replace(laws.REGISTRY["truth.logits"], check=check)
    failed = failure(law, CoreSubject, CASE)
    assert failed is not None
    assert failed.words == "raised EndedItself: truth.logits: it raised GeneratorExit: late"


@pytest.mark.parametrize("step", ["__enter__", "decode", "length", "__exit__"])
def test_a_session_does_not_end_who_asks(step: str) -> None:
    def ends(*_: Any) -> None:
        raise GeneratorExit(step)

    kind = type("Ending", (Opened,), {step: property(ends) if step == "length" else ends})
    with pytest.raises(EndedItself, match=f"it raised GeneratorExit: {step}"):  # noqa: SIM117
        with Timed(Decoder(kind({})), SECONDS).session() as session:
            assert session.decode(0).position <= session.length


def test_on_another_thread_nothing_is_broken_off() -> None:
    timed = Timed(Decoder(None), 0.1)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(timed.logits, 0.3).result() == "answered"


@pytest.mark.parametrize("law", ["session.splits", "session.fork", "truth.cached-logits"])
def test_sessions_are_judged_as_without_a_limit(law: str) -> None:
    timed: Any = Timed(CoreSubject(), 60.0)
    outcome = laws.REGISTRY[law](timed, 3)
    assert (outcome.difference, outcome.cases) == (None, 3)


@pytest.mark.parametrize(
    ("name", "fault", "words"),
    [
        ("Native", TimeLimit, "no reply within 2 s"),
        ("Crashing", Crashed, "it was ended by signal 11"),
        ("Exiting", RuntimeError, "EndedItself: logits: it asked Python to exit with 0"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="signals and C functions by their names")
def test_a_process_ends_what_cannot_be_broken_off(
    name: str, fault: type[Exception], words: str, own: str
) -> None:
    make = messaged(f"process:{own}:{name}", SECONDS)
    assert make is not None
    with pytest.raises(fault, match=words):
        loaded(make()).logits(CASE.ids)


@posix
def test_a_process_ends_it_from_another_thread_too(own: str) -> None:
    subject = loaded(maker(f"process:{own}:Native", SECONDS)())
    with ThreadPoolExecutor(1) as pool, pytest.raises(AdapterFault, match="no reply within 2 s"):
        pool.submit(subject.logits, CASE.ids).result()


def test_in_a_process_a_decoder_answers_with_the_same_bits(own: str) -> None:
    subjects = [loaded(maker(name)()) for name in (f"process:{own}:halves", f"{own}:halves")]
    logits = [np.asarray(subject.logits(CASE.ids)).tobytes() for subject in subjects]
    assert logits[0] == logits[1]


def test_a_process_of_a_shipped_decoder_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--decoder", "process:scalar", "--law", "truth.loss"]) == 0
    assert capsys.readouterr().out.startswith("logitproof verify: process:scalar, profile quick")


def test_a_process_without_a_decoder_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--decoder", "process:unheard:make"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), "No module named 'unheard'" in err) == ("", 1, True)


def test_weights_may_come_as_arrays() -> None:
    given, made = ForeignSubject(), ForeignSubject()
    given.load(CASE.config, CASE.weights)
    made.load(CASE.config, {name: np.array(value) for name, value in CASE.weights.items()})
    assert given.weights == made.weights
