"""Model and run records: canonical bytes, checked fields, identities."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Self

from . import canonical, fields, identity, profiles, shapes
from .codes import Code
from .errors import RecordRefusal
from .fields import Field

SCHEMA_VERSION: Final = 1
PARAMETER_FAMILY: Final = "pre-rmsnorm-rope-swiglu-bias-free"
INITIALIZATION_POLICY: Final = "residual-output-init-depth-v1"
SINGLE_DEVICE: Final = ("single-device", "none", "none")
TENSOR_PARALLEL: Final = (
    "tensor-parallel-ring",
    "matrix-axes-v1",
    "two-allreduces-per-block-forward-v1",
)

_integer = partial(Field, kind="integer")
_text = partial(Field, kind="text")
_version = _integer(name="schema_version", choices=(SCHEMA_VERSION,), code=Code.SCHEMA_VERSION)

MODEL_FIELDS: Final = (
    _version,
    _text(name="parameter_family", choices=(PARAMETER_FAMILY,), code=Code.PARAMETER_FAMILY),
    _integer(name="vocabulary_size"),
    _integer(name="model_width"),
    _integer(name="layers"),
    _integer(name="heads"),
    _integer(name="kv_heads"),
    _integer(name="feed_forward_width"),
    _integer(name="max_positions"),
    _text(name="rope_policy", choices=("adjacent-pairs",)),
    Field(name="rope_base", kind="bits", positive=True),
    Field(name="rms_epsilon", kind="bits"),
    _text(name="mask_policy", choices=("causal",)),
    _text(name="head_policy", choices=("tied-transpose",)),
    _text(name="vocabulary_id"),
    _text(name="tokenizer_id"),
    _text(name="dtype_policy", choices=("f64", "half-protected-32", "bf16-accounting")),
    _text(name="initialization_policy", choices=(INITIALIZATION_POLICY,)),
)
SEED_NAMES: Final = ("initialization", "shuffle", "sampling")
SEED_FIELDS: Final = tuple(_integer(name=name, least=0) for name in SEED_NAMES)
RUN_FIELDS: Final = (
    _version,
    _integer(name="rows"),
    _integer(name="token_budget"),
    _integer(name="microbatch"),
    _integer(name="accumulation"),
    _integer(name="world_size"),
    Field(name="seeds", kind="object", members=SEED_FIELDS),
    _text(name="topology"),
    _text(name="sharding"),
    _text(name="collectives"),
    _text(name="backend", choices=("numpy", "gpu", "none")),
    _text(name="device", choices=("cpu", "gpu", "none")),
    _text(name="kernel", choices=("ordered-f64", "blas-f64", "none")),
    _text(name="resource_profile", choices=tuple(profiles.PROFILES), code=Code.UNKNOWN_NAME),
)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, each object among them read once."""
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in values.items()}


class _Record:
    """What both records share; the fields are those of `_table`."""

    __slots__ = ()
    _name: ClassVar[str]
    _domain: ClassVar[str]
    _table: ClassVar[tuple[Field, ...]]

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The record of canonical bytes.

        Refuses: first fault of size, UTF-8, JSON syntax, a key twice, unknown key, missing key,
                 type, schema version, family, canonical bytes, ranges in table order, shape,
                 and text that no identity can hold
        Source:  records.md sections 3 and 4
        """
        value = canonical.decode(data, what=cls._name)
        fields.check_keys(value, cls._table, path=(cls._name,))
        assert isinstance(value, dict)
        cls._check_kinds(value)
        canonical.check_bytes(data, value, what=cls._name)
        return cls(**value)

    def to_bytes(self) -> bytes:
        """The canonical bytes, one final line feed included."""
        return canonical.encode(self._values(), what=self._name)

    @property
    def identity(self) -> str:
        """The digest of the record in its domain, 64 hex digits."""
        text = self.to_bytes().decode()
        return identity.frame(self._domain, [("configuration", text)]).sha256

    def replace(self, /, **changes: Any) -> Self:
        """The record with some fields changed, everything checked again."""
        values = _plain({**self._values(), **changes})
        fields.check_keys(values, self._table, path=(self._name,))
        return type(self)(**values)

    def _values(self) -> dict[str, Any]:
        """The fields as plain values."""
        return _plain({field.name: getattr(self, field.name) for field in self._table})

    def _check(self) -> None:
        """Types, version, family and ranges of all fields."""
        values = self._values()
        fields.check_keys(values, self._table, path=(self._name,))
        self._check_kinds(values)
        fields.check_ranges(values, self._table, path=(self._name,))

    def _check_identifiable(self) -> None:
        """Refuses a record whose text, escapes and line feed included, no identity can hold."""
        size = len(self.to_bytes())
        if size > identity.MAX_VALUE_BYTES:
            raise RecordRefusal(
                code=Code.IDENTITY_VALUE_SIZE,
                what=self._name,
                expected=identity.MAX_VALUE_BYTES,
                actual=size,
            )

    @classmethod
    def _check_kinds(cls, values: Mapping[str, object]) -> None:
        path = (cls._name,)
        fields.check_types(values, cls._table, path=path)
        head = [f for f in cls._table if f.code in (Code.SCHEMA_VERSION, Code.PARAMETER_FAMILY)]
        fields.check_ranges(values, head, path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord(_Record):
    """What a decoder is: its sizes and policies, and nothing of a run.

    rope_base, rms_epsilon: float64 as 16 hex digits
    Source: records.md section 1
    """

    _name: ClassVar = "model"
    _domain: ClassVar = "decoder-model-v1"
    _table: ClassVar = MODEL_FIELDS

    schema_version: int
    parameter_family: str
    vocabulary_size: int
    model_width: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward_width: int
    max_positions: int
    rope_policy: str
    rope_base: str
    rms_epsilon: str
    mask_policy: str
    head_policy: str
    vocabulary_id: str
    tokenizer_id: str
    dtype_policy: str
    initialization_policy: str

    def __post_init__(self) -> None:
        self._check()
        shapes.check_shape(
            self.vocabulary_size,
            self.model_width,
            self.heads,
            self.kv_heads,
            self.feed_forward_width,
        )
        self._check_identifiable()

    @classmethod
    def scale(cls, name: str) -> "ModelRecord":
        """A built-in model by the name of its scale.

        Refuses: record/unknown-name
        """
        fields.check_choice(name, tuple(_SCALES), code=Code.UNKNOWN_NAME, what="scale")
        return _SCALES[name]


@dataclass(frozen=True, slots=True)
class Seeds(Mapping[str, int]):
    """The declared seeds, 0 .. 2^64 - 1 each, by attribute or by name."""

    initialization: int
    shuffle: int
    sampling: int

    def __getitem__(self, name: str) -> int:
        if name not in SEED_NAMES:
            raise KeyError(name)
        seed: int = getattr(self, name)
        return seed

    def __iter__(self) -> Iterator[str]:
        return iter(SEED_NAMES)

    def __len__(self) -> int:
        return len(SEED_NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(_Record):
    """How a model runs: rows, budget, seeds, devices; no shape depends on it.

    seeds: Seeds, or any mapping of the same names
    Source: records.md section 2
    """

    _name: ClassVar = "run"
    _domain: ClassVar = "decoder-run-v1"
    _table: ClassVar = RUN_FIELDS

    schema_version: int
    rows: int
    token_budget: int
    microbatch: int
    accumulation: int
    world_size: int
    seeds: Seeds
    topology: str
    sharding: str
    collectives: str
    backend: str
    device: str
    kernel: str
    resource_profile: str

    def __post_init__(self) -> None:
        seeds = _plain({"seeds": self.seeds})["seeds"]
        object.__setattr__(self, "seeds", seeds)  # read once, then checked
        self._check()
        object.__setattr__(self, "seeds", Seeds(**seeds))
        self._check_identifiable()

    @classmethod
    def fixture(cls, name: str) -> "RunRecord":
        """The built-in run of a profile: its nominal rows and its maxima.

        Refuses: record/unknown-name
        """
        fields.check_choice(name, tuple(_FIXTURES), code=Code.UNKNOWN_NAME, what="fixture")
        return _FIXTURES[name]


def _scale(
    V: int,
    D: int,
    L: int,
    heads: int,
    kv_heads: int,
    F: int,
    C: int,
    dtype_policy: str,
) -> ModelRecord:
    return ModelRecord(
        schema_version=SCHEMA_VERSION,
        parameter_family=PARAMETER_FAMILY,
        vocabulary_size=V,
        model_width=D,
        layers=L,
        heads=heads,
        kv_heads=kv_heads,
        feed_forward_width=F,
        max_positions=C,
        rope_policy="adjacent-pairs",
        rope_base=fields.bits_of(10000.0),
        rms_epsilon=fields.bits_of(1e-6),
        mask_policy="causal",
        head_policy="tied-transpose",
        vocabulary_id=f"byte-bpe-{V}",
        tokenizer_id="byte-bpe-v1",
        dtype_policy=dtype_policy,
        initialization_policy=INITIALIZATION_POLICY,
    )


def _fixture(
    name: str, rows: int, initialization: int, backend: str, device: str, kernel: str
) -> RunRecord:
    limits = profiles.PROFILES[name]
    topology, sharding, collectives = SINGLE_DEVICE
    return RunRecord(
        schema_version=SCHEMA_VERSION,
        rows=rows,
        token_budget=limits.tokens,
        microbatch=limits.microbatch,
        accumulation=limits.accumulation,
        world_size=1,
        seeds=Seeds(initialization=initialization, shuffle=0, sampling=0),
        topology=topology,
        sharding=sharding,
        collectives=collectives,
        backend=backend,
        device=device,
        kernel=kernel,
        resource_profile=name,
    )


_LAPTOP: Final = _scale(16384, 512, 8, 8, 2, 1536, 512, "half-protected-32")
_SCALES: Final = {
    "reference": _scale(266, 4, 1, 1, 1, 4, 4, "f64"),
    "bridge": _scale(266, 16, 2, 2, 2, 20, 16, "f64"),
    "laptop": _LAPTOP,
    "production": _scale(128000, 8192, 80, 64, 8, 28672, 32768, "bf16-accounting"),
    "seed-sensitivity": _scale(8192, 256, 3, 4, 1, 768, 256, "half-protected-32"),
    "laptop-smoke-c128-v1": _LAPTOP.replace(max_positions=128),
}
_GPU: Final = ("gpu", "gpu", "none")
_FIXTURES: Final = {
    "reference-ci": _fixture("reference-ci", 16, 4701, "numpy", "cpu", "ordered-f64"),
    "bridge-ci": _fixture("bridge-ci", 8, 4701, "numpy", "cpu", "ordered-f64"),
    "8gb-gpu-smoke": _fixture("8gb-gpu-smoke", 1, 0, *_GPU),
    "8gb-seed-sensitivity": _fixture("8gb-seed-sensitivity", 1, 104729, *_GPU),
    "8gb-gpu-core": _fixture("8gb-gpu-core", 1, 0, *_GPU),
    "8gb-adapter": _fixture("8gb-adapter", 1, 0, *_GPU),
    "production-plan-only": _fixture("production-plan-only", 1, 0, "none", "none", "none"),
}
SCALES: Final = tuple(_SCALES)
