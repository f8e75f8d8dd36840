"""Derived cases written anew: beside the files, or into them where a case is accepted by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from . import check, derive, judge, load, write
from .load import Case, Object

__all__ = ["Change", "NotDerived", "accept", "compared", "propose", "seal"]


PUBLISHED = ("../figures-", "../records/")  # files beside the cases that never change


class NotDerived(ValueError):
    """A case that nobody may replace: published or worked, or unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A case that comes out otherwise: new, gone, or with other leaves."""

    id: str
    kind: str
    leaves: tuple[tuple[str, str], ...] = ()
    apart: tuple[tuple[Case, judge.Difference], ...] = ()  # the old case, and what came out

    def lines(self) -> Iterator[str]:
        """For a person."""
        yield f"{self.id}: {self.kind}"
        yield from (f"  {path}: {what}" for path, what in self.leaves)


def compared(old: Iterable[Case], new: Iterable[Case]) -> Iterator[Change]:
    """The derived cases that differ, in the order of the new ones, those gone last."""
    before = {case.id: case for case in old if case.origin == "derived"}
    after = {case.id: case for case in new}
    for identifier, case in after.items():
        if identifier not in before:
            yield Change(id=identifier, kind="new")
        elif before[identifier].as_object() != case.as_object():
            old_case = before[identifier]
            leaves = tuple(check.changes(old_case, case))
            exact = old_case.strength == case.strength == "exact"
            differences = judge.differences(old_case, case.expect) if exact else []
            apart = tuple((old_case, difference) for difference in differences)
            yield Change(id=identifier, kind="changed", leaves=leaves, apart=apart)
    yield from (Change(id=i, kind="gone") for i in before if i not in after)


def held(subject: str, root: Path) -> list[Case]:
    """The cases of a subject, none where it has no file yet."""
    return load.read(subject, root=root) if (root / f"{subject}.json").exists() else []


def propose(
    side: Path, root: Path, progress: Callable[[str], None] = lambda _: None
) -> list[Change]:
    """Every derived subject from nothing into a folder of its own; what would change."""
    changes: list[Change] = []
    with write.locked(side):
        for subject in derive.SUBJECTS:
            progress(subject)
            fresh = derive.derived(subject)
            write.replace(side / f"{subject}.json", write.text_of(subject, fresh))
            changes += compared(held(subject, root), fresh)
    return changes


def accept(patterns: Iterable[str], side: Path, root: Path) -> list[str]:
    """Replaces the cases named, by id or with wildcards, by those of the side folder.

    Files are replaced whole, the manifest last, its version one higher if anything changed.
    Raises NotDerived, before anything is written, for a name that stands for no proposed case.
    """
    proposed = {s: load.parse((side / f"{s}.json").read_text("ascii"), s) for s in derive.SUBJECTS}
    known = load.read(root=root) if (root / load.FLAGS).exists() else []
    chosen = _chosen(list(patterns), proposed, known)
    taken: list[str] = []
    with write.locked(root):
        manifest = _manifest(root)
        for subject, fresh in proposed.items():
            old = held(subject, root)
            merged = _merged(old, fresh, chosen)
            if [c.as_object() for c in merged] != [c.as_object() for c in old]:
                name = f"{subject}.json"
                write.replace(root / name, write.text_of(subject, merged))
                manifest["files"][name] = write.file_digests(root)[name]
                taken += [change.id for change in compared(old, merged)]
        if taken:
            _enter(manifest, taken, proposed)
            _write(root, manifest)
    return taken


def _enter(manifest: Object, taken: list[str], proposed: dict[str, list[Case]]) -> None:
    """The digests of the cases taken; what others changed by hand stays seen."""
    fresh = {case.id: case for cases in proposed.values() for case in cases}
    for identifier in taken:
        if identifier in fresh:
            manifest["cases"][identifier] = load.case_digest(fresh[identifier])
        else:
            del manifest["cases"][identifier]


def seal(root: Path) -> list[str]:
    """Enters worked cases, new published ones, flags and schema as they lie there.

    Returns: the ids entered
    Raises NotDerived where a published or derived case of the manifest is another now, or the
    bytes of the figures or of a record.
    """
    with write.locked(root):
        manifest = _manifest(root)
        cases = {case.id: case for case in load.read(root=root)}
        now = {identifier: load.case_digest(case) for identifier, case in cases.items()}
        known = manifest["cases"]
        apart = [i for i in {**known, **now} if known.get(i) != now.get(i)]
        for identifier in apart:
            origin = cases[identifier].origin if identifier in cases else "gone"
            if (identifier in known and origin != "worked") or origin == "derived":
                raise NotDerived(f"{identifier} is {origin}: it is never sealed by hand")
        files = write.file_digests(root)
        for name, digest in manifest["files"].items():
            if name.startswith(PUBLISHED) and files.get(name) != digest:
                raise NotDerived(f"{name} is published: it is never sealed by hand")
        if apart or files != manifest["files"]:
            _write(root, {**manifest, "files": files, "cases": now})
    return apart


def _manifest(root: Path) -> Object:
    if (root / load.MANIFEST).exists():
        return load.manifest(root)
    return {"version": 0, "files": {}, "cases": {}}


def _write(root: Path, manifest: Object) -> None:
    text = write.manifest_text(manifest["version"] + 1, manifest["files"], manifest["cases"])
    write.replace(root / load.MANIFEST, text)


def _chosen(patterns: list[str], proposed: dict[str, list[Case]], known: list[Case]) -> set[str]:
    fresh = {case.id for cases in proposed.values() for case in cases}
    fixed = {case.id: case.origin for case in known if case.origin != "derived"}
    gone = {case.id for case in known if case.origin == "derived"} - fresh
    chosen: set[str] = set()
    for pattern in patterns:
        matching = {i for i in fresh | gone if fnmatchcase(i, pattern)}
        origin = fixed.get(pattern)
        if origin or not matching:
            why = f"is {origin} and stays as it is" if origin else "is no derived case"
            raise NotDerived(f"{pattern} {why}")
        chosen |= matching
    return chosen


def _merged(old: list[Case], fresh: list[Case], chosen: set[str]) -> list[Case]:
    """The fresh order; cases not accepted as they were, those not accepted and new left out."""
    before = {case.id: case for case in old}
    merged = [
        case if case.id in chosen else before[case.id]
        for case in fresh
        if case.id in chosen or case.id in before
    ]
    names = {case.id for case in fresh}
    return merged + [case for case in old if case.id not in names and case.id not in chosen]
