"""`logitproof golden check|list|diff|regenerate|export`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from logitproof.properties.cli import UsageError

from . import check, export, load, regenerate

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
    diffs = actions.add_parser("diff", help="what regeneration would change; writes nothing else")
    renews = actions.add_parser("regenerate", help="derive every case anew into a side folder")
    renews.add_argument(
        "--accept", metavar="ID", action="extend", nargs="+", default=[],
        help="then replace these cases (wildcards allowed) in the files themselves",
    )  # fmt: skip
    renews.add_argument(
        "--seal", action="store_true",
        help="enter worked cases, flags and schema into the manifest as they lie there",
    )  # fmt: skip
    for action in (diffs, renews):
        action.add_argument("--side", type=Path, default=SIDE, metavar="DIR",
                            help="the side folder (default: %(default)s)")  # fmt: skip
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
    actions = {"check": _check, "list": _list, "diff": _diff, "regenerate": _regenerate}
    return actions[args.action](args, root)


def _check(args: argparse.Namespace, root: Path) -> int:
    unknown = sorted(set(args.subjects) - set(load.subjects(root)))
    if unknown:
        raise UsageError(f"logitproof golden check: no file holds {', '.join(unknown)}")
    report = check.check(root, subjects=args.subjects, progress=_progress)
    _progress("")
    _write(args, report.facts())
    for finding in report.findings[:SHOWN]:
        print(finding)
    if len(report.findings) > SHOWN:
        print(f"… and {len(report.findings) - SHOWN} more")
    if report.first:
        print(f"first operation that differs: {report.first}")
    counted = ", ".join(f"{n} {origin}" for origin, n in report.counts.items())
    verdict = "nothing differs" if report.holds else f"{len(report.findings)} findings"
    print(f"golden set {report.version}: {report.cases} cases ({counted}); {verdict}")
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
    _write(args, {"format": "logitproof-golden-list-v1", "cases": facts})
    for case in cases:
        print(f"{case.id}  {case.origin}, {case.strength}: {case.why}")
    counted = Counter(case.subject for case in cases)
    print(f"{len(cases)} cases in {len(counted)} files")
    return 0


def _readable(root: Path) -> list[load.Case]:
    try:
        return load.read(root=root)
    except ValueError as fault:
        raise UsageError(f"logitproof golden: {fault}") from None


def _diff(args: argparse.Namespace, root: Path) -> int:
    changes = _proposed(args, root)
    _tell(args, changes, [])
    return FALSE if changes else 0


def _regenerate(args: argparse.Namespace, root: Path) -> int:
    try:
        sealed = regenerate.seal(root) if args.seal else []
        changes = _proposed(args, root)
        taken = regenerate.accept(args.accept, args.side, root) if args.accept else []
    except ValueError as fault:
        raise UsageError(f"logitproof golden regenerate: {fault}") from None
    if sealed:
        print(f"{len(sealed)} cases entered into the manifest: {', '.join(sealed[:SHOWN])}")
    _tell(args, changes, taken)
    return 0 if {change.id for change in changes} <= set(taken) else FALSE


def _proposed(args: argparse.Namespace, root: Path) -> list[regenerate.Change]:
    if args.side.resolve() == root.resolve():
        raise UsageError("logitproof golden: the side folder is the folder of cases")
    try:
        changes = regenerate.propose(args.side, root, _progress)
    except ValueError as fault:
        raise UsageError(f"logitproof golden: {fault}") from None
    _progress("")
    return changes


def _tell(args: argparse.Namespace, changes: list[regenerate.Change], taken: list[str]) -> None:
    facts = [
        {"id": c.id, "kind": c.kind, "leaves": [list(leaf) for leaf in c.leaves]} for c in changes
    ]
    first = check.first_operation([pair for change in changes for pair in change.apart])
    whole = {"changes": facts, "accepted": taken, "first": first}
    _write(args, {"format": "logitproof-golden-diff-v1", **whole})
    for change in changes:
        lines = list(change.lines())
        print("\n".join(lines[: SHOWN + 1]))
        if len(lines) > SHOWN + 1:
            print(f"  … and {len(lines) - SHOWN - 1} more")
    if first:
        print(f"first operation that differs: {first}")
    print(f"{len(changes)} derived cases differ from the files; {len(taken)} replaced")
    if changes and not taken:
        print(f"the new files lie in {args.side}")


def _write(args: argparse.Namespace, facts: dict[str, Any]) -> None:
    if args.json is not None:
        text = json.dumps(facts, indent=2, allow_nan=False) + "\n"
        args.json.write_text(text, encoding="utf-8", newline="\n")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
