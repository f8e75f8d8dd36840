"""A plain PyTorch decoder: every law about values holds of it, and finds what is planted in it."""

import importlib
import subprocess
import sys
from typing import Any

import pytest

from logitproof.properties import laws
from logitproof.properties.adapters import framework_reported, torch_module
from logitproof.properties.detected import FOLLOWS, NONE, detected
from logitproof.properties.detective import examined
from logitproof.properties.narrow_ops import NarrowOps
from logitproof.properties.scalar.conventions import CHOICES
from logitproof.properties.verify.divergence import divergence
from logitproof.properties.verify.shrinking import finding

pytest.importorskip("torch", reason="PyTorch is an extra: tox -e torch")

torch_faults: Any = importlib.import_module("logitproof.properties.adapters.torch_faults")
torch_operations: Any = importlib.import_module("logitproof.properties.adapters.torch_operations")
torch_model: Any = importlib.import_module("logitproof.properties.adapters.torch_model")
VALUES = ("truth.logits", "truth.loss", "truth.gradients", "truth.cached-logits")
SHARING = [
    law.id for law in laws.REGISTRY.values()
    if law.id.startswith(("grouped.", "untied.")) and "row-bits" not in law.needs
]  # fmt: skip
NAMES = ("float64", "float64_sdpa", "float64_sdpa_static", "float32", "float32_sdpa_static")
NARROW = [law.id for law in laws.REGISTRY.values() if law.id.startswith(("float16.", "bfloat16."))]
CASES = 25  # those of the profile quick
STAGED = [name for name, fault in torch_faults.FAULTS.items() if fault.stage is not None]
# What float64 tells from float32 alone, and positions or constants that float32 nearly forgives.
DOUBLE_ALONE = {"norm-in-single", "softmax-in-single", "loss-in-single", "epsilon-fixed"}

# Planted faults that are conventions of other decoders, as the detective names them.
CONVENTIONS = {
    "embeddings-times-root": "embedding: root",
    "epsilon-outside-root": "epsilon: outside",
    "norm-subtracts-mean": "centre: mean",
    "gain-plus-one": "gain: one-plus",
    "pairs-by-halves": "pairs: halves",
    "turned-right": "turn: right",
    "base-hard-coded": "base: 10000",
    "frequency-by-model-width": "exponent: 2i/D",
    "scale-missing": "scale: 1",
    "residual-after-norm": "residual: normed",
    "gelu": "activation: gelu",
    "chunk-mask-top-left": "chunk_mask: top-left",
    "mean-of-row-means": "mean: rows",
}


def first_failing(law: laws.Law, fault: Any, dtype: str = "float64") -> Any:
    """The first case that the law does not hold in, or None."""
    cases = law.cases(CASES)
    return next((c for c in cases if finding(law, fault.subject(dtype), c)[1] is not None), None)


@pytest.mark.parametrize("law", [*VALUES, *SHARING])
@pytest.mark.parametrize("name", NAMES)
def test_a_plain_pytorch_decoder_has_true_values(name: str, law: str) -> None:
    outcome = laws.REGISTRY[law](torch_module.named(name)(), CASES)
    assert (outcome.difference, outcome.cases > 0) == (None, True)


def tiled(self: Any, x: Any) -> Any:
    """Key/value heads are shared in turn."""
    return x.repeat(1, self.config.heads // x.shape[1], 1, 1)


def first_alone(self: Any, x: Any) -> Any:
    """The first head of a group alone hands a gradient back to what it shares."""
    rest = x.detach().repeat_interleave(self.config.heads // x.shape[1], dim=1)
    rest[:, :: self.config.heads // x.shape[1]] = x
    return rest


def by_table(self: Any, hidden: Any) -> Any:
    """The embedding table gives the logits."""
    return hidden @ self.weights["token_embedding.weight"].T


def wrong(dtype: str, **methods: Any) -> Any:
    """A decoder whose model has other methods."""
    return torch_module.TorchSubject(dtype, model=type("Wrong", (torch_model.Model,), methods))


@pytest.mark.fault
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("methods", "law"),
    [
        ({"shared": tiled}, "grouped.logits"),
        ({"shared": tiled}, "grouped.gradients"),
        ({"shared": tiled}, "grouped.cached-logits"),
        ({"shared": first_alone}, "grouped.gradients"),
        ({"head": by_table}, "untied.loss"),
        ({"head": by_table}, "untied.gradients"),
        ({"head": by_table}, "untied.cached-logits"),
    ],
)
def test_a_fault_of_shared_heads_or_of_an_own_head_is_found(
    methods: Any, law: str, dtype: str
) -> None:
    outcome = laws.REGISTRY[law](wrong(dtype, **methods), CASES)
    assert not outcome.holds
    assert not str(outcome.difference).startswith("raised")


def test_a_fault_of_shared_heads_is_told_by_its_stage() -> None:
    law = laws.REGISTRY["grouped.logits"]
    case = next(c for c in law.cases(CASES) if c.config.kv_heads == 2)
    stage = divergence(lambda: wrong("float64", shared=tiled), case)
    assert str(stage).startswith("layer 0, attention scores")


@pytest.mark.fault
@pytest.mark.parametrize("name", torch_faults.FAULTS)
def test_a_fault_inside_the_model_is_found_and_told_by_its_stage(name: str) -> None:
    fault = torch_faults.FAULTS[name]
    case = first_failing(laws.REGISTRY[fault.law], fault)
    assert case is not None
    stage = divergence(fault.subject, case)
    assert (stage is None) == (fault.stage is None)
    assert fault.stage is None or fault.stage in str(stage)


@pytest.mark.fault
@pytest.mark.parametrize("name", [n for n in torch_faults.FAULTS if n not in DOUBLE_ALONE])
def test_a_fault_is_found_in_float32_too(name: str) -> None:
    fault = torch_faults.FAULTS[name]
    assert first_failing(laws.REGISTRY[fault.law], fault, "float32") is not None


def test_enough_faults_are_planted_and_staged() -> None:
    assert (len(torch_faults.FAULTS) >= 25, len(STAGED) >= 20) == (True, True)


@pytest.mark.parametrize("name", ["float64", "float32_sdpa_static"])
def test_the_detective_finds_the_specification_in_it(name: str) -> None:
    examination = examined(torch_module.named(name))
    assert [a.question for a in examination.answers if not a.as_specified] == []


@pytest.mark.fault
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "change"), CONVENTIONS.items())
def test_a_fault_that_is_a_convention_is_named(name: str, change: str, dtype: str) -> None:
    found = detected(examined(lambda: torch_faults.FAULTS[name].subject(dtype)))
    specified = next(iter(CHOICES[change.partition(":")[0]]))
    assert found.word == FOLLOWS
    assert found.sentence.startswith(f"It follows {change}, not {specified} (")
    assert found.sentence.count(", not ") == 1


@pytest.mark.fault
@pytest.mark.parametrize("name", ["keys-for-values", "logits-capped", "softmax-over-queries"])
def test_a_fault_that_is_none_is_explained_by_none(name: str) -> None:
    assert detected(examined(torch_faults.FAULTS[name].subject)).word == NONE


@pytest.mark.parametrize("case", framework_reported.PROBES)
@pytest.mark.parametrize("name", ["float64_sdpa", "float32"])
def test_a_reported_case_finds_nothing_in_it(name: str, case: str) -> None:
    assert framework_reported.PROBES[case](torch_module.named(name)) is None


@pytest.mark.parametrize("law", NARROW)
def test_its_single_operations_in_narrow_formats_are_within_their_bounds(law: str) -> None:
    outcome = laws.REGISTRY[law](torch_operations.TorchNarrow(), CASES)
    assert (outcome.difference, outcome.cases) == (None, CASES)


@pytest.mark.fault
@pytest.mark.parametrize("format", ["float16", "bfloat16"])
def test_sums_kept_in_the_format_are_found_where_pytorch_declares_float32(format: str) -> None:
    subject = torch_operations.TorchNarrow()
    subject.narrow = lambda name: NarrowOps(name, "format")
    assert not laws.REGISTRY[f"{format}.long-sums"](subject, CASES).holds


def test_pytorch_is_imported_when_a_decoder_is_made() -> None:
    source = (
        "import sys\nfrom logitproof.properties.adapters import torch_module, transformers_llama"
    )
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{source}\nassert not {{'torch', 'transformers'}} & {{*sys.modules}}",
        ],
        check=False,
    )
    assert ended.returncode == 0


@pytest.mark.parametrize("name", ["float16", "float64_float32", "float64_flash", ""])
def test_a_name_with_an_unknown_or_second_choice_is_none(name: str) -> None:
    with pytest.raises(AttributeError):
        torch_module.named(name)


def test_a_fault_in_two_heads_of_two_frequencies_is_drawn() -> None:
    sizes = [c.config for c in laws.REGISTRY["truth.logits"].cases(CASES)]
    assert any(s.heads > 1 and s.head_width > 2 for s in sizes)
