"""Llama models of Hugging Face: weights map both ways, and what does not hold is told as theirs."""

from typing import Any

import numpy as np
import pytest

from logitproof.properties import laws
from logitproof.properties.adapters import framework_reported, transformers_llama
from logitproof.properties.adapters.framework_table import FAMILIES, explained, judged_cells
from logitproof.properties.adapters.torch_module import chosen_of
from logitproof.properties.adapters.torch_module import named as torch_named
from logitproof.properties.detective import examined
from logitproof.properties.laws.cases import Case
from logitproof.properties.scalar import Config
from logitproof.properties.verify.divergence import divergence

pytest.importorskip("torch", reason="PyTorch is an extra: tox -e transformers")
pytest.importorskip("transformers", reason="transformers is an extra: tox -e transformers")

VALUES = ("truth.logits", "truth.loss", "truth.gradients", "truth.cached-logits")
SHARING = [
    law.id for law in laws.REGISTRY.values()
    if law.id.startswith(("grouped.", "untied.")) and "row-bits" not in law.needs
]  # fmt: skip
HOLDING = ("float32", "float32_sdpa_static_left", "float64_mixed", "float64_mixed_sdpa_left")
CASES = 10
UNEVEN = Config(
    vocabulary_size=7, model_width=16, heads=4, feed_forward_width=5, layers=2, max_positions=6,
    rope_base=500.0, rms_epsilon=1e-3, kv_heads=2, tied=False,
)  # fmt: skip
IDS, TARGETS = [[3, 1, 4, 1, 5], [2, 6, 5, 3, 5]], [[1, 4, 1, 5, 0], [6, 5, 3, 5, 1]]


def weights_of(config: Config) -> dict[str, Any]:
    case = Case(seed=5, scale=2.0, config=config, ids=IDS, targets=TARGETS)
    return case.weights


def loaded(subject: Any) -> Any:
    subject.load(UNEVEN, weights_of(UNEVEN))
    return subject


@pytest.mark.parametrize("law", [*VALUES, *SHARING])
@pytest.mark.parametrize("name", HOLDING)
def test_a_llama_model_has_true_values_up_to_its_float32_steps(name: str, law: str) -> None:
    outcome = laws.REGISTRY[law](transformers_llama.named(name)(), CASES)
    assert (outcome.difference, outcome.cases > 0) == (None, True)


@pytest.mark.parametrize("law", [*VALUES, *SHARING])
def test_with_float64_steps_it_has_true_values_in_float64(law: str) -> None:
    outcome = laws.REGISTRY[law](transformers_llama.named("float64_sdpa_wide")(), CASES)
    assert (outcome.difference, outcome.cases > 0) == (None, True)


@pytest.mark.parametrize("name", ["float32", "float32_sdpa_left", "float64_sdpa_wide"])
def test_the_detective_finds_the_specification_with_grouped_heads_and_a_head_of_its_own(
    name: str,
) -> None:
    answers = examined(transformers_llama.named(name)).answers
    assert [a.question for a in answers if not a.as_specified] == []
    assert {"fewer key/value heads", "a head of its own"} <= {a.question for a in answers}


@pytest.mark.parametrize("name", ["float64_wide_sdpa", "float32"])
def test_key_heads_in_other_places_are_seen_by_the_laws(name: str) -> None:
    class Rolled(transformers_llama.LlamaSubject):
        def load(self, config: Any, weights: Any) -> None:
            d_h = config.head_width
            super().load(
                config,
                {
                    n: np.roll(w, d_h, axis=1) if n.endswith("key.weight") else w
                    for n, w in weights.items()
                },
            )

    chosen = chosen_of(transformers_llama.CHOICES, name)
    outcome = laws.REGISTRY["grouped.logits"](Rolled(**chosen), CASES)
    assert "logits" in str(outcome.difference)


def test_gradients_come_back_in_the_places_of_the_weights() -> None:
    ours, theirs = (loaded(make()) for make in (torch_named("float64"), transformers_llama.named(
        "float64_sdpa_wide")))  # fmt: skip
    (loss, slopes), (other, back) = (s.loss_and_gradients(IDS, TARGETS) for s in (ours, theirs))
    assert np.isclose(loss, other, rtol=1e-12, atol=0.0)
    assert list(slopes) == list(back)
    assert all(np.abs(slopes[n] - back[n]).max() <= 1e-12 for n in slopes)


@pytest.mark.parametrize("padding", ["right", "left"])
def test_taps_stand_where_those_of_the_plain_decoder_do(padding: str) -> None:
    ours = loaded(torch_named("float64")()).taps(IDS)
    theirs = loaded(transformers_llama.named(f"float64_sdpa_wide_{padding}")()).taps(IDS)
    assert len(theirs) > 20
    assert all(np.abs(ours[name] - value).max() <= 1e-11 for name, value in theirs.items())


def test_a_float64_model_is_told_by_its_first_step_in_float32() -> None:
    make = transformers_llama.named("float64")
    case = next(iter(laws.REGISTRY["truth.logits"].cases(1)))
    assert laws.REGISTRY["truth.logits"](make(), 1).holds is False
    assert str(divergence(make, case)).startswith("layer 0, norm before attention")


def test_float64_eager_attention_loses_rows_of_padding_on_the_left() -> None:
    full_row = framework_reported.PROBES["mask-full-row"]
    assert full_row(transformers_llama.named("float64_mixed_left")) is not None
    assert full_row(transformers_llama.named("float64_mixed_sdpa_left")) is None
    assert full_row(transformers_llama.named("float32_left")) is None


@pytest.mark.parametrize("case", [n for n in framework_reported.PROBES if n != "loss-all-ignored"])
@pytest.mark.parametrize("name", ["float32", "float32_sdpa_left"])
def test_a_reported_case_finds_nothing_in_it(name: str, case: str) -> None:
    assert framework_reported.PROBES[case](transformers_llama.named(name)) is None


@pytest.mark.parametrize("name", ["float64_eager_static_left", "float64_wide_eager_dynamic_right"])
def test_every_failure_of_the_table_is_explained(name: str) -> None:
    module, names = FAMILIES["transformers"]
    cells = judged_cells(f"{module}:{name}", transformers_llama.named(name), 3, None)
    told = [explained("transformers", cell) for cell in cells]
    assert name in names
    assert [c.column for c in told if c.word == "FAILS" and c.why is None] == []
    assert any(c.why for c in told)
