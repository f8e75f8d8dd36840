"""`python -m logitproof.properties.mutants.run FOLDER`: a sample of core's mutants, and who dies.

FOLDER gets a copy of the packages to work in, and a file of outcomes per state of their text: a run
that was stopped goes on where it stood.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import importlib
import json
import os
import py_compile
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .outcomes import Outcome, lines
from .sample import Mutant, changes_what_runs, drawn
from .tool import found, tested, text_of

__all__ = ["main"]

CPU_SECONDS = 60  # for one law: many times what any takes on a slow machine
WALL_SECONDS = 900.0  # for what sleeps instead of computing
KILLER = shlex.join(
    [sys.executable, "-m", "logitproof.properties.mutants.killer", str(CPU_SECONDS)]
)
PACKAGES = ("core", "properties", "golden")
IGNORED = ("__pycache__", "_root", *PACKAGES)


def main(argv: Sequence[str] | None = None) -> int:
    """Draws, tries what has no outcome yet, and prints the report.

    Returns: 1 where a mutant survived that is not known to be equivalent
    """
    args = _arguments(argv)
    tree = args.folder.resolve() / "tree"
    kept = args.folder / f"outcomes-{_copied(tree)[:12]}.jsonl"
    core = tree / "logitproof" / "core"
    known = {outcome.id: outcome for outcome in _read(kept)}
    sample = _sample(core, args.sample, args.seed)
    if args.survivors_of is not None:
        survivors = {outcome.id for outcome in _read(args.survivors_of) if not outcome.killed}
        sample = [mutant for mutant in sample if mutant.id in survivors]
    os.environ["PYTHONPATH"] = str(tree)  # before any installed package
    _check_unchanged(core)
    for number, mutant in enumerate(sample, 1):
        if mutant.id not in known:
            known[mutant.id] = _outcome(core, mutant)
            with kept.open("a", encoding="utf-8") as out:
                print(json.dumps(asdict(known[mutant.id])), file=out)
        outcome = known[mutant.id]
        print(f"{number}/{len(sample)} {outcome.end:<8} {outcome.law} {mutant.id}", flush=True)
    outcomes = [known[mutant.id] for mutant in sample]
    print("\n".join(lines(outcomes)))
    return 0 if all(outcome.killed or outcome.equivalent for outcome in outcomes) else 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m logitproof.properties.mutants.run")
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="where to work; made if missing"
    )
    parser.add_argument("--sample", type=int, default=300, metavar="N", help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which ones")
    parser.add_argument(
        "--survivors-of",
        type=Path,
        metavar="FILE",
        help="of these only those that survived an earlier run, told by its outcomes",
    )
    return parser.parse_args(argv)


def _copied(tree: Path) -> str:
    """The packages as they are imported here, installed or not, in `tree`; their SHA-256.

    A run that was killed may have left a mutant there: nothing of it stays. A compiled file is
    valid for one text, not for one time: no mutant is taken for another.
    """
    shutil.rmtree(tree, ignore_errors=True)
    root = tree / "logitproof"
    for name, place in (("logitproof", root), *((f"logitproof.{p}", root / p) for p in PACKAGES)):
        source = importlib.import_module(name).__path__[0]
        shutil.copytree(source, place, ignore=shutil.ignore_patterns(*IGNORED), dirs_exist_ok=True)
    total = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        total.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode())
        total.update(path.read_bytes())
    by_text = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(tree, quiet=1, invalidation_mode=by_text)
    return total.hexdigest()


def _sample(core: Path, count: int, seed: int) -> list[Mutant]:
    modules = sorted(path.name for path in core.glob("*.py"))
    texts = {module: (core / module).read_text(encoding="utf-8") for module in modules}
    runs = {module: changes_what_runs(text) for module, text in texts.items()}
    mutants = [mutant for mutant in found(core, modules) if runs[mutant.module](mutant.at)]

    def lives(mutant: Mutant) -> bool:
        try:
            compile(text_of(texts[mutant.module], mutant), mutant.module, "exec")
        except SyntaxError:
            return False
        return True

    return drawn(mutants, count, seed=seed, lives=lives)


def _check_unchanged(core: Path) -> None:
    """That the killer lets the copy live, and that it is the copy that it looks at."""
    done = subprocess.run(shlex.split(KILLER), check=False, capture_output=True, text=True)
    if done.returncode or done.stdout.splitlines()[0] != str(core.resolve()):
        sys.exit(f"without a mutant the laws do not hold in {core}: {done.stdout}{done.stderr}")


def _read(kept: Path) -> list[Outcome]:
    if not kept.exists():
        return []
    return [Outcome(**json.loads(line)) for line in kept.read_text(encoding="utf-8").splitlines()]


def _outcome(core: Path, mutant: Mutant) -> Outcome:
    start = time.perf_counter()
    killed, output, diff = tested(core, mutant, KILLER, seconds=WALL_SECONDS)
    return Outcome(
        id=mutant.id,
        module=mutant.module,
        killed=killed,
        output=output,
        diff=diff,
        seconds=round(time.perf_counter() - start, 2),
    )


if __name__ == "__main__":
    sys.exit(main())
