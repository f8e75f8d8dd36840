"""What an adapter must do before a decoder behind it can be judged: carry arrays, and forget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitproof.properties.laws.cases import PAD, Case, full_cases
from logitproof.properties.laws.fused import Steep
from logitproof.properties.laws.levels import claimed
from logitproof.properties.laws.precision import dtype_of
from logitproof.properties.scalar import Config, Layout

from .remote import AdapterFault
from .timed import contained

__all__ = ["selftest"]

Arrays = Mapping[str, NDArray[Any]]

SIZE = 40  # of the cases drawn, one with several rows, positions and layers
SPECIAL = (0.0, -0.0, 1.0, -1.5, 5e-324, -2.2250738585072014e-308, 1.7976931348623157e308,
           float("inf"), float("-inf"), 0.1, 1 / 3, 2.0**-1060)  # fmt: skip
LOSS, GRADIENT = "losses", "gradients of "  # answers by name; each parameter's begins so
SMALL = Case(
    seed=1,
    scale=4.0,
    config=Config(
        vocabulary_size=5, model_width=4, heads=1, feed_forward_width=2, layers=1, max_positions=4
    ),
    ids=[[2, 0, 3, 1]],
    targets=[[0, 3, 1, 2]],
)
GAIN = "blocks.0.attention_norm.gain"
# Level -> two divisions of rows into segments that make batches of one shape.
DIVISIONS: Mapping[str, tuple[list[list[int]], list[list[int]]]] = {
    "padded": ([[4], [2]], [[3], [4]]),
    "packed": ([[1, 3]], [[2, 2]]),
}
VARIED = 8  # so many different doubles are not all float32 values by chance: 2**-29 for each


def selftest(make: Callable[[], Any]) -> str | None:
    """The first thing that the adapter does wrong, in words; None where nothing is.

    echo:          arrays come back with their bits, where the decoder is asked by messages
    dtype:         answers are floats; what is called float64 has more digits than a float32
    names:         gradients are those of the parameters, of all of them and of nothing else
    determinism:   the same question twice has the same answer, in a layout too
    statelessness: an answer does not depend on the questions, layouts, weights and decoders before

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
    yield from _floats(subject, first)
    yield from _names(subject, one, first)
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
    for level, divisions in DIVISIONS.items():
        if claimed(subject, level):
            yield from _layouts(make, *map(_divided, divisions))
    yield from _reload(make)


def _floats(subject: Any, answers: Arrays) -> Iterator[str]:
    for name, values in answers.items():
        if values.dtype.kind != "f":
            yield f"dtype: {name} are of type {values.dtype}; {dtype_of(subject)} is wanted"


def _names(subject: Any, case: Case, answers: Arrays) -> Iterator[str]:
    if LOSS not in answers or not claimed(subject, "gradients"):
        return
    wanted = [GRADIENT + name for name in case.config.parameter_shapes()]
    extra = [name for name in answers if name.startswith(GRADIENT) and name not in wanted]
    missing = [name for name in wanted if name not in answers]
    if extra:
        yield f"names: {extra[0]}, which is no parameter"
    if missing:
        yield f"names: no {missing[0]}, which is a parameter"


def _layouts(make: Callable[[], Any], one: Case, other: Case) -> Iterator[str]:
    subject = make()
    first = _answers(subject, one)
    second = _answers(subject, one, load=False)
    if not _same(first, second):
        yield f"determinism: {_which(first, second)} asked for twice in one layout differ"
    after, alone = _answers(subject, other, load=False), _answers(make(), other)
    if not _same(after, alone):
        yield f"statelessness: {_which(after, alone)} depend on the layout asked before"


def _reload(make: Callable[[], Any]) -> Iterator[str]:
    """Of the same sizes; one gain alone differs. A program is fresh behind other sizes at most."""
    own = {name: getattr(SMALL, name) for name in Case.__dataclass_fields__}
    louder = Steep(**own, names=(GAIN,), exponent=1)
    subject, fresh = make(), make()
    _answers(
        subject, replace(SMALL)
    )  # with weights of its own: whoever is given them may spoil them
    after = _answers(subject, louder)
    _answers(fresh, replace(SMALL, config=replace(SMALL.config, vocabulary_size=7, layers=0)))
    alone = _answers(fresh, louder)
    if not _same(after, alone):
        yield f"statelessness: {_which(after, alone)} depend on the weights loaded before"


def _divided(rows: list[list[int]]) -> Case:
    """The small case with its row in these segments, as often as there are rows."""
    T = len(SMALL.ids[0])

    def cells(row: list[int]) -> list[list[int]]:
        return [[*row[: sum(sizes)], *[PAD] * (T - sum(sizes))] for sizes in rows]

    return replace(
        SMALL,
        ids=cells([*SMALL.ids[0]]),
        targets=cells([*SMALL.targets[0]]),
        layout=Layout.packed(rows, T),
    )


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
        answers["logits"] = np.array(subject.logits(case.ids, case.layout))

    def loss() -> None:
        value, gradients = subject.loss_and_gradients(case.ids, case.targets, case.layout)
        given = gradients.items() if claimed(subject, "gradients") else ()
        own = {f"{GRADIENT}{name}": np.array(gradient) for name, gradient in given}
        answers.update({LOSS: np.array(value), **own})

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
