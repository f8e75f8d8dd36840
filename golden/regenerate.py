"""Derived cases written anew: beside the files, or into them where a case is accepted by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from . import check, derive, judge, load, staged, write
from .load import Case, Object

__all__ = ["Change", "NotDerived", "NotASide", "accept", "compared", "propose", "seal"]


# Files beside the cases that never change.
PUBLISHED = ("../figures-", "../records-v1/", "../reported-")
MARK = ".golden-proposal"  # what a side folder is known by


class NotDerived(ValueError):
    """A case that nobody may replace: published or worked, or unknown."""


class NotASide(ValueError):
    """A folder that holds something else than a proposal."""


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
    side: Path | None, root: Path, progress: Callable[[str], None] = lambda _: None
) -> list[Change]:
    """Every derived subject from nothing, into a folder of its own if one is given.

    Returns: what would change
    Raises NotASide, before anything is derived, for a folder that is not new, empty or a side
    folder of before.
    """
    if side is None:
        return [c for name in derive.SUBJECTS for c in _compared_anew(name, root, progress)]
    _check_side(side, root)
    with write.locked(side):
        write.replace(side / MARK, "proposed golden cases; may be replaced or removed\n")
        changes: list[Change] = []
        for subject in derive.SUBJECTS:
            progress(subject)
            fresh = derive.derived(subject)
            write.replace(side / f"{subject}.json", write.text_of(subject, fresh))
            changes += compared(held(subject, root), fresh)
        return changes


def _compared_anew(
    subject: str, root: Path, progress: Callable[[str], None]
) -> Iterator[Change]:  # fmt: skip
    progress(subject)
    yield from compared(held(subject, root), derive.derived(subject))


def _check_side(side: Path, root: Path) -> None:
    if side.resolve().is_relative_to(root.resolve()):
        raise NotASide(f"{side} lies in the folder of cases")
    if side.is_symlink() or (side.exists() and not side.is_dir()):
        raise NotASide(f"{side} is no folder")
    others = {path.name for path in side.iterdir()} if side.exists() else set()
    if others - {write.LOCK} and MARK not in others:
        raise NotASide(f"{side} holds something else: a new or empty folder is wanted")


def accept(patterns: Iterable[str], side: Path, root: Path) -> list[str]:
    """Replaces the cases named, by id or with wildcards, by those of the side folder.

    Everything is staged first, then put in place file by file, the manifest last, its version one
    higher if anything changed; what was interrupted is finished by the next call.
    Raises NotDerived, before anything is written, for a name that stands for no proposed case.
    """
    proposed = {s: _side_cases(side, s) for s in derive.SUBJECTS}
    with write.locked(root):
        staged.finish(root)
        known = load.read(root=root) if (root / load.FLAGS).exists() else []
        manifest = _manifest(root)
        chosen = _chosen(list(patterns), proposed, _fixed(known, manifest), known)
        taken: list[str] = []
        texts: dict[str, str] = {}
        for subject, fresh in proposed.items():
            old = held(subject, root)
            merged = _merged(old, fresh, chosen)
            if [c.as_object() for c in merged] != [c.as_object() for c in old]:
                texts[f"{subject}.json"] = write.text_of(subject, merged)
                taken += [change.id for change in compared(old, merged)]
        if taken:
            _enter(manifest, taken, proposed)
            manifest["files"] |= {name: write.text_digest(text) for name, text in texts.items()}
            staged.commit(root, {**texts, load.MANIFEST: _grown(manifest)})
    return taken


def _side_cases(side: Path, subject: str) -> list[Case]:
    try:
        return load.read_one(side, subject)
    except ValueError as fault:
        raise NotASide(f"{side}: {fault}") from None


def _enter(manifest: Object, taken: list[str], proposed: dict[str, list[Case]]) -> None:
    """The entries of the cases taken; what others changed by hand stays seen."""
    fresh = {case.id: case for cases in proposed.values() for case in cases}
    for identifier in taken:
        if identifier in fresh:
            manifest["cases"][identifier] = load.entry(fresh[identifier])
        else:
            manifest["cases"].pop(identifier, None)  # one added by hand is in no manifest


def seal(root: Path) -> list[str]:
    """Enters worked cases, new published ones, flags, schema and pages as they lie there.

    Returns: the ids entered
    Raises NotDerived where a case of the manifest has another origin now, where a published or
    derived one is another or gone, or where the bytes of a published file are others.
    """
    with write.locked(root):
        staged.finish(root)
        manifest = _manifest(root)
        now = {case.id: load.entry(case) for case in load.read(root=root)}
        known = manifest["cases"]
        apart = [i for i in {**known, **now} if known.get(i) != now.get(i)]
        for identifier in apart:
            _check_sealable(identifier, known.get(identifier), now.get(identifier))
        files = write.file_digests(root)
        for name, digest in manifest["files"].items():
            if name.startswith(PUBLISHED) and files.get(name) != digest:
                raise NotDerived(f"{name} is published: it is never sealed by hand")
        if apart or files != manifest["files"]:
            staged.commit(root, {load.MANIFEST: _grown({**manifest, "files": files, "cases": now})})
    return apart


def _check_sealable(identifier: str, known: str | None, now: str | None) -> None:
    """Of a case that is known its origin stays, and only a worked one may change or go."""
    was, origin = (entry.partition(" ")[0] if entry else "" for entry in (known, now))
    if was and origin and was != origin:
        raise NotDerived(f"{identifier} is {was} and cannot become {origin}")
    if was in ("published", "derived") or origin == "derived":
        raise NotDerived(f"{identifier} is {was or origin}: it is never sealed by hand")


def _manifest(root: Path) -> Object:
    if (root / load.MANIFEST).exists():
        return load.manifest(root)
    return {"version": 0, "files": {}, "cases": {}}


def _grown(manifest: Object) -> str:
    return write.manifest_text(manifest["version"] + 1, manifest["files"], manifest["cases"])


def _fixed(known: list[Case], manifest: Object) -> dict[str, str]:
    """Id -> origin of every case that file or manifest knows as published or worked."""
    origins = {case.id: case.origin for case in known}
    entered = {i: entry.partition(" ")[0] for i, entry in manifest["cases"].items()}
    return {i: o for i, o in [*origins.items(), *entered.items()] if o != "derived"}


def _chosen(
    patterns: list[str], proposed: dict[str, list[Case]], fixed: dict[str, str], known: list[Case]
) -> set[str]:
    fresh = {case.id for cases in proposed.values() for case in cases}
    gone = {case.id for case in known if case.origin == "derived"} - fresh
    chosen: set[str] = set()
    for pattern in patterns:
        matching = {i for i in fresh | gone if fnmatchcase(i, pattern)}
        stays = sorted((matching | {pattern}) & fixed.keys())
        if stays:
            raise NotDerived(f"{stays[0]} is {fixed[stays[0]]} and stays as it is")
        if not matching:
            raise NotDerived(f"{pattern} is no derived case")
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
