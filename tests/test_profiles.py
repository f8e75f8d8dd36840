from typing import Any

import pytest

from logitproof.core import profiles
from logitproof.core.codes import Code
from logitproof.properties.refusals import refusal_of

GIB = 2**30


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "state", "figures"),
    [
        ("reference-ci", "CPU executable", (1188, 4, 2048, 16, 1)),
        ("bridge-ci", "CPU executable", (8304, 16, 65536, 8, 1)),
        ("8gb-gpu-smoke", "planned", (32514560, 128, 65536, 1, 8)),
        ("8gb-seed-sensitivity", "planned", (4359936, 256, 1000000, 1, 32)),
        ("8gb-gpu-core", "planned", (32514560, 512, 20000000, 1, 64)),
        ("8gb-adapter", "blocked-artifact-selection", (50000000, 512, 1048576, 1, 32)),
        ("production-plan-only", "plan-refuse", (69500936192, 32768, 15000000000000, 1, 1)),
    ],
)
def test_a_profile_has_the_published_scalar_limits(
    name: str, state: str, figures: tuple[int, ...]
) -> None:
    p = profiles.profile(name)
    assert p.state == state
    assert (p.parameters, p.positions, p.tokens, p.microbatch, p.accumulation) == figures


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("reference-ci", (268435456, 0, 1073741824, 0, 600, GIB, GIB, 0)),
        ("bridge-ci", (268435456, 0, 1073741824, 0, 600, GIB, GIB, 0)),
        (
            "8gb-gpu-smoke",
            (8589934592, 2147483648, 5000000000, 536870912, 900, 8 * GIB, 16 * GIB, 536870912),
        ),
        (
            "8gb-seed-sensitivity",
            (8589934592, 4294967296, 10000000000, 0, 7200, 16 * GIB, 32 * GIB, 536870912),
        ),
        (
            "8gb-gpu-core",
            (
                *(12884901888, 6710886400, 30000000000, 4000000000, 108000),
                *(16 * GIB, 32 * GIB, 536870912),
            ),
        ),
        (
            "8gb-adapter",
            (
                *(12884901888, 6710886400, 21474836480, 536870912, 43200),
                *(16 * GIB, 32 * GIB, 536870912),
            ),
        ),
        ("production-plan-only", (268435456, 0, 67108864, 0, 30, GIB, GIB, 0)),
    ],
)
def test_a_profile_has_the_published_byte_limits(name: str, figures: tuple[int, ...]) -> None:
    p = profiles.profile(name)
    bytes_and_time = (p.host, p.device, p.disk, p.download, p.wall_seconds)
    installed = (p.installed_host_minimum, p.installed_host_recommended, p.device_headroom)
    assert (*bytes_and_time, *installed) == figures


@pytest.mark.golden
def test_the_partitions_of_the_core_fill_its_device() -> None:
    core = profiles.profile("8gb-gpu-core")
    assert sum(core.partitions.values()) == core.device == 6710886400
    assert list(core.partitions.values()) == [
        *(805306368, 3221225472, 1610612736, 67108864, 67108864, 939524096)
    ]


@pytest.mark.golden
def test_the_seeds_of_seed_sensitivity_are_exactly_three() -> None:
    profile = profiles.profile("8gb-seed-sensitivity")
    assert profile.seeds == (104729, 130363, 15485863)
    assert profile.wall_seconds_all_seeds == 21600


@pytest.mark.parametrize("name", ["", "reference", "8GB-gpu-core", None])
def test_an_unknown_profile_is_refused(name: Any) -> None:
    fault = refusal_of(profiles.profile, name)
    assert (fault.code, fault.what) == (Code.UNKNOWN_NAME, "resource_profile")


@pytest.mark.golden
def test_a_probe_is_as_published() -> None:
    probe = profiles.PROBE
    assert (probe.least_seconds, probe.most_seconds, probe.windows) == (300, 900, 10)
    assert (probe.synchronised_microsteps, probe.tokens) == (100, 10240)
    assert probe.statistic == "lower of aggregate and 10th-percentile window"
    assert probe.least_second_half_percent == 85


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "tokens", "rates", "per_update"),
    [
        ("reference-ci", 0, {}, None),
        ("bridge-ci", 0, {}, None),
        ("8gb-gpu-smoke", 10240, {"training": 128}, None),
        ("8gb-seed-sensitivity", 10240, {"training": 200}, None),
        ("8gb-gpu-core", 10240, {"training": 350}, 32768),
        ("8gb-adapter", 10240, {"tuning": 100, "preference": 25}, None),
        ("production-plan-only", 0, {}, None),
    ],
)
def test_a_profile_has_the_published_calibration(
    name: str, tokens: int, rates: dict[str, int], per_update: int | None
) -> None:
    profile = profiles.profile(name)
    assert (profile.calibration_tokens, profile.valid_tokens_per_update) == (tokens, per_update)
    assert profile.calibration_tokens_per_second == rates


@pytest.mark.parametrize(("rate", "fits"), [(287, False), (288, True), (350, True)])
def test_the_core_projection_decides_exactly(rate: int, fits: bool) -> None:
    core = profiles.profile("8gb-gpu-core")
    assert profiles.projection_fits(core.tokens, rate, core.wall_seconds) is fits
    assert (3600 + 1.5 * core.tokens / rate <= 108_000) is fits


@pytest.mark.parametrize(("tokens", "fits"), [(69_600, True), (69_601, False)])
def test_a_projection_admits_exactly_its_limit(tokens: int, fits: bool) -> None:
    assert profiles.projection_fits(tokens, 1, 108_000) is fits
