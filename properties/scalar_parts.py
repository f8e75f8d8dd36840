"""The scalar operations as arrays in, value and reverse rule out, as the laws over parts ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .scalar import Arithmetic
from .scalar.operations import OPERATIONS, Array, contributions, value

__all__ = ["ScalarOps", "ScalarParts"]

Doubles: TypeAlias = NDArray[np.float64]
Rule: TypeAlias = Callable[[ArrayLike], tuple[Doubles, ...]]


class ScalarOps:
    """Every operation by its public name."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic

    def __getattr__(self, name: str) -> Callable[..., tuple[Doubles, Rule]]:
        if name not in OPERATIONS:
            raise AttributeError(name)

        def operation(*operands: ArrayLike, **arguments: Any) -> tuple[Doubles, Rule]:
            given = [_scalar(np.asarray(x, dtype=np.float64)) for x in operands]
            places = {key: _argument(item) for key, item in arguments.items()}
            result = value(name, *given, a=self.arithmetic, **places)

            def rule(upstream: ArrayLike) -> tuple[Doubles, ...]:
                u = _scalar(np.asarray(upstream, dtype=np.float64))
                parts = contributions(name, u, *given, a=self.arithmetic, **places)
                return tuple(map(_doubles, parts))

            return _doubles(result), rule

        return operation


class ScalarParts:
    """What of the public names the scalar decoder has."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.ops = ScalarOps(arithmetic)


def _scalar(array: NDArray[Any]) -> Array:
    return Array(array.shape, array.ravel().tolist())


def _argument(item: Any) -> Any:
    """Lists and arrays of integers by shape and cells; sizes, axes and shapes as they are."""
    return _scalar(np.asarray(item)) if isinstance(item, list | np.ndarray) else item


def _doubles(array: Array) -> Doubles:
    return np.array(array.cells, dtype=np.float64).reshape(array.shape)
