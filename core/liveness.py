"""The liveness ledger: bytes that live at once, event by event, and their peaks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from . import fields, sizes
from .codes import Code
from .errors import StateRefusal
from .sizes import UNKNOWN, Quantity, Unknown

Action = Literal["allocate", "use", "alias", "rename", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One step in the life of a buffer.

    bytes:     of an allocation
    workspace: bytes beside all buffers, during this event only
    of:        the owner that an alias shares, or the old name of a renamed buffer
    """

    action: Action
    name: str
    bytes: int = 0
    workspace: Quantity = 0
    of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Events for i = 0 .. times - 1, or in descending order; `{i}` in a name is the number."""

    times: int
    events: tuple[Event, ...]
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The owned bytes after one event, and with its workspace."""

    event: Event
    live: int
    at_event: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Repetitions between the first and the last; each changes the owned bytes alike."""

    times: int
    change_bytes: int
    live: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """A schedule's timeline and its peaks, symbolic bytes.

    workspace:     the largest declared workspace
    combined_peak: max over events of owned bytes and workspace; unknown with any workspace
    """

    timeline: tuple[Point | Skipped, ...]
    resident_peak: int
    workspace: Quantity
    combined_peak: Quantity

    @property
    def events(self) -> tuple[Point, ...]:
        """The points of the timeline."""
        return tuple(point for point in self.timeline if isinstance(point, Point))


def measure(schedule: Iterable[Event | Repeat], *, elide: bool = True) -> Liveness:
    """The timeline and peaks of a schedule.

    peak = max over events (sum of live owned bytes + workspace of that event)

    A repetition changes every event's bytes by the same amount as the one before, so the
    largest is met in the first or the last: with `elide` only these are walked, and the cost
    does not depend on their number.
    Refuses: record/field-range of bytes, record/unknown-name of an action, state/alias-cycle,
             state/unknown-buffer, state/released-buffer, state/buffer-exists,
             capacity/plan-overflow
    Source:  config_planner.md section 8
    """
    buffers = _Buffers()
    timeline = tuple(_walk(schedule, buffers, elide=elide))
    points = [point for point in timeline if isinstance(point, Point)]
    workspaces = [point.event.workspace for point in points]
    unknown = UNKNOWN in workspaces
    return Liveness(
        timeline=timeline,
        resident_peak=max((point.live for point in points), default=0),
        workspace=UNKNOWN if unknown else max((sizes.known(w) for w in workspaces), default=0),
        combined_peak=UNKNOWN
        if unknown
        else max((sizes.known(point.at_event) for point in points), default=0),
    )


def _walk(
    schedule: Iterable[Event | Repeat], buffers: "_Buffers", *, elide: bool
) -> Iterator[Point | Skipped]:
    for item in schedule:
        if isinstance(item, Event):
            yield buffers.apply(item)
        else:
            yield from _repeat(item, buffers, elide=elide)


def _repeat(repeat: Repeat, buffers: "_Buffers", *, elide: bool) -> Iterator[Point | Skipped]:
    numbers = range(repeat.times)[:: -1 if repeat.descending else 1]
    skipped = len(numbers) - 2 if elide else 0
    if skipped < 1:
        for i in numbers:
            yield from (buffers.apply(_numbered(event, i)) for event in repeat.events)
        return
    before = buffers.live
    yield from (buffers.apply(_numbered(event, numbers[0])) for event in repeat.events)
    change = buffers.live - before
    yield Skipped(times=skipped, change_bytes=change, live=buffers.advance(change, skipped))
    yield from (buffers.apply(_numbered(event, numbers[-1])) for event in repeat.events)


def _numbered(event: Event, i: int) -> Event:
    number = str(i)
    return replace(
        event, name=event.name.replace("{i}", number), of=event.of.replace("{i}", number)
    )


class _Buffers:
    """The buffers alive, by name, and the sum of what they own."""

    def __init__(self) -> None:
        self.live = 0
        self.owned: dict[str, int] = {}
        self.owner_of: dict[str, str] = {}  # alias -> owner
        self.released: set[str] = set()

    def apply(self, event: Event) -> Point:
        """One event; a refused one has changed nothing."""
        sizes.check(event.bytes, what=f"liveness.{event.name}.bytes")
        if not isinstance(event.workspace, Unknown):
            sizes.check(event.workspace, what=f"liveness.{event.name}.workspace")
        fields.check_choice(
            event.action, get_args(Action), code=Code.UNKNOWN_NAME, what="liveness.action"
        )
        match event.action:
            case "allocate":
                self.check_free(event.name)
                self.add(event.name, event.bytes)
            case "alias":
                if event.of == event.name:
                    raise _fault(Code.ALIAS_CYCLE, event.name, "another buffer", event.of)
                self.check_live(event.of, event.name)
                self.check_free(event.name)
                self.owner_of[event.name] = self.owner_of.get(event.of, event.of)
                self.released.discard(event.name)
            case "rename":
                self.check_owner(event.of, event.name)
                self.check_free(event.name)
                self.rename(event.of, event.name)
            case "release":
                self.check_live(event.name, event.name)
                self.release(event.name)
        at_event = (
            UNKNOWN
            if isinstance(event.workspace, Unknown)
            else sizes.payload_sum(self.live, event.workspace, what=event.name)
        )
        return Point(event=event, live=self.live, at_event=at_event)

    def add(self, name: str, size: int) -> None:
        """A new owner."""
        self.live = sizes.payload_sum(self.live, size, what=name)
        self.owned[name] = size
        self.released.discard(name)

    def release(self, name: str) -> None:
        """The end of an alias, or of an owner and all its aliases."""
        if self.owner_of.pop(name, None) is None:
            self.live -= self.owned.pop(name)
            for alias in [a for a, owner in self.owner_of.items() if owner == name]:
                del self.owner_of[alias]
                self.released.add(alias)
        self.released.add(name)

    def rename(self, old: str, new: str) -> None:
        """An owner under another name; its aliases follow."""
        self.owned[new] = self.owned.pop(old)
        self.owner_of = {a: new if o == old else o for a, o in self.owner_of.items()}
        self.released.discard(new)

    def advance(self, change: int, times: int) -> int:
        """Owned bytes after repetitions that are not walked one by one."""
        step = sizes.payload((abs(change), times), what="liveness", label="repeated bytes")
        if change < 0:
            self.live -= step
        else:
            self.live = sizes.payload_sum(self.live, step, what="liveness")
        return self.live

    def check_live(self, name: str, what: str) -> None:
        """Refuses a name that is not alive."""
        if name in self.released:
            raise _fault(Code.RELEASED_BUFFER, what, "a live buffer", f"{name}, released")
        if name not in self.owned and name not in self.owner_of:
            raise _fault(Code.UNKNOWN_BUFFER, what, "a live buffer", f"{name}, never allocated")

    def check_owner(self, name: str, what: str) -> None:
        """Refuses a name that owns nothing."""
        self.check_live(name, what)
        if name in self.owner_of:
            raise _fault(Code.UNKNOWN_BUFFER, what, "an owner", f"{name}, an alias")

    def check_free(self, name: str) -> None:
        """Refuses a name that is alive."""
        if name in self.owned or name in self.owner_of:
            raise _fault(Code.BUFFER_EXISTS, name, "a free name", "a live buffer")


def _fault(code: Code, what: str, expected: str, actual: str) -> StateRefusal:
    return StateRefusal(code=code, what=f"liveness.{what}", expected=expected, actual=actual)
