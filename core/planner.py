"""One checked plan of two records, and the only way from it to a decoder."""

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from . import fields, ledgers, limits, liveness, modes, profiles, shapes, sizes, support
from .canonical import described
from .census import census
from .codes import Code
from .errors import AdmissionRefusal, StateRefusal
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
SLACK_RESERVE_BYTES: Final = 0  # no allocation reserves any; says nothing of workspace


class Generator(Protocol):
    """What construction needs to see of a generator."""

    @property
    def state(self) -> int:
        """The raw state before the next draw."""


class Admission:
    """The right to construct one decoder from an admissible plan; `admit` alone gives it.

    The token holds nothing: what it stands for is kept with the tokens that were issued, so no
    attribute can be exchanged and no instance made past `admit` means anything. Not copied, not
    pickled: a copy would construct twice.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, plan: Plan, *, key: object = None) -> None:
        if key is not _KEY:
            raise _not_issued("a constructor call")
        _ISSUED[self] = _Right(plan)

    def __reduce__(self) -> Any:
        raise _not_issued("a copy")

    @property
    def plan(self) -> Plan:
        """The plan that was admitted.

        Refuses: state/admission-not-issued
        """
        return _right_of(self).plan

    def construct(self, rng: Generator) -> Any:
        """The decoder of the plan and its construction identity; once, whoever calls.

        A refused call has changed neither the token nor the generator.
        Refuses: state/admission-not-issued, state/admission-spent (used, or in use by another
                 call), admission/plan-refused, state/generator-state, then what `build` refuses
        Source:  config_planner.md section 10
        """
        right = _right_of(self)
        with right.taken():
            _check_admissible(right.plan)
            seed, state = right.plan.run.seeds.initialization, getattr(rng, "state", None)
            if type(state) is not int or state != seed:
                actual = state if type(state) is int else described(state)
                raise StateRefusal(
                    code=Code.GENERATOR_STATE, what="admission.rng", expected=seed, actual=actual
                )
            return _build().construct(self, rng)


class _Right:
    """What an issued token stands for: a plan, and whether it has been used."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.spent = False
        self.lock = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """One use; a failed one is given back, and nobody else gets in meanwhile."""
        if not self.lock.acquire(blocking=False):
            raise _spent("a construction under way")
        try:
            if self.spent:
                raise _spent("a second construction")
            yield
            self.spent = True
        finally:
            self.lock.release()


_KEY: Final = object()
_ISSUED: Final = WeakKeyDictionary[Admission, _Right]()


def plan(model: ModelRecord, run: RunRecord, mode: str = "tracked-full") -> Plan:
    """The complete plan of one mode: it allocates no array, draws nothing, and stops at no entry.

    Refuses: record/field-type, record/unknown-name of the mode, shape rules,
             capacity/plan-overflow, support/topology, shape/inexact-division
    Source:  config_planner.md section 10, profiles.md section 3
    """
    fields.check_instance(model, ModelRecord, what="model")
    fields.check_instance(run, RunRecord, what="run")
    fields.check_choice(mode, modes.MODES, code=Code.UNKNOWN_NAME, what="mode")
    limits_of = profiles.profile(run.resource_profile)
    counted = census(model)
    dtype, C = model.dtype_policy, model.max_positions
    width = ledgers.TENSOR_BYTES[dtype]
    rope = _rope_tables(model)
    state = ledgers.state(counted.groups, rope, dtype_policy=dtype)
    B = _rows(run, mode)
    T = 1 if mode == "cached" else C
    layout = ledgers.layout_metadata(B, T, targets=mode == "tracked-full")
    lived = lifetimes(model, run, mode)
    kv_bytes = {b: _kv_bytes(model, run.rows, b) for b in ACCOUNTING_WIDTHS}
    counted_macs = macs(model, counted, rows=run.rows)
    sent = traffic(model, run, counted, width=width)
    host, device = _placed(run.device, lived, layout, limits_of)
    # The cached schedule owns its one row of keys and values; the full ones hold none.
    kv = _kv_bytes(model, B, width) if mode == "cached" else kv_bytes[width]
    owned = state.total + (kv if mode == "cached" else 0)
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
            "activations": Demand(terms=(lived.resident_peak - owned,)),
            "workspace": Demand(terms=(lived.workspace,)),
            "kv": Demand(terms=(kv,)),
            "layout_metadata": Demand(terms=(layout.total,)),
            "slack": Demand(terms=(SLACK_RESERVE_BYTES,)),
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
        slack_reserve_bytes=SLACK_RESERVE_BYTES,
        refusals=(*support.check(model, run, limits_of), *limits.compare(demands, limits_of)),
    )


def admit(model: ModelRecord, run: RunRecord) -> Admission:
    """The right to construct what the records describe.

    Refuses: what `plan` refuses, then admission/plan-refused with every entry of the plan, then
             what the executable configuration refuses
    """
    planned = plan(model, run)
    _check_admissible(planned)
    _build().executable_config(planned.model)
    return Admission(planned, key=_KEY)


def _check_admissible(planned: Plan) -> None:
    if not planned.admissible:
        raise AdmissionRefusal(
            code=Code.PLAN_REFUSED,
            what=f"the plan of {planned.run.resource_profile}",
            reasons=planned.refusals,
            details={"listed": "; ".join(map(str, planned.refusals))},
        )


def _build() -> Any:
    """The module in which the columns of core meet; it imports this one."""
    return importlib.import_module(".build", __package__)


def _right_of(admission: Admission) -> _Right:
    right = _ISSUED.get(admission)
    if right is None:
        raise _not_issued("an instance that admit did not make")
    return right


def _not_issued(actual: str) -> StateRefusal:
    return StateRefusal(
        code=Code.ADMISSION_NOT_ISSUED,
        what="admission",
        expected="a token made by admit",
        actual=actual,
    )


def _spent(actual: str) -> StateRefusal:
    return StateRefusal(
        code=Code.ADMISSION_SPENT, what="admission", expected="a token not yet used", actual=actual
    )


def lifetimes(model: ModelRecord, run: RunRecord, mode: str, *, elide: bool = True) -> Liveness:
    """The timeline of a mode with its peaks; without `elide` every block's events.

    Refuses: record/unknown-name of the mode, shape rules, capacity/plan-overflow
    """
    fields.check_choice(mode, modes.MODES, code=Code.UNKNOWN_NAME, what="mode")
    C, dtype = model.max_positions, model.dtype_policy
    n = Sizes(
        V=model.vocabulary_size,
        D=model.model_width,
        L=model.layers,
        H_q=model.heads,
        H_kv=model.kv_heads,
        F=model.feed_forward_width,
        B=_rows(run, mode),
        T=C,
        C=C,
    )
    payload = modes.Payload(
        width=ledgers.TENSOR_BYTES[dtype], declares_workspace=run.device != "gpu"
    )
    state = ledgers.state(census(model).groups, _rope_tables(model), dtype_policy=dtype)
    return liveness.measure(modes.events(mode, n, payload, state_bytes=state.total), elide=elide)


def _rows(run: RunRecord, mode: str) -> int:
    """The rows that a call may take: every admitted one, whatever the nominal count.

    A cache has one.
    """
    return 1 if mode == "cached" else max(run.rows, run.microbatch)


def _rope_tables(model: ModelRecord) -> Ledger:
    head_width = shapes.head_width(model.model_width, model.heads)
    return ledgers.rope_tables(
        model.layers, model.max_positions, head_width, dtype_policy=model.dtype_policy
    )


def _kv_bytes(model: ModelRecord, rows: int, width: int) -> int:
    """2*B*L*C*K*b, the capacity, not a current length."""
    K = shapes.kv_width(model.model_width, model.heads, model.kv_heads)
    factors = (2, rows, model.layers, model.max_positions, K, width)
    return sizes.payload(factors, what="kv_bytes", label="KV bytes")


def _placed(
    device: str, lived: Liveness, layout: Ledger, limits_of: Profile
) -> tuple[Host, Demand]:
    """Where the bytes live: on a gpu the tensors, elsewhere everything on the host.

    Refuses: capacity/plan-overflow naming the sum
    """
    on_host = Host(
        tensors=lived.resident_peak,
        scratch=lived.workspace,
        layout_metadata=layout.total,
        envelope=ENVELOPE_BYTES,
        cap=limits_of.host,
    )
    if device != "gpu":
        sizes.payload_sum(*on_host.demand.known_terms, what="host", label="host bytes")
        return on_host, limits.NOTHING
    envelope = Host(
        tensors=0, scratch=0, layout_metadata=0, envelope=ENVELOPE_BYTES, cap=limits_of.host
    )
    on_device = Demand(terms=(lived.resident_peak, layout.total, lived.workspace))
    sizes.payload_sum(*on_device.known_terms, what="device", label="device bytes")
    return envelope, on_device
