"""A call that fails once, planted from outside at one stage of a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import count
from typing import Any

from logitproof.core import block, cache, floats, incremental, layers, ops, rope, text
from logitproof.core.tape import Context

__all__ = [
    "STAGES",
    "Interrupted",
    "Stage",
    "before_first",
    "calls_of",
    "failing_call",
    "failing_operation",
    "hooked",
]


class Interrupted(Exception):
    """The planted failure: no refusal of the core's own."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A place inside a token: call `first` + `per_layer` * layer of an attribute."""

    name: str
    owner: Any
    attribute: str
    first: int = 0
    per_layer: int = 0
    beside: int = 0  # calls per token that stand in no block
    after_blocks: bool = False

    def call(self, *, layer: int, layers: int, token: int = 0) -> int:
        """The number of the call, counted from the first token."""
        before = token * (self.per_layer * layers + self.beside)
        return before + self.first + self.per_layer * (layers if self.after_blocks else layer)

    def failing(self, *, layer: int, layers: int, token: int = 0) -> AbstractContextManager[None]:
        """`failing_call` at this stage of a layer and a token."""
        number = self.call(layer=layer, layers=layers, token=token)
        return failing_call(self.owner, self.attribute, number)

    def __str__(self) -> str:
        return self.name


# In the order of cache.md section 5. A block calls RmsNorm twice, Linear seven times.
STAGES = (
    Stage("embedding", ops, "checked_rows", beside=1),
    Stage("attention norm", layers.RmsNorm, "forward", 0, 2, 1),
    Stage("query projection", layers.Linear, "forward", 0, 7),
    Stage("value projection", layers.Linear, "forward", 2, 7),
    Stage("rotation of the query", rope.RotaryTable, "rotate", 0, 2),
    Stage("rotation of the key", rope.RotaryTable, "rotate", 1, 2),
    Stage("scores over the cached rows", floats, "row_products", 0, 2),
    Stage("score of the new row", floats, "row_dots", 0, 1),
    Stage("softmax", incremental, "RowStatistics", 0, 1),
    Stage("mixture", floats, "weighted_rows", 0, 1),
    Stage("ticket", cache.LayerCache, "ticket", 0, 1),
    Stage("output projection", layers.Linear, "forward", 3, 7),
    Stage("attention residual", block, "add_residual", 0, 2),
    Stage("feed-forward norm", layers.RmsNorm, "forward", 1, 2, 1),
    Stage("feed-forward", layers.SwiGlu, "forward", 0, 1),
    Stage("feed-forward residual", block, "add_residual", 1, 2),
    Stage("final norm", layers.RmsNorm, "forward", 0, 2, 1, after_blocks=True),
    Stage("head", text.TextOutputHead, "forward", beside=1),
    Stage("ticket check", cache.LayerCache, "accepts", 0, 1),
    Stage("counters", cache.WorkCounters, "after_token", beside=1),
    Stage("commit", cache.LayerCache, "append", 0, 1),
)


@contextmanager
def hooked(
    owner: Any, attribute: str, hook: Callable[[int, tuple[Any, ...]], object]
) -> Iterator[None]:
    """While open, `hook(number, operands)` runs before every call of owner.attribute."""
    original = getattr(owner, attribute)
    numbers = count()

    @wraps(original)
    def first_hook(*operands: Any, **arguments: Any) -> Any:
        hook(next(numbers), operands)
        return original(*operands, **arguments)

    setattr(owner, attribute, first_hook)
    try:
        yield
    finally:
        setattr(owner, attribute, original)


def failing_call(owner: Any, attribute: str, number: int) -> AbstractContextManager[None]:
    """While open, call `number` (from 0) of owner.attribute raises `Interrupted`, once."""

    def fail(call: int, _: tuple[Any, ...]) -> None:
        if call == number:
            raise Interrupted(f"{attribute}, call {number}")

    return hooked(owner, attribute, fail)


def failing_operation(number: int) -> AbstractContextManager[None]:
    """While open, operation `number` (from 0) of the tape raises `Interrupted`, once."""
    return failing_call(Context, "apply", number)


def before_first(
    owner: Any, attribute: str, act: Callable[[], object]
) -> AbstractContextManager[None]:
    """While open, `act` runs before the first call of owner.attribute."""
    return hooked(owner, attribute, lambda call, _: act() if call == 0 else None)


@contextmanager
def calls_of(owner: Any, attribute: str) -> Iterator[list[tuple[Any, ...]]]:
    """While open, the positional operands of every call of owner.attribute, as they come."""
    seen: list[tuple[Any, ...]] = []
    with hooked(owner, attribute, lambda _, operands: seen.append(operands)):
        yield seen
