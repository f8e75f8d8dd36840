"""Blocks and final norm over prepared vectors: the one block loop, without a vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .arrays import as_integers, not_an_integer
from .block import DecoderBlock
from .checkpoint import checkpoint
from .config import DecoderBlockConfig, float_bits
from .errors import (
    BindingRefusal,
    Code,
    IndexRefusal,
    Refusal,
    at_stage,
    check_equal,
    check_kind,
)
from .kernels import ORDERED, Kernel
from .layers import RmsNorm
from .layout import SequenceLayout
from .prepared import PreparedDecoderInput
from .tape import Context, Parameter, Tensor

__all__ = ["ASSEMBLY_ORDER", "BackboneOutput", "DecoderBackbone", "ExecutionIdentity"]

Steps: TypeAlias = Mapping[str, Tensor]
Stage: TypeAlias = Callable[[int, DecoderBlock, Tensor], Tensor]

# Per layer in order, then the final norm (layers.md section 12).
ASSEMBLY_ORDER = (
    Code.LAYER_MODEL_WIDTH_MISMATCH,
    Code.LAYER_HEAD_COUNT_MISMATCH,
    Code.PREPARED_HEAD_SHARING,
    Code.LAYER_FEED_FORWARD_WIDTH_MISMATCH,
    Code.LAYER_POSITION_CAPACITY_MISMATCH,
    Code.LAYER_ROPE_BASE_MISMATCH,
    Code.LAYER_NORM_EPSILON_MISMATCH,
    Code.FINAL_NORM_WIDTH_MISMATCH,
    Code.FINAL_NORM_EPSILON_MISMATCH,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionIdentity:
    """What an admitted construction attaches: three digests and the admitted row count."""

    semantic: str
    run: str
    construction: str
    max_rows: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BackboneOutput:
    """Hidden features, the final norm's steps, and the steps of every block that kept them."""

    hidden: Tensor
    final_norm: Steps
    blocks: tuple[Steps, ...]
    boundaries: tuple[Tensor, ...]
    layout: SequenceLayout


class DecoderBackbone:
    """Prepared vectors [B, T, D] -> hidden [B, T, D].

    It needs no text model, vocabulary or tokenizer and copies no learned value.

    kernel: of the fused operations; None runs every step by itself

    Refuses: record/field-type, then `ASSEMBLY_ORDER`
    Source:  inputs.md section 4, layers.md section 12
    """

    __slots__ = ("_identity", "blocks", "config", "final_norm", "kernel")

    def __init__(
        self,
        block_config: DecoderBlockConfig,
        blocks: Sequence[DecoderBlock],
        final_norm: RmsNorm,
        *,
        kernel: Kernel | None = ORDERED,
    ) -> None:
        _check_kinds(block_config, blocks, final_norm)
        check_kind(kernel, (Kernel, type(None)), "kernel")
        for layer, block in enumerate(blocks):
            check_block(block_config, block, layer)
        check_final_norm(block_config, final_norm)
        self.config = block_config
        self.blocks = tuple(blocks)
        self.final_norm = final_norm
        self.kernel = kernel
        self._identity: ExecutionIdentity | None = None

    @property
    def identity(self) -> ExecutionIdentity | None:
        """The execution identity of an admitted construction, or None."""
        return self._identity

    def bind_identity(self, identity: ExecutionIdentity) -> None:
        """Attach the identity of an admitted construction; `build` does, to a fresh backbone."""
        assert self._identity is None, "an identity is bound once"
        self._identity = identity

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Block parameters in order, then the final gain."""
        found: list[Parameter] = []
        for block in self.blocks:
            found += block.parameters
        found.append(self.final_norm.gain)
        return tuple(found)

    def forward(self, prepared: PreparedDecoderInput) -> BackboneOutput:
        """Every block with everything kept.

        Refuses: record/field-type, `PREPARED_ORDER`, then the blocks'
        Source:  inputs.md section 4
        """
        kept: list[Steps] = []

        def stage(_: int, block: DecoderBlock, x: Tensor) -> Tensor:
            kept.append(block.inspect(x, layout=prepared.layout, context=prepared.context))
            return kept[-1]["output"]

        check_kind(prepared, PreparedDecoderInput, "prepared input")
        with prepared.reading(self):
            return self._run(prepared, stage, kept)

    def hidden(self, prepared: PreparedDecoderInput) -> Tensor:
        """The hidden features alone, by the fused operations of the kernel.

        The steps between stay uninspected; an ordered kernel gives the bits of `forward`.
        Refuses: as `forward`
        """
        check_kind(prepared, PreparedDecoderInput, "prepared input")
        if self.kernel is None:
            return self.forward(prepared).hidden
        context, layout, kernel = prepared.context, prepared.layout, self.kernel

        def stage(_: int, block: DecoderBlock, x: Tensor) -> Tensor:
            return block.forward(x, layout=layout, context=context, kernel=kernel)

        with prepared.reading(self):
            x = self.run_blocks(prepared.embeddings, stage)[-1]
            with at_stage("final_norm"):
                return self.final_norm.forward(x, context=context, kernel=kernel)

    def forward_recomputed(self, prepared: PreparedDecoderInput) -> BackboneOutput:
        """The same values; while recording, one checkpoint node per block is all that is kept.

        Refuses: as `forward`
        Source:  numerics_vjp.md section 6
        """
        check_kind(prepared, PreparedDecoderInput, "prepared input")
        if not prepared.context.recording:
            return self.forward(prepared)

        def stage(layer: int, block: DecoderBlock, x: Tensor) -> Tensor:
            return checkpoint(
                block,
                x,
                layout=prepared.layout,
                context=prepared.context,
                layer=layer,
                kernel=self.kernel,
            )

        with prepared.reading(self):
            return self._run(prepared, stage, [])

    def _run(
        self, prepared: PreparedDecoderInput, stage: Stage, kept: list[Steps]
    ) -> BackboneOutput:
        boundaries = self.run_blocks(prepared.embeddings, stage)
        with at_stage("final_norm"):
            final = self.final_norm.inspect(boundaries[-1], context=prepared.context)
        return BackboneOutput(
            hidden=final["output"],
            final_norm=final,
            blocks=tuple(kept),
            boundaries=boundaries,
            layout=prepared.layout,
        )

    def run_blocks(self, x: Tensor, stage: Stage, *, first: int = 0) -> tuple[Tensor, ...]:
        """The one block loop: the input of each block from `first` on, and the last output."""
        boundaries = [x]
        for layer in range(first, len(self.blocks)):
            try:
                boundaries.append(stage(layer, self.blocks[layer], boundaries[-1]))
            except Refusal as refusal:
                raise _at_layer(refusal, layer) from None
        return tuple(boundaries)

    def resume(
        self, site: int, value: Tensor, *, layout: SequenceLayout, context: Context
    ) -> Tensor:
        """Hidden features from a value at residual site 0 .. 2L.

        Site 2i is the input of block i, 2i + 1 its sum after attention, 2L the final norm's.

        Refuses: index/not-an-integer, index/site-out-of-range
        Source:  inputs.md section 4
        """
        sites = 2 * len(self.blocks) + 1
        given = as_integers(site, what="site", bound=sites)
        if given.ndim:
            raise not_an_integer(site, 0, "site", sites)
        site = int(given[()])
        if not 0 <= site < sites:
            raise IndexRefusal(
                code=Code.SITE_OUT_OF_RANGE, what="backbone", index=site, bound=sites
            )

        def stage(_: int, block: DecoderBlock, x: Tensor) -> Tensor:
            return block.forward(x, layout=layout, context=context, kernel=self.kernel)

        first, after_attention = divmod(site, 2)
        if after_attention:
            value = self.blocks[first].feed_forward(value, context=context, kernel=self.kernel)
        boundaries = self.run_blocks(value, stage, first=first + after_attention)
        with at_stage("final_norm"):
            return self.final_norm.forward(boundaries[-1], context=context, kernel=self.kernel)


def _at_layer(refusal: Refusal, layer: int) -> Refusal:
    """The refusal with the layer among its facts."""
    refusal.details = {"layer": layer, **refusal.details}
    return refusal


def residual_sites(output: BackboneOutput) -> tuple[Tensor, ...]:
    """The 2L + 1 residual states of a forward that kept its blocks. Source: inputs.md section 4"""
    sites = []
    for boundary, block in zip(output.boundaries, output.blocks, strict=False):
        sites += [boundary, block["attention_residual"]]
    return (*sites, output.boundaries[-1])


def _check_kinds(config: object, blocks: object, final_norm: object) -> None:
    """Refuses: record/field-type"""
    wanted = [("block_config", config, DecoderBlockConfig), ("final_norm", final_norm, RmsNorm)]
    listed = list(blocks) if isinstance(blocks, list | tuple) else [blocks]
    wanted += [(f"blocks.{i}", block, DecoderBlock) for i, block in enumerate(listed)]
    for name, given, kind in wanted:
        check_kind(given, kind, f"backbone {name}")


def check_block(config: DecoderBlockConfig, block: DecoderBlock, layer: int) -> None:
    """The layer part of `ASSEMBLY_ORDER`."""
    what = f"blocks.{layer}"
    attention = block.attention
    sizes = (
        (Code.LAYER_MODEL_WIDTH_MISMATCH, config.model_width, attention.model_width),
        (Code.LAYER_HEAD_COUNT_MISMATCH, config.heads, attention.heads),
    )
    for code, expected, actual in sizes:
        _check_size(code, what, layer, expected, actual)
    sharing = (config.kv_heads, config.context_window)
    check_equal(
        Code.PREPARED_HEAD_SHARING,
        what,
        sharing,
        (attention.kv_heads, attention.context_window),
        layer=layer,
    )
    _check_size(
        Code.LAYER_FEED_FORWARD_WIDTH_MISMATCH,
        what,
        layer,
        config.feed_forward_width,
        block.ffn.gate.output_width,
    )
    _check_size(
        Code.LAYER_POSITION_CAPACITY_MISMATCH,
        what,
        layer,
        config.max_positions,
        attention.rotation.capacity,
    )
    _check_bits(
        Code.LAYER_ROPE_BASE_MISMATCH, what, config.rope_base, attention.rotation.base, layer=layer
    )
    for norm, name in ((block.attention_norm, "attention"), (block.ffn_norm, "feed-forward")):
        _check_bits(
            Code.LAYER_NORM_EPSILON_MISMATCH,
            what,
            config.rms_epsilon,
            norm.epsilon,
            layer=layer,
            norm=name,
        )


def check_final_norm(config: DecoderBlockConfig, final_norm: RmsNorm) -> None:
    """Refuses: shape/final-norm-width-mismatch, binding/final-norm-epsilon-mismatch"""
    check_equal(Code.FINAL_NORM_WIDTH_MISMATCH, "final_norm", config.model_width, final_norm.width)
    _check_bits(
        Code.FINAL_NORM_EPSILON_MISMATCH, "final_norm", config.rms_epsilon, final_norm.epsilon
    )


def _check_size(code: Code, what: str, layer: int, expected: int, actual: int) -> None:
    check_equal(code, what, expected, actual, layer=layer)


def _check_bits(code: Code, what: str, expected: float, actual: float, **details: object) -> None:
    if float_bits(expected) != float_bits(actual):
        raise BindingRefusal(
            code=code, what=what, expected=expected, actual=actual, details=details
        )
