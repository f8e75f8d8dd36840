"""The implementations that this project ships, as what the laws can judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Context,
    Decoder,
    DecoderConfig,
    Parameter,
    PreparedDecoderInput,
    SequenceLayout,
    SplitMix64,
    Tensor,
    TextInputEncoder,
    TextOutputHead,
    constant,
    ops,
)
from logitproof.core import backbone as residual
from logitproof.core.backward import topology
from logitproof.core.fresh import fresh_decoder
from logitproof.core.initial import xavier
from logitproof.core.kernels import BLAS, ORDERED, Kernel

from .components import CoreComponents
from .laws.protocol import DecoderUnderTest, Ids, Valid
from .scalar import EXACT, Arithmetic, Config, Generator, Layout, ScalarDecoder, initial_weights
from .scalar.generator import depth_scaled as scaled_by_depth
from .scalar.generator import matrix
from .scalar_parts import ScalarParts
from .taps import core_taps, scalar_taps

__all__ = ["BlasSubject", "CoreSubject", "DecoderUnderTest", "ScalarSubject", "StepsSubject"]

Array = NDArray[np.float64]


class CoreSubject(CoreComponents):
    """`logitproof.core` under test: by the fused operations of a kernel, or None for every step."""

    capabilities: Mapping[str, bool] = {
        "specified-bits": True,
        "initial-values": True,
        "raw-sum": True,
        "gradient-parts": True,
        "repeated-backward": True,
        "recomputation": True,
        "resumption": True,
        "forms": True,
        "graph-nodes": True,
        "refusals": True,
        "taps": True,
        "decode": True,
        "ranges": True,
        **CoreComponents.component_capabilities,
    }
    conventions: Mapping[str, str] = {"functions": "correctly-rounded"}

    decoder: Decoder

    def __init__(self, kernel: Kernel | None = ORDERED) -> None:
        self.kernel = kernel
        if kernel is None:  # the steps are the long way by design
            self.capabilities = {**self.capabilities, "counted-work": False, "graph-nodes": False}

    def load(self, config: Config, weights: Mapping[str, Any]) -> None:
        """A decoder over fresh parameters."""
        parameters = [Parameter(name, np.array(value)) for name, value in weights.items()]
        self.decoder = Decoder.from_parameters(_core_config(config), parameters, kernel=self.kernel)

    def in_steps(self) -> CoreSubject:
        """The composed operations over parameters of their own."""
        other = CoreSubject(kernel=None)
        parameters = [Parameter(p.name, p.value) for p in self.decoder.parameters.values()]
        other.decoder = Decoder.from_parameters(self.decoder.config, parameters, kernel=None)
        return other

    def logits(self, ids: Ids, layout: Layout | None = None) -> Array:
        """[B, T, V], from a forward that records nothing."""
        chosen = _core_layout(layout)
        return self.decoder.forward(ids, layout=chosen, context=NO_GRAD).logits.value

    def taps(self, ids: Ids, layout: Layout | None = None) -> dict[str, Array]:
        """What lies between ids and logits."""
        return core_taps(self.decoder, ids, _core_layout(layout))

    def hidden(self, embeddings: Any, layout: Layout | None) -> Array:
        """[B, T, D], from vectors that no encoder of ours has made."""
        backbone, vectors = self.decoder.backbone, constant(embeddings)
        chosen = _core_layout(layout) or SequenceLayout.full(*vectors.shape[:2])
        prepared = PreparedDecoderInput(backbone, NO_GRAD, vectors, chosen, "given vectors")
        return backbone.forward(prepared).hidden.value

    def loss_and_gradients(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> tuple[float, dict[str, Array]]:
        """One forward, one reverse pass from zero; a refused forward leaves old gradients."""
        loss = self.decoder.loss(ids, targets, layout=_core_layout(layout), valid=valid)
        self._zero_gradients()
        loss.backward()
        return float(loss.value), self._gradients()

    def loss_sum(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> float:
        """The raw sum."""
        chosen = _core_layout(layout)
        return float(self.decoder.loss_sum(ids, targets, layout=chosen, valid=valid).value)

    def words(self, seed: int, count: int) -> list[int]:
        """The generator's first words."""
        rng = SplitMix64(seed)
        return [rng.next_u64() for _ in range(count)]

    def matrix(self, seed: int, fan_in: int, fan_out: int) -> Array:
        """A Xavier matrix."""
        return xavier("matrix", fan_in, fan_out, SplitMix64(seed)).value

    def initial(
        self, config: Config, seed: int, *, depth_scaled: bool
    ) -> tuple[dict[str, Array], int]:
        """A drawn decoder's parameters, and the state that it left."""
        rng = SplitMix64(seed)
        sizes = _core_config(config)
        decoder = fresh_decoder(sizes, rng)[0] if depth_scaled else Decoder(sizes, rng)
        return {name: p.value for name, p in decoder.parameters.items()}, rng.state

    def table_gradients(self, ids: Ids, targets: Ids) -> tuple[Array, Array, Array]:
        """Total; the lookup's, with a detached head; the head's, with detached embeddings.

        Source: inputs.md section 6
        """
        decoder, table = self.decoder, self.decoder.table
        prepared = TextInputEncoder(decoder, ids).encode(RECORDING, decoder.backbone)
        detached = PreparedDecoderInput(
            decoder.backbone,
            RECORDING,
            prepared.embeddings.detach(),
            prepared.layout,
            "detached text token lookup",
        )
        losses: tuple[Callable[[], Tensor], ...] = (
            lambda: decoder.loss(ids, targets),
            lambda: self._loss_of(prepared, table.detach(), targets),
            lambda: self._loss_of(detached, table, targets),
        )
        parts = []
        for loss in losses:
            self._zero_gradients()
            loss().backward()
            parts.append(table.gradient)
        return parts[0], parts[1], parts[2]

    def backward_passes(self, ids: Ids, targets: Ids, seeds: Sequence[float]) -> dict[str, Array]:
        """One graph, one reverse pass per seed."""
        loss = self.decoder.loss(ids, targets)
        for seed in seeds:
            loss.backward(seed)
        return self._gradients()

    def recomputed(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> tuple[float, dict[str, Array]]:
        """The same text loss over a backbone that recomputes."""
        encoder = TextInputEncoder(self.decoder, ids, _core_layout(layout))
        prepared = encoder.encode(RECORDING, self.decoder.backbone)
        loss = self._loss_of(prepared, self.decoder.table, targets, valid, recomputed=True)
        self._zero_gradients()
        loss.backward()
        return float(loss.value), self._gradients()

    def residual_states(self, ids: Ids, layout: Layout | None = None) -> list[Array]:
        """Of a forward without a graph."""
        backbone = self.decoder.backbone
        prepared = TextInputEncoder(self.decoder, ids, _core_layout(layout)).encode(
            NO_GRAD, backbone
        )
        return [state.value for state in residual.residual_sites(backbone.forward(prepared))]

    def resumed_at(
        self, site: int, state: Any, targets: Ids, layout: Layout | None, valid: Valid | None
    ) -> tuple[Array, float, dict[str, Array]]:
        """The text loss over a forward that begins at a leaf."""
        leaf = Parameter("state", state)
        chosen = _core_layout(layout) or SequenceLayout.full(*leaf.shape[:2])
        hidden = self.decoder.backbone.resume(site, leaf, layout=chosen, context=RECORDING)
        logits = self.decoder.head.forward(RECORDING, hidden)
        loss = self._mean_of(logits, chosen, targets, valid)
        self._zero_gradients()
        loss.backward()
        return hidden.value, float(loss.value), {**self._gradients(), leaf.name: leaf.gradient}

    def traced(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> list[str]:
        """The operations that a caller can name, then nodes and edges of a released pass."""
        chosen = _core_layout(layout)
        output = self.decoder.forward(ids, layout=chosen)
        names = [output.embeddings.op, output.hidden.op, output.logits.op]
        loss = self.decoder.loss(ids, targets, layout=chosen, valid=valid)
        trace = loss.backward_with_trace(retain=False)
        nodes = [_told(node) for node in trace.nodes]
        return [*names, loss.op, *nodes, *(_told(edge) for edge in trace.edges)]

    def graph_nodes(
        self, ids: Ids, targets: Ids, layout: Layout | None, valid: Valid | None
    ) -> int:
        """Tensors of the tape, leaves among them."""
        loss = self.decoder.loss(ids, targets, layout=_core_layout(layout), valid=valid)
        return len(topology(loss))

    def snapshot(self) -> dict[str, bytes]:
        """Value, gradient and revision of every parameter."""
        return {
            f"{what} of {name}": value
            for name, p in self.decoder.parameters.items()
            for what, value in (
                ("value", p.value.tobytes()),
                ("gradient", p.gradient.tobytes()),
                ("revision", str(p.revision).encode()),
            )
        }

    def _loss_of(
        self,
        prepared: PreparedDecoderInput,
        table: Tensor,
        targets: Ids,
        valid: Valid | None = None,
        *,
        recomputed: bool = False,
        context: Context = RECORDING,
    ) -> Tensor:
        """The text loss composed from its parts. Source: inputs.md sections 5 and 7"""
        backbone = self.decoder.backbone
        run = backbone.forward_recomputed if recomputed else backbone.forward
        logits = TextOutputHead(table).forward(context, run(prepared).hidden)
        return self._mean_of(logits, prepared.layout, targets, valid, context)

    @staticmethod
    def _mean_of(
        logits: Tensor,
        layout: SequenceLayout,
        targets: Ids,
        valid: Valid | None,
        context: Context = RECORDING,
    ) -> Tensor:
        B, T, V = logits.shape
        cells = layout.active_cells()
        if valid is not None:
            cells = np.flatnonzero(np.array(valid))
        chosen = np.array(targets).reshape(-1)[cells]
        flat = context.apply(ops.reshape, logits, shape=(B * T, V))
        rows = context.apply(ops.gather_rows, flat, indices=cells)
        return context.apply(ops.indexed_mean_nll, rows, axis=1, targets=chosen)

    def _zero_gradients(self) -> None:
        for parameter in self.decoder.parameters.values():
            parameter.zero_gradient()

    def _gradients(self) -> dict[str, Array]:
        return {name: p.gradient for name, p in self.decoder.parameters.items()}


class StepsSubject(CoreSubject):
    """The core's composed operations, one by one: the definition."""

    def __init__(self) -> None:
        super().__init__(None)


class BlasSubject(CoreSubject):
    """The core's fast kernel: it claims values within the bounds, and no bits."""

    capabilities: Mapping[str, bool] = {
        "raw-sum": False,
        "repeated-backward": True,
        "graph-nodes": True,
        "refusals": True,
        "decode": True,
        "row-bits": False,
        "counted-work": True,
    }

    def __init__(self) -> None:
        super().__init__(BLAS)


class ScalarSubject:
    """`properties.scalar` under test, with either of its two function tables."""

    capabilities: Mapping[str, bool] = {
        "specified-bits": True,
        "initial-values": True,
        "raw-sum": True,
        "gradient-parts": True,
        "taps": True,
        "operation-values": True,
        "grouped-heads": True,
        "untied-head": True,
        "ranges": True,
    }

    decoder: ScalarDecoder

    def __init__(self, arithmetic: Arithmetic = EXACT) -> None:
        self.arithmetic = arithmetic
        kind = "correctly-rounded" if arithmetic is EXACT else "c-library"
        self.conventions: Mapping[str, str] = {"functions": kind}
        self.parts = ScalarParts(arithmetic)
        if arithmetic is not EXACT:  # the laws over operations want their functions exact
            self.capabilities = {**self.capabilities, "operation-values": False}

    def load(self, config: Config, weights: Mapping[str, Any]) -> None:
        """A decoder over copies of the weights."""
        self.decoder = ScalarDecoder(config, weights, self.arithmetic)

    def logits(self, ids: Ids, layout: Layout | None = None) -> Any:
        """[B][T][V]"""
        return self.decoder.logits(ids, layout)

    def taps(self, ids: Ids, layout: Layout | None = None) -> dict[str, Array]:
        """What lies between ids and logits."""
        return scalar_taps(self.decoder, ids, layout)

    def loss_and_gradients(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> tuple[float, Mapping[str, Any]]:
        """One run."""
        result = self.decoder.run(ids, targets, layout, valid)
        return result.loss, result.gradients

    def loss_sum(
        self, ids: Ids, targets: Ids, layout: Layout | None = None, valid: Valid | None = None
    ) -> float:
        """The raw sum."""
        return float(self.decoder.run(ids, targets, layout, valid).loss_sum)

    def words(self, seed: int, count: int) -> list[int]:
        """The generator's first words."""
        generator = Generator(seed)
        return [generator.word() for _ in range(count)]

    def matrix(self, seed: int, fan_in: int, fan_out: int) -> Any:
        """A Xavier matrix."""
        return matrix(Generator(seed), fan_in, fan_out)

    def initial(
        self, config: Config, seed: int, *, depth_scaled: bool
    ) -> tuple[Mapping[str, Any], int]:
        """Drawn weights, and the state after them."""
        generator = Generator(seed)
        weights = initial_weights(config, generator)
        scaled = scaled_by_depth(weights, config.layers) if depth_scaled else weights
        return scaled, generator.state

    def table_gradients(self, ids: Ids, targets: Ids) -> tuple[Any, Any, Any]:
        """The finished table gradient and the two sums it is made of."""
        result = self.decoder.run(ids, targets)
        total = result.gradients["token_embedding.weight"]
        return total, result.lookup_gradient, result.head_gradient


def _told(record: Any) -> str:
    """Every field of a node or an edge of a trace, arrays by their bytes."""
    facts = {field.name: getattr(record, field.name) for field in fields(record)}
    return "; ".join(f"{name} {_plain(fact)}" for name, fact in facts.items())


def _plain(fact: Any) -> str:
    if isinstance(fact, np.ndarray):
        return f"{fact.shape} {fact.tobytes().hex()}"
    if isinstance(fact, Mapping):
        return str({name: _plain(value) for name, value in fact.items()})
    return str(fact)


def _core_config(config: Config) -> DecoderConfig:
    return DecoderConfig(
        vocabulary_size=config.vocabulary_size,
        model_width=config.model_width,
        heads=config.heads,
        feed_forward_width=config.feed_forward_width,
        layers=config.layers,
        max_positions=config.max_positions,
        rope_base=config.rope_base,
        rms_epsilon=config.rms_epsilon,
    )


def _core_layout(layout: Layout | None) -> SequenceLayout | None:
    if layout is None:
        return None
    return SequenceLayout(
        lengths=np.array(layout.lengths),
        range_starts=np.array(layout.range_starts),
        positions=np.array(layout.positions),
    )
