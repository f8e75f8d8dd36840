"""One checked plan of two records, and the only way from it to a decoder."""

import importlib
from types import MappingProxyType
from typing import Any, Final, Protocol

from . import fields, ledgers, limits, liveness, modes, profiles, shapes, sizes, support
from .census import census
from .codes import Code
from .errors import AdmissionRefusal, RecordRefusal, StateRefusal
from .ledgers import Ledger
from .limits import Demand, Demands
from .liveness import Liveness
from .macs import macs
from .planned import Host, Plan
from .profiles import Profile
from .records import ModelRecord, RunRecord
from .schedule import Sizes
from .traffic import traffic

ENVELOPE_BYTES: Final = 33_554_432  # of the runtime on the host, named, not measured
ACCOUNTING_WIDTHS: Final = (2, 8)


class Generator(Protocol):
    """What construction needs to see of a generator."""

    @property
    def state(self) -> int:
        """The raw state before the next draw."""


class Admission:
    """The right to construct one decoder from an admissible plan; `admit` alone gives it.

    Not copied, not pickled: a copy would construct twice.
    """

    __slots__ = ("_spent", "plan")

    def __init__(self, plan: Plan, *, key: object) -> None:
        if key is not _KEY:
            raise StateRefusal(
                code=Code.ADMISSION_NOT_ISSUED,
                what="admission",
                expected="a token made by admit",
                actual="a constructor call",
            )
        self.plan = plan
        self._spent = False

    def __reduce__(self) -> Any:
        raise StateRefusal(
            code=Code.ADMISSION_NOT_ISSUED,
            what="admission",
            expected="a token made by admit",
            actual="a copy",
        )

    def construct(self, rng: Generator) -> Any:
        """The decoder of the plan and its construction identity; once.

        A refused call has changed neither the token nor the generator.
        Refuses: state/admission-spent, state/generator-state, then what `build` refuses
        Source:  config_planner.md section 10
        """
        if self._spent:
            raise StateRefusal(
                code=Code.ADMISSION_SPENT,
                what="admission",
                expected="a token not yet used",
                actual="a second construction",
            )
        seed = self.plan.run.seeds.initialization
        state = getattr(rng, "state", None)
        if state != seed:
            raise StateRefusal(
                code=Code.GENERATOR_STATE, what="admission.rng", expected=seed, actual=state
            )
        # The columns of core meet in build, which imports this one.
        constructed = importlib.import_module(".build", __package__).construct(self, rng)
        self._spent = True
        return constructed


_KEY: Final = object()


def plan(model: ModelRecord, run: RunRecord, mode: str = "tracked-full") -> Plan:
    """The complete plan of one mode: it allocates no array, draws nothing, and stops at no entry.

    Refuses: record/field-type, record/unknown-name of the mode, shape rules,
             capacity/plan-overflow, support/topology, shape/inexact-division
    Source:  config_planner.md section 10, profiles.md section 3
    """
    _check_records(model, run)
    fields.check_choice(mode, modes.MODES, code=Code.UNKNOWN_NAME, what="mode")
    limits_of = profiles.profile(run.resource_profile)
    counted = census(model)
    dtype, C, L = model.dtype_policy, model.max_positions, model.layers
    width = ledgers.TENSOR_BYTES[dtype]
    head_width = shapes.head_width(model.model_width, model.heads)
    rope = ledgers.rope_tables(L, C, head_width, dtype_policy=dtype)
    state = ledgers.state(counted.groups, rope, dtype_policy=dtype)
    B, T = (1, 1) if mode == "cached" else (run.rows, C)
    layout = ledgers.layout_metadata(B, T, targets=mode == "tracked-full")
    lived = _liveness(model, mode, rows=B, width=width, device=run.device, state=state)
    kv_bytes = {b: _kv_bytes(model, run.rows, b) for b in ACCOUNTING_WIDTHS}
    counted_macs = macs(model, counted, rows=run.rows)
    sent = traffic(model, run, counted, width=width)
    host, device = _placed(run.device, lived, layout, limits_of)
    demands = Demands(
        parameters=counted.total,
        positions=C,
        tokens=run.token_budget,
        microbatch=run.microbatch,
        accumulation=run.accumulation,
        host=host.demand,
        device=device,
        partitions={
            "state": Demand(terms=(state.total,)),
            "activations": Demand(terms=(lived.resident_peak - state.total,)),
            "workspace": Demand(terms=(lived.workspace,)),
            "kv": Demand(terms=(kv_bytes[width],)),
            "layout_metadata": Demand(terms=(layout.total,)),
            "slack": Demand(terms=(0,)),
        },
    )
    return Plan(
        model=model,
        run=run,
        mode=mode,
        profile=limits_of,
        model_sha256=model.identity,
        run_sha256=run.identity,
        census=counted,
        kv_bytes=MappingProxyType(kv_bytes),
        macs=counted_macs,
        state=state,
        rope_tables=rope,
        layout_metadata=layout,
        liveness=lived,
        host=host,
        device=device,
        traffic=sent,
        demands=demands,
        refusals=(*support.check(model, run, limits_of), *limits.compare(demands, limits_of)),
    )


def admit(model: ModelRecord, run: RunRecord) -> Admission:
    """The right to construct what the records describe.

    Refuses: what `plan` refuses, then admission/plan-refused with every entry of the plan
    """
    planned = plan(model, run)
    if not planned.admissible:
        raise AdmissionRefusal(
            code=Code.PLAN_REFUSED,
            what=f"the plan of {run.resource_profile}",
            reasons=planned.refusals,
            details={"listed": "; ".join(map(str, planned.refusals))},
        )
    return Admission(planned, key=_KEY)


def _check_records(model: object, run: object) -> None:
    for name, record, kind in (("model", model, ModelRecord), ("run", run, RunRecord)):
        if not isinstance(record, kind):
            raise RecordRefusal(
                code=Code.FIELD_TYPE,
                what=name,
                expected=f"a {kind.__name__}",
                actual=f"a {type(record).__name__}",
            )


def _liveness(
    model: ModelRecord, mode: str, *, rows: int, width: int, device: str, state: Ledger
) -> Liveness:
    C = model.max_positions
    n = Sizes(
        V=model.vocabulary_size,
        D=model.model_width,
        L=model.layers,
        H_q=model.heads,
        H_kv=model.kv_heads,
        F=model.feed_forward_width,
        B=rows,
        T=C,
        C=C,
    )
    payload = modes.Payload(width=width, declares_workspace=device != "gpu")
    return liveness.measure(modes.events(mode, n, payload, state_bytes=state.total))


def _kv_bytes(model: ModelRecord, rows: int, width: int) -> int:
    """2*B*L*C*K*b, the capacity, not a current length."""
    K = shapes.kv_width(model.model_width, model.heads, model.kv_heads)
    factors = (2, rows, model.layers, model.max_positions, K, width)
    return sizes.payload(factors, what="kv_bytes", label="KV bytes")


def _placed(
    device: str, lived: Liveness, layout: Ledger, limits_of: Profile
) -> tuple[Host, Demand]:
    """Where the bytes live: on a gpu the tensors, elsewhere everything on the host."""
    on_host = Host(
        tensors=lived.resident_peak,
        scratch=lived.workspace,
        layout_metadata=layout.total,
        envelope=ENVELOPE_BYTES,
        cap=limits_of.host,
    )
    if device != "gpu":
        return on_host, limits.NOTHING
    envelope = Host(
        tensors=0, scratch=0, layout_metadata=0, envelope=ENVELOPE_BYTES, cap=limits_of.host
    )
    return envelope, Demand(terms=(lived.resident_peak, layout.total, lived.workspace))
