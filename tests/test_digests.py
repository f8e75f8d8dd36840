"""The golden runs on the core, however it is called and whatever machine it runs on."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitproof.core import floats
from logitproof.core.floats import Array
from logitproof.golden.figures import Run, figures, from_bits
from logitproof.properties.laws.difference import digest
from logitproof.properties.laws.published import config_of, weights_of
from logitproof.properties.subjects import CoreSubject
from logitproof.properties.verify.environment import (
    GLIBC_FMA,
    c_library_functions,
    numpy_cpu_features,
)

pytestmark = pytest.mark.golden

RUNS = list(figures().runs.values())
BATCHES = [run for run in RUNS if len(run.ids) > 1]
BLAS = ("matmul", "dot", "vdot", "inner", "tensordot", "vecdot", "matvec", "vecmat")
DIGEST_LAWS = {"published.losses", "published.logits", "published.gradients"}


@pytest.fixture(params=RUNS, ids=lambda run: run.id)
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


def loaded(run: Run) -> CoreSubject:
    subject = CoreSubject()
    subject.load(config_of(figures().configs[run.config]), weights_of(run))
    return subject


def results(run: Run, convert: Callable[[Any], Any] = lambda ids: ids) -> tuple[Any, ...]:
    """Loss, digest of the logits, digest of the gradients."""
    subject = loaded(run)
    loss, gradients = subject.loss_and_gradients(convert(run.ids), convert(run.targets))
    return loss, digest([subject.logits(convert(run.ids))]), digest(gradients.values())


def published(run: Run) -> tuple[float, str, str]:
    return from_bits(run.loss), run.logits_digest, run.gradients_digest


def test_the_core_draws_the_parameters_and_leaves_the_state(run: Run) -> None:
    config = config_of(figures().configs[run.config])
    drawn, state = CoreSubject().initial(config, run.seed, depth_scaled=run.depth_scaled)
    assert digest(drawn.values()) == run.parameters_digest
    assert f"{state:016x}" == run.final_state


def test_the_core_gives_the_loss(run: Run) -> None:
    loss, _ = loaded(run).loss_and_gradients(run.ids, run.targets)
    assert loss == from_bits(run.loss)


def test_the_core_gives_the_logits(run: Run) -> None:
    assert digest([loaded(run).logits(run.ids)]) == run.logits_digest


def test_the_core_gives_the_gradients(run: Run) -> None:
    _, gradients = loaded(run).loss_and_gradients(run.ids, run.targets)
    assert digest(gradients.values()) == run.gradients_digest


@pytest.mark.parametrize("run", BATCHES, ids=lambda run: run.id)
def test_fortran_ordered_ids_give_the_same_bits(run: Run) -> None:
    assert results(run, np.asfortranarray) == published(run)


@pytest.mark.parametrize("run", BATCHES, ids=lambda run: run.id)
def test_strided_narrow_ids_give_the_same_bits(run: Run) -> None:
    assert results(run, lambda ids: np.repeat(np.int16(ids), 2, axis=1)[:, ::2]) == published(run)


def test_the_contraction_fallback_gives_the_same_bits(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floats, "contraction_is_ordered", lambda: False)
    monkeypatch.setattr(floats, "reduction_is_ordered", lambda: False)
    assert results(run) == published(run)


def refuse_blas(*_: object, **__: object) -> None:
    raise AssertionError("BLAS was called")


def test_no_golden_run_enters_blas(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [name for name in BLAS if hasattr(np, name)]
    list(map(monkeypatch.setattr, [np] * len(entries), entries, [refuse_blas] * len(entries)))
    assert results(run) == published(run)


@pytest.mark.parametrize(("alone", "batch"), [("T1", "T2"), ("B1", "B3")])
def test_a_row_alone_has_the_bits_of_the_row_in_a_batch(alone: str, batch: str) -> None:
    together = figures().runs[batch]
    logits = loaded(together).logits(together.ids)
    assert digest([logits[:1]]) == figures().runs[alone].logits_digest


def per_element(function: Callable[..., float], *first: float) -> Callable[[Array], Array]:
    """A function of the C library, element by element."""
    return lambda x: np.array([function(*first, v) for v in x.reshape(-1)]).reshape(x.shape)


def test_c_library_functions_give_the_reference_digests(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = c_library_functions()
    assert answer == GLIBC_FMA or pytest.skip(f"the functions here are those of {answer}")
    names = ("exp", "log", "log1p", "sin", "cos")
    wrong = [per_element(getattr(math, name)) for name in names]
    list(map(monkeypatch.setattr, [floats] * len(names), names, wrong))
    monkeypatch.setattr(floats, "pow", lambda base, x: per_element(math.pow, base)(x))
    reference = run.c_library_logits_digest, run.c_library_gradients_digest
    assert results(run) == (from_bits(run.loss), *reference)


def verified_without(features: list[str], facts: Path) -> dict[str, Any]:
    """What `verify` says of the published figures in a process without these CPU features."""
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(features)}
    call = [sys.executable, "-m", "logitproof", "verify", "--law", "published.*", "--json"]
    subprocess.run([*call, str(facts)], env=environment, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(facts.read_text(encoding="utf-8"))
    return found


def test_numpy_without_its_optional_cpu_features_gives_the_same_bits(tmp_path: Path) -> None:
    features = numpy_cpu_features()
    assert features or pytest.skip("numpy has no optional CPU feature on here")
    found = verified_without(features, tmp_path / "facts.json")
    assert found["environment"]["cpu_features"] == "the baseline alone"
    assert {law["id"] for law in found["laws"] if law["verdict"] == "holds"} >= DIGEST_LAWS
