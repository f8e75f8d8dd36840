"""The parameter census: every learned scalar counted once, the tied table too."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from . import fields, shapes, sizes
from .records import ModelRecord
from .shapes import Category, TensorGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Scalars by category; `groups` in the order of the parameters.

    tied_head_alias: the tensor that the output head reads; it owns nothing more
    """

    groups: tuple[TensorGroup, ...]
    embedding: int
    attention: int
    feed_forward: int
    norms: int
    total: int
    tensors: int
    tied_head_alias: str = shapes.TABLE

    def named_tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Full name and shape of every tensor in the order of the parameters."""
        return shapes.named_tensors(self.groups)


def census(record: ModelRecord) -> Census:
    """The census of a model record.

    P = V*D + L*(2*D^2 + 2*D*K + 3*D*F + 2*D) + D
    Refuses: record/field-type, shape rules, then capacity/plan-overflow naming the product
    Source:  config_planner.md sections 4 and 5
    """
    fields.check_instance(record, ModelRecord, what="model")
    return of_groups(
        shapes.parameter_shapes(
            record.vocabulary_size,
            record.model_width,
            record.layers,
            record.heads,
            record.kv_heads,
            record.feed_forward_width,
        )
    )


def of_groups(groups: tuple[TensorGroup, ...]) -> Census:
    """The census of tensor groups; every sum on the way is checked."""
    sums: dict[Category, int] = dict.fromkeys(get_args(Category), 0)
    for group in groups:
        elements = sizes.product((group.rows, group.columns), what=group.name, label="tensor shape")
        owned = sizes.product(
            (elements, group.repetitions), what=group.name, label="tensor repetitions"
        )
        sums[group.category] = sizes.total(
            (sums[group.category], owned), what=group.name, label="parameter group"
        )
    total = sizes.total(sums.values(), what="census", label="parameter census")
    for category, scalars in (*sums.items(), ("total", total)):
        sizes.kept(scalars, what=f"census.{category}", label=f"{category} parameters")
    tensors = sizes.total(
        (group.repetitions for group in groups), what="census.tensors", label="tensor count"
    )
    return Census(
        groups=groups,
        embedding=sums["embedding"],
        attention=sums["attention"],
        feed_forward=sums["feed_forward"],
        norms=sums["norms"],
        total=total,
        tensors=sizes.kept(tensors, what="census.tensors", label="tensor count"),
    )
