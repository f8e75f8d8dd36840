"""The three execution modes as schedules of allocations, uses and releases."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from . import lifetimes, schedule, sizes, workspace
from .lifetimes import END
from .liveness import Event, Repeat
from .schedule import HIDDEN, INPUT, LOGITS, RESIDUAL, Op, Section, Shape, Sizes
from .sizes import UNKNOWN, Quantity

MODES: Final = ("tracked-full", "untracked-full", "cached")

Schedule = tuple[Event | Repeat, ...]

_BLOCK: Final = "blocks.{i}."


class Payload:
    """Bytes of arrays of one element width; workspace is unknown where no primitive runs."""

    def __init__(self, *, width: int, declares_workspace: bool) -> None:
        self.width = width
        self.declares_workspace = declares_workspace

    def of(self, shape: Shape, name: str) -> int:
        """The bytes of one array."""
        return sizes.payload((*shape, self.width), what=name, label="tensor payload")

    def workspace(self, arrays: Iterable[Shape], scanned: Shape, name: str) -> Quantity:
        """The bytes of arrays that an operation declares, and of one scan for finiteness."""
        if not self.declares_workspace:
            return UNKNOWN
        own = (self.of(shape, name) for shape in arrays)
        return sizes.payload_sum(*own, workspace.mask_bytes(scanned), what=name)


def events(mode: str, n: Sizes, payload: Payload, *, state_bytes: int) -> Schedule:
    """The schedule of a mode, from the first allocation to the last release.

    state_bytes: owned before, during and after
    Source:      config_planner.md section 8
    """
    state = Event(action="allocate", name="state", bytes=state_bytes)
    build = {"tracked-full": tracked, "untracked-full": untracked, "cached": cached}[mode]
    return (state, *build(n, payload))


def tracked(n: Sizes, payload: Payload) -> Schedule:
    """Values and saved arrays live until the graph is dropped, adjoints until the commit.

    All prospective gradients exist before the first stored one is replaced.
    """
    lookup, block = schedule.embedding(n), schedule.block(n)
    ends = (schedule.final_norm(n), schedule.head(n), schedule.loss(n))
    forward: Schedule = (
        *_recorded(lookup, payload),
        _blocks(n, _recorded(block, payload, _BLOCK)),
        *(event for section in ends for event in _recorded(section, payload)),
    )
    met = {_adjoint("loss")}
    backward: Schedule = (
        _allocate(_adjoint("loss"), (), payload),
        *(event for section in reversed(ends) for event in _backward(section, payload, met)),
        _blocks(n, _backward(block, payload, {_adjoint("output")}, _BLOCK), descending=True),
        *_backward(lookup, payload, met),
    )
    outer = {**lookup.leaves, **ends[0].leaves}
    prospective: Schedule = (
        *_prospective(outer, payload),
        _blocks(n, _prospective(block.leaves, payload, _BLOCK)),
    )
    commit = Event(action="use", name="commit")
    return (
        *forward,
        *backward,
        *prospective,
        commit,
        *_released(prospective),
        *_released(backward),
        *_released(forward),
    )


def recomputed(n: Sizes, payload: Payload) -> Schedule:
    """Activation checkpoints: a block leaves one value, and is recorded again in its reverse rule.

    No mode of a plan: it trades the values of all blocks for those of one, twice.
    Source: numerics_vjp.md section 6
    """
    lookup, block = schedule.embedding(n), schedule.block(n)
    ends = (schedule.final_norm(n), schedule.head(n), schedule.loss(n))
    forward: Schedule = (
        *_recorded(lookup, payload),
        _blocks(n, _run_once(block, payload)),
        *(event for section in ends for event in _recorded(section, payload)),
    )
    met = {_adjoint("loss")}
    backward: Schedule = (
        _allocate(_adjoint("loss"), (), payload),
        *(event for section in reversed(ends) for event in _backward(section, payload, met)),
        _blocks(n, _run_again(block, payload), descending=True),
        *_backward(lookup, payload, met),
    )
    return (*forward, *backward)


def _run_once(block: Section, payload: Payload) -> Iterator[Event]:
    """A block without a graph, from a copy of its boundary to a copy of its output."""
    boundary = _allocate(f"{_BLOCK}boundary", block.leaves[INPUT], payload)
    yield boundary
    yield from _passing(block, payload, lifetimes.BLOCK, _BLOCK)
    for op in block.ops:
        if op.name not in lifetimes.BLOCK:
            yield _release(_BLOCK + op.name)
    yield _release(boundary.name)
    yield _allocate(f"{_BLOCK}checkpoint", block.leaves[INPUT], payload)


def _run_again(block: Section, payload: Payload) -> Iterator[Event | Repeat]:
    """The block recorded from its boundary, one local pass, then its adjoints delivered."""
    again = f"{_BLOCK}again."
    made = (
        _allocate(f"{again}boundary", block.leaves[INPUT], payload),
        _allocate(f"{again}boundary.gradient", block.leaves[INPUT], payload),
        *_recorded(block, payload, again),
        _allocate(_adjoint(again + block.output), block.leaves[INPUT], payload),
    )
    local = tuple(_backward(block, payload, {_adjoint(block.output)}, again))
    contributions = {_adjoint(again + name) for name in block.leaves}
    yield from made
    yield from local
    yield from _released(made)
    yield from _released(event for event in local if event.name not in contributions)
    for name, shape in block.leaves.items():
        yield _allocate(_adjoint(_BLOCK + name), shape, payload)
    yield from _released(event for event in local if event.name in contributions)


def untracked(n: Sizes, payload: Payload) -> Schedule:
    """No graph and no adjoints; every block's inspectable steps live until the final norm is done.

    The result holds embeddings, hidden features and logits.
    """
    block = schedule.block(n)
    kept = [op.name for op in block.ops if op.name not in lifetimes.BLOCK]
    return (
        *_passing(schedule.embedding(n), payload, {}),
        _blocks(n, _passing(block, payload, lifetimes.BLOCK, _BLOCK)),
        *_passing(schedule.final_norm(n), payload, lifetimes.FINAL_NORM),
        _blocks(n, [_release(_BLOCK + name) for name in kept]),
        *_passing(schedule.head(n), payload, {"head.table": END}),
        *(_release(name) for name in ("embeddings", HIDDEN, LOGITS)),
    )


def cached(n: Sizes, payload: Payload) -> Schedule:
    """One token: full caches of one row, the tickets of all layers until the commit."""
    one = schedule.one_token(n)
    block = schedule.cached_block(one)
    cache = _allocate("kv_cache", (2, n.L, n.C, n.K), payload)
    newest = _allocate("newest_logits", (n.V,), payload)
    return (
        cache,
        *_passing(schedule.embedding(one), payload, {}),
        _blocks(n, _passing(block, payload, lifetimes.CACHED, _BLOCK)),
        *_passing(schedule.final_norm(one), payload, lifetimes.FINAL_NORM),
        _blocks(n, [_release(_BLOCK + block.output)]),
        *_passing(schedule.head(one), payload, {"head.table": END}),
        Event(action="use", name="commit"),
        newest,
        _blocks(n, [_release(_BLOCK + name) for name in lifetimes.TICKET]),
        *(_release(name) for name in ("embeddings", HIDDEN, LOGITS)),
        _release(newest.name),
        _release(cache.name),
    )


def _recorded(section: Section, payload: Payload, prefix: str = "") -> Iterator[Event]:
    """Every value, and after it what only the reverse pass reads."""
    operands = section.shapes
    for op in section.ops:
        yield _value(op, payload, prefix, workspace.forward(op, operands))
        for i, shape in enumerate(op.saved):
            yield _allocate(f"{prefix}{op.name}.saved.{i}", shape, payload)


def _passing(
    section: Section, payload: Payload, until: Mapping[str, str], prefix: str = ""
) -> Iterator[Event]:
    """Every value; before an operation those that nothing holds any more are given back."""
    operands = section.shapes
    for op in section.ops:
        yield from _given_back(op.name, until, prefix)
        arrays = [*workspace.forward(op, operands), *op.saved]
        yield _value(op, payload, prefix, arrays)
    yield from _given_back(END, until, prefix)


def _given_back(at: str, until: Mapping[str, str], prefix: str) -> Iterator[Event]:
    return (_release(prefix + name) for name, end in until.items() if end == at)


def _value(op: Op, payload: Payload, prefix: str, arrays: Iterable[Shape]) -> Event:
    name = prefix + op.name
    return Event(
        action="allocate",
        name=name,
        bytes=payload.of(op.shape, name),
        workspace=payload.workspace(arrays, op.shape, name),
    )


def _backward(
    section: Section, payload: Payload, met: set[str], prefix: str = ""
) -> Iterator[Event]:
    """Operations in reverse topological order; an adjoint is allocated at its first contribution.

    met: the adjoints that exist, by their names without prefix; grows
    """
    operands = section.shapes
    kinds = {op.name: op.kind for op in section.ops}
    for op in reversed(_post_order(section)):
        name = f"{prefix}{op.name}.vjp"
        yield Event(
            action="use",
            name=name,
            workspace=payload.workspace(workspace.reverse(op, operands), op.shape, name),
        )
        for operand in op.operands:
            if kinds.get(operand) != "constant" and _adjoint(operand) not in met:
                met.add(_adjoint(operand))
                yield _allocate(_adjoint(prefix + operand), operands[operand], payload)


def _post_order(section: Section) -> list[Op]:
    """The ancestors of the output, parents before children, in operand order."""
    named = {op.name: op for op in section.ops}
    order: dict[str, Op] = {}
    stack = [(section.output, False)]
    while stack:
        name, expanded = stack.pop()
        if name in order or name not in named:
            continue
        if expanded:
            order[name] = named[name]
            continue
        stack.append((name, True))
        stack.extend((operand, False) for operand in reversed(named[name].operands))
    return [op for op in order.values() if op.operands]


def _prospective(leaves: dict[str, Shape], payload: Payload, prefix: str = "") -> Iterator[Event]:
    """One new gradient per parameter."""
    for name, shape in leaves.items():
        if name not in (INPUT, RESIDUAL):
            yield _allocate(f"{prefix}{name}.gradient", shape, payload)


def _released(items: Iterable[Event | Repeat]) -> Iterator[Event | Repeat]:
    """The releases of all that some items allocate, in the same order."""
    for item in items:
        if isinstance(item, Repeat):
            inner = tuple(e for e in _released(item.events) if isinstance(e, Event))
            yield Repeat(times=item.times, events=inner, descending=item.descending)
        elif item.action == "allocate":
            yield _release(item.name)


def _blocks(n: Sizes, body: Iterable[Event | Repeat], *, descending: bool = False) -> Repeat:
    events = tuple(event for event in body if isinstance(event, Event))
    return Repeat(times=n.L, events=events, descending=descending)


def _allocate(name: str, shape: Shape, payload: Payload) -> Event:
    return Event(action="allocate", name=name, bytes=payload.of(shape, name))


def _release(name: str) -> Event:
    return Event(action="release", name=name)


def _adjoint(name: str) -> str:
    return f"{name}.adjoint"
