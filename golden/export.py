"""The hand-over pack: weights, inputs and expected results for a decoder in any language."""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from logitproof.properties.scalar import (
    Config,
    Generator,
    Result,
    ScalarDecoder,
    initial_weights,
)
from logitproof.properties.scalar.generator import depth_scaled

from . import lines, load, tensors
from .figures import ConfigFigure, Run, digest, figures, from_bits, to_bits

__all__ = ["add_export_arguments", "export", "pack", "run_export"]

FORMAT = "logitproof-pack-v1"
BESIDE = (
    "FORMAT.md",
    "figure-index-v1.json",
    "figures-v1.json",
    "schema-v1.json",
)  # what explains the cases
MANIFEST = "manifest.json"
READER = "check_matmul.c"
README = """\
logitproof-pack-v1: a decoder in any language against published bits.

manifest.json            every other file with its size and SHA-256
runs/ID.json             one golden run: sizes and constants of the model, ids and targets, names
                         of the parameters in their order, the loss, and SHA-256 digests of
                         parameters, logits and gradients, each over little-endian binary64,
                         row-major, the parameters in the order named
runs/ID.safetensors      what must come out: `logits` [B,T,V], `losses` of each position, `loss`,
                         `loss_sum`, `gradient.NAME` of the mean loss
weights/MODEL.safetensors  the parameters by name; a matrix is [in,out], y = x W
cases/SUBJECT.json       every golden case, also of layouts, sessions, records, tokens, refusals;
                         cases/FORMAT.md explains them
operations.txt           those of single operations, as lines of text; its head explains the lines
                         and defines every operation: equation, shapes, order of additions
check_matmul.c           reads that file in C99 and compares the bits of one operation

Every float is binary64 and every expectation is meant bit for bit, unless the strength of a case
says otherwise: one rounding per operation, sums in ascending order from +0, no fused multiply-add;
exp, log, log1p, sin, cos, pow correctly rounded. In JSON a float stands as its 16 hex digits, big
end first.

A safetensors file: eight bytes, little-endian, with the length of the header; the header, JSON,
which names type, shape and place of each tensor's data; the data.
"""


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder that the pack goes into."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="a folder, new or empty")


def run_export(args: argparse.Namespace) -> int:
    """Writes the pack and says what it holds."""
    try:
        files = export(args.folder)
    except ValueError as fault:
        raise OSError(f"{fault}; nothing is exported") from None
    size = sum(len(content) for content in files.values())
    manifest = sha256(files[MANIFEST]).hexdigest()
    print(f"{args.folder}: {len(files)} files, {size} bytes, manifest sha256 {manifest}")
    return 0


def export(folder: Path) -> Mapping[str, bytes]:
    """Writes the whole pack or nothing.

    Raises OSError where the folder holds something or a file of cases is not the one that the
    manifest knows, ValueError where a case or a result is not what it must be.
    """
    target = folder.absolute()
    if os.path.lexists(target) and (target.is_symlink() or not target.is_dir()):
        raise FileExistsError(f"{folder} is no folder")
    if target.exists() and any(target.iterdir()):
        raise FileExistsError(f"{folder} is not empty: the pack goes into a new or empty folder")
    if target.resolve() == Path.cwd():
        raise FileExistsError(f"{folder} is the current folder, which cannot be replaced")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent} is no folder")
    files = pack()
    with _beside(target) as draft:
        for name, content in files.items():
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        draft.replace(target)  # refused by the system where something arrived meanwhile
    return files


def pack() -> dict[str, bytes]:
    """Path -> bytes, in the order of the paths; the same on every run and machine."""
    files = {
        **_case_files(),
        "README.txt": README.encode("ascii"),
        "operations.txt": lines.text(load.read()).encode("ascii"),
        READER: _beside_this("reader-c", READER),
        **{f"cases/{name}": _beside_this(name) for name in BESIDE},
    }
    for run in figures().runs.values():
        files |= _run_files(run)
    files = dict(sorted(files.items()))
    listed = {
        name: {"bytes": len(content), "sha256": sha256(content).hexdigest()}
        for name, content in files.items()
    }
    held = {
        "format": FORMAT,
        "figures": digest(),
        "cases": load.manifest()["version"],
        "files": listed,
    }
    return {**files, MANIFEST: _json(held)}


def _beside_this(*names: str) -> bytes:
    return resources.files(__package__).joinpath(*names).read_bytes()


def _case_files() -> dict[str, bytes]:
    """The files of cases, as they lie there and as their manifest knows them."""
    root, known = load.folder(), load.manifest()["files"]
    for name, wanted in known.items():
        if sha256((root / name).read_bytes()).hexdigest() != wanted:
            raise OSError(f"{name} is not the file that {load.MANIFEST} knows; nothing is exported")
    return {f"cases/{path.name}": path.read_bytes() for path in sorted(root.glob("*.json"))}


def _run_files(run: Run) -> dict[str, bytes]:
    """A run's weights, input and results, the results those of the scalar decoder."""
    config = _config(figures().configs[run.config])
    weights = initial_weights(config, Generator(run.seed))
    if run.depth_scaled:
        weights = depth_scaled(weights, config.layers)
    result = ScalarDecoder(config, weights).run(run.ids, run.targets)
    found = {
        "loss": to_bits(result.loss),
        "parameters_digest": _digest(weights),
        "logits_digest": _digest({"logits": result.logits}),
        "gradients_digest": _digest(result.gradients),
    }
    wrong = [name for name, value in found.items() if value != getattr(run, name)]
    if wrong:
        raise ValueError(f"run {run.id}: {', '.join(wrong)}: not what is published")
    model = f"{run.config}-{run.seed}{'-depth-scaled' if run.depth_scaled else ''}"
    facts = {
        "format": FORMAT,
        "id": run.id,
        "source": run.source,
        "weights": f"weights/{model}.safetensors",
        "expected": f"runs/{run.id}.safetensors",
        "config": _sizes(figures().configs[run.config]),
        "parameters": list(weights),
        "ids": run.ids,
        "targets": run.targets,
        **found,
    }
    return {
        f"weights/{model}.safetensors": tensors.encode(
            {name: tensors.floats(value) for name, value in weights.items()}
        ),
        f"runs/{run.id}.json": _json(facts),
        f"runs/{run.id}.safetensors": tensors.encode(_expected(result)),
    }


def _expected(result: Result) -> dict[str, tensors.Tensor]:
    gradients = {f"gradient.{name}": value for name, value in result.gradients.items()}
    held = {
        "logits": result.logits,
        "losses": result.losses,
        "loss": result.loss,
        "loss_sum": result.loss_sum,
    }
    return {name: tensors.floats(value) for name, value in (held | gradients).items()}


def _config(figure: ConfigFigure) -> Config:
    constants = {name: from_bits(getattr(figure, name)) for name in ("rope_base", "rms_epsilon")}
    return Config(**{**_sizes(figure), **constants})


def _sizes(figure: ConfigFigure) -> dict[str, Any]:
    return {name: getattr(figure, name) for name in ConfigFigure.__annotations__}


def _digest(arrays: Mapping[str, Any]) -> str:
    return sha256(b"".join(tensors.floats(value).data() for value in arrays.values())).hexdigest()


def _json(held: Mapping[str, Any]) -> bytes:
    return (json.dumps(held, indent=1, ensure_ascii=True) + "\n").encode("ascii")


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A folder next to the target, gone at the end unless it was renamed."""
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        draft.chmod(0o777 & ~_mask())
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _mask() -> int:
    """The process's mask of permissions, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
