"""A plain JAX decoder: laws about values hold of it, save where its compiler flushes subnormals."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from logitproof.properties import laws
from logitproof.properties.adapters import jax_decoder
from logitproof.properties.adapters.jax_decoder import JaxSubject
from logitproof.properties.detected import FOLLOWS, detected
from logitproof.properties.detective import examined
from logitproof.properties.laws.regimes import Regime, Sizes, case_of
from logitproof.properties.subjects import ScalarSubject
from logitproof.properties.verify.divergence import divergence
from logitproof.properties.verify.shrinking import finding

pytest.importorskip("jax", reason="JAX is an extra: tox -e jax")

VALUES = ("truth.logits", "truth.loss", "truth.gradients", "truth.cached-logits")
CASES = 25  # those of the profile quick
SUBNORMAL = case_of(Sizes(V=3), 7, Regime(values="subnormal"))


@pytest.mark.parametrize("law", VALUES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_plain_jax_decoder_has_true_values(dtype: str, law: str) -> None:
    outcome = laws.REGISTRY[law](jax_decoder.named(dtype)(), 6)
    assert (outcome.difference, outcome.cases > 0) == (None, True)


def test_flushed_subnormals_are_found() -> None:
    subject = jax_decoder.named("float64")()
    found, failed = finding(laws.REGISTRY["truth.logits"], subject, SUBNORMAL)
    assert failed is not None
    assert not np.any(subject.logits(SUBNORMAL.ids))
    assert found.worst_ratio > 1.0


def _by_halves(self: JaxSubject, x: Any, positions: Any) -> Any:
    d_h = x.shape[-1]
    order = np.arange(d_h).reshape(2, -1).T.ravel()  # 0, d_h/2, 1, d_h/2 + 1, ...
    return JaxSubject.turned(self, x[..., order], positions)[..., np.argsort(order)]


def _interleaved(self: JaxSubject, projected: Any) -> Any:
    B, T, _ = projected.shape
    return projected.reshape(B, T, self.config.head_width, -1).transpose(0, 3, 1, 2)


def _shifted(self: JaxSubject, scores: Any, visible: Any) -> Any:
    powers = self.numpy.where(visible, self.numpy.exp(scores), 0.0)
    return powers / (1.0 + powers.sum(axis=-1, keepdims=True))


# Name -> what is replaced in the decoder, and the stage at which it must be told.
FAULTS: Mapping[str, tuple[str, Callable[..., Any], str]] = {
    "embeddings-times-root": (
        "embeddings",
        lambda self, weights, tokens: (
            JaxSubject.embeddings(self, weights, tokens) * self.config.model_width**0.5
        ),
        "embeddings",
    ),
    "gain-plus-one": (
        "norm",
        lambda self, x, gain: JaxSubject.norm(self, x, gain + 1.0),
        "norm before attention",
    ),
    "heads-interleaved": ("heads", _interleaved, "attention query, as projected"),
    "turned-right": (
        "turned",
        lambda self, x, positions: JaxSubject.turned(self, x, -positions),
        "attention query, rotated",
    ),
    "pairs-by-halves": ("turned", _by_halves, "attention query, rotated"),
    "scale-missing": ("scale", lambda _: 1.0, "attention scores"),
    "softmax-off-by-one": ("softmax", _shifted, "attention probabilities"),
    "keys-for-values": (
        "mixed",
        lambda self, query, key, _, *rest: JaxSubject.mixed(self, query, key, key, *rest),
        "attention mixture",
    ),
    "residual-after-norm": (
        "added",
        lambda _self, _x, normed, branch: normed + branch,
        "sum after attention",
    ),
    "gelu": (
        "gated",
        lambda self, gate, up: self.jax.nn.gelu(gate, approximate=False) * up,
        "feed-forward product",
    ),
    "logits-capped": (
        "head",
        lambda self, weights, hidden: (
            30.0 * self.numpy.tanh(JaxSubject.head(self, weights, hidden) / 30.0)
        ),
        "logits",
    ),
}
CONVENTIONS = MappingProxyType(
    {
        "gain-plus-one": "gain: one-plus",
        "pairs-by-halves": "pairs: halves",
        "scale-missing": "scale: 1",
        "softmax-off-by-one": "softmax: one-more",
        "gelu": "activation: gelu",
    }
)


def faulty(name: str, dtype: str = "float64") -> Callable[[], Any]:
    """What makes the decoder with one method replaced."""
    method, replacement, _ = FAULTS[name]
    kind = type("Faulty", (JaxSubject,), {method: replacement})
    return lambda: kind(dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_taps_are_those_of_the_scalar_decoder(dtype: str) -> None:
    case = next(c for c in laws.REGISTRY["truth.logits"].cases(CASES) if c.layout is not None)
    subject, scalar = jax_decoder.named(dtype)(), ScalarSubject()
    subject.load(case.config, case.weights)
    scalar.load(case.config, case.weights)
    expected, actual = scalar.taps(case.ids, case.layout), subject.taps(case.ids, case.layout)
    shapes = {name: value.shape for name, value in expected.items()}
    assert {name: np.shape(value) for name, value in actual.items()} == shapes
    assert {str(np.asarray(value).dtype) for value in actual.values()} == {dtype}
    assert divergence(jax_decoder.named(dtype), case) is None


def test_who_wants_no_taps_keeps_none() -> None:
    subject = jax_decoder.named("float64")()
    subject.load(SUBNORMAL.config, SUBNORMAL.weights)
    assert "logits" in subject.taps(SUBNORMAL.ids)
    subject.logits(SUBNORMAL.ids)
    assert subject.noted is None


@pytest.mark.fault
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_inside_is_found_and_told_by_its_stage(name: str) -> None:
    law, make = laws.REGISTRY["truth.logits"], faulty(name)
    failing = (c for c in law.cases(CASES) if finding(law, make(), c)[1] is not None)
    told = (divergence(make, case) for case in failing)
    assert FAULTS[name][2] in str(next(place for place in told if place is not None))


@pytest.mark.fault
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "change"), CONVENTIONS.items())
def test_a_fault_that_is_a_convention_is_named(name: str, change: str, dtype: str) -> None:
    found = detected(examined(faulty(name, dtype)))
    assert found.word == FOLLOWS
    assert found.sentence.startswith(f"It follows {change}, not ")
