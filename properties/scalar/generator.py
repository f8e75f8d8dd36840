"""SplitMix64, Xavier matrices and the depth factor, written from the specification alone."""

import math
from collections.abc import Callable

from .shapes import Config

__all__ = ["Generator", "depth_scaled", "initial_weights", "matrix"]

Matrix = list[list[float]]
_WORD = 1 << 64


class Generator:
    """The 64-bit generator whose seed is its first state. Source: numerics_init.md section 1"""

    __slots__ = ("state",)

    def __init__(self, seed: int) -> None:
        self.state = seed

    def word(self) -> int:
        """The next 64-bit word."""
        self.state = (self.state + 0x9E3779B97F4A7C15) % _WORD
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % _WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB % _WORD
        return z ^ z >> 31

    def unit(self) -> float:
        """The next value in [0, 1)."""
        return float(self.word() >> 11) * 2.0**-53

    def below(self, bound: int) -> int:
        """The next integer in 0 .. bound - 1; for choosing cases, not for weights."""
        return self.word() % bound


def matrix(generator: Generator, fan_in: int, fan_out: int) -> Matrix:
    """limit * (2u - 1), row-major, limit = sqrt(6 / (in + out)).

    Source: numerics_init.md section 2
    """
    limit = math.sqrt(6.0 / float(fan_in + fan_out))
    return [[limit * (2.0 * generator.unit() - 1.0) for _ in range(fan_out)] for _ in range(fan_in)]


def initial_weights(
    config: Config, generator: Generator, *, draw: Callable[[Generator, int, int], Matrix] = matrix
) -> dict[str, list[float] | Matrix]:
    """Name -> value in stable order; gains are ones and draw nothing.

    Source: numerics_init.md section 3
    """
    return {
        name: draw(generator, *shape) if len(shape) == 2 else [1.0] * shape[0]
        for name, shape in config.parameter_shapes().items()
    }


def depth_scaled(
    weights: dict[str, list[float] | Matrix], layers: int
) -> dict[str, list[float] | Matrix]:
    """Output and down matrices times 1 / sqrt(L); unchanged for one layer.

    Source: numerics_init.md section 5
    """
    if layers == 1:
        return weights
    alpha = 1.0 / math.sqrt(float(layers))
    scaled = (".attention.output.weight", ".ffn.down.weight")
    return {
        name: [[w * alpha for w in row] for row in value]  # type: ignore[union-attr]
        if name.endswith(scaled)
        else value
        for name, value in weights.items()
    }
