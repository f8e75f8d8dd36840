"""Depth health: how large activations and gradients are at each residual site of a decoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Decoder,
    DecoderConfig,
    Parameter,
    SequenceLayout,
    SplitMix64,
    TextInputEncoder,
    ops,
)
from logitproof.core.backbone import residual_sites
from logitproof.core.floats import Array
from logitproof.core.fresh import fresh_decoder

__all__ = [
    "HIGH",
    "INPUTS",
    "LOW",
    "SEED",
    "TARGETS",
    "Health",
    "observed",
    "reference_decoder",
    "verdict",
]

# numerics_init.md section 5
LOW, HIGH = 0.01, 100.0  # inclusive
SEED = 4701
INPUTS = (0, 99, 100, 101)
TARGETS = (99, 100, 101, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Root mean squares at the 2 L + 1 residual sites: of values, of d(mean loss)/d(value)."""

    activations: tuple[float, ...]
    gradients: tuple[float, ...]

    @property
    def verdicts(self) -> tuple[str, str]:
        """Activations against the first site, gradients against the last."""
        return (
            verdict(self.activations, normalizer=self.activations[0]),
            verdict(self.gradients, normalizer=self.gradients[-1]),
        )


def verdict(sizes: Sequence[float], *, normalizer: float = 1.0) -> str:
    """`healthy`, or `high`/`low` with the first site whose ratio leaves the bands.

    A normalizer that is zero or not finite fails by itself.
    """
    if not 0.0 < normalizer < math.inf:
        return "no normalizer"
    for site, size in enumerate(sizes):
        ratio = size / normalizer
        if not ratio <= HIGH:
            return f"high at site {site}"
        if ratio < LOW:
            return f"low at site {site}"
    return "healthy"


def reference_decoder(depth: int, seed: int = SEED) -> Decoder:
    """The reference width at another depth, freshly drawn under the depth policy."""
    config = DecoderConfig(
        vocabulary_size=266,
        model_width=4,
        heads=1,
        feed_forward_width=4,
        layers=depth,
        max_positions=4,
    )
    return fresh_decoder(config, SplitMix64(seed))[0]


def observed(
    decoder: Decoder, inputs: Sequence[int] = INPUTS, targets: Sequence[int] = TARGETS
) -> Health:
    """One row's activations and gradients; no parameter of the decoder is touched."""
    encoder = TextInputEncoder(decoder, [list(inputs)])
    output = decoder.backbone.forward(encoder.encode(NO_GRAD, decoder.backbone))
    values = [site.value for site in residual_sites(output)]
    gradients = [gradient_at(decoder, site, value, targets) for site, value in enumerate(values)]
    return Health(
        activations=tuple(map(root_mean_square, values)),
        gradients=tuple(map(root_mean_square, gradients)),
    )


def gradient_at(decoder: Decoder, site: int, value: Array, targets: Sequence[int]) -> Array:
    """d(mean loss)/d(value) where the forward is taken up again from a leaf at `site`."""
    twin = Decoder.from_parameters(
        decoder.config, [Parameter(p.name, p.value) for p in decoder.parameters.values()]
    )
    leaf = Parameter("site", value)
    B, T, _ = value.shape
    layout = SequenceLayout.full(B, T)
    hidden = twin.backbone.resume(site, leaf, layout=layout, context=RECORDING)
    logits = twin.head.forward(RECORDING, hidden)
    RECORDING.apply(ops.indexed_mean_nll, logits, axis=2, targets=list(targets)).backward()
    return leaf.gradient


def root_mean_square(values: Array) -> float:
    """sqrt(mean(x^2)); an observation, not a specified bit."""
    return math.sqrt(math.fsum(x * x for x in values.reshape(-1).tolist()) / values.size)
