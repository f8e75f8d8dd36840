from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitproof.core import liveness, modes
from logitproof.core.codes import Code
from logitproof.core.liveness import Event, Repeat, measure
from logitproof.core.records import ModelRecord
from logitproof.core.schedule import Sizes
from logitproof.core.sizes import UNKNOWN
from logitproof.properties import enumeration, record_strategies
from logitproof.properties.refusals import refusal_of


def allocate(name: str, size: int = 1, workspace: Any = 0) -> Event:
    return Event(action="allocate", name=name, bytes=size, workspace=workspace)


def release(name: str) -> Event:
    return Event(action="release", name=name)


def alias(name: str, of: str) -> Event:
    return Event(action="alias", name=name, of=of)


STATE, A, B = allocate("state", 64), allocate("A", 64), allocate("B", 128)
VIEW, RUN = alias("view", "B"), Event(action="use", name="run B", workspace=32)
ENDS = [release("view"), release("B")]
PAYLOAD = modes.Payload(width=8, declares_workspace=True)


@pytest.mark.golden
def test_overlapping_buffers_reach_288_bytes() -> None:
    lived = measure([STATE, A, B, VIEW, RUN, *ENDS, release("A")])
    assert [point.live for point in lived.events] == [64, 128, 256, 256, 256, 256, 128, 64]
    assert [point.at_event for point in lived.events][4] == 288
    assert (lived.resident_peak, lived.workspace, lived.combined_peak) == (256, 32, 288)


@pytest.mark.golden
def test_a_release_before_the_next_allocation_leaves_224_bytes() -> None:
    lived = measure([STATE, A, release("A"), B, VIEW, RUN])
    assert [point.live for point in lived.events] == [64, 128, 64, 192, 192, 192]
    assert lived.combined_peak == 224


def test_an_alias_changes_nothing() -> None:
    assert (
        measure([STATE, A, B, RUN]).combined_peak == measure([STATE, A, B, VIEW, RUN]).combined_peak
    )


def test_an_unknown_workspace_leaves_no_complete_peak() -> None:
    lived = measure([STATE, allocate("A", 64, UNKNOWN)])
    assert lived.resident_peak == 128
    assert lived.workspace is lived.combined_peak is UNKNOWN


def test_nothing_has_no_peak() -> None:
    assert measure([]).combined_peak == 0


@pytest.mark.property
@given(record_strategies.timelines())
def test_the_peaks_are_those_of_summing_every_live_buffer(
    events: list[tuple[Any, str, int, int]],
) -> None:
    lived = measure(
        Event(action=action, name=name, bytes=size, workspace=workspace)
        for action, name, size, workspace in events
    )
    assert (lived.resident_peak, lived.combined_peak) == enumeration.peak(events)


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([release("A")], Code.UNKNOWN_BUFFER),
        ([A, release("A"), release("A")], Code.RELEASED_BUFFER),
        ([A, A], Code.BUFFER_EXISTS),
        ([A, alias("A", "A")], Code.ALIAS_CYCLE),
        ([A, B, alias("A", "B")], Code.BUFFER_EXISTS),
        ([alias("view", "B")], Code.UNKNOWN_BUFFER),
        ([B, release("B"), VIEW], Code.RELEASED_BUFFER),
        ([B, VIEW, release("B"), release("view")], Code.RELEASED_BUFFER),
        ([B, VIEW, alias("B", "view")], Code.BUFFER_EXISTS),
        ([Event(action="rename", name="C", of="B")], Code.UNKNOWN_BUFFER),
        ([A, B, Event(action="rename", name="A", of="B")], Code.BUFFER_EXISTS),
        ([B, VIEW, Event(action="rename", name="C", of="view")], Code.UNKNOWN_BUFFER),
        ([allocate("A", 2**63), allocate("B", 2**63)], Code.PLAN_OVERFLOW),
        ([allocate("A", 2**64 - 1, 1)], Code.PLAN_OVERFLOW),
    ],
)
def test_an_impossible_life_is_refused(events: list[Event], code: Code) -> None:
    assert refusal_of(measure, events).code is code


@pytest.mark.parametrize("wrong", [-5, 1.5, True, None])
def test_bytes_and_workspace_are_sizes(wrong: Any) -> None:
    assert refusal_of(measure, [allocate("A", wrong)]).what == "liveness.A.bytes"
    assert refusal_of(measure, [allocate("A", 1, wrong)]).what == "liveness.A.workspace"


def test_an_unknown_action_is_refused() -> None:
    fault = refusal_of(measure, [Event(action="explode", name="A")])  # type: ignore[arg-type]
    assert (fault.code, fault.what) == (Code.UNKNOWN_NAME, "liveness.action")


def test_a_name_is_free_again_after_its_release() -> None:
    assert measure([A, release("A"), A, release("A")]).resident_peak == 64


def test_a_view_of_a_view_shares_the_first_owner() -> None:
    lived = measure([B, VIEW, alias("other", "view"), release("view"), release("B")])
    assert lived.events[-1].live == 0
    dead = [B, VIEW, alias("other", "view"), release("B"), release("other")]
    assert refusal_of(measure, dead).code is Code.RELEASED_BUFFER


def test_a_renamed_buffer_keeps_its_bytes_and_views() -> None:
    rename = Event(action="rename", name="C", of="B")
    lived = measure([B, VIEW, rename, release("view"), release("C"), B])
    assert [point.live for point in lived.events] == [128, 128, 128, 128, 0, 128]


BODIES = [
    ((allocate("x{i}", 3),), (release("x{i}"),)),
    ((allocate("x{i}", 3, 7), allocate("y", 5), release("y")), (release("x{i}"), RUN)),
    ((allocate("x{i}", 0), RUN), (allocate("z{i}", 4), release("x{i}"))),
]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("body", BODIES, ids=["plain", "scratch", "growing"])
@pytest.mark.parametrize("times", [0, 1, 2, 3, 7])
def test_skipped_repetitions_change_no_peak(body: Any, times: int, descending: bool) -> None:
    schedule: list[Event | Repeat] = [
        STATE,
        Repeat(times=times, events=body[0]),
        RUN,
        Repeat(times=times, events=body[1], descending=descending),
    ]
    short, full = measure(schedule), measure(schedule, elide=False)
    assert short.resident_peak == full.resident_peak
    assert short.combined_peak == full.combined_peak
    assert short.events[-1].live == full.events[-1].live


@pytest.mark.parametrize(("times", "label"), [(2**62, "repeated bytes"), (2**24, "live bytes")])
def test_skipped_repetitions_are_checked_too(times: int, label: str) -> None:
    fault = refusal_of(measure, [Repeat(times=times, events=(allocate("x{i}", 2**40),))])
    assert (fault.code, fault.reason) == (Code.PLAN_OVERFLOW, label)


def sizes(B: int, T: int, scale: str = "bridge") -> Sizes:
    record = ModelRecord.scale(scale)
    return Sizes(
        V=record.vocabulary_size,
        D=record.model_width,
        L=record.layers,
        H_q=record.heads,
        H_kv=record.kv_heads,
        F=record.feed_forward_width,
        B=B,
        T=T,
        C=record.max_positions,
    )


@pytest.mark.parametrize("mode", modes.MODES)
@pytest.mark.parametrize("scale", ["reference", "bridge", "laptop", "production"])
def test_a_mode_gives_back_all_but_the_state(mode: str, scale: str) -> None:
    lived = measure(modes.events(mode, sizes(2, 3, scale), PAYLOAD, state_bytes=10))
    assert lived.events[-1].live == lived.events[0].live == 10


@pytest.mark.parametrize("mode", modes.MODES)
def test_a_mode_has_the_same_peaks_walked_in_full(mode: str) -> None:
    schedule = modes.events(mode, sizes(2, 5, "laptop"), PAYLOAD, state_bytes=10)
    short, full = measure(schedule), measure(schedule, elide=False)
    assert (short.resident_peak, short.combined_peak) == (full.resident_peak, full.combined_peak)
    assert len(short.timeline) < len(full.timeline)


@pytest.mark.parametrize(("B", "T"), [(1, 1), (1, 3), (2, 4), (16, 4)])
def test_a_recorded_forward_keeps_every_value_of_the_specification(B: int, T: int) -> None:
    lived = measure(modes.events("tracked-full", sizes(B, T), PAYLOAD, state_bytes=0))
    backward = next(i for i, p in enumerate(lived.events) if p.event.name == "loss.adjoint")
    elements = enumeration.forward_elements(B, T, 266, 16, 2, 2, 2, 20)
    assert lived.events[backward - 1].live == 8 * elements


@pytest.mark.parametrize(("scale", "total"), [("reference", 256), ("bridge", 8192)])
def test_the_cached_mode_owns_one_full_row_of_keys_and_values(scale: str, total: int) -> None:
    lived = measure(modes.events("cached", sizes(1, 1, scale), PAYLOAD, state_bytes=0))
    cache = next(point for point in lived.events if point.event.name == "kv_cache")
    assert cache.event.bytes == total


def test_the_workspace_of_a_mode_is_unknown_where_no_primitive_runs() -> None:
    payload = modes.Payload(width=2, declares_workspace=False)
    lived = measure(modes.events("tracked-full", sizes(1, 2), payload, state_bytes=0))
    assert lived.combined_peak is UNKNOWN


@pytest.mark.property
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_one_more_byte_of_state_is_one_more_byte_of_peak(first: int, more: int) -> None:
    def peak(state: int) -> int:
        events = modes.events("cached", sizes(1, 1), PAYLOAD, state_bytes=state)
        return liveness.measure(events).resident_peak

    assert peak(first + more) - peak(first) == more
