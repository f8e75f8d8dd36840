"""Faults of counts and plans."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from functools import partial
from typing import Any

from logitproof.core import (
    backbone,
    ledgers,
    lifetimes,
    liveness,
    ops,
    planner,
    shapes,
    sizes,
    traffic,
    workspace,
)
from logitproof.core.rope import RotaryTable
from logitproof.core.vjp import Vjp, named

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")
census = importlib.import_module("logitproof.core.census")  # the name in core is the function


@mistake((census, "of_groups"), source="cases: tied-count")
def tied_table_counted_twice(right: Any) -> Any:
    """The head's table is counted beside the lookup's."""

    def of_groups(groups: Any) -> Any:
        counted = right(groups)
        return replace(counted, total=counted.total + counted.embedding)

    return of_groups


@mistake((census, "of_groups"), source="cases: tied-count")
def tied_table_subtracted(right: Any) -> Any:
    """The table, listed once, is subtracted once more for being tied."""

    def of_groups(groups: Any) -> Any:
        counted = right(groups)
        return replace(counted, total=counted.total - counted.embedding)

    return of_groups


@mistake((RotaryTable, "nbytes"), source="config_planner.md section 7")
def sines_not_counted(_: Any) -> Any:
    """The bytes of a rotary table leave out the sines."""
    return property(lambda table: table.frequencies.nbytes + table.cosines.nbytes)


@mistake((liveness, "_numbered"), source="config_planner.md section 8")
def last_round_of_another_number(right: Any) -> Any:
    """Every round but the first bears the number of the first but one."""
    return lambda event, i: right(event, min(i, 1))


@mistake((census, "of_groups"), source="cases: plan-ceil-float")
def census_in_floats(right: Any) -> Any:
    """The total has passed through a double."""

    def of_groups(groups: Any) -> Any:
        counted = right(groups)
        return replace(counted, total=int(float(counted.total)))

    return of_groups


@mistake((shapes, "kv_width"), source="notes/field.md section 3.1, GQA mapping")
def key_width_of_query_heads(_: Any) -> Any:
    """Keys and values are as wide as queries."""
    return lambda D, heads, kv_heads: D


@mistake((planner, "_kv_bytes"), source="cases: plan-kv-bytes")
def kv_by_query_heads(right: Any) -> Any:
    """The cache is counted by query heads."""
    return lambda model, rows, width: right(model.replace(kv_heads=model.heads), rows, width)


@mistake((planner, "_kv_bytes"), source="cases: plan-kv-bytes")
def keys_without_values(right: Any) -> Any:
    """The cache is counted once, for its keys."""
    return lambda model, rows, width: right(model, rows, width) // 2


@mistake((planner, "macs"), source="config_planner.md section 7")
def causal_pairs_without_diagonal(right: Any) -> Any:
    """A query is not paired with its own key."""

    def macs(model: Any, counted: Any, *, rows: int) -> Any:
        found = right(model, counted, rows=rows)
        own = 2 * rows * model.layers * model.model_width * model.max_positions
        return replace(found, causal=found.causal - own)

    return macs


@mistake((planner, "macs"), source="config_planner.md section 7")
def head_macs_forgotten(right: Any) -> Any:
    """A tied head costs nothing."""

    def macs(model: Any, counted: Any, *, rows: int) -> Any:
        found = right(model, counted, rows=rows)
        head = rows * model.max_positions * model.model_width * model.vocabulary_size
        return replace(found, causal=found.causal - head, dense=found.dense - head)

    return macs


@mistake((planner, "traffic"), source="config_planner.md section 9")
def ring_sends_one_more(right: Any) -> Any:
    """A ring of W sends W times per half, not W - 1."""

    def sent(model: Any, run: Any, counted: Any, *, width: int) -> Any:
        found = right(model, run, counted, width=width)
        W = max(run.world_size, 2)
        return replace(found, total_bytes=found.total_bytes // (W - 1) * W)

    return sent


@mistake((traffic, "partition"), source="config_planner.md section 9")
def gains_partitioned(right: Any) -> Any:
    """Gains are divided among the ranks like matrices."""

    def partition(groups: Any, W: int) -> int:
        gains = sum(g.parameter_elements for g in groups if g.partition_axis == "replicated")
        scalars: int = right(groups, W) - gains + gains // W
        return scalars

    return partition


@mistake((liveness, "measure"), source="config_planner.md section 8")
def peak_after_last_event(right: Any) -> Any:
    """The resident peak is what is alive at the end."""

    def measure(schedule: Any, *, elide: bool = True) -> Any:
        lived = right(schedule, elide=elide)
        return replace(lived, resident_peak=lived.events[-1].live)

    return measure


@mistake((liveness, "measure"), source="config_planner.md section 8")
def workspace_beside_peak(right: Any) -> Any:
    """The largest workspace is added to the resident peak, wherever both are met."""

    def measure(schedule: Any, *, elide: bool = True) -> Any:
        lived = right(schedule, elide=elide)
        return replace(lived, combined_peak=sizes.add(lived.resident_peak, lived.workspace))

    return measure


@mistake((sizes, "ceiling_quotient"), source="cases: plan-ceil-float")
def ceiling_by_float(_: Any) -> Any:
    """A quotient is a double before it is rounded up."""
    return lambda size, divisor: math.ceil(size / divisor)


@mistake((ops, "silu"), source="config_planner.md section 8")
def activation_keeps_a_copy(right: Any) -> Any:
    """The reverse rule of an activation holds a copy of what it was given."""

    @named("silu")
    def silu(x: Any) -> Any:
        value, vjp = right(x)
        return value, Vjp(vjp.rule, {**vjp.saved[0], "copy": x.copy()})

    return silu


@mistake((lifetimes, "FINAL_NORM"), source="config_planner.md section 8")
def final_norm_kept_to_the_end(_: Any) -> Any:
    """A plan lets no step of the final norm go before the logits are there."""
    return {}


@mistake((liveness._Buffers, "rename"), source="config_planner.md section 8")
def aliases_stay_behind(right: Any) -> Any:
    """The aliases of a renamed buffer keep its old name."""

    def rename(self: Any, old: str, new: str) -> None:
        owners = dict(self.owner_of)
        right(self, old, new)
        self.owner_of = owners

    return rename


@mistake((liveness._Buffers, "check_live"), source="config_planner.md section 8")
def released_names_unknown(right: Any) -> Any:
    """Who was released is forgotten: such a name was never allocated."""

    def check_live(self: Any, name: str, what: str) -> None:
        self.released.discard(name)
        right(self, name, what)

    return check_live


@mistake((ledgers, "state"), source="config_planner.md section 8")
def second_moment_in_half(right: Any) -> Any:
    """Under a protected policy the second moments have 2 bytes each."""

    def state(groups: Any, rope: Any, *, dtype_policy: str) -> Any:
        made = right(groups, rope, dtype_policy=dtype_policy)
        saved = 2 * sum(group.parameter_elements for group in groups)
        return made if dtype_policy == "f64" else replace(made, total=made.total - saved)

    return state


@mistake((ledgers, "rope_tables"), source="config_planner.md section 7")
def tables_by_layer_once(right: Any) -> Any:
    """All layers share one rotation table."""
    return lambda layers, *sizes, **facts: right(min(layers, 1), *sizes, **facts)


@mistake((backbone, "checkpoint"), source="numerics_vjp.md section 6")
def blocks_run_again_twice(right: Any) -> Any:
    """A block runs once more before its values are kept."""

    def checkpoint(block: Any, boundary: Any, **facts: Any) -> Any:
        right(block, boundary, **facts)
        return right(block, boundary, **facts)

    return checkpoint


@mistake((workspace, "reverse"), source="config_planner.md section 8")
def matrix_products_undeclared(right: Any) -> Any:
    """The products that a matrix product's reverse rule makes are declared by nobody."""
    return lambda op, operands: [] if op.kind == "matmul" else right(op, operands)


FAULTS = tuple(_FOUND.values())
