"""What the exact arithmetic costs, as ratios against peers measured in the same run.

Groups compare a call of ours with its limit: numpy's own function, or the BLAS products of the
same shapes. Read the `median` column inside a group; nothing here is asserted as a time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from logitproof.core import Decoder, DecoderConfig, DecodeSession, SplitMix64, floats
from logitproof.core.fresh import parameter_count

pytestmark = pytest.mark.benchmark

REFERENCE = DecoderConfig(
    vocabulary_size=266, model_width=4, heads=1, feed_forward_width=4, layers=1, max_positions=4
)
BRIDGE = DecoderConfig(
    vocabulary_size=266, model_width=16, heads=2, feed_forward_width=20, layers=2, max_positions=16
)
MID = DecoderConfig(
    vocabulary_size=1000, model_width=128, heads=4, feed_forward_width=344, layers=4,
    max_positions=128,
)  # fmt: skip
SIZES = {"reference": REFERENCE, "bridge": BRIDGE, "mid": MID}


def values(count: int) -> np.ndarray[Any, Any]:
    return -10.0 * SplitMix64(1).uniforms(count)


def drawn(rows: int, columns: int) -> np.ndarray[Any, Any]:
    return SplitMix64(rows).uniforms(rows * columns).reshape(rows, columns)


def same_shape_products(config: DecoderConfig) -> Callable[[], None]:
    """The matrix products of one forward and backward over a full row, by BLAS."""
    T, D, F, V = (
        config.max_positions, config.model_width, config.feed_forward_width, config.vocabulary_size,
    )  # fmt: skip
    shapes = config.layers * [*4 * [(T, D, D)], (T, D, F), (T, D, F), (T, F, D)] + [(T, D, V)]
    operands = [(drawn(m, k), drawn(k, n), drawn(m, n)) for m, k, n in shapes]

    def run() -> None:
        for a, b, u in operands:
            a @ b, u @ b.T, a.T @ u

    return run


@pytest.mark.parametrize("count", [1, 16, 256, 4096, 65536])
@pytest.mark.parametrize("function", [floats.exp, np.exp], ids=["ours", "numpy"])
def test_exp_is_measured(benchmark: Any, function: Any, count: int) -> None:
    benchmark.group = f"exp of {count}"
    benchmark(function, values(count))


@pytest.mark.parametrize("function", [floats.contract, np.matmul], ids=["ours", "blas"])
@pytest.mark.parametrize("shape", [(4, 4, 4), (16, 16, 20), (128, 128, 344)], ids=str)
def test_contraction_is_measured(
    benchmark: Any, function: Any, shape: tuple[int, int, int]
) -> None:
    R, K, C = shape
    benchmark.group = f"contraction {R}x{K}x{C}"
    benchmark(function, drawn(R, K), drawn(K, C))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("what", ["products by BLAS", "forward", "forward+backward"])
def test_decoder_is_measured(benchmark: Any, what: str, size: str) -> None:
    config = SIZES[size]
    decoder = Decoder(config, SplitMix64(1))
    ids = np.arange(config.max_positions)[None] % config.vocabulary_size
    calls: dict[str, Callable[[], object]] = {
        "products by BLAS": same_shape_products(config),
        "forward": lambda: decoder.loss(ids, ids),
        "forward+backward": lambda: decoder.loss(ids, ids).backward(),
    }
    benchmark.group = f"decoder {size}, {parameter_count(config)} parameters"
    benchmark(calls[what])


@pytest.mark.parametrize("size", SIZES)
def test_decode_is_measured(benchmark: Any, size: str) -> None:
    config = SIZES[size]
    decoder = Decoder(config, SplitMix64(1))
    benchmark.group = f"decode one token, {size}"
    with DecodeSession(decoder) as session:
        session.prefill(list(range(config.max_positions - 1)))

        def step() -> None:
            session.truncate(config.max_positions - 1)
            session.decode(1)

        benchmark(step)
