"""The six elementary functions are correctly rounded, whatever carries their arguments."""

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import mpmath
import numpy as np
import pytest

from logitproof.core import Code, Refusal, exact, logarithm, rounded
from logitproof.properties import rounding_inputs as inputs
from logitproof.properties.rounding import is_correctly_rounded, misrounded, misrounded_powers

FIVE = ["exp", "log", "log1p", "sin", "cos"]
SIZES = [1, 2, 7, 31, 32, 33, 34, 64, 1000, 8191, 8192, 8193, 20000]
INF, NAN = np.inf, np.nan

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Function: TypeAlias = Callable[[Floats], Floats]


def noted(notes: list[float], note: float, answer: float) -> float:
    """The answer, once the note is taken: what a lambda cannot say itself."""
    notes.append(note)
    return answer


def bits(values: Floats) -> list[int]:
    words: list[int] = np.asarray(values).view(np.uint64).tolist()
    return words


@pytest.mark.parametrize("count", [2_000, pytest.param(140_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("function", FIVE)
def test_rounded_functions_are_correctly_rounded_in_every_region(function: str, count: int) -> None:
    xs = inputs.arguments(function, count)
    assert misrounded(function, xs, getattr(rounded, function)(np.array(xs))) == []


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_rounded_pow_is_correctly_rounded_in_every_region(count: int) -> None:
    assert misrounded_powers(rounded.pow, inputs.powers(count)) == []


@pytest.mark.parametrize("count", [2_000, pytest.param(140_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("crossover", [0, 1 << 30])
def test_rounded_exp_keeps_its_bits_with_every_rounding_undecided(
    monkeypatch: pytest.MonkeyPatch, crossover: int, count: int
) -> None:
    xs = np.array(inputs.arguments("exp", count, seed=1))
    decided = rounded.exp(xs)
    monkeypatch.setattr(rounded, "ERROR", 1.0)
    monkeypatch.setattr(rounded, "CROSSOVER", crossover)
    undecided = rounded.exp(xs)
    assert bits(undecided) == bits(decided)
    assert misrounded("exp", xs.tolist(), undecided) == []


@pytest.mark.parametrize("count", [2_000, pytest.param(140_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("crossover", [0, 1 << 30])
@pytest.mark.parametrize("function", ["log", "log1p"])
def test_rounded_logarithms_keep_their_bits_with_every_rounding_undecided(
    monkeypatch: pytest.MonkeyPatch, function: str, crossover: int, count: int
) -> None:
    xs = np.array(inputs.arguments(function, count, seed=1))
    decided = getattr(rounded, function)(xs)
    monkeypatch.setattr(logarithm, "ERROR", 1e4)
    monkeypatch.setattr(rounded, "LOG_CROSSOVER", crossover)
    undecided = getattr(rounded, function)(xs)
    assert bits(undecided) == bits(decided)
    assert misrounded(function, xs.tolist(), undecided) == []


@pytest.mark.parametrize("function", FIVE)
@pytest.mark.parametrize("repeats", [1, 50])
def test_rounded_functions_decide_planted_hard_cases(function: str, repeats: int) -> None:
    xs = [float.fromhex(text) for text in inputs.HARD[function]] * repeats
    assert misrounded(function, xs, getattr(rounded, function)(np.array(xs))) == []


@pytest.mark.parametrize(("base", "exponent"), inputs.HARD_POWERS)
def test_rounded_pow_decides_exact_and_midpoint_and_hard_cases(base: str, exponent: str) -> None:
    b, y = float.fromhex(base), float.fromhex(exponent)
    assert is_correctly_rounded("pow", y, rounded.pow(b, np.array(y)).item(), base=b)


@pytest.mark.parametrize("text", inputs.HARD["exp"])
@pytest.mark.parametrize("count", [1, 50])
def test_rounded_exp_leaves_hard_cases_to_the_exact_path(
    monkeypatch: pytest.MonkeyPatch, text: str, count: int
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(exact, "exp", lambda x: noted(asked, x, 1.0))
    rounded.exp(np.full(count, float.fromhex(text)))
    assert asked == [float.fromhex(text)] * count


@pytest.mark.parametrize("function", ["log", "log1p"])
@pytest.mark.parametrize("crossover", [0, 1 << 30])
def test_rounded_logarithms_seldom_take_the_exact_path(
    monkeypatch: pytest.MonkeyPatch, function: str, crossover: int
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(rounded, "LOG_CROSSOVER", crossover)
    monkeypatch.setattr(exact, function, lambda x: noted(asked, x, 1.0))
    stream = inputs.Stream(3)
    getattr(rounded, function)(np.array([stream.uniform(0.01, 100.0) for _ in range(20_000)]))
    assert len(asked) < 20


def test_rounded_exp_seldom_takes_the_exact_path(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(exact, "exp", lambda x: noted(asked, x, 1.0))
    stream = inputs.Stream(3)
    rounded.exp(np.array([stream.uniform(-30.0, 0.0) for _ in range(50_000)]))
    assert len(asked) < 50  # 2^-12 to 2^-13 of them


ALL: dict[str, Function] = {
    **{name: getattr(rounded, name) for name in FIVE},
    "pow": lambda exponents: rounded.pow(10000.0, exponents),
}
LAYOUTS: dict[str, Function] = {
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 3, axis=1)[:, ::3],
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "transposed": lambda x: x.T.copy().T,
    "offset": lambda x: np.pad(x, 1)[1:-1, 1:-1],
}


@pytest.mark.parametrize("function", ALL.values(), ids=ALL)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 5), (9, 16)])
def test_rounded_functions_ignore_the_memory_layout(
    function: Function, layout: Function, shape: tuple[int, int]
) -> None:
    stream = inputs.Stream(11)
    x = np.array([stream.uniform(-0.9, 9.0) for _ in range(shape[0] * shape[1])]).reshape(shape)
    with np.errstate(all="raise"):
        result = function(layout(x))
    assert bits(result) == bits(function(x))
    assert result.flags.c_contiguous


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["exp", "log", "log1p"])
def test_rounded_functions_have_the_same_bits_one_by_one_and_together(name: str, size: int) -> None:
    xs, function = inputs.arguments(name, size, seed=7), getattr(rounded, name)
    together = function(np.array(xs))
    assert bits(together) == bits(np.concatenate([function(np.array([x])) for x in xs]))


@pytest.mark.parametrize("function", ALL.values(), ids=ALL)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,), (4, 2), (3, 20)])
def test_rounded_functions_return_a_new_array_and_keep_their_argument(
    function: Function, shape: tuple[int, ...]
) -> None:
    x = np.full(shape, 0.75)
    result = function(x)
    assert (type(result), result.dtype, result.shape) == (np.ndarray, np.dtype(np.float64), shape)
    assert (result.flags.writeable, result.flags.c_contiguous) == (True, True)
    assert not np.shares_memory(result, x)
    assert bits(x) == bits(np.full(shape, 0.75))


SPECIAL = [
    (
        "exp",
        [-INF, INF, NAN, 0.0, -0.0, 710.0, 1e308, -746.0, -1e308],
        [0, INF, NAN, 1, 1, INF, INF, 0, 0],
    ),
    (
        "exp",
        [709.782712893384, 709.7827128933841, -745.1332191019411, -745.1332191019412],
        [float.fromhex("0x1.fffffffffff2ap+1023"), INF, 5e-324, 0],
    ),
    ("log", [0.0, -0.0, -1.0, -INF, INF, NAN, 1.0], [-INF, -INF, NAN, NAN, INF, NAN, 0.0]),
    ("log1p", [-1.0, -2.0, -INF, INF, NAN, 0.0, -0.0], [-INF, NAN, NAN, INF, NAN, 0.0, -0.0]),
    ("log1p", [5e-324, -5e-324, 1e-300, 2.0**-60], [5e-324, -5e-324, 1e-300, 2.0**-60]),
    (
        "sin",
        [INF, -INF, NAN, 0.0, -0.0, 5e-324, -5e-324],
        [NAN, NAN, NAN, 0.0, -0.0, 5e-324, -5e-324],
    ),
    ("cos", [INF, -INF, NAN, 0.0, -0.0, 5e-324, 2.0**-27], [NAN, NAN, NAN, 1, 1, 1, 1]),
]


@pytest.mark.parametrize(("function", "xs", "expected"), SPECIAL)
@pytest.mark.parametrize("repeats", [1, 20])
def test_rounded_functions_take_special_values_without_a_warning(
    function: str, xs: list[float], expected: list[float], repeats: int
) -> None:
    with np.errstate(all="raise"):
        results = getattr(rounded, function)(np.array(xs * repeats))
    assert [x.hex() for x in results.tolist()] == [float(x).hex() for x in expected * repeats]


@pytest.mark.parametrize(
    ("base", "expected"),
    [(2.0, [1, 1, INF, 0, NAN]), (0.5, [1, 1, 0, INF, NAN]), (1.0, [1, 1, 1, 1, 1])],
)
def test_rounded_pow_takes_special_exponents(base: float, expected: list[float]) -> None:
    results = rounded.pow(base, np.array([0.0, -0.0, INF, -INF, NAN]))
    assert [x.hex() for x in results.tolist()] == [float(x).hex() for x in expected]


@pytest.mark.parametrize("base", [0.0, -0.0, -2.0, INF, -INF, NAN])
def test_rounded_pow_refuses_a_base_outside_its_domain(base: float) -> None:
    with pytest.raises(Refusal) as caught:
        rounded.pow(base, np.array([1.0]))
    assert caught.value.code == Code.INVALID_BASE


@pytest.mark.parametrize("function", FIVE)
@pytest.mark.parametrize("given", [["1"], [1j], [np.longdouble(1)], [True], [None]])
def test_rounded_functions_refuse_what_float64_does_not_hold(function: str, given: Any) -> None:
    with pytest.raises(Refusal) as caught:
        getattr(rounded, function)(np.array(given))
    assert caught.value.code == Code.NOT_REAL


def test_rounded_exp_evaluates_no_argument_that_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(exact, "exp", lambda x: noted(asked, x, 7.0))
    with np.errstate(all="raise"):
        results = rounded.exp(np.array([0.0] * 40 + [1e308, -INF, NAN]))
    assert results[40:].tolist() == [7.0] * 3
    assert [repr(x) for x in asked] == ["1e+308", "-inf", "nan"]


@pytest.mark.parametrize("function", FIVE)
@pytest.mark.parametrize("towards", [-INF, INF])
def test_rounding_judge_refuses_the_neighbours_of_the_right_double(
    function: str, towards: float
) -> None:
    xs = inputs.arguments(function, 500, seed=9)
    results = getattr(rounded, function)(np.array(xs))
    neighbours = np.nextafter(results, towards)
    assert len(misrounded(function, xs, neighbours)) == np.count_nonzero(neighbours != results)


@pytest.mark.parametrize(("base", "exponent"), inputs.HARD_POWERS)
@pytest.mark.parametrize("towards", [-INF, INF])
def test_rounding_judge_refuses_the_neighbours_of_the_right_power(
    base: str, exponent: str, towards: float
) -> None:
    b, y = float.fromhex(base), float.fromhex(exponent)
    result = rounded.pow(b, np.array(y)).item()
    neighbour = math.nextafter(result, towards)
    assert is_correctly_rounded("pow", y, neighbour, base=b) == (neighbour == result)


@pytest.mark.parametrize("wrong", [NAN, -1.0, INF, 0.0])
def test_rounding_judge_refuses_other_values(wrong: float) -> None:
    assert not is_correctly_rounded("exp", 0.5, wrong)


def test_rounded_constants_are_those_of_a_multiprecision_library() -> None:
    with mpmath.workprec(300):
        assert int(mpmath.ln2 * 2**rounded._LN2_BITS) == rounded._LN2
        powers = [mpmath.mpf(2) ** (mpmath.mpf(j) / 128) for j in range(128)]
        errors = [
            abs(h + mpmath.mpf(t) - p) for (h, t), p in zip(rounded._POWERS, powers, strict=True)
        ]
    assert max(errors) < 2.0**-80
    assert all((head * 2**26).is_integer() for head, _ in rounded._POWERS)


def test_rounded_logarithm_table_is_that_of_a_multiprecision_library() -> None:
    with mpmath.workprec(300):
        errors = [
            abs(mpmath.mpf(head) + mpmath.mpf(tail) + mpmath.log(mpmath.mpf(c)))
            for c, head, tail in logarithm._TABLE
        ]
        ln2_error = abs(mpmath.mpf(logarithm._LN2_HEAD) + logarithm._LN2_TAIL - mpmath.ln2)
    assert max([ln2_error, *errors]) < 2.0**-94
    assert all((head * 2.0**42).is_integer() for _, head, _ in logarithm._TABLE)


def test_importing_rounded_leaves_mpmath_alone() -> None:
    code = "import sys, logitproof.core.rounded; sys.exit('mpmath' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", [np.float32, np.float16, ">f8", np.int64, np.uint8])
def test_other_numbers_give_the_bits_of_their_float64(kind: Any) -> None:
    given = np.array([1, 2, 3], dtype=kind)
    assert rounded.exp(given).tobytes() == rounded.exp(given.astype(np.float64)).tobytes()
    assert rounded.log(given).tobytes() == rounded.log(given.astype(np.float64)).tobytes()


def test_an_integer_beyond_the_mantissa_is_taken_where_float64_holds_it() -> None:
    assert (
        rounded.log(np.array([3 << 60])).tobytes() == rounded.log(np.array([3.0 * 2**60])).tobytes()
    )


def test_an_integer_beyond_the_mantissa_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        rounded.exp(np.array([2**53 + 1]))
    assert refused.value.code == Code.NOT_REAL
