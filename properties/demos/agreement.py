"""What a report has to establish before a line of it is printed."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from logitproof.core import Refusal


class Disagreement(Exception):
    """Two ways to the same figure differ; the report is not printed."""


def require(fact: bool, claim: str) -> None:
    """Raises Disagreement with the claim unless the fact holds."""
    if not fact:
        raise Disagreement(f"this does not hold: {claim}")


def largest_difference(got: Any, want: Any, *, what: str) -> float:
    """The largest |got - want| over two arrays or nested lists of one shape.

    Raises Disagreement where the shapes differ.
    """
    left, right = np.asarray(got, np.float64), np.asarray(want, np.float64)
    require(
        left.shape == right.shape, f"{what} has one shape, found {left.shape} and {right.shape}"
    )
    return max(_differences(left, right), default=0.0)


def require_close(got: Any, want: Any, *, tolerance: float, what: str) -> float:
    """The largest difference; raises Disagreement where it exceeds the tolerance or is NaN."""
    difference = largest_difference(got, want, what=what)
    require(difference <= tolerance, f"{what} agrees within {tolerance}, found {difference}")
    return difference


def same_bits(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> bool:
    """True for equal shape, type and bytes; -0.0 and +0.0 differ."""
    return (got.shape, got.dtype) == (want.shape, want.dtype) and got.tobytes() == want.tobytes()


def _differences(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> Iterator[float]:
    """Every |left - right|; a NaN counts as an infinite difference."""
    for difference in np.abs(left - right).reshape(-1).tolist():
        yield difference if difference == difference else float("inf")


def refusal_facts(call: Callable[[], object]) -> dict[str, Any]:
    """The fields of the refusal a call meets; none where it is not refused."""
    try:
        call()
    except Refusal as refusal:
        return refusal.facts()
    return {}
