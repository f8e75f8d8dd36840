"""`logitproof judge DIR`: the laws over the answers that a decoder gave elsewhere."""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from logitproof.properties import laws
from logitproof.properties.verify.command import add_outputs, checked_outputs, concluded
from logitproof.properties.verify.environment import check_subnormals
from logitproof.properties.verify.running import Plan
from logitproof.properties.verify.subject import check_adapter, maker

from .folder import read_folder
from .selftest import selftest

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the folder, and where the facts go."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="written by export-requests")
    add_outputs(parser)


def run(args: argparse.Namespace) -> int:
    """Judges as `verify` does. 0, or 1 on a failure; what has no answer fails.

    Raises UsageError for a folder whose answers do not fit its requests, and what `verify` raises.
    """
    check_subnormals("at the start")
    outputs = checked_outputs(args)
    folder = read_folder(args.folder)
    own, name = folder.manifest, f"offline:{args.folder}"
    if folder.missing:
        first = folder.missing[0]
        print(
            f"logitproof judge: {len(folder.missing)} of {len(folder.asked)} requests have no"
            f" answer, the first is {folder.asked[first]} {first}",
            file=sys.stderr,
        )
    make = maker(name)
    if not folder.missing:
        check_adapter(name, selftest(make))
    chosen = {id_: law for id_, law in laws.REGISTRY.items() if fnmatchcase(id_, own.law)}
    plan = Plan(decoder=name, examples=own.examples, seed=own.seed, shrinks=False)
    args.profile = own.profile
    return concluded(chosen, make, plan, args, outputs)
