import hashlib
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from logitproof.core import DecodeSession, Parameter, SplitMix64, TextInputEncoder, initial
from logitproof.core.codes import Code
from logitproof.core.kernels import KERNELS
from logitproof.core.planner import admit
from logitproof.core.records import ModelRecord, RunRecord
from logitproof.core.tape import RECORDING
from logitproof.properties.refusals import refusal_of

PAIRS = [("reference", "ced72c20be2a12d5"), ("bridge", "b626671938d234fd")]


def admitted(scale: str) -> Any:
    return admit(ModelRecord.scale(scale), RunRecord.fixture(f"{scale}-ci"))


@pytest.mark.golden
@pytest.mark.parametrize(
    ("scale", "bits", "raw"),
    [
        ("reference", "4016e416040925b7", "40312b108306dc49"),
        ("bridge", "40177b5dcbcf3814", "40319c8658db6a0f"),
    ],
)
def test_an_admitted_decoder_has_the_published_loss(scale: str, bits: str, raw: str) -> None:
    decoder = admitted(scale).construct(SplitMix64(4701)).decoder
    batch = ([[0, 99, 100]], [[99, 100, 1]])
    assert decoder.loss(*batch).value.astype(">f8").tobytes().hex() == bits
    assert decoder.loss_sum(*batch).value.astype(">f8").tobytes().hex() == raw


@pytest.mark.parametrize("name", KERNELS)
def test_a_decoder_runs_on_the_kernel_of_its_record(name: str) -> None:
    run = RunRecord.fixture("bridge-ci").replace(kernel=name)
    made = admit(ModelRecord.scale("bridge"), run).construct(SplitMix64(4701)).decoder
    assert made.kernel is made.backbone.kernel is made.head.kernel is KERNELS[name]


@pytest.mark.parametrize(("scale", "state"), PAIRS)
def test_a_construction_is_identified_by_records_generator_and_policy(
    scale: str, state: str
) -> None:
    token, rng = admitted(scale), SplitMix64(4701)
    made = token.construct(rng)
    fields = {
        "semantic-sha256": token.plan.model_sha256,
        "run-sha256": token.plan.run_sha256,
        "initial-rng": "4701",
        "final-rng": str(int(state, 16)),
        "policy": "residual-output-init-depth-v1",
        "base-initializer": "xavier-uniform-splitmix64-v1",
    }
    frame = {"domain": "decoder-construction-v1", "fields": fields, "schema_version": 1}
    text = json.dumps(frame, separators=(",", ":"), sort_keys=True) + "\n"
    assert made.identity == hashlib.sha256(text.encode()).hexdigest()
    assert rng.state == int(state, 16)


@pytest.mark.parametrize(("scale", "state"), PAIRS)
def test_the_execution_identity_binds_both_records_and_the_rows(scale: str, state: str) -> None:
    token = admitted(scale)
    made = token.construct(SplitMix64(4701))
    bound = made.decoder.backbone.identity
    digests = (token.plan.model_sha256, token.plan.run_sha256, made.identity)
    assert (bound.semantic, bound.run, bound.construction) == digests
    assert bound.max_rows == token.plan.run.microbatch
    assert made.record.final_state == int(state, 16)


def test_more_rows_than_admitted_are_refused_by_the_prepared_input() -> None:
    decoder = admitted("bridge").construct(SplitMix64(4701)).decoder
    assert decoder.forward(np.zeros((8, 2), dtype=np.int64)).logits.shape == (8, 2, 266)
    encoder = TextInputEncoder(decoder, np.zeros((9, 2), dtype=np.int64))
    fault = refusal_of(encoder.encode, RECORDING, decoder.backbone)
    assert (fault.code, fault.reason) == (Code.PREPARED_SHAPE, "B,T,D or admitted row count")


def test_another_construction_is_another_execution() -> None:
    first, second = (admitted("bridge").construct(SplitMix64(4701)).decoder for _ in range(2))
    prepared = TextInputEncoder(first, [[1]]).encode(RECORDING, first.backbone)
    assert refusal_of(prepared.validate, second.backbone).code is Code.PREPARED_PARAMETER


def test_the_constructor_makes_the_tensors_of_the_census() -> None:
    token = admitted("bridge")
    made = token.construct(SplitMix64(4701)).decoder
    named = {name: parameter.shape for name, parameter in made.parameters.items()}
    assert list(named.items()) == list(token.plan.census.named_tensors())


def test_a_token_constructs_once() -> None:
    token = admitted("reference")
    token.construct(SplitMix64(4701))
    rng = SplitMix64(4701)
    assert refusal_of(token.construct, rng).code is Code.ADMISSION_SPENT
    assert rng.state == 4701


def test_a_token_constructs_once_among_threads() -> None:
    token = admitted("bridge")
    with switching_often(), ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: outcome(token, SplitMix64(4701)), range(4)))
    assert sorted(made) == ["constructed", *["state/admission-spent"] * 3]


@contextmanager
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def outcome(token: Any, rng: SplitMix64) -> str:
    try:
        token.construct(rng)
    except ValueError as refusal:
        return str(refusal.code)  # type: ignore[attr-defined]
    return "constructed"


class Again(SplitMix64):
    """A generator that uses the token once more while it is copied."""

    def __init__(self, token: Any) -> None:
        super().__init__(4701)
        self.token = token
        self.seen: list[str] = []

    def copy(self) -> SplitMix64:
        self.seen.append(outcome(self.token, SplitMix64(4701)))
        return super().copy()


def test_a_construction_that_calls_itself_constructs_once() -> None:
    token = admitted("reference")
    rng = Again(token)
    assert outcome(token, rng) == "constructed"
    assert set(rng.seen) == {"state/admission-spent"}


class Failing(SplitMix64):
    """A generator whose copy fails."""

    def copy(self) -> SplitMix64:
        raise KeyboardInterrupt


def test_a_construction_that_fails_gives_the_token_back() -> None:
    token, rng = admitted("reference"), Failing(4701)
    with pytest.raises(KeyboardInterrupt):
        token.construct(rng)
    assert rng.state == 4701
    assert token.construct(SplitMix64(4701)).identity


@pytest.mark.parametrize("state", [None, "4701", 4701.0, True, [4701], np.array([4701, 1])])
def test_a_state_that_is_no_integer_is_refused(state: Any) -> None:
    fault = refusal_of(admitted("reference").construct, SimpleNamespace(state=state))
    assert fault.code is Code.GENERATOR_STATE
    assert "\n" not in str(fault)


def test_the_admitted_rows_are_the_microbatch_not_the_nominal_rows() -> None:
    run = RunRecord.fixture("bridge-ci")
    few, many = run.replace(rows=1), run.replace(rows=16, microbatch=1)
    tokens = [admit(ModelRecord.scale("bridge"), each) for each in (few, many)]
    made = [token.construct(SplitMix64(4701)).decoder for token in tokens]
    assert [decoder.backbone.identity.max_rows for decoder in made] == [8, 1]
    assert made[0].forward([[1] * 16] * 8).logits.shape == (8, 16, 266)
    assert refusal_of(made[1].forward, [[1], [2]]).code is Code.PREPARED_SHAPE


def test_a_wrong_generator_draws_nothing_and_leaves_the_token() -> None:
    token, wrong = admitted("reference"), SplitMix64(39)
    assert refusal_of(token.construct, wrong).code is Code.GENERATOR_STATE
    assert wrong.state == 39
    assert token.construct(SplitMix64(4701)).decoder.config.layers == 1


def test_what_is_no_generator_is_refused_and_leaves_the_token() -> None:
    token = admitted("reference")
    assert refusal_of(token.construct, object()).code is Code.GENERATOR_STATE
    assert refusal_of(token.construct, Stateful()).code is Code.FIELD_TYPE
    assert token.construct(SplitMix64(4701)).identity


class Stateful:
    """A state and nothing that draws."""

    state = 4701


@pytest.mark.parametrize("scale", ["reference", "bridge", "production"])
def test_before_admission_nothing_is_allocated_and_nothing_drawn(
    scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"parameters": 0, "draws": 0}

    def counted(name: str, original: Any) -> Any:
        def count(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return original(*arguments, **named)

        return count

    monkeypatch.setattr(Parameter, "__init__", counted("parameters", Parameter.__init__))
    uniforms = counted("draws", initial.SplitMix64.uniforms)
    monkeypatch.setattr(initial.SplitMix64, "uniforms", uniforms)
    profile = "production-plan-only" if scale == "production" else f"{scale}-ci"
    before = planned_and_refused(ModelRecord.scale(scale), RunRecord.fixture(profile))
    assert (before, counts) == (scale == "production", {"parameters": 0, "draws": 0})


def planned_and_refused(model: ModelRecord, run: RunRecord) -> bool:
    try:
        admit(model, run)
    except ValueError:
        return True
    return False


def test_a_session_over_an_admitted_decoder_counts_the_published_work() -> None:
    with DecodeSession(admitted("bridge").construct(SplitMix64(4701)).decoder) as session:
        session.prefill([0, 99])
        output = session.decode(100)
    assert (output.length, session.work.cache_appends) == (3, 6)
    assert session.work.attention_score_values == 24
    assert session.cache.nbytes == 8192
