"""What makes a decoder under test that is asked by messages, from its name on a command line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from logitproof.properties.cli import UsageError

from .folder import read_folder
from .offline import offline_subject
from .program import Limits, program_subjects
from .remote import AdapterFault, Remote

__all__ = ["PREFIXES", "messaged"]

PREFIXES = ("exec:", "process:", "offline:")
SERVER = "logitproof.properties.adapters.serve"


def messaged(name: str, seconds: float) -> Callable[[], Remote] | None:
    """For `exec:COMMAND`, `process:NAME` or `offline:DIR` what makes a decoder; else None.

    A process asks the Python decoder of that name as a program: ended when it is slow or dies.

    Raises UsageError for a command that cannot be started or does not speak the protocol, and for
    a folder without requests and answers that fit.
    """
    kind, colon, rest = name.partition(":")
    if f"{kind}{colon}" == "offline:":
        try:
            folder = read_folder(Path(rest))
        except ValueError as wrong:  # a name that no folder can have
            raise UsageError(f"--decoder {name}: {wrong}") from wrong
        own = folder.manifest
        return offline_subject(folder.answers, own.capabilities, own.conventions)
    if f"{kind}{colon}" == "process:":
        rest = shlex.join([sys.executable, "-m", SERVER, rest])
    elif f"{kind}{colon}" != "exec:":
        return None
    try:
        return program_subjects(rest, Limits(seconds=seconds))
    except (ValueError, OSError) as wrong:
        raise UsageError(f"--decoder {name}: {wrong}") from wrong
    except AdapterFault as fault:
        raise UsageError(f"--decoder {name}: {type(fault).__name__}: {fault}") from fault
