"""The ladder: one decoder as an object, a program and a file has one verdict; faults are told."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitproof.properties import cli, laws
from logitproof.properties.adapters import serve
from logitproof.properties.adapters.program import (
    Crashed,
    Garbage,
    Limits,
    ProgramSubject,
    TimeLimit,
    TooLarge,
    program_subjects,
)
from logitproof.properties.adapters.selftest import selftest
from logitproof.properties.adapters.template_command import NAMES, text_of
from logitproof.properties.cli import HarnessError
from logitproof.properties.laws.cases import full_cases
from logitproof.properties.subjects import CoreSubject, ScalarSubject

Output = pytest.CaptureFixture[str]
LIMITS = Limits(seconds=20.0)
SERVE = f"exec:{sys.executable} -m logitproof.properties.adapters.serve"
CASE = next(case for case in full_cases(9) if len(case.ids[0]) > 2)

# Decoders of a caller's own, each wrong in one way, and what the templates import.
SUBJECTS = """
import time
from dataclasses import replace
import numpy as np
from logitproof.properties.subjects import CoreSubject, ScalarSubject

class Changed(ScalarSubject):
    def logits(self, ids, layout=None):
        return self.changed(np.array(super().logits(ids, layout)))

class Zeros(Changed):
    def changed(self, z): return 0.0 * abs(z)

class Constants(Changed):
    def changed(self, z): return np.full(z.shape, 0.25)

class Nans(Changed):
    def changed(self, z): return np.full(z.shape, np.nan)

class WrongShape(Changed):
    def changed(self, z): return z[:, :, :-1]

class Disguised(Changed):
    def changed(self, z): return z.astype(np.float32).astype(np.float64)

class Sleeping(Changed):
    def changed(self, z): time.sleep(60)

class Raising(Changed):
    def changed(self, z): raise RuntimeError("out of order")

class Wavering(Changed):
    calls = 0
    def changed(self, z):
        Wavering.calls += 1
        return z * (1 + 2.0**-50 * (Wavering.calls % 2))

class Previous(Changed):
    last = None
    def changed(self, z):
        Previous.last, given = z, Previous.last
        return z if given is None or given.shape != z.shape else given

class Masked(ScalarSubject):
    def load(self, config, weights):
        self.masks = {}
        super().load(config, weights)

    def logits(self, ids, layout=None):
        return super().logits(ids, layout and self.masks.setdefault(layout.shape, layout))

class Masking(Masked):
    capabilities = {"packed": False}

class Accumulating(ScalarSubject):
    def load(self, config, weights):
        self.sums = {}
        super().load(config, weights)

    def loss_and_gradients(self, ids, targets, layout=None, valid=None):
        loss, gradients = super().loss_and_gradients(ids, targets, layout, valid)
        if layout is None:
            return loss, gradients
        self.sums = {n: np.array(g) + self.sums.get(n, 0.0) for n, g in gradients.items()}
        return loss, self.sums

class Reloading(ScalarSubject):
    known = None
    def load(self, config, weights):
        given = config, np.array(weights["token_embedding.weight"]).tobytes()
        if given != self.known:
            super().load(config, weights)
        self.known = given

class More(ScalarSubject):
    def loss_and_gradients(self, *batch):
        loss, gradients = super().loss_and_gradients(*batch)
        return loss, {**gradients, "head.weight": gradients["token_embedding.weight"]}

class Fewer(ScalarSubject):
    def loss_and_gradients(self, *batch):
        loss, gradients = super().loss_and_gradients(*batch)
        return loss, {n: g for n, g in gradients.items() if n != "final_norm.gain"}

class Sticky(ScalarSubject):
    base = None
    def load(self, config, weights):
        base, Sticky.base = Sticky.base, config.rope_base
        super().load(replace(config, rope_base=base or config.rope_base), weights)
"""
PORT = """
import numpy as np
from logitproof.properties.scalar import Config, Layout
from logitproof.properties.subjects import ScalarSubject

subject = ScalarSubject()

def build(config, arrays):
    subject.load(config, arrays)
    return subject

def logits(*call):
    if len(call) > 2:  # the object's template
        return call[0].logits(*call[1:])
    ids, layout = call
    layout = layout and Layout(**{n: tuple(v if n == "lengths" else map(tuple, v))
                                  for n, v in layout.items()})
    z = np.array(subject.logits(ids, layout))
    return list(z.shape), z.ravel().tolist()

def loss_and_gradients(model, *batch):
    return model.loss_and_gradients(*batch)

def load(config, flat):
    config = Config(**config)
    shapes = config.parameter_shapes()
    subject.load(config, {name: np.reshape(flat[name], shapes[name]) for name in shapes})
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules and templates of the caller's own, which children find too."""
    files = {"ladder_subjects.py": SUBJECTS, "port.py": PORT}
    files |= {f"ladder_{n}.py": text_of(n) for n in ("object", "program", "offline")}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in files:
        sys.modules.pop(name.removesuffix(".py"), None)


def script(text: str) -> Callable[[], ProgramSubject]:
    """Subjects over a program that says hello and then does what the text says with a request."""
    hello = {"protocol": "logitproof-decoder-v1", "capabilities": {},
             "conventions": {"functions": "c-library"}}  # fmt: skip
    program = (
        "import json, os, sys, time, subprocess\n"
        "for line in sys.stdin:\n"
        "    r = json.loads(line)\n"
        "    def reply(**facts): print(json.dumps({'id': r['id'], **facts}), flush=True)\n"
        f"    if r['call'] == 'hello': reply(result={hello}); continue\n"
        "    if r['call'] == 'load': reply(result=None); continue\n"
        f"    {text}\n"
    )
    return program_subjects(f"{sys.executable} -c {shlex.quote(program)}", Limits(seconds=1.0))


def told(facts: Path) -> dict[str, Any]:
    """What `--json` wrote, without times, names of decoders and files."""
    found: dict[str, Any] = json.loads(facts.read_text(encoding="utf-8"))
    for law in found["laws"]:
        del law["seconds"]
    return {key: found[key] for key in ("laws", "levels", "holds")}


def verdicts(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and facts."""
    code = cli.main([*arguments, "--json", "facts.json"])
    return code, told(Path("facts.json"))


CLAIMED = (
    "forward,loss,gradients,padded,packed,row-bits,specified-bits,raw-sum,gradient-parts,"
    "initial-values,taps,grouped-heads,untied-head"
)
MOST = "*[dt][eo]r.[iprst]*"  # laws of the decoder and the generator: a few seconds of them


def test_one_decoder_has_one_verdict_on_every_rung(own: Path) -> None:
    one = verdicts("verify", "--decoder", "scalar", "--law", MOST)
    two = verdicts("verify", "--decoder", f"{SERVE} scalar", "--law", MOST)
    exported = ["export-requests", "dir", "--law", MOST, "--claims", CLAIMED]
    assert cli.main(exported) == 0
    assert os.system(f"{SERVE[5:]} scalar < dir/requests.jsonl > dir/answers.jsonl") == 0  # noqa: S605
    three = verdicts("judge", "dir")
    assert one == two == three
    assert one[0] == 0
    assert sum(law["cases"] for law in one[1]["laws"]) > 100
    assert own.joinpath("dir", "manifest.json").exists()


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("law", ["grouped.prefix-causality", "untied.gradients"])
def test_shared_heads_and_heads_of_their_own_are_judged_on_every_rung(law: str) -> None:
    one = verdicts("verify", "--decoder", "scalar", "--law", law)
    two = verdicts("verify", "--decoder", f"{SERVE} scalar", "--law", law)
    assert cli.main(["export-requests", "dir", "--law", law, "--claims", CLAIMED]) == 0
    assert os.system(f"{SERVE[5:]} scalar < dir/requests.jsonl > dir/answers.jsonl") == 0  # noqa: S605
    assert one == two == verdicts("judge", "dir")
    assert one[0] == 0
    assert one[1]["laws"][0]["cases"] > 15


@pytest.mark.usefixtures("own")
def test_a_wrong_decoder_has_one_verdict_on_every_rung() -> None:
    name, law = "ladder_subjects:Zeros", "truth.logits"
    one = verdicts("verify", "--decoder", name, "--law", law)
    two = verdicts("verify", "--decoder", f"{SERVE} {name}", "--law", law)
    cli.main(["export-requests", "dir", "--law", law, "--claims", CLAIMED])
    os.system(f"{SERVE[5:]} {name} < dir/requests.jsonl > dir/answers.jsonl")  # noqa: S605
    code, three = verdicts("judge", "dir")
    assert one == two
    assert (one[0], code) == (1, 1)
    found = [facts["laws"][0] for facts in (one[1], three)]
    assert [law["verdict"] for law in found] == ["FAILS", "FAILS"]
    assert {law["place"][:25] for law in found} == {"logits, row 0, position 0"}


@pytest.mark.parametrize("rung", ["", f"{SERVE} "])
@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("Disguised", "logits called float64 are float32 values"),
        ("Wavering", "determinism: logits asked for twice differ"),
        ("Previous", "statelessness: logits depend on what was asked before"),
        ("Sticky", "statelessness: logits depend on the decoder loaded before"),
        ("Masked", "statelessness: logits depend on the layout asked before"),
        ("Masking", "statelessness: logits depend on the layout asked before"),
        ("Accumulating", "determinism: gradients of token_embedding.weight asked for twice in one"),
        ("Reloading", "statelessness: logits depend on the weights loaded before"),
        ("More", "names: gradients of head.weight, which is no parameter"),
        ("Fewer", "names: no gradients of final_norm.gain, which is a parameter"),
        ("Sleeping", "no answer within 1 s|no reply within 1 s"),
    ],
)
def test_an_adapter_that_fails_its_self_test_is_not_judged(
    subject: str, words: str, rung: str, own: Path, capsys: Output
) -> None:
    name = f"{rung}ladder_subjects:{subject}"
    assert cli.main(["verify", "--decoder", name, "--time-limit", "1"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "the adapter fails its self-test: " in err
    assert [word for word in words.split("|") if word in err] != []
    assert list(own.glob("*.replay.json")) == []


@pytest.mark.parametrize("dtype", ["object", "complex128", "bool", "int64", "<U32", "|S32"])
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("logits", "logits"),
        ("loss", "losses"),
        ("gradients", "gradients of token_embedding.weight"),
    ],
)
def test_answers_that_are_no_floats_are_told_with_their_type(
    what: str, words: str, dtype: str
) -> None:
    found = selftest(lambda: Typed(what, dtype))
    assert found == f"dtype: {words} are of type {dtype}; float64 is wanted"


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("Zeros", "got 0.0, off by"),
        ("Constants", "got 0.25, off by"),
        ("Nans", "got nan, off by nan"),
        ("WrongShape", "logits, shape: expected [1, 1, 2], got [1, 1, 1]"),
        ("Raising", "raised RuntimeError: out of order"),
    ],
)
def test_a_wrong_answer_is_the_decoders(
    subject: str, words: str, own: Path, capsys: Output
) -> None:
    name = f"ladder_subjects:{subject}"
    assert cli.main(["verify", "--decoder", name, "--law", "truth.logits"]) == 1
    assert words in " ".join(capsys.readouterr().out.split())
    assert (own / "truth.logits.replay.json").exists()


class Typed(ScalarSubject):
    """The logits, the loss or the gradients are of another type."""

    def __init__(self, what: str, dtype: str) -> None:
        super().__init__()
        self.what, self.dtype = what, dtype

    def typed(self, what: str, values: Any) -> Any:
        return np.array(values).astype(self.dtype) if what == self.what else values

    def logits(self, *batch: Any) -> Any:
        return self.typed("logits", super().logits(*batch))

    def loss_and_gradients(self, *batch: Any) -> Any:
        loss, gradients = super().loss_and_gradients(*batch)
        own = {name: self.typed("gradients", g) for name, g in gradients.items()}
        return self.typed("loss", loss), own


def test_the_shipped_decoders_pass_the_self_test() -> None:
    assert selftest(CoreSubject) is None
    assert selftest(ScalarSubject) is None


class Rounding(ScalarSubject):
    def echo(self, value: Any) -> Any:
        return value + 0.0  # -0.0 becomes 0.0


class Flat(ScalarSubject):
    def echo(self, value: Any) -> Any:
        return np.ravel(value)


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (Rounding, "echo: np.float64(-0.0) comes back as np.float64(0.0)"),
        (Flat, "echo: float64 [1, 2, 3] comes back as float64 [6]"),
    ],
)
def test_an_echo_of_other_bits_is_told(subject: Any, words: str) -> None:
    assert selftest(subject) == words


@pytest.mark.parametrize(
    ("text", "fault", "words"),
    [
        ("os._exit(3)", Crashed, "it ended with exit code 3"),
        ("os.write(2, b'full'); os.abort()", Crashed, "signal 6; its standard error ends: full"),
        ("print('loaded', flush=True)", Garbage, "no line of JSON"),
        ("reply(result={})", Garbage, "in reply to logits"),
        ("r['id'] = '9'; reply(result=None)", Garbage, "expected '"),
        ("time.sleep(60)", TimeLimit, "no reply within 1 s"),
        ("sys.stdin.close(); time.sleep(60)", TimeLimit, "no reply within 1 s"),
        ("reply(error='x'); reply(error='y')", RuntimeError, "x"),
    ],
)  # fmt: skip
def test_what_a_program_does_wrong_is_told(text: str, fault: Any, words: str) -> None:
    subject = script(text)()
    subject.load(CASE.config, CASE.weights)
    with pytest.raises(fault, match=words):
        subject.logits(CASE.ids)


def test_a_reply_that_is_too_large_is_not_read_to_its_end() -> None:
    command = f"{sys.executable} -c \"while True: print('x' * 999, end='')\""
    with pytest.raises(TooLarge, match="more than 5000 bytes"):
        program_subjects(command, Limits(seconds=20.0, reply_bytes=5000))


def test_two_lines_for_one_request_are_garbage() -> None:
    subject = script("reply(error='x'); reply(error='y'); time.sleep(0.2)")()
    with pytest.raises(RuntimeError):
        subject.logits(CASE.ids)
    time.sleep(0.2)
    with pytest.raises((Garbage, RuntimeError)):
        subject.logits(CASE.ids)


def test_a_program_is_started_again_and_loaded_again(own: Path) -> None:
    """Every second start dies at its first question about logits."""
    text = """if r['call'] != 'logits': reply(result=None)
    elif os.path.exists('died'): reply(refused=str(os.path.exists('died')))
    else: open('died', 'w').close(); os._exit(1)"""
    subject = script(text)()
    subject.load(CASE.config, CASE.weights)
    with pytest.raises(Crashed):
        subject.logits(CASE.ids)
    with pytest.raises(ValueError, match="True"):
        subject.logits(CASE.ids)
    assert own.joinpath("died").exists()


def test_two_subjects_over_one_program_have_their_own_weights() -> None:
    make = program_subjects(f"{SERVE[5:]} scalar", LIMITS)
    one, other, direct = make(), make(), ScalarSubject()
    one.load(CASE.config, CASE.weights)
    other.load(CASE.config, {name: 2.0 * np.array(w) for name, w in CASE.weights.items()})
    direct.load(CASE.config, CASE.weights)
    assert np.array_equal(one.logits(CASE.ids), direct.logits(CASE.ids))
    assert not np.array_equal(other.logits(CASE.ids), direct.logits(CASE.ids))


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_a_time_limit_ends_the_whole_group(own: Path) -> None:
    child = "import time; time.sleep(9); open('survived', 'w')"
    text = (
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}]);"
        " open('pid', 'w').write(str(p.pid)); time.sleep(60)"
    )
    subject = script(text)()
    with pytest.raises(TimeLimit):
        subject.logits(CASE.ids)
    pid = int((own / "pid").read_text("utf-8"))
    state = Path(f"/proc/{pid}/stat")
    time.sleep(0.2)
    assert not state.exists() or ") Z " in state.read_text("utf-8")


@pytest.mark.parametrize(
    "name",
    [
        "exec:",
        "exec:'",
        "exec:./no-such-program --flag",
        f"exec:{sys.executable} -c pass",
        f"exec:{sys.executable} -c print(3)",
        "offline:nowhere",
        "offline:.",
    ],
)
@pytest.mark.usefixtures("own")
def test_what_is_no_program_is_bad_input(name: str, capsys: Output) -> None:
    assert cli.main(["verify", "--decoder", name]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_a_program_that_dies_in_a_case_fails_that_case_alone(own: Path) -> None:
    (own / "dying.py").write_text(
        "import os\nfrom ladder_subjects import ScalarSubject\n"
        "class Dying(ScalarSubject):\n"
        "    def loss_and_gradients(self, *batch):\n"
        "        if not os.path.exists('ok'): os._exit(4)\n"
        "        return super().loss_and_gradients(*batch)\n",
        encoding="utf-8",
    )
    (own / "ok").touch()
    name = f"{SERVE} dying:Dying"
    make = program_subjects(name[5:], LIMITS)
    (own / "ok").unlink()
    outcome = laws.REGISTRY["truth.loss"](make(), 2)
    assert "raised Crashed: it ended with exit code 4" in str(outcome.difference)
    assert laws.REGISTRY["truth.logits"](make(), 2).holds


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_printed(name: str, capsys: Output) -> None:
    assert cli.main(["adapter", name]) == 0
    assert capsys.readouterr().out == text_of(name)


@pytest.mark.parametrize("name", ["object", "program", "offline"])
def test_a_template_is_short(name: str) -> None:
    assert sum(1 for line in text_of(name).splitlines() if line.strip()) <= 24


@pytest.mark.parametrize(
    "decoder", ["ladder_object:Subject", f"exec:{sys.executable} ladder_program.py"]
)
def test_a_template_runs(decoder: str, own: Path, capsys: Output) -> None:
    arguments = ["verify", "--decoder", decoder, "--law", "*.[pr]*-*"]
    assert (cli.main(arguments), capsys.readouterr().err) == (0, "")
    assert own.joinpath("port.py").exists()


def test_the_offline_template_runs(own: Path) -> None:
    exported = ["export-requests", "dir", "--claims", "forward,padded,packed", "--law", "truth.l*"]
    assert cli.main(exported) == 0
    assert os.system(f"{sys.executable} ladder_offline.py dir") == 0  # noqa: S605
    code, facts = verdicts("judge", "dir")
    assert code == 0
    assert facts["levels"]["forward"] == "holds"
    assert facts["levels"]["loss"] == "not claimed"
    assert own.joinpath("dir", "answers.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "lines", "words"),
    [
        ((), "", "the name of one decoder is wanted"),
        (("unheard:make",), "", "No module named 'unheard'"),
        (("scalar",), "no JSON\n", "no JSON"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(
    arguments: tuple[str, ...], lines: str, words: str
) -> None:
    command = [sys.executable, "-m", "logitproof.properties.adapters.serve", *arguments]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_nothing_is_served_where_nothing_can_be_decided(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def flushing(*_: object) -> object:
        raise HarnessError("subnormal numbers are flushed to zero")

    monkeypatch.setattr(serve, "maker", flushing)
    assert serve.main(["scalar"]) == 2
    assert capsys.readouterr() == ("", "subnormal numbers are flushed to zero\n")
