"""The three execution modes as schedules of allocations, uses and releases."""

from collections.abc import Iterable, Iterator
from typing import Final

from . import schedule, shapes, sizes
from .liveness import Event, Repeat
from .schedule import INPUT, LOGITS, RESIDUAL, Op, Section, Shape, Sizes
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

    def workspace(self, arrays: Iterable[Shape], name: str) -> Quantity:
        """The bytes that an operation declares beside its value."""
        if not self.declares_workspace:
            return UNKNOWN
        return sizes.payload_sum(*(self.of(shape, name) for shape in arrays), what=name)


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
    head, loss = schedule.head(n), schedule.loss(n)
    forward: Schedule = (
        *_forward(lookup, payload, recording=True),
        _blocks(n, _forward(block, payload, _BLOCK, recording=True)),
        *_forward(head, payload, recording=True),
        *_forward(loss, payload, recording=True),
    )
    met = {_adjoint("loss")}
    backward: Schedule = (
        _allocate(_adjoint("loss"), (), payload),
        *_backward(loss, payload, met),
        *_backward(head, payload, met),
        _blocks(n, _backward(block, payload, {_adjoint("output")}, _BLOCK), descending=True),
        *_backward(lookup, payload, met),
    )
    outer = {shapes.TABLE: lookup.leaves[shapes.TABLE], **head.leaves}
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


def untracked(n: Sizes, payload: Payload) -> Schedule:
    """Inspectable values live until the result is dropped; no graph and no adjoints."""
    forward: Schedule = (
        *_forward(schedule.embedding(n), payload),
        _blocks(n, _forward(schedule.block(n), payload, _BLOCK)),
        *_forward(schedule.head(n), payload),
    )
    return (*forward, *_released(forward))


def cached(n: Sizes, payload: Payload) -> Schedule:
    """The token at the last position: full caches of one row, tickets until the commit."""
    one = schedule.one_token(n)
    block = schedule.cached_block(one)
    cache = _allocate("kv_cache", (2, n.L, n.C, n.K), payload)
    values = tuple(_forward(block, payload, _BLOCK))
    kept = {_BLOCK + name for name in (*schedule.TICKET, block.output)}
    body = (
        *values,
        *_released(event for event in values if event.name not in kept),
        Event(action="release", name=RESIDUAL),
        Event(action="rename", name=RESIDUAL, of=_BLOCK + block.output),
    )
    tickets = [event for event in values if event.name in kept and event.name != _BLOCK + "output"]
    head = tuple(_forward(schedule.head(one), payload))
    commit = Event(action="use", name="commit")
    return (
        cache,
        *_forward(schedule.embedding(one), payload),
        Event(action="rename", name=RESIDUAL, of="embeddings"),
        _blocks(n, body),
        *head,
        commit,
        _blocks(n, _released(tickets)),
        *_released(head),
        Event(action="release", name=RESIDUAL),
        Event(action="release", name=cache.name),
    )


def _forward(
    section: Section, payload: Payload, prefix: str = "", *, recording: bool = False
) -> Iterator[Event]:
    """Every value; what the reverse pass needs is kept, or given up with the operation."""
    for op in section.ops:
        name = prefix + op.name
        yield Event(
            action="allocate",
            name=name,
            bytes=payload.of(op.shape, name),
            workspace=payload.workspace((*op.scratch, *op.saved), name),
        )
        for i, shape in enumerate(op.saved if recording else ()):
            yield _allocate(f"{name}.saved.{i}", shape, payload)


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
            workspace=payload.workspace(_contributions(op, operands), name),
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


def _contributions(op: Op, operands: dict[str, Shape]) -> list[Shape]:
    """Arrays of one reverse rule: every contribution, before and after its reduction, and a sum."""
    own = [operands[name] for name in op.operands]
    if op.kind == "matmul":
        unreduced = [(*op.shape[: -len(shape)], *shape) for shape in own if len(shape) == 2]
    else:
        unreduced = [op.shape for _ in own]
    return [*own, *unreduced, max(own, key=_elements, default=())]


def _elements(shape: Shape) -> int:
    return sizes.product(shape, what="shape", label="elements")


def _prospective(leaves: dict[str, Shape], payload: Payload, prefix: str = "") -> Iterator[Event]:
    """One new gradient per parameter."""
    for name, shape in leaves.items():
        if name not in (INPUT, RESIDUAL, LOGITS):
            yield _allocate(f"{prefix}{name}.gradient", shape, payload)


def _released(items: Iterable[Event | Repeat]) -> Iterator[Event | Repeat]:
    """The releases of all that some items allocate, in the same order."""
    for item in items:
        if isinstance(item, Repeat):
            inner = tuple(e for e in _released(item.events) if isinstance(e, Event))
            yield Repeat(times=item.times, events=inner, descending=item.descending)
        elif item.action == "allocate":
            yield Event(action="release", name=item.name)


def _blocks(n: Sizes, body: Iterable[Event | Repeat], *, descending: bool = False) -> Repeat:
    events = tuple(event for event in body if isinstance(event, Event))
    return Repeat(times=n.L, events=events, descending=descending)


def _allocate(name: str, shape: Shape, payload: Payload) -> Event:
    return Event(action="allocate", name=name, bytes=payload.of(shape, name))


def _adjoint(name: str) -> str:
    return f"{name}.adjoint"
