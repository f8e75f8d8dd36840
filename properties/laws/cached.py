"""Cached decoding against the truth: what any decoder with a cache can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import Any

from .law import Finding, Law
from .precision import answered
from .protocol import Capable
from .regimes import TruthCase, truth_cases
from .truth import CLASS, DECLARED_CLASS, Compared, judged, largest

__all__ = ["LAWS", "cached_logits"]

SHORT = 5  # tokens of a text of which every split is tried


def _texts(count: int) -> Iterator[TruthCase]:
    """The cases of ordinary text: a session begins at position 0."""
    return (case for case in truth_cases(count) if case.layout is None)


def _opened(session: Any) -> AbstractContextManager[Any]:
    """A session that must be closed is."""
    return session if hasattr(session, "__exit__") else nullcontext(session)


def _scripts(T: int) -> Iterator[tuple[int, ...]]:
    """Each a prompt's size and the sizes of what comes after it, up to T; -1 is a token decoded.

    All there are of a short text: a chunk may come after decoded tokens, and after another chunk.
    """
    if T > SHORT:
        half, third = T // 2, T // 3
        yield (T,)
        yield (1, *[-1] * (T - 1))
        yield (half, third, *[-1] * (T - half - third))
        yield (1, third, -1, third, *[-1] * (T - 2 - 2 * third))
        return
    for prompt in range(1, T + 1):
        yield from ((prompt, *after) for after in _afterwards(T - prompt))


def _afterwards(tokens: int) -> Iterator[tuple[int, ...]]:
    """Every way to decode tokens, alone or in chunks of at least two."""
    if tokens == 0:
        yield ()
        return
    for size in (-1, *range(2, tokens + 1)):
        yield from ((size, *after) for after in _afterwards(tokens - abs(size)))


def _told(script: tuple[int, ...]) -> str:
    prompt, *after = script
    return ", ".join([f"{prompt} prefilled", *_runs(after)])


def _runs(sizes: list[int]) -> Iterator[str]:
    """Decoded tokens are counted together."""
    for size, same in groupby(sizes):
        times = len(list(same))
        yield f"{times} decoded" if size < 0 else ", ".join([f"{size} in a chunk"] * times)


def _row(implementation: Capable, output: Any, case: TruthCase) -> Any:
    """[V]: what one step gave. Raises TypeError for another shape or type."""
    row, V = answered(implementation, output.logits), case.config.vocabulary_size
    if row.shape != (V,):
        raise TypeError(f"a step gave logits of shape {list(row.shape)}, not [{V}]")
    return row


def _steps(session: Any, ids: Sequence[int], script: tuple[int, ...]) -> Iterator[tuple[int, Any]]:
    """How many tokens are read, and the output, after each step."""
    done = 0
    for step, size in enumerate(script):
        tokens = ids[done : done + abs(size)]
        done += len(tokens)
        if step == 0:
            yield done, session.prefill(tokens)
        else:
            yield done, session.decode(*tokens) if size < 0 else session.extend(tokens)


def cached_logits(implementation: Capable, case: TruthCase) -> Finding:
    """Each split of the first row; what it does not ask for counts as right."""

    def ask(case: TruthCase) -> Iterable[Compared]:
        answer, ids = case.truth.logits, case.ids[0]
        for script in _scripts(len(ids)):
            actual = answer.doubles[0].copy()
            with _opened(implementation.session()) as session:
                for done, output in _steps(session, ids, script):
                    actual[0, done - 1] = _row(implementation, output, case)
            yield Compared(f"{_told(script)}: logits", answer, actual, largest(answer))

    return judged(implementation, case, ask)


LAWS = (
    Law(
        id="truth.cached-logits",
        statement="However a text is split into prompt, chunk and decoded tokens, each logit that a"
        " session gives lies as near to its true value as rounding must leave it.",
        source=f"{CLASS}, cache.md section 6; cases: kv-offset-stale-chunk, kv-prefill-no-mask",
        needs=("decode",),
        levels=("decode",),
        faults=(
            "decode-one-position-late",
            "chunk-keeps-first-offset",
            "last-key-window",
            "chunk-after-decoded-reversed",
        ),
        grants=DECLARED_CLASS,
        cases=_texts,
        check=cached_logits,
    ),
)
