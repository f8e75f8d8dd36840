"""`logitproof COMMAND …`: the entry point; each command lives in its own module."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from logitproof import __version__
from logitproof.core.errors import Refusal

# Name -> (module, one line of help). The module is imported when its command is called.
COMMANDS = {
    "verify": (
        "logitproof.properties.verify.command",
        "check the published figures, digests and laws",
    ),
    "replay": ("logitproof.properties.verify.replay", "try again the case that a law failed in"),
    "laws": ("logitproof.properties.law_command", "list the laws, or explain one"),
    "faults": ("logitproof.properties.fault_command", "list planted faults, or see who sees them"),
    "golden": ("logitproof.golden.command", "check the golden set, or derive it anew"),
    "plan": ("logitproof.properties.plan_command", "plan two records before anything is allocated"),
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
    """Writes one bounded line, whatever line breaks the fact carries, to standard error."""
    line = " ".join(str(fact).split())
    print(line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…", file=sys.stderr)
    return USAGE


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
    standard error and nothing on standard output.
    """
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
        code = command_module(args.command).run(args)
        print(end="", flush=True)  # a reader that left is noticed here, not at exit
    except BrokenPipeError:
        # The interpreter flushes once more at exit; let it write to nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except UsageError as wrong:
        return complain(wrong)
    except (Refusal, OSError, HarnessError) as fact:
        return complain(f"logitproof: {fact}")
    return code
