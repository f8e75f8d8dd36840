"""What a pass and a token cost in counted work: exact figures, the same on every machine."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from logitproof.core import Decoder, exact, floats
from logitproof.properties import laws
from logitproof.properties.bench.contenders import decoder
from logitproof.properties.bench.counted import by_layers, nodes, of_a_pass, of_a_token
from logitproof.properties.bench.sizes import config, weights
from logitproof.properties.counting import OPERATIONS, ORACLES, SETTLED, SUMS, counting
from logitproof.properties.laws.regimes import TruthCase
from logitproof.properties.subjects import CoreSubject

# What a call has beside its layers, and for each of them. A change that adds work to the path
# of every token or pass shows here first; lower figures are a gain to be written down.
NODES = (4, 1)
PASS = {OPERATIONS: (4, 1), SUMS: (24, 73)}
TOKEN = {SUMS: (10, 42)}  # a token makes no node
# Scalar decoders made for one case of a law, the truth's among them; other laws make none.
ORACLE_RUNS = {
    "decoder.scalar-bits": 1,
    "decoder.raw-sum": 1,
    "truth.logits": 1,
    "truth.loss": 1,
    "truth.gradients": 1,
    "truth.cached-logits": 1,
    "sizes.logits": 1,
    "sizes.loss": 1,
    "sizes.gradients": 1,
    "sizes.cached-logits": 1,
    "sizes.scalar-bits": 1,
    "ranges.logits": 1,
    "ranges.gradients": 1,
    "session.cached-rows": 1,
}


def with_layers(layers: int) -> Decoder:
    sizes = config(266, 16, layers, 2, 20, 16)
    return decoder(sizes, "ordered", weights(sizes))


@pytest.fixture(autouse=True)
def what_a_process_does_once() -> None:
    floats.contraction_is_ordered()


def test_a_loss_has_so_many_nodes() -> None:
    assert by_layers(lambda layers: nodes(with_layers(layers))) == NODES


@pytest.mark.parametrize("kind", PASS)
def test_a_pass_does_so_much(kind: str) -> None:
    assert by_layers(lambda layers: of_a_pass(with_layers(layers))[kind]) == PASS[kind]


@pytest.mark.parametrize("kind", TOKEN)
def test_a_token_does_so_much(kind: str) -> None:
    assert by_layers(lambda layers: of_a_token(with_layers(layers), 8)[kind]) == TOKEN[kind]


@pytest.mark.parametrize("prefix", [3, 8, 15])
def test_a_token_does_as_many_calls_behind_any_longer_prefix(prefix: int) -> None:
    two = with_layers(2)
    assert of_a_token(two, prefix) == of_a_token(two, 2)


def test_few_roundings_of_a_pass_or_a_token_take_many_digits() -> None:
    """One of the 5,000 exponentials of the pass lies so near to the middle of two doubles."""
    two = with_layers(2)
    assert (of_a_pass(two)[SETTLED], of_a_token(two, 8)[SETTLED]) == (1, 0)


def test_a_rounding_that_takes_many_digits_is_counted() -> None:
    with counting() as counted:
        exact.exp(0.5)
    assert counted[SETTLED] == 1


def test_a_case_of_a_law_asks_an_oracle_so_often() -> None:
    assert oracle_runs() == ORACLE_RUNS


def oracle_runs() -> dict[str, int]:
    runs = Counter[str]()
    judging = {i: law for i, law in laws.REGISTRY.items() if not law.missing(CoreSubject())}
    for id_, law in judging.items():
        case: Any = next(iter(law.cases(1)))
        case = replace(case) if isinstance(case, TruthCase) else case  # without what it knows
        with counting() as counted:
            law.check(CoreSubject(), case)
        runs[id_] = counted[ORACLES]
    return {id_: count for id_, count in runs.items() if count}
