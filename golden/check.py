"""Files, scalar decoder and core held against each other, and what differs first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import derive, judge, load, pins, run, run_scalar, staged, write
from .figures import Figures, figures_in
from .finding import Finding
from .load import Case, Object

__all__ = ["Finding", "Report", "check", "check_files", "first_operation"]

Progress = Callable[[str], None]
# Cases that show single operations and layers, in the order in which a decoder uses them.
SINGLE = ("generator", "function", "rotary-table", "operation", "layer")
LAYERS = ("softmax", *derive.LAYERS)
BLOCK_REVERSE = (
    "ffn.down.weight", "ffn.up.weight", "ffn.gate.weight", "ffn_norm.gain",
    "attention.output.weight", "attention.value.weight", "attention.key.weight",
    "attention.query.weight", "attention_norm.gain",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that a check found."""

    version: int
    cases: int
    findings: tuple[Finding, ...]
    first: str = ""
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def unreadable(self) -> Finding | None:
        """The first file that is not of its form, or None."""
        return next((finding for finding in self.findings if finding.by == "format"), None)

    @property
    def holds(self) -> bool:
        """True where nothing was found."""
        return not self.findings

    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "format": "logitproof-golden-check-v1", "holds": self.holds}


def check(
    root: Path | None = None,
    *,
    subjects: Iterable[str] = (),
    scalar: bool = True,
    core: bool = True,
    progress: Progress = lambda _: None,
) -> Report:
    """The manifest, then the cases derived anew, then the core.

    subjects: which files, by default all
    """
    place = root or load.folder()
    findings = [*check_files(place), *pins.findings(place)]
    held_figures = _figures(place.parent, findings)
    chosen = tuple(subjects) or load.subjects(place)
    cases, apart = [], []
    for subject in chosen:
        progress(subject)
        try:
            held = load.read(subject, root=place)
        except ValueError:
            continue  # check_files has said so
        cases += held
        if scalar and subject in derive.SUBJECTS:
            findings += against(derive.derived(subject), held)
        elif scalar:
            findings += [f for case in held for f in _by_scalar(case, held_figures)]
        if core:
            apart += [(case, d) for case in held for d in against_core(case, held_figures)]
    findings += [
        Finding(by="core", at=_at(case), what=str(difference), case=case.id)
        for case, difference in apart
    ]
    return Report(
        version=_version(place),
        cases=len(cases),
        findings=tuple(findings),
        first=first_operation(apart),
        counts={origin: sum(case.origin == origin for case in cases) for origin in load.ORIGINS},
    )


def _figures(folder: Path, findings: list[Finding]) -> Figures | None:
    """The figures that the cases speak of; where they cannot be read that is a finding."""
    try:
        return figures_in(folder)
    except ValueError as fault:
        at, _, what = str(fault).partition(": ")
        findings.append(Finding(by="format", at=f"../{at}", what=what))
        return None


def against_core(case: Case, held: Figures | None = None) -> list[judge.Difference]:
    """What the core does otherwise than the case expects."""
    return _against(case, lambda: run.outcome(case, held))


def _against(case: Case, answer: Callable[[], Object]) -> list[judge.Difference]:
    try:
        return judge.differences(case, answer())
    except Exception as fault:  # noqa: BLE001 - a broken decoder may fail in any way
        return [judge.Difference(path="expect", expected="an outcome",
                                 found=f"{type(fault).__name__}: {fault}")]  # fmt: skip


def _version(place: Path) -> int:
    try:
        return int(load.manifest(place)["version"])
    except ValueError:
        return 0


# --- files -----------------------------------------------------------------------------------


def check_files(place: Path) -> Iterator[Finding]:
    """Files and cases that are not those of the manifest, by path."""
    try:
        manifest = load.manifest(place)
    except ValueError as fault:
        at, _, what = str(fault).partition(": ")
        yield Finding(by="format", at=at, what=what)
        return
    found: dict[str, str] = {}
    if left := staged.told(place):
        yield Finding(by="manifest", at=staged.FOLDER, what=f"the last acceptance {left}")
    for subject in load.subjects(place):
        try:
            held = load.read(subject, root=place)
        except ValueError as fault:
            at, _, what = str(fault).partition(": ")
            yield Finding(by="format", at=at, what=what)
            found.update({i: "" for i in manifest["cases"] if i.startswith(f"{subject}/")})
            continue
        found.update({case.id: load.entry(case) for case in held})
        yield from _changed(subject, held, manifest)
    for identifier in manifest["cases"]:
        if identifier not in found:
            subject = identifier.partition("/")[0]
            yield Finding(by="manifest", at=f"{subject}.json", what=f"{identifier} is missing",
                          case=identifier)  # fmt: skip
    yield from _changed_files(place, manifest)


def _changed(subject: str, held: list[Case], manifest: Object) -> Iterator[Finding]:
    for i, case in enumerate(held):
        known = manifest["cases"].get(case.id)
        if known != load.entry(case):
            what = "is in no manifest" if known is None else "was changed by hand"
            if known and known.partition(" ")[0] != case.origin:
                what = f"is {known.partition(' ')[0]} in the manifest, not {case.origin}"
            yield Finding(by="manifest", at=f"{subject}.json: cases[{i}]", what=f"{case.id} {what}",
                          case=case.id)  # fmt: skip


def _changed_files(place: Path, manifest: Object) -> Iterator[Finding]:
    now = write.file_digests(place)
    for name, digest in manifest["files"].items():
        if now.get(name) != digest:
            what = "has other bytes than those of the manifest" if name in now else "is missing"
            yield Finding(by="manifest", at=name, what=what)
    for name in now.keys() - manifest["files"].keys():
        yield Finding(by="manifest", at=name, what="is in no manifest")


# --- the scalar decoder ----------------------------------------------------------------------


def against(fresh: list[Case], held: list[Case]) -> Iterator[Finding]:
    """Cases that are not those derived anew, leaf by leaf."""
    derived = {case.id: case for case in fresh}
    for case in held:
        if case.origin == "derived" and case.id not in derived:
            yield Finding(by="scalar", at=_at(case), what="is not derived any more", case=case.id)
    stored = {case.id: case for case in held}
    for identifier, case in derived.items():
        if identifier not in stored:
            at = f"{case.subject}.json"
            yield Finding(by="scalar", at=at, what=f"{identifier} is missing", case=identifier)
            continue
        for path, what in changes(stored[identifier], case):
            yield Finding(by="scalar", at=f"{_at(case)}.{path}", what=what, case=identifier)


def changes(old: Case, new: Case) -> Iterator[tuple[str, str]]:
    """Path and difference of every leaf; values that came out with their distance in ulps."""
    plain = judge.Difference
    exact = old.strength == new.strength == "exact"
    told: list[judge.Difference] = []
    if exact and "refusal" not in old.expect and "refusal" not in new.expect:
        told = judge.differences(old, new.expect)
        yield from ((d.path, str(d).partition(": ")[2]) for d in told)
    before, after = dict(load.walk(old.as_object())), dict(load.walk(new.as_object()))
    for path in {**before, **after}:
        one, other = before.get(path), after.get(path)
        if one != other and not any(path.startswith(_stem(d)) for d in told):
            difference = plain(path=path, expected=judge.shown(one), found=judge.shown(other))
            yield path, str(difference).partition(": ")[2]


def _stem(difference: judge.Difference) -> str:
    """The path without the index of the cell."""
    return difference.path.partition(".shape")[0].rpartition("[")[0] or difference.path


def _by_scalar(case: Case, held: Figures | None) -> Iterator[Finding]:
    """A published case by the scalar decoder, which refuses nothing."""
    if case.kind in run_scalar.KINDS and case.refusal is None:
        for difference in _against(case, lambda: run_scalar.outcome(case, held)):
            yield Finding(by="scalar", at=_at(case), what=str(difference), case=case.id)


def _at(case: Case) -> str:
    return f"{case.subject}.json: {case.id}"


# --- which operation -------------------------------------------------------------------------


def first_operation(apart: list[tuple[Case, judge.Difference]]) -> str:
    """The first operation that differs, in the order in which a decoder computes."""
    return _named(*min(apart, key=lambda pair: _rank(*pair))) if apart else ""


def _rank(case: Case, difference: judge.Difference) -> tuple[int, int, int]:
    """Single operations, then stages, then results, then the reverse order of gradients."""
    order = list(derive.OPERATIONS)
    if case.kind in SINGLE:
        backwards = "contributions" in difference.path or ".gradients." in difference.path
        op = case.setup.get("op", "")
        place = order.index(op) if op in order else _part(case, difference)
        return SINGLE.index(case.kind), int(backwards), place
    if ".stages." in difference.path:
        stages = list(case.expect["stages"])
        name = difference.path.partition(".stages.")[2]
        return 10, _block(name), stages.index(name) if name in stages else len(stages)
    gradient = _gradient(difference)
    if gradient:
        return 12, *_reverse(gradient)
    return (11, 0, 0) if case.kind == "decoder" else (13, 0, 0)


def _part(case: Case, difference: judge.Difference) -> int:
    """Of a layer: where it stands among the layers, then where its part is computed in it."""
    if case.kind != "layer":
        return -1
    name = difference.path.partition(".values.")[2].partition("[")[0]
    parts, layer = list(case.expect.get("values", {})), case.setup["layer"]
    place = LAYERS.index(layer) if layer in LAYERS else len(LAYERS)
    return 100 * place + (parts.index(name) if name in parts else 0)


def _block(name: str) -> int:
    found = re.match(r"blocks\.(\d+)\.", name)
    return int(found[1]) if found else 10**6


def _reverse(name: str) -> tuple[int, int]:
    """Where a parameter's gradient stands in the reverse pass."""
    layer = _block(name)
    if layer < 10**6:
        part = name.split(".", 2)[2]
        return -layer, BLOCK_REVERSE.index(part) if part in BLOCK_REVERSE else len(BLOCK_REVERSE)
    return {"head": (-(10**6), 0), "final_norm.gain": (-(10**6), 1), "lookup": (1, 0)}.get(
        name, (2, 0)
    )


def _gradient(difference: judge.Difference) -> str:
    """The parameter, or the part of the table, whose gradient differs; else nothing."""
    found = re.match(r"expect\.(?:gradients\.)?([^\[]+)", difference.path)
    name = found[1] if found else ""
    return name if ".gradients." in difference.path or name in ("lookup", "head") else ""


def _named(case: Case, difference: judge.Difference) -> str:
    where = f" (case {case.id})"
    if case.kind == "operation":
        part = re.search(r"contributions\[(\d+)\]", difference.path)
        what = f"the contribution to operand {part[1]}" if part else "the value"
        return f"{case.setup['op']}: {what}{where}"
    if case.kind == "layer":
        part = re.match(r"expect\.(values|gradients)\.(\w+)", difference.path)
        what = f"the gradient of {part[2]}" if part and part[1] == "gradients" else "the output"
        what = f"the part {part[2]}" if part and part[1] == "values" else what
        return f"{case.setup['layer']}: {what}{where}"
    if case.kind == "function":
        return f"{case.setup['name']}: the elementary function{where}"
    if ".stages." in difference.path:
        return f"{difference.path.partition('.stages.')[2]}: the stage of the forward pass{where}"
    if name := _gradient(difference):
        return f"{name}: its gradient, or what reaches it in the reverse pass{where}"
    return f"{difference.path.removeprefix('expect.').partition('[')[0]} of {case.kind}{where}"
