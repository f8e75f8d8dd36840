"""Laws over any order of a session's calls: what each answers, counts, keeps and holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from logitproof.properties.scalar import Config, Generator, ScalarDecoder

from .cases import Case
from .components import Components
from .difference import Difference, doubles, first_difference
from .drawn import answered, equal, first, refused
from .law import Law
from .telling import tells

__all__ = ["LAWS", "Call", "Held", "Script", "held_after"]

WIDTHS = ((2, 1), (4, 2), (6, 3), (4, 1))  # D, heads
MOST_SESSIONS = 4
MOST_CALLS = 16
LONG_EVERY = 4  # of so many scripts one has prompts longer than 32 tokens, which come in blocks
COUNTERS = (
    "token_forwards",
    "prefill_tokens",
    "decode_tokens",
    "cache_appends",
    "qkv_projection_rows",
    "attention_score_values",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the session with this number, which its opening gave it.

    `fork`, and `resume`, which ends a session and opens another over its cache, open the next one.
    """

    session: int
    name: str
    ids: tuple[int, ...] = ()
    length: int = 0

    def __str__(self) -> str:
        given = {"truncate": str(self.length)}.get(self.name, ", ".join(map(str, self.ids)))
        return f"{self.session}.{self.name}({given})"


class Held(NamedTuple):
    """What a session must hold: its tokens, and the work it has counted, as `COUNTERS`."""

    tokens: tuple[int, ...] = ()
    work: tuple[int, ...] = (0,) * len(COUNTERS)


State: TypeAlias = tuple[Held | None, ...]  # by number; None has ended
FRESH: State = (Held(),)


@dataclass(frozen=True, kw_only=True)
class Script:
    """A decoder and valid calls of sessions over it, whole from these fields.

    size: how many calls; it grows from one case to the next
    long: whether prompts and chunks have some tens of tokens
    """

    seed: int
    size: int
    long: bool = False

    @cached_property
    def config(self) -> Config:
        """Tiny sizes; the capacity of a long script holds several prompts of it."""
        g = Generator(self.seed)
        D, heads = WIDTHS[g.below(len(WIDTHS))]
        return Config(
            vocabulary_size=3 + g.below(8),
            model_width=D,
            heads=heads,
            feed_forward_width=1 + g.below(4),
            layers=1 if self.long else min(self.size, g.below(3)),
            max_positions=70 + g.below(71) if self.long else 3 + g.below(8),
        )

    @cached_property
    def weights(self) -> dict[str, Any]:
        """Xavier matrices, and gains between -2 and 2."""
        return Case(seed=self.seed, scale=1.0, config=self.config, ids=[], targets=[]).weights

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The first reads a prompt."""
        g, calls, states = Generator(self.seed + 1), list[Call](), FRESH
        for number in range(2 + min(self.size, MOST_CALLS)):
            calls.append(_drawn(g, self, states, begins=not number))
            states = held_after(self.config, states, calls[-1])
        return tuple(calls)

    def __str__(self) -> str:
        calls = ", ".join(map(str, self.calls))
        return f"weights Xavier from seed {self.seed}; {self.config}; calls {calls}"


def _drawn(g: Generator, script: Script, states: State, *, begins: bool) -> Call:
    """A call that an open session takes."""
    alive = [(n, held) for n, held in enumerate(states) if held is not None]
    session, held = alive[g.below(len(alive))]
    length, room = len(held.tokens), script.config.max_positions - len(held.tokens)
    names = ["truncate", "reset", "resume"]
    names += ["fork"] * (len(alive) < MOST_SESSIONS) + ["end"] * (len(alive) > 1)
    if not length:
        names += ["prefill"] * 9
    elif room:
        names += ["extend", "decode", "decode", "extend", "truncate", "extend"]
    name = "prefill" if begins else names[g.below(len(names))]
    tokens = 0
    if name in ("prefill", "extend"):
        tokens = 1 + min(room - 1, 32 + g.below(40) if script.long else g.below(4))
    elif name == "decode":
        tokens = 1
    ids = tuple(g.below(script.config.vocabulary_size) for _ in range(tokens))
    kept = g.below(1 + length) if name == "truncate" and g.below(4) else 0
    return Call(session=session, name=name, ids=ids, length=kept)


def held_after(config: Config, states: State, call: Call) -> State:
    """What all sessions must hold after a call.

    A token adds what stands in section 6 of cache.md; forgetting rows takes nothing back unless all
    of them go, and whoever continues a cache or its copy counts on.
    """
    own = states[call.session]
    assert own is not None, "an ended session is asked for nothing"
    if call.name == "fork":
        return (*states, own)
    ended = (*states[: call.session], None, *states[call.session + 1 :])
    if call.name == "resume":
        return (*ended, own)
    if call.name == "end":
        return ended
    if call.name in ("reset", "truncate"):
        now = Held(own.tokens[: call.length], own.work) if call.length else Held()
    else:
        now = own
        for token in call.ids:
            now = _with_token(config, now, token, decoded=call.name == "decode")
    return (*states[: call.session], now, *states[call.session + 1 :])


def _with_token(config: Config, held: Held, token: int, *, decoded: bool) -> Held:
    L, keys = config.layers, len(held.tokens) + 1
    added = (1, int(not decoded), int(decoded), L, 3 * L, L * config.heads * keys)
    return Held((*held.tokens, token), tuple(w + a for w, a in zip(held.work, added, strict=True)))


def _wanted(implementation: Components, texts: set[tuple[int, ...]]) -> dict[Any, Any]:
    """The last logits [V] of each text, from full forwards of those that no other one begins."""
    rows: dict[tuple[int, ...], Any] = {}
    wholes: dict[tuple[int, ...], Any] = {}
    for text in sorted(texts, key=len, reverse=True):
        whole = next((w for w in wholes if w[: len(text)] == text), text)
        if whole is text:
            wholes[text] = doubles(implementation.logits([list(text)]))[0]
        rows[text] = wholes[whole][len(text) - 1]
    return rows


def _do(implementation: Components, sessions: list[Any], call: Call) -> Any:
    """The call's output where it has one; a session that it opens comes last in the list."""
    session = sessions[call.session]
    if call.name == "resume":
        session.close()
        sessions.append(implementation.resumed(session))
    elif call.name == "fork":
        sessions.append(session.fork())
    elif call.name == "end":
        session.close()
    elif call.name == "truncate":
        session.truncate(call.length)
    elif call.name == "reset":
        session.reset()
    elif call.name == "decode":
        return session.decode(*call.ids)
    else:
        return getattr(session, call.name)(list(call.ids))
    return None


def _states(script: Script) -> list[State]:
    """What all sessions must hold after each call."""
    states = [FRESH]
    for call in script.calls:
        states.append(held_after(script.config, states[-1], call))
    return states[1:]


def _made(
    implementation: Components, script: Script, sessions: list[Any]
) -> Iterator[tuple[Call, Any, State]]:
    """Each call once it is made, its output, and what all sessions must hold then."""
    for call, state in zip(script.calls, _states(script), strict=True):
        yield call, _do(implementation, sessions, call), state


@contextmanager
def _sessions(implementation: Components, script: Script) -> Iterator[list[Any]]:
    """One session over the script's decoder, and those that are opened later; all are ended."""
    implementation.load(script.config, script.weights)
    sessions = [implementation.session()]
    try:
        yield sessions
    finally:
        for session in sessions:
            session.close()


def _phase(session: Any, held: Held, capacity: int, what: str) -> Iterator[Difference | None]:
    """What an open session refuses, by whether it has read a prompt and has room."""
    wrong: dict[str, Callable[[], Any]] = {
        "state/prefill-requires-empty": lambda: session.prefill([0])
    }
    if not held.tokens:
        wrong = {
            "state/extend-requires-prefill": lambda: session.extend([0]),
            "state/decode-requires-prefill": lambda: session.decode(0),
        }
    elif len(held.tokens) == capacity:
        wrong |= {
            "capacity/extension-too-long": lambda: session.extend([0]),
            "capacity/full": lambda: session.decode(0),
        }
    yield from (refused(f"{what}: another call", code, call) for code, call in wrong.items())
    if held.tokens:
        yield tells(
            f"{what}: another prompt",
            "state/prefill-requires-empty",
            lambda: session.prefill([0]),
            expected=0,
            actual=len(held.tokens),
        )


def _output(
    output: Any, held: Held, config: Config, full: Any, what: str
) -> Iterator[Difference | None]:
    """Every fact of the newest token. Source: cache.md section 6"""
    n = len(held.tokens)
    yield first_difference(f"{what}: logits", full, output.logits)
    yield equal(f"{what}: position told", n - 1, output.position)
    yield equal(f"{what}: length told", n, output.length)
    scores = config.layers * config.heads * n
    yield equal(f"{what}: score values told", scores, output.score_values)
    yield equal(f"{what}: whether logits have a graph", False, output.tracked)


def _calls(implementation: Components, script: Script) -> Difference | None:
    config = script.config
    texts = {h.tokens for state in _states(script) for h in state if h and h.tokens}

    def steps(sessions: list[Any]) -> Iterator[Difference | None]:
        full = _wanted(implementation, texts)
        for at, (call, output, state) in enumerate(_made(implementation, script, sessions)):
            made, asked = f"call {at}, {call.session}.{call.name}", state[call.session]
            if asked is not None and call.ids:
                yield from _output(output, asked, config, full[asked.tokens], made)
            for number, (session, held) in enumerate(zip(sessions, state, strict=True)):
                what = f"session {number} after {made}"
                if held is None:
                    closed = partial(session.decode, 0)
                    yield refused(f"{what}: a token", "state/session-closed", closed)
                    continue
                second = partial(implementation.resumed, session)
                yield refused(f"{what}: a second one", "state/cache-in-use", second)
                yield from _phase(session, held, config.max_positions, what)
                yield equal(f"{what}: length", len(held.tokens), session.length)
                work = tuple(getattr(session.work, name) for name in COUNTERS)
                yield equal(f"{what}: counted", held.work, work)

    with _sessions(implementation, script) as sessions:
        return first(steps(sessions))


def _guards(implementation: Components, script: Script) -> Difference | None:
    """After each call, and while the sessions left are ended one by one, the first one first."""
    values = {name: np.array(value) for name, value in script.weights.items()}

    def still(what: str) -> Iterator[Difference | None]:
        for name, value in values.items():
            assigned = partial(implementation.assign, name, value)
            yield refused(f"assigning {name} after {what}", "state/value-borrowed", assigned)

    def steps(sessions: list[Any]) -> Iterator[Difference | None]:
        for call, _, _ in _made(implementation, script, sessions):
            yield from still(str(call))
        left = zip(sessions, _states(script)[-1], strict=True)
        *ended, _ = (session for session, held in left if held is not None)
        for session in ended:
            session.close()
            yield from still("one end of several")

    with _sessions(implementation, script) as sessions:
        found = first(steps(sessions))
    for name, value in values.items():
        implementation.assign(name, value)
    return found


def _cached(implementation: Components, script: Script) -> Difference | None:
    config = script.config
    scalar = ScalarDecoder(config, script.weights)

    def steps(sessions: list[Any]) -> Iterator[Difference | None]:
        for _ in _made(implementation, script, sessions):
            pass
        for session, held in zip(sessions, _states(script)[-1], strict=True):
            if held is None or not held.tokens:
                continue
            (row,) = scalar.rows([list(held.tokens)])
            layers = implementation.cached(session)
            yield equal("layers with rows", config.layers, len(layers))
            for layer, (block, rows) in enumerate(zip(row.blocks, layers, strict=True)):
                for name, values in zip(("key", "value"), rows, strict=True):
                    wanted = np.array([getattr(head, name) for head in block.heads])
                    yield first_difference(f"layer {layer}, cached {name}s", wanted, values)

    with _sessions(implementation, script) as sessions:
        return first(steps(sessions))


def _scripts(first_seed: int, long_every: int = 0) -> Callable[[int], Iterator[Script]]:
    def cases(count: int) -> Iterator[Script]:
        for size in range(count):
            long = bool(long_every) and size % long_every == long_every - 1
            yield Script(seed=first_seed + size, size=size, long=long)

    return cases


LAWS = (
    Law(
        id="session.calls",
        statement="Sessions, forks and continued caches answer any calls in any order with the"
        " logits of a full forward and the facts of their newest token, count each committed token"
        " once, and refuse what their state does not allow.",
        source="cache.md sections 3, 4, 6 and 7",
        needs=("sessions",),
        faults=(
            "chunk-after-decode-counted-decoded",
            "chunk-after-decode-reversed",
            "prompt-loses-a-token-between-blocks",
            "truncate-clears-counters",
            "truncate-to-nothing-is-no-reset",
            "score-values-told-of-one-layer",
            "length-told-before-the-token",
            "chunk-told-where-it-began",
            "fork-clears-counters",
            "continued-cache-clears-counters",
        ),
        cases=_scripts(51_000, LONG_EVERY),
        check=answered(_calls),
    ),
    Law(
        id="session.guards",
        statement="No parameter can be assigned while a session over it is open, be it a fork or"
        " one that continues a cache, whichever ended before; afterwards all can.",
        source="cache.md section 1",
        needs=("sessions",),
        faults=("fork-guards-nothing", "first-end-frees-parameters"),
        cases=_scripts(52_000),
        check=answered(_guards),
    ),
    Law(
        id="session.cached-rows",
        statement="Whatever calls made them, cached rows are the turned keys and the values of the"
        " scalar decoder over the tokens held.",
        source="cache.md section 1, numerics.md section 14",
        needs=("sessions", "specified-bits"),
        faults=("keys-told-are-values",),
        cases=_scripts(53_000),
        check=answered(_cached),
    ),
)
