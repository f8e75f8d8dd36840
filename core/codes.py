"""Every refusal code once: its sentence, and the specification's names for its fields.

Kinds of the specification that no caller can reach here have no code:
  IndexAllocationFailed, OutputAllocationFailed and the other reservation failures (Python
    raises MemoryError, which is no fact about the input);
  LayoutOverflow of the tokenizer (2**32 merges do not fit into memory);
  the second application of the depth factor (no function takes a drawn decoder);
  StorageIdentity of cached rows (a session is the only holder of its storage).
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """`family/kind`; members carry `.sentence`, `.aliases` and `.reason`."""

    sentence: str
    aliases: dict[str, str]
    reason: str | None

    def __new__(
        cls, value: str, sentence: str = "", names: str = "", reason: str | None = None
    ) -> Code:
        """A code; `names` lists `specification=field` pairs."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        member.aliases = dict(pair.split("=") for pair in names.split())
        member.reason = reason
        return member

    # values and ids as callers give them
    NOT_REAL = "numeric/not-real", "{what} must hold real numbers, got {value}"
    NOT_AN_INTEGER = (
        "index/not-an-integer",
        "{what}: {index} at flat position {at} is not an integer below {bound}",
        "position=at id=index",
    )
    RAGGED_IDS = (
        "shape/ragged-ids",
        "{what} must be a rectangular array: expected {expected}, got {actual}",
    )
    SHAPE_WITH_NESTED_IDS = (
        "shape/shape-with-nested-ids",
        "{what}: a shape goes with flat ids only, got ids of shape {actual}",
    )
    FIELD_TYPE = "record/field-type", "{what} must be {expected}, got {actual}"
    FIELD_RANGE = "record/field-range", "{what} must be {expected}, got {actual}"
    SIZE_OVERFLOW = (
        "capacity/size-overflow",
        "{what} needs {required} elements, more than {limit}",
    )

    # leaves, operations and backward
    NON_FINITE_LEAF = (
        "numeric/non-finite-leaf",
        "{op} {what} holds {value} at flat index {at}; every value must be finite",
        "index=at",
    )
    NON_FINITE_FORWARD = (
        "numeric/non-finite-forward",
        "{op} gives {value} at flat index {at}; every result must be finite",
        "index=at",
    )
    NON_FINITE_VJP = (
        "numeric/non-finite-vjp",
        "{what}: the gradient of node {child} to operand {operand} (node {parent}) is {value} "
        "at flat index {at}; every contribution must be finite",
        "index=at",
    )
    NON_FINITE_PASS_ADJOINT = (
        "numeric/non-finite-pass-adjoint",
        "{what}: adding {contribution} to the adjoint {previous} of node {node} at flat index "
        "{at} is not finite",
        "index=at",
    )
    NON_FINITE_ACCUMULATED_GRADIENT = (
        "numeric/non-finite-accumulated-gradient",
        "{what}: adding {pass_adjoint} to the stored gradient {stored} of node {node} at flat "
        "index {at} is not finite",
        "index=at",
    )
    NON_FINITE_SEED = (
        "numeric/non-finite-seed",
        "the backward seed holds {value} at flat index {at}; every seed value must be finite",
        "index=at",
    )
    SEED_SHAPE_MISMATCH = (
        "shape/seed-shape-mismatch",
        "the backward seed must have the shape {expected} of the output, got {actual}",
    )
    RELEASED_OPERAND = (
        "state/released-operand",
        "{what}: operand {operand} leads to a released graph; its forward must be run again",
    )
    GRAPH_RELEASED = (
        "state/graph-released",
        "backward meets a released {op} node; its forward must be run again",
    )
    UNTRACKED_OUTPUT = (
        "state/untracked-output",
        "backward needs a tracked output, but this {op} tracks no parameter",
    )
    NOT_A_PARAMETER = "state/not-a-parameter", "only a parameter holds a gradient, this is a {op}"
    STALE_OPERAND_VALUE = (
        "binding/stale-operand-value",
        "{what}: operand {operand} (node {parent}) of node {child} was read at revision "
        "{expected} and is now at revision {actual}",
        "recorded=expected current=actual",
    )
    GRADIENT_BORROWED = (
        "state/gradient-borrowed",
        "the gradient of {what} is being read {actual} times, so it cannot be written",
    )
    VALUE_BORROWED = (
        "state/value-borrowed",
        "the value of {what} is being read {actual} times, so it cannot be assigned",
    )
    ASSIGN_SHAPE_MISMATCH = (
        "shape/assign-shape-mismatch",
        "{what} has shape {expected} and cannot be assigned a value of shape {actual}",
    )
    INCOMPATIBLE_BROADCAST = (
        "shape/incompatible-broadcast",
        "{what}: sizes {left} and {right} of axis {axis} do not broadcast",
        "left=expected right=actual",
    )
    BROADCAST_TARGET_MISMATCH = (
        "shape/broadcast-target-mismatch",
        "{what}: the operand broadcasts to {actual}, not to the requested {expected}",
    )
    RESHAPE_COUNT_MISMATCH = (
        "shape/reshape-count-mismatch",
        "{what}: the requested shape holds {expected} elements, the operand {actual}",
    )
    AXIS_OUT_OF_BOUNDS = (
        "index/axis-out-of-bounds",
        "{what}: axis {index} is out of bounds for rank {bound}",
        "axis=index rank=bound",
    )
    EMPTY_MEAN_AXIS = (
        "shape/empty-mean-axis",
        "{what}: the mean over an axis of size 0 is undefined",
    )
    MATMUL_LEFT_RANK = (
        "shape/matmul-left-rank",
        "{what}: the left operand must have rank two or more, got rank {actual}",
        "rank=actual",
    )
    MATMUL_RIGHT_RANK = (
        "shape/matmul-right-rank",
        "{what}: the right operand must have rank two or more, got rank {actual}",
        "rank=actual",
    )
    MATMUL_INNER_MISMATCH = (
        "shape/matmul-inner-mismatch",
        "{what}: inner sizes must agree, got {expected} columns on the left and {actual} rows "
        "on the right",
        "left=expected right=actual",
    )
    GATHER_TABLE_RANK = (
        "shape/gather-table-rank",
        "{what}: the table must have rank two, got rank {actual}",
        "rank=actual",
    )
    GATHER_INDEX_COUNT_MISMATCH = (
        "shape/gather-index-count-mismatch",
        "{what}: the index shape needs {expected} indices, but received {actual}",
    )
    GATHER_INDEX_OUT_OF_BOUNDS = (
        "index/gather-index-out-of-bounds",
        "{what}: index {index} at flat position {at} is out of bounds for {bound} rows",
        "position=at rows=bound",
    )
    REPEATED_ROW_POSITION = (
        "index/repeated-row-position",
        "{what}: flat position {at} repeats the row {index}",
        "position=at",
    )
    EMPTY_NORMALIZATION_AXIS = (
        "shape/empty-normalization-axis",
        "{what}: axis {axis} holds no class to normalise over",
    )
    NORMALIZATION_NOT_FINITE = (
        "numeric/normalization-not-finite",
        "{what}: class {class} of group {group} is {value}; every value must be finite",
    )
    TARGET_COUNT_MISMATCH = (
        "shape/target-count-mismatch",
        "{what} must have shape or count {expected}, got {actual}",
    )
    EMPTY_TARGETS = "shape/empty-targets", "{what}: the loss needs at least one target"
    TARGET_OUT_OF_BOUNDS = (
        "index/target-out-of-bounds",
        "{what}: target {index} of group {at} is out of bounds for {bound} classes",
        "group=at target=index classes=bound",
    )
    NAN_LOGIT = (
        "numeric/nan-logit",
        "{what}: the logit of group {group}, class {class} is {value}",
    )
    POSITIVE_INFINITY_LOGIT = (
        "numeric/positive-infinity-logit",
        "{what}: the logit of group {group}, class {class} is {value}",
    )
    NEGATIVE_INFINITY_LOGIT = (
        "numeric/negative-infinity-logit",
        "{what}: the logit of group {group}, class {class} is {value}",
    )
    RAW_SUM_NOT_FINITE = (
        "numeric/raw-sum-not-finite",
        "{what}: the raw loss sum becomes {value} at group {at}; only the mean can be formed",
        "group=at",
    )
    CAUSAL_RANK = (
        "shape/causal-rank",
        "{what}: scores must have rank two or more, got rank {actual}",
        "rank=actual",
    )
    CAUSAL_NOT_SQUARE = (
        "shape/causal-not-square",
        "{what}: scores need as many keys as queries, got {expected} queries and {actual} keys",
    )
    CAUSAL_RANGE_SHAPE = (
        "shape/causal-range-shape",
        "{what}: key ranges must have shape {expected}, got {actual}",
    )
    CAUSAL_RANGE = (
        "index/causal-range",
        "{what}: key range start {index} of flat query {at} must lie in 0 .. {bound}",
    )
    ROTATION_RANK = (
        "shape/rotation-rank",
        "{what}: the rotated operand must have rank two or more, got rank {actual}",
        "rank=actual",
    )
    ROTATION_WIDTH_MISMATCH = (
        "shape/rotation-width-mismatch",
        "{what}: the table rotates {expected} features, the operand has {actual}",
    )
    CHECKPOINT_REFUSED = (
        "state/checkpoint-refused",
        "activation checkpoint: {what} refused while it was recomputed ({cause})",
    )

    AMBIGUOUS_TRACE_NODE = (
        "state/ambiguous-trace-node",
        "the trace holds {actual} nodes with an adjoint named {what}; exactly one is needed",
    )

    # gradient check
    INVALID_STEP = (
        "numeric/invalid-step",
        "{what}: the step must be finite and above 0, got {value}",
    )
    INVALID_TOLERANCE = (
        "numeric/invalid-tolerance",
        "{what}: the tolerance must be finite and not negative, got {value}",
    )
    INVALID_POINT = "numeric/invalid-point", "{what}: the point must be finite, got {value}"
    COLLAPSED_STEP = (
        "numeric/collapsed-step",
        "{what}: the step is lost at coordinate {at}: the {side} perturbation equals the point "
        "{value}",
        "coordinate=at",
    )
    NON_FINITE_PERTURBATION = (
        "numeric/non-finite-perturbation",
        "{what}: the {side} perturbation of coordinate {at} is {value}",
        "coordinate=at",
    )
    NON_FINITE_EVALUATION = (
        "numeric/non-finite-evaluation",
        "{what}: the {side} evaluation gives {value}; it must be finite",
    )
    NON_FINITE_SLOPE = (
        "numeric/non-finite-slope",
        "{what}: the {side} slope is {value}; it must be finite",
    )
    NON_FINITE_ANALYTIC = (
        "numeric/non-finite-analytic",
        "{what}: the analytic gradient of coordinate {at} is {value}; it must be finite",
        "coordinate=at",
    )
    GRADIENT_SHAPE_MISMATCH = (
        "shape/gradient-shape-mismatch",
        "{what}: point and analytic gradient must have one shape, got {expected} and {actual}",
    )
    ZERO_SAMPLES = "shape/zero-samples", "{what}: at least one sample is needed, got {actual}"
    EMPTY_POINT = "shape/empty-point", "{what}: the point holds no coordinate to perturb"

    # names and parameter collections
    EMPTY_NAME = "record/empty-name", "a parameter name must not be empty"
    EMPTY_NAME_SEGMENT = (
        "record/empty-name-segment",
        "parameter name {actual!r} has an empty segment at byte {index}",
    )
    INVALID_NAME_CHARACTER = (
        "record/invalid-name-character",
        "parameter name {actual!r} has the byte {byte} at index {index}; allowed are a-z, 0-9, "
        "underscore and the dot",
    )
    DUPLICATE_PARAMETER_NAME = (
        "record/duplicate-parameter-name",
        "parameter {index} repeats the name {actual!r} of parameter {first}",
    )
    PARAMETER_NAME_MISMATCH = (
        "record/parameter-name-mismatch",
        "parameter {index} must be named {expected!r}, got {actual!r}",
    )
    PARAMETER_COUNT_MISMATCH = (
        "shape/parameter-count-mismatch",
        "{what} needs {expected} parameters, got {actual}",
    )
    ZERO_FAN_IN = "shape/zero-fan-in", "{what}: the initial matrix needs at least one input"
    ZERO_FAN_OUT = "shape/zero-fan-out", "{what}: the initial matrix needs at least one output"
    ZERO_DEPTH = "shape/zero-depth", "the depth factor needs at least one block, got {actual}"
    PARAMETER_BUDGET = (
        "capacity/parameter-budget",
        "{what} needs {required} parameters, more than the budget of {limit}",
    )
    POSITION_BUDGET = (
        "capacity/position-budget",
        "{what} needs {required} positions, more than the budget of {limit}",
    )
    ZERO_NORMALIZER = (
        "numeric/zero-normalizer",
        "{what}: the reference magnitude is {value}; it must be finite and above 0",
    )

    # layers
    TABLE_RANK = (
        "shape/table-rank",
        "embedding table must have rank two, got rank {actual}",
        "rank=actual",
    )
    EMPTY_VOCABULARY = (
        "shape/empty-vocabulary",
        "embedding vocabulary must contain at least one row",
    )
    ZERO_EMBEDDING_WIDTH = (
        "shape/zero-embedding-width",
        "embedding width must be greater than zero",
    )
    TOKEN_SHAPE = "shape/token-shape", "invalid token-ID shape: {actual}"
    TOKEN_COUNT_MISMATCH = (
        "shape/token-count-mismatch",
        "token-ID shape needs {expected} IDs, but received {actual}",
    )
    TOKEN_ID_OUT_OF_BOUNDS = (
        "index/token-id-out-of-bounds",
        "token ID {index} at flat position {at} is out of bounds for vocabulary size {bound}",
        "position=at id=index vocabulary_size=bound",
    )
    WEIGHT_RANK = (
        "shape/weight-rank",
        "{what}: the weight must have rank two, got rank {actual}",
        "rank=actual",
    )
    ZERO_INPUT_WIDTH = "shape/zero-input-width", "{what}: the input width must be greater than zero"
    ZERO_OUTPUT_WIDTH = (
        "shape/zero-output-width",
        "{what}: the output width must be greater than zero",
    )
    BIAS_RANK = (
        "shape/bias-rank",
        "{what}: the bias must have rank one, got rank {actual}",
        "rank=actual",
    )
    BIAS_WIDTH_MISMATCH = (
        "shape/bias-width-mismatch",
        "{what}: the bias needs {expected} entries, got {actual}",
    )
    INPUT_RANK = (
        "shape/input-rank",
        "{what}: the input needs rank {expected}, got rank {actual}",
        "rank=actual",
    )
    INPUT_WIDTH_MISMATCH = (
        "shape/input-width-mismatch",
        "{what}: the input needs {expected} features, got {actual}",
    )
    INVALID_EPSILON = (
        "numeric/invalid-epsilon",
        "{what}: epsilon must be finite and not negative, got {value}",
    )
    EMPTY_FEATURE_WIDTH = (
        "shape/empty-feature-width",
        "{what}: the feature width must be greater than zero",
    )
    GAIN_RANK = (
        "shape/gain-rank",
        "{what}: the gain must have rank one, got shape {actual}",
        "shape=actual",
    )
    INPUT_RANK_ZERO = "shape/input-rank-zero", "{what}: the input needs a feature axis, got rank 0"
    ZERO_ENERGY_ROW = (
        "numeric/zero-energy-row",
        "{what}: row {at} has mean square 0 and epsilon is 0, so it has no inverse root",
        "row=at",
    )
    BRANCH_INPUT_WIDTH_MISMATCH = (
        "shape/branch-input-width-mismatch",
        "{what}: gate and up need one input width, got {expected} and {actual}",
        "gate=expected up=actual",
    )
    BRANCH_HIDDEN_WIDTH_MISMATCH = (
        "shape/branch-hidden-width-mismatch",
        "{what}: gate and up need one hidden width, got {expected} and {actual}",
        "gate=expected up=actual",
    )
    DOWN_INPUT_WIDTH_MISMATCH = (
        "shape/down-input-width-mismatch",
        "{what}: down must take the hidden width {expected}, it takes {actual}",
        "hidden=expected down=actual",
    )
    PROJECTION_INPUT_WIDTH_MISMATCH = (
        "shape/projection-input-width-mismatch",
        "{what}: query, key and value need one input width, got {expected} and {actual}",
    )
    PROJECTION_OUTPUT_WIDTH_MISMATCH = (
        "shape/projection-output-width-mismatch",
        "{what}: query, key and value need one output width, got {expected} and {actual}",
    )
    QKV_OUTPUT_WIDTH_MISMATCH = (
        "shape/qkv-output-width-mismatch",
        "{what}: the query width must be the model width {expected}, got {actual}",
    )
    OUTPUT_INPUT_WIDTH_MISMATCH = (
        "shape/output-input-width-mismatch",
        "{what}: the output projection must take width {expected}, it takes {actual}",
    )
    OUTPUT_WIDTH_MISMATCH = (
        "shape/output-width-mismatch",
        "{what}: the output projection must give width {expected}, it gives {actual}",
    )
    SPLIT_RANK = (
        "shape/split-rank",
        "{what}: heads are split from rank 3, got rank {actual}",
        "rank=actual",
    )
    MERGE_RANK = (
        "shape/merge-rank",
        "{what}: heads are merged from rank 4, got rank {actual}",
        "rank=actual",
    )
    ZERO_HEAD_COUNT = "shape/zero-head-count", "{what}: the head count must be greater than zero"
    ZERO_HEAD_WIDTH = "shape/zero-head-width", "{what}: the head width must be greater than zero"
    WIDTH_NOT_DIVISIBLE = (
        "shape/width-not-divisible",
        "{what}: width {actual} is not divisible by {expected} heads",
        "width=actual heads=expected",
    )
    ZERO_FEATURE_WIDTH = (
        "shape/zero-feature-width",
        "{what}: the rotated width must be greater than zero",
    )
    ODD_FEATURE_WIDTH = (
        "shape/odd-feature-width",
        "{what}: the rotated width must be even, got {actual}",
    )
    ZERO_POSITION_CAPACITY = (
        "shape/zero-position-capacity",
        "{what}: the position capacity must be greater than zero",
    )
    INVALID_BASE = (
        "numeric/invalid-base",
        "{what}: the base must be finite and above 0, got {value}",
    )
    NON_FINITE_TABLE_VALUE = (
        "numeric/non-finite-table-value",
        "{what}: the rotation of position {position}, pair {at} is {value}",
        "pair=at",
    )
    POSITION_OFFSET_OVERFLOW = (
        "capacity/position-offset-overflow",
        "{what}: the position range ends at {required}, beyond the size type's {limit}",
    )
    POSITION_RANGE_EXCEEDED = (
        "capacity/position-range-exceeded",
        "{what}: the position range ends at {required}, beyond the capacity {limit}",
        "end=required capacity=limit",
    )
    ATTENTION_RANK = (
        "shape/attention-rank",
        "{what} must have rank 3, got rank {actual}",
        "rank=actual",
    )
    ATTENTION_BATCH_MISMATCH = (
        "shape/attention-batch-mismatch",
        "{what}: query, key and value need one batch size, got {expected} and {actual}",
    )
    ATTENTION_TOKEN_MISMATCH = (
        "shape/attention-token-mismatch",
        "{what}: query, key and value need one token count, got {expected} and {actual}",
    )
    ATTENTION_WIDTH_MISMATCH = (
        "shape/attention-width-mismatch",
        "{what}: query and key need one width, got {expected} and {actual}",
    )
    ZERO_QUERY_WIDTH = "shape/zero-query-width", "{what}: the query width must be greater than zero"
    ZERO_KEY_WIDTH = "shape/zero-key-width", "{what}: the key width must be greater than zero"
    ZERO_VALUE_WIDTH = "shape/zero-value-width", "{what}: the value width must be greater than zero"
    RESIDUAL_SHAPE_MISMATCH = (
        "shape/residual-shape-mismatch",
        "{what}: identity and branch need one shape, got {expected} and {actual}",
    )
    COMPONENT_WIDTH_MISMATCH = (
        "shape/component-width-mismatch",
        "{what}: the width must be the attention's {expected}, got {actual}",
    )

    # decoder configuration and assembly
    ZERO_MODEL_WIDTH = "shape/zero-model-width", "{what}: the model width must be greater than zero"
    MODEL_WIDTH_NOT_DIVISIBLE = (
        "shape/model-width-not-divisible",
        "{what}: model width {actual} is not divisible by {expected} heads",
        "model_width=actual heads=expected",
    )
    ODD_HEAD_WIDTH = (
        "shape/odd-head-width",
        "{what}: the head width must be even for rotated pairs, got {actual}",
        "head_width=actual",
    )
    KV_HEADS_NOT_A_DIVISOR = (
        "shape/kv-heads-not-a-divisor",
        "{what}: {actual} key/value heads do not divide {expected} query heads",
        "heads=expected kv_heads=actual",
    )
    ZERO_CONTEXT_WINDOW = (
        "shape/zero-context-window",
        "{what}: the context window must be greater than zero",
    )
    ZERO_FEED_FORWARD_WIDTH = (
        "shape/zero-feed-forward-width",
        "{what}: the feed-forward width must be greater than zero",
    )
    INVALID_ROPE_BASE = (
        "numeric/invalid-rope-base",
        "{what}: the RoPE base must be finite and above 0, got {value}",
    )
    INVALID_RMS_EPSILON = (
        "numeric/invalid-rms-epsilon",
        "{what}: the RMS epsilon must be finite and not negative, got {value}",
    )
    GROUPED_HEADS = (
        "support/grouped-heads",
        "{what}: {feature} can be planned but has no kernel here",
    )
    CONTEXT_WINDOW = (
        "support/context-window",
        "{what}: {feature} can be planned but has no kernel here",
    )
    EMBEDDING_VOCABULARY_MISMATCH = (
        "shape/embedding-vocabulary-mismatch",
        "{what}: the table needs {expected} rows, got {actual}",
    )
    EMBEDDING_WIDTH_MISMATCH = (
        "shape/embedding-width-mismatch",
        "{what}: the table needs width {expected}, got {actual}",
    )
    LAYER_COUNT_MISMATCH = (
        "shape/layer-count-mismatch",
        "{what} needs {expected} blocks, got {actual}",
    )
    LAYER_MODEL_WIDTH_MISMATCH = (
        "shape/layer-model-width-mismatch",
        "{what}: the model width must be {expected}, got {actual}",
    )
    LAYER_HEAD_COUNT_MISMATCH = (
        "shape/layer-head-count-mismatch",
        "{what}: the head count must be {expected}, got {actual}",
    )
    LAYER_FEED_FORWARD_WIDTH_MISMATCH = (
        "shape/layer-feed-forward-width-mismatch",
        "{what}: the feed-forward width must be {expected}, got {actual}",
    )
    LAYER_POSITION_CAPACITY_MISMATCH = (
        "shape/layer-position-capacity-mismatch",
        "{what}: the position capacity must be {expected}, got {actual}",
    )
    LAYER_ROPE_BASE_MISMATCH = (
        "binding/layer-rope-base-mismatch",
        "{what}: the RoPE base must have the bits of {expected}, got {actual}",
    )
    LAYER_NORM_EPSILON_MISMATCH = (
        "binding/layer-norm-epsilon-mismatch",
        "{what}: the {norm} norm's epsilon must have the bits of {expected}, got {actual}",
    )
    FINAL_NORM_WIDTH_MISMATCH = (
        "shape/final-norm-width-mismatch",
        "{what}: the final norm needs width {expected}, got {actual}",
    )
    FINAL_NORM_EPSILON_MISMATCH = (
        "binding/final-norm-epsilon-mismatch",
        "{what}: the final norm's epsilon must have the bits of {expected}, got {actual}",
    )

    # token batches, layouts, losses
    TOKEN_RANK = (
        "shape/token-rank",
        "{what} must have rank {expected}, got rank {actual}",
        "rank=actual",
    )
    EMPTY_BATCH = "shape/empty-batch", "{what} needs at least one row"
    EMPTY_TOKENS = "shape/empty-tokens", "{what} needs at least one token per row"
    CONTEXT_LENGTH_EXCEEDED = (
        "capacity/context-length-exceeded",
        "{what} has {required} tokens per row, more than the {limit} positions of the decoder",
        "tokens=required capacity=limit",
    )
    LAYOUT_SHAPE_MISMATCH = (
        "shape/layout-shape-mismatch",
        "{what}: the layout has shape {actual}, the batch {expected}",
    )
    ZERO_EPSILON_WITH_PADDING = (
        "numeric/zero-epsilon-with-padding",
        "{what}: cell {at} is inactive and would be a zero row, which epsilon {value} cannot "
        "normalise",
    )
    INACTIVE_CELL_NOT_PADDING = (
        "index/inactive-cell-not-padding",
        "{what}: the inactive cell at flat position {at} must hold -1, got {index}",
        "position=at id=index",
    )
    TARGET_ID_OUT_OF_BOUNDS = (
        "index/target-id-out-of-bounds",
        "{what}: target ID {index} at flat position {at} is out of bounds for vocabulary size "
        "{bound}",
        "position=at id=index vocabulary_size=bound",
    )
    VALID_NOT_BOOLEAN = "record/valid-not-boolean", "{what} must be booleans, got {actual}"
    VALID_SHAPE_MISMATCH = (
        "shape/valid-shape-mismatch",
        "{what} must have shape {expected}, got {actual}",
    )
    VALID_CELL_INACTIVE = (
        "index/valid-cell-inactive",
        "{what}: the cell at flat position {at} (row position {index}) is marked valid but its "
        "row has only {bound} active positions",
        "position=at",
    )
    NO_VALID_TARGET = "shape/no-valid-target", "{what}: no cell is valid, so there is no loss"
    INELIGIBLE_TARGET = (
        "index/ineligible-target",
        "{what}: the target of the ineligible cell at flat position {at} must be -1, got {index}",
        "position=at id=index",
    )
    LENGTH_COUNT_MISMATCH = (
        "shape/length-count-mismatch",
        "{what}: {expected} rows need as many lengths, got {actual}",
    )
    LENGTH_OUT_OF_RANGE = (
        "index/length-out-of-range",
        "{what}: the length {index} of row {at} must lie in 1 .. {bound}",
        "row=at length=index",
    )
    RANGE_START_COUNT_MISMATCH = (
        "shape/range-start-count-mismatch",
        "{what}: range starts need shape {expected}, got {actual}",
    )
    RANGE_START_AFTER_QUERY = (
        "index/range-start-after-query",
        "{what}: the range start {index} of flat cell {at} must lie in 0 .. {bound}",
        "position=at",
    )
    INACTIVE_RANGE_START = (
        "index/inactive-range-start",
        "{what}: the inactive flat cell {at} must have range start 0, got {index}",
        "position=at",
    )
    POSITION_COUNT_MISMATCH = (
        "shape/position-count-mismatch",
        "{what}: positions need shape {expected}, got {actual}",
    )
    NEGATIVE_POSITION = (
        "index/negative-position",
        "{what}: the position {index} of flat cell {at} must lie in 0 .. {bound}",
        "position=at",
    )
    INACTIVE_POSITION = (
        "index/inactive-position",
        "{what}: the inactive flat cell {at} must have position 0, got {index}",
        "position=at",
    )
    EMPTY_SEGMENT = "shape/empty-segment", "{what}: segment {index} of row {row} holds no cell"
    ROW_TOO_LONG = (
        "capacity/row-too-long",
        "{what} needs {required} cells, more than the {limit} of a row",
    )
    DOCUMENT_RANGE_TOO_SHORT = (
        "shape/document-range-too-short",
        "{what}: a document range needs two ids or more to give a pair, got {actual}",
    )
    SITE_OUT_OF_RANGE = (
        "index/site-out-of-range",
        "{what}: residual site {index} is out of range, there are {bound}",
        "site=index site_count=bound",
    )

    # prepared inputs: one kind of the source, one code per reason
    PREPARED_SHAPE = (
        "binding/prepared-shape",
        "prepared input refused: {reason} (expected {expected}, got {actual})",
        "",
        "B,T,D or admitted row count",
    )
    PREPARED_POSITION_CAPACITY = (
        "binding/prepared-position-capacity",
        "prepared input refused: {reason} (position {actual}, capacity {expected})",
        "",
        "position capacity",
    )
    PREPARED_CONFIGURATION = (
        "binding/prepared-configuration",
        "prepared input refused: {reason} (expected {expected}, got {actual})",
        "",
        "backbone configuration or execution identity",
    )
    PREPARED_PROVENANCE = (
        "binding/prepared-provenance",
        "prepared input refused: {reason}",
        "",
        "empty producer provenance",
    )
    PREPARED_EMBEDDING = (
        "binding/prepared-embedding",
        "prepared input refused: {reason} (expected {expected}, got {actual})",
        "",
        "prepared hidden tensor identity or revision",
    )
    PREPARED_RECORDING = (
        "binding/prepared-recording",
        "prepared input refused: {reason} (a no-grad call got a tracked tensor)",
        "",
        "graph-recording mode",
    )
    PREPARED_PARAMETER = (
        "binding/prepared-parameter",
        "prepared input refused: {reason} ({what}: expected {expected}, got {actual})",
        "",
        "backbone parameter node or revision",
    )
    PREPARED_PRODUCER = (
        "binding/prepared-producer",
        "prepared input refused: {reason} ({what}: expected {expected}, got {actual})",
        "",
        "producer parameter revision",
    )
    PREPARED_CACHED_MODE = (
        "binding/prepared-cached-mode",
        "prepared input refused: {reason} (expected {expected}, got {actual})",
        "",
        "cached mode, position or layers",
    )
    PREPARED_CACHE_PREFIX = (
        "binding/prepared-cache-prefix",
        "prepared input refused: {reason} ({what}: expected {expected}, got {actual})",
        "",
        "cache prefix/batch/capacity",
    )
    PREPARED_CACHE_BINDING = (
        "binding/prepared-cache-binding",
        "prepared input refused: {reason} ({what}: expected {expected}, got {actual})",
        "",
        "cache parameter binding",
    )
    PREPARED_HEAD_SHARING = (
        "binding/prepared-head-sharing",
        "prepared input refused: {reason} ({what}: expected {expected}, got {actual})",
        "",
        "block head sharing or context window differs from backbone",
    )

    # cache and session
    ZERO_CACHE_BATCH = "shape/zero-cache-batch", "{what}: the batch must be greater than zero"
    ZERO_CACHE_CAPACITY = (
        "shape/zero-cache-capacity",
        "{what}: the capacity must be greater than zero",
    )
    CACHE_CAPACITY_EXCEEDED = (
        "capacity/cache-capacity-exceeded",
        "{what}: a capacity of {required} is more than the {limit} positions of the rotary table",
    )
    CACHE_ROW_SHAPE = (
        "shape/cache-row-shape",
        "cache {what} row must have shape {expected}, got {actual}",
    )
    NON_FINITE_CACHE_ROW = (
        "numeric/non-finite-cache-row",
        "cache {what} row holds {value} at flat index {at}; every value must be finite",
        "index=at",
    )
    MODEL_CONFIG_MISMATCH = (
        "binding/model-config-mismatch",
        "the cache was made for {expected}, not for {actual}",
    )
    MODEL_PARAMETER_COUNT_MISMATCH = (
        "binding/model-parameter-count-mismatch",
        "the cache is bound to {expected} parameters, the decoder has {actual}",
    )
    MODEL_PARAMETER_MISMATCH = (
        "binding/model-parameter-mismatch",
        "parameter {index} ({what}) of the decoder is not the node the cache is bound to",
    )
    MODEL_PARAMETER_REVISION_MISMATCH = (
        "binding/model-parameter-revision-mismatch",
        "parameter {index} ({what}) is at revision {actual}, the cache is bound to revision "
        "{expected}",
        "cache=expected model=actual",
    )
    CACHE_LAYER_COUNT_MISMATCH = (
        "binding/cache-layer-count-mismatch",
        "the decoder has {expected} blocks, the cache {actual} layers",
    )
    LAYER_LENGTH_INVARIANT = (
        "binding/layer-length-invariant",
        "{what} of the cache holds {actual} rows, the cache {expected}",
    )
    CACHE_LAYER_MISMATCH = (
        "binding/cache-layer-mismatch",
        "{what} of the cache does not fit its block: expected {expected}, got {actual}",
    )
    PREPARED_CACHE_CHANGED = (
        "binding/prepared-cache-changed",
        "{what} changed while a token was computed: expected {expected} rows, found {actual}",
    )
    WORK_OVERFLOW = (
        "capacity/work-overflow",
        "{what}: the counter {counter} would reach {required}, more than {limit}",
    )
    SESSION_CLOSED = (
        "state/session-closed",
        "the session is {actual}; open a new one over its cache",
    )
    EMPTY_PROMPT = "shape/empty-prompt", "a prompt needs at least one token"
    PREFILL_REQUIRES_EMPTY = (
        "state/prefill-requires-empty",
        "prefill needs an empty cache, this one holds {actual} tokens",
        "len=actual",
    )
    PROMPT_TOO_LONG = (
        "capacity/prompt-too-long",
        "the prompt has {required} tokens, the cache holds {limit}",
        "tokens=required capacity=limit",
    )
    PROMPT_TOKEN_OUT_OF_BOUNDS = (
        "index/prompt-token-out-of-bounds",
        "prompt token {index} at position {at} is out of bounds for vocabulary size {bound}",
        "position=at token_id=index vocabulary_size=bound",
    )
    EXTEND_REQUIRES_PREFILL = (
        "state/extend-requires-prefill",
        "extend needs a prefilled session, this one is {actual}",
    )
    EMPTY_EXTENSION = "shape/empty-extension", "an extension needs at least one token"
    EXTENSION_TOO_LONG = (
        "capacity/extension-too-long",
        "the extension would make {required} tokens, the cache holds {limit}",
        "tokens=required capacity=limit",
    )
    EXTENSION_TOKEN_OUT_OF_BOUNDS = (
        "index/extension-token-out-of-bounds",
        "extension token {index} at position {at} is out of bounds for vocabulary size {bound}",
        "position=at token_id=index vocabulary_size=bound",
    )
    DECODE_REQUIRES_PREFILL = (
        "state/decode-requires-prefill",
        "decode needs a prefilled session, this one is {actual}",
    )
    DECODE_TOKEN_OUT_OF_BOUNDS = (
        "index/decode-token-out-of-bounds",
        "token {index} is out of bounds for vocabulary size {bound}",
        "token_id=index vocabulary_size=bound",
    )
    FULL = "capacity/full", "the cache is full: {limit} tokens", "capacity=limit"
    TRUNCATE_LENGTH_OUT_OF_RANGE = (
        "index/truncate-length-out-of-range",
        "truncate to {index} tokens is out of range, the session holds {bound}",
        "length=index",
    )

    # tokenizer
    UNKNOWN_MERGE_OPERAND = (
        "index/unknown-merge-operand",
        "merge rank {rank} uses the id {index}, which is not defined below id {bound}",
        "rank=at token_id=index",
    )
    DUPLICATE_MERGE_PAIR = (
        "record/duplicate-merge-pair",
        "merge rank {rank} repeats the pair ({left}, {right})",
    )
    DOCUMENT_TOO_SHORT = (
        "shape/document-too-short",
        "a document needs its two control tokens, got {actual} ids",
        "length=actual",
    )
    EXPECTED_BOS = (
        "index/expected-bos",
        "a document must begin with token 0, found {index}",
        "found=index",
    )
    EXPECTED_EOS = (
        "index/expected-eos",
        "a document must end with token 1, found {index}",
        "found=index",
    )
    INTERIOR_CONTROL_TOKEN = (
        "index/interior-control-token",
        "document control token {index} is not allowed at position {at}",
        "position=at token_id=index",
    )
    CONTROL_TOKEN_IN_CONTENT = (
        "index/control-token-in-content",
        "control token {index} is not allowed in content, found at position {at}",
        "position=at token_id=index",
    )
    UNKNOWN_TOKEN = (
        "index/unknown-token",
        "token {index} at position {at} is unknown to a vocabulary of {bound}",
        "position=at token_id=index",
    )
    INVALID_UTF8 = (
        "record/invalid-utf8",
        "decoded bytes are not valid UTF-8 at byte {valid_up_to}",
    )
    NOT_BYTES = "record/not-bytes", "{what} must be {expected}, got {actual}"

    # records and plans
    TEXT_SIZE = "record/text-size", "{what} must be at most {expected} bytes, got {actual}"
    TEXT_ENCODING = "record/text-encoding", "{what} is not valid UTF-8 at byte {at}"
    TEXT_SYNTAX = "record/text-syntax", "{what} at byte {at}: expected {expected}, got {actual}"
    TEXT_NESTING = (
        "record/text-nesting",
        "{what} nests deeper than {expected} levels at byte {at}",
    )
    TEXT_VALUES = "record/text-values", "{what} holds more than {expected} values at byte {at}"
    TEXT_DIGITS = (
        "record/text-digits",
        "{what} at byte {at}: a number has at most {expected} digits in a row, got {actual}",
    )
    LONE_SURROGATE = (
        "record/lone-surrogate",
        "{what} holds half of a surrogate pair, {actual}, which is no character",
    )
    DUPLICATE_KEY = "record/duplicate-key", "{what} stands more than once"
    UNKNOWN_KEY = "record/unknown-key", "{what} is not a key here, expected {expected}"
    MISSING_KEY = "record/missing-key", "{what} is missing, expected {expected}"
    SCHEMA_VERSION = "record/schema-version", "{what} must be {expected}, got {actual}"
    PARAMETER_FAMILY = "record/parameter-family", "{what} must be {expected}, got {actual}"
    UNKNOWN_POLICY = "record/unknown-policy", "{what} must be {expected}, got {actual}"
    UNKNOWN_NAME = "record/unknown-name", "{what} must be {expected}, got {actual}"
    NOT_CANONICAL = (
        "record/not-canonical",
        "{what} differs from its canonical bytes at byte {at}: expected {expected}, got {actual}",
    )
    IDENTITY_GRAMMAR = (
        "record/identity-grammar",
        "{what} must be 1 to 64 bytes, first a-z, then a-z 0-9 . _ -, got {actual}",
    )
    IDENTITY_FIELD_COUNT = (
        "record/identity-field-count",
        "{what} must hold {expected} fields, got {actual}",
    )
    IDENTITY_VALUE_SIZE = (
        "record/identity-value-size",
        "{what} must be at most {expected} bytes, got {actual}",
    )
    IDENTITY_TOTAL_SIZE = (
        "record/identity-total-size",
        "{what}: domain, keys and values must be at most {expected} bytes together, got {actual}",
    )
    HEAD_GROUPING = (
        "shape/head-grouping",
        "{what}: {reason}: expected {expected}, got {actual}",
        "",
        "head grouping or dimensions",
    )
    EVEN_ROPE_HEAD_WIDTH = (
        "shape/even-rope-head-width",
        "{what}: {reason}: expected {expected}, got {actual}",
        "",
        "even RoPE head width",
    )
    PLAN_OVERFLOW = (
        "capacity/plan-overflow",
        "{what}: {reason} is {required}, more than {limit}",
    )
    INEXACT_DIVISION = (
        "shape/inexact-division",
        "{what}: {actual} is not divisible by {expected}",
    )
    UNKNOWN_BUFFER = "state/unknown-buffer", "{what}: expected {expected}, got {actual}"
    RELEASED_BUFFER = "state/released-buffer", "{what}: expected {expected}, got {actual}"
    BUFFER_EXISTS = "state/buffer-exists", "{what}: expected {expected}, got {actual}"
    ALIAS_CYCLE = "state/alias-cycle", "{what}: expected {expected}, got {actual}"
    BACKEND = "support/backend", "{what}: {feature} can be planned but nothing here executes it"
    DEVICE = "support/device", "{what}: {feature} can be planned but nothing here executes it"
    KERNEL = "support/kernel", "{what}: {feature} can be planned but nothing here executes it"
    DTYPE = "support/dtype", "{what}: {feature} can be planned but nothing here executes it"
    DISTRIBUTED = (
        "support/distributed",
        "{what}: {feature} can be planned but nothing here executes it",
    )
    ARTIFACT = "support/artifact", "{what}: {feature} is not selected"
    PROFILE_STATE = "support/profile-state", "{what}: a profile in state {feature} executes nothing"
    TOPOLOGY = (
        "support/topology",
        "{what}: {feature} is not supported, expected {expected}",
    )
    LIMIT_EXCEEDED = (
        "capacity/limit-exceeded",
        "{what} needs {required}, more than the limit {limit}",
    )
    PARTITION_EXCEEDED = (
        "capacity/partition-exceeded",
        "{what} needs {required} bytes, more than its partition of {limit}",
    )
    UNKNOWN_DEMAND = (
        "capacity/unknown-demand",
        "{what} is {required}, so it cannot be shown to stay within {limit}",
    )
    PLAN_REFUSED = "admission/plan-refused", "{what} may not run: {listed}"
    ADMISSION_NOT_ISSUED = (
        "state/admission-not-issued",
        "{what}: expected {expected}, got {actual}",
    )
    ADMISSION_SPENT = "state/admission-spent", "{what}: expected {expected}, got {actual}"
    GENERATOR_STATE = (
        "state/generator-state",
        "{what}: {reason} (expected {expected}, got {actual})",
        "",
        "caller RNG differs from declared initialization seed",
    )
    CONFIG_FIELD = "support/config-field", "{what}: a model record cannot express {feature}"
    CONFIG_REFUSED = "admission/config-refused", "{what} does not map to a model record: {listed}"
