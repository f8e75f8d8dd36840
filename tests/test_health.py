"""Depth health: the observation of numerics_init.md section 5."""

import math

import pytest

from logitproof.core import NO_GRAD, RECORDING, Code, IndexRefusal, SequenceLayout, constant
from logitproof.core.backbone import residual_sites
from logitproof.properties import health
from logitproof.properties.compare import same_bits
from logitproof.properties.situations import (
    TINY,
    batch_of,
    composed,
    drawn_vectors,
    leaf_run,
    learned_state,
    shaken_decoder,
    warm_decoder,
    with_layers,
)


@pytest.mark.parametrize(
    ("depth", "scalars", "tensors"), [(1, 1188, 11), (2, 1308, 20), (8, 2028, 74)]
)
def test_the_observed_decoders_have_the_published_sizes(
    depth: int, scalars: int, tensors: int
) -> None:
    parameters = health.reference_decoder(depth).parameters.values()
    assert (sum(p.value.size for p in parameters), len(parameters)) == (scalars, tensors)


@pytest.mark.parametrize("depth", [1, 2, 8])
def test_fresh_decoders_are_healthy_at_every_site(depth: int) -> None:
    seen = health.observed(health.reference_decoder(depth))
    assert len(seen.activations) == len(seen.gradients) == 2 * depth + 1
    assert seen.verdicts == ("healthy", "healthy")


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.0, 1.2, 8.0, 101.0], "high at site 3"),
        ([0.001, 0.5, 0.8, 1.0], "low at site 0"),
        ([0.01, 1.0, 100.0], "healthy"),
        ([1.0, math.nan], "high at site 1"),
        ([1.0, math.inf], "high at site 1"),
    ],
)
def test_the_classifier_names_the_first_bad_site(ratios: list[float], expected: str) -> None:
    assert health.verdict(ratios) == expected


@pytest.mark.parametrize("normalizer", [0.0, math.inf, math.nan])
def test_a_normalizer_must_be_a_size(normalizer: float) -> None:
    assert health.verdict([1.0], normalizer=normalizer) == "no normalizer"


def test_an_observation_changes_nothing() -> None:
    decoder = warm_decoder(TINY)
    before = learned_state(decoder)
    health.observed(decoder, (0, 1, 2), (1, 2, 3))
    assert learned_state(decoder) == before


def test_the_gradient_at_the_first_site_is_the_input_gradient() -> None:
    decoder = shaken_decoder(TINY)
    run, leaf = leaf_run(decoder, batch_of(TINY, [[0, 1, 2, 3]], packed=False))
    run.loss.backward(1 / 3)
    assert same_bits(health.gradient_at(decoder, 0, leaf.value, (1, 2, 3)), leaf.gradient)


@pytest.mark.parametrize("depth", range(4))
def test_a_forward_resumed_at_any_site_ends_in_the_same_bits(depth: int) -> None:
    decoder = shaken_decoder(with_layers(TINY, depth))
    batch = batch_of(TINY, [[0, 1, 2, 3], [0, 4]], packed=True)
    output = composed(decoder, batch, context=NO_GRAD).output
    resumed = [
        decoder.backbone.resume(s, value, layout=batch.layout, context=NO_GRAD)
        for s, value in enumerate(residual_sites(output))
    ]
    assert len(resumed) == 2 * depth + 1
    assert all(same_bits(hidden.value, output.hidden.value) for hidden in resumed)


@pytest.mark.parametrize("site", [5, 6, -1])
def test_there_are_no_other_sites(site: int) -> None:
    backbone = shaken_decoder(TINY).backbone
    value, layout = constant(drawn_vectors(1, 1, 2, 4)), SequenceLayout.full(1, 2)
    with pytest.raises(IndexRefusal) as caught:
        backbone.resume(site, value, layout=layout, context=RECORDING)
    assert caught.value.code == Code.SITE_OUT_OF_RANGE
    assert (caught.value.facts()["site"], caught.value.facts()["site_count"]) == (site, 5)
