"""The shapes of a decoder's parameters: eleven groups, which census and constructor share."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from . import sizes
from .codes import Code
from .errors import ShapeRefusal

Category = Literal["embedding", "attention", "feed_forward", "norms"]
Axis = Literal["rows", "columns", "replicated"]

TABLE: Final = "token_embedding.weight"
FINAL_GAIN: Final = "final_norm.gain"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorGroup:
    """Tensors of one name suffix and one shape; `repetitions` of them.

    partition_axis: the axis that a tensor-parallel run divides
    """

    name: str
    category: Category
    rows: int
    columns: int
    repetitions: int
    partition_axis: Axis

    @property
    def shape(self) -> tuple[int, ...]:
        """[rows, columns], or [rows] for a gain."""
        return (self.rows,) if self.category == "norms" else (self.rows, self.columns)

    @property
    def elements(self) -> int:
        """Scalars of one tensor."""
        return self.rows * self.columns

    @property
    def parameter_elements(self) -> int:
        """Scalars of all its tensors."""
        return self.elements * self.repetitions


def head_width(D: int, heads: int) -> int:
    """d_h = D / H_q."""
    return D // heads


def kv_width(D: int, heads: int, kv_heads: int) -> int:
    """K = H_kv * d_h, the features of all key heads together.

    Refuses: capacity/plan-overflow
    """
    return sizes.payload((kv_heads, head_width(D, heads)), what="shape", label="KV width")


def check_shape(V: int, D: int, heads: int, kv_heads: int, F: int) -> None:
    """Refuses sizes of which no decoder can be made.

    Refuses: shape/head-grouping, shape/even-rope-head-width (in this order)
    Source:  config_planner.md section 4
    """
    named = {"V": V, "D": D, "heads": heads, "kv_heads": kv_heads, "F": F}
    for name, size in named.items():
        if size < 1:
            raise _grouping(name, "at least 1", size)
    if kv_heads > heads:
        raise _grouping("kv_heads", f"at most {heads} heads", kv_heads)
    if D % heads:
        raise _grouping("D", f"a multiple of {heads} heads", D)
    if heads % kv_heads:
        raise _grouping("heads", f"a multiple of {kv_heads} kv_heads", heads)
    if head_width(D, heads) % 2:
        raise ShapeRefusal(
            code=Code.EVEN_ROPE_HEAD_WIDTH,
            what="head_width",
            expected="an even head width",
            actual=head_width(D, heads),
        )


def parameter_shapes(
    V: int, D: int, L: int, heads: int, kv_heads: int, F: int
) -> tuple[TensorGroup, ...]:
    """The eleven groups, in the order of the parameters; L may be 0.

    Block groups carry the bare suffix and L repetitions.
    Refuses: shape/head-grouping, shape/even-rope-head-width, capacity/plan-overflow
    Source:  config_planner.md sections 4 and 5
    """
    check_shape(V, D, heads, kv_heads, F)
    K = kv_width(D, heads, kv_heads)
    groups = (
        _matrix(TABLE, "embedding", V, D, 1, "rows"),
        _gain("attention_norm.gain", D, L),
        _matrix("attention.query.weight", "attention", D, D, L, "columns"),
        _matrix("attention.key.weight", "attention", D, K, L, "columns"),
        _matrix("attention.value.weight", "attention", D, K, L, "columns"),
        _matrix("attention.output.weight", "attention", D, D, L, "rows"),
        _gain("ffn_norm.gain", D, L),
        _matrix("ffn.gate.weight", "feed_forward", D, F, L, "columns"),
        _matrix("ffn.up.weight", "feed_forward", D, F, L, "columns"),
        _matrix("ffn.down.weight", "feed_forward", F, D, L, "rows"),
        _gain(FINAL_GAIN, D, 1),
    )
    for group in groups:
        sizes.kept(group.rows, what=group.name, label="rows")
        sizes.kept(group.columns, what=group.name, label="columns")
        sizes.kept(group.repetitions, what=group.name, label="repetitions")
    return groups


def named_tensors(groups: Iterable[TensorGroup]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Full name and shape of every tensor, in the stable order of the parameters.

    Source: numerics_init.md section 3
    """
    table, *block_groups, final_gain = groups
    yield table.name, table.shape
    for i in range(block_groups[0].repetitions):
        for group in block_groups:
            yield f"blocks.{i}.{group.name}", group.shape
    yield final_gain.name, final_gain.shape


def _matrix(
    name: str, category: Category, rows: int, columns: int, repetitions: int, axis: Axis
) -> TensorGroup:
    return TensorGroup(
        name=name,
        category=category,
        rows=rows,
        columns=columns,
        repetitions=repetitions,
        partition_axis=axis,
    )


def _gain(name: str, D: int, repetitions: int) -> TensorGroup:
    return _matrix(name, "norms", D, 1, repetitions, "replicated")


def _grouping(what: str, expected: str, actual: int) -> ShapeRefusal:
    return ShapeRefusal(code=Code.HEAD_GROUPING, what=what, expected=expected, actual=actual)
