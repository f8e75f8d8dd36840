"""A call that fails once, planted from outside at one stage of a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import count
from typing import Any

from logitproof.core import block, cache, floats, incremental, layers, ops, rope, row, text
from logitproof.core.tape import Context

__all__ = [
    "BLOCK_STAGES",
    "STAGES",
    "Interrupted",
    "Stage",
    "before_first",
    "calls_of",
    "failing_call",
    "failing_operation",
    "hooked",
    "on_checked_path",
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
    together: bool = False  # all tokens of a block are there at once
    checked: bool = False  # of the checked path, which a token takes whose row is undecided

    def call(self, *, layer: int, layers: int, token: int = 0) -> int:
        """The number of the call, counted from the first token."""
        before = 0 if self.together else token * (self.per_layer * layers + self.beside)
        return before + self.first + self.per_layer * (layers if self.after_blocks else layer)

    def failing(self, *, layer: int, layers: int, token: int = 0) -> AbstractContextManager[None]:
        """`failing_call` at this stage of a layer and a token."""
        number = self.call(layer=layer, layers=layers, token=token)
        failing = failing_call(self.owner, self.attribute, number)
        return on_checked_path(failing) if self.checked else failing

    def __str__(self) -> str:
        return f"{self.name}, checked path" if self.checked else self.name


checked = partial(Stage, checked=True)

# In the order of cache.md section 5. A block has two norms and seven projections.
CHECKED_STAGES = (
    checked("embedding", ops, "checked_rows", beside=1),
    checked("attention norm", layers.RmsNorm, "forward", 0, 2, 1),
    checked("query projection", layers.Linear, "forward", 0, 7),
    checked("value projection", layers.Linear, "forward", 2, 7),
    checked("rotation of the query", rope.RotaryTable, "rotate", 0, 2),
    checked("rotation of the key", rope.RotaryTable, "rotate", 1, 2),
    checked("softmax", incremental, "RowStatistics", 0, 1),
    checked("ticket", cache.LayerCache, "ticket", 0, 1),
    checked("output projection", layers.Linear, "forward", 3, 7),
    checked("attention residual", block, "add_residual", 0, 2),
    checked("feed-forward norm", layers.RmsNorm, "forward", 1, 2, 1),
    checked("feed-forward", layers.SwiGlu, "forward", 0, 1),
    checked("feed-forward residual", block, "add_residual", 1, 2),
    checked("final norm", layers.RmsNorm, "forward", 0, 2, 1, after_blocks=True),
    checked("head", text.TextOutputHead, "forward", beside=1),
    checked("commit", cache.LayerCache, "append", 0, 1),
)
_ROWS = (
    Stage("embedding", row, "embed_rows", beside=1),
    Stage("attention norm", row, "norm_rows", 0, 2, 1),
    Stage("query projection", row, "linear_rows", 0, 7),
    Stage("value projection", row, "linear_rows", 2, 7),
    Stage("rotation of query and key", row, "rotate_rows", 0, 1),
    Stage("output projection", row, "linear_rows", 3, 7),
    Stage("attention residual", row, "add_rows", 0, 2),
    Stage("feed-forward norm", row, "norm_rows", 1, 2, 1),
    Stage("feed-forward", row, "swiglu_rows", 0, 1),
    Stage("feed-forward residual", row, "add_rows", 1, 2),
    Stage("final norm", row, "norm_rows", 0, 2, 1, after_blocks=True),
    Stage("head", row, "head_rows", beside=1),
)
_ATTENTION = (
    Stage("scores over the cached rows", floats, "row_products", 0, 2),
    Stage("score of the new row", floats, "row_dots", 0, 1),
    Stage("softmax", incremental, "RowStatistics", 0, 1),
    Stage("mixture", floats, "weighted_rows", 0, 1),
)
_WRITING = (
    Stage("ticket", cache.LayerCache, "ticket", 0, 1),
    Stage("ticket check", cache.LayerCache, "accepts", 0, 1),
    Stage("counters", cache.WorkCounters, "after_token", beside=1),
    Stage("commit", cache.LayerCache, "append", 0, 1),
)
# What a token alone goes through, and what the tokens of a block do: together until they are
# written one by one.
STAGES = (*CHECKED_STAGES, *_ROWS, *_ATTENTION, *_WRITING)
BLOCK_STAGES = (
    *CHECKED_STAGES,
    *[replace(stage, together=True) for stage in _ROWS],
    Stage("mixture of a block", row, "mix_block", 0, 1, together=True),
    Stage("softmax of a block", row, "allowed_probabilities", 0, 1, together=True),
    *_WRITING,
)


@contextmanager
def on_checked_path(within: AbstractContextManager[object] | None = None) -> Iterator[None]:
    """While open, no row on plain arrays is decided: every token takes the checked path."""

    def undecided(*_: object) -> None:
        raise row.Undecided

    with hooked(row, "check_known", undecided), within or nullcontext():
        yield


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
