"""Limits: which ceilings of a profile some demands exceed, a pure function of both."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from . import sizes
from .codes import Code
from .errors import CapacityRefusal, Refusal, SupportRefusal
from .profiles import EXECUTABLE, Profile
from .sizes import UNKNOWN, Quantity, Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Terms of one demand; unknown terms leave a known subtotal."""

    terms: tuple[Quantity, ...]

    @property
    def total(self) -> Quantity:
        """The sum, unknown as soon as one term is."""
        return sizes.add(*self.terms)

    @property
    def known_terms(self) -> tuple[int, ...]:
        """The terms that are known."""
        return tuple(term for term in self.terms if not isinstance(term, Unknown))

    @property
    def known(self) -> int:
        """The sum of the known terms."""
        return sizes.known(*self.terms)


COUNTS: Final = ("parameters", "positions", "tokens", "microbatch", "accumulation")
BYTES: Final = ("host", "device", "disk", "download")
NOTHING: Final = Demand(terms=(0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What one plan asks for; bytes after the scalars.

    partitions: demands by partition name; wall time is not planned
    """

    parameters: int = 0
    positions: int = 0
    tokens: int = 0
    microbatch: int = 0
    accumulation: int = 0
    host: Demand = NOTHING
    device: Demand = NOTHING
    disk: Demand = NOTHING
    download: Demand = NOTHING
    partitions: Mapping[str, Demand] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keeps a read-only copy of the partitions."""
        object.__setattr__(self, "partitions", MappingProxyType(dict(self.partitions)))


def compare(demands: Demands, limits: Profile) -> tuple[Refusal, ...]:
    """Every limit that the demands exceed, and what stays unknown.

    A limit L admits exactly L. Order: profile state, scalars, bytes, partitions, unknown.
    A known subtotal above a limit decides without the unknown rest.
    Source: profiles.md sections 2 and 3
    """
    return (
        *_state(limits),
        *_scalars(demands, limits),
        *_bytes(demands, limits),
        *_partitions(demands, limits),
        *_unknown(demands, limits),
    )


def _state(limits: Profile) -> Iterator[Refusal]:
    if limits.state != EXECUTABLE:
        yield SupportRefusal(
            code=Code.PROFILE_STATE, what=f"profile.{limits.name}", feature=limits.state
        )


def _scalars(demands: Demands, limits: Profile) -> Iterator[Refusal]:
    for name in COUNTS:
        required, limit = getattr(demands, name), getattr(limits, name)
        if required > limit:
            yield _exceeded(Code.LIMIT_EXCEEDED, name, required, limit)


def _bytes(demands: Demands, limits: Profile) -> Iterator[Refusal]:
    for name in BYTES:
        demand, limit = getattr(demands, name), getattr(limits, name)
        if demand.known > limit:
            yield _exceeded(Code.LIMIT_EXCEEDED, name, demand.known, limit)


def _partitions(demands: Demands, limits: Profile) -> Iterator[Refusal]:
    for name, limit in limits.partitions.items():
        required = demands.partitions.get(name, NOTHING).known
        if required > limit:
            yield _exceeded(Code.PARTITION_EXCEEDED, f"partitions.{name}", required, limit)


def _unknown(demands: Demands, limits: Profile) -> Iterator[Refusal]:
    """An entry per unknown partition, against the limit it would have to meet.

    An unknown total of which no unknown partition tells is an entry of its own.
    """
    unknown = [name for name, demand in demands.partitions.items() if demand.total is UNKNOWN]
    for name in unknown:
        limit = limits.partitions.get(name, limits.device)
        yield _exceeded(Code.UNKNOWN_DEMAND, name, UNKNOWN.value, limit)
    for name in () if unknown else BYTES:
        if getattr(demands, name).total is UNKNOWN:
            yield _exceeded(Code.UNKNOWN_DEMAND, name, UNKNOWN.value, getattr(limits, name))


def _exceeded(code: Code, what: str, required: object, limit: object) -> CapacityRefusal:
    return CapacityRefusal(code=code, what=what, required=required, limit=limit)
