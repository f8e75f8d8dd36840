"""Text in front of and behind the backbone: token lookup, tied head, decoder, loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from . import fused, ops
from .arrays import as_booleans, as_integers
from .backbone import DecoderBackbone
from .batches import PAD
from .block import DecoderBlock
from .config import DecoderConfig
from .errors import (
    CapacityRefusal,
    Code,
    IndexRefusal,
    NumericRefusal,
    RecordRefusal,
    ShapeRefusal,
    at_stage,
    check_equal,
    check_kind,
    check_not_zero,
)
from .floats import FEW, Ids
from .initial import SplitMix64
from .kernels import ORDERED, Kernel
from .layers import Embedding, RmsNorm
from .layout import SequenceLayout
from .names import check_distinct
from .prepared import PreparedDecoderInput
from .rope import RotaryTable
from .tape import RECORDING, Context, Parameter, Tensor, reading_all
from .vjp import Operation, quiet_pass

__all__ = [
    "LOSS_ORDER",
    "TOKEN_ORDER",
    "Decoder",
    "DecoderOutput",
    "TextInputEncoder",
    "TextOutputHead",
]

PROVENANCE = "text token lookup"

# Token checks in order (layers.md section 13); the padded-cell rules are ours (README).
TOKEN_ORDER = (
    Code.RAGGED_IDS,
    Code.NOT_AN_INTEGER,
    Code.TOKEN_RANK,
    Code.EMPTY_BATCH,
    Code.EMPTY_TOKENS,
    Code.CONTEXT_LENGTH_EXCEEDED,
    Code.FIELD_TYPE,
    Code.LAYOUT_SHAPE_MISMATCH,
    Code.INACTIVE_CELL_NOT_PADDING,
    Code.ZERO_EPSILON_WITH_PADDING,
    Code.TOKEN_ID_OUT_OF_BOUNDS,
)
# Loss checks in order (inputs.md section 7): the ids' content comes last.
LOSS_ORDER = (
    *TOKEN_ORDER[:8],
    Code.RAGGED_IDS,
    Code.NOT_AN_INTEGER,
    Code.TARGET_COUNT_MISMATCH,
    Code.RAGGED_IDS,
    Code.VALID_NOT_BOOLEAN,
    Code.VALID_SHAPE_MISMATCH,
    Code.VALID_CELL_INACTIVE,
    Code.NO_VALID_TARGET,
    Code.TARGET_ID_OUT_OF_BOUNDS,
    Code.INELIGIBLE_TARGET,
    *TOKEN_ORDER[8:],
)


class TextInputEncoder:
    """An `InputEncoder` from token ids [B, T]: the rows of the decoder's table.

    Inactive cells of a layout hold -1; they become zero vectors and carry no gradient.

    Refuses: record/field-type (the decoder)
    Source:  inputs.md sections 1, 3 and 7
    """

    __slots__ = ("decoder", "ids", "layout")

    def __init__(self, decoder: Decoder, ids: object, layout: SequenceLayout | None = None) -> None:
        check_kind(decoder, Decoder, "decoder")
        self.decoder = decoder
        self.ids = ids
        self.layout = layout

    def encode(self, context: Context, backbone: DecoderBackbone) -> PreparedDecoderInput:
        """The lookup under `context`, with the table declared as producer.

        Refuses: `TOKEN_ORDER`, record/field-type, then `PREPARED_ORDER`
        """
        batch = check_tokens(self.decoder.config, self.ids, self.layout)
        cells = check_token_ids(self.decoder.config, *batch)
        check_kind(context, Context, "context")
        embeddings, producers = _embed(self.decoder, cells, batch[1], context), [self.decoder.table]
        return PreparedDecoderInput(backbone, context, embeddings, batch[1], PROVENANCE, producers)


def check_tokens(
    config: DecoderConfig, ids: object, layout: SequenceLayout | None
) -> tuple[np.ndarray[Any, Any], SequenceLayout]:
    """Ids as integers [B, T] and their layout, the ids' content unchecked.

    Refuses: `TOKEN_ORDER` up to shape/layout-shape-mismatch
    """
    integers = as_integers(ids, what="ids", bound=config.vocabulary_size)
    check_equal(Code.TOKEN_RANK, "ids", 2, integers.ndim)
    B, T = integers.shape
    check_not_zero(Code.EMPTY_BATCH, "ids", B)
    check_not_zero(Code.EMPTY_TOKENS, "ids", T)
    if config.max_positions < T:
        raise CapacityRefusal(
            code=Code.CONTEXT_LENGTH_EXCEEDED, what="ids", required=T, limit=config.max_positions
        )
    if layout is None:
        return integers, _ordinary(B, T)
    check_kind(layout, SequenceLayout, "layout")
    check_equal(Code.LAYOUT_SHAPE_MISMATCH, "ids", (B, T), layout.shape)
    return integers, layout


@lru_cache(maxsize=32)
def _ordinary(B: int, T: int) -> SequenceLayout:
    """The layout of ordinary text: three small arrays that nobody can write."""
    return SequenceLayout.full(B, T)


def check_token_ids(
    config: DecoderConfig, integers: np.ndarray[Any, Any], layout: SequenceLayout
) -> Ids:
    """The ids of the active cells, flat.

    Refuses: index/inactive-cell-not-padding, numeric/zero-epsilon-with-padding,
        index/token-id-out-of-bounds
    """
    flat = integers.reshape(-1)
    V = config.vocabulary_size
    if layout.is_full and _all_below(flat, V):
        return flat.astype(np.int64)
    active = np.zeros(flat.shape, dtype=bool)
    active[layout.active_cells()] = True
    strange = ~active & (flat != PAD)
    if strange.any():
        at = int(strange.argmax())
        raise IndexRefusal(
            code=Code.INACTIVE_CELL_NOT_PADDING, what="ids", at=at, index=int(flat[at]), bound=0
        )
    if config.rms_epsilon == 0.0 and not active.all():
        raise NumericRefusal(
            code=Code.ZERO_EPSILON_WITH_PADDING, what="ids", at=int(active.argmin()), value=0.0
        )
    outside = active & ((flat < 0) | (flat >= V))
    if outside.any():
        at = int(outside.argmax())
        raise IndexRefusal(
            code=Code.TOKEN_ID_OUT_OF_BOUNDS, what="ids", at=at, index=int(flat[at]), bound=V
        )
    return flat[active].astype(np.int64)


def _all_below(integers: np.ndarray[Any, Any], bound: int) -> bool:
    """0 or more and below the bound, every one; a few are looked at as Python integers."""
    if integers.size <= FEW:
        listed = integers.tolist()
        return bool(min(listed) >= 0 and max(listed) < bound)
    return bool(integers.min() >= 0 and integers.max() < bound)


def _embed(decoder: Decoder, cells: Ids, layout: SequenceLayout, context: Context) -> Tensor:
    """[B, T, D]: table rows in the active cells, zeros in the others."""
    table, kernel = decoder.table, decoder.kernel
    B, T = layout.shape
    if layout.is_full:
        facts = {"selectors": cells.reshape(B, T)}
        steps = partial(context.apply, ops.checked_rows, **facts)
        if kernel is None or kernel.claims_bits or not context.recording:
            return steps(table)
        return context.apply(fused.rows, table, steps=steps, **facts)
    rows = context.apply(ops.checked_rows, table, selectors=cells)
    placed = context.apply(ops.place_rows, rows, positions=layout.active_cells(), count=B * T)
    return context.apply(ops.reshape, placed, shape=(B, T, table.shape[1]))


class TextOutputHead:
    """logits[b, t, v] = sum_d hidden[b, t, d] * table[v, d], on the live table.

    A detached table gives the same numbers without a gradient path to the table.

    kernel: of the fused form; None runs the steps one by one

    Refuses: record/field-type, shape/table-rank
    Source:  inputs.md section 5
    """

    __slots__ = ("kernel", "table")

    def __init__(self, table: Tensor, *, kernel: Kernel | None = None) -> None:
        check_kind(table, Tensor, "head table")
        check_equal(Code.TABLE_RANK, "head", 2, len(table.shape))
        check_kind(kernel, (Kernel, type(None)), "kernel")
        self.table = table
        self.kernel = kernel

    def forward(self, context: Context, hidden: Tensor) -> Tensor:
        """hidden: [B, T, D]. Returns: [B, T, V]. Refuses: record/field-type, matmul's"""
        check_kind(context, Context, "context")
        table, kernel = self.table, self.kernel

        def steps(hidden: Tensor, table: Tensor) -> Tensor:
            with at_stage("transpose_tied_weight"):
                columns = context.apply(ops.transpose, table, axes=(0, 1))
            with at_stage("project_vocabulary"):
                return context.apply(ops.matmul, hidden, columns)

        shape: tuple[int, ...] = getattr(hidden, "shape", ())
        if kernel is None or len(shape) != 3 or shape[2] != table.shape[1]:
            return steps(hidden, table)
        return fused.either(context, fused.tied_head, hidden, table, steps=steps, kernel=kernel)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecoderOutput:
    """Embeddings [B, T, D], hidden [B, T, D] and logits [B, T, V] of one forward."""

    embeddings: Tensor
    hidden: Tensor
    logits: Tensor


class Decoder:
    """A decoder-only transformer with one table for lookup and head.

    kernel: of the fused operations; None runs every step by itself
    Refuses: record/field-type, then its parts' in draw order; a refusal keeps `rng`
    Source:  layers.md section 11
    """

    __slots__ = ("backbone", "config", "embedding", "head", "parameters")

    config: DecoderConfig
    embedding: Embedding
    backbone: DecoderBackbone
    head: TextOutputHead
    parameters: Mapping[str, Parameter]

    def __init__(
        self, config: DecoderConfig, rng: SplitMix64, *, kernel: Kernel | None = ORDERED
    ) -> None:
        check_kind(config, DecoderConfig, "config")
        check_kind(rng, SplitMix64, "rng")
        check_kind(kernel, (Kernel, type(None)), "kernel")
        draft = rng.copy()
        embedding = Embedding.new(
            "token_embedding.weight", config.vocabulary_size, config.model_width, draft
        )
        block_config = config.block_config
        rotation = RotaryTable(
            config.model_width // config.heads, config.max_positions, config.rope_base
        )
        blocks = [
            DecoderBlock.new(f"blocks.{i}", block_config, draft, rotation=rotation.copy())
            for i in range(config.layers)
        ]
        final_norm = RmsNorm.new("final_norm.gain", config.model_width, config.rms_epsilon)
        self._assemble(config, embedding, blocks, final_norm, kernel)
        rng.state = draft.state

    @classmethod
    def from_parts(
        cls,
        config: DecoderConfig,
        embedding: Embedding,
        blocks: Sequence[DecoderBlock],
        final_norm: RmsNorm,
        *,
        kernel: Kernel | None = ORDERED,
    ) -> Decoder:
        """A decoder over existing layers; the same nodes.

        Refuses: record/field-type, shape/embedding-vocabulary-mismatch,
            shape/embedding-width-mismatch, shape/layer-count-mismatch, the backbone's
            `ASSEMBLY_ORDER`, record/parameter-name-mismatch, shape/parameter-count-mismatch,
            record/duplicate-parameter-name
        """
        check_kind(config, DecoderConfig, "config")
        check_kind(embedding, Embedding, "embedding")
        check_kind(blocks, Sequence, "blocks")
        decoder = cls.__new__(cls)
        decoder._assemble(config, embedding, blocks, final_norm, kernel)
        return decoder

    @classmethod
    def from_parameters(
        cls,
        config: DecoderConfig,
        parameters: Mapping[str, Parameter] | Iterable[Parameter],
        *,
        kernel: Kernel | None = ORDERED,
    ) -> Decoder:
        """A decoder over 9 L + 2 existing parameters in stable order; the same nodes.

        Refuses: record/field-type, shape/parameter-count-mismatch,
            record/parameter-name-mismatch, the layers' own in block order, then as `from_parts`
        """
        check_kind(config, DecoderConfig, "config")
        check_kind(parameters, Iterable, "parameters")
        given = list(parameters.values() if isinstance(parameters, Mapping) else parameters)
        _check_parameter_count(config, given)
        _check_names(config.parameter_names(), given)
        embedding = Embedding.from_parameter(given[0])
        blocks = [
            DecoderBlock.from_parameters(config.block_config, given[1 + 9 * i : 10 + 9 * i])
            for i in range(config.layers)
        ]
        final_norm = RmsNorm.from_gain(given[-1], config.rms_epsilon)
        return cls.from_parts(config, embedding, blocks, final_norm, kernel=kernel)

    def _assemble(
        self,
        config: DecoderConfig,
        embedding: Embedding,
        blocks: Sequence[DecoderBlock],
        final_norm: RmsNorm,
        kernel: Kernel | None,
    ) -> None:
        V, D = embedding.table.shape
        sizes = (
            (Code.EMBEDDING_VOCABULARY_MISMATCH, config.vocabulary_size, V),
            (Code.EMBEDDING_WIDTH_MISMATCH, config.model_width, D),
            (Code.LAYER_COUNT_MISMATCH, config.layers, len(blocks)),
        )
        for code, expected, actual in sizes:
            check_equal(code, "decoder", expected, actual)
        backbone = DecoderBackbone(config.block_config, blocks, final_norm, kernel=kernel)
        ordered = [embedding.table, *backbone.parameters]
        # A bias somewhere shifts the names behind it.
        _check_names(config.parameter_names(), ordered)
        _check_parameter_count(config, ordered)
        check_distinct([p.name for p in ordered])
        self.config = config
        self.embedding = embedding
        self.backbone = backbone
        self.head = TextOutputHead(embedding.table, kernel=kernel)
        self.parameters = MappingProxyType({p.name: p for p in ordered})

    def __reduce__(self) -> tuple[Any, ...]:
        """A deep copy or pickle: a decoder over copies, tied like this one, admitted by nobody."""
        make = partial(Decoder.from_parameters, kernel=self.kernel)
        return make, (self.config, list(self.parameters.values()))

    @property
    def kernel(self) -> Kernel | None:
        """The primitives of its fused operations."""
        return self.backbone.kernel

    @property
    def table(self) -> Parameter:
        """The tied table: the lookup's and the head's one node."""
        return self.embedding.table

    def forward(
        self, ids: object, *, layout: SequenceLayout | None = None, context: Context = RECORDING
    ) -> DecoderOutput:
        """Encode, backbone, head; parameters cannot be assigned until the head is done.

        ids: integers [B, T], -1 in inactive cells
        Refuses: `TOKEN_ORDER`, `PREPARED_ORDER`, then the layers' in data-flow order
        """
        with quiet_pass(), reading_all(list(self.parameters.values())):
            encoder = TextInputEncoder(self, ids, layout)
            prepared = encoder.encode(context, self.backbone)
            hidden = self.backbone.hidden(prepared)
            logits = self.head.forward(context, hidden)
        return DecoderOutput(embeddings=prepared.embeddings, hidden=hidden, logits=logits)

    def loss(
        self,
        ids: object,
        targets: object,
        *,
        layout: SequenceLayout | None = None,
        valid: object = None,
        context: Context = RECORDING,
    ) -> Tensor:
        """Mean negative log likelihood over the valid targets, in nats, rank 0.

        targets: integers [B, T], -1 where not valid; valid: booleans [B, T], default all
            active cells
        Refuses: `LOSS_ORDER`, then as `forward`, then the loss operation's
        Source:  inputs.md section 7
        """
        return self._loss(ops.indexed_mean_nll, ids, targets, layout, valid, context)

    def loss_sum(
        self,
        ids: object,
        targets: object,
        *,
        layout: SequenceLayout | None = None,
        valid: object = None,
        context: Context = RECORDING,
    ) -> Tensor:
        """The raw sum of the same losses, not divided. Refuses: as `loss`, and
        numeric/raw-sum-not-finite where only the mean can be formed

        Source: numerics.md section 8
        """
        return self._loss(ops.indexed_sum_nll, ids, targets, layout, valid, context)

    def _loss(
        self,
        operation: Operation,
        ids: object,
        targets: object,
        layout: SequenceLayout | None,
        valid: object,
        context: Context,
    ) -> Tensor:
        _, checked = check_tokens(self.config, ids, layout)
        cells, chosen = check_targets(self.config, targets, checked, valid)
        logits = self.forward(ids, layout=layout, context=context).logits
        B, T, V = logits.shape
        every = len(cells) == B * T

        def steps(logits: Tensor) -> Tensor:
            if every:
                with at_stage("indexed_loss"):
                    return context.apply(operation, logits, axis=2, targets=chosen)
            flat = context.apply(ops.reshape, logits, shape=(B * T, V))
            rows = context.apply(ops.checked_rows, flat, selectors=cells)
            with at_stage("indexed_loss"):
                return context.apply(operation, rows, axis=1, targets=chosen)

        if self.kernel is None or operation is not ops.indexed_mean_nll:
            return steps(logits)
        return fused.either(
            context,
            fused.mean_nll,
            logits,
            steps=steps,
            cells=None if every else cells,
            targets=chosen,
            kernel=self.kernel,
        )


def check_targets(
    config: DecoderConfig, targets: object, layout: SequenceLayout, valid: object
) -> tuple[Ids, Ids]:
    """Flat valid cells and their targets.

    Refuses: shape/ragged-ids, index/not-an-integer, shape/target-count-mismatch,
        shape/ragged-ids, record/valid-not-boolean, shape/valid-shape-mismatch,
        index/valid-cell-inactive, shape/no-valid-target, index/target-id-out-of-bounds,
        index/ineligible-target
    """
    V, shape = config.vocabulary_size, layout.shape
    given = as_integers(targets, what="targets", bound=V)
    check_equal(Code.TARGET_COUNT_MISMATCH, "targets", shape, given.shape)
    flat = given.reshape(-1)
    if valid is None and layout.is_full and _all_below(flat, V):
        return np.arange(flat.size), flat.astype(np.int64)
    eligible = _eligible(layout, valid)
    cells = np.flatnonzero(eligible)
    outside = eligible & ((flat < 0) | (flat >= V))
    if outside.any():
        at = int(outside.argmax())
        raise IndexRefusal(
            code=Code.TARGET_ID_OUT_OF_BOUNDS, what="targets", at=at, index=int(flat[at]), bound=V
        )
    strange = ~eligible & (flat != PAD)
    if strange.any():
        at = int(strange.argmax())
        raise IndexRefusal(
            code=Code.INELIGIBLE_TARGET, what="targets", at=at, index=int(flat[at]), bound=0
        )
    return cells, flat[cells].astype(np.int64)


def _eligible(layout: SequenceLayout, valid: object) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Flat booleans of the cells that count in the loss."""
    B, T = layout.shape
    active = np.zeros(B * T, dtype=bool)
    active[layout.active_cells()] = True
    if valid is None:
        return active
    given = as_booleans(valid, what="valid")
    check_equal(Code.VALID_SHAPE_MISMATCH, "valid", (B, T), given.shape)
    flat = given.reshape(-1)
    if (flat & ~active).any():
        at = int((flat & ~active).argmax())
        raise IndexRefusal(
            code=Code.VALID_CELL_INACTIVE,
            what="valid",
            at=at,
            index=at % T,
            bound=int(layout.lengths[at // T]),
        )
    if not flat.any():
        raise ShapeRefusal(code=Code.NO_VALID_TARGET, what="valid", expected=1, actual=0)
    return flat


def _check_parameter_count(config: DecoderConfig, parameters: Sequence[object]) -> None:
    """Refuses: shape/parameter-count-mismatch, before a name is made"""
    needed = 9 * config.layers + 2
    check_equal(Code.PARAMETER_COUNT_MISMATCH, "decoder", needed, len(parameters))


def _check_names(names: Sequence[str], parameters: Sequence[Parameter]) -> None:
    """Refuses: record/field-type, record/parameter-name-mismatch (by index)"""
    for index, (name, parameter) in enumerate(zip(names, parameters, strict=False)):
        if not isinstance(parameter, Parameter):
            raise RecordRefusal(
                code=Code.FIELD_TYPE,
                what=f"parameters[{index}]",
                expected="a Parameter",
                actual=type(parameter).__name__,
            )
        if parameter.name != name:
            raise RecordRefusal(
                code=Code.PARAMETER_NAME_MISMATCH,
                what="parameters",
                expected=name,
                actual=parameter.name,
                details={"index": index},
            )
