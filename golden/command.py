"""`logitproof golden check|list|diff|regenerate|export`."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from logitproof.properties.cli import UsageError, deliver

from . import check, export, load, regenerate, staged, write

__all__ = ["add_arguments", "run"]

FALSE = 1
SIDE = Path("golden-proposal")
SHOWN = 12  # findings, or leaves of one case, that are printed; a file of facts holds all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the five actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    checks = actions.add_parser("check", help="compare core, scalar decoder and files")
    checks.add_argument("subjects", nargs="*", metavar="SUBJECT", help="only these files")
    lists = actions.add_parser("list", help="the cases, by file")
    lists.add_argument("--flag", metavar="FLAG", help="only cases that expose this mistake")
    lists.add_argument("--origin", choices=load.ORIGINS)
    diffs = actions.add_parser("diff", help="what regeneration would change; writes no case")
    renews = actions.add_parser("regenerate", help="derive every case anew into a side folder")
    renews.add_argument(
        "--accept", metavar="ID", action="extend", nargs="+", default=[],
        help="then replace these cases (wildcards allowed) in the files themselves",
    )  # fmt: skip
    renews.add_argument(
        "--seal", action="store_true",
        help="enter worked cases, flags and schema into the manifest as they lie there",
    )  # fmt: skip
    renews.add_argument(
        "--side", type=Path, default=SIDE, metavar="DIR",
        help="the side folder: new, empty or one of before (default: %(default)s)",
    )  # fmt: skip
    for action in (checks, lists, diffs, renews):
        action.add_argument("--root", type=Path, metavar="DIR",
                            help="the folder of cases (default: the one shipped)")  # fmt: skip
        action.add_argument("--json", type=Path, metavar="FILE", help="write the facts to FILE too")
    export.add_export_arguments(
        actions.add_parser("export", help="write the hand-over pack for a decoder in any language")
    )


def run(args: argparse.Namespace) -> int:
    """0: nothing differs. 1: something does. 2: bad usage, or files that cannot be read."""
    if args.action == "export":
        return export.run_export(args)
    root = args.root or load.folder()
    if not root.is_dir():
        raise UsageError(f"logitproof golden: {root} is no folder")
    _check_place(args.json)
    actions = {"check": _check, "list": _list, "diff": _diff, "regenerate": _regenerate}
    return actions[args.action](args, root)


def _check(args: argparse.Namespace, root: Path) -> int:
    unknown = sorted(set(args.subjects) - set(load.subjects(root)))
    if unknown:
        raise UsageError(f"logitproof golden check: no file holds {', '.join(unknown)}")
    report = check.check(root, subjects=args.subjects, progress=_progress)
    _progress("")
    lines = [str(finding) for finding in report.findings[:SHOWN]]
    if len(report.findings) > SHOWN:
        lines.append(f"… and {len(report.findings) - SHOWN} more")
    if report.first:
        lines.append(f"first operation that differs: {report.first}")
    counted = ", ".join(f"{n} {origin}" for origin, n in report.counts.items())
    verdict = "nothing differs" if report.holds else f"{len(report.findings)} findings"
    lines.append(f"golden set {report.version}: {report.cases} cases ({counted}); {verdict}")
    if report.unreadable:
        raise UsageError(f"logitproof golden check: cannot read {report.unreadable}")
    _deliver(args, lines, report.facts())
    return 0 if report.holds else FALSE


def _list(args: argparse.Namespace, root: Path) -> int:
    cases = [
        case
        for case in _readable(root)
        if args.flag in (None, *case.flags) and args.origin in (None, case.origin)
    ]
    facts = [
        {"id": c.id, "origin": c.origin, "strength": c.strength, "flags": list(c.flags)}
        for c in cases
    ]
    lines = [f"{case.id}  {case.origin}, {case.strength}: {case.why}" for case in cases]
    counted = Counter(case.subject for case in cases)
    lines.append(f"{len(cases)} cases in {len(counted)} files")
    _deliver(args, lines, {"format": "logitproof-golden-list-v1", "cases": facts})
    return 0


def _readable(root: Path) -> list[load.Case]:
    try:
        return load.read(root=root)
    except ValueError as fault:
        raise UsageError(f"logitproof golden: {fault}") from None


def _diff(args: argparse.Namespace, root: Path) -> int:
    changes = _proposed(None, root)
    _tell(args, changes, [], [])
    return FALSE if changes else 0


def _regenerate(args: argparse.Namespace, root: Path) -> int:
    notes: list[str] = []
    try:
        if args.accept or args.seal:
            notes += _finished(root)
        sealed = regenerate.seal(root) if args.seal else []
        changes = _proposed(args.side, root)
        taken = regenerate.accept(args.accept, args.side, root) if args.accept else []
    except ValueError as fault:
        raise UsageError(f"logitproof golden regenerate: {fault}") from None
    if sealed:
        named = ", ".join(sealed[:SHOWN]) + (", …" if len(sealed) > SHOWN else "")
        notes.append(f"{len(sealed)} cases entered into the manifest: {named}")
    where = [f"the new files lie in {args.side}"] if changes and not taken else []
    _tell(args, changes, taken, notes, where)
    return 0 if {change.id for change in changes} <= set(taken) else FALSE


def _finished(root: Path) -> list[str]:
    """Makes good what an interruption has left, and says so."""
    with write.locked(root):
        names = staged.finish(root)
    return [f"an interrupted acceptance is finished: {', '.join(names)}"] if names else []


def _proposed(side: Path | None, root: Path) -> list[regenerate.Change]:
    try:
        changes = regenerate.propose(side, root, _progress)
    except ValueError as fault:
        raise UsageError(f"logitproof golden: {fault}") from None
    _progress("")
    return changes


def _tell(
    args: argparse.Namespace,
    changes: list[regenerate.Change],
    taken: list[str],
    before: Iterable[str],
    after: Iterable[str] = (),
) -> None:
    facts = [
        {"id": c.id, "kind": c.kind, "leaves": [list(leaf) for leaf in c.leaves]} for c in changes
    ]
    first = check.first_operation([pair for change in changes for pair in change.apart])
    lines = list(before)
    for change in changes:
        told = list(change.lines())
        lines += told[: SHOWN + 1]
        if len(told) > SHOWN + 1:
            lines.append(f"  … and {len(told) - SHOWN - 1} more")
    if first:
        lines.append(f"first operation that differs: {first}")
    lines.append(f"{len(changes)} derived cases differ from the files; {len(taken)} replaced")
    whole = {"changes": facts, "accepted": taken, "first": first}
    _deliver(args, [*lines, *after], {"format": "logitproof-golden-diff-v1", **whole})


def _deliver(args: argparse.Namespace, lines: Iterable[str], facts: dict[str, Any]) -> None:
    """The report on standard output, and the facts in their file."""
    report = "\n".join(lines).encode("utf-8", "backslashreplace").decode()
    text = json.dumps(facts, indent=2, allow_nan=False) + "\n"
    deliver(report, file=args.json, facts=text)


def _check_place(file: Path | None) -> None:
    """Before any work: whether the facts can go where they are wanted."""
    if file is None:
        return
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    folder = Path(os.path.realpath(file)).parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
