"""Golden files as text: one value row per line, the same bytes on every run and machine."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from .load import FLAGS, FORMAT, MANIFEST_FORMAT, Case, subjects

__all__ = ["Locked", "file_digests", "locked", "manifest_text", "replace", "text_of"]

WIDTH = 98  # what fits beside its key stays on one line
LOCK = ".lock"
BESIDE = ("figures-v1.json", "schema-v1.json")  # hashed too, one folder above; records/ as well


class Locked(OSError):
    """Another process writes here."""


def text_of(subject: str, cases: Iterable[Case]) -> str:
    """The file of a subject."""
    held = {"format": FORMAT, "subject": subject, "cases": [case.as_object() for case in cases]}
    return _rendered(held, 0) + "\n"


def manifest_text(version: int, files: Mapping[str, str], cases: Mapping[str, str]) -> str:
    """The manifest: a version, and digests by name and by id."""
    held = {
        "format": MANIFEST_FORMAT,
        "version": version,
        "files": dict(sorted(files.items())),
        "cases": dict(sorted(cases.items())),
    }
    return _rendered(held, 0, width=20) + "\n"


def file_digests(root: Path) -> dict[str, str]:
    """Name -> SHA-256 of every file of the set that exists, the published figures included."""
    names = [FLAGS, *(f"{subject}.json" for subject in subjects(root))]
    above = [*BESIDE, *(f"records/{path.name}" for path in (root.parent / "records").glob("*"))]
    paths = {f"../{name}": root.parent / name for name in above}
    paths |= {name: root / name for name in sorted(names)}
    return {
        name: sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.exists()
    }


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Alone in the folder; raises Locked where another process is."""
    root.mkdir(parents=True, exist_ok=True)
    lock = root / LOCK
    try:
        handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        raise Locked(f"{lock} exists: another regeneration runs, or one was killed") from None
    try:
        os.write(handle, f"{os.getpid()}\n".encode())
        os.close(handle)
        yield
    finally:
        lock.unlink()


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
