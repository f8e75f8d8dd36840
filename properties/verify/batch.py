"""The decoder and the batch that a case is about, where it is about one."""

from __future__ import annotations

from typing import Any

from logitproof.golden.figures import figures
from logitproof.properties.laws.cases import Case
from logitproof.properties.laws.published import DRAWN, config_of, weights_of
from logitproof.properties.scalar import Layout

__all__ = ["given"]


def given(case: Any) -> tuple[Any, Any, Any, Layout | None] | None:
    """Configuration, weights, ids and layout of a case that is a batch."""
    if isinstance(case, Case):
        return case.config, case.weights, case.ids, case.layout
    if isinstance(case, DRAWN):
        return config_of(figures().configs[case.config]), weights_of(case), case.ids, None
    return None
