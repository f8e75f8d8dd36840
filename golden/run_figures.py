"""Published figures done by a decoder: which fields of a figure come out as published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from logitproof.core import floats
from logitproof.properties.laws.difference import digest
from logitproof.properties.laws.published import config_of
from logitproof.properties.subjects import CoreSubject, ScalarSubject

from .figures import Figures, Run, figures, to_bits
from .load import Case

__all__ = ["figure"]

Object = dict[str, Any]
Subject = CoreSubject | ScalarSubject
Kind = Callable[[], Subject]


def figure(case: Case, kind: Kind = CoreSubject, held: Figures | None = None) -> Object:
    """The case's fields, each of them as `name` where it agrees, else with what was found.

    held: the figures that stand beside the cases, by default those shipped
    """
    section, name = case.setup["section"], case.setup.get("id")
    published, found = SECTIONS[section](held or figures(), kind, name)
    fields = [
        field if published[field] == found[field] else f"{field}: {found[field]} instead of"
        f" {published[field]}"
        for field in case.expect["fields"]
    ]  # fmt: skip
    return {**case.expect, "fields": fields}


def _loaded(
    known: Figures, kind: Kind, config: str, seed: int, *, depth_scaled: bool = False
) -> tuple[Subject, Any, int]:
    subject, sizes = kind(), config_of(known.configs[config])
    weights, state = subject.initial(sizes, seed, depth_scaled=depth_scaled)
    subject.load(sizes, weights)
    return subject, weights, state


def _run(known: Figures, kind: Kind, name: str) -> tuple[Object, Object]:
    run = known.runs[name]
    subject, weights, state = _loaded(
        known, kind, run.config, run.seed, depth_scaled=run.depth_scaled
    )
    loss, gradients = subject.loss_and_gradients(run.ids, run.targets)
    found = {
        "final_state": f"{state:016x}",
        "loss": to_bits(loss),
        "parameters_digest": digest(weights.values()),
        "logits_digest": digest([subject.logits(run.ids)]),
        "gradients_digest": digest(gradients.values()),
        "raw_sum": to_bits(subject.loss_sum(run.ids, run.targets)),
    }
    return {field: getattr(run, field) for field in found}, found


def _words(known: Figures, kind: Kind, _: object) -> tuple[Object, Object]:
    held = known.words
    words = [f"{w:016x}" for w in kind().words(held.seed, len(held.words))]
    return {"words": held.words}, {"words": words}


def _matrix(known: Figures, kind: Kind, name: str) -> tuple[Object, Object]:
    (held,) = [matrix for matrix in known.matrices if matrix.id == name]
    drawn = np.asarray(kind().matrix(held.seed, *held.shape)).reshape(-1).tolist()
    return {"values": held.values}, {"values": [to_bits(x) for x in drawn]}


def _of_run(known: Figures, kind: Kind, name: str) -> tuple[Run, Subject, Any]:
    run = known.runs[name]
    subject, weights, _ = _loaded(known, kind, run.config, run.seed)
    return run, subject, weights


def _table_start(known: Figures, kind: Kind, _: object) -> tuple[Object, Object]:
    held = known.table_start
    table = np.asarray(_of_run(known, kind, held.run)[2]["token_embedding.weight"]).reshape(-1)
    return {"values": held.values}, {"values": [to_bits(x) for x in table[: len(held.values)]]}


def _position_losses(known: Figures, kind: Kind, _: object) -> tuple[Object, Object]:
    held = known.position_losses
    run, subject, _weights = _of_run(known, kind, held.run)
    found = []
    for t in range(len(run.ids[0])):
        valid = [[at == t for at in range(len(run.ids[0]))]]
        targets = [[y if at == t else -1 for at, y in enumerate(run.targets[0])]]
        found.append(repr(subject.loss_sum(run.ids, targets, None, valid)))
    return {"decimals": held.decimals}, {"decimals": found}


def _table_gradient(known: Figures, kind: Kind, _: object) -> tuple[Object, Object]:
    held = known.table_gradient
    run, subject, _weights = _of_run(known, kind, held.run)
    parts = subject.table_gradients(run.ids, run.targets)
    names = ("total", "lookup", "head")
    found = {
        name: repr(float(part[held.row][held.feature]))
        for name, part in zip(names, parts, strict=True)
    }
    return {name: getattr(held, name) for name in names}, found


def _printed_logits(known: Figures, kind: Kind, name: str) -> tuple[Object, Object]:
    (held,) = [printed for printed in known.printed_logits if printed.id == name]
    subject = _loaded(known, kind, held.config, held.seed)[0]
    row = subject.logits(held.ids)[0][held.position]
    places = len(held.decimals[0].partition(".")[2])
    return {"decimals": held.decimals}, {"decimals": [f"{x:.{places}f}" for x in row]}


def _printed_loss(known: Figures, kind: Kind, name: str) -> tuple[Object, Object]:
    (held,) = [printed for printed in known.printed_losses if printed.id == name]
    subject = _loaded(known, kind, held.config, held.seed)[0]
    loss, _ = subject.loss_and_gradients(held.ids, held.targets)
    places = len(held.decimals.partition(".")[2])
    return {"decimals": held.decimals}, {"decimals": f"{loss:.{places}f}"}


def _probe(known: Figures, _: Kind, name: str) -> tuple[Object, Object]:
    """A correctly rounded value is that of one of the two libraries, for they are neighbours."""
    (held,) = [probe for probe in known.probes if probe.function == name]
    value = to_bits(float(getattr(floats, name)(np.array([float(held.argument)]))[0]))
    two = [held.glibc_fma, held.glibc_plain]
    return {"known": two}, {"known": two if value in two else [value]}


SECTIONS: dict[str, Callable[[Figures, Kind, Any], tuple[Object, Object]]] = {
    "runs": _run,
    "words": _words,
    "matrices": _matrix,
    "table_start": _table_start,
    "position_losses": _position_losses,
    "table_gradient": _table_gradient,
    "printed_logits": _printed_logits,
    "printed_losses": _printed_loss,
    "c_library_probes": _probe,
}
