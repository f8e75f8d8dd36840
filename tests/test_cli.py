"""The entry point: what a wrong call says, what is imported, how a call ends."""

import importlib
import shlex
import subprocess
import sys

import pytest

import logitproof
from logitproof.properties import cli

# A command planted in a child: it prints, or raises, what the test names.
PLANTED = """
import sys, types
from logitproof.core.errors import Code, ShapeRefusal
from logitproof.properties import cli
module = types.ModuleType("planted")
module.add_arguments = lambda parser: None
def run(args):
    {body}
module.run = run
sys.modules["planted"] = module
cli.COMMANDS["planted"] = ("planted", "a planted command")
sys.exit(cli.main(["planted"]))
"""


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logitproof", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def planted(body: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PLANTED.format(body=body)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [(), ("unheard-of",), ("--verbose",), ("verify", "--unheard-of"), ("ver",), ("a\nb",)],
    ids=["none", "command", "option", "option-of-a-command", "abbreviation", "two-lines"],
)
def test_a_wrong_call_is_one_line_and_code_2(arguments: tuple[str, ...]) -> None:
    done = call(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("logitproof")


def test_a_wrong_call_returns_its_code_in_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["unheard-of"]) == 2
    assert capsys.readouterr().out == ""


def test_the_version_is_printed() -> None:
    assert call("--version").stdout == f"logitproof {logitproof.__version__}\n"


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_the_help_lists_every_command(name: str) -> None:
    assert f"    {name}" in [line[: 4 + len(name)] for line in call("--help").stdout.splitlines()]


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_its_module(name: str) -> None:
    module = importlib.import_module(cli.COMMANDS[name][0])
    assert callable(module.add_arguments)
    assert callable(module.run)


def test_the_entry_point_imports_no_command() -> None:
    text = "import sys; from logitproof.properties import cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    )
    assert {module for module, _ in cli.COMMANDS.values()} & {*loaded.stdout.split()} == set()


@pytest.mark.parametrize(
    "body",
    [
        "raise ShapeRefusal(code=Code.RAGGED_IDS, what='planted', expected=1, actual=2)",
        "raise FileNotFoundError(2, 'two\\nlines', 'planted')",
    ],
    ids=["refusal", "missing-file"],
)
def test_a_refused_call_is_one_line_and_code_2(body: str) -> None:
    done = planted(body.replace("\n", "\\n"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("body", "code"), [("return 0", 0), ("return 1", 1), ("raise KeyboardInterrupt", 130)]
)
def test_a_call_ends_with_its_code_and_in_silence(body: str, code: int) -> None:
    done = planted(body)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_reader_that_left_ends_the_call_in_silence() -> None:
    command = [sys.executable, "-c", PLANTED.format(body="print('x' * 10**6); return 0")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


def in_shell(line: str) -> subprocess.CompletedProcess[str]:
    """`line` in a shell, where LOGITPROOF is the command."""
    command = f"{shlex.quote(sys.executable)} -m logitproof"
    return subprocess.run(
        ["/bin/sh", "-c", line.replace("LOGITPROOF", command)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", ["demo model-ops", "--version", "--help", "demo --help"])
@pytest.mark.parametrize("closed", [">&-", ">/dev/full"])
def test_a_report_that_cannot_be_printed_is_one_line_and_code_2(
    arguments: str, closed: str
) -> None:
    done = in_shell(f"LOGITPROOF {arguments} {closed}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("logitproof: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full", ">&- 2>&-", ">/dev/full 2>&-"])
def test_a_complaint_that_cannot_be_printed_leaves_its_code(closed: str) -> None:
    done = in_shell(f"LOGITPROOF bogus {closed}")
    assert done.returncode != 0
    assert (done.stdout, done.stderr) == ("", "")


def test_a_report_needs_no_standard_error() -> None:
    done = in_shell("LOGITPROOF demo embeddings 2>&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == call("demo", "embeddings").stdout


def test_a_missing_standard_error_does_not_move_a_complaint() -> None:
    command = [
        sys.executable,
        "-c",
        PLANTED.format(body="print('seen', file=sys.stderr); return 1"),
    ]
    line = f"{shlex.join(command)} 2>&-"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
