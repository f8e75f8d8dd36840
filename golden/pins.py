"""What may never move, kept apart from the set itself: a hand that changes both is seen here.

`pins-v1.json` holds the least version, the digests of published cases and files, and per subject
how many worked cases there are and one digest over all of them. No command writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from importlib import resources
from pathlib import Path

from . import load, write
from .finding import Finding
from .load import Case, Object

__all__ = ["FILE", "findings", "pinned", "worked"]

FILE = "pins-v1.json"
FORMAT = "logitproof-pins-v1"


def pinned() -> Object:
    """The pins that are shipped, whichever set is looked at."""
    text = resources.files(__package__).joinpath(FILE).read_text("ascii")
    held = load.unique_json(text, FILE)
    load.check_keys(held, ("format", "least_version", "files", "published", "worked"), FILE)
    if held["format"] != FORMAT:
        raise ValueError(f"{FILE}: format {FORMAT} is wanted")
    return held


def worked(cases: list[Case]) -> dict[str, Object]:
    """Per subject the number of its worked cases, and a digest over their ids and digests."""
    found: dict[str, list[str]] = {}
    for case in cases:
        if case.origin == "worked":
            found.setdefault(case.subject, []).append(f"{case.id} {load.case_digest(case)}\n")
    return {
        subject: {
            "cases": len(lines),
            "sha256": sha256("".join(sorted(lines)).encode()).hexdigest(),
        }
        for subject, lines in sorted(found.items())
    }


def findings(place: Path) -> Iterator[Finding]:
    """Where a set is not what is pinned: cases, files, version. What cannot be read is not told."""
    held = pinned()
    cases = _cases(place)
    now = {case.id: load.case_digest(case) for case in cases if case.origin == "published"}
    for identifier in {**held["published"], **now}:
        if held["published"].get(identifier) != now.get(identifier):
            what = "is gone" if identifier not in now else "is another than the one pinned"
            if identifier not in held["published"]:
                what = f"is published, but {FILE} does not hold it"
            at = f"{identifier.partition('/')[0]}.json"
            yield Finding(by="pins", at=at, what=f"{identifier} {what}", case=identifier)
    found = worked(cases)
    for subject in {**held["worked"], **found}:
        pin, have = held["worked"].get(subject), found.get(subject)
        if pin != have:
            what = f"its worked cases are {have}, those pinned {pin}"
            yield Finding(by="pins", at=f"{subject}.json", what=what)
    digests = write.file_digests(place)
    for name, digest in held["files"].items():
        if digests.get(name) != digest:
            what = "is another than the one pinned" if name in digests else "is gone"
            yield Finding(by="pins", at=name, what=what)
    version = _version(place)
    if version < held["least_version"]:
        what = f"version {version} is less than {held['least_version']}: an older set"
        yield Finding(by="pins", at=load.MANIFEST, what=what)


def _cases(place: Path) -> list[Case]:
    found: list[Case] = []
    for subject in load.subjects(place):
        try:
            found += load.read_one(place, subject)
        except ValueError:
            continue
    return found


def _version(place: Path) -> int:
    try:
        return int(load.manifest(place)["version"])
    except ValueError:
        return 0
