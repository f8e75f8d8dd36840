"""Every golden case, by the core."""

import pytest

from logitproof.core.codes import Code
from logitproof.golden import check, load, run
from logitproof.golden.load import Case
from logitproof.properties.faults import REGISTRY
from logitproof.properties.faults.fault import Fault
from logitproof.properties.killing import CORE, subject_of
from logitproof.properties.laws import REGISTRY as LAWS

pytestmark = pytest.mark.golden

CASES = load.read()
# Observed outside core, and reached by no call yet.
OF_HEALTH = {Code.ZERO_NORMALIZER}
# No stored case has a product of so many terms, nor one that numpy makes as on another machine;
# published digests and laws see them.
UNSTORED = {
    "contraction-halved-beyond-64": ("published.gradients", "sizes.scalar-bits"),
    "product-tried-on-tame-numbers": ("operations.elsewhere",),
}
ORDERS = [f for f in REGISTRY.values() if f.kind == "order" and f.id not in UNSTORED]
NUMERIC = [
    case
    for case in CASES
    if case.kind in (*check.SINGLE, "decoder", "session") and case.refusal is None
]
# What the report must name first, whichever case shows it.
FIRST = {
    "contraction-descending": "matmul: the value",
    "contraction-by-blas": "matmul: the value",
    "flat-weight-gradient": "matmul: the contribution to operand 1",
    "query-key-value-order": "blocks.2.attention_norm.gain: its gradient",
    "norm-square-doubled": "blocks.2.ffn.down.weight: its gradient",
    "norm-squares-first": "blocks.2.ffn.down.weight: its gradient",
    "residual-adjoint-last": "blocks.2.attention.output.weight: its gradient",
    "inverse-root-by-sqrt": "exp: the value",
    "mean-by-reciprocal": "mean: the value",
    "mean-slope-by-reciprocal": "mean: the contribution to operand 0",
    "gain-before-scaling": "rms-norm: the ",
    "softmax-sum-with-maximum": "causal_softmax: the value",
    "softmax-maximum-of-batch": "causal_softmax: the value",
    "softmax-slope-expanded": "causal_softmax: the contribution to operand 0",
    "log-of-one-plus-tail": "log_softmax: the value",
    "maximum-plus-log-minus-target": "indexed_mean_nll: the value",
    "mean-loss-by-reciprocal": "indexed_mean_nll: the value",
    "logit-gradient-divided": "indexed_mean_nll: the contribution to operand 0",
    "probability-by-reciprocal": "log_softmax: the contribution to operand 0",
    "score-divided-by-root": "attention: the part scores",
    "one-branch-sigmoid": "silu: the value",
    "silu-slope-expanded": "silu: the contribution to operand 0",
    "frequency-by-reciprocal": "frequencies of rotary-table",
    "frequency-by-exp-log": "frequencies of rotary-table",
    "gather-into-head-gradient": "token_embedding.weight: its gradient",
    "sum-pairwise": "sum: the value",
    "xavier-other-association": "matrix of generator",
    "exp-by-numpy": "exp: the elementary function",
    "cached-softmax-with-maximum": "logits of session",
    "scatter-from-the-end": "lookup: its gradient",
    "cached-contraction-by-blas": "logits of session",
    "sum-follows-memory": "blocks.0.ffn.down.weight: its gradient",
    "losses-summed-from-the-end": "indexed_mean_nll: the value",
    "exp-hard-cases-by-c-library": "exp: the elementary function",
    "half-way-powers-rounded-up": "pow: the elementary function",
    "fused-norm-squares-first": "blocks.2.ffn.down.weight: its gradient",
    "fused-square-doubled": "blocks.2.ffn.down.weight: its gradient",
    "fused-gain-before-root": "logits of decoder",
    "fused-query-key-value-order": "blocks.2.attention_norm.gain: its gradient",
    "fused-gate-and-up-in-one-sum": "blocks.2.ffn_norm.gain: its gradient",
    "fused-flat-weight-gradient": "blocks.1.ffn.down.weight: its gradient",
    "fused-residual-last": "blocks.1.ffn.down.weight: its gradient",
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_core_gives_what_a_case_expects(case: Case) -> None:
    assert [str(difference) for difference in check.against_core(case)] == []


def test_every_code_is_expected_by_some_case() -> None:
    expected = {case.refusal["code"] for case in CASES if case.refusal}
    reasons = [reason["code"] for case in CASES for reason in case.expect.get("reasons", [])]
    inner = [
        reason["code"]
        for case in CASES
        if case.refusal
        for reason in case.refusal["fields"].get("reasons", [])
    ]
    assert {Code(code) for code in {*expected, *reasons, *inner}} == set(Code) - OF_HEALTH


def test_every_flag_is_carried_by_a_case() -> None:
    assert {flag for case in CASES for flag in case.flags} == set(load.flags())


def test_the_set_is_small() -> None:
    data = [path for path in load.folder().parent.rglob("*") if path.suffix in (".json", ".md")]
    assert sum(path.stat().st_size for path in data) < 1.5 * 2**20


@pytest.mark.parametrize(("fault", "laws"), UNSTORED.items())
def test_an_order_that_no_case_can_show_is_seen_by_laws(fault: str, laws: tuple[str, ...]) -> None:
    with REGISTRY[fault]:
        assert [law for law in laws if LAWS[law](subject_of(fault)).holds] == []


def test_at_least_25_single_roundings_are_changed() -> None:
    assert len(ORDERS) >= 25
    assert {fault.id for fault in ORDERS} == set(FIRST)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("fault", ORDERS, ids=lambda fault: fault.id)
def test_a_changed_rounding_breaks_a_case_and_is_named(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "KERNEL", CORE[fault.form])
    with fault:
        apart = [(case, d) for case in NUMERIC for d in check.against_core(case)]
    assert apart != []
    assert check.first_operation(apart).startswith(FIRST[fault.id])
