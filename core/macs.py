"""Multiply-add pairs of one nominal forward over full rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from . import sizes
from .census import Census
from .records import ModelRecord

SCORES: Final = "attention.scores"
MIXTURE: Final = "attention.mixture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Macs:
    """MACs by kind; norms, rotations, softmax, activations and masks are not counted.

    M_lin    = B*C*(L*(2*D^2 + 2*D*K + 3*D*F) + D*V)
    M_causal = M_lin + B*L*D*C*(C + 1)
    M_dense  = M_lin + 2*B*L*D*C^2

    groups:       causal MACs by tensor group (the table's are the head's) and attention product
    dense_groups: the same with every pair of cells
    """

    linear: int
    causal: int
    dense: int
    groups: Mapping[str, int]
    dense_groups: Mapping[str, int]


def macs(model: ModelRecord, census: Census, *, rows: int) -> Macs:
    """The MACs of `rows` full rows; no time and no quality follows from them.

    Refuses: capacity/plan-overflow
    Source:  config_planner.md section 7
    """
    B, C, D, L = rows, model.max_positions, model.model_width, model.layers
    matrices = {
        group.name: sizes.product(
            (B, C, group.parameter_elements), what=group.name, label="linear MACs"
        )
        for group in census.groups
        if group.category != "norms"
    }
    # C*(C + 1)/2 pairs of query and key, d_h products each, in all heads together D.
    pairs = sizes.product((C, C + 1), what="attention", label="causal pairs") // 2
    causal = sizes.product((B, L, D, pairs), what="attention", label="causal MACs")
    square = sizes.product((B, L, D, C, C), what="attention", label="dense MACs")
    linear = _total(*matrices.values(), label="linear MACs")
    return Macs(
        linear=linear,
        causal=_total(linear, causal, causal, label="causal MACs"),
        dense=_total(linear, square, square, label="dense MACs"),
        groups=MappingProxyType({**matrices, SCORES: causal, MIXTURE: causal}),
        dense_groups=MappingProxyType({**matrices, SCORES: square, MIXTURE: square}),
    )


def _total(*terms: int, label: str) -> int:
    total = sizes.total(terms, what="macs", label=label)
    return sizes.kept(total, what="macs", label=label)
