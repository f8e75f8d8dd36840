"""Laws over what a reverse pass tells about itself, and what recomputation keeps."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from logitproof.properties.scalar import Config, Generator, initial_weights

from .components import Components
from .difference import Difference, first_difference
from .drawn import Array, Draw, draws, equal, first
from .law import Law

__all__ = ["LAWS"]

SHAPES = ((2, 1, 3), (3,), (2, 2, 1), ())  # of the leaves: every way to broadcast


def _reduced(shape: tuple[int, ...], wide: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of `wide` along which an operand of `shape` was repeated."""
    full = (0,) * (len(wide) - len(shape)) + shape  # 0: an axis that the operand does not have
    return tuple(i for i, (own, all_) in enumerate(zip(full, wide, strict=True))
                 if own == 0 or own != all_)  # fmt: skip


def _summed(values: Array, shape: tuple[int, ...]) -> Array:
    axes = _reduced(shape, values.shape)
    return np.asarray(values.sum(axis=axes, keepdims=True)).reshape(shape) + 0.0


def _graph(parts: Any, draw: Draw) -> tuple[list[Any], list[tuple[str, int, int]]]:
    """Leaves, one of them a constant, and steps over them: few products, so that sums are exact."""
    g = draw.generator()
    leaves = [
        parts.Parameter(f"p{i}", draw.values(g, *shape)) if i != 1
        else parts.constant(draw.values(g, *shape))
        for i, shape in enumerate(SHAPES)
    ]  # fmt: skip
    steps = [("mul", 0, g.below(4)), ("add", 1 + g.below(3), 2)]
    while len(steps) < 3 + g.below(4):
        newest = len(leaves) + len(steps)
        steps.append(("add", g.below(newest), g.below(newest)))
    return leaves, [*steps, ("add", 3 + len(steps), len(leaves))]  # the product is tracked


def _traced(implementation: Components, draw: Draw) -> Difference | None:
    """Every node and edge against the definition, exactly, on dyadic values."""
    parts = implementation.parts
    leaves, steps = _graph(parts, draw)
    nodes = list(leaves)
    for op, a, b in steps:
        nodes.append(parts.RECORDING.apply(getattr(parts.ops, op), nodes[a], nodes[b]))
    upstream = _signed_zeros(draw.values(draw.generator(), *nodes[-1].shape))
    trace = nodes[-1].backward_with_trace(upstream)
    told = [_place(nodes, trace, index) for index in range(len(trace.nodes))]
    return (
        first_difference("the seed", upstream, trace.seed)
        or equal("the last node", len(nodes) - 1, told[-1])
        or first(d for index, at in enumerate(told)
                 for d in _node(trace, index, leaves, nodes[at], steps, at))
        or first(d for edge in trace.edges for d in _edge(trace, edge, steps, told, nodes))
        or first(_gradients(trace, leaves))
        or first(_arrivals(parts, draw))
    )  # fmt: skip


def _arrivals(parts: Any, draw: Draw) -> Iterator[Difference | None]:
    """What is laid otherwise keeps its zeros' signs until it arrives at +0."""
    g = draw.generator()
    x = parts.Parameter("x", draw.values(g, 2, 3))
    laid = parts.RECORDING.apply(parts.ops.transpose, x, axes=(0, 1))
    upstream = _signed_zeros(draw.values(g, 3, 2))
    (edge,) = laid.backward_with_trace(upstream).edges
    back = upstream.T.copy()
    yield first_difference("contribution of a transposition", back, edge.contribution)
    yield first_difference("adjoint before it", np.zeros((2, 3)), edge.adjoint_before)
    yield first_difference("adjoint after it", 0.0 + back, edge.adjoint_after)
    yield first_difference("gradient after it", 0.0 + back, x.gradient)


def _signed_zeros(values: Array) -> Array:
    """Every third a zero, of either sign: sums that start from +0 leave none below it."""
    zeros = np.where(values < 0.0, -0.0, 0.0)
    return np.where(np.arange(values.size).reshape(values.shape) % 3 == 0, zeros, values)


def _place(nodes: Sequence[Any], trace: Any, index: int) -> int:
    """Which node of ours a node of the trace is, -1 where several could be it."""
    node = trace.nodes[index]
    if node.parameter is not None:
        return int(node.parameter[1:])
    if node.op == "constant":
        return 1
    later = [i for i in range(len(SHAPES), len(nodes)) if nodes[i].op == node.op]
    fits = [i for i in later if nodes[i].shape == node.shape]
    return fits[-1] if len(fits) == 1 or index == len(trace.nodes) - 1 else -1


def _node(
    trace: Any, index: int, leaves: Sequence[Any], ours: Any, steps: Sequence[Any], at: int
) -> Iterator[Difference | None]:
    node = trace.nodes[index]
    arriving = [e.contribution for e in trace.edges if e.parent == index and e.parent_tracked]
    yield equal(f"index of node {index}", index, node.index)
    if at >= 0:
        yield equal(f"shape of node {index}", ours.shape, node.shape)
        yield equal(f"node {index} tracked", ours.tracked, node.tracked)
        yield equal(f"operation of node {index}", ours.op, node.op)
    if index < len(trace.nodes) - 1 and node.tracked:
        total = sum(arriving, np.zeros(node.shape))
        yield first_difference(f"adjoint of node {index}", total, node.adjoint)
    if not node.tracked:
        yield equal(f"adjoint of the untracked node {index}", None, node.adjoint)


def _edge(
    trace: Any, edge: Any, steps: Sequence[Any], told: Sequence[int], nodes: Sequence[Any]
) -> Iterator[Difference | None]:
    child, parent = trace.nodes[edge.child], trace.nodes[edge.parent]
    what = f"edge {edge.operand} of node {edge.child}"
    yield equal(f"{what} goes up", True, edge.parent < edge.child)
    yield first_difference(f"upstream of {what}", child.adjoint, edge.upstream)
    yield equal(f"shapes saved by {what}", (parent.shape, child.shape),
                (edge.saved["input_shape"], edge.saved["output_shape"]))  # fmt: skip
    reduced = _reduced(parent.shape, child.shape)
    yield equal(f"axes reduced by {what}", reduced, edge.saved["reduced_axes"])
    factor = edge.saved["other"] if child.op == "mul" else np.ones(())
    wanted = _summed(edge.upstream * factor, parent.shape)
    yield first_difference(f"contribution of {what}", wanted, edge.contribution)
    yield equal(f"{what} tracked", parent.tracked, edge.parent_tracked)
    if edge.parent_tracked:
        after = edge.adjoint_before + edge.contribution
        yield first_difference(f"adjoint after {what}", after, edge.adjoint_after)
    held = [edge.upstream, edge.contribution, edge.adjoint_before, edge.adjoint_after]
    yield equal(f"writable by {what}", [], [a for a in held if a is not None and a.flags.writeable])
    if told[edge.child] >= 0 and told[edge.parent] >= 0:
        op, *operands = steps[told[edge.child] - len(SHAPES)]
        yield equal(f"operand of {what}", (op, operands[edge.operand]),
                    (child.op, told[edge.parent]))  # fmt: skip
        if op == "mul":
            other = nodes[operands[1 - edge.operand]].value
            yield first_difference(f"factor saved by {what}", other, edge.saved["other"])


def _gradients(trace: Any, leaves: Sequence[Any]) -> Iterator[Difference | None]:
    named = {node.parameter: node for node in trace.nodes if node.parameter is not None}
    for name, node in named.items():
        leaf = leaves[int(name[1:])]
        yield first_difference(f"gradient of {name} told", leaf.gradient, node.gradient)
        yield first_difference(f"gradient of {name}", node.adjoint, leaf.gradient)


def _kept(implementation: Components, draw: Draw) -> Difference | None:
    """Bytes beside the parameters' own, of two decoders that differ in feed-forward width."""
    g = draw.generator()
    T, layers = 2 + g.below(3), 1 + g.below(3)
    ids = [[g.below(3) for _ in range(T)]]

    def bytes_beside(width: int, *, recomputed: bool) -> int:
        config = Config(
            vocabulary_size=3, model_width=4, heads=2, feed_forward_width=width, layers=layers,
            max_positions=T, rope_base=10000.0, rms_epsilon=1e-6,
        )  # fmt: skip
        weights = initial_weights(config, Generator(draw.seed))
        implementation.load(config, weights)
        held = implementation.graph_bytes(ids, ids, recomputed=recomputed)
        return held - 8 * sum(np.size(value) for value in weights.values())

    narrow, wide = (bytes_beside(F, recomputed=True) for F in (2, 9))
    grown = bytes_beside(9, recomputed=False) - bytes_beside(2, recomputed=False)
    # Gate, up, activation and product of every cell and layer live in a graph that keeps all.
    return equal("bytes kept of wider blocks", narrow, wide) or (
        equal("bytes of four more wide values kept", True, grown >= 4 * 7 * 8 * T * layers)
    )


def _retained(implementation: Components, draw: Draw) -> Difference | None:
    """An operation of the caller's own, whose rule closes over one array and shares another."""
    parts, g = implementation.parts, draw.generator()
    n = 1 + g.below(9)
    p = parts.Parameter("p", draw.values(g, n))
    rows = np.zeros((3, n))

    def cube(x: Array) -> tuple[Array, Any]:
        squares = x * x
        held = {"rows": [rows[0], squares]}  # a view holds all rows
        return squares * x, lambda u: (3.0 * u * squares + 0.0 * held["rows"][0],)

    once = parts.RECORDING.apply(cube, p)
    total = parts.RECORDING.apply(parts.ops.add, once, once)
    arrays = {"p": n, "squares": n, "rows": 3 * n, "once": n, "total": n}
    return equal(
        f"bytes kept of {arrays}", 8 * sum(arrays.values()), implementation.retained(total)
    )


LAWS = (
    Law(
        id="tape.trace",
        statement="A trace tells every node and edge of its pass: shapes, saved evidence, what came"
        " down, what it added, and the adjoint before and after.",
        source="tape.md section 5; numerics_vjp.md section 4",
        needs=("tape", "operations"),
        faults=(
            "trace-forgets-reduced-axes",
            "trace-adjoint-before-arrival",
            "contribution-with-zeros-below",
            "first-arrival-as-it-is",
        ),
        cases=draws("dyadic", first_seed=92_000),
        check=_traced,
    ),
    Law(
        id="tape.retained",
        statement="A graph keeps its values and all that its rules close over, each array once and"
        " whole.",
        source="numerics_vjp.md section 4",
        needs=("tape", "operations", "graph-bytes"),
        faults=("closures-not-counted",),
        cases=draws("dyadic", first_seed=91_500),
        check=_retained,
    ),
    Law(
        id="decoder.recomputation-memory",
        statement="Where block boundaries alone are kept, wider blocks keep no byte more beside"
        " their parameters; a graph that keeps all keeps every wide value.",
        source="numerics_vjp.md section 6",
        needs=("recomputation", "graph-bytes"),
        faults=("recomputation-keeps-all",),
        cases=draws("dyadic", first_seed=93_000),
        check=_kept,
    ),
)
