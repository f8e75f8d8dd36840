"""The operations of a decoder in execution order, with the shape of all they allocate."""

from dataclasses import dataclass, replace
from typing import Final

from . import shapes

Shape = tuple[int, ...]

INPUT: Final = "input"  # of a block: the output of the block before it
RESIDUAL: Final = "residual"  # what the last block leaves
HIDDEN: Final = "final_norm.output"
LOGITS: Final = "logits"
SCALAR: Final[Shape] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of one execution; T positions per row, C rows in each cache."""

    V: int
    D: int
    L: int
    H_q: int
    H_kv: int
    F: int
    B: int
    T: int
    C: int

    @property
    def d_h(self) -> int:
        """Features of one head."""
        return shapes.head_width(self.D, self.H_q)

    @property
    def K(self) -> int:
        """Features of all key heads."""
        return self.H_kv * self.d_h


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation: what it reads, the value it makes, and what it allocates besides.

    operands: earlier operations, parameters, or the section's input
    saved:    arrays that only the reverse pass reads
    scratch:  arrays of the forward whose sizes its operands do not show
    """

    name: str
    kind: str
    operands: tuple[str, ...]
    shape: Shape
    saved: tuple[Shape, ...] = ()
    scratch: tuple[Shape, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Operations that end in `output`, and the shapes of the leaves they read."""

    ops: tuple[Op, ...]
    leaves: dict[str, Shape]

    @property
    def output(self) -> str:
        """The name of the last operation that others read."""
        return self.ops[-1].name

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shape of every operand."""
        return {**self.leaves, **{op.name: op.shape for op in self.ops}}


def embedding(n: Sizes) -> Section:
    """The lookup."""
    op = Op(
        name="embeddings",
        kind="gather_rows",
        operands=(shapes.TABLE,),
        shape=(n.B, n.T, n.D),
    )
    return Section(ops=(op,), leaves={shapes.TABLE: (n.V, n.D)})


def block(n: Sizes) -> Section:
    """One block in the order of numerics.md sections 9 to 13."""
    hidden, cells = (n.B, n.T, n.D), (n.B, n.T, n.F)
    ops = (
        *_norm("attention_norm", INPUT, n),
        *_attention("attention_norm.output", n),
        Op(
            name="attention_residual",
            kind="add",
            operands=(INPUT, "attention.output"),
            shape=hidden,
        ),
        *_norm("ffn_norm", "attention_residual", n),
        _linear("ffn.gate", "ffn_norm.output", cells),
        Op(
            name="ffn.activated",
            kind="silu",
            operands=("ffn.gate",),
            shape=cells,
            saved=(cells,),
        ),
        _linear("ffn.up", "ffn_norm.output", cells),
        Op(name="ffn.product", kind="mul", operands=("ffn.activated", "ffn.up"), shape=cells),
        _linear("ffn.down", "ffn.product", hidden),
        Op(name="output", kind="add", operands=("attention_residual", "ffn.down"), shape=hidden),
    )
    return Section(ops=ops, leaves={INPUT: hidden, **_block_parameters(n)})


def final_norm(n: Sizes) -> Section:
    """The norm behind the last block."""
    leaves = {RESIDUAL: (n.B, n.T, n.D), shapes.FINAL_GAIN: (n.D,)}
    return Section(ops=_norm("final_norm", RESIDUAL, n), leaves=leaves)


def head(n: Sizes) -> Section:
    """The tied projection."""
    logits = (n.B, n.T, n.V)
    ops = (
        Op(name="head.table", kind="transpose", operands=(shapes.TABLE,), shape=(n.D, n.V)),
        Op(
            name=LOGITS,
            kind="matmul",
            operands=(HIDDEN, "head.table"),
            shape=logits,
        ),
    )
    return Section(ops=ops, leaves={HIDDEN: (n.B, n.T, n.D), shapes.TABLE: (n.V, n.D)})


def loss(n: Sizes) -> Section:
    """The indexed mean over all positions."""
    logits = (n.B, n.T, n.V)
    op = Op(
        name="loss",
        kind="indexed_mean_nll",
        operands=(LOGITS,),
        shape=SCALAR,
        saved=(logits,),
    )
    return Section(ops=(op,), leaves={LOGITS: logits})


def one_token(n: Sizes) -> Sizes:
    """The sizes of one new token in one row; the cache keeps its rows."""
    return replace(n, B=1, T=1)


def cached_block(n: Sizes) -> Section:
    """One block for one new token over all cached rows; numerics.md section 14.

    n: of one token
    """
    token, cells = (1, 1, n.D), (1, 1, n.F)
    key, scores = (1, n.H_kv, 1, n.d_h), (1, n.H_q, 1, n.C)
    query = (1, n.H_q, 1, n.d_h)
    ops = (
        *_norm("attention_norm", INPUT, n),
        _linear("attention.query", "attention_norm.output", token),
        *_split("query", query, n),
        _linear("attention.key", "attention_norm.output", (1, 1, n.K)),
        *_split("key", key, n),
        _linear("attention.value", "attention_norm.output", (1, 1, n.K)),
        *_split("value", key, n),
        _rotation("query", "attention.query.split", query),
        _rotation("key", "attention.key.split", key),
        Op(
            name="attention.merged",
            kind="cached_attention",
            operands=("attention.query.rotated",),
            shape=token,
            scratch=(*(scores,) * 7, *(query,) * 3),
        ),
        _linear("attention.output", "attention.merged", token),
        Op(
            name="attention_residual",
            kind="add",
            operands=(INPUT, "attention.output"),
            shape=token,
        ),
        *_norm("ffn_norm", "attention_residual", n),
        _linear("ffn.gate", "ffn_norm.output", cells),
        Op(
            name="ffn.activated",
            kind="silu",
            operands=("ffn.gate",),
            shape=cells,
        ),
        _linear("ffn.up", "ffn_norm.output", cells),
        Op(name="ffn.product", kind="mul", operands=("ffn.activated", "ffn.up"), shape=cells),
        _linear("ffn.down", "ffn.product", token),
        Op(name="output", kind="add", operands=("attention_residual", "ffn.down"), shape=token),
    )
    return Section(ops=ops, leaves={INPUT: token, **_block_parameters(n)})


def _norm(path: str, source: str, n: Sizes) -> tuple[Op, ...]:
    """Root mean square normalisation, composed; both constants are leaves of rank 0."""
    hidden, rows = (n.B, n.T, n.D), (n.B, n.T, 1)
    return (
        Op(name=f"{path}.square", kind="mul", operands=(source, source), shape=hidden),
        Op(
            name=f"{path}.mean_square",
            kind="mean",
            operands=(f"{path}.square",),
            shape=rows,
        ),
        Op(name=f"{path}.epsilon", kind="constant", operands=(), shape=SCALAR),
        Op(
            name=f"{path}.stable",
            kind="add",
            operands=(f"{path}.mean_square", f"{path}.epsilon"),
            shape=rows,
        ),
        Op(
            name=f"{path}.log",
            kind="log",
            operands=(f"{path}.stable",),
            shape=rows,
        ),
        Op(name=f"{path}.exponent", kind="constant", operands=(), shape=SCALAR),
        Op(
            name=f"{path}.scaled",
            kind="mul",
            operands=(f"{path}.log", f"{path}.exponent"),
            shape=rows,
        ),
        Op(
            name=f"{path}.inverse",
            kind="exp",
            operands=(f"{path}.scaled",),
            shape=rows,
        ),
        Op(
            name=f"{path}.normalized",
            kind="mul",
            operands=(source, f"{path}.inverse"),
            shape=hidden,
        ),
        Op(
            name=f"{path}.output",
            kind="mul",
            operands=(f"{path}.normalized", f"{path}.gain"),
            shape=hidden,
        ),
    )


def _attention(source: str, n: Sizes) -> tuple[Op, ...]:
    """Causal attention over whole rows; numerics.md section 12."""
    query, key = (n.B, n.H_q, n.T, n.d_h), (n.B, n.H_kv, n.T, n.d_h)
    lanes = (n.B * n.H_q, n.T, n.d_h)
    key_lanes = (n.B * n.H_kv, n.T, n.d_h)
    square = (n.B * n.H_q, n.T, n.T)
    return (
        *_projections(source, n),
        *_split("query", query, n),
        *_split("key", key, n),
        *_split("value", key, n),
        _rotation("query", "attention.query.split", query),
        _rotation("key", "attention.key.split", key),
        _reshape("attention.query.lanes", "attention.query.rotated", lanes),
        _reshape("attention.key.lanes", "attention.key.rotated", key_lanes),
        _reshape("attention.value.lanes", "attention.value.split", key_lanes),
        Op(
            name="attention.key.transposed",
            kind="transpose",
            operands=("attention.key.lanes",),
            shape=(n.B * n.H_kv, n.d_h, n.T),
        ),
        Op(
            name="attention.scores",
            kind="matmul",
            operands=("attention.query.lanes", "attention.key.transposed"),
            shape=square,
        ),
        Op(name="attention.scale", kind="constant", operands=(), shape=SCALAR),
        Op(
            name="attention.scaled",
            kind="mul",
            operands=("attention.scores", "attention.scale"),
            shape=square,
        ),
        Op(
            name="attention.probabilities",
            kind="causal_softmax",
            operands=("attention.scaled",),
            shape=square,
        ),
        Op(
            name="attention.mixture",
            kind="matmul",
            operands=("attention.probabilities", "attention.value.lanes"),
            shape=lanes,
        ),
        _reshape("attention.restored", "attention.mixture", query),
        Op(
            name="attention.swapped",
            kind="transpose",
            operands=("attention.restored",),
            shape=(n.B, n.T, n.H_q, n.d_h),
        ),
        _reshape("attention.merged", "attention.swapped", (n.B, n.T, n.D)),
        _linear("attention.output", "attention.merged", (n.B, n.T, n.D)),
    )


def _projections(source: str, n: Sizes) -> tuple[Op, ...]:
    return (
        _linear("attention.query", source, (n.B, n.T, n.D)),
        _linear("attention.key", source, (n.B, n.T, n.K)),
        _linear("attention.value", source, (n.B, n.T, n.K)),
    )


def _split(role: str, heads: Shape, n: Sizes) -> tuple[Op, ...]:
    """[B, T, width] -> [B, H, T, d_h], in two copies."""
    path = f"attention.{role}"
    return (
        _reshape(f"{path}.heads", path, (n.B, n.T, heads[1], n.d_h)),
        Op(name=f"{path}.split", kind="transpose", operands=(f"{path}.heads",), shape=heads),
    )


def _rotation(role: str, source: str, heads: Shape) -> Op:
    """A rotation keeps the rows of both tables that its positions name."""
    rows = (heads[0], heads[2], heads[3] // 2)
    return Op(
        name=f"attention.{role}.rotated",
        kind="rotary_pairs",
        operands=(source,),
        shape=heads,
        saved=(rows, rows),
    )


def _reshape(name: str, source: str, shape: Shape) -> Op:
    return Op(name=name, kind="reshape", operands=(source,), shape=shape)


def _linear(name: str, source: str, shape: Shape) -> Op:
    return Op(
        name=name,
        kind="matmul",
        operands=(source, f"{name}.weight"),
        shape=shape,
    )


def _block_parameters(n: Sizes) -> dict[str, Shape]:
    groups = shapes.parameter_shapes(n.V, n.D, n.L, n.H_q, n.H_kv, n.F)
    return {group.name: group.shape for group in groups[1:-1]}
