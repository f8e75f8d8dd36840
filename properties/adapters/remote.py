"""A decoder under test that is asked by messages, wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from logitproof.properties.laws.protocol import Ids, Valid
from logitproof.properties.scalar import Config, Layout

from .forms import Output

__all__ = ["AdapterFault", "Ask", "Remote", "RemoteSession"]


class AdapterFault(Exception):
    """No answer came, or none that the protocol knows: nothing is said about any number."""


class Ask(Protocol):
    """What carries one call to the decoder and its result back."""

    def __call__(self, call: str, arguments: Mapping[str, Any], /) -> Any:
        """The result. Raises ValueError where it refuses, RuntimeError where it fails, and
        AdapterFault where no answer comes.
        """


class Remote:
    """Every method of the protocol as one question.

    Source: properties/adapters/PROTOCOL.md
    """

    def __init__(
        self, ask: Ask, capabilities: Mapping[str, bool], conventions: Mapping[str, str]
    ) -> None:
        self._ask = ask
        self.capabilities, self.conventions = capabilities, conventions

    def _asked(self, call: str, **arguments: Any) -> Any:
        return self._ask(call, arguments)

    def echo(self, value: Any) -> Any:
        """The same array."""
        return self._asked("echo", value=value)

    def load(self, config: Config, weights: Mapping[str, Any]) -> None:
        """Sizes and weights for what follows."""
        self._asked("load", config=config, weights=weights)

    def logits(self, ids: Ids, layout: Layout | None = None) -> Any:
        """[B, T, V]"""
        return self._asked("logits", ids=ids, layout=layout)

    def loss_and_gradients(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> Any:
        """The mean loss, and its gradient by every parameter."""
        return self._asked(
            "loss_and_gradients", ids=ids, targets=targets, layout=layout, valid=valid
        )

    def session(self) -> RemoteSession:
        """Cached decoding."""
        return RemoteSession(self._ask)

    def taps(self, ids: Ids, layout: Layout | None = None) -> Any:
        """What lies between ids and logits."""
        return self._asked("taps", ids=ids, layout=layout)

    def loss_sum(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> Any:
        """The raw sum."""
        return self._asked("loss_sum", ids=ids, targets=targets, layout=layout, valid=valid)

    def words(self, seed: int, count: int) -> Any:
        """The generator's first words."""
        return self._asked("words", seed=seed, count=count)

    def matrix(self, seed: int, fan_in: int, fan_out: int) -> Any:
        """A drawn matrix."""
        return self._asked("matrix", seed=seed, fan_in=fan_in, fan_out=fan_out)

    def initial(self, config: Config, seed: int, *, depth_scaled: bool) -> Any:
        """Drawn weights, and the state after them."""
        return self._asked("initial", config=config, seed=seed, depth_scaled=depth_scaled)

    def table_gradients(self, ids: Ids, targets: Ids) -> Any:
        """The table's gradient and its two parts."""
        return self._asked("table_gradients", ids=ids, targets=targets)

    def backward_passes(self, ids: Ids, targets: Ids, seeds: Sequence[float]) -> Any:
        """Gradients after some passes over one graph."""
        return self._asked("backward_passes", ids=ids, targets=targets, seeds=seeds)

    def recomputed(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> Any:
        """Loss and gradients, keeping block boundaries alone."""
        return self._asked("recomputed", ids=ids, targets=targets, layout=layout, valid=valid)

    def snapshot(self) -> Any:
        """Everything that a call could change."""
        return self._asked("snapshot")


class RemoteSession:
    """Cached decoding as a growing list of steps: each question tells the whole session.

    So no session outlives a question, and a decoder that starts again has lost nothing.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask, self._steps = ask, list[tuple[str, Sequence[int]]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._steps.clear()

    @property
    def length(self) -> int:
        """Tokens given so far."""
        return sum(len(ids) for _, ids in self._steps)

    def prefill(self, ids: Sequence[int]) -> Output:
        """The first tokens."""
        return self._step("prefill", ids)

    def extend(self, ids: Sequence[int]) -> Output:
        """Some more."""
        return self._step("extend", ids)

    def decode(self, id_: int) -> Output:
        """One more."""
        return self._step("decode", [id_])

    def _step(self, name: str, ids: Sequence[int]) -> Output:
        """A step that fails is forgotten."""
        steps = [*self._steps, (name, ids)]
        outputs = self._ask("cached", {"steps": steps})
        if len(outputs) != len(steps):
            raise AdapterFault(f"{len(outputs)} outputs for {len(steps)} steps")
        self._steps = steps
        newest: Output = outputs[-1]
        return newest
