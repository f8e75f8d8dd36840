"""What an implementation offers to be judged."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from logitproof.properties.scalar import Config, Layout

from .difference import Values

__all__ = ["Arrays", "Capable", "DecoderUnderTest", "Ids", "Valid"]

Ids: TypeAlias = Sequence[Sequence[int]]
Valid: TypeAlias = Sequence[Sequence[bool]]
Arrays: TypeAlias = Mapping[str, Values]


class DecoderUnderTest(Protocol):
    """A decoder that a law can load with weights and ask for results.

    Names, shapes and their order are `Config.parameter_shapes`; a layout of None is ordinary
    text, `valid` of None is every active cell. Inactive cells hold -1. What `Capable` adds is
    asked for only where `capabilities` says so.

    Which of `laws.levels.LEVELS` it claims is among the capabilities: cached decoding where that
    is True; the others, and that a row has the same bits whatever stands beside it, `row-bits`,
    unless they are declared False. A batch that claims `packed` has documents one after another;
    `ranges` are layouts in which each query has any first key and any position.

    capabilities: name -> True for what it can do
    conventions:  name -> how it does what decoders do differently
    """

    @property
    def capabilities(self) -> Mapping[str, bool]:
        """What can be asked of it."""

    @property
    def conventions(self) -> Mapping[str, str]:
        """`functions`: "correctly-rounded" or "c-library"; `dtype`, "float64" unless it is said to
        be "float32"; `arithmetic`, the same unless some of its steps are taken in "float32".
        """

    def load(self, config: Config, weights: Mapping[str, Any]) -> None:
        """Takes sizes and weights, with no gradient yet."""

    def logits(self, ids: Ids, layout: Layout | None = None) -> Values:
        """[B, T, V]"""

    def loss_and_gradients(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> tuple[float, Arrays]:
        """The mean loss in nats and its gradient by every parameter, from zero."""


class Capable(DecoderUnderTest, Protocol):
    """The methods behind the capabilities; each docstring begins with the one it belongs to."""

    def loss_sum(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> float:
        """`raw-sum`: the sum of the losses, not divided."""

    def words(self, seed: int, count: int) -> Sequence[int]:
        """`initial-values`: the first words of the generator."""

    def matrix(self, seed: int, fan_in: int, fan_out: int) -> Values:
        """`initial-values`: the first matrix drawn from a seed."""

    def initial(self, config: Config, seed: int, *, depth_scaled: bool) -> tuple[Arrays, int]:
        """`initial-values`: all parameters drawn from a seed, and the generator's state then."""

    def table_gradients(self, ids: Ids, targets: Ids) -> tuple[Values, Values, Values]:
        """`gradient-parts`: the table's whole gradient, its lookup part, its head part."""

    def backward_passes(self, ids: Ids, targets: Ids, seeds: Sequence[float]) -> Arrays:
        """`repeated-backward`: gradients after passes with these seeds over one graph.

        A pass that raises leaves what the passes before it left, and is the last.
        """

    def recomputed(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> tuple[float, Arrays]:
        """`recomputation`: `loss_and_gradients` keeping block boundaries alone."""

    def residual_states(self, ids: Ids, layout: Layout | None = None) -> Sequence[Values]:
        """`resumption`: the 2L + 1 states [B, T, D] of the residual stream, in order.

        The input of each block and its sum after attention, then the input of the final norm.
        """

    def resumed_at(
        self, site: int, state: Values, targets: Ids, layout: Layout | None, valid: Valid | None
    ) -> tuple[Values, float, Arrays]:
        """`resumption`: hidden states, mean loss, and the gradients of it of every parameter, of a
        forward that begins with the state at that site.
        """

    def taps(self, ids: Ids, layout: Layout | None = None) -> Arrays:
        """`taps`: what lies between ids and logits, named as in `properties.taps`."""

    def session(self) -> Any:
        """`decode`: cached decoding of the loaded decoder, one text: `prefill(ids)`, then
        `extend(ids)` and `decode(id)`, each giving the newest position's `logits` [V] and
        `position`.
        """

    def in_steps(self) -> "Capable":
        """`forms`: another decoder over copies of the loaded weights, without fused operations."""

    def traced(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> Sequence[str]:
        """`forms`: names of operations, then nodes and edges of one traced pass, in words."""

    def graph_nodes(
        self, ids: Ids, targets: Ids, layout: Layout | None, valid: Valid | None
    ) -> int:
        """`graph-nodes`: of a recorded mean loss; a fused operation is one node."""

    def snapshot(self) -> Mapping[str, bytes]:
        """`refusals`: everything that a call could change, by name."""
