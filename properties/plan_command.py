"""`logitproof plan MODEL RUN`: what two records ask for, before anything is allocated."""

import argparse
import json
from pathlib import Path

from logitproof.core import canonical, modes
from logitproof.core.planned import Plan
from logitproof.core.planner import plan
from logitproof.core.profiles import PROFILES
from logitproof.core.records import SCALES, ModelRecord, RunRecord
from logitproof.properties.cli import UsageError, deliver

from . import config_json, plan_table

# The run of a foreign configuration, unless one is named: it plans and executes nothing.
CONFIG_RUN = "production-plan-only"
REFUSED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of the command."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help=f"a scale ({', '.join(SCALES)}) or a record file"
    )
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help=f"a profile ({', '.join(PROFILES)}) or a record file"
    )
    parser.add_argument(
        "--from-config",
        metavar="FILE",
        help="read the model from the config.json of a checkpoint; RUN alone may follow",
    )
    parser.add_argument("--mode", default=modes.MODES[0], help=f"one of {', '.join(modes.MODES)}")
    parser.add_argument(
        "--require-admissible", action="store_true", help="exit with 1 when the plan is refused"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the same facts to a file")


def run(args: argparse.Namespace) -> int:
    """Prints the plan; 0 for a complete plan, 1 for a refused one that had to be admissible."""
    model, run_record, notes = _records(args)
    planned = plan(model, run_record, args.mode)
    text = "\n".join((*plan_table.lines(planned), *_noted(notes)))
    deliver(text.lstrip("\n"), file=args.json, facts=_json(planned, notes))
    return REFUSED if args.require_admissible and not planned.admissible else 0


def read_model(name: str) -> ModelRecord:
    """The model of a scale name, or of a record file."""
    if name not in SCALES and Path(name).exists():
        return ModelRecord.from_bytes(bounded(Path(name)))
    return ModelRecord.scale(name)


def read_run(name: str) -> RunRecord:
    """The run of a profile name, or of a record file."""
    if name not in PROFILES and Path(name).exists():
        return RunRecord.from_bytes(bounded(Path(name)))
    return RunRecord.fixture(name)


def bounded(path: Path) -> bytes:
    """The bytes of a file, at most one more than a record may have."""
    with path.open("rb") as file:
        return file.read(canonical.MAX_BYTES + 1)


def _records(args: argparse.Namespace) -> tuple[ModelRecord, RunRecord, tuple[str, ...]]:
    """Both records, and notes on a foreign configuration."""
    if args.from_config is None:
        model = read_model(_given(args.model, "MODEL"))
        return model, read_run(_given(args.run, "RUN")), ()
    if args.run is not None:
        raise UsageError("logitproof plan: beside --from-config stands RUN alone")
    name = CONFIG_RUN if args.model is None else args.model
    reading = config_json.read(bounded(Path(args.from_config)))
    return reading.record, read_run(name), (*reading.notes, f"planned for the run {name}")


def _given(argument: str | None, name: str) -> str:
    if argument is None:
        raise UsageError(f"logitproof plan: {name} is missing: a name or a record file")
    return argument


def _noted(notes: tuple[str, ...]) -> tuple[str, ...]:
    return ("", "notes", *(f"  {note}" for note in notes)) if notes else ()


def _json(planned: Plan, notes: tuple[str, ...]) -> str:
    report = planned.as_json()
    return json.dumps({**report, "notes": list(notes)} if notes else report, indent=2) + "\n"
