from dataclasses import replace
from typing import Any

import pytest

from logitproof.core import limits, profiles
from logitproof.core.codes import Code
from logitproof.core.limits import Demand, Demands
from logitproof.core.sizes import UNKNOWN

CORE = profiles.profile("8gb-gpu-core")
OPEN = replace(CORE, state=profiles.EXECUTABLE)
SCALARS = ("parameters", "positions", "tokens", "microbatch", "accumulation")
BYTES = ("host", "device", "disk", "download")


def exact(profile: profiles.Profile) -> Demands:
    scalars: dict[str, Any] = {name: getattr(profile, name) for name in SCALARS}
    sizes: dict[str, Any] = {name: Demand(terms=(getattr(profile, name),)) for name in BYTES}
    partitions = {name: Demand(terms=(size,)) for name, size in profile.partitions.items()}
    return Demands(**scalars, **sizes, partitions=partitions)


def codes(demands: Demands, profile: profiles.Profile) -> list[tuple[Code, str]]:
    return [(reason.code, reason.what) for reason in limits.compare(demands, profile)]


@pytest.mark.parametrize("name", profiles.PROFILES)
def test_demands_exactly_at_every_limit_are_admitted(name: str) -> None:
    profile = replace(profiles.profile(name), state=profiles.EXECUTABLE)
    assert codes(exact(profile), profile) == []


@pytest.mark.parametrize("name", profiles.PROFILES)
@pytest.mark.parametrize("demand", SCALARS)
def test_one_more_than_a_scalar_limit_is_one_reason(name: str, demand: str) -> None:
    profile = replace(profiles.profile(name), state=profiles.EXECUTABLE)
    limit = getattr(profile, demand)
    (reason,) = limits.compare(replace(exact(profile), **{demand: limit + 1}), profile)
    assert (reason.code, reason.what) == (Code.LIMIT_EXCEEDED, demand)
    assert (reason.required, reason.limit) == (limit + 1, limit)


@pytest.mark.parametrize("name", profiles.PROFILES)
@pytest.mark.parametrize("demand", BYTES)
def test_one_more_byte_than_a_limit_is_one_reason(name: str, demand: str) -> None:
    profile = replace(profiles.profile(name), state=profiles.EXECUTABLE)
    more: dict[str, Any] = {demand: Demand(terms=(getattr(profile, demand), 1))}
    assert codes(replace(exact(profile), **more), profile) == [(Code.LIMIT_EXCEEDED, demand)]


@pytest.mark.parametrize("partition", CORE.partitions)
def test_one_more_byte_than_a_partition_is_one_reason(partition: str) -> None:
    full = exact(OPEN).partitions
    more = {**full, partition: Demand(terms=(OPEN.partitions[partition] + 1,))}
    demands = replace(exact(OPEN), partitions=more)
    assert codes(demands, OPEN) == [(Code.PARTITION_EXCEEDED, f"partitions.{partition}")]


def test_a_fitting_total_does_not_excuse_a_full_partition() -> None:
    demands = Demands(partitions={"kv": Demand(terms=(OPEN.partitions["kv"] + 1,))})
    assert codes(demands, OPEN) == [(Code.PARTITION_EXCEEDED, "partitions.kv")]


@pytest.mark.golden
def test_an_unknown_workspace_is_refused_and_leaves_nothing_over() -> None:
    # Limit 100, state 64, workspace unknown: not "36 left".
    small = replace(OPEN, device=100, partitions={})
    terms = (64, UNKNOWN)
    demands = Demands(
        device=Demand(terms=terms), partitions={"workspace": Demand(terms=(UNKNOWN,))}
    )
    (reason,) = limits.compare(demands, small)
    assert (reason.code, reason.what) == (Code.UNKNOWN_DEMAND, "workspace")
    assert (reason.required, reason.limit) == ("unknown", 100)


@pytest.mark.parametrize("name", CORE.partitions)
def test_an_unknown_partition_is_refused_against_its_own_limit(name: str) -> None:
    unknown = Demand(terms=(1, UNKNOWN))
    (reason,) = limits.compare(Demands(device=unknown, partitions={name: unknown}), OPEN)
    assert (reason.code, reason.what) == (Code.UNKNOWN_DEMAND, name)
    assert (reason.required, reason.limit) == ("unknown", OPEN.partitions[name])


@pytest.mark.parametrize("name", BYTES)
def test_an_unknown_total_without_an_unknown_partition_is_refused(name: str) -> None:
    demands: dict[str, Any] = {name: Demand(terms=(UNKNOWN,))}
    assert codes(Demands(**demands), OPEN) == [(Code.UNKNOWN_DEMAND, name)]


def test_partitions_are_kept_as_they_were_given() -> None:
    given = {"kv": Demand(terms=(1,))}
    demands = Demands(partitions=given)
    given.clear()
    assert demands.partitions["kv"].known == 1
    with pytest.raises(TypeError):
        demands.partitions["kv"] = limits.NOTHING  # type: ignore[index]


def test_a_known_part_over_the_limit_decides_without_the_rest() -> None:
    small = replace(OPEN, device=63, partitions={})
    demands = Demands(device=Demand(terms=(64, UNKNOWN)))
    assert codes(demands, small) == [
        (Code.LIMIT_EXCEEDED, "device"),
        (Code.UNKNOWN_DEMAND, "device"),
    ]


def test_the_production_cache_exceeds_the_core_device_by_the_published_bytes() -> None:
    demands = Demands(device=Demand(terms=(10737418240, UNKNOWN)))
    reason = limits.compare(demands, OPEN)[0]
    assert (reason.code, reason.what) == (Code.LIMIT_EXCEEDED, "device")
    assert reason.required - reason.limit == 4026531840


def test_every_reason_stands_in_its_order() -> None:
    scalars: dict[str, Any] = {name: getattr(CORE, name) + 1 for name in SCALARS}
    sizes: dict[str, Any] = {name: Demand(terms=(getattr(CORE, name) + 1,)) for name in BYTES}
    parts = {name: Demand(terms=(size + 1,)) for name, size in CORE.partitions.items()}
    parts["workspace"] = Demand(terms=(*parts["workspace"].terms, UNKNOWN))
    order = [what for _, what in codes(Demands(**scalars, **sizes, partitions=parts), CORE)]
    assert order == [
        "profile.8gb-gpu-core",
        *SCALARS,
        *BYTES,
        *(f"partitions.{name}" for name in CORE.partitions),
        "workspace",
    ]
