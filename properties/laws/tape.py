"""Laws over nodes, contexts and reverse passes."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .components import Components
from .difference import Difference, first_difference
from .drawn import Array, Draw, draws, equal, first, refused
from .law import Law

__all__ = ["LAWS"]

STALE, RELEASED = "binding/stale-operand-value", "state/graph-released"


def _leaves(parts: Any, draw: Draw, count: int, width: int) -> list[Any]:
    g = draw.generator()
    return [parts.Parameter(f"p{i}", draw.values(g, width)) for i in range(count)]


def _program(draw: Draw, leaves: int) -> list[tuple[str, int, int]]:
    """Sums and products of earlier nodes, the same node on both sides now and then."""
    g = draw.generator()
    steps = []
    for number in range(leaves, leaves + 1 + g.below(2 + min(draw.size, 7))):
        left = g.below(number)
        right = left if g.below(3) == 0 else g.below(number)
        # One product early: later ones would leave the exact range.
        steps.append(("mul" if number < leaves + 2 else "add", left, right))
    return steps


def _slopes(program: Sequence[tuple[str, int, int]], values: list[Array], leaf: int) -> Array:
    """Forward mode: the last node's slope by one leaf, cell by cell."""
    nodes = list(values)
    slopes = [np.ones_like(v) if i == leaf else np.zeros_like(v) for i, v in enumerate(values)]
    for op, a, b in program:
        if op == "add":
            nodes.append(nodes[a] + nodes[b])
            slopes.append(slopes[a] + slopes[b])
        else:
            nodes.append(nodes[a] * nodes[b])
            slopes.append(slopes[a] * nodes[b] + nodes[a] * slopes[b])
    return slopes[-1]


def _run(parts: Any, program: Sequence[tuple[str, int, int]], leaves: Sequence[Any]) -> Any:
    nodes = list(leaves)
    for op, a, b in program:
        nodes.append(parts.RECORDING.apply(getattr(parts.ops, op), nodes[a], nodes[b]))
    return nodes[-1]


def _reuse(implementation: Components, draw: Draw) -> Difference | None:
    """Reverse mode against forward mode, exactly, on dyadic values."""
    parts = implementation.parts
    leaves = _leaves(parts, draw, 3, 2)
    program, values = _program(draw, 3), [leaf.value.copy() for leaf in leaves]
    seed = draw.values(draw.generator(), 2)
    _run(parts, program, leaves).backward(seed)
    return first(
        first_difference(
            f"slope of {program} by leaf {i}", seed * _slopes(program, values, i) + 0.0,
            leaf.gradient,
        )
        for i, leaf in enumerate(leaves)
    )  # fmt: skip


def _passes(implementation: Components, draw: Draw) -> Difference | None:
    """Passes with several seeds over one graph add; zeroing starts again."""
    parts, g = implementation.parts, draw.generator()
    (x,) = _leaves(parts, draw, 1, 2)
    y = parts.RECORDING.apply(parts.ops.mul, x, x)
    seeds = [draw.values(g, 2) for _ in range(1 + g.below(4))]
    total = np.zeros(2)
    for k, seed in enumerate(seeds):
        y.backward(seed)
        total = total + seed * (2.0 * x.value)
        found = first_difference(f"gradient after pass {k} of {seeds}", total, x.gradient)
        if found is not None:
            return found
    x.zero_gradient()
    return first_difference("gradient set to zero", np.zeros(2), x.gradient)


def _release(implementation: Components, draw: Draw) -> Difference | None:
    """retain=False commits, then the graph is gone and the leaves are not."""
    parts = implementation.parts
    x, y = _leaves(parts, draw, 2, 2)
    ops, apply = parts.ops, parts.RECORDING.apply
    inner, ones = apply(ops.mul, x, y), np.ones(2)
    outer = apply(ops.add, inner, x)
    outer.backward(ones)
    once = x.gradient
    outer.backward(ones, retain=False)
    again = apply(ops.add, x, y)
    again.backward(ones)
    fresh = apply(ops.mul, y, y)
    traces = [fresh.backward_with_trace(ones, retain=retain) for retain in (True, False)]
    slope = x.value + x.value + 1.0 + 4.0 * y.value + 0.0
    return first(
        iter(
            (
                first_difference("gradient of two passes and one", once + once + 1.0, x.gradient),
                first_difference("gradient of traced passes too", slope, y.gradient),
                equal("graphs kept, told by traces", [True, False], [t.retain for t in traces]),
                refused("a pass over a released graph", RELEASED, lambda: outer.backward(ones)),
                refused("a pass from an inner node", RELEASED, lambda: inner.backward(ones)),
                refused("a pass after a traced one", RELEASED, lambda: fresh.backward(ones)),
                refused("a released operand", "state/released-operand",
                        lambda: apply(ops.add, inner, x)),
                refused("an operand released by a traced pass", "state/released-operand",
                        lambda: apply(ops.add, fresh, x)),
            )
        )
    )  # fmt: skip


def _no_grad(implementation: Components, draw: Draw) -> Difference | None:
    """Without recording: the same bits, no graph, no gradient; so for a detached node."""
    parts, ops = implementation.parts, implementation.parts.ops
    (x,) = _leaves(parts, draw, 1, 3)
    recorded = parts.RECORDING.apply(ops.mul, x, x)
    plain = parts.NO_GRAD.apply(ops.mul, x, x)
    cut, leaf = recorded.detach(), x.detach()
    mixed = parts.RECORDING.apply(ops.mul, cut, x)
    mixed.backward(np.ones(3))
    untracked = "state/untracked-output"
    return first(
        iter(
            (
                first_difference("values without recording", recorded.value, plain.value),
                first_difference("values of a detached node", recorded.value, cut.value),
                equal("tracked", (True, False, False, False, True),
                      (recorded.tracked, plain.tracked, cut.tracked, leaf.tracked, mixed.tracked)),
                first_difference("values of a detached leaf", x.value, leaf.value),
                refused("a pass without a graph", untracked, lambda: plain.backward(np.ones(3))),
                refused("a pass from a detached node", untracked,
                        lambda: cut.backward(np.ones(3))),
                first_difference("gradient past a detached node", recorded.value, x.gradient),
            )
        )
    )  # fmt: skip


def _stale(implementation: Components, draw: Draw) -> Difference | None:
    """A value assigned after it was read refuses the pass, the same value too; a new graph runs."""
    parts, ops = implementation.parts, implementation.parts.ops
    x, y = _leaves(parts, draw, 2, 2)
    product = parts.RECORDING.apply(ops.mul, x, y)
    value, revision = x.value.copy(), x.revision
    x.assign(value)
    before = (x.gradient.tobytes(), y.gradient.tobytes())

    def kept() -> Difference | None:
        return equal("gradients kept", before, (x.gradient.tobytes(), y.gradient.tobytes()))

    found = (
        equal("revision", revision + 1, x.revision)
        or refused("a pass over a stale value", STALE, lambda: product.backward(np.ones(2)))
        or kept()
    )
    if found is not None:
        return found
    x.assign(value + 1.0)
    fresh = parts.RECORDING.apply(ops.mul, x, y)
    fresh.backward(np.ones(2))
    return first_difference("gradient of the new graph", value + 1.0 + 0.0, y.gradient)


def _readers(implementation: Components, draw: Draw) -> Difference | None:
    """While read, a value is not assigned and a gradient not written; afterwards they are."""
    parts, ops = implementation.parts, implementation.parts.ops
    (x,) = _leaves(parts, draw, 1, 2)
    y = parts.RECORDING.apply(ops.mul, x, x)
    value, ones = x.value.copy(), np.ones(2)

    def held() -> Iterator[Difference | None]:
        y.backward(ones)
        slope = x.gradient
        with x.reading():
            with x.reading():
                pass  # one of two is closed
            yield refused("an assignment while read", "state/value-borrowed",
                          lambda: x.assign(value))  # fmt: skip
        with x.reading_gradient() as shown:
            with x.reading_gradient():
                pass
            borrowed = "state/gradient-borrowed"
            yield refused("a pass while the gradient is read", borrowed, lambda: y.backward(ones))
            yield refused("zeroing while the gradient is read", borrowed, x.zero_gradient)
            yield first_difference("gradient that is read", 2.0 * value + 0.0, shown)
        yield equal("gradient kept", slope.tobytes(), x.gradient.tobytes())
        yield equal(
            "value and revision kept", (value.tobytes(), 0), (x.value.tobytes(), x.revision)
        )
        y.backward(ones)
        yield first_difference("gradient afterwards", slope + slope, x.gradient)
        x.assign(value)

    return first(held())


def _overwrite(array: Array) -> None:
    """Tries to write; a refused write is as good as one into a copy."""
    try:
        array[...] = 77.0
    except ValueError:
        return


def _aliasing(implementation: Components, draw: Draw) -> Difference | None:
    """No array given or received is a way to change what the tape holds."""
    parts, ops = implementation.parts, implementation.parts.ops
    g = draw.generator()
    given, shown = draw.values(g, 2, 2), draw.values(draw.generator(), 2, 2)
    x = parts.Parameter("x", given)
    leaf = parts.constant(given)
    y = parts.RECORDING.apply(ops.mul, x, leaf)
    result = y.value.copy()
    _overwrite(given)
    assigned = shown.copy()
    for array in (x.value, leaf.value, y.value):
        _overwrite(array)
    seed = np.ones((2, 2))
    y.backward(seed)
    first_gradient = x.gradient
    kept = first_gradient.copy()
    y.backward(seed)
    later = x.gradient.copy()
    _overwrite(x.gradient)
    _overwrite(seed)
    checks: list[tuple[str, Array, Array]] = [
        ("parameter", shown, x.value),
        ("constant", shown, leaf.value),
        ("result", result, y.value),
        ("gradient read before a later pass", kept, first_gradient),
        ("gradient", later, x.gradient),
    ]
    x.assign(assigned)
    _overwrite(assigned)
    checks.append(("assigned value", shown, x.value))
    return first(first_difference(what, want, got) for what, want, got in checks)


def _pass_that_fails(implementation: Components, draw: Draw) -> Difference | None:
    """A pass that overflows behind some parameters leaves every gradient as it was."""
    parts, ops = implementation.parts, implementation.parts.ops
    g = draw.generator()
    x, y = _leaves(parts, draw, 2, 1)
    small = parts.Parameter("small", [1e-200])
    apply: Callable[..., Any] = parts.RECORDING.apply
    inner = apply(ops.mul, small, parts.constant([1e200]))
    steep = apply(ops.mul, inner, parts.constant([1e200 * (1.0 + g.unit())]))
    large = parts.constant([1e300 * (1.0 + g.unit())])
    # By way of `far` nothing overflows but the slope by what nobody asks the slope of.
    far = apply(ops.mul, parts.Parameter("far", [1.0]), large)
    detached = parts.Parameter("p", [1e-300]).detach()
    untracked = (("a constant", parts.constant([1e-300])), ("a detached node", detached))
    before = [p.gradient.tobytes() for p in (x, y, small)]
    code = ("numeric/non-finite-vjp", "numeric/non-finite-pass-adjoint")

    def one(what: str, node: Any, seed: float) -> Iterator[Difference | None]:
        total = apply(ops.add, node, apply(ops.mul, x, y))  # the product is walked first
        for run in (total.backward, total.backward_with_trace):
            yield refused(
                f"a pass that overflows toward {what}", code, partial(run, np.array([seed]))
            )
            yield equal("gradients", before, [p.gradient.tobytes() for p in (x, y, small)])

    given = [("a parameter", steep, 1e100)]
    given += [(what, apply(ops.mul, far, other), 1e300) for what, other in untracked]
    return first(d for case in given for d in one(*case))


def _identity(implementation: Components, draw: Draw) -> Difference | None:
    """A node is itself, whoever holds it; nothing that equals it is."""
    parts = implementation.parts
    p, twin = (parts.Parameter("p", draw.values(draw.generator(), 2)) for _ in range(2))
    double, again = (parts.RECORDING.apply(parts.ops.add, p, p) for _ in range(2))
    pairs = (
        (p, p, True), (double, double, True), (p, twin, False), (double, again, False),
        (double, double.detach(), False), (p, double, False),
    )  # fmt: skip
    return first(
        equal(f"{one.op} and {other.op}, one node", same, one.is_same_node(other))
        for one, other, same in pairs
    )


def _law(
    name: str,
    statement: str,
    check: Callable[[Any, Any], Difference | None],
    *faults: str,
    source: str,
    seed: int,
) -> Law:
    return Law(
        id=f"tape.{name}",
        statement=statement,
        source=source,
        needs=("tape", "operations"),
        faults=faults,
        cases=draws("dyadic", first_seed=seed),
        check=check,
    )


LAWS = (
    _law(
        "identity",
        "A handle is the node itself; equal values, detached nodes and other results are others.",
        _identity,
        "equal-values-one-node",
        source="tape.md section 1",
        seed=39_000,
    ),
    _law(
        "reuse",
        "A node used several times, by both operands too, has the sum of its slopes: reverse mode"
        " is forward mode, exactly.",
        _reuse,
        "reused-node-overwrites", "walk-before-all-children", "seed-taken-for-ones",
        source="numerics_vjp.md section 1; cases: ad-reused-node",
        seed=40_000,
    ),
    _law(
        "passes",
        "Passes with any seeds over one graph add their gradients; zeroing sets +0.",
        _passes,
        "backward-overwrites", "adjoints-survive-pass", "seed-taken-for-ones",
        source="numerics_vjp.md section 1; cases: ad-backward-twice",
        seed=41_000,
    ),
    _law(
        "release",
        "A pass that does not retain, traced or not, commits once; then its graph refuses passes"
        " and operands, its leaves go on.",
        _release,
        "release-forgets-nothing", "release-keeps-inner-nodes", "traced-graph-kept",
        source="tape.md sections 4 and 5",
        seed=42_000,
    ),
    _law(
        "no-grad",
        "Without recording, and behind a detached node, values keep their bits and nothing gets a"
        " gradient.",
        _no_grad,
        "no-grad-records", "detach-keeps-graph", "detached-parameter-tracked",
        source="tape.md sections 1 and 3; cases: ad-mode-restore",
        seed=43_000,
    ),
    _law(
        "stale",
        "A pass over a graph that read a value assigned since is refused and changes nothing.",
        _stale,
        "stale-operand-accepted", "assign-keeps-revision",
        source="tape.md section 2",
        seed=44_000,
    ),
    _law(
        "readers",
        "While a reader is open, though others close, assignment or gradient writes are refused;"
        " then they work.",
        _readers,
        "assign-while-read", "gradient-written-while-read", "one-reader-closes-all",
        "gradient-reader-closes-all", "gradient-read-as-zeros",
        source="tape.md section 2",
        seed=45_000,
    ),
    _law(
        "aliasing",
        "Writing into arrays given to or received from the tape changes nothing that it holds.",
        _aliasing,
        "gradient-is-live", "assigned-array-shared", "value-writable",
        source="STYLE.md section 5; tape.md section 1",
        seed=46_000,
    ),
    _law(
        "failing-pass",
        "A pass that overflows after it reached some parameters, be it toward what is not tracked,"
        " is refused and leaves every gradient as it was.",
        _pass_that_fails,
        "commit-before-check", "untracked-slopes-unseen",
        source="numerics_vjp.md section 1",
        seed=47_000,
    ),
)  # fmt: skip
