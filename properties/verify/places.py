"""Where a difference lies, in the words of a decoder: layer, stage, head, row, position."""

from __future__ import annotations

import re
from typing import Any

from logitproof.properties.laws.difference import Difference
from logitproof.properties.scalar import Config

__all__ = ["place_of"]

MATRIX = re.compile(r"blocks\.(\d+)\.(attention|ffn)\.(\w+)\.weight")
GAIN = re.compile(r"(?:blocks\.(\d+)\.)?(attention_norm|ffn_norm|final_norm)\.gain")
STAGES = {
    "ffn": "feed-forward",
    "attention_norm": "norm before attention",
    "ffn_norm": "norm before feed-forward",
    "final_norm": "final norm",
}
AXES = {3: ("row", "position", "token"), 2: ("position", "token"), 1: ("token",)}


def place_of(difference: Difference, case: Any) -> str | None:
    """The place in words, as far as the difference tells it; None where it tells nothing."""
    what, at = difference.what, difference.at
    config = _config(case)
    if matrix := MATRIX.search(what):
        layer, part, role = matrix.groups()
        words = [f"layer {layer}", f"{STAGES.get(part, part)} {role}"]
        if part == "attention" and len(at) == 2 and config is not None:
            feature = at[0] if role == "output" else at[1]  # which axis the heads divide
            words.append(f"head {feature // config.head_width}")
        return ", ".join([*words, *_entry(("input", "output"), at)])
    if gain := GAIN.search(what):
        layer, norm = gain.groups()
        return ", ".join([*([f"layer {layer}"] if layer else []), STAGES[norm],
                          *_entry(("feature",), at)])  # fmt: skip
    if "token_embedding.weight" in what or what.startswith("table"):
        return ", ".join(["token table (embedding and head)", *_entry(("token", "feature"), at)])
    if "logits" in what:
        return ", ".join(["logits", *_entry(AXES.get(len(at), ()), at)])
    return "loss" if "loss" in what or "raw sum" in what else None


def _entry(names: tuple[str, ...], at: tuple[int, ...]) -> list[str]:
    """`row 0`, `position 3`, where there is a name for every index."""
    if len(names) != len(at):
        return []
    return [f"{name} {index}" for name, index in zip(names, at, strict=True)]


def _config(case: Any) -> Config | None:
    return case.config if isinstance(getattr(case, "config", None), Config) else None
