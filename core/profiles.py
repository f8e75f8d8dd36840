"""The seven resource profiles: ceilings, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from . import fields
from .codes import Code

State = Literal["CPU executable", "planned", "blocked-artifact-selection", "plan-refuse"]

EXECUTABLE: Final[State] = "CPU executable"
BLOCKED: Final[State] = "blocked-artifact-selection"
PROJECTED_BASE_SECONDS: Final = 3600
NONE: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """How long and how finely a rate is measured before a run; planning data only.

    Source: profiles.md section 1
    """

    least_seconds: int = 300
    most_seconds: int = 900
    synchronised_microsteps: int = 100
    windows: int = 10
    tokens: int = 10_240
    statistic: str = "lower of aggregate and 10th-percentile window"
    least_second_half_percent: int = 85  # its median rate, of the first half's


PROBE: Final = Probe()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Ceilings, never measurements; bytes unless the name says otherwise.

    calibration_tokens:            of a probe, 0 where nothing is calibrated
    calibration_tokens_per_second: planning data, by kind of run
    valid_tokens_per_update:       the most, where the profile says so
    seeds:                         the only ones to initialise with, where the profile says so
    """

    name: str
    state: State
    scale: str
    parameters: int
    positions: int
    tokens: int
    microbatch: int
    accumulation: int
    host: int
    device: int
    disk: int
    download: int
    wall_seconds: int
    installed_host_minimum: int
    installed_host_recommended: int
    device_headroom: int
    dtype_policy: str
    partitions: Mapping[str, int]
    calibration_tokens: int
    calibration_tokens_per_second: Mapping[str, int]
    valid_tokens_per_update: int | None = None
    seeds: tuple[int, ...] = ()
    wall_seconds_all_seeds: int | None = None


def profile(name: str) -> Profile:
    """The profile of a name.

    Refuses: record/unknown-name
    """
    fields.check_choice(name, tuple(PROFILES), code=Code.UNKNOWN_NAME, what="resource_profile")
    return PROFILES[name]


def projection_fits(tokens: int, tokens_per_second: int, wall_seconds: int) -> bool:
    """Whether 3600 + 1.5 * tokens / rate stays within the wall time, exactly."""
    return 3 * tokens <= 2 * (wall_seconds - PROJECTED_BASE_SECONDS) * tokens_per_second


_GIB: Final = 2**30
_REFERENCE: Final = Profile(
    name="reference-ci",
    state=EXECUTABLE,
    scale="reference",
    parameters=1188,
    positions=4,
    tokens=2048,
    microbatch=16,
    accumulation=1,
    host=268_435_456,
    device=0,
    disk=1_073_741_824,
    download=0,
    wall_seconds=600,
    installed_host_minimum=_GIB,
    installed_host_recommended=_GIB,
    device_headroom=0,
    dtype_policy="f64",
    partitions=NONE,
    calibration_tokens=0,
    calibration_tokens_per_second=NONE,
)
_BRIDGE: Final = replace(
    _REFERENCE,
    name="bridge-ci",
    scale="bridge",
    parameters=8304,
    positions=16,
    tokens=65536,
    microbatch=8,
)
_CORE: Final = Profile(
    name="8gb-gpu-core",
    state="planned",
    scale="laptop",
    parameters=32_514_560,
    positions=512,
    tokens=20_000_000,
    microbatch=1,
    accumulation=64,
    host=12_884_901_888,
    device=6_710_886_400,
    disk=30_000_000_000,
    download=4_000_000_000,
    wall_seconds=108_000,
    installed_host_minimum=16 * _GIB,
    installed_host_recommended=32 * _GIB,
    device_headroom=536_870_912,
    dtype_policy="half-protected-32",
    partitions=MappingProxyType(
        {
            "state": 805_306_368,
            "activations": 3_221_225_472,
            "workspace": 1_610_612_736,
            "kv": 67_108_864,
            "layout_metadata": 67_108_864,
            "slack": 939_524_096,
        }
    ),
    calibration_tokens=PROBE.tokens,
    calibration_tokens_per_second=MappingProxyType({"training": 350}),
    valid_tokens_per_update=32768,
)
_SMOKE: Final = replace(
    _CORE,
    name="8gb-gpu-smoke",
    positions=128,
    tokens=65536,
    accumulation=8,
    host=8_589_934_592,
    device=2_147_483_648,
    disk=5_000_000_000,
    download=536_870_912,
    wall_seconds=900,
    installed_host_minimum=8 * _GIB,
    installed_host_recommended=16 * _GIB,
    partitions=NONE,
    calibration_tokens_per_second=MappingProxyType({"training": 128}),
    valid_tokens_per_update=None,
)
_SEED_SENSITIVITY: Final = replace(
    _CORE,
    name="8gb-seed-sensitivity",
    scale="seed-sensitivity",
    parameters=4_359_936,
    positions=256,
    tokens=1_000_000,
    accumulation=32,
    host=8_589_934_592,
    device=4_294_967_296,
    disk=10_000_000_000,
    download=0,
    wall_seconds=7200,
    wall_seconds_all_seeds=21600,
    seeds=(104729, 130363, 15485863),
    partitions=NONE,
    calibration_tokens_per_second=MappingProxyType({"training": 200}),
    valid_tokens_per_update=None,
)
_ADAPTER: Final = replace(
    _CORE,
    name="8gb-adapter",
    state=BLOCKED,
    scale="selected-compatible-20m-50m",
    parameters=50_000_000,
    tokens=1_048_576,
    accumulation=32,
    disk=21_474_836_480,
    download=536_870_912,
    wall_seconds=43_200,
    partitions=NONE,
    calibration_tokens_per_second=MappingProxyType({"tuning": 100, "preference": 25}),
    valid_tokens_per_update=None,
)
_PRODUCTION: Final = replace(
    _REFERENCE,
    name="production-plan-only",
    state="plan-refuse",
    scale="production",
    parameters=69_500_936_192,
    positions=32768,
    tokens=15_000_000_000_000,
    microbatch=1,
    disk=67_108_864,
    wall_seconds=30,
    dtype_policy="bf16-accounting",
)
PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        each.name: each
        for each in (
            _REFERENCE,
            _BRIDGE,
            _SMOKE,
            _SEED_SENSITIVITY,
            _CORE,
            _ADAPTER,
            _PRODUCTION,
        )
    }
)
