"""`logitproof export-requests DIR`: what the laws would ask a decoder that runs elsewhere."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from hypothesis import settings

from logitproof.properties import laws, profiles
from logitproof.properties.cli import HarnessError, UsageError
from logitproof.properties.laws.levels import ASSUMED

from .arrays import ENCODINGS
from .calls import CARRIED, LIVE
from .folder import ANSWERS, MANIFEST, REQUESTS, Manifest, files_of
from .hello import FUNCTIONS
from .offline import Incomplete, recorded

__all__ = ["add_arguments", "run"]

PROFILES = ("quick", "ci", "soak")
CLAIMABLE = tuple(name for name in CARRIED if name not in LIVE)
SEED = re.compile(r"[0-9]{1,20}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the folder, which cases of which laws, and what the decoder claims."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="a folder, new or empty")
    parser.add_argument("--profile", choices=PROFILES, default=PROFILES[0])
    parser.add_argument("--law", metavar="GLOB", default="*", help="only the laws that match")
    parser.add_argument("--seed", metavar="N", help="draw other cases than the fixed ones")
    parser.add_argument(
        "--claims",
        metavar="NAMES",
        default=",".join(ASSUMED),
        help=f"what it can do, with commas, of {', '.join(CLAIMABLE)} (default: %(default)s)",
    )
    parser.add_argument(
        "--functions", choices=FUNCTIONS, default=FUNCTIONS[0], help="its elementary functions"
    )
    parser.add_argument("--encoding", choices=ENCODINGS, default=ENCODINGS[0], help="of arrays")


def run(args: argparse.Namespace) -> int:
    """Writes the folder, whole, and says what it holds. 0.

    Raises UsageError for arguments that make no sense, OSError for a folder that holds something
    or cannot be written, HarnessError where our own decoder cannot be asked to the end.
    """
    chosen = [law for id_, law in laws.REGISTRY.items() if fnmatchcase(id_, args.law)]
    if not chosen:
        raise UsageError(f"logitproof export-requests: no law matches {args.law!r}")
    manifest = _manifest(args)
    if args.folder.exists() and (not args.folder.is_dir() or any(args.folder.iterdir())):
        raise UsageError(f"logitproof export-requests: {args.folder} is not a new or empty folder")
    try:
        requests = recorded(
            chosen, manifest.capabilities, manifest.conventions,
            examples=manifest.examples, seed=manifest.seed, encoding=manifest.encoding,
        )  # fmt: skip
    except Incomplete as fact:
        raise HarnessError(str(fact)) from fact
    files = files_of(manifest, requests)
    _write(args.folder, files)
    size = sum(map(len, files.values()))
    print(
        f"{args.folder}: {len(requests.lines)} requests, {size} bytes. Answer each line of"
        f" {REQUESTS} in {ANSWERS} beside it, then: logitproof judge {args.folder}"
    )
    return 0


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """The manifest last: without it nothing counts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (REQUESTS, MANIFEST):
        (folder / name).write_bytes(files[name])


def _manifest(args: argparse.Namespace) -> Manifest:
    names = [name for name in args.claims.split(",") if name]
    unknown = [name for name in names if name not in CLAIMABLE]
    if unknown:
        raise UsageError(f"logitproof export-requests: no file of answers can claim {unknown[0]!r}")
    if args.seed is not None and not (SEED.fullmatch(args.seed) and int(args.seed) < 1 << 64):
        raise UsageError(
            f"logitproof export-requests: --seed {args.seed}: a whole number is wanted"
        )
    profiles.register()
    return Manifest(
        law=args.law,
        profile=args.profile,
        examples=settings.get_profile(args.profile).max_examples,
        seed=None if args.seed is None else int(args.seed),
        capabilities={name: name in names for name in CLAIMABLE},
        conventions={"functions": args.functions},
        encoding=args.encoding,
    )
