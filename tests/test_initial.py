"""The generator, drawn matrices, the depth policy."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from logitproof.core import (
    Attention,
    Code,
    Decoder,
    DecoderConfig,
    Embedding,
    Parameter,
    Refusal,
    SplitMix64,
)
from logitproof.core.fresh import depth_scaled, fresh_decoder, parameter_count
from logitproof.core.initial import BASE_INITIALIZER, DEPTH_POLICY, depth_factor, xavier
from logitproof.core.rope import RotaryTable

SEED_0 = ["e220a8397b1dcdaf", "6e789e6aa1b965f4", "06c45d188009454f", "f88bb8a8724c81ec"]
SEED_17 = ["3f744760bbbfc4e2", "bfd10508068942ad", "bfdae98b1d44f6ae", "bfe5a45c1710f8d8"]
SEED_18 = [
    "bfebb7d30bfdaa84", "3fdb6a3512112be0", "bfc1c8dd7c534f98", "3fda099b497d8c20",
    "bfe840486f28f13e", "3feac2596a898500", "3feeb6012c17c110", "bfe78acf90675a46",
]  # fmt: skip


def words(array: NDArray[np.float64]) -> list[str]:
    return [x.tobytes()[::-1].hex() for x in array.reshape(-1)]


def config(layers: int) -> DecoderConfig:
    return DecoderConfig(
        vocabulary_size=5,
        model_width=4,
        heads=2,
        feed_forward_width=4,
        layers=layers,
        max_positions=4,
    )


def test_seed_zero_gives_the_published_words() -> None:
    rng = SplitMix64(0)
    assert [f"{rng.next_u64():016x}" for _ in SEED_0] == SEED_0


def test_many_draws_equal_single_draws() -> None:
    one, many = SplitMix64(2**64 - 1), SplitMix64(2**64 - 1)
    assert [one.uniform() for _ in range(50)] == many.uniforms(50).tolist()
    assert one.state == many.state


def test_a_resumed_generator_continues_exactly() -> None:
    rng = SplitMix64(5)
    rng.next_u64()
    assert SplitMix64(rng.state).next_u64() == rng.next_u64()


def test_seed_17_draws_the_published_matrix() -> None:
    assert words(xavier("w", 2, 2, SplitMix64(17)).value) == SEED_17


def test_seed_18_draws_the_published_table() -> None:
    assert words(Embedding.new("e", 4, 2, SplitMix64(18)).table.value) == SEED_18


def test_a_refused_constructor_draws_nothing() -> None:
    rng = SplitMix64(4)
    with pytest.raises(Refusal):
        Embedding.new("e", 4, 0, rng)
    assert rng.state == 4


def test_every_matrix_scalar_is_one_draw() -> None:
    rng, still = SplitMix64(9), SplitMix64(9)
    decoder = Decoder(config(2), rng)
    drawn = sum(p.value.size for p in decoder.parameters.values() if len(p.shape) == 2)
    still.uniforms(drawn)
    assert rng.state == still.state


@pytest.mark.parametrize(
    ("layers", "alpha"), [(1, 1.0), (2, 0.7071067811865475), (8, 0.35355339059327373)]
)
def test_depth_factor_has_the_published_digits(layers: int, alpha: float) -> None:
    assert depth_factor(layers) == alpha


@pytest.mark.parametrize(("layers", "scaled"), [(2, 0.1414213562373095), (8, 0.07071067811865475)])
def test_depth_factor_scales_a_coefficient_as_published(layers: int, scaled: float) -> None:
    name = "blocks.0.ffn.down.weight"
    assert depth_scaled(name, np.array([0.2]), layers=layers).tolist() == [scaled]


@pytest.mark.parametrize("role", ["attention.query.weight", "ffn.gate.weight", "ffn_norm.gain"])
def test_depth_factor_leaves_other_roles_alone(role: str) -> None:
    probe = np.array([0.2, -0.4, 0.0, 0.1])
    assert depth_scaled(f"blocks.0.{role}", probe, layers=8) is probe


def test_one_block_bypasses_the_factor() -> None:
    base = Decoder(config(1), SplitMix64(3)).parameters
    fresh, _ = fresh_decoder(config(1), SplitMix64(3))
    assert [p.value.tobytes() for p in base.values()] == [
        p.value.tobytes() for p in fresh.parameters.values()
    ]


def test_a_fresh_decoder_says_how_it_was_drawn() -> None:
    rng = SplitMix64(3)
    decoder, record = fresh_decoder(config(2), rng)
    assert (record.policy, record.base_initializer) == (DEPTH_POLICY, BASE_INITIALIZER)
    assert (record.initial_state, record.final_state, record.depth) == (3, rng.state, 2)
    assert {p.revision for p in decoder.parameters.values()} == {0}


def test_loaded_parameters_are_never_scaled() -> None:
    drawn, _ = fresh_decoder(config(2), SplitMix64(3))
    copies = [Parameter(p.name, p.value) for p in drawn.parameters.values()]
    loaded = Decoder.from_parameters(config(2), copies)
    assert loaded.parameters["blocks.1.ffn.down.weight"].value.tobytes() == (
        drawn.parameters["blocks.1.ffn.down.weight"].value.tobytes()
    )


@pytest.mark.parametrize("budget", ["max_parameters", "max_positions"])
def test_a_budget_one_below_the_need_draws_nothing(budget: str) -> None:
    need = {"max_parameters": parameter_count(config(2)), "max_positions": 4}[budget]
    rng = SplitMix64(3)
    less: Any = {budget: need - 1}
    with pytest.raises(Refusal) as refused:
        fresh_decoder(config(2), rng, **less)
    assert (refused.value.required, refused.value.limit, rng.state) == (need, need - 1, 3)
    enough: Any = {budget: need}
    fresh_decoder(config(2), rng, **enough)


def test_parameter_count_is_that_of_the_arrays() -> None:
    decoder = Decoder(config(3), SplitMix64(1))
    assert parameter_count(config(3)) == sum(p.value.size for p in decoder.parameters.values())


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, True, "1", None])
def test_a_seed_outside_64_bits_is_refused(seed: object) -> None:
    with pytest.raises(Refusal):
        SplitMix64(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [-1, 2**64, 1.0])
def test_a_state_outside_64_bits_is_refused(state: object) -> None:
    rng = SplitMix64(5)
    with pytest.raises(Refusal):
        setattr(rng, "state", state)  # noqa: B010 - what mypy would not let pass
    assert rng.state == 5


def test_attention_with_a_foreign_rotation_draws_nothing() -> None:
    rng = SplitMix64(5)
    with pytest.raises(Refusal) as caught:
        Attention.new("a", 4, 2, 3, 1e4, rng, rotation=RotaryTable(4, 3, 1e4))
    assert caught.value.code == Code.ROTATION_WIDTH_MISMATCH
    assert rng.state == 5
