"""Laws over layers by themselves: a linear map, the core of attention, attention at an offset."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from logitproof.properties.scalar import Generator, rounded
from logitproof.properties.scalar.generator import matrix
from logitproof.properties.scalar.operations import Array as Cells
from logitproof.properties.scalar.operations import contributions, value

from .components import Components
from .difference import Difference, first_difference, first_named_difference
from .drawn import Array, Draw, answered, draws, equal, first, refusal, refused
from .law import Law

__all__ = ["LAWS"]

BASES = (10000.0, 1.5, 100.5)
BASE, EPSILON = 10000.0, 1e-6  # of a config that names neither
ROLES = ("query", "key", "value", "output")
BRANCHES = ("gate", "up", "down")


def _cells(array: Array) -> Cells:
    return Cells(array.shape, array.ravel().tolist())


def _array(cells: Cells) -> Array:
    return np.array(cells.cells, dtype=np.float64).reshape(cells.shape)


def _linear(implementation: Components, draw: Draw) -> Difference | None:
    """Rows of rank 1 to 4, by the operations of the definition."""
    parts, g = implementation.parts, draw.generator()
    lead = [draw.below(g, 3) for _ in range(draw.size % 4)]
    into, out = draw.below(g, 4), draw.below(g, 4)
    x, w, b = draw.values(g, *lead, into), draw.values(g, into, out), draw.values(g, out)
    upstream = draw.values(g, *lead, out, regime="uniform")
    rows, u = (_cells(a if lead else a.reshape(1, -1)) for a in (x, upstream))

    def one(what: str, bias: Any) -> Iterator[Difference | None]:
        leaf, weight = parts.Parameter("x", x), parts.Parameter("l.weight", w)
        layer = parts.Linear.from_parameters(weight, bias)
        y = layer.forward(leaf)
        product = value("matmul", rows, _cells(w))
        expected = product if bias is None else value("add", product, _cells(b))
        wanted = _array(expected).reshape(upstream.shape)
        yield first_difference(f"{what} of {list(x.shape)}", wanted, y.value)
        plain = layer.forward(leaf, context=parts.NO_GRAD)
        yield first_difference(f"{what} without recording", wanted, plain.value)
        y.backward(upstream)
        back_x, back_w = contributions("matmul", u, rows, _cells(w))
        yield first_difference(f"{what}: gradient of x", _array(back_x).reshape(x.shape) + 0.0,
                               leaf.gradient)  # fmt: skip
        yield first_difference(f"{what}: gradient of the weight", _array(back_w) + 0.0,
                               weight.gradient)  # fmt: skip
        if bias is not None:
            back_b = contributions("add", u, product, _cells(b))[1]
            yield first_difference(f"{what}: gradient of the bias", _array(back_b), bias.gradient)

    forms = (("linear map", None), ("linear map with a bias", parts.Parameter("l.bias", b)))
    return first(d for form in forms for d in one(*form))


def _core(query: Cells, key: Cells, values: Cells) -> dict[str, Cells]:
    """Scores, probabilities and mix, the keys in columns and the scale; the last two axes."""
    last = (len(query.shape) - 2, len(query.shape) - 1)
    columns = value("transpose", key, axes=last)
    scale = Cells((), [1.0 / math.sqrt(float(query.shape[-1]))])
    raw = value("matmul", query, columns)
    scores = value("mul", raw, scale)
    p = value("causal_softmax", scores)
    return {"scores": scores, "probabilities": p, "mix": value("matmul", p, values),
            "columns": columns, "raw": raw, "scale": scale}  # fmt: skip


def _attended(implementation: Components, draw: Draw) -> Difference | None:
    """Values of another width than keys: only the width of the query scales."""
    parts, g = implementation.parts, draw.generator()
    N, T, width = draw.below(g, 3), draw.below(g, 4), draw.below(g, 5)
    shapes = ((N, T, width), (N, T, width), (N, T, 1 + (width + draw.size) % 5))
    given = [draw.values(g, *shape) for shape in shapes]
    leaves = [parts.Parameter(name, x) for name, x in zip(ROLES, given, strict=False)]
    found = implementation.attended(*leaves)
    q, k, v = (_cells(x) for x in given)
    steps = _core(q, k, v)
    upstream = draw.values(g, *shapes[2], regime="uniform")
    found["mix"].backward(upstream)
    back_p, back_v = contributions("matmul", _cells(upstream), steps["probabilities"], v)
    back_s = contributions("causal_softmax", back_p, steps["scores"])[0]
    back_raw = contributions("mul", back_s, steps["raw"], steps["scale"])[0]
    back_q, back_columns = contributions("matmul", back_raw, q, steps["columns"])
    back_k = value("transpose", back_columns, axes=(1, 2))
    return first(
        first_difference(f"{name} of {shapes}", _array(steps[name]), found[name].value)
        for name in ("scores", "probabilities", "mix")
    ) or first(
        first_difference(f"gradient of the {leaf.name}", _array(back) + 0.0, leaf.gradient)
        for leaf, back in zip(leaves, (back_q, back_k, back_v), strict=True)
    )


def _heads(x: Cells, weight: Array, heads: int) -> Cells:
    """[B, T, D] -> [B, H, T, D / H] of the projection."""
    B, T, D = x.shape
    split = value("reshape", value("matmul", x, _cells(weight)), shape=(B, T, heads, D // heads))
    return value("transpose", split, axes=(1, 2))


def _turned(x: Cells, offset: int, base: float) -> Cells:
    """Token t turned to position offset + t."""
    T, width = x.shape[-2:]
    angles = [(offset + t) * rounded.pow(base, (-2.0 * i) / width)
              for t in range(T) for i in range(width // 2)]  # fmt: skip
    cosines, sines = (Cells((T, width // 2), [turn(a) + 0.0 for a in angles])
                      for turn in (rounded.cos, rounded.sin))  # fmt: skip
    return value("rotary", x, cosines=cosines, sines=sines)


def _attention(implementation: Components, draw: Draw) -> Difference | None:
    parts, g = implementation.parts, draw.generator()
    B, T, heads, offset = draw.below(g, 2), draw.below(g, 4), draw.below(g, 3), g.below(6)
    D, base = heads * 2 * draw.below(g, 2), BASES[draw.size % len(BASES)]
    x = draw.values(g, B, T, D)
    weights = [draw.values(g, D, D, regime="uniform") for _ in ROLES]
    upstream = draw.values(g, B, T, D, regime="uniform")
    matrices = [parts.Parameter(f"a.{r}.weight", w) for r, w in zip(ROLES, weights, strict=True)]
    layer = parts.Attention.from_parameters(
        *matrices, heads=heads, max_positions=offset + T, rope_base=base
    )
    leaf = parts.Parameter("x", x)
    cells = np.arange(offset, offset + T) + np.zeros((B, 1), dtype=np.int64)
    layout = parts.SequenceLayout(lengths=[T] * B, range_starts=0 * cells, positions=cells)

    def gradients(output: Any) -> list[tuple[str, Array]]:
        for p in (leaf, *matrices):
            p.zero_gradient()
        output.backward(upstream)
        return [(p.name, p.gradient) for p in (leaf, *matrices)]

    def steps() -> Iterator[Difference | None]:
        what = f"[{B}, {T}, {D}] from position {offset}, {heads} heads"
        q, k, v = (_heads(_cells(x), w, heads) for w in weights[:3])
        q, k = (_turned(rows, offset, base) for rows in (q, k))
        core = _core(q, k, v)
        merged = value("reshape", value("transpose", core["mix"], axes=(1, 2)), shape=x.shape)
        wanted = {"query": q, "key": k, "value": v, "mix": core["mix"],
                  "output": value("matmul", merged, _cells(weights[3]))}  # fmt: skip
        found, laid = layer.inspect(leaf, offset), layer.inspect(leaf, layout=layout)
        for name, expected in wanted.items():
            yield first_difference(f"{name} of {what}", _array(expected), found[name].value)
        for name, step in found.items():
            yield first_difference(f"{name} by a layout, {what}", step.value, laid[name].value)
        output = layer.forward(leaf, offset)
        yield first_difference(f"output of {what}", found["output"].value, output.value)
        by_offset, by_layout = gradients(output), gradients(laid["output"])
        for (name, one), (_, other) in zip(by_offset, by_layout, strict=True):
            yield first_difference(f"gradient of {name} by a layout, {what}", one, other)
        yield refused(f"{what} of {offset + T}, one further", "capacity/position-range-exceeded",
                      lambda: layer.forward(leaf, offset + 1))  # fmt: skip

    return first(steps())


def _back(op: str, u: Cells, *operands: Cells, **given: Any) -> tuple[Cells, ...]:
    """Contributions from an adjoint that has arrived at +0."""
    arrived = Cells(u.shape, [0.0 + x for x in u.cells])
    return contributions(op, arrived, *operands, **given)


def _norm(implementation: Components, draw: Draw) -> Difference | None:
    """Rows of rank 1 to 4; the input is used by the product, then twice by the square."""
    parts, g = implementation.parts, draw.generator()
    lead = [draw.below(g, 3) for _ in range(draw.size % 4)]
    width, epsilon = draw.below(g, 5), (1e-6, 1e-2, 0.5)[draw.size % 3]
    given, gains = draw.values(g, *lead, width), draw.values(g, width)
    upstream = draw.values(g, *lead, width, regime="uniform")
    x, gain, eps, half = (_cells(a) for a in (given, gains, np.array(epsilon), np.array(-0.5)))
    last: dict[str, Any] = {"axis": len(lead), "keep": True}
    square = value("mul", x, x)
    mean = value("mean", square, **last)
    stable = value("add", mean, eps)
    log = value("log", stable)
    scaled = value("mul", log, half)
    inverse = value("exp", scaled)
    normalized = value("mul", x, inverse)
    wanted = {"mean_square": mean, "inverse_rms": inverse, "normalized": normalized,
              "output": value("mul", normalized, gain)}  # fmt: skip
    u, back_gain = _back("mul", _cells(upstream), normalized, gain)
    first_use, u = _back("mul", u, x, inverse)
    u = _back("log", _back("mul", _back("exp", u, scaled)[0], log, half)[0], stable)[0]
    u = _back("mean", _back("add", u, mean, eps)[0], square, **last)[0]
    total = 0.0 + _array(first_use)
    for use in _back("mul", u, x, x):
        total = total + _array(use)
    leaf, weight = parts.Parameter("x", given), parts.Parameter("n.gain", gains)
    layer = parts.RmsNorm.from_gain(weight, epsilon)
    found, what = layer.inspect(leaf), f"over {list(given.shape)}, epsilon {epsilon}"
    found["output"].backward(upstream)
    plain = layer.forward(leaf, context=parts.NO_GRAD).value
    return first(
        first_difference(f"{name} {what}", _array(step), found[name].value)
        for name, step in wanted.items()
    ) or first(
        first_difference(f"{name} {what}", expected, actual)
        for name, expected, actual in (
            ("output not recorded", _array(wanted["output"]), plain),
            ("gradient of x", total, leaf.gradient),
            ("gradient of the gain", 0.0 + _array(back_gain), weight.gradient),
        )
    )


def _biased(implementation: Components, draw: Draw) -> Difference | None:
    """By every kernel that promises bits, against none; one linear map at least has a bias."""
    parts, g = implementation.parts, draw.generator()
    heads, F, B, T = (draw.below(g, most) for most in (2, 3, 2, 4))
    D, which = 2 * heads, 1 + g.below(7)
    branches = zip(BRANCHES, ((D, F), (D, F), (F, D)), strict=True)
    rng = parts.SplitMix64(draw.seed)
    block = parts.DecoderBlock(
        parts.RmsNorm.new("n", D, EPSILON),
        parts.Attention.new("a", D, heads, T, BASES[draw.size % len(BASES)], rng),
        parts.RmsNorm.new("m", D, EPSILON),
        parts.SwiGlu(*[parts.Linear.new(name, *shape, bool(which >> i & 1), rng)
                       for i, (name, shape) in enumerate(branches)]),
    )  # fmt: skip
    for p in block.parameters:
        p.assign(draw.values(g, *p.shape, regime="uniform"))
    x = parts.Parameter("x", draw.values(g, B, T, D))
    upstream = draw.values(g, B, T, D, regime="uniform")
    cells = np.arange(T) + np.zeros((B, 1), dtype=np.int64)
    layout = parts.SequenceLayout(lengths=[T] * B, range_starts=0 * cells, positions=cells)

    def by(kernel: Any) -> dict[str, Array]:
        for p in (x, *block.parameters):
            p.zero_gradient()
        y = block.forward(x, layout=layout, kernel=kernel)
        y.backward(upstream)
        rest = block.feed_forward(x, context=parts.RECORDING, kernel=kernel)
        rest.backward(upstream)
        values = {"output": y.value, "output of its second half": rest.value}
        return values | {p.name: p.gradient for p in (x, *block.parameters)}

    wanted = by(None)
    kernels = [k for k in implementation.kernels if getattr(k, "claims_bits", True)]
    return first(
        first_named_difference(f"biases {which:03b}, kernel {kernel}:", wanted, by(kernel))
        for kernel in kernels
    )


def _defaults(implementation: Components, draw: Draw) -> Difference | None:
    """Of a decoder and of a block."""
    parts, g = implementation.parts, draw.generator()
    heads = draw.below(g, 3)
    block = {"model_width": 2 * heads, "heads": heads, "feed_forward_width": draw.below(g, 4),
             "max_positions": draw.below(g, 5)}  # fmt: skip
    kinds = (
        (parts.DecoderBlockConfig, block),
        (parts.DecoderConfig, {**block, "vocabulary_size": draw.below(g, 5), "layers": g.below(3)}),
    )

    def told(kind: Any, sizes: dict[str, int]) -> Iterator[Difference | None]:
        plain, named = kind(**sizes), kind(**sizes, rope_base=BASE, rms_epsilon=EPSILON)
        what = f"of a {kind.__name__} that names neither"
        yield equal(f"base and epsilon {what}", (BASE, EPSILON),
                    (plain.rope_base, plain.rms_epsilon))  # fmt: skip
        yield equal(f"equality {what} and one that names them", True, plain == named)

    given = parts.DecoderBlockConfig(**block)
    return first(d for kind in kinds for d in told(*kind)) or equal(
        "key/value heads and window of a block that names neither", (heads, None),
        (given.kv_heads, given.context_window),
    )  # fmt: skip


def _drawn(implementation: Components, draw: Draw) -> Difference | None:
    """One generator after the other: matrices in their order, ones and zeros without a draw."""
    parts, g = implementation.parts, draw.generator()
    a, b, c = (draw.below(g, 4) for _ in range(3))
    heads = draw.below(g, 3)
    D, block = 2 * heads, {"heads": heads, "feed_forward_width": b, "max_positions": c}
    rng, ours = parts.SplitMix64(draw.seed), Generator(draw.seed)
    made = (
        (parts.Embedding.new("e", a, b, rng).table,),
        parts.Linear.new("l", b, c, True, rng).parameters,
        parts.SwiGlu.new("s", a, b, c, rng).parameters,
        parts.Attention.new("a", D, heads, c, BASES[draw.size % len(BASES)], rng).parameters,
        (parts.RmsNorm.new("n", c, 0.5).gain,),
        parts.DecoderBlock.new(
            "b", parts.DecoderBlockConfig(model_width=D, **block), rng
        ).parameters,
    )
    square, gated = (D, D), (("gate", (D, b)), ("up", (D, b)), ("down", (b, D)))
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("e", (a, b)), ("l.weight", (b, c)), ("l.bias", (c,)),
        ("s.gate.weight", (a, b)), ("s.up.weight", (a, b)), ("s.down.weight", (b, c)),
        *((f"a.{role}.weight", square) for role in ROLES), ("n", (c,)),
        ("b.attention_norm.gain", (D,)),
        *((f"b.attention.{role}.weight", square) for role in ROLES), ("b.ffn_norm.gain", (D,)),
        *((f"b.ffn.{role}.weight", shape) for role, shape in gated),
    ]  # fmt: skip
    wanted = {
        name: np.array(matrix(ours, *shape)) if len(shape) > 1
        else np.zeros(shape) if name.endswith("bias") else np.ones(shape)
        for name, shape in shapes
    }  # fmt: skip
    found = {p.name: p.value for parameters in made for p in parameters}
    return first_named_difference("drawn", wanted, found) or first(
        equal(what, expected, actual)
        for what, expected, actual in (
            ("state of the generator", ours.state, rng.state),
            ("what no memory holds", "raised MemoryError",
             refusal(lambda: parts.Linear.new("l", 1 << 31, 1 << 30, False, rng))),
            ("state of the generator after it", ours.state, rng.state),
        )
    )  # fmt: skip


def _law(name: str, statement: str, check: Any, *faults: str, source: str, seed: int) -> Law:
    return Law(
        id=f"layers.{name}",
        statement=statement,
        source=source,
        needs=("layers", "tape"),
        faults=faults,
        cases=draws("uniform", "wide", "zero-rich", first_seed=seed),
        check=answered(check),
    )


LAWS = (
    _law(
        "linear",
        "A linear map has the bits of its definition, forward and backward, with a bias and"
        " without, over rows in any number of axes; one row alone gives one row.",
        _linear,
        "linear-without-bias", "linear-row-stays-a-matrix",
        source="numerics.md section 10, numerics_vjp.md section 3",
        seed=78_500,
    ),
    _law(
        "attention-core",
        "The core of attention scales by the root of the query's width, whatever the values', and"
        " has the bits of its definition, forward and backward.",
        _attended,
        "scale-by-the-width-of-values",
        source="numerics.md section 12, layers.md section 8",
        seed=79_000,
    ),
    _law(
        "attention-offset",
        "Attention from an offset on has the bits of its definition at those positions, and of a"
        " layout that names them, forward and backward; a position too many is refused.",
        _attention,
        "attention-offset-ignored",
        source="numerics.md sections 11 and 12, layers.md section 9",
        seed=79_500,
    ),
    _law(
        "norm",
        "The norm has the bits of its definition, every step and backward, over the last of any"
        " number of axes.",
        _norm,
        "norm-over-the-third-axis",
        source="numerics.md section 9, numerics_vjp.md section 5",
        seed=79_600,
    ),
    _law(
        "drawn",
        "New layers draw their matrices in order from one generator and leave it behind the last;"
        " gains are ones and biases zeros.",
        _drawn,
        "bias-of-ones",
        source="layers.md sections 1 to 5, 9 and 10, numerics_init.md section 3",
        seed=79_700,
    ),
    Law(
        id="layers.biased-block",
        statement="A block whose gated feed-forward has biases gives by every kernel the bits of"
        " its steps, forward and backward.",
        source="layers.md sections 2, 4 and 10",
        needs=("layers", "tape", "copies"),
        faults=("biased-block-fused-without-biases",),
        cases=draws("uniform", "wide", first_seed=79_800),
        check=answered(_biased),
    ),
    _law(
        "defaults",
        "A config has base 10000, epsilon 1e-6, as many key/value heads as heads and no window"
        " where it does not name them.",
        _defaults,
        "base-of-longer-texts",
        source="layers.md section 11; records.md section 1",
        seed=79_900,
    ),
)  # fmt: skip
