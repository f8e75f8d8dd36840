"""The first stage at which a forward leaves the one written from the specification alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from logitproof.properties.laws.cases import Case
from logitproof.properties.scalar import C_LIBRARY, EXACT
from logitproof.properties.subjects import ScalarSubject

from .batch import given
from .shrinking import Failure
from .subject import Make

__all__ = ["divergence", "place"]

Array = NDArray[np.float64]

# A decoder that promises no bits leaves the other's values by rounding alone at once: what is
# told is the first stage that keeps less than half of its digits.
HALF = {"float64": 2.0**-26, "float32": 2.0**-12}
AXES = {
    "query": ("row", "head", "position", "feature"),
    "key": ("row", "head", "position", "feature"),
    "value": ("row", "head", "position", "feature"),
    "probabilities": ("row", "head", "position", "key"),
    "mix": ("row", "head", "position", "feature"),
    "logits": ("row", "position", "token"),
}
AXES |= {
    name: AXES[name.removesuffix("_unrotated")] for name in ("query_unrotated", "key_unrotated")
}
AXES["scores"] = AXES["probabilities"]
OTHER_AXES = ("row", "position", "feature")
STAGES = {
    "attention_norm": "norm before attention",
    "query_unrotated": "attention query, as projected",
    "key_unrotated": "attention key, as projected",
    "scores": "attention scores",
    "ffn_norm": "norm before feed-forward",
    "gate": "feed-forward gate",
    "up": "feed-forward up",
    "product": "feed-forward product",
    "query": "attention query, rotated",
    "key": "attention key, rotated",
    "value": "attention value",
    "probabilities": "attention probabilities",
    "mix": "attention mixture",
    "attention_residual": "sum after attention",
    "output": "sum after feed-forward",
    "hidden": "final norm",
}


def place(make: Make, case: Any, failed: Failure) -> str | None:
    """Where the forward first goes astray in this case, or else where the law saw it.

    Of a decoder without taps, how small the case was made in place of the first.
    """
    first = divergence(make, case)
    if first is not None or not isinstance(case, Case) or make().capabilities.get("taps", False):
        return failed.place if first is None else first
    sizes = case.config
    told = (
        f"no taps to tell the stage; what fails has {_many(sizes.layers, 'layer')},"
        f" {_many(sizes.heads, 'head')}, {_many(len(case.ids[0]), 'token')} a row"
    )
    return told if failed.place is None else f"{failed.place}; {told}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def divergence(make: Make, case: Any) -> str | None:
    """Layer, stage, head and position in words.

    None for a case without a batch, a decoder without taps, a forward that is refused, and one
    that leaves nowhere: what fails then is no forward value of this batch.
    """
    batch = given(case)
    subject: Any = make()
    if batch is None or not subject.capabilities.get("taps", False):
        return None
    config, weights, ids, layout = batch
    c_library = subject.conventions["functions"] == "c-library"
    truth = ScalarSubject(C_LIBRARY if c_library else EXACT)
    try:
        for decoder in (truth, subject):
            decoder.load(config, weights)
        expected, actual = truth.taps(ids, layout), subject.taps(ids, layout)
    except Exception:  # noqa: BLE001 - whatever a foreign decoder raises: there is no place to tell
        return None
    exact = subject.capabilities.get("specified-bits", False)
    conventions = subject.conventions
    half = HALF[conventions.get("arithmetic", conventions.get("dtype", "float64"))]
    lengths = np.array(layout.lengths) if layout else np.full(len(ids), len(ids[0]))
    for name, values in expected.items():
        if name not in actual:
            continue
        if np.shape(actual[name]) != values.shape:
            shapes = f"{list(np.shape(actual[name]))}, not {list(values.shape)}"
            return f"{_stage(name)}: of shape {shapes}"
        at = _first(values, np.asarray(actual[name], dtype=np.float64), lengths, half, exact=exact)
        if at is not None:
            return ", ".join([_stage(name), *_indices(name, at)])
    return None


def _first(
    expected: Array, actual: Array, lengths: NDArray[np.int64], half: float, *, exact: bool
) -> tuple[int, ...] | None:
    """The first active cell that differs, by row and position before head and feature."""
    if exact:
        differs = expected.view(np.uint64) != np.ascontiguousarray(actual).view(np.uint64)
    else:
        differs = ~(abs(actual - expected) <= half * abs(expected).max(initial=0.0))
    positions = 1 if expected.ndim == 3 else 2  # [B, T, ...] or [B, H, T, ...]
    by_cell = np.moveaxis(differs, positions, 1)
    active = np.arange(by_cell.shape[1]) < lengths[:, None]
    places = np.argwhere(by_cell & active.reshape(*active.shape, *[1] * (by_cell.ndim - 2)))
    if not places.size:
        return None
    b, t, *rest = (int(i) for i in places[0])
    return (b, t, *rest) if positions == 1 else (b, rest[0], t, *rest[1:])


def _stage(name: str) -> str:
    *block, step = name.split(".")
    told = STAGES.get(step, step)
    return f"layer {block[1]}, {told}" if block else told


def _indices(name: str, at: tuple[int, ...]) -> list[str]:
    names = AXES.get(name.rpartition(".")[2], OTHER_AXES)
    return [f"{axis} {index}" for axis, index in zip(names, at, strict=True)]
