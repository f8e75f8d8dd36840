"""`logitproof COMMAND …`: the entry point; each command lives in its own module."""

import argparse
import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol, cast

from logitproof import __version__
from logitproof.core.errors import Refusal

# Name -> (module, one line of help). The module is imported when its command is called.
COMMANDS = {
    "verify": (
        "logitproof.properties.verify.command",
        "check the published figures, digests and laws",
    ),
    "detect": (
        "logitproof.properties.detect_command",
        "tell which conventions a decoder follows",
    ),
    "replay": ("logitproof.properties.verify.replay", "try again the case that a law failed in"),
    "export-requests": (
        "logitproof.properties.adapters.export_command",
        "write what the laws would ask a decoder that runs elsewhere",
    ),
    "judge": (
        "logitproof.properties.adapters.judge_command",
        "try the laws on the answers that came back",
    ),
    "adapter": (
        "logitproof.properties.adapters.template_command",
        "print a template to start from, or the protocol",
    ),
    "laws": ("logitproof.properties.law_command", "list the laws, or explain one"),
    "faults": ("logitproof.properties.fault_command", "list planted faults, or see who sees them"),
    "golden": ("logitproof.golden.command", "check the golden set, or derive it anew"),
    "plan": ("logitproof.properties.plan_command", "plan two records before anything is allocated"),
    "bench": ("logitproof.properties.bench.command", "time the decoder beside its peers"),
    "demo": (
        "logitproof.properties.demos.command",
        "print a published report, every figure computed",
    ),
}

USAGE = 2  # bad input or usage
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
BROKEN_PIPE = 141  # 128 + SIGPIPE, likewise
LONGEST_LINE = 2000  # characters of a complaint


class Command(Protocol):
    """What the module of a command offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the command's own arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Does the command's work and returns the exit code: 0 all holds, 1 something is false."""


class UsageError(Exception):
    """The command line is wrong."""


class HarnessError(Exception):
    """Nothing can be decided here, whatever the decoder does."""


class Parser(argparse.ArgumentParser):
    """An argument parser that complains by raising, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Raises the complaint, the command's name before it."""
        raise UsageError(f"{self.prog}: {message}")


def complain(fact: object) -> int:
    """Writes one bounded line, whatever breaks the fact carries, to standard error if it can."""
    line = " ".join(str(fact).split()).encode("utf-8", "backslashreplace").decode("utf-8")
    shown = line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
    with contextlib.suppress(OSError):
        print(shown, file=sys.stderr)
    return USAGE


def deliver(report: str, *, file: Path | None, facts: str) -> None:
    """Prints the report, then puts the facts in FILE, which stays as it was where either fails.

    Raises OSError: before anything is printed where FILE cannot be written.
    """
    if file is None or (file.exists() and not file.is_file() and not file.is_dir()):
        print(report, flush=True)
        if file is not None:  # a device or a pipe is written to, never replaced
            file.write_text(facts, encoding="utf-8", newline="\n")
        return
    target = Path(os.path.realpath(file))
    draft = target.with_name(f".logitproof-{os.getpid()}.json")
    try:
        _draft(facts, draft, target)
        print(report, flush=True)
        draft.replace(target)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _draft(facts: str, draft: Path, target: Path) -> None:
    """Writes the draft. Raises OSError that names the target, where it could not be replaced."""
    try:
        if target.exists():
            target.open("ab").close()
        with draft.open("x", encoding="utf-8", newline="\n") as out:
            out.write(facts)
    except OSError as fact:
        raise OSError(fact.errno, fact.strerror, str(target)) from fact


def command_module(name: str) -> Command:
    """The module behind a command's name."""
    module, _ = COMMANDS[name]
    return cast("Command", importlib.import_module(module))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; only the module of the command called is imported."""
    parser = Parser(
        prog="logitproof",
        description="Is my decoder right, and if not, where is it wrong?",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, summary) in COMMANDS.items():
        own = subparsers.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name in argv[:1]:
            command_module(name).add_arguments(own)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    0: all holds. 1: something is false or undecidable. 2: bad input or usage, one line on
    standard error and nothing on standard output. A closed standard output is bad usage.
    """
    if sys.stderr is None:  # closed; print would take standard output in its place
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the exit
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed")
        code = _called(sys.argv[1:] if argv is None else argv)
        print(end="", flush=True)  # a reader that left is noticed here, not at exit
    except BrokenPipeError:
        _settle()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError as wrong:
        return complain(wrong)
    except (Refusal, OSError, HarnessError) as fact:
        _settle()
        return complain(f"logitproof: {fact}")
    except BaseException as end:
        if isinstance(end, Exception):
            raise  # a mistake of ours, to be seen whole
        _settle()  # what a decoder gave may run code of its own wherever it is looked at
        return complain(f"logitproof: the decoder raised {type(end).__name__}: {end}")
    return code


def _called(argv: Sequence[str]) -> int:
    """The exit code of the command called; 0 where help or version was asked for and printed."""
    try:
        args = parse(argv)
    except SystemExit:
        return 0
    return command_module(args.command).run(args)


def _settle() -> None:
    """Lets what standard output did not take go nowhere: the interpreter flushes again at exit."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
