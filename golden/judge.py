"""Where what came out is not what a case expects, and by how many units in the last place."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .load import Case, cells

__all__ = ["Difference", "differences", "shown", "ulps_apart"]

Object = dict[str, Any]
SHOWN_AS_IT_IS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place of `expect`: what stands there, what came out, and how far apart they are.

    ulps:   steps from double to double, or None where the two are no doubles
    errors: of both against the true value, in units of its last place, where that is known
    count:  how many cells of the same array differ
    """

    path: str
    expected: str
    found: str
    ulps: int | None = None
    errors: tuple[float, float] | None = None
    count: int = 1

    def __str__(self) -> str:
        text = f"{self.path}: {self.expected} expected, {self.found} found"
        if self.ulps is not None:
            text += f", {self.ulps} ulp apart" if self.ulps else ", the other zero"
        if self.errors is not None:
            text += f" ({self.errors[0]:.4g} and {self.errors[1]:.4g} ulp from the true value)"
        return text + (f"; {self.count} cells differ" if self.count > 1 else "")


def differences(case: Case, found: Object, *, name: str = "expect") -> list[Difference]:
    """The places at which an outcome is not the one expected, in the order of the file."""
    wanted = dict(case.expect)
    if case.strength != "exact":
        return list(_bounded(case, found, name))
    truth = wanted.pop("true", {})
    if "refusal" in wanted and "refusal" in found:
        fields = {key: found["refusal"]["fields"].get(key) for key in wanted["refusal"]["fields"]}
        found = {"refusal": {"code": found["refusal"]["code"], "fields": fields}}
    if "refusal" in found and "refusal" not in wanted:
        code = f"the refusal {found['refusal']['code']}"
        return [Difference(path=name, expected="values", found=code)]
    if "refusal" in wanted and "refusal" not in found:
        code = f"the refusal {wanted['refusal']['code']}"
        return [Difference(path=f"{name}.refusal", expected=code, found="values")]
    return [d for key, value in wanted.items()
            for d in _apart(value, found.get(key), truth.get(key), f"{name}.{key}")]  # fmt: skip


def _apart(wanted: Any, found: Any, truth: Any, path: str) -> Iterator[Difference]:
    if isinstance(wanted, dict) and "f64" in wanted and isinstance(found, dict):
        yield from _arrays(wanted, found, truth, path)
    elif isinstance(wanted, dict) and isinstance(found, dict):
        for key in {**wanted, **found}:
            inner = truth.get(key) if isinstance(truth, dict) else None
            yield from _apart(wanted.get(key), found.get(key), inner, f"{path}.{key}")
    elif _has_arrays(wanted) and isinstance(found, list) and len(found) == len(wanted):
        for i, (w, f) in enumerate(zip(wanted, found, strict=True)):
            inner = truth[i] if isinstance(truth, list) else None
            yield from _apart(w, f, inner, f"{path}[{i}]")
    elif type(wanted) is not type(found) or wanted != found:
        yield Difference(path=path, expected=shown(wanted), found=shown(found))


def _has_arrays(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _arrays(wanted: Object, found: Object, truth: Any, path: str) -> Iterator[Difference]:
    """The first cell that differs, with the count of all."""
    if wanted["shape"] != found.get("shape"):
        yield Difference(path=f"{path}.shape", expected=str(wanted["shape"]),
                         found=str(found.get("shape")))  # fmt: skip
        return
    words, others = (" ".join(a["f64"]).split() for a in (wanted, found))
    apart = [i for i, (w, f) in enumerate(zip(words, others, strict=True)) if w != f]
    if not apart:
        return
    i = apart[0]
    x, y = (struct.unpack(">d", bytes.fromhex(word))[0] for word in (words[i], others[i]))
    errors = None
    if isinstance(truth, dict) and math.isfinite(x) and math.isfinite(y):
        true = Fraction(cells(truth, "hi")[i]) + Fraction(cells(truth, "lo")[i])
        errors = (_in_ulps(x, true), _in_ulps(y, true))
    yield Difference(
        path=f"{path}{list(_index(i, wanted['shape']))}",
        expected=f"{words[i]} ({x!r})",
        found=f"{others[i]} ({y!r})",
        ulps=None if x != x or y != y else ulps_apart(x, y),
        errors=errors,
        count=len(apart),
    )


def ulps_apart(x: float, y: float) -> int:
    """Steps from double to double; the two zeros are one place."""
    places = []
    for value in (x, y):
        magnitude = int(struct.unpack("<q", struct.pack("<d", abs(value)))[0])
        places.append(-magnitude if value < 0 else magnitude)
    return abs(places[0] - places[1])


def _in_ulps(x: float, true: Fraction) -> float:
    """|x - true| in units of the last place of the double nearest to the true value."""
    try:
        return float(abs(Fraction(x) - true) / Fraction(math.ulp(float(true))))
    except OverflowError:
        return math.inf


def _index(flat: int, shape: list[int]) -> Iterator[int]:
    for axis, n in enumerate(shape):
        yield flat // math.prod(shape[axis + 1 :]) % n


def _bounded(case: Case, found: Object, name: str) -> Iterator[Difference]:
    """Cells further from the truth than the case allows."""
    if "refusal" in found:
        yield Difference(path=name, expected="values", found=found["refusal"]["code"])
        return
    yield from _beyond(case, case.expect["true"], found, case.expect.get("bound"), name)


def _beyond(case: Case, truth: Any, found: Any, limit: Any, path: str) -> Iterator[Difference]:
    """Arrays, objects of arrays and lists of them, as they are nested in the truth."""
    if isinstance(truth, dict) and "hi" in truth and isinstance(found, dict) and "f64" in found:
        yield from _cells_out(case, truth, found, limit, path)
    elif isinstance(truth, dict) and "hi" not in truth and isinstance(found, dict):
        for key, true in truth.items():
            inner = limit[key] if isinstance(limit, dict) else None
            yield from _beyond(case, true, found.get(key), inner, f"{path}.{key}")
    elif isinstance(truth, list) and isinstance(found, list) and len(truth) == len(found):
        for k, (true, one) in enumerate(zip(truth, found, strict=True)):
            inner = limit[k] if isinstance(limit, list) else None
            yield from _beyond(case, true, one, inner, f"{path}[{k}]")
    else:
        yield Difference(path=path, expected=shown(truth), found=shown(found))


def _cells_out(
    case: Case, true: Object, found: Object, bound: Any, path: str
) -> Iterator[Difference]:
    if true["shape"] != found["shape"]:
        yield Difference(path=path, expected=str(true["shape"]), found=str(found["shape"]))
        return
    limits = cells(bound) if bound else [math.inf] * len(cells(true, "hi"))
    rows = zip(cells(true, "hi"), cells(true, "lo"), cells(found), limits, strict=True)
    for i, (hi, lo, x, limit) in enumerate(rows):
        real = Fraction(hi) + Fraction(lo)
        error = abs(Fraction(x) - real) if math.isfinite(x) else None
        ulps = case.expect.get("ulps", 0)
        within = error is not None and (
            error <= Fraction(limit) if bound else _in_ulps(x, real) <= ulps
        )
        if not within:
            allowed = f"{hi!r} within {limit!r}" if bound else f"{hi!r} within {ulps} ulp"
            where = f"{path}{list(_index(i, true['shape']))}"
            yield Difference(path=where, expected=allowed, found=repr(x))
            return


def shown(value: Any) -> str:
    """A value on part of a line."""
    text = str(value)
    return text if len(text) <= SHOWN_AS_IT_IS else f"{text[:SHOWN_AS_IT_IS]}…"
