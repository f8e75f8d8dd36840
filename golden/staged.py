"""Several files replaced as one: staged beside them first, so that nothing stays half done.

The stage is a folder of whole new files and, written last, a journal of their digests. Until the
journal stands nothing has been replaced, and the stage is dropped; from then on every file of it is
moved into place, in order, and whoever comes next goes on where the last one was killed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from . import load, write

__all__ = ["commit", "finish", "told"]

FOLDER = ".staged"
JOURNAL = "journal.json"
FORMAT = "logitproof-journal-v1"


def commit(root: Path, texts: Mapping[str, str]) -> None:
    """Replaces the files of these names by these texts, in this order; under the folder's lock."""
    stage = root / FOLDER
    stage.mkdir()
    for name, text in texts.items():
        write.replace(stage / name, text)
    files = {name: write.text_digest(text) for name, text in texts.items()}
    write.replace(stage / JOURNAL, json.dumps({"format": FORMAT, "files": files}, indent=1) + "\n")
    finish(root)


def finish(root: Path) -> list[str]:
    """Moves what is still staged into place; under the folder's lock.

    Returns: the files that were meant, none where nothing was left
    Raises ValueError where a stage was changed by hand; nothing is moved then.
    """
    stage = root / FOLDER
    if not stage.exists():
        return []
    if not (stage / JOURNAL).exists():
        shutil.rmtree(stage)
        return []
    files = _journal(stage)
    waiting = [name for name in files if (stage / name).exists()]
    for name in waiting:
        if sha256((stage / name).read_bytes()).hexdigest() != files[name]:
            raise ValueError(f"{FOLDER}/{name}: not what {JOURNAL} says; remove {stage} by hand")
    for name in waiting:
        (stage / name).replace(root / name)
    shutil.rmtree(stage)
    return list(files)


def told(root: Path) -> str:
    """What an interruption has left, in one clause; nothing where nothing was interrupted."""
    stage = root / FOLDER
    if not stage.exists():
        return ""
    again = "run `logitproof golden regenerate` with --accept or --seal again"
    if not (stage / JOURNAL).exists():
        return f"was interrupted with no file left half-way: {again}"
    try:
        files = _journal(stage)
    except ValueError as fault:
        return str(fault)
    done = sum(not (stage / name).exists() for name in files)
    return f"was interrupted after {done} of {len(files)} files: {again}, which finishes it"


def _journal(stage: Path) -> dict[str, str]:
    name = f"{FOLDER}/{JOURNAL}"
    held = load.unique_json((stage / JOURNAL).read_text("ascii", errors="replace"), name)
    load.check_keys(held, ("format", "files"), name)
    files = held["files"]
    if not isinstance(files, dict) or not all(map(_is_file, files)):
        raise ValueError(f"{name}: files: names of files are wanted")
    return files


def _is_file(name: str) -> bool:
    """A file of the folder itself: a journal moves nothing elsewhere."""
    return name.endswith(".json") and "/" not in name and "\\" not in name
