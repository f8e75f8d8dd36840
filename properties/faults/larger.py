"""Faults that begin where something is large, late or unusual, and layouts that few have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakSet

import numpy as np

from logitproof.core import floats, incremental, softmax
from logitproof.core.floats import Array
from logitproof.core.session import DecodeSession
from logitproof.core.softmax import RowStatistics
from logitproof.properties.scalar import Config, Layout
from logitproof.properties.textbook import TextbookSubject

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
textbook = partial(planted, _FOUND, kind="mistake", form="textbook")
cached = partial(planted, _FOUND, kind="mistake", form="steps")

SMALLEST_NORMAL = 2.0**-1022
WINDOW, LIMIT, TILE, RING, BLOCK, KEPT = 16, 2048, 8, 8, 64, 512
FIXTURES = "notes/field.md, what fixtures cannot see"


def _rows(values: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, np.asarray(values).tolist()))


def _configured(change: Callable[[Config], Config]) -> Callable[[Any], Any]:
    """A decoder that reads its configuration otherwise."""
    return lambda right: lambda self, config, weights: right(self, change(config), weights)


def _laid_out(change: Callable[[Layout], Layout]) -> Callable[[Any], Any]:
    """A decoder that reads a layout otherwise."""

    def plant(right: Any) -> Any:
        def forward(self: Any, ids: Any, layout: Layout | None) -> Any:
            return right(self, ids, layout and change(layout))

        return forward

    return plant


@textbook((TextbookSubject, "_probabilities"), source=FIXTURES)
def window_of_sixteen(right: Any) -> Any:
    """A query sees its last sixteen keys."""

    def probabilities(self: Any, q: Array, k: Array, mask: Any) -> Any:
        t = np.arange(q.shape[2])
        return right(self, q, k, mask & (t > t[:, None] - WINDOW))

    return probabilities


@textbook((TextbookSubject, "_block"), source=FIXTURES)
def layers_from_third_as_second(right: Any) -> Any:
    """Every block behind the second has the second's weights."""

    def block(self: Any, x: Array, prefix: str, saved: Any) -> Any:
        layer = min(1, int(prefix.split(".")[1]))
        return {**right(self, x, f"blocks.{layer}.", saved), "prefix": prefix}

    return block


@textbook((TextbookSubject, "_split"), source=FIXTURES)
def heads_from_fourth_reversed(right: Any) -> Any:
    """Four heads and more are laid out from the last to the first."""

    def split(self: Any, x: Array) -> Any:
        heads = right(self, x)
        return heads[:, ::-1] if heads.shape[1] > 3 else heads

    return split


@textbook((TextbookSubject, "_scores"), source=FIXTURES)
def features_from_sixth_ignored(right: Any) -> Any:
    """Scores are of the first six features of a head."""

    def scores(self: Any, q: Array, k: Array) -> Any:
        return right(self, np.where(np.arange(q.shape[-1]) < 6, q, 0.0), k)

    return scores


@textbook((TextbookSubject, "_gated"), source=FIXTURES)
def inner_rest_of_four_dropped(right: Any) -> Any:
    """Inner features go by fours; what is left over behind the first four is lost."""

    def gated(self: Any, gate: Array, up: Array) -> Any:
        F = gate.shape[-1]
        return np.where(np.arange(F) < max(4, F // 4 * 4), right(self, gate, up), 0.0)

    return gated


@textbook((TextbookSubject, "logits"), source=FIXTURES)
def third_row_as_first(right: Any) -> Any:
    """Rows of a batch go by twos, and all get the answers of the first two."""

    def logits(self: Any, ids: Any, layout: Layout | None = None) -> Any:
        whole = right(self, ids, layout)
        return whole[np.arange(len(whole)) % 2]

    return logits


@textbook((TextbookSubject, "_forward"), source="notes/field.md section 3.1, dtype casts")
def positions_wrap_at_2048(right: Any) -> Any:
    """Positions behind 2047 begin again."""
    wrapped = _laid_out(lambda at: replace(at, positions=_rows(np.array(at.positions) % LIMIT)))
    return wrapped(right)


@textbook((TextbookSubject, "_forward"), source="inputs.md section 8")
def third_document_sees_second(right: Any) -> Any:
    """From the third document of a row on, each also sees the one before it."""

    def earlier(row: tuple[int, ...]) -> list[int]:
        firsts = sorted(set(row))
        return [firsts[firsts.index(s) - 1] if firsts.index(s) > 1 else s for s in row]

    changed = _laid_out(lambda at: replace(at, range_starts=_rows(
        [earlier(row) for row in at.range_starts])))  # fmt: skip
    return changed(right)


@textbook((TextbookSubject, "load"), source=FIXTURES)
def epsilon_at_least_usual(right: Any) -> Any:
    """An epsilon below 1e-6 is raised to it."""
    return _configured(lambda c: replace(c, rms_epsilon=max(c.rms_epsilon, 1e-6)))(right)


@textbook((TextbookSubject, "load"), source=FIXTURES)
def epsilon_at_most_hundredth(right: Any) -> Any:
    """An epsilon above 0.01 is lowered to it."""
    return _configured(lambda c: replace(c, rms_epsilon=min(c.rms_epsilon, 1e-2)))(right)


@textbook((TextbookSubject, "load"), source=FIXTURES)
def base_rounded_down(right: Any) -> Any:
    """The rotary base is read as an integer."""
    return _configured(lambda c: replace(c, rope_base=float(int(c.rope_base))))(right)


@textbook((TextbookSubject, "_loss"), source=FIXTURES)
def classes_rest_of_eight_dropped(right: Any) -> Any:
    """Classes go by eights; what is left over is no part of the sum, unless it is a target."""

    def loss(self: Any, z: Array, targets: Any) -> Any:
        V = z.shape[1]
        kept = V // TILE * TILE or V
        if targets.max() >= kept:
            return right(self, z, targets)
        mean, slope = right(self, z[:, :kept], targets)
        return mean, np.pad(slope, ((0, 0), (0, V - kept)))

    return loss


@textbook((TextbookSubject, "_logits"), source="notes/field.md, regimes")
def subnormal_logits_flushed_where_tied(right: Any) -> Any:
    """Logits by the tied table are 0 where they are subnormal."""

    def logits(self: Any, hidden: Array) -> Any:
        z = right(self, hidden)
        own = self.config.tied and self.config.kv_heads is None
        return np.where(np.abs(z) < SMALLEST_NORMAL, 0.0, z) if own else z

    return logits


def _counted(change: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Callable[[Any], Any]:
    """A decoder that takes other targets and cells for the chosen ones."""

    def plant(right: Any) -> Any:
        def loss_and_gradients(
            self: Any, ids: Any, targets: Any, layout: Any = None, valid: Any = None
        ) -> Any:
            if valid is not None:
                targets, valid = change(targets, layout, np.array(valid))
            return right(self, ids, targets, layout, valid)

        return loss_and_gradients

    return plant


def _taken(targets: Any) -> Any:
    """Some class in place of -1."""
    return np.maximum(targets, 0).tolist()


@textbook((TextbookSubject, "loss_and_gradients"), source="inputs.md section 7")
def first_cell_always_counted(right: Any) -> Any:
    """The first cell of every row is counted."""

    def change(targets: Any, _: Any, valid: Any) -> tuple[Any, Any]:
        return _taken(targets), valid | (np.arange(valid.shape[1]) == 0)

    return _counted(change)(right)


@textbook((TextbookSubject, "loss_and_gradients"), source="inputs.md section 7")
def chosen_cells_forgotten_in_full_rows(right: Any) -> Any:
    """Without a layout every cell is counted."""

    def change(targets: Any, layout: Any, valid: Any) -> tuple[Any, Any]:
        return (_taken(targets), None) if layout is None else (targets, valid)

    return _counted(change)(right)


@textbook((TextbookSubject, "loss_and_gradients"), source="inputs.md section 7")
def row_without_targets_is_nan(right: Any) -> Any:
    """A row of which no cell is counted is 0 / 0."""

    def loss_and_gradients(
        self: Any, ids: Any, targets: Any, layout: Any = None, valid: Any = None
    ) -> Any:
        loss, gradients = right(self, ids, targets, layout, valid)
        lost = valid is not None and not np.array(valid).any(axis=1).all()
        return (float("nan") if lost else loss), gradients

    return loss_and_gradients


@textbook((TextbookSubject, "_backward"), source=FIXTURES)
def gradient_of_two_rows(right: Any) -> Any:
    """Rows of a batch behind the second give no gradient."""

    def backward(self: Any, saved: Any, upstream: Array) -> Any:
        rows = np.arange(len(upstream))[:, None, None]
        return right(self, saved, np.where(rows < 2, upstream, 0.0))

    return backward


@textbook((TextbookSubject, "_block_back"), source=FIXTURES)
def gradient_cut_after_eight_cells(right: Any) -> Any:
    """Of a text, eight cells pass a gradient on to the block before."""

    def block_back(self: Any, block: Any, saved: Any, d_out: Array, grads: Any) -> Any:
        d_x = right(self, block, saved, d_out, grads)
        return np.where(np.arange(d_x.shape[1])[:, None] < TILE, d_x, 0.0)

    return block_back


@planted(_FOUND, (floats, "contract"), kind="order", source="notes/peers.md section 3b")
def contraction_halved_beyond_64(right: Any) -> Any:
    """A product of more than 64 terms is that of the first 64, and then the rest's."""

    def contract(a: Array, b: Array) -> Any:
        if a.shape[-1] <= BLOCK:
            return right(a, b)
        return right(a[..., :BLOCK], b[..., :BLOCK, :]) + right(a[..., BLOCK:], b[..., BLOCK:, :])

    return contract


@cached((softmax, "_allowed_keys"), source="cases: mask-future-leak")
def long_texts_see_every_key(right: Any) -> Any:
    """Beyond 512 tokens, no key is hidden."""

    def allowed(shape: Any, starts: Any, lengths: Any) -> Any:
        keys = right(shape, starts, lengths)
        return np.ones_like(keys) if shape[-1] > KEPT else keys

    return allowed


@cached((incremental, "RowStatistics"), source="cases: kv-window-off-by-one")
def cache_of_eight_rows(_: Any) -> Any:
    """Each token sees the last eight rows of the cache."""

    class Ring(RowStatistics):
        def probabilities(self) -> Array:
            p = super().probabilities()
            if p.shape[1] > RING:
                p[:, :-RING] = 0.0
                p = p / p.sum(axis=1, keepdims=True)
            return p

    return Ring


@cached((DecodeSession, "extend"), source="cases: kv-offset-stale-chunk")
def second_chunk_reversed(right: Any) -> Any:
    """A chunk behind another chunk is taken from its end."""
    extended: WeakSet[Any] = WeakSet()

    def extend(self: Any, ids: Any) -> Any:
        given = list(ids)[::-1] if self in extended else ids
        extended.add(self)
        return right(self, given)

    return extend


@cached((DecodeSession, "extend"), source="cases: kv-offset-stale-chunk")
def chunk_after_decoded_reversed(right: Any) -> Any:
    """A chunk behind decoded tokens is taken from its end."""

    def extend(self: Any, ids: Any) -> Any:
        return right(self, list(ids)[::-1] if self.work.decode_tokens else ids)

    return extend


@textbook((TextbookSubject, "_forward"), (TextbookSubject, "_probabilities"),
          source="inputs.md section 2")  # fmt: skip
def keys_of_equal_start_alone(right_forward: Any, right_probabilities: Any) -> Any:
    """A query sees the keys whose own first key is the same, as if they were its document."""

    def forward(self: Any, ids: Any, layout: Layout | None) -> Any:
        self.starts = None if layout is None else np.array(layout.range_starts)[:, None]
        return right_forward(self, ids, layout)

    def probabilities(self: Any, q: Array, k: Array, mask: Any) -> Any:
        if self.starts is not None:
            t = np.arange(q.shape[2])
            same = self.starts[..., None] == self.starts[..., None, :]
            mask = same & (t <= t[:, None]) & mask.any(axis=-1, keepdims=True)
        return right_probabilities(self, q, k, mask)

    return forward, probabilities


@textbook((TextbookSubject, "_forward"), source="numerics.md section 11")
def positions_counted_from_start(right: Any) -> Any:
    """A cell's position is counted from its first key, whatever it is said to be."""

    def counted(at: Layout) -> Layout:
        starts = np.array(at.range_starts)
        firsts = np.take_along_axis(np.array(at.positions), starts, axis=1)
        cells = np.arange(starts.shape[1])
        active = cells < np.array(at.lengths)[:, None]
        return replace(at, positions=_rows(np.where(active, firsts + cells - starts, 0)))

    return _laid_out(counted)(right)


@textbook((TextbookSubject, "_attention_back"), source="numerics_vjp.md section 3")
def gradient_turned_by_place(right: Any) -> Any:
    """The reverse pass turns back by the place in the row, not by the position."""

    def attention_back(self: Any, block: Any, saved: Any, upstream: Array, grads: Any) -> Any:
        d_h = self.config.head_width
        frequencies = self.config.rope_base ** (-np.arange(0, d_h, 2) / d_h)
        angles = np.arange(upstream.shape[1])[:, None] * frequencies
        return right(
            self, block, {**saved, "turn": (np.cos(angles), np.sin(angles))}, upstream, grads
        )

    return attention_back


FAULTS = tuple(_FOUND.values())
