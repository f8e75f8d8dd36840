"""A plan: what two records ask for, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import report
from .census import Census
from .errors import Refusal
from .ledgers import Ledger
from .limits import Demand, Demands
from .liveness import Liveness
from .macs import Macs
from .profiles import Profile
from .records import ModelRecord, RunRecord
from .sizes import Quantity
from .traffic import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Host bytes by named part; `cap` is the profile's."""

    tensors: Quantity
    scratch: Quantity
    layout_metadata: int
    envelope: int
    cap: int

    @property
    def demand(self) -> Demand:
        """All parts as one demand."""
        return Demand(terms=(self.tensors, self.scratch, self.layout_metadata, self.envelope))

    @property
    def total(self) -> Quantity:
        """The sum, unknown as soon as one part is."""
        return self.demand.total

    def as_json(self) -> dict[str, Any]:
        """The parts as plain values, the known subtotal beside the total."""
        return report.symbolic(
            {
                "tensors": report.shown(self.tensors),
                "scratch": report.shown(self.scratch),
                "layout_metadata": self.layout_metadata,
                "envelope": self.envelope,
                "known": self.demand.known,
                "total": report.shown(self.total),
                "cap": self.cap,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything two records ask for, in exact integers, and every reason not to run it.

    kv_bytes: KV capacity by bytes per element
    refusals: all of them, in the order of profiles.md section 3
    """

    model: ModelRecord
    run: RunRecord
    mode: str
    profile: Profile
    model_sha256: str
    run_sha256: str
    census: Census
    kv_bytes: Mapping[int, int]
    macs: Macs
    state: Ledger
    rope_tables: Ledger
    layout_metadata: Ledger
    liveness: Liveness
    host: Host
    device: Demand
    traffic: Traffic
    demands: Demands
    refusals: tuple[Refusal, ...]
    slack_reserve_bytes: int

    @property
    def admissible(self) -> bool:
        """Whether nothing speaks against running it."""
        return not self.refusals

    @property
    def status(self) -> str:
        """One of two answers; the third, invalid, has no plan."""
        return "admitted" if self.admissible else "planned but not executable"

    def as_json(self) -> dict[str, Any]:
        """The plan as plain values without floats; every quantity says what it is.

        Source: records.md section 5
        """
        return {
            "model_sha256": self.model_sha256,
            "run_sha256": self.run_sha256,
            "mode": self.mode,
            "profile": report.profile(self.profile),
            "status": self.status,
            "census": report.census(self.census),
            "kv_bytes": report.calculated({str(b): size for b, size in self.kv_bytes.items()}),
            "macs": report.macs(self.macs),
            "state": report.ledger(self.state),
            "rope_tables": {**report.ledger(self.rope_tables), "counted_in": "state"},
            "layout_metadata": report.ledger(self.layout_metadata),
            "liveness": report.liveness(self.liveness),
            "host": self.host.as_json(),
            "device": report.symbolic(
                {
                    "known": self.device.known,
                    "total": report.shown(self.device.total),
                    "cap": self.profile.device,
                }
            ),
            "demands": report.demands(self.demands, self.profile),
            "traffic": report.calculated(report.values(self.traffic)),
            "slack_reserve_bytes": self.slack_reserve_bytes,
            "labels": {"slack_reserve_bytes": "symbolic"},
            "refusals": report.refusals(self.refusals),
            "admissible": self.admissible,
        }
