"""A decoder whose every rounding leans one way: the worst that a program of the class may do.

Rounding to nearest makes errors of both signs, which cancel; a bound that holds for these alone
may still be false. Here each operation is off by a full unit of a coarser format, always up,
always down, or as a counter generator says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .scalar import C_LIBRARY, Generator
from .subjects import ScalarSubject

__all__ = ["LEANS", "LeaningSubject"]

LEANS = ("up", "down", "either")


class Leaning:
    """A double that each operation on it moves by one unit more."""

    __slots__ = ("off", "value")

    def __init__(self, value: float, off: Callable[[], float]) -> None:
        self.value = value
        self.off = off

    def _moved(self, value: float) -> Leaning:
        return Leaning(value * (1.0 + self.off()), self.off)

    def __add__(self, other: Leaning) -> Leaning:
        exact = not (self.value and other.value)
        total = self.value + other.value
        return Leaning(total, self.off) if exact else self._moved(total)

    def __sub__(self, other: Leaning) -> Leaning:
        return self._moved(self.value - other.value)

    def __mul__(self, other: Leaning) -> Leaning:  # by one it is exact in every format
        product = self.value * other.value
        return (
            Leaning(product, self.off) if 1.0 in (self.value, other.value) else self._moved(product)
        )

    def __truediv__(self, other: Leaning) -> Leaning:  # so it is here
        return self if other.value == 1.0 else self._moved(self.value / other.value)

    def __neg__(self) -> Leaning:
        return Leaning(-self.value, self.off)

    def __float__(self) -> float:
        return self.value

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Leaning) else other))

    def __lt__(self, other: Leaning) -> bool:
        return self.value < other.value

    def __gt__(self, other: Leaning) -> bool:
        return self.value > other.value

    def __ge__(self, other: int) -> bool:
        return self.value >= other

    __hash__ = None  # type: ignore[assignment]


class LeaningSubject(ScalarSubject):
    """The scalar decoder over leaning numbers of a given unit; results are plain doubles."""

    conventions: Mapping[str, str] = {"functions": "leaning"}

    def __init__(self, lean: str, unit: float) -> None:
        generator = Generator(LEANS.index(lean))

        def off() -> float:
            sign = {"up": 1, "down": -1}.get(lean)
            return unit * (2 * generator.below(2) - 1 if sign is None else sign)

        def number(value: float) -> Leaning:
            return Leaning(value, off)

        def leaning(function: Callable[..., float]) -> Callable[..., Leaning]:
            def one(*xs: Leaning) -> Leaning:
                value = function(*(x.value for x in xs))
                return Leaning(value if value == 1.0 else value * (1.0 + off()), off)

            return one

        names = ("exp", "log", "log1p", "sin", "cos", "pow", "sqrt")
        functions = {name: leaning(getattr(math, name)) for name in names}
        super().__init__(
            replace(
                C_LIBRARY,
                name=f"doubles that lean {lean}",
                number=number,
                is_finite=lambda x: math.isfinite(x.value),
                **functions,
            )
        )

    def logits(self, *arguments: Any) -> Any:
        """As doubles."""
        return _plain(super().logits(*arguments))

    def loss_and_gradients(self, *arguments: Any) -> tuple[float, Mapping[str, Any]]:
        """As doubles."""
        loss, gradients = super().loss_and_gradients(*arguments)
        return _plain(loss), {name: _plain(value) for name, value in gradients.items()}


def _plain(nested: Any) -> Any:
    return [_plain(x) for x in nested] if isinstance(nested, list) else float(nested)
