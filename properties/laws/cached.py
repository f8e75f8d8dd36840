"""Cached decoding against the truth: what any decoder with a cache can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .law import Finding, Law
from .precision import answered
from .protocol import Capable
from .regimes import TruthCase, truth_cases
from .truth import CLASS, DECLARED_CLASS, Compared, judged, largest

__all__ = ["LAWS", "cached_logits"]


def _texts(count: int) -> Iterator[TruthCase]:
    """The cases of ordinary text: a session begins at position 0."""
    return (case for case in truth_cases(count) if case.layout is None)


def _opened(session: Any) -> AbstractContextManager[Any]:
    """A session that must be closed is."""
    return session if hasattr(session, "__exit__") else nullcontext(session)


def _splits(T: int) -> Iterator[tuple[int, int]]:
    """How many tokens are prefilled, and how many come in a chunk after them."""
    yield from ((prompt, 0) for prompt in range(1, T + 1))
    yield from ((prompt, T - prompt) for prompt in range(1, T))
    yield from ((1, chunk) for chunk in range(1, T - 1))


def _row(implementation: Capable, output: Any, case: TruthCase) -> Any:
    """[V]: what one step gave. Raises TypeError for another shape or type."""
    row, V = answered(implementation, output.logits), case.config.vocabulary_size
    if row.shape != (V,):
        raise TypeError(f"a step gave logits of shape {list(row.shape)}, not [{V}]")
    return row


def cached_logits(implementation: Capable, case: TruthCase) -> Finding:
    """Each split of the first row; what it does not ask for counts as right."""

    def ask(case: TruthCase) -> Iterable[Compared]:
        answer, ids = case.truth.logits, case.ids[0]
        for prompt, chunk in _splits(len(ids)):
            actual = answer.doubles[0].copy()
            with _opened(implementation.session()) as session:
                actual[0, prompt - 1] = _row(implementation, session.prefill(ids[:prompt]), case)
                done = prompt + chunk
                if chunk:
                    actual[0, done - 1] = _row(
                        implementation, session.extend(ids[prompt:done]), case
                    )
                for t in range(done, len(ids)):
                    actual[0, t] = _row(implementation, session.decode(ids[t]), case)
            what = f"{prompt} prefilled, {chunk} in a chunk, {len(ids) - done} decoded: logits"
            yield Compared(what, answer, actual, largest(answer))

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
        ),
        grants=DECLARED_CLASS,
        cases=_texts,
        check=cached_logits,
    ),
)
