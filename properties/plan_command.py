"""`logitproof plan MODEL RUN`: what two records ask for, before anything is allocated."""

import argparse
import json
import shutil
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
    parser.add_argument("--json", metavar="FILE", help="write the same facts to a file")


def run(args: argparse.Namespace) -> int:
    """Prints the plan; 0 for a complete plan, 1 for a refused one that had to be admissible."""
    _check_files(args)
    model, run_record, notes = _records(args)
    planned = plan(model, run_record, args.mode)
    columns = shutil.get_terminal_size((plan_table.NARROW, 24)).columns
    width = min(max(columns, plan_table.NARROW), plan_table.WIDE)
    text = "\n".join((*plan_table.lines(planned, width=width), *_noted(notes, width)))
    file = None if args.json is None else Path(args.json)
    deliver(text.lstrip("\n"), file=file, facts=_json(planned, notes))
    return REFUSED if args.require_admissible and not planned.admissible else 0


def read_model(name: str) -> ModelRecord:
    """The model of a scale name, or of a record file."""
    if name in SCALES or not _is_file(name):
        return ModelRecord.scale(name)
    return ModelRecord.from_bytes(bounded(Path(name)))


def read_run(name: str) -> RunRecord:
    """The run of a profile name, or of a record file."""
    if name in PROFILES or not _is_file(name):
        return RunRecord.fixture(name)
    return RunRecord.from_bytes(bounded(Path(name)))


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


def _is_file(name: str) -> bool:
    """Whether a name that is not built in is meant as a file; one that looks like a path is."""
    return Path(name).exists() or Path(name).name != name or Path(name).suffix == ".json"


def _check_files(args: argparse.Namespace) -> None:
    """Refuses empty names, and a report that would replace what it is made from."""
    named = {"MODEL": args.model, "RUN": args.run, "--from-config": args.from_config}
    for place, name in {**named, "--json": args.json}.items():
        if name == "":
            raise UsageError(f"logitproof plan: {place} is empty")
    if args.json is None or not Path(args.json).exists():
        return
    for place, name in named.items():
        if name is not None and Path(name).exists() and Path(args.json).samefile(name):
            raise UsageError(f"logitproof plan: --json would replace the input {place}, {name}")


def _given(argument: str | None, name: str) -> str:
    if argument is None:
        raise UsageError(f"logitproof plan: {name} is missing: a name or a record file")
    return argument


def _noted(notes: tuple[str, ...], width: int) -> list[str]:
    told = [line for note in notes for line in plan_table.wrapped(note, width=width)]
    return ["", "notes", *told] if notes else []


def _json(planned: Plan, notes: tuple[str, ...]) -> str:
    report = planned.as_json()
    return json.dumps({**report, "notes": list(notes)} if notes else report, indent=2) + "\n"
