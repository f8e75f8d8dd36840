"""The peers compute the same decoder: each loss, gradient and cached row within its bound."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from logitproof.properties.bench.contenders import DECODE, FORWARD, TRAINING, contenders
from logitproof.properties.bench.sizes import BRIDGE, batch, config, weights
from logitproof.properties.peers import PEERS, Peer, missing, peer, products
from logitproof.properties.scalar import Config
from logitproof.properties.truth import Answer, Truth, truth_of

SMALL = Config(
    vocabulary_size=5, model_width=8, heads=2, feed_forward_width=3, layers=2, max_positions=3
)
SIZES = config(5, 8, 2, 2, 3, 3)


MOVED = ("token_embedding.weight", "blocks.1.attention.key.weight", "final_norm.gain")


def present(name: str) -> Peer:
    reason = missing(name)
    if reason is not None:
        pytest.skip(reason)
    return peer(name)


@pytest.fixture(scope="module")
def truth() -> Truth:
    given = {name: value.tolist() for name, value in weights(SIZES).items()}
    ids, targets = (cells.tolist() for cells in batch(SIZES, rows=2))
    return truth_of(SMALL, given, ids, targets)


def is_within(answer: Answer, actual: Any) -> bool:
    near, rest = answer.doubles
    errors = np.abs((np.asarray(actual) - near) - rest)
    return bool((errors <= answer.roundings.bounds().reshape(errors.shape)).all())


def result(name: str, given: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    return present(name).work(SMALL, given, *batch(SIZES, rows=2)).result()


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_computes_the_loss_and_every_gradient_within_their_bounds(
    name: str, truth: Truth
) -> None:
    loss, gradients = result(name, weights(SIZES))
    assert is_within(truth.loss, [loss])
    assert {n for n, answer in truth.gradients.items() if not is_within(answer, gradients[n])} == (
        set()
    )


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("moved", MOVED)
def test_the_bounds_see_a_peer_that_moves_one_weight(name: str, moved: str, truth: Truth) -> None:
    given = weights(SIZES)
    given[moved] = given[moved] * (1.0 + 2.0**-20)
    _, gradients = result(name, given)
    outside = [n for n, answer in truth.gradients.items() if not is_within(answer, gradients[n])]
    assert outside != []


@pytest.mark.parametrize("name", PEERS)
def test_the_forward_of_a_peer_alone_is_within_the_same_bound(name: str, truth: Truth) -> None:
    work = present(name).work(SMALL, weights(SIZES), *batch(SIZES, rows=2))
    alone: Any = work.forward()
    assert is_within(truth.loss, [float(alone.detach() if name == "torch" else alone)])


def test_a_cached_row_of_torch_is_that_of_a_full_forward(truth: Truth) -> None:
    prompt = batch(SIZES)[0][0]
    step = present("torch").decoding(SMALL, weights(SIZES), prompt[:-1])
    assert step is not None
    first, again = step(int(prompt[-1])), step(int(prompt[-1]))
    near, rest = (part.reshape(2, 3, 5)[0, -1] for part in truth.logits.doubles)
    bounds = truth.logits.roundings.bounds().reshape(2, 3, 5)[0, -1]
    assert (np.abs((np.asarray(first) - near) - rest) <= bounds).all()
    assert (np.asarray(first) == np.asarray(again)).all()


def test_a_missing_peer_is_told_by_the_group_that_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEERS, "no_such_framework", "A framework that nobody has")
    assert missing("no_such_framework") == (
        "A framework that nobody has is not installed: it is in the dependency group `bench`"
    )
    assert contenders(SIZES, FORWARD, ["no_such_framework"]).calls == {}


def test_the_products_are_those_of_the_decoder() -> None:
    """Seven projections and two of attention in each block, then the head."""
    B, T, D, F, V, L = 1, 16, 16, 20, 266, 2
    per_block = T * (4 * D * D + 3 * D * F) + 2 * T * T * D
    assert products.multiply_adds(BRIDGE, T) == B * (L * per_block + T * D * V)


@pytest.mark.parametrize("task", [FORWARD, TRAINING, DECODE])
def test_products_run_into_their_own_storage(task: str) -> None:
    assert contenders(BRIDGE, task, ["products"]).calls["products"]() is None
