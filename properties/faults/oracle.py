"""Faults of the oracle itself: the scalar decoder of the truth, wrong in one place.

The golden figures must see each: a truth that agrees with a wrong decoder judges nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from logitproof.properties.scalar import decoder, forward

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
wrong = partial(planted, _FOUND, kind="mistake", source="mistakes that an oracle could make")


@wrong((forward, "scale"))
def oracle_without_score_scale(_: Any) -> Any:
    """Scores are not divided by sqrt(d_h)."""
    return lambda a, head_width: a.number(1.0)


@wrong((forward, "normed"))
def oracle_epsilon_doubled(right: Any) -> Any:
    """Norms add epsilon twice."""
    return lambda a, x, gain, epsilon: right(a, x, gain, 2.0 * epsilon)


@wrong((forward.Rotation, "turned"))
def oracle_without_rotation(_: Any) -> Any:
    """Queries and keys are not turned."""
    return lambda self, x, position: x


@wrong((forward.Rotation, "turned"))
def oracle_turns_back(_: Any) -> Any:
    """Queries are turned back, keys too: scores see the distance with the other sign."""
    return lambda self, x, position: self.turned_back(x, position)


@wrong((forward, "_attention"))
def oracle_reads_first_key_alone(right: Any) -> Any:
    """A query gives its own key the weight of the first."""

    def attention(*arguments: Any) -> Any:
        return [row[::-1] for row in right(*arguments)]

    return attention


@wrong((forward, "sigmoid"))
def oracle_sigmoid_of_half(right: Any) -> Any:
    """The sigmoid is that of half the gate."""
    return lambda a, x: right(a, x * a.number(0.5))


@wrong((forward, "plus"))
def oracle_residual_lost(_: Any) -> Any:
    """Branches replace the residual."""
    return lambda left, right: right


@wrong((decoder, "softmax"))
def oracle_counts_maximum_twice(right: Any) -> Any:
    """The sum over the classes counts the largest twice."""

    def softmax(a: Any, scores: Any) -> Any:
        probabilities, largest, tail = right(a, scores)
        return probabilities, largest, tail + a.number(1.0)

    return softmax


FAULTS = tuple(_FOUND.values())
