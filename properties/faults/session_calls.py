"""Faults of a session's calls: what they tell, what they count, and whom they hold."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import partial
from typing import Any

from logitproof.core.cache import KvCache, LayerCache, WorkCounters
from logitproof.core.session import BLOCK_TOKENS, DecodeSession, TokenOutput
from logitproof.core.tape import Parameter

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake", source="cache.md section 6")


@mistake((DecodeSession, "_commit_rows"))
def chunk_after_decode_counted_decoded(right: Any) -> Any:
    """Once a session has decoded, the tokens of its chunks are counted as decoded too."""

    def commit_rows(self: DecodeSession, rows: Any) -> TokenOutput:
        before = self.work
        output: TokenOutput = right(self, rows)
        if before.decode_tokens:
            read = self.work.prefill_tokens - before.prefill_tokens
            self.cache.work = replace(
                self.work,
                prefill_tokens=before.prefill_tokens,
                decode_tokens=before.decode_tokens + read,
            )
        return output

    return commit_rows


@mistake((DecodeSession, "extend"))
def chunk_after_decode_reversed(right: Any) -> Any:
    """Once a session has decoded, it reads its chunks from the end."""
    return lambda self, ids: right(self, ids[::-1] if self.work.decode_tokens else ids)


@mistake((DecodeSession, "_prompt"), source="cache.md section 3")
def prompt_loses_a_token_between_blocks(right: Any) -> Any:
    """Between two blocks of tokens that are computed at once, one is lost."""

    def prompt(self: DecodeSession, tokens: list[int]) -> TokenOutput:
        kept = [token for t, token in enumerate(tokens) if (t + 1) % (BLOCK_TOKENS + 1)]
        output: TokenOutput = right(self, kept)
        return output

    return prompt


@mistake((DecodeSession, "truncate"), source="cases: kv-trim-contract")
def truncate_clears_counters(right: Any) -> Any:
    """Forgetting some rows forgets all work."""

    def truncate(self: DecodeSession, length: int) -> None:
        right(self, length)
        self.cache.work = WorkCounters()

    return truncate


@mistake((DecodeSession, "truncate"), source="cases: kv-trim-contract")
def truncate_to_nothing_is_no_reset(right: Any) -> Any:
    """A session without rows goes on as one that has read its prompt, and counts on."""

    def truncate(self: DecodeSession, length: int) -> None:
        work, complete = self.work, self.cache.prefill_complete
        right(self, length)
        if length == 0:
            self.cache.rewind(0, work, complete=complete)

    return truncate


@mistake((DecodeSession, "_commit"))
def score_values_told_of_one_layer(right: Any) -> Any:
    """The output tells the score values of one layer; the counter is right."""

    def commit(self: DecodeSession, tickets: Any, *rest: Any, **given: Any) -> TokenOutput:
        output: TokenOutput = right(self, tickets, *rest, **given)
        return replace(output, score_values=output.score_values // max(1, len(tickets)))

    return commit


@mistake((DecodeSession, "_commit"))
def length_told_before_the_token(right: Any) -> Any:
    """The output tells the length that the cache had before its token."""

    def commit(self: DecodeSession, *given: Any, **named: Any) -> TokenOutput:
        length = self.length
        output: TokenOutput = right(self, *given, **named)
        return replace(output, length=length)

    return commit


@mistake((DecodeSession, "extend"))
def chunk_told_where_it_began(right: Any) -> Any:
    """The output of a chunk tells the position of its first token."""

    def extend(self: DecodeSession, ids: object) -> TokenOutput:
        position = self.length
        output: TokenOutput = right(self, ids)
        return replace(output, position=position)

    return extend


@mistake((KvCache, "copy"))
def fork_clears_counters(right: Any) -> Any:
    """A fork has the rows of its original, and has counted nothing."""

    def copy(self: KvCache) -> KvCache:
        twin: KvCache = right(self)
        twin.work = WorkCounters()
        return twin

    return copy


@mistake((DecodeSession, "__init__"), (DecodeSession, "fork"), source="cache.md section 1")
def continued_cache_clears_counters(right_init: Any, right_fork: Any) -> Any:
    """A session over the cache of an ended one counts from zero; a fork counts on."""

    def init(self: DecodeSession, decoder: Any, cache: KvCache | None = None) -> None:
        right_init(self, decoder, cache)
        self.cache.work = WorkCounters()

    def fork(self: DecodeSession) -> DecodeSession:
        twin: DecodeSession = right_fork(self)
        twin.cache.work = self.work
        return twin

    return init, fork


@mistake((DecodeSession, "fork"), source="cache.md section 1")
def fork_guards_nothing(right: Any) -> Any:
    """A fork relies on the guards of its original."""

    def fork(self: DecodeSession) -> DecodeSession:
        twin: DecodeSession = right(self)
        for parameter in self.decoder.parameters.values():
            parameter.let_go()
        twin._release.detach()
        twin._release = weakref.finalize(
            twin, lambda parameters, cache: cache.let_go(), [], twin.cache
        )
        return twin

    return fork


@mistake((Parameter, "let_go"), source="cache.md section 1")
def first_end_frees_parameters(_: Any) -> Any:
    """A parameter knows only that it is read, not by how many: the first end frees it."""

    def let_go(self: Parameter) -> None:
        self._readers = 0

    return let_go


@mistake((LayerCache, "keys"), source="cache.md section 1")
def keys_told_are_values(_: Any) -> Any:
    """The keys that a layer's cache gives to the outside are its values."""
    return property(lambda self: self.values)


FAULTS = tuple(_FOUND.values())
