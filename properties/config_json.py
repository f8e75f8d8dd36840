"""A model record from the `config.json` of a published decoder checkpoint, or every reason not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from logitproof.core import canonical, fields
from logitproof.core.canonical import Number, Value
from logitproof.core.codes import Code
from logitproof.core.errors import (
    AdmissionRefusal,
    RecordRefusal,
    Refusal,
    ShapeRefusal,
    SupportRefusal,
)
from logitproof.core.records import ModelRecord

WHAT: Final = "config.json"

# Key of the file -> field of the record.
SIZES: Final = {
    "vocab_size": "vocabulary_size",
    "hidden_size": "model_width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "intermediate_size": "feed_forward_width",
    "max_position_embeddings": "max_positions",
}
FLOATS: Final = {"rope_theta": "rope_base", "rms_norm_eps": "rms_epsilon"}
DTYPES: Final = {
    "bfloat16": "bf16-accounting",
    "float16": "half-protected-32",
    "float64": "f64",
}
DTYPE_KEYS: Final = ("torch_dtype", "dtype")
# What a fault of the record is called in the file.
KEY_OF: Final = {
    **{f"model.{field}": key for key, field in SIZES.items()},
    **{f"model.{field}": key for key, field in FLOATS.items()},
    **{field: key for key, field in SIZES.items()},
    "V": "vocab_size",
    "D": "hidden_size",
    "head_width": "hidden_size",
    "F": "intermediate_size",
}
# The families whose decoder the record describes, with the one class of each. Others of the same
# keys add biases, other activations or scaled embeddings without a key that says so.
FAMILIES: Final = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}
# Keys that a file must hold: what their absence means, this reader does not guess.
EXPLICIT: Final = (
    *(key for key in SIZES if key != "num_key_value_heads"),
    *FLOATS,
    "tie_word_embeddings",
    "hidden_act",
)
ACCOUNTING: Final = "bf16-accounting"  # two bytes per element, where the file names no type

_OFF: Final = (None, False)
_NONE: Final = (None,)
_ZERO: Final = (None, 0, Number("0.0"))
_ONE: Final = (None, 1, Number("1.0"))
# Key -> the values under which the record's decoder is the file's decoder.
REQUIRED: Final[Mapping[str, tuple[Value, ...]]] = {
    "tie_word_embeddings": (True,),
    "model_type": tuple(FAMILIES),
    "architectures": tuple([name] for name in FAMILIES.values()),
    "hidden_act": ("silu",),
    "attention_bias": _OFF,
    "mlp_bias": _OFF,
    "bias": _OFF,
    "qkv_bias": _OFF,
    "use_bias": _OFF,
    "use_qk_norm": _OFF,
    "qk_layernorm": _OFF,
    "sliding_window": _NONE,
    "use_sliding_window": _OFF,
    "attention_chunk_size": _NONE,
    "layer_types": _NONE,
    "rope_scaling": _NONE,
    "rope_parameters": _NONE,
    "partial_rotary_factor": _ONE,
    "num_local_experts": _ZERO,
    "num_experts": _ZERO,
    "num_experts_per_tok": _ZERO,
    "n_routed_experts": _ZERO,
    "n_shared_experts": _ZERO,
    "attention_dropout": _ZERO,
    "hidden_dropout": _ZERO,
    "attention_multiplier": _ONE,
    "embedding_multiplier": _ONE,
    "residual_multiplier": _ONE,
    "logits_scaling": _ONE,
    "attn_logit_softcapping": _NONE,
    "final_logit_softcapping": _NONE,
    "pretraining_tp": _ONE,
    "quantization_config": _NONE,
    "is_encoder_decoder": _OFF,
    "add_cross_attention": _OFF,
}
# Facts about files, control tokens and sampling: no size and no operation depends on them.
ASIDE: Final = (
    "_name_or_path",
    "bos_token_id",
    "eos_token_id",
    "initializer_range",
    "pad_token_id",
    "transformers_version",
    "unk_token_id",
    "use_cache",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The record of a file, and what a reader of the plan should know about it."""

    record: ModelRecord
    notes: tuple[str, ...]


def read(data: bytes) -> Reading:
    """The model record that a file describes.

    Refuses: what canonical.decode refuses; then admission/config-refused with every key that is
             missing, of another type, or beyond what a record can express; then the checks of
             the record, under the keys of the file
    """
    config = canonical.decode(data, what=WHAT)
    if not isinstance(config, dict):
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what=WHAT,
            expected="an object",
            actual=canonical.described(config),
        )
    faults = tuple(_faults(config))
    if faults:
        raise AdmissionRefusal(
            code=Code.CONFIG_REFUSED,
            what=WHAT,
            reasons=faults,
            details={"listed": "; ".join(map(str, faults))},
        )
    record = _record(config)
    return Reading(record=record, notes=tuple(_notes(config, record)))


def _record(config: Mapping[str, Value]) -> ModelRecord:
    """The record of a file without a fault of its own."""
    sizes = {field: config.get(key) for key, field in SIZES.items()}
    try:
        return ModelRecord.scale("reference").replace(
            **{**sizes, "kv_heads": _kv_heads(config)},
            **{field: _bits(config[key]) for key, field in FLOATS.items()},
            vocabulary_id=f"config-json-{config['vocab_size']}",
            tokenizer_id="config-json",
            dtype_policy=DTYPES.get(str(_dtype(config)), ACCOUNTING),
        )
    except (RecordRefusal, ShapeRefusal) as fault:
        raise replace(fault, what=f"{WHAT}.{KEY_OF[fault.what]}") from None


def _faults(config: Mapping[str, Value]) -> Iterator[Refusal]:
    """Everything that keeps the file from being a record: keys missing, then in its own order."""
    for key in _missing(config):
        yield RecordRefusal(code=Code.MISSING_KEY, what=f"{WHAT}.{key}", expected="a value")
    for key, value in config.items():
        what = canonical.dotted((WHAT, key))
        if key in SIZES:
            yield from _size_faults(key, value, what)
        elif key in FLOATS:
            yield from _float_faults(key, value, what)
        elif key == "head_dim":
            yield from _head_dim_faults(config, what)
        elif key in DTYPE_KEYS:
            if value is not None and not _is_dtype(value, config):
                yield _inexpressible(what, value)
        elif key in REQUIRED:
            two_families = key == "architectures" and len(_families(config)) > 1
            if two_families or not _is_one(value, REQUIRED[key]):
                yield _inexpressible(what, value)
        elif key not in ASIDE:
            yield _inexpressible(what, value)


def _missing(config: Mapping[str, Value]) -> Iterator[str]:
    """Keys that the file must hold."""
    if "model_type" not in config and "architectures" not in config:
        yield "model_type"
    yield from (key for key in EXPLICIT if key not in config)
    if _families(config) == {"mistral"}:
        # Absent, they mean a window of 4096 positions and eight key/value heads.
        if "sliding_window" not in config:
            yield "sliding_window"
        if config.get("num_key_value_heads") is None:
            yield "num_key_value_heads"


def _families(config: Mapping[str, Value]) -> set[str]:
    """The families that the file names, by its type and by its class."""
    named, classes = config.get("model_type"), config.get("architectures")
    return {family for family, name in FAMILIES.items() if named == family or classes == [name]}


def _is_one(value: Value, allowed: tuple[Value, ...]) -> bool:
    return any(value == other and type(value) is type(other) for other in allowed)


def _is_dtype(value: Value, config: Mapping[str, Value]) -> bool:
    """Whether an element type is known, and no other key names another."""
    return _is_one(value, tuple(DTYPES)) and value == _dtype(config)


def _size_faults(key: str, value: Value, what: str) -> Iterator[Refusal]:
    if key == "num_key_value_heads" and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        yield RecordRefusal(
            code=Code.FIELD_TYPE,
            what=what,
            expected="an unsigned integer",
            actual=canonical.described(value),
        )


def _float_faults(key: str, value: Value, what: str) -> Iterator[Refusal]:
    if isinstance(value, bool) or not isinstance(value, int | Number):
        yield RecordRefusal(
            code=Code.FIELD_TYPE,
            what=what,
            expected="a number",
            actual=canonical.described(value),
        )
        return
    try:
        fields.check_float(_bits(value), positive=key == "rope_theta", path=(WHAT, key))
    except RecordRefusal as fault:
        yield fault


def _head_dim_faults(config: Mapping[str, Value], what: str) -> Iterator[Refusal]:
    """An explicit head width must be the one that the record implies."""
    value, D, heads = (config.get(k) for k in ("head_dim", "hidden_size", "num_attention_heads"))
    implied = isinstance(value, int) and isinstance(heads, int) and value * heads == D
    if value is not None and not (implied and not isinstance(value, bool)):
        yield _inexpressible(what, value)


def _inexpressible(what: str, value: Value) -> SupportRefusal:
    """A list of one value, such as the class of the file, is told by it."""
    told = canonical.described(value)
    if isinstance(value, list) and len(value) == 1:
        told = f"an array of {canonical.described(value[0])}"
    return SupportRefusal(code=Code.CONFIG_FIELD, what=what, feature=told)


def _kv_heads(config: Mapping[str, Value]) -> Value:
    """Absent or null, each query head has its own keys: that is the meaning in these files."""
    own = config.get("num_key_value_heads")
    return config["num_attention_heads"] if own is None else own


def _dtype(config: Mapping[str, Value]) -> Value:
    return next((config[key] for key in DTYPE_KEYS if config.get(key) is not None), None)


def _bits(value: Value) -> str:
    """The bits of the nearest float64; beyond the largest it is an infinity, which is refused."""
    return fields.bits_of(float(value.text if isinstance(value, Number) else str(value)))


def _notes(config: Mapping[str, Value], record: ModelRecord) -> Iterator[str]:
    if _dtype(config) is None:
        yield f"the file names no element type: {record.dtype_policy}, two bytes per element"
    if config.get("num_key_value_heads") is None:
        yield "the file names no key/value heads: every query head has its own"
    aside = [key for key in config if key in ASIDE]
    if aside:
        yield "no size depends on " + ", ".join(aside)
    yield "published checkpoints may store rotated pairs half-split: other bits, equal sizes"
