"""Cached decoding: the bits of full decoding, all of a step or nothing of it."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

from logitproof.core import (
    BindingRefusal,
    CapacityRefusal,
    Code,
    Context,
    Decoder,
    DecodeSession,
    IndexRefusal,
    KvCache,
    NumericRefusal,
    Refusal,
    StateRefusal,
    row,
)
from logitproof.core.arrays import SIZE_LIMIT
from logitproof.core.cache import LayerCache, WorkCounters
from logitproof.properties.compare import same_bits
from logitproof.properties.interrupts import (
    BLOCK_STAGES,
    STAGES,
    Interrupted,
    Stage,
    before_first,
    calls_of,
    failing_operation,
    on_checked_path,
)
from logitproof.properties.situations import (
    BRIDGE,
    CH10,
    CONFIGS,
    REFERENCE,
    SHORT,
    TINY,
    batch_of,
    cached_state,
    composed,
    copied,
    drawn_ids,
    full_logits,
    learned_state,
    logits_of_split,
    new_decoder,
    probe_decoder,
    shaken_decoder,
    splits,
    warm_decoder,
    with_layers,
)

LONGEST = np.finfo(np.float64).max
L = TINY.layers
CALLS: dict[str, Callable[[DecodeSession], object]] = {
    "decode": lambda session: session.decode(2),
    "extend": lambda session: session.extend([2, 3, 4]),
}
LAST_TOKEN = {"decode": 0, "extend": 2}
CALL_STAGES = [
    *[("decode", stage) for stage in STAGES],
    *[("extend", stage) for stage in BLOCK_STAGES],
]
SPLITS = [sizes for T in range(1, 7) for sizes in splits(T)]
# Weights, norm and mixture of a probe round at most 300 times, by half an ulp of 2^10 at most.
PROBE_TOLERANCE = 300 * 2.0**-53 * 2.0**10


@contextmanager
def prefilled(decoder: Decoder, ids: Any = (0, 1)) -> Iterator[DecodeSession]:
    with DecodeSession(decoder) as session:
        session.prefill(list(ids))
        yield session


def refusal(call: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call()
    return caught.value


def mixtures(decoder: Decoder, call: Callable[[], object]) -> list[float]:
    """What the probe's attention mixes, token by token."""
    output = decoder.backbone.blocks[0].attention.output
    with calls_of(row, "linear_rows") as calls:
        call()
    return [float(value) for layer, x, _ in calls if layer is output for value in x[:, 0]]


# cache.md section 9


@pytest.mark.parametrize(
    ("ready", "call", "code", "facts"),
    [
        ([], ("decode", 5), Code.DECODE_REQUIRES_PREFILL, {}),
        ([], ("prefill", []), Code.EMPTY_PROMPT, {}),
        ([], ("prefill", [5, 0, 0, 0]), Code.PROMPT_TOO_LONG, {"tokens": 4, "capacity": 3}),
        ([], ("prefill", [0, 5]), Code.PROMPT_TOKEN_OUT_OF_BOUNDS, {"position": 1}),
        ([0, 1, 2], ("decode", 5), Code.DECODE_TOKEN_OUT_OF_BOUNDS, {"token_id": 5}),
        ([0, 1, 2], ("decode", 3), Code.FULL, {"capacity": 3}),
        ([0, 1, 2], ("prefill", []), Code.EMPTY_PROMPT, {}),
        ([0, 1, 2], ("prefill", [5, 0, 0, 0]), Code.PREFILL_REQUIRES_EMPTY, {"len": 3}),
        ([], ("extend", [5] * 4), Code.EXTEND_REQUIRES_PREFILL, {}),
        ([0, 1], ("extend", []), Code.EMPTY_EXTENSION, {}),
        ([0, 1], ("extend", [5, 5]), Code.EXTENSION_TOO_LONG, {"tokens": 4, "capacity": 3}),
        ([0], ("extend", [0, 5]), Code.EXTENSION_TOKEN_OUT_OF_BOUNDS, {"position": 1}),
        ([0, 1], ("truncate", 3), Code.TRUNCATE_LENGTH_OUT_OF_RANGE, {"length": 3}),
        ([0, 1], ("truncate", -1), Code.TRUNCATE_LENGTH_OUT_OF_RANGE, {"length": -1}),
        ([0, 1], ("truncate", True), Code.FIELD_TYPE, {}),
    ],
)
def test_the_session_table_holds(ready: list[int], call: Any, code: Code, facts: Any) -> None:
    session = DecodeSession(warm_decoder(SHORT))
    if_ready = session.prefill(ready) if ready else None
    before = cached_state(session)
    refused = refusal(lambda: getattr(session, call[0])(call[1]))
    assert refused.code == code
    assert {name: refused.facts()[name] for name in facts} == facts
    assert cached_state(session) == before
    assert session.length == (if_ready.length if if_ready else 0)


@pytest.mark.parametrize(
    ("config", "prompt", "decoded", "counters"),
    [
        (CH10, [0, 99], [100], (3, 2, 1, 6, 18, 12)),
        (BRIDGE, [0, 99], [100], (3, 2, 1, 6, 18, 24)),
        (REFERENCE, [0, 99], [100], (3, 2, 1, 3, 9, 6)),
        (TINY, [0, 1], [2], (3, 2, 1, 6, 18, 24)),
        (TINY, [0], [1, 2, 3], (4, 1, 3, 8, 24, 40)),
        (with_layers(TINY, 0), [0], [1, 2, 3], (4, 1, 3, 0, 0, 0)),
    ],
)
def test_counters_say_the_published_work(
    config: Any, prompt: list[int], decoded: list[int], counters: tuple[int, ...]
) -> None:
    with prefilled(new_decoder(config), prompt) as session:
        outputs = [session.decode(token) for token in decoded]
        assert astuple(session.work) == counters
    position = len(prompt) + len(decoded) - 1
    newest = (position, position + 1, config.layers * config.heads * (position + 1))
    assert (outputs[-1].position, outputs[-1].length, outputs[-1].score_values) == newest


@pytest.mark.parametrize(("prompt", "decoded", "dense"), [(2, 1, 52), (1, 3, 120)])
def test_complete_prefixes_would_score_the_published_number(
    prompt: int, decoded: int, dense: int
) -> None:
    ends = [prompt + step for step in range(decoded + 1)]
    assert sum(L * TINY.heads * n * n for n in ends) == dense


@pytest.mark.parametrize(("config", "payload"), [(REFERENCE, 256), (BRIDGE, 8192)])
def test_a_cache_allocates_the_published_payload(config: Any, payload: int) -> None:
    assert KvCache(new_decoder(config)).nbytes == payload


def test_extended_tokens_count_as_prompt() -> None:
    with prefilled(new_decoder(TINY), [0]) as session:
        session.extend([1, 2])
        assert astuple(session.work) == (3, 3, 0, 6, 18, 24)


# bits of the full forward


@pytest.mark.parametrize("name", CONFIGS)
def test_cached_logits_are_full_logits_at_every_position(name: str) -> None:
    decoder = shaken_decoder(CONFIGS[name])
    ids = drawn_ids(CONFIGS[name], CONFIGS[name].max_positions)
    with DecodeSession(decoder) as session:
        cached = logits_of_split(session, ids, [1] * len(ids), decode=True)
    assert same_bits(np.array(cached), full_logits(decoder, ids))


@pytest.mark.parametrize("name", CONFIGS)
def test_cached_logits_are_the_full_logits_of_every_prefix(name: str) -> None:
    decoder = shaken_decoder(CONFIGS[name])
    ids = drawn_ids(CONFIGS[name], CONFIGS[name].max_positions)
    with DecodeSession(decoder) as session:
        cached = logits_of_split(session, ids, [1] * len(ids), decode=True)
    full = [full_logits(decoder, ids[: n + 1])[-1] for n in range(len(ids))]
    assert same_bits(np.array(cached), np.array(full))


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_no_split_of_a_prompt_changes_a_bit(sizes: tuple[int, ...], decode: bool) -> None:
    decoder = shaken_decoder(TINY)
    ids = drawn_ids(TINY, sum(sizes), seed=len(sizes))
    with DecodeSession(decoder) as session:
        cached = logits_of_split(session, ids, sizes, decode=decode)
        assert session.length == sum(sizes)
    assert same_bits(np.array(cached), full_logits(decoder, ids)[np.cumsum(sizes) - 1])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("kept", [1, 2])
def test_truncated_rows_are_gone(name: str, kept: int) -> None:
    decoder = shaken_decoder(CONFIGS[name])
    ids = drawn_ids(CONFIGS[name], 4)
    with prefilled(decoder, ids) as session:
        session.truncate(kept)
        cached = session.extend(ids[::-1][: 4 - kept])
    assert same_bits(cached.logits, full_logits(decoder, [*ids[:kept], *ids[::-1][: 4 - kept]])[-1])


@pytest.mark.parametrize("name", CONFIGS)
def test_a_fork_goes_its_own_way(name: str) -> None:
    decoder = shaken_decoder(CONFIGS[name])
    ids = drawn_ids(CONFIGS[name], 4)
    with prefilled(decoder, ids[:2]) as session, session.fork() as fork:
        outputs = [session.decode(int(ids[2])), fork.decode(int(ids[3]))]
        outputs += [session.decode(int(ids[3])), fork.decode(int(ids[2]))]
    ours, theirs = full_logits(decoder, ids), full_logits(decoder, ids[[0, 1, 3, 2]])
    full = np.array([ours[2], theirs[2], ours[3], theirs[3]])
    assert same_bits(np.array([output.logits for output in outputs]), full)


@pytest.mark.parametrize(("reset", "to"), [("reset", []), ("truncate", [0])])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_replay_after_reset_gives_the_same_bits(name: str, reset: str, to: list[int]) -> None:
    ids = drawn_ids(CONFIGS[name], 4)
    with prefilled(shaken_decoder(CONFIGS[name]), ids) as session:
        first, nbytes = cached_state(session), session.cache.nbytes
        getattr(session, reset)(*to)
        assert (session.length, session.work) == (0, WorkCounters())
        session.prefill(ids)
        assert (cached_state(session), session.cache.nbytes) == (first, nbytes)


def test_cached_rows_are_the_keys_and_values_of_the_full_forward() -> None:
    decoder = shaken_decoder(BRIDGE)
    ids = drawn_ids(BRIDGE, 7)
    steps = composed(decoder, batch_of(BRIDGE, [[*ids, 0]], packed=False)).output.blocks
    with prefilled(decoder, ids) as session:
        rows = [(layer.keys[:, :, :7], layer.values[:, :, :7]) for layer in session.cache.layers]
    assert all(same_bits(k, step["key"].value) for (k, _), step in zip(rows, steps, strict=True))
    assert all(same_bits(v, step["value"].value) for (_, v), step in zip(rows, steps, strict=True))


def test_a_fork_shares_no_storage() -> None:
    with prefilled(shaken_decoder(TINY)) as session, session.fork() as fork:
        before = cached_state(session)
        fork.extend([2, 3])
        fork.truncate(1)
        fork.reset()
        assert cached_state(session) == before
        pairs = zip(session.cache.layers, fork.cache.layers, strict=True)
        assert not any(np.shares_memory(ours.keys, theirs.keys) for ours, theirs in pairs)


def test_truncating_keeps_the_counters() -> None:
    with prefilled(new_decoder(TINY), [0, 1, 2]) as session:
        work = session.work
        session.truncate(3)
        session.truncate(1)
        assert (session.length, session.work) == (1, work)


# graphs, gradients, guards


def test_cached_logits_are_plain_arrays_that_nobody_can_write() -> None:
    with prefilled(warm_decoder(TINY)) as session:
        logits = session.decode(2).logits
    assert type(logits) is np.ndarray
    assert (logits.shape, str(logits.dtype), logits.flags.writeable) == ((5,), "float64", False)


def test_decoding_leaves_training_gradients_alone() -> None:
    decoder = warm_decoder(TINY)
    before = learned_state(decoder)
    with prefilled(decoder) as session, session.fork() as fork:
        session.extend([2, 3])
        fork.decode(1)
        session.truncate(1)
        session.reset()
    assert learned_state(decoder) == before


def test_training_may_read_while_a_session_is_open() -> None:
    ids = np.array([[0, 1, 2]])
    decoder, alone = warm_decoder(TINY), warm_decoder(TINY)
    with prefilled(decoder) as session:
        decoder.loss(ids, ids).backward()
        session.decode(2)
    alone.loss(ids, ids).backward()
    assert learned_state(decoder) == learned_state(alone)


@pytest.mark.parametrize("index", range(20))
def test_no_parameter_is_assigned_while_a_session_is_open(index: int) -> None:
    decoder = warm_decoder(TINY)
    parameter = list(decoder.parameters.values())[index]
    with prefilled(decoder) as session:
        before = cached_state(session)
        refused = refusal(lambda: parameter.assign(parameter.value))
        assert (refused.code, refused.what) == (Code.VALUE_BORROWED, parameter.name)
        assert cached_state(session) == before
    parameter.assign(parameter.value)
    assert parameter.revision == before[-1][index][2] + 1  # type: ignore[index]


def test_every_fork_holds_guards_of_its_own() -> None:
    decoder = new_decoder(TINY)
    session = DecodeSession(decoder)
    fork = session.fork()
    session.close()
    session.close()
    assert refusal(lambda: decoder.table.assign(decoder.table.value)).code == Code.VALUE_BORROWED
    fork.close()
    decoder.table.assign(decoder.table.value)
    assert decoder.table.revision == 1


def test_a_forgotten_session_lets_its_parameters_go() -> None:
    decoder = new_decoder(TINY)
    DecodeSession(decoder).prefill([0])
    gc.collect()
    decoder.table.assign(decoder.table.value)
    assert decoder.table.revision == 1


def test_a_refused_binding_holds_no_guard() -> None:
    decoder, other = new_decoder(TINY), new_decoder(TINY)
    refused = refusal(lambda: DecodeSession(other, KvCache(decoder)))
    assert refused.code == Code.MODEL_PARAMETER_MISMATCH
    other.table.assign(other.table.value)
    assert other.table.revision == 1


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("prefill", [[0]]),
        ("extend", [[0]]),
        ("decode", [0]),
        ("truncate", [1]),
        ("reset", []),
        ("fork", []),
        ("__enter__", []),
    ],
)
def test_a_closed_session_answers_nothing(name: str, given: Any) -> None:
    with prefilled(new_decoder(TINY)) as session:
        before = cached_state(session)
    refused = refusal(lambda: getattr(session, name)(*given))
    assert (type(refused), refused.code) == (StateRefusal, Code.SESSION_CLOSED)
    assert cached_state(session) == before


# binding a cache


def test_a_later_session_continues_the_cache() -> None:
    decoder = shaken_decoder(TINY)
    with prefilled(decoder) as first:
        work = first.work
    with DecodeSession(decoder, first.cache) as second:
        assert (second.length, second.work) == (2, work)
        cached = second.decode(3)
    assert same_bits(cached.logits, full_logits(decoder, [0, 1, 3])[-1])


def test_an_update_makes_a_cache_stale_and_reset_does_not_help() -> None:
    decoder = new_decoder(TINY)
    with prefilled(decoder) as session:
        session.reset()
    decoder.table.assign(decoder.table.value)
    refused = refusal(lambda: DecodeSession(decoder, session.cache))
    assert refused.code == Code.MODEL_PARAMETER_REVISION_MISMATCH
    facts = refused.facts()
    assert (facts["index"], facts["cache"], facts["model"]) == (0, 0, 1)


def test_equal_values_in_other_nodes_bind_nothing() -> None:
    decoder = new_decoder(TINY)
    refused = refusal(lambda: DecodeSession(copied(decoder), KvCache(decoder)))
    assert (refused.code, refused.facts()["index"]) == (Code.MODEL_PARAMETER_MISMATCH, 0)


def test_another_epsilon_over_the_same_nodes_binds_nothing() -> None:
    decoder = new_decoder(TINY)
    other = Decoder.from_parameters(with_layers(TINY, L, rms_epsilon=2e-6), decoder.parameters)
    assert refusal(lambda: DecodeSession(other, KvCache(decoder))).code == (
        Code.MODEL_CONFIG_MISMATCH
    )


def test_a_layer_of_another_length_binds_nothing() -> None:
    decoder = new_decoder(TINY)
    cache = KvCache(decoder)
    cache.layers[1].length = 1
    refused = refusal(lambda: DecodeSession(decoder, cache))
    assert (refused.code, refused.facts()["layer"]) == (Code.LAYER_LENGTH_INVARIANT, 1)


# failures inside a token


@pytest.mark.parametrize("layer", range(L))
@pytest.mark.parametrize(("name", "stage"), CALL_STAGES, ids=str)
def test_a_failed_step_leaves_no_trace(stage: Stage, name: str, layer: int) -> None:
    decoder = warm_decoder(TINY)
    with prefilled(decoder) as session, prefilled(decoder) as never:
        before = cached_state(session)
        failing = stage.failing(layer=layer, layers=L, token=LAST_TOKEN[name])
        with failing, pytest.raises(Interrupted):
            CALLS[name](session)
        assert cached_state(session) == before
        _ = CALLS[name](session), CALLS[name](never)
        assert cached_state(session) == cached_state(never)


@pytest.mark.parametrize("token", range(3))
@pytest.mark.parametrize("stage", BLOCK_STAGES, ids=str)
def test_a_failed_prefill_empties_the_cache(stage: Stage, token: int) -> None:
    decoder = warm_decoder(TINY)
    with DecodeSession(decoder) as session, DecodeSession(decoder) as never:
        before = cached_state(session)
        failing = stage.failing(layer=1, layers=L, token=token)
        with failing, pytest.raises(Interrupted):
            session.prefill([0, 1, 2])
        assert cached_state(session) == before
        retried, plain = session.prefill([0, 1, 2]), never.prefill([0, 1, 2])
        assert same_bits(retried.logits, plain.logits)
        assert cached_state(session) == cached_state(never)


def operations_of_a_step() -> int:
    session = DecodeSession(warm_decoder(TINY))
    session.prefill([0, 1])
    with on_checked_path(), calls_of(Context, "apply") as calls:
        session.decode(2)
    return len(calls)


@pytest.mark.parametrize("number", range(operations_of_a_step()))
def test_no_operation_can_fail_and_leave_a_trace(number: int) -> None:
    decoder = warm_decoder(TINY)
    with prefilled(decoder) as session, prefilled(decoder) as never:
        before = cached_state(session)
        with on_checked_path(failing_operation(number)), pytest.raises(Interrupted):
            session.decode(2)
        assert cached_state(session) == before
        assert same_bits(session.decode(2).logits, never.decode(2).logits)


def test_a_step_that_finds_a_layer_changed_is_refused() -> None:
    with prefilled(warm_decoder(TINY)) as session:
        layer = session.cache.layers[1]
        with before_first(LayerCache, "accepts", lambda: setattr(layer, "length", 1)):
            refused = refusal(lambda: session.decode(2))
    assert (type(refused), refused.code) == (BindingRefusal, Code.PREPARED_CACHE_CHANGED)
    assert refused.facts()["layer"] == 1


def test_a_step_inside_a_step_is_kept_and_the_outer_one_refused() -> None:
    decoder = warm_decoder(TINY)
    with prefilled(decoder) as session, prefilled(decoder, [0, 1]) as never:
        with before_first(row, "head_rows", lambda: session.decode(3)):
            refused = refusal(lambda: session.decode(2))
        never.decode(3)
        assert refused.code == Code.PREPARED_CACHE_CHANGED
        assert cached_state(session) == cached_state(never)


@pytest.mark.parametrize("counter", WorkCounters.__slots__)
def test_a_counter_that_would_overflow_refuses_the_token(counter: str) -> None:
    with prefilled(warm_decoder(TINY)) as session:
        session.cache.work = WorkCounters(**{counter: SIZE_LIMIT})
        before = cached_state(session)
        name, given = ("extend", [2]) if counter == "prefill_tokens" else ("decode", 2)
        refused = refusal(lambda: getattr(session, name)(given))
        assert (type(refused), refused.code) == (CapacityRefusal, Code.WORK_OVERFLOW)
        assert refused.facts()["counter"] == counter
        assert cached_state(session) == before


def test_a_zero_row_without_epsilon_empties_the_prefill() -> None:
    given = new_decoder(with_layers(TINY, L, rms_epsilon=0.0))
    table = given.table.value.copy()
    table[1] = 0.0
    given.table.assign(table)
    with DecodeSession(given) as session:
        refused = refusal(lambda: session.prefill([0, 1]))
        assert (type(refused), refused.code) == (NumericRefusal, Code.ZERO_ENERGY_ROW)
        assert (refused.what, refused.facts()["layer"]) == ("blocks.0.attention_norm.gain", 0)
        assert (session.length, session.work) == (0, WorkCounters())
        assert same_bits(session.prefill([0]).logits, full_logits(given, [0])[-1])


@pytest.mark.parametrize("name", ["final_norm.gain", "blocks.1.ffn_norm.gain"])
def test_a_gain_of_the_largest_double_commits_nothing(name: str) -> None:
    decoder = new_decoder(TINY)
    gain = decoder.parameters[name]
    gain.assign(np.full(gain.shape, LONGEST))
    with DecodeSession(decoder) as session:
        before = cached_state(session)
        assert refusal(lambda: session.prefill([0])).code == Code.NON_FINITE_FORWARD
        assert cached_state(session) == before


def test_scores_that_overflow_refuse_as_in_the_full_forward() -> None:
    decoder = new_decoder(TINY)
    roles = [decoder.parameters[f"blocks.1.attention.{role}.weight"] for role in ("query", "key")]
    _ = [weight.assign(1e200 * weight.value) for weight in roles]  # type: ignore[func-returns-value]
    with DecodeSession(decoder) as session:
        before = cached_state(session)
        refused = [
            refusal(lambda: session.prefill([0])),
            refusal(lambda: full_logits(decoder, [0])),
        ]
        assert cached_state(session) == before
    assert [(r.code, r.facts()["op"], r.facts()["layer"]) for r in refused] == [
        (Code.NON_FINITE_FORWARD, "matmul", 1)
    ] * 2
    assert refused[0].what == "blocks.1.attention.scores"


@pytest.mark.parametrize(
    ("huge", "place"),
    [
        (["final_norm.gain"], "final_norm.apply_gain"),
        (["blocks.1.ffn.up.weight"], "blocks.1.ffn.up"),
        (["blocks.1.attention.value.weight"], "blocks.1.attention.value"),
        (["blocks.1.attention.key.weight", "blocks.1.attention.query.weight"],
         "blocks.1.attention.query"),
        (["blocks.1.attention.value.weight", "blocks.1.attention.key.weight"],
         "blocks.1.attention.key"),
    ],
)  # fmt: skip
def test_an_overflow_names_its_place_in_cached_and_full_execution(
    huge: list[str], place: str
) -> None:
    decoder = new_decoder(TINY)
    weights = [decoder.parameters[name] for name in huge]
    _ = [w.assign(np.full(w.shape, LONGEST)) for w in weights]  # type: ignore[func-returns-value]
    with DecodeSession(decoder) as session:
        cached = refusal(lambda: session.prefill([0]))
    full = refusal(lambda: full_logits(decoder, [0]))
    assert [(r.code, r.place) for r in (cached, full)] == [(Code.NON_FINITE_FORWARD, place)] * 2
    assert str(cached).endswith(f"(in {place})")


@pytest.mark.parametrize("layer", range(L))
def test_a_step_binds_the_rows_of_every_layer(layer: int) -> None:
    decoder = new_decoder(TINY)
    with prefilled(decoder, [0, 1]) as session:
        session.cache.layers[layer]._bindings = KvCache(new_decoder(TINY)).layers[layer]._bindings
        refused = refusal(lambda: session.decode(2))
    assert (refused.code, refused.facts()["layer"]) == (Code.PREPARED_CACHE_BINDING, layer)


def test_of_two_assigned_parameters_the_first_is_told() -> None:
    decoder = new_decoder(TINY)
    with prefilled(decoder, [0, 1]) as session:
        pass
    nodes = list(decoder.parameters.values())
    _ = [nodes[i].assign(nodes[i].value) for i in (3, 7)]  # type: ignore[func-returns-value]
    refused = refusal(lambda: DecodeSession(decoder, session.cache))
    assert refused.code == Code.MODEL_PARAMETER_REVISION_MISMATCH
    assert refused.facts()["index"] == 3


# cells that mean nothing


def fill_unused(session: DecodeSession, poison: float) -> None:
    for layer in session.cache.layers:
        layer._key_columns[..., session.length :] = poison
        layer._value_rows[:, :, session.length :] = poison


@pytest.mark.parametrize("poison", [LONGEST, -LONGEST, np.nan, np.inf])
def test_unused_cache_cells_reach_no_result(poison: float) -> None:
    decoder = shaken_decoder(BRIDGE)
    ids = drawn_ids(BRIDGE, 6)
    with prefilled(decoder, ids[:3]) as session:
        session.truncate(2)
        fill_unused(session, poison)
        cached = [session.decode(int(token)).logits for token in ids[2:]]
    assert same_bits(np.array(cached), full_logits(decoder, ids)[2:])


# ids as callers give them


@pytest.mark.parametrize("given", [2, np.int32(2), np.uint64(2), np.array(2)])
def test_decode_takes_any_integer(given: Any) -> None:
    with prefilled(new_decoder(TINY)) as session:
        assert session.decode(given).position == 2


@pytest.mark.parametrize("given", [True, 2.0, "2", None, b"two", np.float64(3), np.bool_(True)])
def test_decode_takes_nothing_but_integers(given: Any) -> None:
    with prefilled(warm_decoder(TINY)) as session:
        before = cached_state(session)
        refused = refusal(lambda: session.decode(given))
        assert (type(refused), refused.code) == (IndexRefusal, Code.NOT_AN_INTEGER)
        assert cached_state(session) == before


@pytest.mark.parametrize("given", [-1, 5, 2**63, 2**200, -(2**70), np.uint64(2**64 - 1)])
def test_an_integer_of_any_size_is_a_bounds_fault(given: Any) -> None:
    with prefilled(new_decoder(TINY)) as session:
        codes = [refusal(lambda: session.extend([given])).code]
        codes += [refusal(lambda: session.decode(given)).code]
        session.reset()
        codes += [refusal(lambda: session.prefill([given])).code]
    assert codes == [
        Code.EXTENSION_TOKEN_OUT_OF_BOUNDS,
        Code.DECODE_TOKEN_OUT_OF_BOUNDS,
        Code.PROMPT_TOKEN_OUT_OF_BOUNDS,
    ]


# reported cases


def test_a_step_after_truncation_sees_the_kept_rows_alone() -> None:
    decoder = probe_decoder([1, 2, 4, 8, 16])
    with prefilled(decoder, [0, 1, 2, 3]) as session:
        session.truncate(2)
        assert mixtures(decoder, lambda: session.decode(4)) == pytest.approx(
            [6.333333333333333], abs=PROBE_TOLERANCE
        )
        assert {layer.length for layer in session.cache.layers} == {session.length} == {3}


@pytest.mark.parametrize(("rolled_back", "left"), [(-5, None), (0, 4), (4, 0), (5, None)])
def test_truncation_keeps_what_it_is_told_to_or_refuses(rolled_back: int, left: int | None) -> None:
    with prefilled(probe_decoder([1, 2, 4, 8, 16]), [0, 1, 2, 3]) as session:
        before = cached_state(session)
        outcome = refusal_or_none(lambda: session.truncate(4 - rolled_back))
        assert (outcome is None) == (left is not None)
        assert session.length == (4 if left is None else left)
        assert (cached_state(session) == before) == (session.length == 4)


def refusal_or_none(call: Callable[[], object]) -> Refusal | None:
    try:
        call()
    except Refusal as refused:
        return refused
    return None


def test_a_token_after_a_prompt_has_its_own_position() -> None:
    decoder = probe_decoder([1, 2, 4, 8], turning=True)
    with prefilled(decoder, [0, 1, 2]) as session:
        mixed = mixtures(decoder, lambda: session.decode(3))
    assert mixed == pytest.approx([5.543956773245943], abs=PROBE_TOLERANCE)


@pytest.mark.parametrize("sizes", list(splits(3)), ids=str)
def test_every_split_of_a_prompt_is_causal(sizes: tuple[int, ...]) -> None:
    decoder = probe_decoder([1, 2, 4])
    with DecodeSession(decoder, KvCache(decoder)) as session:
        mixed = mixtures(decoder, lambda: logits_of_split(session, [0, 1, 2], sizes, decode=False))
    assert mixed == pytest.approx([1.0, 1.5, 2.3333333333333335], abs=PROBE_TOLERANCE)


def test_a_failed_extension_can_be_repeated() -> None:
    decoder = probe_decoder([2.0**i for i in range(10)])
    with prefilled(decoder, range(4)) as session:
        before = cached_state(session)
        with STAGES[-1].failing(layer=0, layers=1, token=2), pytest.raises(Interrupted):
            session.extend([*range(4, 10)])
        assert cached_state(session) == before
        mixed = mixtures(decoder, lambda: session.extend([*range(4, 10)]))
        assert session.length == 10
    assert mixed[-1] == pytest.approx(102.3, abs=PROBE_TOLERANCE)


def test_positions_count_tokens_where_others_count_padding() -> None:
    decoder = probe_decoder([1, 2, 4], turning=True)
    with prefilled(decoder, [0, 1]) as session:
        mixed = mixtures(decoder, lambda: session.decode(2))
        assert session.length == 3
    assert mixed == pytest.approx([2.9376940836212717], abs=PROBE_TOLERANCE)


def test_a_row_alone_decodes_as_in_a_padded_batch() -> None:
    decoder = shaken_decoder(TINY)
    batch = batch_of(TINY, [[0, 1, 2, 3], [4, 3, 2, 1, 0, 4]], packed=False)
    logits = composed(decoder, batch).logits.value
    with DecodeSession(decoder) as session:
        cached = logits_of_split(session, [0, 1, 2], [1, 1, 1], decode=True)
    assert same_bits(np.array(cached), logits[0, :3])


def test_two_open_sessions_never_share_a_cache() -> None:
    decoder = shaken_decoder(TINY)
    first = DecodeSession(decoder)
    first.prefill([0, 1])
    with pytest.raises(Refusal) as refused:
        DecodeSession(decoder, first.cache)
    assert (refused.value.code, first.length) == (Code.CACHE_IN_USE, 2)
    first.close()
    with DecodeSession(decoder, first.cache) as second:
        assert second.decode(0).position == 2
