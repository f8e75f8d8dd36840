"""Every refusal code once; `sentences.txt` beside it says each in one sentence.

Kinds of the specification that no caller can reach here have no code:
  IndexAllocationFailed, OutputAllocationFailed and the other reservation failures (Python
    raises MemoryError, which is no fact about the input);
  LayoutOverflow of the tokenizer (2**32 merges do not fit into memory);
  the second application of the depth factor (no function takes a drawn decoder);
  StorageIdentity of cached rows (a session is the only holder of its storage);
  the failures of fresh decoder preparation, completion, construction identity and execution
    identity binding (an admitted plan has established all that they check).
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

__all__ = ["Code"]


def _sentences(text: str) -> dict[str, dict[str, str]]:
    """Per code its sentence, and where given its `names` and `reason`.

    A code stands at the margin; below it, indented, its sentence, then `key: value` lines.
    """
    table: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            entry = table.setdefault(line, {})
        elif "sentence" not in entry:
            entry["sentence"] = line.strip()
        else:
            key, _, value = line.strip().partition(": ")
            entry[key] = value
    return table


_TABLE = _sentences(Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8"))


class Code(StrEnum):
    """`family/kind`; a code is never renamed or used again.

    sentence: what is false, with the fields in braces
    aliases:  the specification's own names of the family's fields
    reason:   the specification's reason text, or None
    """

    sentence: str
    aliases: dict[str, str]
    reason: str | None

    def __new__(cls, value: str) -> Code:
        """The code with its entry of the table."""
        entry = _TABLE[value]
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = entry["sentence"]
        member.aliases = dict(pair.split("=") for pair in entry.get("names", "").split())
        member.reason = entry.get("reason")
        return member

    # values and ids as callers give them
    NOT_REAL = "numeric/not-real"
    NOT_AN_INTEGER = "index/not-an-integer"
    RAGGED_IDS = "shape/ragged-ids"
    SHAPE_WITH_NESTED_IDS = "shape/shape-with-nested-ids"
    FIELD_TYPE = "record/field-type"
    FIELD_RANGE = "record/field-range"
    SIZE_OVERFLOW = "capacity/size-overflow"

    # leaves, operations and backward
    NON_FINITE_LEAF = "numeric/non-finite-leaf"
    NON_FINITE_FORWARD = "numeric/non-finite-forward"
    NON_FINITE_VJP = "numeric/non-finite-vjp"
    NON_FINITE_PASS_ADJOINT = "numeric/non-finite-pass-adjoint"
    NON_FINITE_ACCUMULATED_GRADIENT = "numeric/non-finite-accumulated-gradient"
    NON_FINITE_SEED = "numeric/non-finite-seed"
    SEED_SHAPE_MISMATCH = "shape/seed-shape-mismatch"
    RELEASED_OPERAND = "state/released-operand"
    GRAPH_RELEASED = "state/graph-released"
    UNTRACKED_OUTPUT = "state/untracked-output"
    NOT_A_PARAMETER = "state/not-a-parameter"
    STALE_OPERAND_VALUE = "binding/stale-operand-value"
    GRADIENT_BORROWED = "state/gradient-borrowed"
    VALUE_BORROWED = "state/value-borrowed"
    ASSIGN_SHAPE_MISMATCH = "shape/assign-shape-mismatch"
    INCOMPATIBLE_BROADCAST = "shape/incompatible-broadcast"
    BROADCAST_TARGET_MISMATCH = "shape/broadcast-target-mismatch"
    RESHAPE_COUNT_MISMATCH = "shape/reshape-count-mismatch"
    AXIS_OUT_OF_BOUNDS = "index/axis-out-of-bounds"
    EMPTY_MEAN_AXIS = "shape/empty-mean-axis"
    MATMUL_LEFT_RANK = "shape/matmul-left-rank"
    MATMUL_RIGHT_RANK = "shape/matmul-right-rank"
    MATMUL_INNER_MISMATCH = "shape/matmul-inner-mismatch"
    GATHER_TABLE_RANK = "shape/gather-table-rank"
    GATHER_INDEX_COUNT_MISMATCH = "shape/gather-index-count-mismatch"
    GATHER_INDEX_OUT_OF_BOUNDS = "index/gather-index-out-of-bounds"
    REPEATED_ROW_POSITION = "index/repeated-row-position"
    EMPTY_NORMALIZATION_AXIS = "shape/empty-normalization-axis"
    NORMALIZATION_NOT_FINITE = "numeric/normalization-not-finite"
    TARGET_COUNT_MISMATCH = "shape/target-count-mismatch"
    EMPTY_TARGETS = "shape/empty-targets"
    TARGET_OUT_OF_BOUNDS = "index/target-out-of-bounds"
    NAN_LOGIT = "numeric/nan-logit"
    POSITIVE_INFINITY_LOGIT = "numeric/positive-infinity-logit"
    NEGATIVE_INFINITY_LOGIT = "numeric/negative-infinity-logit"
    RAW_SUM_NOT_FINITE = "numeric/raw-sum-not-finite"
    CAUSAL_RANK = "shape/causal-rank"
    CAUSAL_NOT_SQUARE = "shape/causal-not-square"
    CAUSAL_RANGE_SHAPE = "shape/causal-range-shape"
    CAUSAL_RANGE = "index/causal-range"
    ROTATION_RANK = "shape/rotation-rank"
    ROTATION_WIDTH_MISMATCH = "shape/rotation-width-mismatch"
    CHECKPOINT_REFUSED = "state/checkpoint-refused"
    CONTRIBUTION_MISMATCH = "shape/contribution-mismatch"
    AMBIGUOUS_TRACE_NODE = "state/ambiguous-trace-node"

    # gradient check
    INVALID_STEP = "numeric/invalid-step"
    INVALID_TOLERANCE = "numeric/invalid-tolerance"
    INVALID_POINT = "numeric/invalid-point"
    COLLAPSED_STEP = "numeric/collapsed-step"
    NON_FINITE_PERTURBATION = "numeric/non-finite-perturbation"
    NON_FINITE_EVALUATION = "numeric/non-finite-evaluation"
    NON_FINITE_SLOPE = "numeric/non-finite-slope"
    NON_FINITE_ANALYTIC = "numeric/non-finite-analytic"
    GRADIENT_SHAPE_MISMATCH = "shape/gradient-shape-mismatch"
    ZERO_SAMPLES = "shape/zero-samples"
    EMPTY_POINT = "shape/empty-point"

    # names and parameter collections
    EMPTY_NAME = "record/empty-name"
    EMPTY_NAME_SEGMENT = "record/empty-name-segment"
    INVALID_NAME_CHARACTER = "record/invalid-name-character"
    DUPLICATE_PARAMETER_NAME = "record/duplicate-parameter-name"
    PARAMETER_NAME_MISMATCH = "record/parameter-name-mismatch"
    PARAMETER_COUNT_MISMATCH = "shape/parameter-count-mismatch"
    ZERO_FAN_IN = "shape/zero-fan-in"
    ZERO_FAN_OUT = "shape/zero-fan-out"
    ZERO_DEPTH = "shape/zero-depth"
    PARAMETER_BUDGET = "capacity/parameter-budget"
    POSITION_BUDGET = "capacity/position-budget"
    ZERO_NORMALIZER = "numeric/zero-normalizer"

    # layers
    TABLE_RANK = "shape/table-rank"
    EMPTY_VOCABULARY = "shape/empty-vocabulary"
    ZERO_EMBEDDING_WIDTH = "shape/zero-embedding-width"
    TOKEN_SHAPE = "shape/token-shape"
    TOKEN_COUNT_MISMATCH = "shape/token-count-mismatch"
    TOKEN_ID_OUT_OF_BOUNDS = "index/token-id-out-of-bounds"
    WEIGHT_RANK = "shape/weight-rank"
    ZERO_INPUT_WIDTH = "shape/zero-input-width"
    ZERO_OUTPUT_WIDTH = "shape/zero-output-width"
    BIAS_RANK = "shape/bias-rank"
    BIAS_WIDTH_MISMATCH = "shape/bias-width-mismatch"
    INPUT_RANK = "shape/input-rank"
    INPUT_WIDTH_MISMATCH = "shape/input-width-mismatch"
    INVALID_EPSILON = "numeric/invalid-epsilon"
    EMPTY_FEATURE_WIDTH = "shape/empty-feature-width"
    GAIN_RANK = "shape/gain-rank"
    INPUT_RANK_ZERO = "shape/input-rank-zero"
    ZERO_ENERGY_ROW = "numeric/zero-energy-row"
    BRANCH_INPUT_WIDTH_MISMATCH = "shape/branch-input-width-mismatch"
    BRANCH_HIDDEN_WIDTH_MISMATCH = "shape/branch-hidden-width-mismatch"
    DOWN_INPUT_WIDTH_MISMATCH = "shape/down-input-width-mismatch"
    PROJECTION_INPUT_WIDTH_MISMATCH = "shape/projection-input-width-mismatch"
    PROJECTION_OUTPUT_WIDTH_MISMATCH = "shape/projection-output-width-mismatch"
    QKV_OUTPUT_WIDTH_MISMATCH = "shape/qkv-output-width-mismatch"
    OUTPUT_INPUT_WIDTH_MISMATCH = "shape/output-input-width-mismatch"
    OUTPUT_WIDTH_MISMATCH = "shape/output-width-mismatch"
    SPLIT_RANK = "shape/split-rank"
    MERGE_RANK = "shape/merge-rank"
    ZERO_HEAD_COUNT = "shape/zero-head-count"
    ZERO_HEAD_WIDTH = "shape/zero-head-width"
    WIDTH_NOT_DIVISIBLE = "shape/width-not-divisible"
    ZERO_FEATURE_WIDTH = "shape/zero-feature-width"
    ODD_FEATURE_WIDTH = "shape/odd-feature-width"
    ZERO_POSITION_CAPACITY = "shape/zero-position-capacity"
    INVALID_BASE = "numeric/invalid-base"
    NON_FINITE_TABLE_VALUE = "numeric/non-finite-table-value"
    POSITION_OFFSET_OVERFLOW = "capacity/position-offset-overflow"
    POSITION_RANGE_EXCEEDED = "capacity/position-range-exceeded"
    ATTENTION_RANK = "shape/attention-rank"
    ATTENTION_BATCH_MISMATCH = "shape/attention-batch-mismatch"
    ATTENTION_TOKEN_MISMATCH = "shape/attention-token-mismatch"
    ATTENTION_WIDTH_MISMATCH = "shape/attention-width-mismatch"
    ZERO_QUERY_WIDTH = "shape/zero-query-width"
    ZERO_KEY_WIDTH = "shape/zero-key-width"
    ZERO_VALUE_WIDTH = "shape/zero-value-width"
    RESIDUAL_SHAPE_MISMATCH = "shape/residual-shape-mismatch"
    COMPONENT_WIDTH_MISMATCH = "shape/component-width-mismatch"

    # decoder configuration and assembly
    ZERO_MODEL_WIDTH = "shape/zero-model-width"
    MODEL_WIDTH_NOT_DIVISIBLE = "shape/model-width-not-divisible"
    ODD_HEAD_WIDTH = "shape/odd-head-width"
    KV_HEADS_NOT_A_DIVISOR = "shape/kv-heads-not-a-divisor"
    ZERO_CONTEXT_WINDOW = "shape/zero-context-window"
    ZERO_FEED_FORWARD_WIDTH = "shape/zero-feed-forward-width"
    INVALID_ROPE_BASE = "numeric/invalid-rope-base"
    INVALID_RMS_EPSILON = "numeric/invalid-rms-epsilon"
    GROUPED_HEADS = "support/grouped-heads"
    CONTEXT_WINDOW = "support/context-window"
    EMBEDDING_VOCABULARY_MISMATCH = "shape/embedding-vocabulary-mismatch"
    EMBEDDING_WIDTH_MISMATCH = "shape/embedding-width-mismatch"
    LAYER_COUNT_MISMATCH = "shape/layer-count-mismatch"
    LAYER_MODEL_WIDTH_MISMATCH = "shape/layer-model-width-mismatch"
    LAYER_HEAD_COUNT_MISMATCH = "shape/layer-head-count-mismatch"
    LAYER_FEED_FORWARD_WIDTH_MISMATCH = "shape/layer-feed-forward-width-mismatch"
    LAYER_POSITION_CAPACITY_MISMATCH = "shape/layer-position-capacity-mismatch"
    LAYER_ROPE_BASE_MISMATCH = "binding/layer-rope-base-mismatch"
    LAYER_NORM_EPSILON_MISMATCH = "binding/layer-norm-epsilon-mismatch"
    FINAL_NORM_WIDTH_MISMATCH = "shape/final-norm-width-mismatch"
    FINAL_NORM_EPSILON_MISMATCH = "binding/final-norm-epsilon-mismatch"

    # token batches, layouts, losses
    TOKEN_RANK = "shape/token-rank"
    EMPTY_BATCH = "shape/empty-batch"
    EMPTY_TOKENS = "shape/empty-tokens"
    CONTEXT_LENGTH_EXCEEDED = "capacity/context-length-exceeded"
    LAYOUT_SHAPE_MISMATCH = "shape/layout-shape-mismatch"
    ZERO_EPSILON_WITH_PADDING = "numeric/zero-epsilon-with-padding"
    INACTIVE_CELL_NOT_PADDING = "index/inactive-cell-not-padding"
    TARGET_ID_OUT_OF_BOUNDS = "index/target-id-out-of-bounds"
    VALID_NOT_BOOLEAN = "record/valid-not-boolean"
    VALID_SHAPE_MISMATCH = "shape/valid-shape-mismatch"
    VALID_CELL_INACTIVE = "index/valid-cell-inactive"
    NO_VALID_TARGET = "shape/no-valid-target"
    INELIGIBLE_TARGET = "index/ineligible-target"
    LENGTH_COUNT_MISMATCH = "shape/length-count-mismatch"
    LENGTH_OUT_OF_RANGE = "index/length-out-of-range"
    RANGE_START_COUNT_MISMATCH = "shape/range-start-count-mismatch"
    RANGE_START_AFTER_QUERY = "index/range-start-after-query"
    INACTIVE_RANGE_START = "index/inactive-range-start"
    POSITION_COUNT_MISMATCH = "shape/position-count-mismatch"
    NEGATIVE_POSITION = "index/negative-position"
    INACTIVE_POSITION = "index/inactive-position"
    EMPTY_SEGMENT = "shape/empty-segment"
    ROW_TOO_LONG = "capacity/row-too-long"
    DOCUMENT_RANGE_TOO_SHORT = "shape/document-range-too-short"
    SITE_OUT_OF_RANGE = "index/site-out-of-range"

    # prepared inputs: one kind of the source, one code per reason
    PREPARED_SHAPE = "binding/prepared-shape"
    PREPARED_POSITION_CAPACITY = "binding/prepared-position-capacity"
    PREPARED_CONFIGURATION = "binding/prepared-configuration"
    PREPARED_PROVENANCE = "binding/prepared-provenance"
    PREPARED_EMBEDDING = "binding/prepared-embedding"
    PREPARED_RECORDING = "binding/prepared-recording"
    PREPARED_PARAMETER = "binding/prepared-parameter"
    PREPARED_PRODUCER = "binding/prepared-producer"
    PREPARED_CACHED_MODE = "binding/prepared-cached-mode"
    PREPARED_CACHE_PREFIX = "binding/prepared-cache-prefix"
    PREPARED_CACHE_BINDING = "binding/prepared-cache-binding"
    PREPARED_HEAD_SHARING = "binding/prepared-head-sharing"

    # cache and session
    ZERO_CACHE_BATCH = "shape/zero-cache-batch"
    ZERO_CACHE_CAPACITY = "shape/zero-cache-capacity"
    CACHE_CAPACITY_EXCEEDED = "capacity/cache-capacity-exceeded"
    CACHE_ROW_SHAPE = "shape/cache-row-shape"
    NON_FINITE_CACHE_ROW = "numeric/non-finite-cache-row"
    CACHE_IN_USE = "state/cache-in-use"
    MODEL_CONFIG_MISMATCH = "binding/model-config-mismatch"
    MODEL_PARAMETER_COUNT_MISMATCH = "binding/model-parameter-count-mismatch"
    MODEL_PARAMETER_MISMATCH = "binding/model-parameter-mismatch"
    MODEL_PARAMETER_REVISION_MISMATCH = "binding/model-parameter-revision-mismatch"
    CACHE_LAYER_COUNT_MISMATCH = "binding/cache-layer-count-mismatch"
    LAYER_LENGTH_INVARIANT = "binding/layer-length-invariant"
    CACHE_LAYER_MISMATCH = "binding/cache-layer-mismatch"
    PREPARED_CACHE_CHANGED = "binding/prepared-cache-changed"
    WORK_OVERFLOW = "capacity/work-overflow"
    SESSION_CLOSED = "state/session-closed"
    EMPTY_PROMPT = "shape/empty-prompt"
    PREFILL_REQUIRES_EMPTY = "state/prefill-requires-empty"
    PROMPT_TOO_LONG = "capacity/prompt-too-long"
    PROMPT_TOKEN_OUT_OF_BOUNDS = "index/prompt-token-out-of-bounds"
    EXTEND_REQUIRES_PREFILL = "state/extend-requires-prefill"
    EMPTY_EXTENSION = "shape/empty-extension"
    EXTENSION_TOO_LONG = "capacity/extension-too-long"
    EXTENSION_TOKEN_OUT_OF_BOUNDS = "index/extension-token-out-of-bounds"
    DECODE_REQUIRES_PREFILL = "state/decode-requires-prefill"
    DECODE_TOKEN_OUT_OF_BOUNDS = "index/decode-token-out-of-bounds"
    FULL = "capacity/full"
    TRUNCATE_LENGTH_OUT_OF_RANGE = "index/truncate-length-out-of-range"

    # tokenizer
    UNKNOWN_MERGE_OPERAND = "index/unknown-merge-operand"
    DUPLICATE_MERGE_PAIR = "record/duplicate-merge-pair"
    DOCUMENT_TOO_SHORT = "shape/document-too-short"
    EXPECTED_BOS = "index/expected-bos"
    EXPECTED_EOS = "index/expected-eos"
    INTERIOR_CONTROL_TOKEN = "index/interior-control-token"
    CONTROL_TOKEN_IN_CONTENT = "index/control-token-in-content"
    UNKNOWN_TOKEN = "index/unknown-token"
    INVALID_UTF8 = "record/invalid-utf8"
    NOT_BYTES = "record/not-bytes"

    # records and plans
    TEXT_SIZE = "record/text-size"
    TEXT_ENCODING = "record/text-encoding"
    TEXT_SYNTAX = "record/text-syntax"
    TEXT_NESTING = "record/text-nesting"
    TEXT_VALUES = "record/text-values"
    TEXT_DIGITS = "record/text-digits"
    LONE_SURROGATE = "record/lone-surrogate"
    DUPLICATE_KEY = "record/duplicate-key"
    UNKNOWN_KEY = "record/unknown-key"
    MISSING_KEY = "record/missing-key"
    SCHEMA_VERSION = "record/schema-version"
    PARAMETER_FAMILY = "record/parameter-family"
    UNKNOWN_POLICY = "record/unknown-policy"
    UNKNOWN_NAME = "record/unknown-name"
    NOT_CANONICAL = "record/not-canonical"
    IDENTITY_GRAMMAR = "record/identity-grammar"
    IDENTITY_FIELD_COUNT = "record/identity-field-count"
    IDENTITY_VALUE_SIZE = "record/identity-value-size"
    IDENTITY_TOTAL_SIZE = "record/identity-total-size"
    HEAD_GROUPING = "shape/head-grouping"
    EVEN_ROPE_HEAD_WIDTH = "shape/even-rope-head-width"
    PLAN_OVERFLOW = "capacity/plan-overflow"
    INEXACT_DIVISION = "shape/inexact-division"
    UNKNOWN_BUFFER = "state/unknown-buffer"
    RELEASED_BUFFER = "state/released-buffer"
    BUFFER_EXISTS = "state/buffer-exists"
    ALIAS_CYCLE = "state/alias-cycle"
    BACKEND = "support/backend"
    DEVICE = "support/device"
    KERNEL = "support/kernel"
    DTYPE = "support/dtype"
    DISTRIBUTED = "support/distributed"
    ARTIFACT = "support/artifact"
    SEED = "support/seed"
    PROFILE_STATE = "support/profile-state"
    TOPOLOGY = "support/topology"
    LIMIT_EXCEEDED = "capacity/limit-exceeded"
    PARTITION_EXCEEDED = "capacity/partition-exceeded"
    UNKNOWN_DEMAND = "capacity/unknown-demand"
    PLAN_REFUSED = "admission/plan-refused"
    ADMISSION_NOT_ISSUED = "state/admission-not-issued"
    ADMISSION_SPENT = "state/admission-spent"
    GENERATOR_STATE = "state/generator-state"
    CONFIG_FIELD = "support/config-field"
    CONFIG_REFUSED = "admission/config-refused"
