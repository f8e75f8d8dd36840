"""What an implementation offers whose parts are to be judged, not its decoder alone."""

from collections.abc import Iterable
from typing import Any, Protocol

from logitproof.properties.scalar import Layout

from .difference import Values
from .protocol import Capable

__all__ = ["Components"]


class Components(Capable, Protocol):
    """The methods behind the capabilities of parts.

    `parts` has the public names of API.md, `logitproof.core`, as far as the capabilities say:
    `operation-values` (ops, what they answer, by correctly rounded functions), `operations` (ops,
    what they refuse and how they lie in memory too), `functions` (floats), `tape` (RECORDING,
    NO_GRAD, Parameter, constant), `layers`, `sessions`, `tokenizer`, `records`, `planner`.
    """

    @property
    def parts(self) -> Any:
        """The namespace of public names."""

    def rotation(self, width: int, capacity: int, base: float) -> Any:
        """`layers`: a table with `rotate(x, offset, context=)` and `rotate_at(x, positions,
        context=)` over tensors.
        """

    def session(self) -> Any:
        """`sessions`: a fresh session over the loaded decoder."""

    def resumed(self, session: Any) -> Any:
        """`sessions`: another session over the cache of one that ended."""

    def assign(self, name: str, value: Any) -> None:
        """`sessions`: another value for one parameter of the loaded decoder."""

    def rows(self, session: Any) -> bytes:
        """`sessions`: every bit that a session holds."""

    def poison_unused_rows(self, session: Any, poison: float) -> None:
        """`sessions`: overwrites the cache behind the committed rows."""

    def hidden(self, embeddings: Any, layout: Layout | None) -> Values:
        """`prepared`: [B, T, D], the hidden states of given vectors under the loaded backbone."""

    def refused_in_order(self, start: int, step: int) -> Iterable[str]:
        """`boundaries`: every step-th boundary's near misses refused by another rule, in words."""

    def changed_by_refusals(self, start: int, step: int) -> Iterable[str]:
        """`boundaries`: every step-th boundary's near misses whose refusal left a trace."""
