"""Faults that compute something else, most of them after reports about other projects."""

from __future__ import annotations

from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from logitproof.core import floats, fresh, ops, softmax, text
from logitproof.core.attention import Attention
from logitproof.core.backward import ReversePass
from logitproof.core.block import DecoderBlock
from logitproof.core.floats import Array
from logitproof.core.initial import SplitMix64
from logitproof.core.layers import Linear, SwiGlu
from logitproof.core.layout import SequenceLayout
from logitproof.core.tape import Parameter, Tensor, constant
from logitproof.core.text import Decoder, TextOutputHead
from logitproof.core.vjp import Result, named

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")


@mistake((SplitMix64, "uniforms"), source="numerics_init.md section 1")
def draw_32_bits(_: Any) -> Any:
    """A unit value is made of 32 bits of a word, not 53."""
    return lambda self, count: np.array([(self.next_u64() >> 32) * 2.0**-32 for _ in range(count)])


@mistake((SwiGlu, "new"), source="numerics_init.md section 3")
def draw_down_before_gate(_: Any) -> Any:
    """The down matrix is drawn before gate and up."""

    def new(cls: Any, prefix: str, width: int, hidden: int, output: int, rng: Any) -> Any:
        down = Linear.new(f"{prefix}.down", hidden, output, False, rng)
        gate = Linear.new(f"{prefix}.gate", width, hidden, False, rng)
        return cls(gate, Linear.new(f"{prefix}.up", width, hidden, False, rng), down)

    return classmethod(new)


@mistake((fresh, "SCALED_ROLES"), source="numerics_init.md section 5")
def depth_scales_query(right: Any) -> Any:
    """The depth factor reaches the query matrix too."""
    return ((*right, "attention.query.weight"),)


@mistake((floats, "scatter_add"), source="cases: emb-repeated-ids")
def scatter_overwrites(right: Any) -> Any:
    """The gradient of a repeated id is that of its last occurrence."""

    def scatter_add(rows: Array, *, indices: Any, count: int) -> Array:
        table: Array = right(rows, indices=indices, count=count)
        table[indices] = rows
        return table

    return scatter_add


@mistake((ReversePass, "_deliver"), source="cases: tied-grad-two-paths")
def scatter_overwrites_head(right: Any) -> Any:
    """The lookup's gradient takes the place of the head's."""

    def deliver(self: Any, contribution: Array, parent: Tensor) -> None:
        right(self, contribution, parent)
        if isinstance(parent, Parameter):
            self.adjoints[id(parent)] = contribution + 0.0

    return deliver


@mistake((TextOutputHead, "forward"), source="cases: tied-grad-two-paths")
def head_gradient_dropped(right: Any) -> Any:
    """The head reads a detached table: its share of the gradient is missing."""
    return lambda self, context, hidden: right(TextOutputHead(self.table.detach()), context, hidden)


@mistake((softmax, "_allowed_keys"), source="cases: mask-future-leak")
def mask_off_by_one(right: Any) -> Any:
    """Query t reads key t + 1."""

    def allowed(shape: Any, starts: Any, lengths: Any) -> Any:
        keys = right(shape, starts, lengths).copy()
        t = np.arange(shape[-1] - 1)
        keys[..., t, t + 1] = True
        return keys

    return allowed


@mistake((softmax, "_allowed_keys"), source="cases: mask-packed-leak")
def packed_segments_leak(right: Any) -> Any:
    """A query reads the keys of earlier segments in its row."""
    return lambda shape, _, lengths: right(shape, None, lengths)


@mistake((softmax, "_allowed_keys"), source="cases: mask-full-row")
def padded_queries_attend(right: Any) -> Any:
    """Queries of padded cells read keys as if they were active."""
    return lambda shape, starts, _: right(shape, starts, None)


def _with_positions(right: Any, positions: Any) -> Any:
    """Attention that turns by other positions than the layout's."""

    def inspect(self: Attention, x: Tensor, offset: int = 0, *, layout: Any, context: Any) -> Any:
        given = None if layout is None else _moved(layout, positions(layout))
        return right(self, x, offset, layout=given, context=context)

    return inspect


def _moved(layout: SequenceLayout, positions: Any) -> SequenceLayout:
    active = np.arange(layout.shape[1]) < layout.lengths[:, None]
    return SequenceLayout(
        lengths=layout.lengths,
        range_starts=layout.range_starts,
        positions=np.where(active, positions, 0),
    )


@mistake((Attention, "inspect"), source="inputs.md section 8")
def packed_positions_run_on(right: Any) -> Any:
    """Positions do not start again at a segment."""
    return _with_positions(right, lambda layout: np.arange(layout.shape[1])[None, :])


@mistake((Attention, "inspect"), source="cases: rope-left-pad-decode")
def positions_count_padding(right: Any) -> Any:
    """Positions count the padding of their row."""
    return _with_positions(
        right, lambda layout: layout.positions + (layout.shape[1] - layout.lengths)[:, None]
    )


@mistake((Decoder, "_loss"), source="cases: loss-accum-weighting")
def mean_over_all_cells(right: Any) -> Any:
    """The mean loss is over all cells, those without a valid target too."""

    def loss(
        self: Decoder, op: Any, ids: Any, targets: Any, layout: Any, valid: Any, context: Any
    ) -> Tensor:
        mean: Tensor = right(self, op, ids, targets, layout, valid, context)
        cells = np.asarray(targets)
        share = np.count_nonzero(cells >= 0) / cells.size
        return mean if share == 1.0 else context.apply(ops.mul, mean, constant(share))

    return loss


@mistake((ops, "indexed_sum_nll"), source="numerics.md section 8")
def raw_sum_is_mean(_: Any) -> Any:
    """The raw sum is divided by the count."""
    return ops.indexed_mean_nll


@mistake((ops, "indexed_sum_nll"), source="numerics.md section 8")
def raw_sum_from_mean(right: Any) -> Any:
    """The raw sum is the mean times the count, as an older interface had it."""

    @named("indexed_sum_nll")
    def total(logits: Array, *, axis: int, targets: Any) -> Result:
        mean, _ = ops.indexed_mean_nll(logits, axis=axis, targets=targets)
        return mean * np.size(targets), right(logits, axis=axis, targets=targets)[1]

    return total


@mistake((ReversePass, "_accumulated"), source="cases: ad-backward-twice")
def backward_overwrites(right: Any) -> Any:
    """A pass replaces the stored gradients."""

    def accumulated(self: Any) -> Any:
        return [(p, self.adjoints.get(id(p), after)) for p, after in right(self)]

    return accumulated


@mistake((ReversePass, "_accumulated"), source="cases: ad-backward-twice")
def adjoints_survive_pass(right: Any) -> Any:
    """A later pass over the same graph adds to the adjoints of the earlier ones."""
    # By node and not by its id: a dead node's id comes back, and its passes would with it.
    passes: WeakKeyDictionary[Tensor, int] = WeakKeyDictionary()

    def accumulated(self: Any) -> Any:
        output = self.topology[-1]
        again = passes[output] = passes.get(output, 0) + 1
        zero = np.zeros(())
        return [
            (p, np.asarray(after + (again - 1) * self.adjoints.get(id(p), zero)))
            for p, after in right(self)
        ]

    return accumulated


@mistake(
    (ReversePass, "_deliver"), (ReversePass, "_accumulated"), source="cases: ad-backward-twice"
)
def commit_before_check(right: Any, _: Any) -> Any:
    """Gradients are written while the pass still runs, so a refused pass leaves some."""

    def deliver(self: Any, contribution: Array, parent: Tensor) -> None:
        right(self, contribution, parent)
        if isinstance(parent, Parameter):
            stored = self.__dict__.setdefault("stored", {})
            before = stored.setdefault(id(parent), parent.gradient)
            parent.commit_gradient(before + self.adjoints[id(parent)])

    def accumulated(self: Any) -> Any:
        return [(p, p.gradient) for p in self.topology if isinstance(p, Parameter)]

    return deliver, accumulated


@mistake((DecoderBlock, "forward"), source="cases: ad-dropout-recompute")
def recomputation_forgets_layout(right: Any) -> Any:
    """A block that runs again in the reverse pass reads its input as ordinary text."""

    def forward(self: Any, x: Tensor, *, layout: Any = None, context: Any, **form: Any) -> Any:
        kept = None if context.recording else layout
        return right(self, x, layout=kept, context=context, **form)

    return forward


@mistake((Decoder, "_loss"), source="cases: ad-backward-twice")
def gradients_cleared_before_checks(right: Any) -> Any:
    """A loss call clears the gradients before it looks at its arguments."""

    def loss(self: Decoder, *arguments: Any) -> Any:
        for parameter in self.parameters.values():
            parameter.zero_gradient()
        return right(self, *arguments)

    return loss


@mistake((text, "check_token_ids"), source="cases: emb-id-range")
def negative_id_wraps(right: Any) -> Any:
    """An id of -1 is the last row of the table."""

    def check(config: Any, integers: Any, layout: SequenceLayout) -> Any:
        wraps = layout.is_full & (integers < 0)
        return right(config, np.where(wraps, integers + config.vocabulary_size, integers), layout)

    return check


FAULTS = tuple(_FOUND.values())
