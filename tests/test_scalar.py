"""The scalar decoder: an independent witness of the golden bits, and exact where numbers are."""

import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
from mpmath import mp

from logitproof.golden.figures import Run, figures, from_bits, to_bits
from logitproof.properties import rounding
from logitproof.properties.laws.cases import mixed_cases, packed_cases
from logitproof.properties.laws.difference import digest
from logitproof.properties.laws.published import config_of, weights_of
from logitproof.properties.scalar import (
    C_LIBRARY,
    Arithmetic,
    Generator,
    Layout,
    ScalarDecoder,
    rounded,
)
from logitproof.properties.scalar.arithmetic import EXACT
from logitproof.properties.scalar.decoder import Result, nll
from logitproof.properties.verify.environment import GLIBC_FMA, c_library_functions

RUNS = list(figures().runs.values())
DIGITS = 60
REAL = Arithmetic(
    name="real numbers to 60 digits",
    number=mpmath.mpf,
    exp=mpmath.exp,
    log=mpmath.log,
    log1p=lambda x: mpmath.log(1 + x),
    sin=mpmath.sin,
    cos=mpmath.cos,
    pow=mpmath.power,
    sqrt=mpmath.sqrt,
    is_finite=mpmath.isfinite,
)
SAMPLES = {
    "exp": [-745.1, -744.4400719213812, -708.5, -1.4326171875, -1e-300, 1e-17, 0.5, 709.78, 710.0],
    "log": [5e-324, 2.0**-1022, 0.3, 1.0 - 2.0**-53, 1.0 + 2.0**-52, 1.7e308],
    "log1p": [-0.75, -(2.0**-60), 5e-324, 0.2412109375, 300.0, 1e300],
    "sin": [5e-324, 1e-8, 0.5, 3.141592653589793, 1e22, 1.7e308],
    "cos": [1e-9, 1.08984375, 1.5707963267948966, 355.0, 1e22],
}
POWERS = [(1e4, -0.5), (4.0, -0.5), (9.0, 0.5), (2.0, -1074.0), (2.0, -1075.0), (0.25, 3.5),
          (1e4, -0.49019607843137253), (3.0, 40.0), (10.0, 400.0), (0.1, 0.1), (27.0, 0.5),
          (3.0, 33.0), (1.0 + 2.0**-27, 2.0)]  # fmt: skip


def scalar_run(run: Run, arithmetic: Arithmetic) -> Result:
    decoder = ScalarDecoder(config_of(figures().configs[run.config]), weights_of(run), arithmetic)
    return decoder.run(run.ids, run.targets)


def test_the_generator_draws_the_published_words() -> None:
    generator, figure = Generator(figures().words.seed), figures().words
    assert [f"{generator.word():016x}" for _ in figure.words] == figure.words


@pytest.mark.golden
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)
def test_the_weights_have_the_published_digest(run: Run) -> None:
    assert digest(weights_of(run).values()) == run.parameters_digest


@pytest.mark.golden
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)
def test_a_golden_run_has_the_published_bits(run: Run) -> None:
    result = scalar_run(run, EXACT)
    assert result.loss == from_bits(run.loss)
    assert digest([result.logits]) == run.logits_digest
    assert digest(result.gradients.values()) == run.gradients_digest
    assert run.raw_sum in (None, to_bits(result.loss_sum))


@pytest.mark.golden
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)
def test_a_golden_run_has_the_reference_bits_with_the_c_library(run: Run) -> None:
    answer = c_library_functions()
    assert answer == GLIBC_FMA or pytest.skip(f"the functions here are those of {answer}")
    result = scalar_run(run, C_LIBRARY)
    assert digest([result.logits]) == run.c_library_logits_digest
    assert digest(result.gradients.values()) == run.c_library_gradients_digest


@pytest.mark.parametrize("name", SAMPLES)
def test_a_function_is_correctly_rounded(name: str) -> None:
    function = getattr(rounded, name)
    assert [
        x for x in SAMPLES[name] if not rounding.is_correctly_rounded(name, x, function(x))
    ] == []


@pytest.mark.parametrize(("base", "exponent"), POWERS)
def test_a_power_is_correctly_rounded(base: float, exponent: float) -> None:
    result = rounded.pow(base, exponent)
    assert rounding.is_correctly_rounded("pow", exponent, result, base=base)


def test_a_power_beyond_every_double_is_its_limit() -> None:
    assert rounded.pow(2.0**-900, 1e46) == rounded.pow(2.0**900, -1e46) == 0.0
    assert rounded.pow(2.0**900, 1e46) == rounded.pow(2.0**-900, -1e46) == math.inf
    assert rounded.pow(1.0746645797845052e-216, 31.0) == 0.0  # an odd factor of many bits


@pytest.mark.parametrize("name", ["exp", "log1p", "sin", "cos"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_function_of_zero_is_exact(name: str, zero: float) -> None:
    assert getattr(rounded, name)(zero).hex() == getattr(math, name)(zero).hex()


@pytest.mark.parametrize(
    ("rows", "total", "mean"),
    [
        ([(0.0, 0.0), (1.5, 0.0), (0.0, 0.0)], "4008b3a0100c7119", "3ff077c00ab2f611"),
        ([(1e308, 0.0), (1e308, 0.0)], "7ff0000000000000", "7fe1ccf385ebc8a0"),
        ([(1.7e308, -1.7e308), (0.0, 0.0)], "7ff0000000000000", "7fee42d130773b76"),
    ],
)
def test_sum_and_mean_are_those_of_the_specification(
    rows: list[tuple[float, float]], total: str, mean: str
) -> None:
    _, loss, loss_sum, _ = nll(EXACT, [list(row) for row in rows], [1] * len(rows))
    assert (loss_sum, loss) == (from_bits(total), from_bits(mean))


def slope_and_gradient(name: str, entry: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The central difference of the loss in one weight, and the gradient there."""
    case = next(c for c in packed_cases(9) if c.config.layers and c.scale == 4.0)
    step = mpmath.mpf(10) ** -20
    results = []
    for shift in (step, -step, 0):
        decoder = ScalarDecoder(case.config, case.weights, REAL)
        decoder.weights[name][0][1] += shift
        results.append(decoder.run(case.ids, case.targets, case.layout))
    above, below, here = results
    return (above.loss - below.loss) / (2 * step), entry(here.gradients[name])


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("token_embedding.weight", lambda gradient: gradient[0][1]),
        ("blocks.0.attention.query.weight", lambda gradient: gradient[0][1]),
        ("blocks.0.attention.value.weight", lambda gradient: gradient[0][1]),
        ("blocks.0.ffn.gate.weight", lambda gradient: gradient[0][1]),
        ("blocks.0.attention_norm.gain", lambda gradient: gradient[1]),
        ("final_norm.gain", lambda gradient: gradient[1]),
    ],
)
def test_the_gradient_is_the_slope_of_the_loss(name: str, entry: Callable[[Any], Any]) -> None:
    with mp.workdps(DIGITS):
        slope, gradient = slope_and_gradient(name, entry)
        assert abs(gradient) > 1e-9
        assert abs(gradient - slope) <= mpmath.mpf(10) ** -30


def test_doubles_stay_close_to_real_numbers() -> None:
    case = list(mixed_cases(9))[-1]
    batch = (case.ids, case.targets, case.layout, case.valid)
    with mp.workdps(DIGITS):
        real = ScalarDecoder(case.config, case.weights, REAL).run(*batch).loss
        assert abs(ScalarDecoder(case.config, case.weights).run(*batch).loss - real) < 1e-12


def test_a_packed_layout_starts_again_in_each_segment() -> None:
    layout = Layout.packed([[3, 2], [4]], 6)
    assert layout.lengths == (5, 4)
    assert layout.range_starts == ((0, 0, 0, 3, 3, 0), (0,) * 6)
    assert layout.positions == ((0, 1, 2, 0, 1, 0), (0, 1, 2, 3, 0, 0))
