from fractions import Fraction
from math import ceil

import pytest

from logitproof.core import sizes
from logitproof.core.codes import Code
from logitproof.properties.refusals import refusal_of


@pytest.mark.parametrize("size", [0, 1, 2**53 - 1, 2**53 + 1, 2**60 + 1])
def test_ceiling_quotient_equals_the_exact_rational(size: int) -> None:
    # Reported case plan-ceil-float: a float quotient loses the last block of 2^60 + 1 bytes.
    assert sizes.ceiling_quotient(size, 2) == ceil(Fraction(size, 2))


def test_ceiling_quotient_of_the_reported_size_is_exact() -> None:
    assert sizes.ceiling_quotient(2**60 + 1, 2) == 576460752303423489


@pytest.mark.parametrize(("size", "alignment", "rounded"), [(0, 8, 0), (1, 8, 8), (16, 8, 16)])
def test_round_up_gives_the_next_multiple(size: int, alignment: int, rounded: int) -> None:
    assert sizes.round_up(size, alignment) == rounded


def test_a_product_up_to_128_bits_is_allowed() -> None:
    assert sizes.product((2**64, 2**63), what="w", label="l") == 2**127


def test_a_product_beyond_128_bits_is_refused_by_its_name() -> None:
    fault = refusal_of(sizes.product, (2**64, 2**64), what="census", label="tensor shape")
    assert fault.code is Code.PLAN_OVERFLOW
    assert (fault.what, fault.reason) == ("census", "tensor shape")
    assert (fault.required, fault.limit) == (2**128, 2**128 - 1)


def test_a_sum_beyond_128_bits_is_refused_by_its_name() -> None:
    fault = refusal_of(sizes.total, (2**128 - 1, 1), what="census", label="parameter group")
    assert fault.reason == "parameter group"


def test_a_kept_size_has_64_bits() -> None:
    assert sizes.kept(2**64 - 1, what="w", label="l") == 2**64 - 1
    fault = refusal_of(sizes.kept, 2**64, what="w", label="l")
    assert (fault.required, fault.limit) == (2**64, 2**64 - 1)


def test_a_division_with_a_remainder_is_refused() -> None:
    fault = refusal_of(sizes.exact_quotient, 7, 2, what="traffic.payload")
    assert fault.code is Code.INEXACT_DIVISION
    assert (fault.expected, fault.actual) == (2, 7)


def test_a_sum_with_an_unknown_term_is_unknown_and_keeps_its_known_part() -> None:
    assert sizes.add(1, 2) == 3
    assert sizes.add(64, sizes.UNKNOWN) is sizes.UNKNOWN
    assert sizes.known(64, sizes.UNKNOWN) == 64
