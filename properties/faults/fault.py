"""A planted fault: what it replaces, and the laws that must see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeAlias

from logitproof.properties import laws

__all__ = ["Fault", "Place", "Planter", "planted"]

Place: TypeAlias = tuple[Any, str]  # a module or class, and the name in it
Planter: TypeAlias = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fault:
    """A context manager within which named attributes of a shipped decoder are wrong ones.

    form:   what it is planted in: the core's "steps", or its "fused" operations, which the laws of
            that family compare with the steps; where the core has not what it breaks, the
            "textbook" or the "foreign" decoder, the scalar one's alternatives, or the "narrow"
            operations, "narrow-once" where they are rounded once
    kind:   "order" changes roundings alone; "mistake" changes what is computed
    source: where the mistake was seen, or its measured effect
    plant:  the right attributes -> the wrong ones, both in the order of `places`
    forget: called whenever it comes and goes, where something keeps what was computed with it
    """

    id: str
    kind: str
    source: str
    statement: str
    places: tuple[Place, ...]
    plant: Planter
    form: str = "steps"
    forget: Callable[[], None] | None = None
    _right: list[list[Any]] = field(default_factory=list)

    @property
    def killed_by(self) -> tuple[str, ...]:
        """The laws that declare that they catch it."""
        return tuple(law.id for law in laws.REGISTRY.values() if self.id in law.faults)

    def __enter__(self) -> Fault:
        # From the owner's own dictionary: a class method must go back as it was found.
        right = [vars(owner)[name] for owner, name in self.places]
        wrong = self.plant(*right)
        self._right.append(right)
        for (owner, name), value in zip(self.places, wrong, strict=True):
            setattr(owner, name, value)
        self._forget()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for (owner, name), value in zip(self.places, self._right.pop(), strict=True):
            setattr(owner, name, value)
        self._forget()

    def _forget(self) -> None:
        if self.forget is not None:
            self.forget()


def planted(
    into: dict[str, Fault],
    *places: Place,
    kind: str,
    source: str,
    form: str = "steps",
    forget: Callable[[], None] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function from right attributes to wrong ones; its name is the fault's id."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__.replace("_", "-")

        def plant(*right: Any) -> tuple[Any, ...]:
            wrong = function(*right)
            return wrong if isinstance(wrong, tuple) else (wrong,)

        into[name] = Fault(
            id=name,
            kind=kind,
            source=source,
            statement=(function.__doc__ or "").strip(),
            places=places,
            plant=plant,
            form=form,
            forget=forget,
        )
        return function

    return register
