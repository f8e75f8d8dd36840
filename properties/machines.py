"""Stateful models: any sequence of session calls against full recomputation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logitproof.core import Code, Decoder, DecodeSession, Refusal
from logitproof.core.floats import Array
from logitproof.core.session import TokenOutput

from .compare import same_bits
from .interrupts import BLOCK_STAGES, STAGES, Interrupted, Stage
from .situations import (
    TINY,
    cached_state,
    full_logits,
    learned_state,
    shaken_decoder,
)

__all__ = ["SessionMachine"]

MOST_SESSIONS = 3
ids_or_worse = st.integers(0, TINY.vocabulary_size)  # the last one is out of bounds
prompts = st.lists(ids_or_worse, max_size=TINY.max_positions + 1)
good_ids = st.lists(st.integers(0, TINY.vocabulary_size - 1), min_size=1, max_size=3)
which = st.integers(0, MOST_SESSIONS - 1)


@dataclass
class Modelled:
    """A session, the tokens that it must hold, and the work that it must have counted."""

    session: DecodeSession
    tokens: tuple[int, ...] = ()
    prefilled: bool = False
    prompt_tokens: int = 0
    decoded_tokens: int = 0
    scores: int = 0

    def commit(self, tokens: list[int], *, decoded: bool) -> None:
        """The model's own step."""
        for token in tokens:
            self.tokens = (*self.tokens, token)
            self.prompt_tokens += not decoded
            self.decoded_tokens += decoded
            self.scores += TINY.layers * TINY.heads * len(self.tokens)
        self.prefilled = True

    def empty(self) -> None:
        """The model after a reset."""
        self.tokens, self.prefilled = (), False
        self.prompt_tokens = self.decoded_tokens = self.scores = 0

    def counters(self) -> tuple[int, ...]:
        """The counters of cache.md section 6."""
        forwards = self.prompt_tokens + self.decoded_tokens
        appends = forwards * TINY.layers
        return (
            forwards,
            self.prompt_tokens,
            self.decoded_tokens,
            appends,
            3 * appends,
            self.scores,
        )


class SessionMachine(RuleBasedStateMachine):
    """Prefill, extend, decode, truncate, reset, fork, fail, close, continue, update: the last
    logits are those of one full forward over the tokens held, and a refused call changes nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.decoder: Decoder = shaken_decoder(TINY)
        self.open: list[Modelled] = []
        self.closed: list[tuple[Modelled, int]] = []  # with the revision of its cache
        self.known: dict[tuple[int, tuple[int, ...]], Array] = {}

    @initialize()
    def start(self) -> None:
        """One session over a decoder with gradients."""
        self.decoder.loss([[0, 1, 2]], [[1, 2, 3]]).backward()
        self.learned = learned_state(self.decoder)
        self.open.append(Modelled(DecodeSession(self.decoder)))

    def chosen(self, index: int) -> Modelled:
        """One of the open sessions."""
        return self.open[index % len(self.open)]

    def full(self, tokens: tuple[int, ...]) -> Array:
        """The last logits of a full forward over these tokens."""
        key = (self.decoder.table.revision, tokens)
        if key not in self.known:
            self.known[key] = full_logits(self.decoder, tokens)[-1]
        return self.known[key]

    def refused(self, modelled: Modelled, code: Code, call: Callable[[], object]) -> None:
        """The call refuses with this code and leaves its session as it was."""
        before = cached_state(modelled.session)
        found: Code | None = None
        try:
            call()
        except Refusal as refusal:
            found = refusal.code
        assert found == code, f"{found} instead of {code}"
        assert cached_state(modelled.session) == before

    def accepted(self, modelled: Modelled, output: TokenOutput) -> None:
        """The newest output agrees with the model after its step."""
        assert same_bits(output.logits, self.full(modelled.tokens))
        length = len(modelled.tokens)
        newest = (length - 1, length, TINY.layers * TINY.heads * length)
        assert (output.position, output.length, output.score_values) == newest

    @precondition(lambda self: self.open)
    @rule(index=which, ids=good_ids)
    def read(self, index: int, ids: list[int]) -> None:
        """Prompt tokens that fit."""
        held = self.with_room(index)
        call = held.session.extend if held.prefilled else held.session.prefill
        self.take(held, (), ids[: TINY.max_positions - len(held.tokens)], call)

    @precondition(lambda self: self.open)
    @rule(index=which, token=st.integers(0, TINY.vocabulary_size - 1))
    def write(self, index: int, token: int) -> None:
        """A decoded token that fits."""
        held = self.with_room(index)
        if held.prefilled:
            self.decode(held, token)

    def with_room(self, index: int) -> Modelled:
        """An open session, truncated where it is full."""
        held = self.chosen(index)
        if len(held.tokens) == TINY.max_positions:
            held.session.truncate(2)
            held.tokens = held.tokens[:2]
        return held

    @precondition(lambda self: self.open)
    @rule(index=which, ids=prompts, name=st.sampled_from(("prefill", "extend", "decode")))
    def ask(self, index: int, ids: list[int], name: str) -> None:
        """Any ids by any call: taken, or the refusal that comes first."""
        held = self.chosen(index)
        {"prefill": self.prefill, "extend": self.extend}.get(name, self.decode_first)(held, ids)

    def prefill(self, held: Modelled, ids: list[int]) -> None:
        """A prompt into an empty cache."""
        rules = (
            (not ids, Code.EMPTY_PROMPT),
            (held.prefilled, Code.PREFILL_REQUIRES_EMPTY),
            (len(ids) > TINY.max_positions, Code.PROMPT_TOO_LONG),
            (TINY.vocabulary_size in ids, Code.PROMPT_TOKEN_OUT_OF_BOUNDS),
        )
        self.take(held, rules, ids, held.session.prefill)

    def extend(self, held: Modelled, ids: list[int]) -> None:
        """More prompt."""
        rules = (
            (not held.prefilled, Code.EXTEND_REQUIRES_PREFILL),
            (not ids, Code.EMPTY_EXTENSION),
            (len(held.tokens) + len(ids) > TINY.max_positions, Code.EXTENSION_TOO_LONG),
            (TINY.vocabulary_size in ids, Code.EXTENSION_TOKEN_OUT_OF_BOUNDS),
        )
        self.take(held, rules, ids, held.session.extend)

    def decode_first(self, held: Modelled, ids: list[int]) -> None:
        """The first of the ids; without any, one that is out of bounds."""
        self.decode(held, ids[0] if ids else TINY.vocabulary_size)

    def take(
        self,
        held: Modelled,
        rules: tuple[tuple[bool, Code], ...],
        ids: list[int],
        call: Callable[[object], TokenOutput],
    ) -> None:
        """Call with the ids: the first false rule refuses, else the model commits them."""
        code = next((code for broken, code in rules if broken), None)
        if code is not None:
            self.refused(held, code, lambda: call(ids))
            return
        output = call(ids)
        held.commit(ids, decoded=False)
        self.accepted(held, output)

    def decode(self, held: Modelled, token: int) -> None:
        """One token."""
        rules = (
            (not held.prefilled, Code.DECODE_REQUIRES_PREFILL),
            (token == TINY.vocabulary_size, Code.DECODE_TOKEN_OUT_OF_BOUNDS),
            (len(held.tokens) == TINY.max_positions, Code.FULL),
        )
        code = next((code for broken, code in rules if broken), None)
        if code is not None:
            self.refused(held, code, lambda: held.session.decode(token))
            return
        output = held.session.decode(token)
        held.commit([token], decoded=True)
        self.accepted(held, output)

    @precondition(lambda self: self.open)
    @rule(
        index=which,
        alone=st.one_of(st.just(STAGES[-1]), st.sampled_from(STAGES)),
        together=st.one_of(st.just(BLOCK_STAGES[-1]), st.sampled_from(BLOCK_STAGES)),
        layer=st.integers(0, TINY.layers - 1),
        late=st.booleans(),
    )
    def fail(self, index: int, alone: Stage, together: Stage, layer: int, late: bool) -> None:
        """A failure inside a token of whatever call is allowed; nothing may remain of it."""
        held = self.chosen(index)
        room = TINY.max_positions - len(held.tokens)
        if not room:
            return
        ids = [1] * min(2, room)
        before = cached_state(held.session)
        token = len(ids) - 1 if late else 0
        reached, decoded = False, held.prefilled and token == 0
        stage = alone if decoded or len(ids) == 1 else together
        try:
            with stage.failing(layer=layer, layers=TINY.layers, token=token):
                if decoded:
                    held.session.decode(1)
                else:
                    (held.session.extend if held.prefilled else held.session.prefill)(ids)
        except Interrupted:
            reached = True
        assert reached, f"{stage} was never reached"
        assert cached_state(held.session) == before

    @precondition(lambda self: self.open)
    @rule(index=which, length=st.integers(-1, TINY.max_positions + 1))
    def truncate(self, index: int, length: int) -> None:
        """Rows forgotten, or a length that is refused."""
        held = self.chosen(index)
        if not 0 <= length <= len(held.tokens):
            code = Code.TRUNCATE_LENGTH_OUT_OF_RANGE
            self.refused(held, code, lambda: held.session.truncate(length))
            return
        held.session.truncate(length)
        held.tokens = held.tokens[:length]
        if not length:
            held.empty()

    @precondition(lambda self: self.open)
    @rule(index=which)
    def reset(self, index: int) -> None:
        """Everything forgotten."""
        held = self.chosen(index)
        held.session.reset()
        held.empty()

    @precondition(lambda self: 0 < len(self.open) < MOST_SESSIONS)
    @rule(index=which)
    def fork(self, index: int) -> None:
        """Another session that goes its own way from here."""
        held = self.chosen(index)
        twin = Modelled(**{**vars(held), "session": held.session.fork()})
        self.open.append(twin)

    @precondition(lambda self: self.open)
    @rule(index=which)
    def close(self, index: int) -> None:
        """The session ends; its cache stays."""
        held = self.chosen(index)
        held.session.close()
        self.refused(held, Code.SESSION_CLOSED, lambda: held.session.decode(0))
        self.open.remove(held)
        self.closed.append((held, self.decoder.table.revision))

    @precondition(lambda self: self.closed and len(self.open) < MOST_SESSIONS)
    @rule()
    def go_on(self) -> None:
        """A new session over a closed one's cache, if nothing was updated since."""
        held, revision = self.closed.pop()
        if revision != self.decoder.table.revision:
            code = Code.MODEL_PARAMETER_REVISION_MISMATCH
            self.refused(held, code, lambda: DecodeSession(self.decoder, held.session.cache))
            return
        held.session = DecodeSession(self.decoder, held.session.cache)
        self.open.append(held)

    @precondition(lambda self: not self.open)
    @rule()
    def begin(self) -> None:
        """A fresh session."""
        self.open.append(Modelled(DecodeSession(self.decoder)))

    @rule(shift=st.sampled_from((-0.25, 0.5)))
    def update(self, shift: float) -> None:
        """An optimizer's write to the table: refused while any session lives."""
        table = self.decoder.table
        if self.open:
            value = table.value + shift
            self.refused(self.open[0], Code.VALUE_BORROWED, lambda: table.assign(value))
            return
        table.assign(np.clip(table.value + shift, -2.0, 2.0))
        self.learned = learned_state(self.decoder)

    @invariant()
    def agrees(self) -> None:
        """Lengths and counters are the model's; no parameter and no gradient moved."""
        for held in self.open:
            cache = held.session.cache
            assert (cache.length, cache.prefill_complete) == (len(held.tokens), held.prefilled)
            assert {layer.length for layer in cache.layers} == {cache.length}
            assert astuple(cache.work) == held.counters()
        if self.open:
            assert learned_state(self.decoder) == self.learned

    def teardown(self) -> None:
        """No session outlives its machine."""
        for held in self.open:
            held.session.close()
