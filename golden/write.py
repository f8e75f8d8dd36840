"""Golden files as text: one value row per line, the same bytes on every run and machine."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .load import FLAGS, FORMAT, MANIFEST_FORMAT, Case, subjects

__all__ = ["Locked", "file_digests", "locked", "manifest_text", "replace", "text_digest", "text_of"]

_FCNTL: Any = import_module("fcntl") if find_spec("fcntl") else None  # not every system has it
WIDTH = 98  # what fits beside its key stays on one line
LOCK = ".lock"
# Hashed too, one folder above.
BESIDE = ("FORMAT.md", "figures-v1.json", "figure-index-v1.json", "schema-v1.json")
FOLDERS_BESIDE = ("records-v1", "reported-v1")


class Locked(OSError):
    """Another process writes here."""


def text_of(subject: str, cases: Iterable[Case]) -> str:
    """The file of a subject."""
    held = {"format": FORMAT, "subject": subject, "cases": [case.as_object() for case in cases]}
    return _rendered(held, 0) + "\n"


def manifest_text(version: int, files: Mapping[str, str], cases: Mapping[str, str]) -> str:
    """The manifest: a version, digests of files by name, origin and digest of cases by id."""
    held = {
        "format": MANIFEST_FORMAT,
        "version": version,
        "files": dict(sorted(files.items())),
        "cases": dict(sorted(cases.items())),
    }
    return _rendered(held, 0, width=20) + "\n"


def text_digest(text: str) -> str:
    """The SHA-256 of a file with this text."""
    return sha256(text.encode("ascii")).hexdigest()


def file_digests(root: Path) -> dict[str, str]:
    """Name -> SHA-256 of every file of the set that exists, the published figures included."""
    names = [FLAGS, *(f"{subject}.json" for subject in subjects(root))]
    above = list(BESIDE)
    for folder in FOLDERS_BESIDE:
        above += [f"{folder}/{path.name}" for path in sorted((root.parent / folder).glob("*.json"))]
    paths = {f"../{name}": root.parent / name for name in above}
    paths |= {name: root / name for name in sorted(names)}
    return {
        name: sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.exists()
    }


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Alone in the folder; raises Locked where another process is.

    The system lets go of the lock when its holder ends, however that happens. Where the system
    has no such locks the file itself is the lock, and stays behind a process that was killed.
    """
    root.mkdir(parents=True, exist_ok=True)
    lock = root / LOCK
    handle = _claimed(lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # while it is still held: nobody else's is taken away
        os.close(handle)


def _claimed(lock: Path) -> int:
    """An open handle of the lock, which nobody else holds."""
    if _FCNTL is None:
        try:
            return os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            why = "another regeneration runs, or one was killed: then remove the file"
            raise Locked(f"{lock} exists: {why}") from None
    handle = os.open(lock, os.O_CREAT | os.O_RDWR)
    try:
        _FCNTL.flock(handle, _FCNTL.LOCK_EX | _FCNTL.LOCK_NB)
        if not os.path.samestat(os.fstat(handle), lock.stat()):
            raise FileNotFoundError  # its last holder has just removed it
    except OSError:
        os.close(handle)
        raise Locked(f"{lock} is held: another regeneration runs") from None
    return handle


def replace(path: Path, text: str) -> None:
    """The whole new file or the whole old one, whatever interrupts."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="ascii", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _rendered(value: Any, depth: int, *, width: int = WIDTH) -> str:
    flat = json.dumps(value, ensure_ascii=True)
    if len(flat) + depth <= width or not isinstance(value, dict | list):
        return flat
    if isinstance(value, list) and all(type(item) is int for item in value):
        return flat
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        lines = [f"{pad}{json.dumps(key)}: {_rendered(inner, depth + 1, width=width)}"
                 for key, inner in value.items()]  # fmt: skip
    else:
        lines = [pad + _rendered(item, depth + 1, width=width) for item in value]
    ends = "{}" if isinstance(value, dict) else "[]"
    return f"{ends[0]}\n" + ",\n".join(lines) + f"\n{' ' * depth}{ends[1]}"
