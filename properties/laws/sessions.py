"""Laws over cached decoding: whatever the calls, a session is full recomputation, bit for bit."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .cases import Case, full_cases
from .components import Components
from .difference import Difference, doubles, first_difference
from .drawn import answered, equal, first, refused
from .law import Law

__all__ = ["LAWS"]

POISONS = (1e300, -math.inf, math.nan)
OVERFLOWING = 1e200  # a table row whose squares overflow in the first norm


def _load(implementation: Components, case: Case) -> None:
    implementation.load(case.config, case.weights)


def _full(implementation: Components, ids: Sequence[int]) -> Any:
    """[T, V]: the full forward."""
    return doubles(implementation.logits([list(ids)]))[0]


def _row(case: Case) -> list[int]:
    """At least two ids where the capacity allows it."""
    C, V = case.config.max_positions, case.config.vocabulary_size
    row = list(case.ids[0])
    return row if len(row) > 1 else [*row, (row[0] + 1) % V][:C]


def _other(case: Case, ids: Sequence[int]) -> list[int]:
    return [(i + 1) % case.config.vocabulary_size for i in ids]


def _continued(
    session: Any, ids: Sequence[int], full: Any, what: str
) -> Iterator[Difference | None]:
    """Decodes the ids from the session's length on, against the full forward's rows."""
    for t in range(session.length, len(ids)):
        output = session.decode(ids[t])
        yield equal(f"{what}: position", t, output.position)
        yield first_difference(f"{what}: logits of position {t}", full[t], output.logits)


def _splits(implementation: Components, case: Case) -> Difference | None:
    _load(implementation, case)
    ids = _row(case)
    full = _full(implementation, ids)

    def one(prompt: int, chunk: int) -> Iterator[Difference | None]:
        what = f"{prompt} prefilled, {chunk} more in a chunk, {len(ids) - prompt - chunk} decoded"
        with implementation.session() as session:
            newest = session.prefill(ids[:prompt])
            yield first_difference(f"{what}: prompt", full[prompt - 1], newest.logits)
            if chunk:
                newest = session.extend(ids[prompt : prompt + chunk])
                yield first_difference(f"{what}: chunk", full[prompt + chunk - 1], newest.logits)
            yield from _continued(session, ids, full, what)
            yield equal(
                f"{what}: counted", _work(case, len(ids), prompt + chunk), _counted(session)
            )

    splits = (
        (prompt, chunk)
        for prompt in range(1, len(ids) + 1)
        for chunk in range(len(ids) - prompt + 1)
    )
    return first(d for split in splits for d in one(*split))


def _work(case: Case, tokens: int, prompt: int) -> tuple[int, ...]:
    """Work of the tokens of one run, by section 6 of cache.md, one token at a time."""
    L, heads = case.config.layers, case.config.heads
    counts = [0] * 6
    for position in range(tokens):
        decoded = position >= prompt
        added = (1, int(not decoded), int(decoded), L, 3 * L, L * heads * (position + 1))
        counts = [c + a for c, a in zip(counts, added, strict=True)]
    return tuple(counts)


def _counted(session: Any) -> tuple[int, ...]:
    work = session.work
    return (
        work.token_forwards,
        work.prefill_tokens,
        work.decode_tokens,
        work.cache_appends,
        work.qkv_projection_rows,
        work.attention_score_values,
    )


def _truncate(implementation: Components, case: Case) -> Difference | None:
    _load(implementation, case)
    ids = _row(case)
    T = len(ids)

    def one(length: int) -> Iterator[Difference | None]:
        changed = [*ids[:length], *_other(case, ids[length:])]
        full = _full(implementation, changed)
        with implementation.session() as session:
            session.prefill(ids)
            session.truncate(length)
            yield equal(f"length after truncating to {length}", length, session.length)
            yield from _continued(session, changed, full, f"truncated to {length}")

    def wrong() -> Iterator[Difference | None]:
        with implementation.session() as session:
            session.prefill(ids)
            before = implementation.rows(session)
            for length in (-1, T + 1):
                code = "index/truncate-length-out-of-range"
                call = lambda n=length: session.truncate(n)  # noqa: E731
                yield refused(f"truncating {T} rows to {length}", code, call)
            yield equal("rows after refusals", before, implementation.rows(session))
            session.reset()
            full = _full(implementation, ids)
            yield first_difference("after a reset", full[-1], session.prefill(ids).logits)
            yield equal("counted after a reset", _work(case, T, T), _counted(session))

    return first(d for length in range(1, T) for d in one(length)) or first(wrong())


def _fork(implementation: Components, case: Case) -> Difference | None:
    """Two sessions from one prompt go their own ways in turn, the copy first."""
    _load(implementation, case)
    ids = _row(case)

    def one(shared: int) -> Iterator[Difference | None]:
        changed = [*ids[:shared], *_other(case, ids[shared:])]
        full, other = _full(implementation, ids), _full(implementation, changed)
        with implementation.session() as session:
            session.prefill(ids[:shared])
            with session.fork() as twin:
                for t in range(shared, len(ids)):
                    end = t + 1
                    yield from _continued(twin, changed[:end], other, f"fork of {shared} rows")
                    yield from _continued(session, ids[:end], full, f"original of {shared} rows")

    return first(d for shared in range(1, len(ids)) for d in one(shared))


def _failed_steps(implementation: Components, case: Case) -> Difference | None:
    """A token whose forward overflows is refused by every call, and leaves no trace."""
    _load(implementation, case)
    ids = _row(case)
    bad = case.config.vocabulary_size - 1
    good = [i if i != bad else 0 for i in ids]
    table = np.array(case.weights["token_embedding.weight"])
    table[bad] = OVERFLOWING
    implementation.assign("token_embedding.weight", table)
    code = "numeric/non-finite-forward"
    prompt = good[:1]

    def steps() -> Iterator[Difference | None]:
        with implementation.session() as session:
            empty = implementation.rows(session)
            wrong = [*prompt, bad][-case.config.max_positions :]
            yield refused("a prompt that overflows", code, lambda: session.prefill(wrong))
            yield equal("rows after a failed prompt", empty, implementation.rows(session))
            expected = session.prefill(prompt).logits
            held = implementation.rows(session)
            if case.config.max_positions > 1:
                yield refused("a decoded token that overflows", code, lambda: session.decode(bad))
                yield equal("rows after a failed token", held, implementation.rows(session))
            if case.config.max_positions > 2:
                chunk = [prompt[0], bad]
                yield refused("a chunk that overflows", code, lambda: session.extend(chunk))
                yield equal("rows after a failed chunk", held, implementation.rows(session))
            unknown = "index/decode-token-out-of-bounds"
            yield refused("an unknown id", unknown, lambda: session.decode(bad + 1))
            yield equal("rows after an unknown id", held, implementation.rows(session))
            session.reset()
            yield first_difference("a retry", expected, session.prefill(prompt).logits)

    return first(steps())


def _binding(implementation: Components, case: Case) -> Difference | None:
    """Parameters stand still under a session; a cache ends with the values that made it."""
    _load(implementation, case)
    ids = _row(case)
    name = "final_norm.gain"
    value = np.array(case.weights[name])

    def steps() -> Iterator[Difference | None]:
        full = _full(implementation, ids)
        with implementation.session() as session:
            session.prefill(ids[:1])
            yield refused("an update under a session", "state/value-borrowed",
                          lambda: implementation.assign(name, value))  # fmt: skip
        with implementation.resumed(session) as again:
            yield from _continued(again, ids, full, "in a second session")
        implementation.assign(name, value)
        code = "binding/model-parameter-revision-mismatch"
        yield refused("rows of older parameters", code, lambda: implementation.resumed(session))
        implementation.assign(name, -2.0 * value)
        changed = {**case.weights, name: (-2.0 * value).tolist()}
        updated = _full(implementation, ids)
        implementation.load(case.config, changed)
        yield first_difference("after an update", _full(implementation, ids), updated)

    return first(steps())


def _tied_update(implementation: Components, case: Case) -> Difference | None:
    """One assignment to the table changes lookup and head together."""
    _load(implementation, case)
    name = "token_embedding.weight"
    table = -0.5 * np.array(case.weights[name])
    implementation.assign(name, table)
    updated = doubles(implementation.logits(case.ids))
    implementation.load(case.config, {**case.weights, name: table.tolist()})
    return first_difference(
        "logits after the table was assigned", doubles(implementation.logits(case.ids)), updated
    )


def _unused_rows(implementation: Components, case: Case) -> Difference | None:
    _load(implementation, case)
    ids = _row(case)
    full = _full(implementation, ids)

    def steps(poison: float) -> Iterator[Difference | None]:
        over = f"over rows of {poison}"
        with implementation.session() as session:
            newest = session.prefill(ids[:1])
            for t in range(1, len(ids)):
                implementation.poison_unused_rows(session, poison)
                newest = session.decode(ids[t])
                yield first_difference(f"position {t} {over}", full[t], newest.logits)
            session.truncate(1)
            implementation.poison_unused_rows(session, poison)
            with session.fork() as twin:
                yield from _continued(twin, ids, full, f"forked {over}")
            yield from _continued(session, ids, full, f"truncated {over}")

    return first(d for poison in POISONS for d in steps(poison))


def _law(name: str, statement: str, check: Any, *faults: str, source: str) -> Law:
    return Law(
        id=name,
        statement=statement,
        source=source,
        needs=("sessions",),
        faults=faults,
        cases=lambda count: full_cases(count, rows=1, first_seed=50_000),
        check=answered(check),
    )


LAWS = (
    _law(
        "session.splits",
        "Prompt, chunk and decoded tokens, however a text is split, have the logits of the full"
        " forward, and the work of their positions is counted.",
        _splits,
        "decode-one-position-late", "chunk-keeps-first-offset", "last-key-window",
        "cached-softmax-with-maximum", "cached-rows-in-single", "cached-contraction-by-blas",
        "score-values-of-one-head", "chunk-counted-as-decoded",
        source="numerics.md section 14, cache.md section 6; cases: kv-offset-stale-chunk,"
        " kv-window-off-by-one",
    ),
    _law(
        "session.truncate",
        "A session truncated to any length goes on as if the forgotten tokens had never been; a"
        " wrong length changes nothing; a reset begins anew.",
        _truncate,
        "truncate-lowers-one-layer", "truncate-clamps", "reset-keeps-counters",
        "truncate-keeps-position",
        source="cache.md section 7; cases: kv-trim-contract",
    ),
    _law(
        "session.fork",
        "A fork and its original go their own ways.",
        _fork,
        "fork-shares-storage", "fork-shares-lengths",
        source="cache.md section 7",
    ),
    _law(
        "session.failed-steps",
        "A token whose forward fails is refused by every call and leaves rows, lengths and counters"
        " as they were.",
        _failed_steps,
        "failed-step-stays", "token-counted-before-check",
        source="cache.md sections 3 to 5; cases: kv-failed-step-dirty",
    ),
    _law(
        "session.binding",
        "Parameters cannot be assigned under a session; rows of older parameters are refused; a"
        " later session continues a cache.",
        _binding,
        "stale-cache-accepted", "session-guards-nothing",
        source="cache.md section 2",
    ),
    _law(
        "decoder.tied-update",
        "One assignment to the table changes lookup and head together.",
        _tied_update,
        "head-keeps-first-table",
        source="inputs.md section 5; cases: tied-flag-vs-storage",
    ),
    _law(
        "poison.unused-rows",
        "What lies behind the committed rows of a cache changes no bit, be it huge or no number.",
        _unused_rows,
        "unused-rows-weighted", "unused-rows-times-zero",
        source="cache.md section 1",
    ),
)  # fmt: skip
