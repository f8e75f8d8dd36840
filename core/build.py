"""A decoder from an Admission: here the column of records meets the column of numbers."""

from dataclasses import dataclass
from typing import Final

from . import fields, identity
from .backbone import ExecutionIdentity
from .codes import Code
from .config import DecoderConfig
from .errors import RecordRefusal
from .fresh import ConstructionRecord, fresh_decoder
from .initial import SplitMix64
from .kernels import KERNELS
from .planned import Plan
from .planner import Admission
from .records import ModelRecord
from .text import Decoder

DOMAIN: Final = "decoder-construction-v1"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constructed:
    """An admitted decoder.

    record:   policy, initialiser, generator states, depth
    identity: the construction digest, 64 hex digits
    """

    decoder: Decoder
    record: ConstructionRecord
    identity: str


def construct(admission: Admission, rng: SplitMix64) -> Constructed:
    """The fresh decoder of an admitted plan, of its kernel, with its execution identity bound.

    Budget and depth policy are checked by the preparation before any draw; the generator is
    written last. `Admission.construct` alone calls this.
    Refuses: record/field-type (no SplitMix64), then the fresh decoder's own
    Source:  config_planner.md section 10
    """
    if not isinstance(rng, SplitMix64):
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what="admission.rng",
            expected="a SplitMix64",
            actual=type(rng).__name__,
        )
    plan = admission.plan
    draft = rng.copy()
    decoder, record = fresh_decoder(
        executable_config(plan.model),
        draft,
        max_parameters=plan.profile.parameters,
        max_positions=plan.profile.positions,
        kernel=KERNELS[plan.run.kernel],
    )
    digest = construction_identity(plan, record)
    decoder.backbone.bind_identity(
        ExecutionIdentity(
            semantic=plan.model_sha256,
            run=plan.run_sha256,
            construction=digest,
            max_rows=plan.run.microbatch,
        )
    )
    rng.state = draft.state
    return Constructed(decoder=decoder, record=record, identity=digest)


def executable_config(model: ModelRecord) -> DecoderConfig:
    """The configuration that a record with equal head counts executes."""
    return DecoderConfig(
        vocabulary_size=model.vocabulary_size,
        model_width=model.model_width,
        heads=model.heads,
        feed_forward_width=model.feed_forward_width,
        layers=model.layers,
        max_positions=model.max_positions,
        rope_base=fields.float_of(model.rope_base),
        rms_epsilon=fields.float_of(model.rms_epsilon),
    )


def construction_identity(plan: Plan, record: ConstructionRecord) -> str:
    """The digest of both records, the generator's states, policy and base initialiser.

    Source: config_planner.md section 3
    """
    pairs = [
        ("semantic-sha256", plan.model_sha256),
        ("run-sha256", plan.run_sha256),
        ("initial-rng", str(record.initial_state)),
        ("final-rng", str(record.final_state)),
        ("policy", record.policy),
        ("base-initializer", record.base_initializer),
    ]
    return identity.frame(DOMAIN, pairs).sha256
