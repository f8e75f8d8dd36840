"""A plain JAX decoder: laws about values hold of it, save where its compiler flushes subnormals."""

import numpy as np
import pytest

from logitproof.properties import laws
from logitproof.properties.adapters import jax_decoder
from logitproof.properties.laws.regimes import Regime, Sizes, case_of
from logitproof.properties.verify.shrinking import finding

pytest.importorskip("jax", reason="JAX is an extra: tox -e jax")

VALUES = ("truth.logits", "truth.loss", "truth.gradients", "truth.cached-logits")
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
