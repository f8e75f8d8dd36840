"""Faults of profiles, reasons not to run, reports and admissions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from logitproof.core import build, limits, planner, profiles, report

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake")


@mistake((profiles, "profile"), source="profiles.md section 1")
def seeds_of_no_profile(right: Any) -> Any:
    """No profile prescribes its seeds."""
    return lambda name: replace(right(name), seeds=())


@mistake((profiles, "profile"), source="profiles.md section 1")
def partitions_swapped(right: Any) -> Any:
    """State may be as large as activations, and the other way round: the sum stays."""

    def profile(name: str) -> Any:
        found = right(name)
        held = dict(found.partitions)
        if held:
            held["state"], held["activations"] = held["activations"], held["state"]
        return replace(found, partitions=held)

    return profile


@mistake((limits, "_scalars"), source="profiles.md section 2")
def limit_refuses_itself(right: Any) -> Any:
    """A demand equal to its limit exceeds it."""

    def scalars(demands: Any, held: Any) -> Iterator[Any]:
        counts = {name: getattr(held, name) - 1 for name in limits.COUNTS}
        yield from right(demands, replace(held, **counts))

    return scalars


@mistake((limits, "compare"), source="profiles.md section 3")
def first_reason_alone(right: Any) -> Any:
    """The comparison stops at the first limit exceeded."""
    return lambda demands, held: right(demands, held)[:1]


@mistake((profiles, "projection_fits"), source="profiles.md section 1")
def projection_in_whole_seconds(right: Any) -> Any:
    """Seconds of tokens are rounded down before they are multiplied."""
    return lambda tokens, rate, wall: 3600 + 3 * (tokens // rate) // 2 <= wall


@mistake((report, "macs"), source="records.md section 5")
def rates_in_floats(right: Any) -> Any:
    """Multiply-add pairs are reported as doubles."""

    def macs(counted: Any) -> dict[str, Any]:
        told = right(counted)
        return {**told, "causal": float(told["causal"])}

    return macs


@mistake((report, "refusals"), source="records.md section 5")
def refusals_not_reported(_: Any) -> Any:
    """A report leaves out why the plan may not run."""
    return lambda reasons: []


@mistake((build, "construction_identity"), source="config_planner.md section 3")
def construction_forgets_run(right: Any) -> Any:
    """The construction is bound to the model twice, to its run never."""

    def identity(plan: Any, record: Any) -> Any:
        return right(replace(plan, run_sha256=plan.model_sha256), record)

    return identity


@mistake((build, "construct"), source="config_planner.md section 10")
def rows_admitted_by_the_batch(right: Any) -> Any:
    """A call may have as many rows as the run has in all, not as a microbatch has."""

    def construct(admission: Any, rng: Any) -> Any:
        made = right(admission, rng)
        backbone, rows = made.decoder.backbone, admission.plan.run.rows
        backbone._identity = replace(backbone.identity, max_rows=rows)
        return made

    return construct


@mistake((planner._Right, "taken"), source="config_planner.md section 10")
def token_usable_twice(_: Any) -> Any:
    """Nothing remembers that an admission was used."""

    @contextmanager
    def taken(self: Any) -> Iterator[None]:
        yield

    return taken


FAULTS = tuple(_FOUND.values())
