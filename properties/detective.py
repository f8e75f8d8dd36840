"""Which conventions a decoder follows, told from its answers alone.

One small decoder is loaded whose answers differ under every alternative. Its logits are compared
with those of the scalar decoder under the specification, then under every single change of a
convention, then under every pair; the nearest are judged by their own truth and derived bound.
Whatever the decoder raises is an answer, and a slow one is asked no more than fits into its time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from logitproof.properties.laws.levels import LAYOUTS, claimed
from logitproof.properties.laws.protocol import DecoderUnderTest, Ids, Valid
from logitproof.properties.scalar import C_LIBRARY, Config, Generator, Layout, initial_weights
from logitproof.properties.scalar.conventions import (
    CHOICES,
    CHUNKS,
    LOSS,
    SPECIFIED,
    STEPS,
    Conventions,
    alternatives,
    changed,
)
from logitproof.properties.scalar.foreign import Foreign, foreign_loss
from logitproof.properties.truth import BINARY32, BINARY64, SAFETY, Answer, Format
from logitproof.properties.truth.foreign import foreign_logits

__all__ = [
    "CONFIG", "QUESTIONS", "Answered", "Examination", "Match", "Probe", "Question", "Rejudged",
    "answer_of", "examined", "rejudged", "weights",
]  # fmt: skip

Array: TypeAlias = NDArray[np.float64]

# No size equals another, no constant is the usual one, no gain is 1 and the row repeats an id.
CONFIG = Config(
    vocabulary_size=11,
    model_width=12,
    heads=3,
    feed_forward_width=7,
    layers=2,
    max_positions=6,
    rope_base=500.0,
    rms_epsilon=1e-2,
)
FULL: Ids = [[3, 1, 4, 1, 5]]
PACKED: Ids = [[3, 1, 4, 1, 5], [9, 2, 6, -1, -1]]
LAYOUT = Layout.packed([[2, 3], [3]], 5)
TARGETS: Ids = [[1, -1, 1, 5, 9], [-1, 6, 5, -1, -1]]
VALID: Valid = [[True, False, True, True, True], [False, True, True, False, False]]
SEED = 18
HOT = 2.5  # times Xavier: probabilities far from equal, none of them near 0 or 1
SHORT = 2.0**20  # weights are multiples of 1 / SHORT
PACKS = ("mask", "positions")
ELSEWHERE = {*LOSS, *CHUNKS, *PACKS, "kv_map", "head"}  # what one row of one segment cannot show
TEXT = (*(name for name in CHOICES if name not in ELSEWHERE), "mask")
PAIRS = 2
# Candidates that are held against their truth, nearest first: those that change roundings alone are
# all near.
JUDGED = 12
# Half of a single's digits: what lies nearer is worth being judged.
NEAR = 2.0**-12
# What lies nearer to a decoder than an eighth of a single's rounding shows no steps in float32.
UNROUNDED = 2.0**-27
LOSS_ROUNDINGS = 64.0  # an nll of V = 11 has about 2 V of them, a mean of 6 no more than that again
SHOWN = 300  # characters of what it raised
FORMATS: Mapping[str, Format] = {"float64": BINARY64, "float32": BINARY32}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """A batch whose logits tell the named conventions apart.

    needs:  the claims without which it is not asked
    cached: cells that are the prompt of a session; the others come as one chunk, and the newest
            logits are the answer
    """

    name: str
    conventions: tuple[str, ...]
    config: Config = CONFIG
    ids: Ids = field(default_factory=lambda: FULL)
    layout: Layout | None = None
    needs: tuple[str, ...] = ("forward",)
    cached: int | None = None

    @property
    def asked(self) -> NDArray[np.bool_]:
        """The cells whose logits are the answer."""
        active = np.array(self.ids) >= 0
        if self.cached is not None:
            active[:, :-1] = False
        return active


QUESTIONS = (
    Question(name="ordinary text", conventions=TEXT),
    Question(
        name="packed and padded rows",
        conventions=PACKS,
        ids=PACKED,
        layout=LAYOUT,
        needs=("forward", *LAYOUTS),
    ),
    Question(name="a chunk behind cached keys", conventions=CHUNKS, needs=("decode",), cached=2),
    Question(
        name="fewer key/value heads",
        conventions=("kv_map",),
        config=replace(CONFIG, model_width=16, heads=4, kv_heads=2),
        needs=("forward", "grouped-heads"),
    ),
    Question(
        name="a head of its own",
        conventions=("head",),
        config=replace(CONFIG, tied=False),
        needs=("forward", "untied-head"),
    ),
)
MEAN_LOSS = "mean loss"
TIME_IS_UP = "not asked: the questions before took all the time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """An alternative beside the answer.

    distance: the largest difference, as a share of the largest logit
    ratio:    error / derived bound of the alternative; None where it was not judged
    single:   where that is above 1, error / the bound that a decoder in float32 would have; None
              where the alternative has such steps itself
    """

    conventions: Conventions
    distance: float
    ratio: float | None = None
    single: float | None = None

    @property
    def explains(self) -> bool:
        """Whether the answer is this alternative's up to rounding."""
        return self.ratio is not None and self.ratio <= 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What one question told.

    matches: what explains the answer; the nearest alternatives where nothing does
    refused: what the decoder raised, or why its answer cannot be compared
    """

    question: str
    tried: int = 0
    matches: tuple[Match, ...] = ()
    refused: str | None = None

    @property
    def explained(self) -> tuple[Match, ...]:
        """The alternatives that the answer agrees with."""
        return tuple(m for m in self.matches if m.explains)

    @property
    def as_specified(self) -> bool:
        """Whether the specification explains the answer."""
        return any(not m.conventions.changes for m in self.explained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a decoder does where decoders differ and the specification refuses or says nothing."""

    question: str
    answer: str
    specified: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    """The logits of a batch in which a law failed, held against two truths: error / bound.

    specified: by the specification
    followed:  by the conventions that the decoder was found to follow
    """

    law: str
    specified: float
    followed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All answers and probes of one decoder; of failing batches those with wrong logits."""

    answers: tuple[Answered, ...]
    probes: tuple[Probe, ...] = field(default=())
    rejudged: tuple[Rejudged, ...] = field(default=())

    @property
    def followed(self) -> Conventions:
        """What the explained answers say together, each by its nearest explanation."""
        explained = (answer.explained[0] for answer in self.answers if answer.explained)
        return changed(SPECIFIED, *(c for match in explained for c in match.conventions.changes))

    @property
    def as_specified(self) -> bool:
        """Whether every answer is explained by the specification."""
        return all(answer.as_specified for answer in self.answers)


def weights(config: Config) -> dict[str, Any]:
    """Warm matrices, and gains between 0.5 and 2 that differ; float32 holds them all."""
    generator = Generator(SEED)
    drawn = initial_weights(config, generator)
    return {
        name: [_short(0.5 + 1.5 * generator.unit()) for _ in value]
        if len(shape) == 1
        else [[_short(HOT * w) for w in row] for row in value]  # type: ignore[union-attr]
        for (name, value), shape in zip(
            drawn.items(), config.parameter_shapes().values(), strict=True
        )
    }


def _short(x: float) -> float:
    return round(x * SHORT) / SHORT


def examined(
    make: Callable[[], DecoderUnderTest],
    *,
    seconds: float = math.inf,
    progress: Callable[[str], None] = lambda _: None,
) -> Examination:
    """A fresh decoder for every question, so that no answer depends on an earlier one.

    What one question has told is taken for granted in the next. After so many seconds no new
    question is asked; each is announced.
    """
    start, answers, until = SPECIFIED, list[Answered](), time.monotonic() + seconds
    try:
        subject = make()
    except Exception as error:  # noqa: BLE001 - whatever a foreign decoder raises
        return Examination(answers=(Answered(question="making one", refused=_raised(error)),))
    for question in QUESTIONS:
        if not all(claimed(subject, name) for name in question.needs):
            continue
        progress(question.name)
        answers.append(_in_time(until, question.name, _compared, make, question, start))
        if answers[-1].explained:
            start = answers[-1].explained[0].conventions
    if claimed(subject, "forward") and claimed(subject, "loss"):
        progress(MEAN_LOSS)
        answers.append(_in_time(until, MEAN_LOSS, _loss, make, start))
    probes = tuple(_probes(make, subject)) if time.monotonic() <= until else ()
    return Examination(answers=tuple(answers), probes=probes)


def _in_time(
    until: float, question: str, ask: Callable[..., Answered], *arguments: Any
) -> Answered:
    if time.monotonic() > until:
        return Answered(question=question, refused=TIME_IS_UP)
    return ask(*arguments)


def _raised(error: Exception) -> str:
    words = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return f"raised {words if len(words) <= SHOWN else f'{words[:SHOWN]}…'}"


def _loaded(make: Callable[[], DecoderUnderTest], config: Config = CONFIG) -> Any:
    subject = make()
    subject.load(config, weights(config))
    return subject


def _format(subject: Any) -> Format:
    """Of the roundings it declares: in the steps of its arithmetic, or else in its arrays."""
    dtype = subject.conventions.get("dtype", "float64")
    return FORMATS[subject.conventions.get("arithmetic", dtype)]


def _floats(values: Any) -> Array:
    """An answer as float64, whichever floats it holds. Raises TypeError where it holds none."""
    array = np.asarray(values)
    if array.dtype.kind != "f":
        raise TypeError(f"float64 is wanted, not {array.dtype}")
    return array.astype(np.float64)


def _logits(subject: Any, question: Question) -> Array:
    """The answer, [B, T, V], NaN where nothing was asked."""
    if question.cached is None:
        return _floats(subject.logits(question.ids, question.layout))
    (row,), cached = question.ids, question.cached
    with subject.session() as session:
        session.prefill(row[:cached])
        newest = _floats(session.extend(row[cached:]).logits)
    answer = np.full((1, len(row), len(newest)), np.nan)
    answer[0, -1] = newest
    return answer


def _compared(
    make: Callable[[], DecoderUnderTest], question: Question, start: Conventions
) -> Answered:
    name, asked = question.name, question.asked
    shape = (*asked.shape, question.config.vocabulary_size)
    try:
        subject = _loaded(make, question.config)
        actual = _logits(subject, question)
    except Exception as error:  # noqa: BLE001 - whatever a foreign decoder raises
        return Answered(question=name, refused=_raised(error))
    if actual.shape != shape:
        seen = f"answered logits of shape {list(actual.shape)}, not {list(shape)}"
        return Answered(question=name, refused=seen)
    if not np.isfinite(actual[asked]).all():
        return Answered(question=name, refused="answered logits that are not finite")
    format = _format(subject)
    tried, matches = _search(actual, question, start, format)
    explains = tuple(match for match in matches if match.explains)
    return Answered(question=name, tried=tried, matches=explains or tuple(matches))


@cache
def answer_of(question: Question, conventions: Conventions) -> Array:
    """The logits asked for, by a decoder that follows these conventions."""
    foreign = Foreign(
        config=question.config,
        weights=_matrices(question.config),
        conventions=conventions,
        arithmetic=C_LIBRARY,
        cached=question.cached,
    )
    logits = foreign.logits(question.ids, question.layout)
    return np.array(logits, dtype=np.float64)[question.asked]


@cache
def _matrices(config: Config) -> dict[str, Any]:
    """The weights, a gain as a matrix of one row."""
    return {n: v if isinstance(v[0], list) else [v] for n, v in weights(config).items()}


@cache
def _truth(question: Question, conventions: Conventions, format: Format) -> Answer:
    return foreign_logits(
        question.config,
        weights(question.config),
        question.ids,
        question.layout,
        conventions,
        cached=question.cached,
        format=format,
    )


def _search(
    actual: Array, question: Question, start: Conventions, format: Format
) -> tuple[int, list[Match]]:
    """How many were tried, and the nearest of them.

    More changes are tried only while nothing with fewer explains the answer. Steps in float32 are
    no change of a decoder in float32.
    """
    answer = actual[question.asked]
    largest, matches = float(np.abs(answer).max(initial=0.0)), list[Match]()
    names = tuple(n for n in question.conventions if format == BINARY64 or n not in STEPS)
    tried = alternatives(names, PAIRS, start)
    for _, group in groupby(tried, key=lambda c: len(c.changes)):
        for conventions in group:
            with np.errstate(over="ignore"):
                apart = float(np.abs(answer_of(question, conventions) - answer).max(initial=0.0))
            matches.append(Match(conventions=conventions, distance=apart / (largest or 1.0)))
        matches.sort(key=lambda match: match.distance)
        far = {match.conventions for match in matches if match.distance >= UNROUNDED}
        for place, match in enumerate(matches[:JUDGED]):
            if _in_one_format(match.conventions, start) not in far | {match.conventions}:
                continue
            if match.distance <= NEAR and match.ratio is None:
                matches[place] = _judged(match, actual, question, format)
        if any(match.explains for match in matches[:JUDGED]):
            break
    shown = [
        m for m in matches if m.explains or _in_one_format(m.conventions, start) == m.conventions
    ]
    return len(matches), shown[:JUDGED]


def _in_one_format(conventions: Conventions, start: Conventions) -> Conventions:
    """The same without the steps in float32 that `start` has not; itself where it has none."""
    return changed(conventions, *((name, getattr(start, name)) for name in STEPS))


def _judged(match: Match, actual: Array, question: Question, format: Format) -> Match:
    def ratio(of: Format) -> float:
        return _ratio(_truth(question, match.conventions, of), actual, question.asked, of)

    return _held(match, ratio, format)


def _held(match: Match, ratio: Callable[[Format], float], format: Format) -> Match:
    """With its share of the bound, and of float32's where that may be what is the matter."""
    judged = replace(match, ratio=ratio(format))
    if judged.explains or any(name in STEPS for name, _ in match.conventions.changes):
        return judged
    return replace(judged, single=ratio(BINARY32))


def _ratio(answer: Answer, actual: Array, asked: NDArray[np.bool_], format: Format) -> float:
    """The largest error over its bound, of the cells asked for."""
    near, rest = answer.doubles
    bounds = answer.roundings.bounds(format).reshape(actual.shape)[asked]
    with np.errstate(all="ignore"):
        errors = np.abs((actual - near) - rest)[asked]
        return float(np.where(errors == 0.0, 0.0, errors / bounds).max())


def rejudged(
    make: Callable[[], DecoderUnderTest],
    law: str,
    batch: tuple[Config, Mapping[str, Any], Ids, Layout | None],
    conventions: Conventions,
) -> Rejudged | None:
    """The logits of a batch, by the specification and by other conventions.

    None where they are as specified, and where that cannot be told: what fails is something else,
    or steps in float32, which may underflow or overflow in a failing case.
    """
    if any(name in STEPS for name, _ in conventions.changes):
        return None
    config, given, ids, layout = batch
    own = {name: np.array(value).tolist() for name, value in given.items()}
    try:
        subject: Any = make()
        subject.load(config, own)
        actual = _floats(subject.logits(ids, layout))
        asked, format = np.array(ids) >= 0, _format(subject)
        answers = [
            foreign_logits(config, own, ids, layout, c, format=format)
            for c in (SPECIFIED, conventions)
        ]
        specified, followed = (_ratio(answer, actual, asked, format) for answer in answers)
    except Exception:  # noqa: BLE001 - whatever a foreign decoder raises, or truth overflows
        return None
    if not (1.0 < specified < math.inf and followed < math.inf):
        return None
    return Rejudged(law=law, specified=specified, followed=followed)


def _loss(make: Callable[[], DecoderUnderTest], start: Conventions) -> Answered:
    """The mean of a batch, packed where that is claimed, in which not every active cell counts."""
    try:
        subject = _loaded(make)
        packs = all(claimed(subject, name) for name in LAYOUTS)
        rows, layout = (len(PACKED), LAYOUT) if packs else (len(FULL), None)
        valid, targets = VALID[:rows], TARGETS[:rows]
        loss, _ = subject.loss_and_gradients(PACKED[:rows], targets, layout, valid)
        actual = float(_floats(loss))
        logits = _floats(subject.logits(PACKED[:rows], layout))
        counted = logits.reshape(rows, len(FULL[0]), CONFIG.vocabulary_size)[np.array(valid)]
    except Exception as error:  # noqa: BLE001 - whatever a foreign decoder raises
        return Answered(question=MEAN_LOSS, refused=_raised(error))
    if not (np.isfinite(actual) and np.isfinite(counted).all()):
        return Answered(question=MEAN_LOSS, refused=f"answered {actual!r}, logits not all finite")
    format, largest = _format(subject), float(np.abs(counted).max())
    # From the decoder's own logits: the loss has a question of its own.
    values = {
        conventions: float(foreign_loss(C_LIBRARY, logits.tolist(), targets, valid, conventions))
        for conventions in alternatives(LOSS, PAIRS, start)
    }
    matches = [_loss_match(c, value, actual, largest, format) for c, value in values.items()]
    matches.sort(key=lambda m: m.distance)
    explains = tuple(m for m in matches if m.explains)
    return Answered(question=MEAN_LOSS, tried=len(matches), matches=explains or (matches[0],))


def _loss_match(
    conventions: Conventions, value: float, actual: float, largest: float, format: Format
) -> Match:
    apart = abs(value - actual)

    def ratio(of: Format) -> float:
        return apart / (SAFETY * LOSS_ROUNDINGS * of.unit * (abs(value) + largest))

    return _held(Match(conventions=conventions, distance=apart / abs(value)), ratio, format)


def _probes(make: Callable[[], DecoderUnderTest], subject: DecoderUnderTest) -> Iterator[Probe]:
    nothing = [[False] * 5] * 2

    def empty_loss() -> Any:
        return _loaded(make).loss_and_gradients(PACKED, [[-1] * 5] * 2, LAYOUT, nothing)[0]

    def inactive() -> Any:
        return _floats(_loaded(make).logits(PACKED, LAYOUT))[1, 3:]

    if not all(claimed(subject, name) for name in LAYOUTS):
        return
    if claimed(subject, "loss"):
        yield Probe(question="a loss over nothing", answer=_told(empty_loss), specified="refused")
    if claimed(subject, "forward"):
        yield Probe(
            question="logits of cells that read no key",
            answer=_told(inactive),
            specified="finite",
        )


def _told(ask: Callable[[], Any]) -> str:
    try:
        values = np.asarray(ask(), dtype=np.float64)
    except ValueError as error:
        return f"refused: {error}"
    except Exception as error:  # noqa: BLE001 - whatever a foreign decoder raises
        return _raised(error)
    if np.isnan(values).any():
        return "NaN"
    if not np.isfinite(values).all():
        return "infinite"
    return repr(float(values)) if values.ndim == 0 else "finite"
