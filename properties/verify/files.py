"""Files that are whole or not there: written beside their place, then put into it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["check_place", "write"]


def check_place(path: Path) -> None:
    """Raises OSError where `write` could not put a file; leaves nothing behind."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
    if _is_special(path):
        path.open("a").close()
    else:
        os.unlink(_beside(path))


def write(path: Path, text: str) -> None:
    """Puts the text into the file at once: a reader sees the old file or the new one."""
    if _is_special(path):
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    name = _beside(path)
    try:
        with open(name, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(name, 0o666 & ~_mask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _beside(path: Path) -> str:
    """A new empty file in the same folder."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    return name


def _is_special(path: Path) -> bool:
    """A terminal, a pipe or the null device: nothing to replace."""
    return path.exists() and not path.is_file()


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
