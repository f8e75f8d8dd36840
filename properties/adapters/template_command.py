"""`logitproof adapter NAME`: a template to start from, or the protocol in words."""

from __future__ import annotations

import argparse
from importlib import resources

__all__ = ["NAMES", "add_arguments", "run", "text_of"]

NAMES = {
    "object": "templates-v1/object.py.txt",
    "program": "templates-v1/program.py.txt",
    "program-c": "templates-v1/program.c.txt",
    "offline": "templates-v1/offline.py.txt",
    "protocol": "PROTOCOL.md",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what can be printed."""
    parser.add_argument("name", metavar="NAME", choices=NAMES, help=f"one of {', '.join(NAMES)}")


def run(args: argparse.Namespace) -> int:
    """Prints it. 0."""
    print(text_of(args.name), end="")
    return 0


def text_of(name: str) -> str:
    """The text, ending in a line feed."""
    file = resources.files("logitproof.properties.adapters").joinpath(NAMES[name])
    return file.read_text(encoding="utf-8")
