"""Configurations are values: equal by the bits of their floats."""

from logitproof.core import DecoderBlockConfig, DecoderConfig


def config(epsilon: float = 1e-6) -> DecoderConfig:
    return DecoderConfig(
        vocabulary_size=5, model_width=4, heads=2, feed_forward_width=3, layers=1,
        max_positions=4, rms_epsilon=epsilon,
    )  # fmt: skip


def test_equal_facts_are_one_configuration() -> None:
    assert len({config(), config()}) == 1


def test_a_negative_zero_epsilon_is_another_configuration() -> None:
    assert config(0.0) != config(-0.0)


def test_a_block_configuration_is_no_model_configuration() -> None:
    block = config().block_config
    assert isinstance(block, DecoderBlockConfig)
    assert block != config()


def test_the_block_configuration_states_every_head_and_no_window() -> None:
    block = config().block_config
    assert (block.kv_heads, block.context_window) == (2, None)
