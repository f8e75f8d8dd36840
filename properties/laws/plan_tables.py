"""The tables of profiles, models and runs: the text of the spec, in its order."""

__all__ = [
    "EXCEEDED",
    "FIELDS",
    "PARTITIONS",
    "PROBE",
    "PROFILES",
    "REASONS",
    "RUNS",
    "SCALES",
    "SIZE_FIELDS",
    "SIZES",
    "UNKNOWN",
]

GIB = 1 << 30
FIELDS = (
    "state", "parameters", "positions", "tokens", "microbatch", "accumulation", "host", "device",
    "disk", "download", "wall_seconds", "installed_host_minimum", "installed_host_recommended",
    "device_headroom", "dtype_policy", "calibration_tokens", "calibration_tokens_per_second",
    "valid_tokens_per_update", "seeds", "wall_seconds_all_seeds",
)  # fmt: skip
PLANNED, PROTECTED, HEADROOM = "planned", "half-protected-32", 536_870_912
# profiles.md section 1, row by row, in the order of FIELDS.
PROFILES: dict[str, tuple[object, ...]] = {
    "reference-ci": (
        "CPU executable", 1188, 4, 2048, 16, 1, 268_435_456, 0, 1_073_741_824, 0, 600, GIB, GIB, 0,
        "f64", 0, {}, None, (), None,
    ),
    "bridge-ci": (
        "CPU executable", 8304, 16, 65_536, 8, 1, 268_435_456, 0, 1_073_741_824, 0, 600, GIB, GIB,
        0, "f64", 0, {}, None, (), None,
    ),
    "8gb-gpu-smoke": (
        PLANNED, 32_514_560, 128, 65_536, 1, 8, 8_589_934_592, 2_147_483_648, 5_000_000_000,
        536_870_912, 900, 8 * GIB, 16 * GIB, HEADROOM, PROTECTED, 10_240, {"training": 128}, None,
        (), None,
    ),
    "8gb-seed-sensitivity": (
        PLANNED, 4_359_936, 256, 1_000_000, 1, 32, 8_589_934_592, 4_294_967_296, 10_000_000_000, 0,
        7200, 16 * GIB, 32 * GIB, HEADROOM, PROTECTED, 10_240, {"training": 200}, None,
        (104_729, 130_363, 15_485_863), 21_600,
    ),
    "8gb-gpu-core": (
        PLANNED, 32_514_560, 512, 20_000_000, 1, 64, 12_884_901_888, 6_710_886_400, 30_000_000_000,
        4_000_000_000, 108_000, 16 * GIB, 32 * GIB, HEADROOM, PROTECTED, 10_240, {"training": 350},
        32_768, (), None,
    ),
    "8gb-adapter": (
        "blocked-artifact-selection", 50_000_000, 512, 1_048_576, 1, 32, 12_884_901_888,
        6_710_886_400, 21_474_836_480, 536_870_912, 43_200, 16 * GIB, 32 * GIB, HEADROOM, PROTECTED,
        10_240, {"tuning": 100, "preference": 25}, None, (), None,
    ),
    "production-plan-only": (
        "plan-refuse", 69_500_936_192, 32_768, 15_000_000_000_000, 1, 1, 268_435_456, 0, 67_108_864,
        0, 30, GIB, GIB, 0, "bf16-accounting", 0, {}, None, (), None,
    ),
}  # fmt: skip
PARTITIONS = {
    "state": 805_306_368, "activations": 3_221_225_472, "workspace": 1_610_612_736,
    "kv": 67_108_864, "layout_metadata": 67_108_864, "slack": 939_524_096,
}  # fmt: skip
PROBE = {
    "least_seconds": 300,
    "most_seconds": 900,
    "synchronised_microsteps": 100,
    "windows": 10,
    "tokens": 10_240,
    "statistic": "lower of aggregate and 10th-percentile window",
    "least_second_half_percent": 85,
}
SCALES = {
    "reference-ci": "reference",
    "bridge-ci": "bridge",
    "8gb-gpu-smoke": "laptop-smoke-c128-v1",
    "8gb-seed-sensitivity": "seed-sensitivity",
    "8gb-gpu-core": "laptop",
    "8gb-adapter": "laptop",
    "production-plan-only": "production",
}
# records.md section 2: rows, tokens, microbatch, accumulation, seed of the initial values.
RUNS = {
    "reference-ci": (16, 2048, 16, 1, 4701),
    "bridge-ci": (8, 65_536, 8, 1, 4701),
    "8gb-gpu-smoke": (1, 65_536, 1, 8, 0),
    "8gb-seed-sensitivity": (1, 1_000_000, 1, 32, 104_729),
    "8gb-gpu-core": (1, 20_000_000, 1, 64, 0),
    "8gb-adapter": (1, 1_048_576, 1, 32, 0),
    "production-plan-only": (1, 15_000_000_000_000, 1, 1, 0),
}
# config_planner.md section 6: V, D, L, H_q, H_kv, F, C; records.md section 1: dtype.
SIZES = {
    "reference": (266, 4, 1, 1, 1, 4, 4, "f64"),
    "bridge": (266, 16, 2, 2, 2, 20, 16, "f64"),
    "laptop": (16_384, 512, 8, 8, 2, 1536, 512, PROTECTED),
    "laptop-smoke-c128-v1": (16_384, 512, 8, 8, 2, 1536, 128, PROTECTED),
    "seed-sensitivity": (8192, 256, 3, 4, 1, 768, 256, PROTECTED),
    "production": (128_000, 8192, 80, 64, 8, 28_672, 32_768, "bf16-accounting"),
}
SIZE_FIELDS = (
    "vocabulary_size", "model_width", "layers", "heads", "kv_heads", "feed_forward_width",
    "max_positions", "dtype_policy",
)  # fmt: skip
NO_DEVICE = (
    "support/grouped-heads", "support/backend", "support/device", "support/kernel", "support/dtype",
)  # fmt: skip
STATE, UNKNOWN, EXCEEDED = (
    "support/profile-state", "capacity/unknown-demand", "capacity/limit-exceeded",
)  # fmt: skip
# profiles.md section 3, in its order.
REASONS: dict[str, tuple[str, ...]] = {
    "reference-ci": (),
    "bridge-ci": (),
    "8gb-gpu-smoke": (*NO_DEVICE, STATE, UNKNOWN),
    "8gb-seed-sensitivity": (*NO_DEVICE, STATE, UNKNOWN),
    "8gb-gpu-core": (*NO_DEVICE, STATE, UNKNOWN),
    "8gb-adapter": (*NO_DEVICE, "support/artifact", STATE, UNKNOWN),
    "production-plan-only": (*NO_DEVICE, STATE, EXCEEDED),
}
