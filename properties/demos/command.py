"""`logitproof demo NAME [--trace] [--json FILE]`: prints one published report.

A demo is a module with `report()`, which computes every fact or raises Disagreement,
`report_lines(facts)`, and `trace_lines(facts)` where it has a trace.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

from logitproof.properties.cli import UsageError, deliver

from .agreement import Disagreement

# Name -> module; imported when its demo is called.
DEMOS = {
    "input-boundary": "logitproof.properties.demos.input_boundary",
    "configured-core": "logitproof.properties.demos.configured_core",
    "model-ops": "logitproof.properties.demos.model_ops",
    "embeddings": "logitproof.properties.demos.embeddings",
}

FALSE = 1  # something is false


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the name of the demo, and how its facts are to be shown."""
    parser.add_argument("name", metavar="NAME", choices=tuple(DEMOS), help=", ".join(DEMOS))
    parser.add_argument(
        "--trace", action="store_true", help="the records behind the report, in its place"
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="write the computed facts to FILE too"
    )


def run(args: argparse.Namespace) -> int:
    """Computes and compares everything, then prints and writes. 0, or 1 on a disagreement.

    Raises UsageError for `--trace` where a demo has none, and OSError before anything is
    printed where FILE cannot be written.
    """
    demo = importlib.import_module(DEMOS[args.name])
    if args.trace and not hasattr(demo, "trace_lines"):
        raise UsageError(f"logitproof demo: {args.name} has no trace")
    try:
        facts = demo.report()
    except Disagreement as disagreement:
        print(f"logitproof demo: {args.name}: {disagreement}", file=sys.stderr)
        return FALSE
    shown = demo.trace_lines(facts) if args.trace else demo.report_lines(facts)
    text = json.dumps(facts, indent=2, allow_nan=False) + "\n"
    deliver("\n".join(shown), file=args.json, facts=text)
    return 0
