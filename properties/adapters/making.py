"""What makes a decoder under test that is asked by messages, from its name on a command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from logitproof.properties.cli import UsageError

from .folder import read_folder
from .offline import offline_subject
from .program import Limits, program_subjects
from .remote import AdapterFault, Remote

__all__ = ["PREFIXES", "messaged"]

PREFIXES = ("exec:", "offline:")


def messaged(name: str, seconds: float) -> Callable[[], Remote] | None:
    """For `exec:COMMAND` or `offline:DIR` what makes a decoder; None for another name.

    Raises UsageError for a command that cannot be started or does not speak the protocol, and for
    a folder without requests and answers that fit.
    """
    kind, colon, rest = name.partition(":")
    if f"{kind}{colon}" == "offline:":
        folder = read_folder(Path(rest))
        own = folder.manifest
        return offline_subject(folder.answers, own.capabilities, own.conventions)
    if f"{kind}{colon}" != "exec:":
        return None
    try:
        return program_subjects(rest, Limits(seconds=seconds))
    except (ValueError, OSError) as wrong:
        raise UsageError(f"--decoder {name}: {wrong}") from wrong
    except AdapterFault as fault:
        raise UsageError(f"--decoder {name}: {type(fault).__name__}: {fault}") from fault
