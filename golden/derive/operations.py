"""Operations and elementary functions: exact bits from the scalar rules, truth from the oracle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mpmath
from mpmath import mp

from logitproof.golden.load import Case
from logitproof.properties import bounds
from logitproof.properties.oracles import operations as oracle
from logitproof.properties.scalar import Generator, rounded
from logitproof.properties.scalar import operations as scalar

from . import values
from .values import Given, Object, Shape, given

__all__ = ["functions", "operations"]

SCALAR = "properties.scalar.operations; truth from properties.oracles.operations"
UNARY = ("warm", "hot", "cold", "tiny", "signed-zeros")
LOGITS = (*UNARY, "thousands", "near-ties", "offset-1e17")
LINEAR = ("warm", "cold", "wide", "tiny", "signed-zeros")

# Op -> (why, flags, fills, [(name, shapes, arguments)]); the first layout meets every fill.
Layouts = list[tuple[str, list[Shape], Object]]


def _i(*cells: int) -> Given:
    return given((len(cells),), cells)


def _table(angles: list[float], function: Any) -> Given:
    return given((len(angles) // 2, 2), [function(x) for x in angles])


ANGLES = [0.0, 0.0, 1.0, 0.01, 2.0, 0.02]
STARTS, LENGTHS = given((2, 4), [0, 0, 2, 2, 0, 1, 0, 0]), given((2,), [4, 2])
TABLES = {
    "cosines": _table(ANGLES, rounded.cos),
    "sines": _table(ANGLES, rounded.sin),
}
RECIPES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], Layouts]] = {
    "add": (
        "gradients of a repeated operand are added row-major from +0",
        ("broadcast-order", "negative-zero"), LINEAR,
        [("row", [(3, 3), (3,)], {}), ("column", [(2, 1), (1, 3)], {}),
         ("scalar", [(), (2, 5)], {}), ("bias", [(2, 5, 2), (2,)], {})],
    ),
    "mul": (
        "the product with the other operand is rounded before it is added",
        ("broadcast-order", "negative-zero"), LINEAR,
        [("row", [(3, 3), (3,)], {}), ("column", [(2, 3, 1), (3, 3)], {}),
         ("scalar", [(2, 5), ()], {})],
    ),
    "sum": (
        "terms are added one at a time from +0; eight and more show blocked sums",
        ("order-of-sums",), LINEAR,
        [("long", [(2, 19)], {"axis": 1}), ("first-axis", [(9, 2)], {"axis": 0, "keep": True}),
         ("middle", [(2, 3, 2)], {"axis": 1}), ("empty", [(2, 0)], {"axis": 1})],
    ),
    "mean": (
        "one division by the length, forward and backward; lengths that are no powers of two",
        ("mean-by-division", "order-of-sums"), LINEAR,
        [("long", [(2, 11)], {"axis": 1}), ("first-axis", [(5, 3)], {"axis": 0}),
         ("kept", [(3, 7)], {"axis": 1, "keep": True})],
    ),
    "reshape": (
        "flat order stays", (), ("warm",), [("split", [(2, 6)], {"shape": [3, 2, 2]})],
    ),
    "transpose": (
        "two axes change places", (), ("warm",),
        [("outer", [(2, 3, 2)], {"axes": [0, 1]}), ("ends", [(2, 3, 2)], {"axes": [2, 0]})],
    ),
    "broadcast_to": (
        "repeated cells collect their gradients row-major", ("broadcast-order",),
        ("warm", "wide", "signed-zeros"), [("rows", [(3,)], {"shape": [4, 3]}),
        ("inner", [(2, 1, 2)], {"shape": [2, 5, 2]})],
    ),
    "matmul": (
        "products are added k ascending from +0; batched weights first per row, then rows",
        ("contraction-order", "two-level-weight-gradient"), LINEAR,
        [("long", [(2, 17), (17, 3)], {}), ("batched", [(3, 4, 5), (5, 3)], {}),
         ("lanes", [(2, 3, 4), (2, 4, 3)], {}), ("broadcast", [(2, 1, 2, 3), (3, 3, 2)], {}),
         ("column", [(4, 9), (9, 1)], {}), ("empty-inner", [(2, 0), (0, 2)], {})],
    ),
    "gather_rows": (
        "every occurrence adds to its row, flat positions ascending",
        ("repeated-rows",), ("warm", "wide", "signed-zeros"),
        [("repeated", [(4, 3)], {"indices": _i(2, 1, 2, 2, 1)}),
         ("shaped", [(5, 2)], {"indices": given((2, 3), [4, 0, 4, 4, 1, 0])}),
         ("none", [(3, 2)], {"indices": _i()})],
    ),
    "place_rows": (
        "rows not placed are zero and have no gradient", ("padding",), ("warm", "signed-zeros"),
        [("spread", [(3, 2)], {"positions": _i(4, 0, 2), "count": 5})],
    ),
    "exp": (
        "correctly rounded, down to the last subnormal", ("correct-rounding", "subnormal"),
        ("warm", "exponents", "cold", "tiny", "signed-zeros"), [("row", [(2, 6)], {})],
    ),
    "log": (
        "correctly rounded next to one and at both ends", ("correct-rounding",),
        ("positive", "near-one", "positive-wide"), [("row", [(2, 6)], {})],
    ),
    "silu": (
        "the sigmoid takes the branch that cannot overflow; the slope keeps its association",
        ("stable-sigmoid",), (*UNARY, "thousands"), [("row", [(2, 6)], {})],
    ),
    "log_softmax": (
        "the tail leaves out one maximum and goes through log1p",
        ("log1p", "ties"), LOGITS,
        [("last", [(2, 5)], {"axis": 1}), ("first", [(4, 3)], {"axis": 0}),
         ("single", [(3, 1)], {"axis": 1})],
    ),
    "causal_softmax": (
        "allowed keys alone are read; every other cell is +0",
        ("softmax-tail", "causal-mask", "ties"), LOGITS,
        [("square", [(4, 4)], {}),
         ("ranges", [(2, 4, 4)], {"range_starts": STARTS, "lengths": LENGTHS})],
    ),
    "rotary": (
        "adjacent pairs turn, the reverse rule turns back, no -0 is left",
        ("adjacent-pairs", "negative-zero"), ("warm", "wide", "signed-zeros"),
        [("heads", [(2, 3, 4)], TABLES)],
    ),
    "indexed_mean_nll": (
        "(m - z) + log1p(tail); the slope is (P - target) times the rounded 1/G",
        ("log1p", "loss-association", "slope-by-reciprocal"), LOGITS,
        [("three", [(3, 4)], {"axis": 1, "targets": _i(1, 3, 0)}),
         ("first-axis", [(3, 7)], {"axis": 0, "targets": _i(0, 1, 2, 2, 1, 0, 0)})],
    ),
    "indexed_sum_nll": (
        "the raw sum is no mean times count", ("raw-sum", "log1p"), LOGITS,
        [("three", [(3, 4)], {"axis": 1, "targets": _i(1, 3, 0)})],
    ),
}  # fmt: skip

ARGUMENTS = {
    "exp": [-745.2, -745.1, -744.4400719213812, -708.5, -1.4326171875, -1e-300, 5e-324, 1e-17,
            2.0**-53, 0.5, 1.0, 709.78],
    "log": [5e-324, 2.0**-1022, 1e-17, 0.3, 1.0 - 2.0**-53, 1.0, 1.0 + 2.0**-52, 2.0, 1e17,
            1.7976931348623157e308],
    "log1p": [-0.75, -(2.0**-60), 5e-324, -5e-324, 1e-17, 0.2412109375, 1.0, 300.0, 1e300],
    "sin": [0.0, 5e-324, 1e-8, 0.5, 3.141592653589793, 355.0, 2047.0, 1e22, 1.7e308],
    "cos": [0.0, 1e-9, 1.08984375, 1.5707963267948966, 355.0, 2047.0, 1e22, 1.7e308],
}  # fmt: skip
POWERS = {
    10000.0: [0.0, -0.5, -0.25, -0.49019607843137253, -1.0, 0.1],
    500000.0: [0.0, -0.75, -0.3333333333333333, -0.984375],
    2.0: [-1074.0, -1075.0, 0.5, 1023.0],
    1.0 + 2.0**-27: [2.0, 3.0, -7.5],
}


def functions() -> Iterator[Case]:
    """The six elementary functions at hard and exact arguments."""
    for name, arguments in ARGUMENTS.items():
        yield _function(f"functions/{name}", name, None, arguments)
    for i, (base, exponents) in enumerate(POWERS.items()):
        yield _function(f"functions/pow-{i + 1}", "pow", base, exponents)


def _function(identifier: str, name: str, base: float | None, arguments: list[float]) -> Case:
    function = getattr(rounded, name)
    found = [function(x) if base is None else function(base, x) for x in arguments]
    with mp.workdps(400 if name in ("sin", "cos") else 80):
        reals = [_real(name, base, mpmath.mpf(x)) for x in arguments]
        for x, real, result in zip(arguments, reals, found, strict=True):
            assert result == values.nearest(real), f"{identifier}: {name}({x!r})"
        truth = values.true_values((len(reals),), reals)
    setup = {"kind": "function", "name": name}
    return values.case(
        identifier,
        "properties.scalar.rounded; truth from mpmath",
        "the double nearest to the true value, at arguments where libraries differ",
        "correct-rounding",
        setup=setup if base is None else {**setup, "base": values.doubles((), [base])},
        input={"arguments": values.doubles((len(arguments),), arguments)},
        expect={"value": values.doubles((len(found),), found), "true": {"value": truth}},
    )


def _real(name: str, base: float | None, x: Any) -> Any:
    if name == "pow":
        return mp.power(mpmath.mpf(base), x)
    return mp.log1p(x) if name == "log1p" else getattr(mp, name)(x)


def operations() -> Iterator[Case]:
    """Every operation: each layout with ordinary numbers, the first one with every fill."""
    for op, (why, flags, fills, layouts) in RECIPES.items():
        for k, (name, shapes, arguments) in enumerate(layouts):
            for fill in fills if k == 0 else fills[:1]:
                generator = Generator(sum(map(ord, op)) * 1000 + 100 * k + fills.index(fill))
                operands = [values.filled(fill, shape, generator) for shape in shapes]
                identifier = f"operations/{op.replace('_', '-')}-{name}-{fill}"
                yield _operation(identifier, op, why, flags, operands, arguments, generator)
    yield from _special()
    yield from _checked()
    yield from _bounded()
    yield _faithful()


def _special() -> Iterator[Case]:
    """Single situations that no fill meets."""
    for name, rows, targets, why in (
        ("overflowing-total", [1e308, 0.0, 1e308, 0.0], [1, 1], "the mean of a sum beyond range"),
        ("overflowing-gap", [1.7e308, -1.7e308, 0.0, 0.0], [1, 1], "a gap beyond range is shared"),
        ("certain", [40.0, 0.0, 800.0, 0.0], [0, 0], "where 1 + tail is 1 a loss is not 0"),
    ):
        logits = given((2, 2), rows)
        flags = ("log1p",) if name == "certain" else ("overflow-fallback",)
        yield _operation(f"operations/indexed-mean-nll-{name}", "indexed_mean_nll", why, flags,
                         [logits], {"axis": 1, "targets": _i(*targets)}, Generator(7))  # fmt: skip
    uneven = given((3, 2), [0.0, 0.0, 1.5, 0.0, 0.0, 0.0])
    yield _operation("operations/indexed-sum-nll-uneven", "indexed_sum_nll",
                     "the sum differs from mean times count by a bit", ("raw-sum",),
                     [uneven], {"axis": 1, "targets": _i(1, 1, 1)}, Generator(8))  # fmt: skip


# The inputs of the published gradient checks, with the weights of their objectives; none: all 1.
# Source: fixtures.md section 3
_PROBES, _LOGITS = [-0.8, 0.2, 1.1], [0.7, -0.4, 1.1, -0.2, 0.3, 0.8]
CHECKED: dict[str, tuple[list[Given], Object, list[float]]] = {
    "matmul": ([given((2, 2), [0.4, -0.7, 1.2, 0.3]), given((2, 2), [0.2, -0.4, 0.9, 0.5])],
               {}, []),
    "gather_rows": ([given((3, 2), [0.2, -0.4, 0.7, 1.1, -0.3, 0.6])],
                    {"indices": _i(2, 1, 2)}, []),
    "exp": ([given((3,), _PROBES)], {}, []),
    "silu": ([given((3,), _PROBES)], {}, []),
    "log": ([given((3,), [0.4, 1.1, 2.3])], {}, []),
    "log_softmax": ([given((2, 3), _LOGITS)], {"axis": 1}, [0.2, -0.5, 0.7, 1.1, -0.4, 0.3]),
    "indexed_mean_nll": ([given((2, 3), _LOGITS)], {"axis": 1, "targets": _i(2, 0)}, []),
}  # fmt: skip


def _checked() -> Iterator[Case]:
    for op, (operands, arguments, weights) in CHECKED.items():
        shape = scalar.value(op, *operands, **arguments).shape
        upstream = given(shape, weights or [1.0] * math.prod(shape))
        yield _operation(f"operations/{op.replace('_', '-')}-checked", op,
                         "the input of a published gradient check, all slopes of its objective",
                         RECIPES[op][1], operands, arguments, upstream)  # fmt: skip


def _operation(
    identifier: str,
    op: str,
    why: str,
    flags: tuple[str, ...],
    operands: list[Given],
    arguments: Object,
    filler: Generator | Given,
) -> Case:
    """A case; the upstream is given, or drawn."""
    value = scalar.value(op, *operands, **arguments)
    upstream = (
        values.filled("warm", value.shape, filler) if isinstance(filler, Generator) else filler
    )
    parts = scalar.contributions(op, upstream, *operands, **arguments)
    truth = {
        "value": oracle.value(op, *operands, **arguments),
        "contributions": oracle.derivatives(op, upstream, *operands, **arguments),
    }
    _check(identifier, op, operands, arguments, upstream, [value, *parts], truth)
    return values.case(
        identifier,
        SCALAR,
        why,
        *flags,
        setup={"kind": "operation", "op": op},
        input=_input(operands, arguments, upstream),
        expect={
            "value": values.doubles(value.shape, value.cells),
            "contributions": [values.doubles(p.shape, p.cells) for p in parts],
            "true": _truth(truth),
        },
    )


def _input(operands: list[Given], arguments: Object, upstream: Given) -> Object:
    written: Object = {}
    for name, argument in arguments.items():
        if not isinstance(argument, Given):
            written[name] = argument
        elif all(isinstance(x, int) for x in argument.cells):
            written[name] = values.integers(argument.shape, argument.cells)
        else:
            written[name] = values.doubles(argument.shape, argument.cells)
    return {
        "operands": [values.doubles(a.shape, a.cells) for a in operands],
        "arguments": written,
        "upstream": values.doubles(upstream.shape, upstream.cells),
    }


def _truth(truth: Object) -> Object:
    value, parts = truth["value"], truth["contributions"]
    return {
        "value": values.true_values(value.shape, value.cells),
        "contributions": [values.true_values(p.shape, p.cells) for p in parts],
    }


def _check(
    identifier: str,
    op: str,
    operands: list[Given],
    arguments: Object,
    upstream: Given,
    found: list[Any],
    truth: Object,
) -> None:
    """Scalar rules and oracle agree within the derived bound, where nothing overflows."""
    limits = _limits(op, operands, arguments, upstream)
    reals = [truth["value"], *truth["contributions"]]
    for result, real, limit in zip(found, reals, limits, strict=True):
        for x, true, bound in zip(result.cells, real.cells, limit.cells, strict=True):
            with mp.workdps(oracle.DIGITS):
                error = abs(mpmath.mpf(x) - true) if math.isfinite(x) else mpmath.inf
                exempt = identifier.startswith("operations/indexed-mean-nll-overflowing")
                assert error <= bound or exempt, f"{identifier}: {x!r} is not {true}"


def _limits(op: str, operands: list[Given], arguments: Object, upstream: Given) -> list[Any]:
    value = bounds.forward(op, *operands, **arguments)
    return [value, *bounds.contributions(op, upstream, *operands, **arguments)]


def _bounded() -> Iterator[Case]:
    """The truth with the distance that any order of additions keeps; for other decoders."""
    for op, (_, _, fills, layouts) in RECIPES.items():
        name, shapes, arguments = layouts[0]
        generator = Generator(sum(map(ord, op)) * 1000 + 77)
        operands = [values.filled(fills[0], shape, generator) for shape in shapes]
        value = oracle.value(op, *operands, **arguments)
        upstream = values.filled("warm", value.shape, generator)
        limits = _limits(op, operands, arguments, upstream)
        truth = {
            "value": value,
            "contributions": oracle.derivatives(op, upstream, *operands, **arguments),
        }
        written = [values.upper_bounds(limit.shape, limit.cells) for limit in limits]
        yield values.case(
            f"operations/{op.replace('_', '-')}-{name}-bounded",
            "properties.oracles.operations; bound from properties.bounds",
            "holds for every order of additions with correctly rounded functions",
            "any-order",
            setup={"kind": "operation", "op": op},
            input=_input(operands, arguments, upstream),
            expect={"true": _truth(truth),
                    "bound": {"value": written[0], "contributions": written[1:]}},
            strength="bound",
        )  # fmt: skip


def _faithful() -> Case:
    """A loss near 4e-18 within a few ulps: for libraries whose functions are off by one ulp."""
    logits, targets = given((1, 2), [40.0, 0.0]), _i(0)
    value = oracle.value("indexed_mean_nll", logits, axis=1, targets=targets)
    return values.case(
        "operations/indexed-mean-nll-certain-faithful",
        "properties.oracles.operations",
        "exp and log1p within one ulp each, then a sum and a division that are exact here",
        "log1p",
        setup={"kind": "operation", "op": "indexed_mean_nll"},
        input={"operands": [values.doubles((1, 2), logits.cells)],
               "arguments": {"axis": 1, "targets": values.integers((1,), [0])}},
        expect={"true": {"value": values.true_values((), value.cells)}, "ulps": 2},
        strength="ulps",
    )  # fmt: skip
