"""Layers as chains of operations: bits by the scalar rules, truth by differentiating the equations.

A layer is written once, as the specification lists its operations, over whatever does them: the
scalar rules with their own reverse walk, or the oracle's equations over numbers to 120 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import mpmath
from mpmath import mp

from logitproof.golden.load import Case, cells
from logitproof.properties.oracles import operations as oracle
from logitproof.properties.oracles.recorded import Recorded, slopes
from logitproof.properties.scalar import Generator
from logitproof.properties.scalar import operations as scalar
from logitproof.properties.scalar.arithmetic import EXACT
from logitproof.properties.scalar.forward import softmax

from . import values
from .values import Given, Object, given

__all__ = ["LAYERS", "layers", "outcome"]

Node: TypeAlias = Any
Nodes: TypeAlias = dict[str, Node]
SOURCE = "properties.scalar.operations, chained; truth from properties.oracles, chained"


class Doer(Protocol):
    """Something that does operations on nodes of its own."""

    def do(self, op: str, *operands: Node, **arguments: Any) -> Node:
        """The node of an operation's value."""

    def number(self, x: float) -> Node:
        """A constant of rank 0."""

    def angles(self, width: int, base: float, positions: range) -> tuple[Node, Node, Node]:
        """Frequencies, cosines and sines as arguments of `rotary`."""

    def shape(self, node: Node) -> tuple[int, ...]:
        """Its sizes."""


# --- the layers, operation by operation ------------------------------------------------------


def _rms_norm(m: Doer, given: Nodes, fixed: Object) -> Nodes:
    """Source: numerics.md section 9"""
    x = given["x"]
    square = m.do("mul", x, x)
    mean = m.do("mean", square, axis=len(m.shape(x)) - 1, keep=True)
    stabilised = m.do("add", mean, m.number(fixed["epsilon"]))
    scaled = m.do("mul", m.do("log", stabilised), m.number(-0.5))
    inverse = m.do("exp", scaled)
    output = m.do("mul", m.do("mul", x, inverse), given["gain"])
    return {"mean_square": mean, "inverse_rms": inverse, "output": output}


def _linear(m: Doer, given: Nodes, _: Object) -> Nodes:
    """Source: numerics.md section 10"""
    product = _projected(m, given["x"], given["weight"])
    return {"output": m.do("add", product, given["bias"]) if "bias" in given else product}


def _projected(m: Doer, x: Node, weight: Node) -> Node:
    """A vector passes as a matrix of one row."""
    shape = m.shape(x)
    if len(shape) > 1:
        return m.do("matmul", x, weight)
    row = m.do("matmul", m.do("reshape", x, shape=(1, *shape)), weight)
    return m.do("reshape", row, shape=(m.shape(weight)[1],))


def _swiglu(m: Doer, given: Nodes, _: Object) -> Nodes:
    """Source: numerics.md section 10"""
    gate = m.do("silu", m.do("matmul", given["x"], given["gate"]))
    product = m.do("mul", gate, m.do("matmul", given["x"], given["up"]))
    return {"product": product, "output": m.do("matmul", product, given["down"])}


def _residual(m: Doer, given: Nodes, _: Object) -> Nodes:
    """Source: numerics.md section 10"""
    branch = _projected(m, given["x"], given["weight"])
    return {"branch": branch, "output": m.do("add", given["x"], branch)}


def _attention(m: Doer, given: Nodes, _: Object) -> Nodes:
    """Source: numerics.md section 12, steps 3 to 5"""
    query, key, value = (given[name] for name in ("query", "key", "value"))
    raw = m.do("matmul", query, m.do("transpose", key, axes=(1, 2)))
    scores = m.do("mul", raw, m.number(1.0 / math.sqrt(float(m.shape(query)[2]))))
    probabilities = m.do("causal_softmax", scores)
    output = m.do("matmul", probabilities, value)
    return {"scores": scores, "probabilities": probabilities, "output": output}


def _rotary(m: Doer, given: Nodes, fixed: Object) -> Nodes:
    """Source: numerics.md section 11"""
    x, start = given["x"], fixed["offset"]
    T, width = m.shape(x)[-2:]
    frequencies, cosines, sines = m.angles(width, fixed["base"], range(start, start + T))
    turned = m.do("rotary", x, cosines=cosines, sines=sines)
    grid = m.do("matmul", turned, m.do("transpose", turned, axes=(0, 1)))
    return {"frequencies": frequencies, "output": turned, "products": grid}


def _multi_head(m: Doer, given: Nodes, fixed: Object) -> Nodes:
    """Source: numerics.md section 12"""
    B, T, D = m.shape(given["x"])
    H = fixed["heads"]
    _, cosines, sines = m.angles(D // H, fixed["base"], range(T))
    heads = {}
    for role in ("query", "key", "value"):
        split = m.do("reshape", m.do("matmul", given["x"], given[role]), shape=(B, T, H, D // H))
        heads[role] = m.do("transpose", split, axes=(1, 2))
    for role in ("query", "key"):
        heads[role] = m.do("rotary", heads[role], cosines=cosines, sines=sines)
    lanes = {r: m.do("reshape", h, shape=(B * H, T, D // H)) for r, h in heads.items()}
    core = _attention(m, lanes, fixed)
    mix = m.do("reshape", core["output"], shape=(B, H, T, D // H))
    merged = m.do("reshape", m.do("transpose", mix, axes=(1, 2)), shape=(B, T, D))
    output = m.do("matmul", merged, given["output"])
    return {"probabilities": core["probabilities"], "output": output}


LAYERS: dict[str, Callable[[Doer, Nodes, Object], Nodes]] = {
    "linear": _linear,
    "rms-norm": _rms_norm,
    "swiglu": _swiglu,
    "residual": _residual,
    "rotary": _rotary,
    "attention": _attention,
    "multi-head": _multi_head,
}


def _objective(m: Doer, output: Node, upstream: Node) -> Node:
    """The sum of upstream times output: what the gradients are of."""
    weighted = m.do("mul", output, upstream)
    flat = m.do("reshape", weighted, shape=(math.prod(m.shape(weighted)),))
    return m.do("sum", flat, axis=0)


# --- by the scalar rules ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Step:
    """An array, and the operation that it came from; none for what was given."""

    array: scalar.Array
    op: str = ""
    operands: tuple[_Step, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)


class _Scalar:
    def do(self, op: str, *operands: _Step, **arguments: Any) -> _Step:
        array = scalar.value(op, *(o.array for o in operands), **arguments)
        return _Step(array, op, operands, arguments)

    def number(self, x: float) -> _Step:
        return _Step(given((), [x]))

    def angles(self, width: int, base: float, positions: range) -> tuple[Node, Node, Node]:
        f = [EXACT.pow(base, (-2.0 * i) / float(width)) for i in range(width // 2)]
        angles = [float(p) * x for p in positions for x in f]
        shape = (len(positions), len(f))
        cosines = given(shape, [EXACT.clean(EXACT.cos(x)) for x in angles])
        sines = given(shape, [EXACT.clean(EXACT.sin(x)) for x in angles])
        return _Step(given((len(f),), f)), cosines, sines

    def shape(self, node: _Step) -> tuple[int, ...]:
        return node.array.shape


def _order(output: _Step) -> list[_Step]:
    """Depth first, operands in order, each step after what it came from."""
    found: list[_Step] = []

    def visit(step: _Step) -> None:
        if not any(step is other for other in found):
            for operand in step.operands:
                visit(operand)
            if not any(step is other for other in found):
                found.append(step)

    visit(output)
    return found


def _slopes(output: _Step, inputs: Nodes) -> dict[str, scalar.Array]:
    """The reverse walk: previous + contribution, operands ascending.

    Source: numerics_vjp.md section 1
    """
    passed: dict[int, list[Any]] = {id(output): [1.0]}
    for step in reversed(_order(output)):
        if step.op and id(step) in passed:
            adjoint = scalar.Array(step.array.shape, passed[id(step)])
            arrays = [o.array for o in step.operands]
            parts = scalar.contributions(step.op, adjoint, *arrays, **step.arguments)
            for operand, part in zip(step.operands, parts, strict=True):
                before = passed.get(id(operand), [0.0] * len(part.cells))
                passed[id(operand)] = [x + y for x, y in zip(before, part.cells, strict=True)]
    return {
        name: scalar.Array(step.array.shape, [0.0 + x for x in passed[id(step)]])
        for name, step in inputs.items()
    }


def outcome(case: Case) -> Object:
    """What the scalar rules give to a case of this kind: the names that it asks for."""
    operands = {name: _array(held) for name, held in case.input["operands"].items()}
    upstream = _array(case.input["upstream"]) if "upstream" in case.input else None
    found, gradients = _by_rules(case.setup["layer"], operands, constants(case), upstream)
    asked = {**case.expect, **case.expect.get("true", {})}
    held = {name: values.doubles(found[name].shape, found[name].cells) for name in asked["values"]}
    outcome = {"values": held}
    if "gradients" in asked:
        outcome["gradients"] = {
            name: values.doubles(gradients[name].shape, gradients[name].cells)
            for name in asked["gradients"]
        }
    return outcome


def constants(case: Case) -> Object:
    """Numbers as numbers."""
    return {
        n: cells(c)[0] if isinstance(c, dict) else c for n, c in case.setup["constants"].items()
    }


def _array(held: Object) -> Given:
    return given(tuple(held["shape"]), cells(held))


def _by_rules(
    layer: str, operands: dict[str, Given], fixed: Object, upstream: Given | None
) -> tuple[dict[str, scalar.Array], dict[str, scalar.Array]]:
    if layer == "softmax":
        return _statistics(operands["logits"]), {}
    m = _Scalar()
    inputs = {name: _Step(array) for name, array in operands.items()}
    found = LAYERS[layer](m, inputs, fixed)
    gradients: dict[str, scalar.Array] = {}
    if upstream is not None:
        found["objective"] = _objective(m, found["output"], _Step(upstream))
        gradients = _slopes(found["objective"], inputs)
    return {name: step.array for name, step in found.items()}, gradients


def _statistics(logits: Given) -> dict[str, scalar.Array]:
    """Probabilities, their logarithms, log-sum-exp. Source: numerics.md section 7"""
    G, C = logits.shape
    rows = [softmax(EXACT, logits.cells[g * C : (g + 1) * C]) for g in range(G)]
    totals = [largest + EXACT.log1p(tail) for _, largest, tail in rows]
    return {
        "probabilities": scalar.Array((G, C), [p for row, _, _ in rows for p in row]),
        "log_probabilities": scalar.value("log_softmax", logits, axis=1),
        "log_sum_exp": scalar.Array((G,), totals),
    }


# --- by the equations ------------------------------------------------------------------------


class _Oracle:
    def __init__(self) -> None:
        self.tape: list[Recorded] = []

    def given(self, array: Given) -> oracle.Cells:
        held = [Recorded(mpmath.mpf(x), self.tape) for x in array.cells]
        return oracle.Cells(array.shape, held)

    def do(self, op: str, *operands: oracle.Cells, **arguments: Any) -> oracle.Cells:
        held = oracle.FORWARD[op](*operands, **arguments)
        recorded = [x if isinstance(x, Recorded) else Recorded(x, self.tape) for x in held.cells]
        return oracle.Cells(held.shape, recorded)  # what is masked comes as a plain 0

    def number(self, x: float) -> oracle.Cells:
        """A constant of the specification is the real number that it stands for."""
        return oracle.Cells((), [Recorded(mpmath.mpf(x), self.tape)])

    def angles(self, width: int, base: float, positions: range) -> tuple[Node, Node, Node]:
        f = [mp.power(mpmath.mpf(base), mpmath.mpf(-2 * i) / width) for i in range(width // 2)]
        angles = [p * x for p in positions for x in f]
        shape = (len(positions), len(f))
        turns = [given(shape, [turn(x) for x in angles]) for turn in (mp.cos, mp.sin)]
        return oracle.Cells((len(f),), f), turns[0], turns[1]

    def shape(self, node: oracle.Cells) -> tuple[int, ...]:
        return node.shape


def _truth(
    layer: str, operands: dict[str, Given], fixed: Object, upstream: Given | None
) -> dict[str, dict[str, oracle.Cells]]:
    if layer == "softmax":
        return {"values": _true_statistics(operands["logits"])}
    m = _Oracle()
    inputs = {name: m.given(array) for name, array in operands.items()}
    found = LAYERS[layer](m, inputs, fixed)
    truth = {}
    if upstream is not None:
        found["objective"] = _objective(m, found["output"], m.given(upstream))
        flat = [x for held in inputs.values() for x in held.cells]
        slope = iter(slopes(found["objective"].cells, [mpmath.mpf(1)], flat))
        truth["gradients"] = {
            name: oracle.Cells(held.shape, [next(slope) for _ in held.cells])
            for name, held in inputs.items()
        }
    plain = {name: oracle.Cells(held.shape, [getattr(x, "value", x) for x in held.cells])
             for name, held in found.items()}  # fmt: skip
    return {"values": plain, **truth}


def _true_statistics(logits: Given) -> dict[str, oracle.Cells]:
    G, C = logits.shape
    logs = oracle.value("log_softmax", logits, axis=1)
    totals = [mpmath.mpf(logits.cells[g * C]) - logs.cells[g * C] for g in range(G)]
    return {
        "probabilities": oracle.Cells((G, C), [mp.exp(x) for x in logs.cells]),
        "log_probabilities": logs,
        "log_sum_exp": oracle.Cells((G,), totals),
    }


# --- the cases -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A layer with operands: those of the fixtures, or drawn ones of these shapes."""

    name: str
    layer: str
    why: str
    flags: tuple[str, ...] = ()
    operands: dict[str, Given] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, float | int] = field(default_factory=dict)
    upstream: Given | tuple[int, ...] | None = None


def _eye(n: int, order: tuple[int, ...] = ()) -> Given:
    """Rows of the identity, in an order of their own."""
    return given((n, n), [float(i == j) for i in (order or tuple(range(n))) for j in range(n)])


def _f(shape: tuple[int, ...], *numbers: float) -> Given:
    return given(shape, [float(x) for x in numbers])


C1, S1, C2, S2 = EXACT.cos(1.0), EXACT.sin(1.0), EXACT.cos(2.0), EXACT.sin(2.0)
ROWS = _f((3, 4), *[1, 0, 1, 0] * 3)
FIXTURES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="softmax-shifted", layer="softmax", flags=("log1p", "softmax-tail"),
               why="a shift of all logits moves the log-sum-exp alone",
               operands={"logits": _f((3, 2), 0, 1, 1000, 1001, -1001, -1000)}),
        Recipe(name="linear-biased", layer="linear", flags=("broadcast-order",),
               why="product first, then the bias; its gradient is one flat sum",
               operands={"x": _f((1, 2, 2), 1, 2, -1, 3),
                         "weight": _f((2, 3), 1, 0, -1, 2, 0.5, 1),
                         "bias": _f((3,), 0.5, -0.5, 1)},
               upstream=_f((1, 2, 3), 1, 0, -1, 0.5, 2, 1)),
        Recipe(name="swiglu-identity", layer="swiglu", flags=("stable-sigmoid",),
               why="gate, SiLU, up, product, down",
               operands={"x": _eye(2), "gate": _f((2, 3), -1, 0, 1, 0, 1, -1),
                         "up": _f((2, 3), 1, 2, 3, 3, 2, 1),
                         "down": _f((3, 2), 1, 0, 0, 1, 1, -1)}, upstream=_eye(2)),
        Recipe(name="rms-norm-3-4", layer="rms-norm", flags=("inverse-root", "norm-adjoint"),
               why="exp(-log / 2) for the inverse root",
               operands={"x": _f((2,), 3, 4), "gain": _f((2,), 1.5, 0.5)},
               constants={"epsilon": 1e-5}, upstream=_f((2,), 1, -2)),
        Recipe(name="residual-branch", layer="residual", flags=("accumulation-order",),
               why="the input's gradient arrives by both ways",
               operands={"x": _f((2,), 2, -1), "weight": _f((2, 2), 0.5, -1, 2, 0.25)},
               upstream=_f((2,), 1, 1)),
        Recipe(name="attention-three", layer="attention", flags=("causal-mask", "scale-after-dot"),
               why="scores, causal softmax and mixture of three tokens",
               operands={"query": _f((1, 3, 2), 0, 3, 2, -1, 1, 1),
                         "key": _f((1, 3, 2), 3, 0, -1, 2, 2, 1),
                         "value": _f((1, 3, 2), 3, -3, 1, 3, -2, 4)},
               upstream=_f((1, 3, 2), 1, -0.5, 0.25, 2, -1, 0.75)),
        Recipe(name="rotary-from-0", layer="rotary", flags=("rotary-angles", "adjacent-pairs"),
               why="turned rows and their products with each other",
               operands={"x": ROWS}, constants={"base": 100.0, "offset": 0}),
        Recipe(name="rotary-from-3", layer="rotary", flags=("rotary-angles", "adjacent-pairs"),
               why="products depend on distances alone",
               operands={"x": ROWS}, constants={"base": 100.0, "offset": 3}),
        Recipe(name="multi-head-swapped", layer="multi-head",
               flags=("adjacent-pairs", "causal-mask"),
               why="two heads, turned, mixed and put back in order",
               operands={"x": _f((1, 3, 4), 1, 0, 1, 0, C1, -S1, 0, 1, C2, -S2, 1, 1),
                         **{role: _eye(4) for role in ("query", "key", "value")},
                         "output": _eye(4, (2, 3, 0, 1))},
               constants={"heads": 2, "capacity": 6, "base": 100.0}),
    )
}  # fmt: skip
DRAWN = (
    Recipe(name="linear-drawn", layer="linear", flags=("broadcast-order", "contraction-order"),
           why="a bias of two rows", shapes={"x": (2, 3, 4), "weight": (4, 3), "bias": (3,)},
           upstream=(2, 3, 3)),
    Recipe(name="rms-norm-drawn", layer="rms-norm", flags=("inverse-root", "norm-adjoint"),
           why="seven features, which divide inexactly", shapes={"x": (2, 3, 7), "gain": (7,)},
           constants={"epsilon": 1e-6}, upstream=(2, 3, 7)),
    Recipe(name="rms-norm-no-epsilon", layer="rms-norm", flags=("inverse-root", "norm-adjoint"),
           why="an epsilon of 0", shapes={"x": (3, 5), "gain": (5,)},
           constants={"epsilon": 0.0}, upstream=(3, 5)),
    Recipe(name="swiglu-drawn", layer="swiglu", flags=("stable-sigmoid", "accumulation-order"),
           why="the input's gradient: up first, then gate",
           shapes={"x": (2, 2, 3), "gate": (3, 5), "up": (3, 5), "down": (5, 3)},
           upstream=(2, 2, 3)),
    Recipe(name="residual-drawn", layer="residual", flags=("accumulation-order",),
           why="the identity's gradient first", shapes={"x": (2, 3, 3), "weight": (3, 3)},
           upstream=(2, 3, 3)),
    Recipe(name="attention-drawn", layer="attention", flags=("causal-mask", "scale-after-dot"),
           why="two lanes of a width whose root is no number of binary digits",
           shapes={"query": (2, 4, 6), "key": (2, 4, 6), "value": (2, 4, 3)}, upstream=(2, 4, 3)),
    Recipe(name="multi-head-drawn", layer="multi-head",
           flags=("adjacent-pairs", "causal-mask", "accumulation-order"),
           why="what reaches the input: value, then key, then query",
           shapes={"x": (2, 3, 4), **dict.fromkeys(("query", "key", "value", "output"), (4, 4))},
           constants={"heads": 2, "capacity": 3, "base": 10000.0}, upstream=(2, 3, 4)),
)  # fmt: skip


def layers() -> Iterator[Case]:
    """Every layer by its operations: with the operands of the fixtures, and with drawn ones."""
    for i, recipe in enumerate((*FIXTURES.values(), *DRAWN)):
        yield _case(recipe, Generator(9000 + i))


def _case(recipe: Recipe, generator: Generator) -> Case:
    drawn = {n: values.filled("warm", s, generator) for n, s in recipe.shapes.items()}
    operands, upstream = {**recipe.operands, **drawn}, recipe.upstream
    if isinstance(upstream, tuple):
        upstream = values.filled("warm", upstream, generator)
    found, gradients = _by_rules(recipe.layer, operands, recipe.constants, upstream)
    with mp.workdps(oracle.DIGITS):
        truth = _truth(recipe.layer, operands, recipe.constants, upstream)
        written = {
            part: {n: values.true_values(held[n].shape, held[n].cells) for n in held}
            for part, held in truth.items()
        }
        _check(recipe.name, {"values": found, "gradients": gradients}, truth)
    fixed: Object = {n: c if isinstance(c, int) else values.doubles((), [c])
                     for n, c in recipe.constants.items()}  # fmt: skip
    given_: Object = {
        "operands": {n: values.doubles(a.shape, a.cells) for n, a in operands.items()}
    }
    if upstream is not None:
        given_["upstream"] = values.doubles(upstream.shape, upstream.cells)
    expect: Object = {"values": _written(found)}
    if gradients:
        expect["gradients"] = _written(gradients)
    return values.case(
        f"layers/{recipe.name}", SOURCE, recipe.why, *recipe.flags,
        setup={"kind": "layer", "layer": recipe.layer, "constants": fixed}, input=given_,
        expect={**expect, "true": written},
    )  # fmt: skip


def _written(found: Mapping[str, scalar.Array]) -> Object:
    return {name: values.doubles(array.shape, array.cells) for name, array in found.items()}


def _check(name: str, found: Object, truth: Object) -> None:
    """Scalar rules and equations agree to nine digits of the largest number of each array."""
    for part, held in truth.items():
        for which, true in held.items():
            largest = max(abs(x) for x in true.cells)
            pairs = zip(found[part][which].cells, true.cells, strict=True)
            assert all(abs(x - y) <= 1e-9 * largest + 1e-15 for x, y in pairs), (name, which)
