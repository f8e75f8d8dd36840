"""What an adapter must do before a decoder behind it can be judged: carry arrays, and forget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitproof.properties.laws.cases import Case, full_cases
from logitproof.properties.laws.levels import claimed

from .remote import AdapterFault
from .timed import contained

__all__ = ["selftest"]

Arrays = Mapping[str, NDArray[Any]]

SIZE = 40  # of the cases drawn, one with several rows, positions and layers
SPECIAL = (0.0, -0.0, 1.0, -1.5, 5e-324, -2.2250738585072014e-308, 1.7976931348623157e308,
           float("inf"), float("-inf"), 0.1, 1 / 3, 2.0**-1060)  # fmt: skip
VARIED = 8  # so many different doubles are not all float32 values by chance: 2**-29 for each


def selftest(make: Callable[[], Any]) -> str | None:
    """The first thing that the adapter does wrong, in words; None where nothing is.

    echo:          arrays come back with their bits, where the decoder is asked by messages
    determinism:   the same question twice has the same answer
    statelessness: an answer does not depend on the questions and decoders before it
    dtype:         what is called float64 has more digits than a float32

    A decoder that raises, or answers with other shapes, is left to the laws.
    """
    try:
        return contained("self-test", lambda: next(_complaints(make), None))
    except AdapterFault as fault:
        return f"{type(fault).__name__}: {fault}"


def _complaints(make: Callable[[], Any]) -> Iterator[str]:
    yield from _echo(make())
    one, other = _cases()
    again = _like(one)
    subject = make()
    first = _answers(subject, one)
    second = _answers(subject, one, load=False)
    if not _same(first, second):
        yield f"determinism: {_which(first, second)} asked for twice differ"
    after = _answers(subject, again, load=False)
    alone = _answers(make(), again)
    if not _same(after, alone):
        yield f"statelessness: {_which(after, alone)} depend on what was asked before"
    _answers(subject, other)
    back = _answers(subject, one)
    if not _same(first, back):
        yield f"statelessness: {_which(first, back)} depend on the decoder loaded before"
    yield from _dtype({**first, **{f"{name} again": value for name, value in after.items()}})


def _cases() -> tuple[Case, Case]:
    """Two decoders with layers and several frequencies; their sizes and rotations differ."""
    drawn = [
        case
        for case in full_cases(SIZE)
        if case.config.layers and case.config.head_width > 2 and len(case.ids[0]) > 2
    ]
    one = drawn[0]
    others = (c for c in drawn if c.config.rope_base != one.config.rope_base)
    return one, next(c for c in others if c.config.model_width != one.config.model_width)


def _like(case: Case) -> Case:
    """The same decoder, sizes and targets with other ids."""
    V = case.config.vocabulary_size
    ids = [[(i + 1) % V for i in row] for row in case.ids]
    return Case(seed=case.seed, scale=case.scale, config=case.config, ids=ids, targets=case.targets)


def _echo(subject: Any) -> Iterator[str]:
    if not hasattr(subject, "echo"):
        return
    for sent in (np.array(SPECIAL), np.array(SPECIAL[:6]).reshape(1, 2, 3), np.zeros((0, 2))):
        back = np.asarray(subject.echo(sent))
        if back.dtype != sent.dtype or back.shape != sent.shape:
            kinds = [f"{a.dtype} {list(a.shape)}" for a in (sent, back)]
            yield f"echo: {kinds[0]} comes back as {kinds[1]}"
        elif back.tobytes() != sent.tobytes():
            at = next(
                i for i in range(sent.size) if back.flat[i].tobytes() != sent.flat[i].tobytes()
            )
            yield f"echo: {sent.flat[at]!r} comes back as {back.flat[at]!r}"


def _answers(subject: Any, case: Case, *, load: bool = True) -> Arrays:
    """What is claimed, by name; without what the decoder raises on."""
    if load:
        subject.load(case.config, case.weights)
    answers: dict[str, NDArray[Any]] = {}

    def logits() -> None:
        answers["logits"] = np.array(subject.logits(case.ids))

    def loss() -> None:
        value, gradients = subject.loss_and_gradients(case.ids, case.targets)
        answers["losses"] = np.array(value)
        if claimed(subject, "gradients"):
            answers.update({f"gradients of {n}": np.array(g) for n, g in gradients.items()})

    for level, ask in (("forward", logits), ("loss", loss)):
        if claimed(subject, level):
            _unless_it_fails(ask)
    return answers


def _unless_it_fails(ask: Callable[[], None]) -> None:
    try:
        ask()
    except AdapterFault:
        raise
    except Exception:  # noqa: BLE001, S110 - a law will meet it, and tell it as the decoder's
        pass


def _same(one: Arrays, other: Arrays) -> bool:
    return not _which(one, other)


def _which(one: Arrays, other: Arrays) -> str:
    """The first name with other bits."""
    names = [*one, *(name for name in other if name not in one)]
    return next((n for n in names if not _alike(one.get(n), other.get(n))), "")


def _alike(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    kinds = (one.dtype, one.shape) == (other.dtype, other.shape)
    return kinds and one.tobytes() == other.tobytes()


def _dtype(answers: Arrays) -> Iterator[str]:
    for name, values in answers.items():
        if values.dtype != np.float64:
            continue  # what says so is not disguised; the laws say what they want
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32).astype(np.float64)
        finite = np.unique(values[np.isfinite(values)])
        if finite.size >= VARIED and np.array_equal(narrow, values, equal_nan=True):
            yield f"dtype: all {values.size} {name} called float64 are float32 values"
