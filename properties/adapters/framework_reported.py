"""The reported cases that a decoder from a framework can be asked, beside what the laws draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from logitproof.properties.laws import REGISTRY, DecoderUnderTest
from logitproof.properties.laws.precision import answered
from logitproof.properties.laws.regimes import REGIMES, Regime, Sizes, TruthCase, case_of
from logitproof.properties.scalar import Layout

__all__ = ["LAWS_OF", "PROBES"]

Make: TypeAlias = Callable[[], DecoderUnderTest]

FAR = 2**20 - 4  # the last of four positions is 2^20 - 1
# Reported cases whose kind of input every run of these laws draws.
LAWS_OF: Mapping[str, tuple[str, ...]] = {
    "kv-offset-stale-chunk": ("truth.cached-logits",),
    "kv-prefill-no-mask": ("truth.cached-logits",),
    "rope-left-pad-decode": ("truth.logits", "truth.cached-logits"),  # where padding is left
    "tied-grad-two-paths": ("truth.gradients",),
    "emb-repeated-ids": ("truth.gradients",),
    "loss-huge-logits": ("truth.loss", "truth.gradients"),
    "act-sigmoid-grad": ("truth.gradients",),
    "norm-eps-rescale": ("truth.logits", "truth.gradients"),
    "norm-huge-row": ("truth.logits", "truth.gradients"),
}
ROWS = case_of(Sizes(B=2, T=5, V=6, head_width=4, heads=2, F=3, L=2), 41, Regime(attention="hot"))
SEGMENTS = [[1, 3], [2, 2]]  # a document of one token among them
PACKED = Layout.packed(SEGMENTS, 5)


def _loaded(make: Make, case: TruthCase = ROWS) -> Any:
    subject: Any = make()
    subject.load(case.config, case.weights)
    return subject


def _next(row: list[int]) -> list[int]:
    return [(token + 1) % ROWS.config.vocabulary_size for token in row]


def _future(make: Make) -> str | None:
    """A later id changes no bit of an earlier logit of a batch of the same shape."""
    subject, T = _loaded(make), len(ROWS.ids[0])
    whole = answered(subject, subject.logits(ROWS.ids))
    for t in range(1, T):
        ids = [[*row[:t], *_next(list(row[t:]))] for row in ROWS.ids]
        changed = answered(subject, subject.logits(ids))
        if changed[:, :t].tobytes() != whole[:, :t].tobytes():
            return f"ids from position {t} on change logits before it"
    return None


def _packed(make: Make) -> str | None:
    """Another first document changes no bit of the second, nor of the padding."""
    subject = _loaded(make)
    ids = [[*row[:4], -1] for row in ROWS.ids]
    whole = answered(subject, subject.logits(ids, PACKED))
    other = [[*_next(row[:n]), *row[n:]] for row, (n, _) in zip(ids, SEGMENTS, strict=True)]
    changed = answered(subject, subject.logits(other, PACKED))
    for b, (first, second) in enumerate(SEGMENTS):
        cells = slice(first, first + second)
        if changed[b, cells].tobytes() != whole[b, cells].tobytes():
            return f"row {b}: the document before changes the logits of the next"
    return None


def _full_row(make: Make) -> str | None:
    """Cells of padding have finite logits, and leave all gradients finite."""
    subject, layout = _loaded(make), Layout.padded([1, 5], 5)
    ids = [[ROWS.ids[0][0], -1, -1, -1, -1], list(ROWS.ids[1])]
    targets = [[ROWS.targets[0][0], -1, -1, -1, -1], list(ROWS.targets[1])]
    logits = answered(subject, subject.logits(ids, layout))
    loss, gradients = subject.loss_and_gradients(ids, targets, layout)
    for name, values in {"logits": logits, "loss": loss, **gradients}.items():
        if not np.isfinite(np.asarray(values)).all():
            return f"{name}: not finite beside padding"
    return None


def _late_positions(make: Make) -> str | None:
    """Positions up to 2^20 - 1 turn by their own angles."""
    plain = case_of(Sizes(T=4, V=5, head_width=4, heads=1, F=2, L=1), 42, REGIMES[6], base=500000.0)
    positions = tuple(range(FAR, FAR + 4))
    layout = Layout(lengths=(4,), range_starts=((0,) * 4,), positions=(positions,))
    config = replace(plain.config, max_positions=2**20)
    case = replace(plain, config=config, layout=layout, segments=((4,),))
    found: Any = REGISTRY["truth.logits"].check(make(), case)
    return None if found.difference is None else str(found.difference)


def _refuses(change: Callable[[Any], Any]) -> Callable[[Make], str | None]:
    """An error, of whatever type."""

    def probe(make: Make) -> str | None:
        subject = _loaded(make)
        try:
            answer = change(subject)
        except Exception:  # noqa: BLE001 - a framework has refusals of its own
            return None
        return f"accepted: {np.asarray(answer).reshape(-1)[0]!r}"

    return probe


def _vocabulary(subject: Any) -> Any:
    return subject.logits([[ROWS.config.vocabulary_size] * 3])


def _label(subject: Any) -> Any:
    return subject.loss_and_gradients(ROWS.ids, [[ROWS.config.vocabulary_size] * 5] * 2)[0]


def _nothing(subject: Any) -> Any:
    return subject.loss_and_gradients(ROWS.ids, ROWS.targets, None, [[False] * 5] * 2)[0]


PROBES: Mapping[str, Callable[[Make], str | None]] = {
    "mask-future-leak": _future,
    "mask-packed-leak": _packed,
    "mask-full-row": _full_row,
    "rope-freq-low-precision": _late_positions,
    "emb-id-range": _refuses(_vocabulary),
    "loss-label-range": _refuses(_label),
    "loss-all-ignored": _refuses(_nothing),
}
