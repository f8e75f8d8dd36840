"""Refusals: one base, a family per kind of false fact, typed fields and a stable code.

Refusal (a ValueError)
  RecordRefusal     a record's bytes or field            expected, actual
  ShapeRefusal      sizes disagree                       expected, actual
  IndexRefusal      an id, target or position is out     at, index, bound
  BindingRefusal    live objects are foreign or stale    expected, actual
  NumericRefusal    a value is not finite or allowed     at, value
  CapacityRefusal   a demand exceeds its limit           required, limit
  SupportRefusal    valid, but nothing here executes it  feature
  StateRefusal      the call comes at the wrong time     expected, actual
  AdmissionRefusal  a plan may not run                   reasons
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .codes import Code

__all__ = [
    "AdmissionRefusal",
    "BindingRefusal",
    "CapacityRefusal",
    "Code",
    "IndexRefusal",
    "NumericRefusal",
    "RecordRefusal",
    "Refusal",
    "ShapeRefusal",
    "StateRefusal",
    "SupportRefusal",
    "at_stage",
    "check_equal",
    "check_kind",
    "check_not_zero",
]

MAX_PRINTED_BITS = 256  # Python itself prints no integer of more than 4300 digits
MAX_SHOWN = 200  # characters of a fact that is no text


@dataclass(kw_only=True, eq=False, repr=False)
class Refusal(ValueError):
    """A false fact: a stable `code`, the dotted path `what`, and the fields of its kind.

    The specification's own field names are attributes too: those that name a field of the
    family stand in the code's table, the others in `details`.
    Source: STYLE.md section 7, API.md "Refusal codes".
    """

    code: Code
    what: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ValueError.__init__(self, self.code, self.what)

    def facts(self) -> dict[str, Any]:
        """All fields by name: the family's, the specification's, and the place."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "details"}
        named = {name: own[source] for name, source in self.code.aliases.items()}
        reason = {} if self.code.reason is None else {"reason": self.code.reason}
        return {**own, **named, **reason, **self.details}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "code" not in self.__dict__:
            raise AttributeError(name)
        try:
            return self.facts()[name]
        except KeyError:
            raise AttributeError(f"{self.code} has no field {name!r}") from None

    def __str__(self) -> str:
        facts = {name: _brief(value) for name, value in self.facts().items()}
        sentence = _one_line(self.code.sentence.format_map(facts))
        return f"{sentence} (in {self.place})" if self.place else sentence

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_brief(value)!r}" for name, value in self.facts().items())
        return f"{type(self).__name__}({shown})"

    @property
    def place(self) -> str:
        """Block and stage in which a layer met the false fact, as a dotted path, or nothing."""
        layer, stage = self.details.get("layer"), self.details.get("stage", "")
        return ".".join(
            part for part in ("" if layer is None else f"blocks.{layer}", stage) if part
        )

    def __reduce__(self) -> tuple[Any, ...]:
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        state["details"] = dict(self.details)
        return _rebuild, (type(self), state)


def _brief(fact: object) -> object:
    """The fact, or a description where its digits would fill the screen (or not print at all).

    An array or a list that fills lines is told by its beginning.
    """
    if isinstance(fact, int) and fact.bit_length() > MAX_PRINTED_BITS:
        return f"{'-' if fact < 0 else ''}(an integer of {fact.bit_length()} bits)"
    if isinstance(fact, str):
        return fact
    if isinstance(fact, list | tuple) and any(_brief(item) is not item for item in fact):
        fact = type(fact)(_brief(item) for item in fact)
    text = str(fact)
    if len(text) <= MAX_SHOWN and text.isprintable():
        return fact
    line = _one_line(text)
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}…"


def _one_line(text: str) -> str:
    """The text where it has no breaks, else its words: arrays print themselves in lines."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))


class at_stage:  # noqa: N801 - reads as the words of a with statement
    """While open, a refusal gains the stage it came from; outer stages stand before inner ones.

    Source: layers.md (stages), cache.md section 5
    """

    __slots__ = ("layer", "stage")

    def __init__(self, stage: str, *, layer: int | None = None) -> None:
        self.stage = stage
        self.layer = {} if layer is None else {"layer": layer}

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        if isinstance(error, Refusal):
            inner = error.details.get("stage")
            stage = self.stage if inner is None else f"{self.stage}.{inner}"
            error.details = {**error.details, **self.layer, "stage": stage}


def _rebuild(family: type[Refusal], state: dict[str, Any]) -> Refusal:
    return family(**state)


@dataclass(kw_only=True, eq=False, repr=False)
class RecordRefusal(Refusal):
    """A record's bytes or one of its fields are not as they must be."""

    expected: object = None
    actual: object = None


@dataclass(kw_only=True, eq=False, repr=False)
class ShapeRefusal(Refusal):
    """Sizes disagree."""

    expected: object = None
    actual: object = None


@dataclass(kw_only=True, eq=False, repr=False)
class IndexRefusal(Refusal):
    """An id, target or position is outside its range."""

    at: int | None = None
    index: object = None
    bound: int | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class BindingRefusal(Refusal):
    """Live objects are foreign, stale or closed."""

    expected: object = None
    actual: object = None


@dataclass(kw_only=True, eq=False, repr=False)
class NumericRefusal(Refusal):
    """A value is outside the domain or not finite."""

    at: int | None = None
    value: object = None


@dataclass(kw_only=True, eq=False, repr=False)
class CapacityRefusal(Refusal):
    """A demand exceeds its limit or is unknown."""

    required: object = None
    limit: object = None


@dataclass(kw_only=True, eq=False, repr=False)
class SupportRefusal(Refusal):
    """Valid, but nothing here executes it."""

    feature: str = ""


@dataclass(kw_only=True, eq=False, repr=False)
class StateRefusal(Refusal):
    """The call comes at the wrong time."""

    expected: object = None
    actual: object = None


@dataclass(kw_only=True, eq=False, repr=False)
class AdmissionRefusal(Refusal):
    """A plan may not run; `reasons` holds every refusal of it, in plan order."""

    reasons: tuple[Refusal, ...] = ()


_SIZES = {"shape": ShapeRefusal, "binding": BindingRefusal}


def check_equal(code: Code, what: str, expected: object, actual: object, **details: object) -> None:
    """Refuses: `code`, of the shape or binding family, unless the two are equal"""
    if expected != actual:
        family = _SIZES[code.partition("/")[0]]
        raise family(code=code, what=what, expected=expected, actual=actual, details=details)


def check_not_zero(code: Code, what: str, size: int) -> None:
    """Refuses: `code`, of the shape family, where the size is 0"""
    if size == 0:
        raise ShapeRefusal(code=code, what=what, expected=1, actual=0)


def check_kind(given: object, kind: type | tuple[type, ...], what: str) -> None:
    """Refuses: record/field-type unless `given` is of that kind"""
    if not isinstance(given, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what=what,
            expected=" or ".join(f"a {k.__name__}" for k in kinds),
            actual=type(given).__name__,
        )
