import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from logitproof.core.codes import Code
from logitproof.core.planner import plan
from logitproof.core.profiles import PROFILES
from logitproof.core.records import SCALES, ModelRecord, RunRecord, Seeds
from logitproof.properties import record_fuzz, record_strategies
from logitproof.properties.refusals import refusal_of

GOLDEN = Path(__file__).parent.parent / "golden" / "records-v1"
MODEL = ModelRecord.scale("reference").to_bytes()
MODEL_DIGESTS = {
    "reference": "adfd8cbd5bfeccf0d6fba479454f74501a21f65c0c600a6c5f1a72491b043fe3",
    "bridge": "b2f0207e9dea7bb6303efb8c24f2f47c7d4e6a542c5dc27d61f38453c46e0916",
    "laptop": "9b9134c07868baa3598ecd871a6f10ced9958a3132bf3ff493572c57ca48403c",
    "production": "f0b569779487abfe7d4d202852b2af499b17de563d8b30ad1ab73ce3cb483a3e",
    "seed-sensitivity": "dce141f8fbba1fa1431af4d6caee6693772f8e0885b10cab34de548bd2baaabc",
    "laptop-smoke-c128-v1": "0946b6fe5c4de91aa504cdbd7b4eaac6d9f7c9f049ac58a0460be4dec2d50ce9",
}
RUN_DIGESTS = {
    "reference-ci": "9fff00efa8029e48dd596ee6c6fc5772741b85fa1549167110e2e15f1b0214c3",
    "bridge-ci": "db6aaabd0d751e3c15c099792898deb498485df42508090b1292b9fd7f742d19",
    "8gb-gpu-smoke": "3c7dcfdcdac82e07432a6f1d3e5f6bb8fa8f0b98c7ecd3ad021a8fa665029005",
    "8gb-seed-sensitivity": "2683a6e6c7ed8436212aaf83e29bedc1335e1141ca6a5024a5c9166df02afded",
    "8gb-gpu-core": "7e5e14d792e91025f9f427ced378f08fa5170a7440db2a31a0b20cb1d630d128",
    "8gb-adapter": "35a87ffb2d1905d0b034019321d3cfb73aae9cb47322317c88746fca14e511cd",
    "production-plan-only": "81a64ff6f09397ba3ae655e6458fbc25676005fa0e9b9ac3f947f1c557abc8ed",
}
# The same records again, from the tables of records.md and config_planner.md section 6.
COMMON = {
    "schema_version": 1,
    "parameter_family": "pre-rmsnorm-rope-swiglu-bias-free",
    "rope_policy": "adjacent-pairs",
    "rope_base": "40c3880000000000",
    "rms_epsilon": "3eb0c6f7a0b5ed8d",
    "mask_policy": "causal",
    "head_policy": "tied-transpose",
    "tokenizer_id": "byte-bpe-v1",
    "initialization_policy": "residual-output-init-depth-v1",
}
SIZES = ("vocabulary_size", "model_width", "layers", "heads", "kv_heads", "feed_forward_width")
MODELS = [
    ("reference", (266, 4, 1, 1, 1, 4), 4, "f64"),
    ("bridge", (266, 16, 2, 2, 2, 20), 16, "f64"),
    ("laptop", (16384, 512, 8, 8, 2, 1536), 512, "half-protected-32"),
    ("production", (128000, 8192, 80, 64, 8, 28672), 32768, "bf16-accounting"),
    ("seed-sensitivity", (8192, 256, 3, 4, 1, 768), 256, "half-protected-32"),
    ("laptop-smoke-c128-v1", (16384, 512, 8, 8, 2, 1536), 128, "half-protected-32"),
]
SINGLE = {
    "schema_version": 1,
    "world_size": 1,
    "topology": "single-device",
    "sharding": "none",
    "collectives": "none",
}
CPU, GPU, NONE = ("numpy", "cpu", "ordered-f64"), ("gpu", "gpu", "none"), ("none", "none", "none")
COUNTS = ("rows", "token_budget", "microbatch", "accumulation")
PLACES = ("backend", "device", "kernel")
RUNS = [
    ("reference-ci", (16, 2048, 16, 1), 4701, CPU),
    ("bridge-ci", (8, 65536, 8, 1), 4701, CPU),
    ("8gb-gpu-smoke", (1, 65536, 1, 8), 0, GPU),
    ("8gb-seed-sensitivity", (1, 1000000, 1, 32), 104729, GPU),
    ("8gb-gpu-core", (1, 20000000, 1, 64), 0, GPU),
    ("8gb-adapter", (1, 1048576, 1, 32), 0, GPU),
    ("production-plan-only", (1, 15000000000000, 1, 1), 0, NONE),
]


def written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True) + "\n"


def digest(domain: str, text: str) -> str:
    frame = {"domain": domain, "fields": {"configuration": text}, "schema_version": 1}
    return hashlib.sha256(written(frame).encode()).hexdigest()


@pytest.mark.golden
@pytest.mark.parametrize(("name", "sizes", "C", "dtype"), MODELS, ids=SCALES)
def test_a_scale_has_its_bytes_and_digest(
    name: str, sizes: tuple[int, ...], C: int, dtype: str
) -> None:
    own = {"max_positions": C, "dtype_policy": dtype, "vocabulary_id": f"byte-bpe-{sizes[0]}"}
    text = written({**COMMON, **dict(zip(SIZES, sizes, strict=True)), **own})
    record = ModelRecord.scale(name)
    assert record.to_bytes() == text.encode() == (GOLDEN / f"model-{name}.json").read_bytes()
    assert record.identity == digest("decoder-model-v1", text) == MODEL_DIGESTS[name]


@pytest.mark.golden
@pytest.mark.parametrize(("name", "counts", "seed", "places"), RUNS, ids=PROFILES)
def test_a_run_fixture_has_its_bytes_and_digest(
    name: str, counts: tuple[int, ...], seed: int, places: tuple[str, ...]
) -> None:
    own = {**dict(zip(COUNTS, counts, strict=True)), **dict(zip(PLACES, places, strict=True))}
    seeds = {"initialization": seed, "shuffle": 0, "sampling": 0}
    text = written({**SINGLE, **own, "seeds": seeds, "resource_profile": name})
    record = RunRecord.fixture(name)
    assert record.to_bytes() == text.encode() == (GOLDEN / f"run-{name}.json").read_bytes()
    assert record.identity == digest("decoder-run-v1", text) == RUN_DIGESTS[name]


@pytest.mark.property
@given(record_strategies.model_records())
def test_a_model_record_is_read_from_its_own_bytes(record: ModelRecord) -> None:
    assert ModelRecord.from_bytes(record.to_bytes()) == record


@pytest.mark.property
@given(record_strategies.run_records())
def test_a_run_record_is_read_from_its_own_bytes(record: RunRecord) -> None:
    assert RunRecord.from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize(
    "changes",
    [
        {"max_positions": 128},
        {"kv_heads": 1},
        {"vocabulary_size": 16385},
        {"vocabulary_id": "other"},
        {"tokenizer_id": "other"},
        {"rms_epsilon": "0000000000000000"},
        {"rms_epsilon": "8000000000000000"},
        {"rope_base": "412e848000000000"},
        {"dtype_policy": "f64"},
    ],
)
def test_a_changed_model_field_changes_the_model_identity(changes: dict[str, Any]) -> None:
    laptop = ModelRecord.scale("laptop")
    assert laptop.replace(**changes).identity != laptop.identity


@pytest.mark.parametrize(
    "changes",
    [
        {"token_budget": 7500000000000},
        {"rows": 2},
        {"seeds": {"initialization": 1, "shuffle": 0, "sampling": 0}},
        {"seeds": {"initialization": 0, "shuffle": 1, "sampling": 0}},
        {"seeds": {"initialization": 0, "shuffle": 0, "sampling": 1}},
        {"world_size": 8},
        {"kernel": "blas-f64"},
        {"resource_profile": "8gb-gpu-core"},
    ],
)
def test_a_changed_run_field_changes_the_run_identity(changes: dict[str, Any]) -> None:
    production = RunRecord.fixture("production-plan-only")
    assert production.replace(**changes).identity != production.identity


def test_replacing_nothing_keeps_the_identity() -> None:
    run = RunRecord.fixture("bridge-ci")
    assert run.replace(seeds=dict(run.seeds)).identity == run.identity
    assert run.replace(seeds=run.seeds) == run


def test_seeds_read_by_attribute_and_by_name() -> None:
    seeds = Seeds(initialization=1, shuffle=2, sampling=3)
    assert dict(seeds) == {"initialization": 1, "shuffle": 2, "sampling": 3}
    assert (seeds.shuffle, len(seeds), hash(seeds)) == (2, 3, hash(Seeds(1, 2, 3)))
    with pytest.raises(KeyError):
        seeds["dropout"]


@pytest.mark.parametrize("name", [*SIZES, "max_positions"])
@pytest.mark.parametrize("wrong", [0, 2**64])
def test_a_size_outside_its_range_is_refused(name: str, wrong: int) -> None:
    fault = refusal_of(ModelRecord.scale("reference").replace, **{name: wrong})
    assert (fault.code, fault.what, fault.actual) == (Code.FIELD_RANGE, f"model.{name}", wrong)


@pytest.mark.parametrize("name", [*COUNTS, "world_size"])
@pytest.mark.parametrize("wrong", [0, 2**64])
def test_a_count_outside_its_range_is_refused(name: str, wrong: int) -> None:
    fault = refusal_of(RunRecord.fixture("reference-ci").replace, **{name: wrong})
    assert (fault.code, fault.what, fault.actual) == (Code.FIELD_RANGE, f"run.{name}", wrong)


def test_a_seed_may_be_zero_and_has_64_bits() -> None:
    run = RunRecord.fixture("reference-ci")
    assert run.replace(seeds=Seeds(0, 0, 2**64 - 1)).seeds.sampling == 2**64 - 1
    fault = refusal_of(run.replace, seeds=Seeds(0, 2**64, 0))
    assert (fault.code, fault.what) == (Code.FIELD_RANGE, "run.seeds.shuffle")


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("rope_base", "0000000000000000"),
        ("rope_base", "8000000000000000"),
        ("rope_base", "c0c3880000000000"),
        ("rope_base", "7ff0000000000000"),
        ("rms_epsilon", "7ff8000000000000"),
        ("rms_epsilon", "fff0000000000000"),
        ("rms_epsilon", "beb0c6f7a0b5ed8d"),
    ],
)
def test_a_float_that_is_not_finite_or_too_small_is_refused(name: str, bits: str) -> None:
    fault = refusal_of(ModelRecord.scale("reference").replace, **{name: bits})
    assert (fault.code, fault.what, fault.actual) == (Code.FIELD_RANGE, f"model.{name}", bits)


@pytest.mark.parametrize(
    "text", ["true", "false", "1.0", "1e3", "-0", "-1", "null", '"1"', "[]", "{}", "1e999"]
)
def test_a_size_is_a_canonical_unsigned_integer(text: str) -> None:
    # Reported cases cfg-head-dim (booleans, 4.0) and json-nonfinite (1e999).
    data = MODEL.replace(b'"layers":1', f'"layers":{text}'.encode())
    fault = refusal_of(ModelRecord.from_bytes, data)
    assert (fault.code, fault.what) == (Code.FIELD_TYPE, "model.layers")


@pytest.mark.parametrize(
    "text", ["1e-06", "1e999", "NaN", '"3EB0C6F7A0B5ED8D"', '"1e-6"', '"3eb0"', "-1e999"]
)
def test_an_epsilon_is_sixteen_lowercase_hex_digits(text: str) -> None:
    data = MODEL.replace(b'"3eb0c6f7a0b5ed8d"', text.encode())
    assert refusal_of(ModelRecord.from_bytes, data).code in (Code.FIELD_TYPE, Code.TEXT_SYNTAX)


@pytest.mark.parametrize("value", [4.0, True, "4", None])
def test_a_size_given_in_python_is_an_integer(value: object) -> None:
    fault = refusal_of(ModelRecord.scale("reference").replace, heads=value)
    assert (fault.code, fault.what) == (Code.FIELD_TYPE, "model.heads")


@pytest.mark.parametrize(
    ("changes", "code", "what"),
    [
        ({"schema_version": 2}, Code.SCHEMA_VERSION, "model.schema_version"),
        ({"parameter_family": "gpt"}, Code.PARAMETER_FAMILY, "model.parameter_family"),
        ({"rope_policy": "half-split"}, Code.UNKNOWN_POLICY, "model.rope_policy"),
        ({"mask_policy": "none"}, Code.UNKNOWN_POLICY, "model.mask_policy"),
        ({"head_policy": "untied"}, Code.UNKNOWN_POLICY, "model.head_policy"),
        ({"dtype_policy": "f32"}, Code.UNKNOWN_POLICY, "model.dtype_policy"),
        ({"initialization_policy": "he"}, Code.UNKNOWN_POLICY, "model.initialization_policy"),
        ({"vocabulary_id": ""}, Code.FIELD_RANGE, "model.vocabulary_id"),
        ({"tokenizer_id": "é" * 32769}, Code.FIELD_RANGE, "model.tokenizer_id"),
        ({"tokenizer_id": "\ud800"}, Code.LONE_SURROGATE, "model.tokenizer_id"),
        ({"kv_heads": 2}, Code.HEAD_GROUPING, "kv_heads"),
        ({"heads": 3}, Code.HEAD_GROUPING, "D"),
        ({"heads": 4}, Code.EVEN_ROPE_HEAD_WIDTH, "head_width"),
        ({"layer": 4}, Code.UNKNOWN_KEY, "model.layer"),
    ],
)
def test_a_model_field_that_is_not_as_it_must_be_is_named(
    changes: dict[str, Any], code: Code, what: str
) -> None:
    fault = refusal_of(ModelRecord.scale("reference").replace, **changes)
    assert (fault.code, fault.what) == (code, what)
    assert "\n" not in str(fault)


@pytest.mark.parametrize(
    ("changes", "code", "what"),
    [
        ({"schema_version": 0}, Code.SCHEMA_VERSION, "run.schema_version"),
        ({"backend": "cuda"}, Code.UNKNOWN_POLICY, "run.backend"),
        ({"device": "tpu"}, Code.UNKNOWN_POLICY, "run.device"),
        ({"kernel": "fast"}, Code.UNKNOWN_POLICY, "run.kernel"),
        ({"topology": ""}, Code.FIELD_RANGE, "run.topology"),
        ({"resource_profile": "9gb"}, Code.UNKNOWN_NAME, "run.resource_profile"),
        ({"seeds": 7}, Code.FIELD_TYPE, "run.seeds"),
        ({"seeds": {"initialization": 1}}, Code.MISSING_KEY, "run.seeds.shuffle"),
        ({"seeds": {"dropout": 1}}, Code.UNKNOWN_KEY, "run.seeds.dropout"),
    ],
)
def test_a_run_field_that_is_not_as_it_must_be_is_named(
    changes: dict[str, Any], code: Code, what: str
) -> None:
    fault = refusal_of(RunRecord.fixture("reference-ci").replace, **changes)
    assert (fault.code, fault.what) == (code, what)


LONGEST = 65_536  # bytes of a record that an identity holds


@pytest.mark.parametrize("character", ["x", "é", "\x01"])
def test_the_longest_record_has_an_identity_and_one_more_byte_is_refused(character: str) -> None:
    model = ModelRecord.scale("reference")
    room = LONGEST - len(model.replace(tokenizer_id="x").to_bytes()) + 1
    width = len(written(character).encode()) - 3  # both quotes and the line feed
    text = character * (room // width) + "x" * (room % width)
    record = model.replace(tokenizer_id=text)
    assert ModelRecord.from_bytes(record.to_bytes()) == record
    assert (len(record.to_bytes()), len(record.identity)) == (LONGEST, 64)
    fault = refusal_of(model.replace, tokenizer_id=text + "x")
    assert (fault.code, fault.what) == (Code.IDENTITY_VALUE_SIZE, "model")
    assert (fault.expected, fault.actual) == (LONGEST, LONGEST + 1)


def test_a_parsed_record_without_an_identity_is_refused() -> None:
    data = RunRecord.fixture("reference-ci").to_bytes().replace(b"single-device", b"x" * 65_000)
    fault = refusal_of(RunRecord.from_bytes, data.replace(b'"none"', b'"%b"' % (b"y" * 300), 1))
    assert (fault.code, fault.what) == (Code.IDENTITY_VALUE_SIZE, "run")


class Inject(str):
    """Text that writes something else."""

    __slots__ = ()

    def translate(self, _table: Any) -> str:
        return 'x","y":"'


class Evil(int):
    """A number that prints something else."""

    def __str__(self) -> str:
        return "evil"


class Equal:
    """Equal to everything."""

    __hash__ = object.__hash__

    def __eq__(self, _other: object) -> bool:
        return True


@pytest.mark.parametrize(
    "changes",
    [{"layers": Evil(1)}, {"vocabulary_id": Inject("a")}, {"rope_base": Inject("a" * 16)}],
)
def test_a_subclass_writes_no_bytes_of_its_own(changes: dict[str, Any]) -> None:
    fault = refusal_of(ModelRecord.scale("reference").replace, **changes)
    assert (fault.code, fault.what) == (Code.FIELD_TYPE, f"model.{next(iter(changes))}")


class Changing(Mapping[str, Any]):
    """Seeds that are others at the second reading."""

    readings = 0

    def __getitem__(self, _name: str) -> Any:
        self.readings += 1
        return 1 if self.readings <= 3 else "other"

    def __iter__(self) -> Iterator[str]:
        return iter(Seeds(1, 2, 3))

    def __len__(self) -> int:
        return 3


def test_seeds_are_read_once() -> None:
    run = RunRecord.fixture("reference-ci").replace(seeds=Changing())
    assert run.seeds == Seeds(1, 1, 1)


WRONG_NAMES: list[Any] = [
    None,
    1,
    [],
    {},
    Equal(),
    b"laptop",
    np.array(["laptop", "x"]),
    Inject("laptop"),
]


@pytest.mark.parametrize("wrong", WRONG_NAMES, ids=lambda wrong: type(wrong).__name__)
def test_a_name_of_another_type_is_refused(wrong: Any) -> None:
    run = RunRecord.fixture("reference-ci")
    assert refusal_of(ModelRecord.scale, wrong).code is Code.UNKNOWN_NAME
    assert refusal_of(RunRecord.fixture, wrong).code is Code.UNKNOWN_NAME
    assert refusal_of(plan, ModelRecord.scale("reference"), run, wrong).code is Code.UNKNOWN_NAME
    assert refusal_of(run.replace, device=wrong).code is Code.FIELD_TYPE


@pytest.mark.parametrize("key", ["self", "layer"])
def test_replacing_what_is_no_field_is_refused(key: str) -> None:
    fault = refusal_of(ModelRecord.scale("reference").replace, **{key: 4})
    assert (fault.code, fault.what) == (Code.UNKNOWN_KEY, f"model.{key}")


DEEP = '{"a":{"b":{"c":{"d":{"e":{"f":1,"f":2}}}}}}'


@pytest.mark.parametrize("text", [DEEP, f"[[[[[{DEEP}]]]]]"])
def test_a_key_twice_far_inside_is_refused_by_its_path(text: str) -> None:
    fault = refusal_of(RunRecord.from_bytes, text.encode())
    assert fault.code is Code.DUPLICATE_KEY
    assert fault.what.endswith("a.b.c.d.e.f")


# The faults of one text, from the last check to the first; each text holds those before it too.
FAULTS = [
    (b'"heads":1,"init', b'"heads":3,"init', Code.HEAD_GROUPING),
    (b'"rope_base":"40', b'"rope_base":"c0', Code.FIELD_RANGE),
    (b'"layers":1,', b'"layers": 1,', Code.NOT_CANONICAL),
    (b"pre-rmsnorm", b"post-rmsnorm", Code.PARAMETER_FAMILY),
    (b'"schema_version":1', b'"schema_version":2', Code.SCHEMA_VERSION),
    (b'"model_width":4', b'"model_width":4.0', Code.FIELD_TYPE),
    (b'"mask_policy":"causal",', b"", Code.MISSING_KEY),
    (b'"layers"', b'"extra":1,"layers"', Code.UNKNOWN_KEY),
    (b'"extra"', b'"extr\\u0061":2,"extra"', Code.DUPLICATE_KEY),
    (b"}\n", b"}}\n", Code.TEXT_SYNTAX),
    (b"byte-bpe-v1", b"byte-bpe-\xff", Code.TEXT_ENCODING),
    (b"}\n", b"}" + b" " * 1_048_576, Code.TEXT_SIZE),
]
TEXTS = list(
    accumulate(FAULTS, lambda data, fault: data.replace(fault[0], fault[1], 1), initial=MODEL)
)


@pytest.mark.parametrize(
    ("data", "code"),
    [(data, fault[2]) for data, fault in zip(TEXTS[1:], FAULTS, strict=True)],
    ids=[fault[2].value for fault in FAULTS],
)
def test_of_several_faults_the_earlier_check_speaks(data: bytes, code: Code) -> None:
    assert refusal_of(ModelRecord.from_bytes, data).code is code


@pytest.mark.parametrize("record", [ModelRecord, RunRecord])
@pytest.mark.parametrize(
    "text",
    ['{"eps":NaN}', '{"eps":Infinity}', '{"eps":-Infinity}', '{"eps":1e999}', '{"eps":-1e999}'],
)
def test_the_reported_numbers_that_are_not_finite_are_refused(record: Any, text: str) -> None:
    assert refusal_of(record.from_bytes, text.encode()).code in (
        Code.TEXT_SYNTAX,
        Code.UNKNOWN_KEY,
    )


@pytest.mark.parametrize("name", ["", "Reference", "laptop ", "8gb-gpu-core", 5])
def test_an_unknown_scale_is_refused(name: Any) -> None:
    assert refusal_of(ModelRecord.scale, name).code is Code.UNKNOWN_NAME


@pytest.mark.parametrize("name", ["", "laptop", "reference_ci"])
def test_an_unknown_fixture_is_refused(name: str) -> None:
    assert refusal_of(RunRecord.fixture, name).code is Code.UNKNOWN_NAME


def test_two_thousand_byte_strings_are_refused_or_come_back() -> None:
    outcome = record_fuzz.run(2000)
    sys.stdout.write(f"{outcome}\n")
    assert outcome.refused + outcome.round_tripped == 4000
    assert outcome.round_tripped >= len(SCALES) + len(PROFILES)


@pytest.mark.slow
def test_two_hundred_thousand_byte_strings_are_refused_or_come_back() -> None:
    outcome = record_fuzz.run(200_000, seed=1)
    sys.stdout.write(f"{outcome}\n")
    assert outcome.refused + outcome.round_tripped == 400_000
