"""What the exact arithmetic costs: calls of one kind side by side, in process CPU time.

Read the `median` column inside a group; nothing here is asserted as a time, and ratios are for
`logitproof bench`, which times its contenders in turns. `tox -e bench` runs both in a process of
one thread, with no setting of BLAS.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logitproof.core import Decoder, DecoderConfig, SplitMix64, Tensor, floats
from logitproof.core.tape import RECORDING
from logitproof.properties import decoder_strategies, laws, record_strategies, strategies
from logitproof.properties.bench import machine
from logitproof.properties.bench.contenders import TASKS, WHO, contenders, decoder
from logitproof.properties.bench.sizes import REFERENCE, SIZES, batch, weights
from logitproof.properties.scalar import Config, ScalarDecoder
from logitproof.properties.situations import TINY
from logitproof.properties.subjects import CoreSubject
from logitproof.properties.truth import truth_of

pytestmark = pytest.mark.benchmark(timer=time.process_time, min_rounds=3, max_time=0.5)

EXAMPLES = 50
LAYERS: dict[str, Callable[[Decoder, Tensor], Tensor]] = {
    "norm": lambda ours, x: ours.backbone.blocks[0].attention_norm.forward(x),
    "attention": lambda ours, x: ours.backbone.blocks[0].attention.forward(x),
    "swiglu": lambda ours, x: ours.backbone.blocks[0].ffn.forward(x),
    "head": lambda ours, x: ours.head.forward(RECORDING, x),
}
STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "sizes": decoder_strategies.sizes(),
    "decoders and batches": decoder_strategies.decoder_cases(),
    "merge tables": strategies.merge_tables(),
    "run records": record_strategies.run_records(),
}


def values(count: int) -> np.ndarray[Any, Any]:
    return -10.0 * SplitMix64(1).uniforms(count)


def drawn(rows: int, columns: int) -> np.ndarray[Any, Any]:
    return SplitMix64(rows).uniforms(rows * columns).reshape(rows, columns)


def contender(config: DecoderConfig, task: str, who: str) -> Callable[[], object]:
    """The call, made once: what compiles has compiled."""
    found = contenders(config, task, [who])
    if who in found.missing:
        pytest.skip(found.missing[who])
    found.calls[who]()
    return found.calls[who]


def scalar_sizes(config: DecoderConfig) -> Config:
    return Config(
        vocabulary_size=config.vocabulary_size,
        model_width=config.model_width,
        heads=config.heads,
        feed_forward_width=config.feed_forward_width,
        layers=config.layers,
        max_positions=config.max_positions,
    )


def with_slow(*rest: str) -> list[Any]:
    """Every size; what takes minutes at the largest carries the marker `slow`."""
    quick = [name for name in SIZES if name != "laptop-like"]
    return [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in rest)]


@pytest.mark.parametrize("count", [1, 16, 256, 4096, 65536])
@pytest.mark.parametrize("function", [floats.exp, np.exp], ids=["ours", "numpy"])
def test_exp_is_measured(benchmark: Any, function: Any, count: int) -> None:
    benchmark.group = f"operations: exp of {count}"
    benchmark(function, values(count))


@pytest.mark.parametrize("function", [floats.contract, np.matmul], ids=["ours", "blas"])
@pytest.mark.parametrize("shape", [(4, 4, 4), (16, 16, 20), (128, 128, 344)], ids=str)
def test_contraction_is_measured(
    benchmark: Any, function: Any, shape: tuple[int, int, int]
) -> None:
    R, K, C = shape
    benchmark.group = f"operations: contraction {R}x{K}x{C}"
    benchmark(function, drawn(R, K), drawn(K, C))


@pytest.mark.parametrize("size", with_slow())
@pytest.mark.parametrize("layer", LAYERS)
def test_layer_is_measured(benchmark: Any, layer: str, size: str) -> None:
    config = SIZES[size]
    ours = decoder(config, "ordered", weights(config))
    ids, _ = batch(config)
    x = ours.embedding.forward(ids).detach()
    y = LAYERS[layer](ours, x)
    upstream = np.ones(y.shape)
    benchmark.group = f"operations: {layer} forward+backward, {size}"
    benchmark(lambda: LAYERS[layer](ours, x).backward(upstream))


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("size", with_slow("laptop-like"))
@pytest.mark.parametrize("task", TASKS)
def test_decoder_is_measured(benchmark: Any, task: str, size: str, who: str) -> None:
    call = contender(SIZES[size], task, who)
    benchmark.group = f"{task}, {size}"
    benchmark.extra_info["machine"] = machine.facts()
    benchmark(call)


@pytest.mark.parametrize("what", ["core", "scalar", "truth"])
@pytest.mark.parametrize("size", ["tiny", "reference"])
def test_oracle_is_measured(benchmark: Any, size: str, what: str) -> None:
    """Loss and every gradient of one full row, by three ways to the same numbers."""
    config = {"tiny": TINY, "reference": REFERENCE}[size]
    sizes = scalar_sizes(config)
    given = {name: value.tolist() for name, value in weights(config).items()}
    ids, targets = (cells.tolist() for cells in batch(config))
    subject = CoreSubject()
    subject.load(sizes, given)
    calls: dict[str, Callable[[], object]] = {
        "core": lambda: subject.loss_and_gradients(ids, targets),
        "scalar": lambda: ScalarDecoder(sizes, given).run(ids, targets),
        "truth": lambda: truth_of(sizes, given, ids, targets),
    }
    benchmark.group = f"oracle, {size}"
    benchmark(calls[what])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategy_is_measured(benchmark: Any, strategy: str) -> None:
    @settings(max_examples=EXAMPLES, database=None, deadline=None, derandomize=True)
    @given(STRATEGIES[strategy])
    def draw(_: Any) -> None:
        pass

    benchmark.group = f"strategies: {EXAMPLES} examples"
    benchmark(draw)


@pytest.mark.parametrize("id_", laws.REGISTRY)
def test_law_is_measured(benchmark: Any, id_: str) -> None:
    """One drawn or published case; `logitproof bench --laws` shows the whole of a verification."""
    law = laws.REGISTRY[id_]
    subject = CoreSubject()
    case = next(iter(law.cases(1)))
    benchmark.group = "laws: one case each"
    benchmark(lambda: law.check(subject, case))
