"""Static ledgers: what is allocated, by whom, at which width and alignment."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from . import sizes
from .codes import Code
from .errors import StateRefusal
from .shapes import TABLE, TensorGroup

# Bytes per scalar of each named allocation of the learned state.
_F64_STATE: Final = (("parameters", 8), ("gradients", 8))
_MIXED_STATE: Final = (
    ("weights", 2),
    ("master", 4),
    ("gradients", 4),
    ("first_moments", 4),
    ("second_moments", 4),
)
STATE_ROLES: Final = {
    "f64": _F64_STATE,
    "half-protected-32": _MIXED_STATE,
    "bf16-accounting": _MIXED_STATE,
}
# Bytes of one activation or cached element, and of one element of a rotation table.
TENSOR_BYTES: Final = {"f64": 8, "half-protected-32": 2, "bf16-accounting": 2}
TABLE_BYTES: Final = {"f64": 8, "half-protected-32": 4, "bf16-accounting": 4}
INDEX_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """`count` equal buffers of one owner; an alias owns nothing.

    alignment: bytes to a multiple of which each buffer is rounded up
    alias_of:  the name of the buffer that this name shares
    """

    name: str
    elements: int
    element_bytes: int
    count: int = 1
    alignment: int = 1
    alias_of: str = ""

    @property
    def bytes(self) -> int:
        """count * round_up(elements * element_bytes, alignment), or 0 for an alias."""
        if self.alias_of:
            return 0
        return self.count * sizes.round_up(self.elements * self.element_bytes, self.alignment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Allocations and the sum of their bytes; made by `ledger`."""

    entries: tuple[Allocation, ...]
    total: int


def ledger(entries: Iterable[Allocation], *, what: str) -> Ledger:
    """The ledger of some allocations.

    Refuses: state/buffer-exists, record/field-range of a size, state/unknown-buffer or
             state/alias-cycle of an alias, capacity/plan-overflow
    Source:  config_planner.md section 7
    """
    entries = tuple(entries)
    named: dict[str, Allocation] = {}
    for entry in entries:
        if entry.name in named:
            raise _fault(Code.BUFFER_EXISTS, f"{what}.{entry.name}", "a new name", "a used one")
        named[entry.name] = entry
    for entry in entries:
        _check_sizes(entry, what)
        _check_alias(entry, named, what)
        sizes.kept(entry.bytes, what=f"{what}.{entry.name}", label="buffer bytes")
    total = sizes.total((e.bytes for e in entries), what=what, label="ledger total")
    return Ledger(entries=entries, total=sizes.kept(total, what=what, label="ledger total"))


def state(groups: Sequence[TensorGroup], rope: Ledger, *, dtype_policy: str) -> Ledger:
    """Persistent state: every learned tensor in each of its roles, and the rotation tables.

    The output head is an alias of the table.
    """
    learned = [
        Allocation(
            name=f"{role}.{group.name}",
            elements=group.elements,
            element_bytes=width,
            count=group.repetitions,
            alignment=width,
        )
        for role, width in STATE_ROLES[dtype_policy]
        for group in groups
    ]
    role, width = STATE_ROLES[dtype_policy][0]
    head = Allocation(
        name=f"{role}.output_head",
        elements=groups[0].elements,
        element_bytes=width,
        alias_of=f"{role}.{TABLE}",
    )
    return ledger((*learned, head, *rope.entries), what="state")


def illustration(P: int) -> Ledger:
    """Eighteen bytes per scalar in five named allocations; nobody's real footprint.

    Source: config_planner.md section 7
    """
    return ledger(
        (Allocation(name=role, elements=P, element_bytes=width) for role, width in _MIXED_STATE),
        what="illustration",
    )


def rope_tables(L: int, C: int, head_width: int, *, dtype_policy: str) -> Ledger:
    """One table set per block: d_h/2 + 2*C*(d_h/2) values; persistent, never learned."""
    pairs = head_width // 2
    width = TABLE_BYTES[dtype_policy]
    return ledger(
        (
            Allocation(
                name=f"rope.{name}",
                elements=elements,
                element_bytes=width,
                count=L,
                alignment=width,
            )
            for name, elements in (
                ("inverse_frequencies", pairs),
                ("cosines", C * pairs),
                ("sines", C * pairs),
            )
        ),
        what="rope_tables",
    )


def layout_metadata(B: int, T: int, *, targets: bool) -> Ledger:
    """The integers beside a batch: its layout, its ids and, for a loss, its targets."""
    cells = B * T
    arrays = [("lengths", B), ("range_starts", cells), ("positions", cells), ("ids", cells)]
    if targets:
        arrays.append(("targets", cells))
    return ledger(
        (
            Allocation(
                name=f"layout.{name}",
                elements=elements,
                element_bytes=INDEX_BYTES,
                alignment=INDEX_BYTES,
            )
            for name, elements in arrays
        ),
        what="layout_metadata",
    )


def _check_sizes(entry: Allocation, what: str) -> None:
    """Refuses a negative or fractional size, and an alignment to nothing."""
    for name in ("elements", "element_bytes", "count", "alignment"):
        where = f"{what}.{entry.name}.{name}"
        sizes.check(getattr(entry, name), what=where, least=int(name == "alignment"))


def _check_alias(entry: Allocation, named: dict[str, Allocation], what: str) -> None:
    """Follows an alias to an owner."""
    where = f"{what}.{entry.name}"
    met = {entry.name}
    while entry.alias_of:
        if entry.alias_of not in named:
            raise _fault(Code.UNKNOWN_BUFFER, where, "a named owner", entry.alias_of)
        if entry.alias_of in met:
            raise _fault(Code.ALIAS_CYCLE, where, "an owner at the end", entry.alias_of)
        met.add(entry.alias_of)
        entry = named[entry.alias_of]


def _fault(code: Code, what: str, expected: str, actual: str) -> StateRefusal:
    return StateRefusal(code=code, what=what, expected=expected, actual=actual)
