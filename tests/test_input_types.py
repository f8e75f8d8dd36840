"""What callers may pass as ids and values, and what becomes of their arrays."""

import decimal
import fractions
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from logitproof.core import (
    RECORDING,
    BpeTokenizer,
    Decoder,
    DecoderConfig,
    DecodeSession,
    Embedding,
    IndexRefusal,
    NumericRefusal,
    Parameter,
    Refusal,
    RmsNorm,
    SequenceLayout,
    ShapeRefusal,
    SplitMix64,
    constant,
    ops,
    pad_documents,
)
from logitproof.core.codes import Code
from logitproof.core.rope import RotaryTable
from logitproof.properties.interrupts import calls_of

V = 5
MODEL = Decoder(
    DecoderConfig(
        vocabulary_size=V,
        model_width=2,
        heads=1,
        feed_forward_width=2,
        layers=1,
        max_positions=6,
    ),
    SplitMix64(11),
)
TABLE = Embedding.from_parameter(MODEL.table)
IDS = np.array([[0, 4, 2], [3, 1, 1]])


def prefilled(ids: object) -> Any:
    with DecodeSession(MODEL) as session:
        return session.prefill(ids).logits


# Every door through which ids come in: a call with flat ids, and its code for ids outside.
DOORS: dict[str, tuple[Callable[[Any], Any], Code]] = {
    "lookup": (lambda ids: TABLE.forward(ids).value, Code.TOKEN_ID_OUT_OF_BOUNDS),
    "gather": (
        lambda ids: RECORDING.apply(ops.gather_rows, MODEL.table, indices=ids).value,
        Code.GATHER_INDEX_OUT_OF_BOUNDS,
    ),
    "forward": (lambda ids: MODEL.forward([ids]).logits.value, Code.TOKEN_ID_OUT_OF_BOUNDS),
    "targets": (lambda ids: MODEL.loss([[0] * 3], [ids]).value, Code.TARGET_ID_OUT_OF_BOUNDS),
    "nll": (
        lambda ids: (
            RECORDING.apply(
                ops.indexed_mean_nll, constant(np.ones((3, V))), axis=1, targets=ids
            ).value
        ),
        Code.TARGET_OUT_OF_BOUNDS,
    ),
    "prompt": (prefilled, Code.PROMPT_TOKEN_OUT_OF_BOUNDS),
}
doors = pytest.mark.parametrize("door", [door for door, _ in DOORS.values()], ids=DOORS)
doors_and_codes = pytest.mark.parametrize(("door", "outside"), DOORS.values(), ids=DOORS)

WIDTHS = [f"{order}{kind}{size}" for order in "<>" for kind in "iu" for size in (1, 2, 4, 8)]
ORDERS: dict[str, Callable[[Any], Any]] = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "transposed view": lambda a: np.ascontiguousarray(a.T).T,
    "backward strides": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "every other element": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
    "subclass": lambda a: a.view(np.matrix),
    "list": lambda a: a.tolist(),
    "tuples": lambda a: tuple(map(tuple, a.tolist())),
    "list of arrays": list,
    "list of numpy scalars": lambda a: [list(row) for row in a],
    "list of rank-0 arrays": lambda a: [[np.array(x) for x in row] for row in a],
}
orders = pytest.mark.parametrize("form", ORDERS.values(), ids=ORDERS)


def bits(array: Any) -> tuple[object, ...]:
    return (array.dtype.str, array.shape, array.tobytes())


# ids
@pytest.mark.parametrize("width", WIDTHS)
def test_ids_of_every_width_and_byte_order_give_the_same_bits(width: str) -> None:
    given_ids = IDS.astype(width)
    assert bits(MODEL.forward(given_ids).logits.value) == bits(MODEL.forward(IDS).logits.value)
    assert bits(MODEL.loss(IDS, given_ids).value) == bits(MODEL.loss(IDS, IDS).value)


@orders
def test_ids_in_every_memory_order_and_nesting_give_the_same_bits(
    form: Callable[[Any], Any],
) -> None:
    assert bits(MODEL.forward(form(IDS)).logits.value) == bits(MODEL.forward(IDS).logits.value)
    assert bits(MODEL.loss(IDS, form(IDS)).value) == bits(MODEL.loss(IDS, IDS).value)
    assert bits(TABLE.forward(form(IDS)).value) == bits(TABLE.forward(IDS).value)


@pytest.mark.parametrize("width", WIDTHS)
def test_layouts_of_every_width_hold_the_same_int64(width: str) -> None:
    fields = {"lengths": [2, 1], "range_starts": [[0, 1], [0, 0]], "positions": [[0, 3], [1, 0]]}
    given_layout = SequenceLayout(**{k: np.array(v).astype(width) for k, v in fields.items()})
    held = {name: getattr(given_layout, name) for name in fields}
    assert {name: array.tolist() for name, array in held.items()} == fields
    assert {array.dtype for array in held.values()} == {np.dtype(np.int64)}


@pytest.mark.parametrize("empty", [[], (), np.array([], dtype=int)], ids=repr)
def test_no_ids_give_no_rows(empty: object) -> None:
    assert TABLE.forward(empty).shape == (0, 2)


@doors_and_codes
@pytest.mark.parametrize("id", [-1, -9, V, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**5000], ids=hex)
def test_an_id_outside_the_vocabulary_is_refused_with_value_place_and_bound(
    door: Callable[..., object], outside: Code, id: object
) -> None:
    with pytest.raises(IndexRefusal) as caught:
        door([0, id, 7])
    refusal = caught.value
    assert (refusal.code, refusal.at, refusal.index, refusal.bound) == (outside, 1, id, V)


@doors_and_codes
def test_an_unsigned_id_beyond_int64_is_refused_as_it_is(
    door: Callable[..., object], outside: Code
) -> None:
    with pytest.raises(IndexRefusal) as caught:
        door(np.array([0, 1, 2**64 - 1], dtype=np.uint64))
    refusal = caught.value
    assert (refusal.code, refusal.at, refusal.index) == (outside, 2, 2**64 - 1)


@doors
@pytest.mark.parametrize(
    "id",
    [
        True,
        np.True_,
        1.0,
        np.float64(1.0),
        np.float16(1.0),
        float("nan"),
        "1",
        b"1",
        None,
        1j,
        fractions.Fraction(1),
        decimal.Decimal(1),
        np.timedelta64(1, "s"),
        {1},
        range(1),
    ],
    ids=repr,
)
def test_what_is_no_integer_is_refused_with_value_place_and_bound(
    door: Callable[..., object], id: object
) -> None:
    with pytest.raises(IndexRefusal) as caught:
        door([0, 2, id])
    refusal = caught.value
    assert (refusal.code, refusal.at, refusal.bound) == (Code.NOT_AN_INTEGER, 2, V)
    shown = getattr(id, "item", lambda: id)()
    assert str(shown) in str(refusal) or repr(shown) in str(refusal)


@doors
@pytest.mark.parametrize(
    "array",
    [
        np.array([True, False, True]),
        np.array([1.0, 2.0, 3.0]),
        np.array([1, 2, 3], dtype=object),
        np.array(["1", "2", "3"]),
        np.array([1, 2, 3], dtype=complex),
        np.array([1, 2, 3], dtype="m8[s]"),
        np.array([1, 2, 3], dtype="M8[s]"),
        np.zeros(3, dtype=[("id", int)]),
        np.ma.masked_array([1, 2, 3], mask=[False, True, False]),
    ],
    ids=lambda array: f"{type(array).__name__} of {array.dtype.char}",
)
def test_an_array_of_another_type_is_refused(door: Callable[..., object], array: Any) -> None:
    with pytest.raises(IndexRefusal) as caught:
        door(array)
    refusal = caught.value
    assert (refusal.code, refusal.at, refusal.bound) == (Code.NOT_AN_INTEGER, 0, V)


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


def self_containing() -> Any:
    ids: list[Any] = [1]
    ids[0] = ids
    return ids


def twice_self_containing() -> Any:
    ids: list[Any] = [1, 2]
    ids[:] = [ids, ids]
    return ids


def mutually_containing() -> Any:
    inner: list[Any] = [1]
    outer: list[Any] = [2]
    inner[0], outer[0] = outer, inner
    return outer


STRANGE_NESTS: dict[str, object] = {
    "unequal rows": [[1, 2], [3]],
    "a number beside a list": [1, [2]],
    "a list beside a number": [[1], 2],
    "unequal depth": [[[1]], [[1, 2]]],
    "a row in an array": [np.array([1, 2]), np.array([1])],
    "33 levels": nested(33),
    "1000 levels": nested(900),
    "33 axes": np.zeros((1,) * 33, dtype=int),
    "a list that holds itself": self_containing(),
    "a list that holds itself twice": twice_self_containing(),
    "two lists that hold each other": mutually_containing(),
}
strange_nests = pytest.mark.parametrize("nest", STRANGE_NESTS.values(), ids=STRANGE_NESTS)


@doors
@strange_nests
def test_ids_that_are_no_array_are_refused(door: Callable[..., object], nest: object) -> None:
    with pytest.raises(ShapeRefusal) as caught:
        door(nest)
    assert caught.value.code is Code.RAGGED_IDS


def test_a_shared_row_is_no_list_that_holds_itself() -> None:
    row = [1, 2]
    assert TABLE.forward([row, row]).shape == (2, 2, 2)


@pytest.mark.parametrize(
    "valid",
    [[[1, 1, 0]], [["True"] * 3], [[None] * 3], np.ones((1, 3)), np.ma.ones((1, 3), bool)],
    ids=repr,
)
def test_valid_takes_booleans_alone(valid: object) -> None:
    with pytest.raises(Refusal) as caught:
        MODEL.loss([[0, 1, 2]], [[1, 2, -1]], valid=valid)
    assert caught.value.code is Code.VALID_NOT_BOOLEAN


@strange_nests
def test_valid_that_is_no_array_is_refused(nest: object) -> None:
    with pytest.raises(Refusal) as caught:
        MODEL.loss([[0, 1, 2]], [[1, 2, -1]], valid=nest)
    assert caught.value.code in (Code.RAGGED_IDS, Code.VALID_NOT_BOOLEAN)


@pytest.mark.parametrize("form", [list, tuple, np.asfortranarray, lambda v: v[::-1][::-1]])
def test_valid_in_every_form_gives_the_same_bits(form: Callable[[Any], Any]) -> None:
    valid = np.array([[True, True, False], [False, True, True]])
    targets = np.where(valid, IDS, -1)
    expected = MODEL.loss(IDS, targets, valid=valid).value
    assert bits(MODEL.loss(IDS, targets, valid=form(valid)).value) == bits(expected)


# values
VALUES = np.array([[1.5, -0.0, 0.25], [3.0, 2.0**-14, -8.0]])
INTEGERS = np.array([[1, 0, 127], [3, 2, 100]])


@pytest.mark.parametrize("width", [f"{order}f{size}" for order in "<>" for size in (2, 4, 8)])
def test_values_of_every_width_and_byte_order_are_widened_exactly(width: str) -> None:
    assert bits(Parameter("p", VALUES.astype(width)).value) == bits(VALUES)


@orders
def test_values_in_every_memory_order_and_nesting_are_the_same(form: Callable[[Any], Any]) -> None:
    assert bits(constant(form(VALUES)).value) == bits(VALUES)


@pytest.mark.parametrize("width", WIDTHS)
def test_integers_of_every_width_are_values(width: str) -> None:
    held = bits(INTEGERS.astype(float))
    assert bits(constant(INTEGERS.astype(width)).value) == held
    assert bits(constant(INTEGERS.astype(width).tolist()).value) == held


@pytest.mark.parametrize("number", [2, 2.0, np.int8(2), np.uint64(2), np.float16(2), -(2**53)])
def test_one_number_is_a_value_of_rank_0(number: Any) -> None:
    held = constant(number).value
    assert bits(held) == bits(np.array(float(number)))


@pytest.mark.property
@given(
    st.sampled_from([np.float16, np.float32]).flatmap(
        lambda kind: hnp.arrays(kind, 3, elements={"allow_nan": False, "allow_infinity": False})
    )
)
def test_every_narrow_float_keeps_its_value_and_sign(narrow: Any) -> None:
    held = constant(narrow).value
    assert held.astype(narrow.dtype).tobytes() == narrow.tobytes()


NO_VALUES: dict[str, object] = {
    "complex": np.ones(2, complex),
    "longdouble": np.ones(2, np.longdouble),
    "object": np.ones(2, object),
    "text": np.array(["1", "2"]),
    "bytes": np.array([b"1", b"2"]),
    "bool": np.array([True, False]),
    "durations": np.array([1, 2], "m8[s]"),
    "records": np.zeros(2, dtype=[("x", float)]),
    "masked": np.ma.masked_array([1.0, 2.0], mask=[False, True]),
    "integers beyond 2**53": np.array([1, 2**53 + 1]),
    "list with text": [1.0, "2"],
    "list with bool": [1.0, True],
    "list with numpy bool": [1.0, np.True_],
    "list with None": [1.0, None],
    "list with complex": [1.0, 1j],
    "list with longdouble": [1.0, np.longdouble(1)],
    "list with a fraction": [1.0, fractions.Fraction(1, 3)],
    "list with a decimal": [1.0, decimal.Decimal("0.1")],
    "list with a duration": [1.0, np.timedelta64(1, "s")],
    "list with 2**53 + 1": [1.0, 2**53 + 1],
    "list with numpy's 2**53 + 1": [1.0, np.int64(2**53 + 1)],
    "list with 10**400": [1.0, 10**400],
    "text alone": "1.0",
    "None alone": None,
    "set": {1.0},
    "range": range(2),
    "tensor": constant([1.0, 2.0]),
}
no_values = pytest.mark.parametrize("given_values", NO_VALUES.values(), ids=NO_VALUES)
LEAF = Parameter("leaf", [1.0, 2.0])
ENTRANCES: dict[str, Callable[..., object]] = {
    "Parameter": lambda values: Parameter("p", values),
    "constant": constant,
    "assign": LEAF.assign,
    "seed": LEAF.backward,
}
entrances = pytest.mark.parametrize("entrance", [*ENTRANCES.values()][:3], ids=[*ENTRANCES][:3])


@entrances
@no_values
def test_what_is_no_real_number_is_refused(
    entrance: Callable[..., object], given_values: object
) -> None:
    with pytest.raises(NumericRefusal) as caught:
        entrance(given_values)
    assert caught.value.code is Code.NOT_REAL
    assert (LEAF.value.tolist(), LEAF.revision) == ([1.0, 2.0], 0)


@pytest.mark.parametrize("seed", [[1.0, "1"], [1.0, True], np.ones(2, complex), np.ones(2, bool)])
def test_a_seed_that_is_no_real_number_is_refused(seed: object) -> None:
    with pytest.raises(NumericRefusal) as caught:
        LEAF.backward(seed)
    assert caught.value.code is Code.NOT_REAL
    assert LEAF.gradient.tolist() == [0.0, 0.0]


@entrances
@strange_nests
def test_values_that_are_no_array_are_refused(
    entrance: Callable[..., object], nest: object
) -> None:
    with pytest.raises(ShapeRefusal) as caught:
        entrance(nest)
    assert caught.value.code is Code.RAGGED_IDS


@entrances
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("form", [list, np.array, lambda v: np.array(v, "f2"), np.asfortranarray])
def test_a_value_that_is_not_finite_is_refused_with_value_and_place(
    entrance: Callable[..., object], bad: float, form: Callable[[Any], Any]
) -> None:
    with pytest.raises(NumericRefusal) as caught:
        entrance(form([1.0, bad]))
    refusal = caught.value
    assert (refusal.code, refusal.index) == (Code.NON_FINITE_LEAF, 1)
    assert repr(refusal.value) == repr(bad)


def test_the_first_value_that_is_not_finite_is_in_row_major_order() -> None:
    values = np.asfortranarray([[1.0, 1.0, np.inf], [np.nan, 1.0, 1.0]])
    with pytest.raises(NumericRefusal) as caught:
        constant(values)
    assert (caught.value.index, caught.value.value) == (2, np.inf)


LINE = np.zeros(1)
EMPTY = np.zeros(0)
TOO_LARGE: dict[str, Callable[[], object]] = {
    "reshape": lambda: ops.reshape(EMPTY, shape=[2**63, 0]),
    "broadcast": lambda: ops.broadcast_to(LINE, shape=[2**61]),
    "gather": lambda: ops.gather_rows(np.zeros((1, 1)), indices=[], shape=[2**62, 0]),
    "lookup": lambda: TABLE.forward([], [2**62, 0]),
    "table": lambda: Embedding.new("table", 2**31, 2**31, SplitMix64(1)),
    "layout": lambda: SequenceLayout.full(1, 2**61),
    "rotation": lambda: RotaryTable(2, 2**61, 100.0),
}


@pytest.mark.parametrize("call", TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_no_memory_holds_is_a_memory_error_and_no_refusal(call: Callable[[], object]) -> None:
    with pytest.raises(MemoryError, match="no memory for an array of sizes"):
        call()


# callers' arrays
def untouched(call: Callable[..., Any], array: Any) -> Any:
    """The result of a call that leaves its array alone, and the array spoiled afterwards."""
    before = (bits(array), array.flags.writeable, array.strides)
    result = call(array)
    assert (bits(array), array.flags.writeable, array.strides) == before
    array[...] = 0
    return result


def test_values_are_copied_in() -> None:
    values = np.array([1.0, 2.0])
    assert untouched(constant, values.copy()).value.tolist() == [1.0, 2.0]
    assert untouched(lambda v: Parameter("p", v), values.copy()).value.tolist() == [1.0, 2.0]
    p = Parameter("p", [0.0, 0.0])
    untouched(p.assign, values.copy())
    assert p.value.tolist() == [1.0, 2.0]


def test_seeds_are_copied_in() -> None:
    p = Parameter("p", [0.0, 0.0])
    trace = untouched(p.backward_with_trace, np.array([1.0, 2.0]))
    assert trace.seed.tolist() == p.gradient.tolist() == [1.0, 2.0]


def test_ids_and_targets_are_copied_in() -> None:
    p = Parameter("table", np.ones((V, 2)))
    rows = untouched(Embedding.from_parameter(p).forward, np.array([1, 3]))
    rows.backward(np.ones((2, 2)))
    assert p.gradient[:, 0].tolist() == [0, 1, 0, 1, 0]
    logits = Parameter("logits", np.zeros((1, 2)))
    loss = untouched(
        lambda t: RECORDING.apply(ops.indexed_mean_nll, logits, axis=1, targets=t), np.array([1])
    )
    loss.backward()
    assert logits.gradient.tolist() == [[0.5, -0.5]]


@pytest.mark.parametrize("name", ["lengths", "range_starts", "positions"])
def test_layouts_copy_their_arrays_in(name: str) -> None:
    fields = {
        "lengths": np.array([2, 1]),
        "range_starts": np.array([[0, 1], [0, 0]]),
        "positions": np.array([[2, 1], [1, 0]]),
    }
    expected = fields[name].tolist()
    layout = untouched(lambda array: SequenceLayout(**{**fields, name: array}), fields[name])
    assert getattr(layout, name).tolist() == expected


def test_merges_and_documents_are_copied_in() -> None:
    tokenizer = untouched(BpeTokenizer, np.array([[97, 98]]))
    assert tokenizer.merges == ((97, 98),)
    batch = untouched(
        lambda ids: pad_documents([ids], vocabulary_size=V, capacity=4), np.array([0, 3, 1])
    )
    assert (batch.ids.tolist(), batch.targets.tolist()) == ([[0, 3]], [[3, 1]])


# results
def results() -> dict[str, Any]:
    p = Parameter("p", [[1.0, 2.0], [3.0, 4.0]])
    loss = RECORDING.apply(ops.sum, RECORDING.apply(ops.mul, p, p), axis=0)
    trace = loss.backward_with_trace(np.ones(2))
    layout = SequenceLayout.padded([2, 1], 2)
    batch = pad_documents([[0, 3, 1]], vocabulary_size=V, capacity=4)
    output = MODEL.forward(IDS)
    rotation = MODEL.backbone.blocks[0].attention.rotation
    session = DecodeSession(MODEL)
    logits = session.prefill([0, 1]).logits
    layer = session.cache.layers[0]
    session.close()
    return {
        "value": p.value,
        "gradient": p.gradient,
        "detached": p.detach().value,
        "result": loss.value,
        "seed": trace.seed,
        "adjoint": trace.nodes[-1].adjoint,
        "gradient in trace": trace.nodes[0].gradient,
        "upstream": trace.edges[0].upstream,
        "contribution": trace.edges[-1].contribution,
        "adjoint before": trace.edges[-1].adjoint_before,
        "adjoint after": trace.edges[-1].adjoint_after,
        "evidence": trace.edges[-1].saved["other"],
        "lengths": layout.lengths,
        "range starts": layout.range_starts,
        "positions": layout.positions,
        "batch ids": batch.ids,
        "batch targets": batch.targets,
        "batch segments": batch.segments,
        "batch valid": batch.valid,
        "embeddings": output.embeddings.value,
        "hidden": output.hidden.value,
        "logits": output.logits.value,
        "frequencies": rotation.frequencies,
        "sines": rotation.sines,
        "cosines": rotation.cosines,
        "session logits": logits,
        "cached keys": layer.keys,
        "cached values": layer.values,
    }


RESULTS = results()
each_result = pytest.mark.parametrize("array", RESULTS.values(), ids=RESULTS)


@each_result
def test_a_returned_array_is_read_only(array: Any) -> None:
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 0


@each_result
def test_a_returned_array_cannot_be_made_writable(array: Any) -> None:
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        array.flags.writeable = True


OPERANDS = np.arange(1.0, 5.0).reshape(2, 2)
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "add": (ops.add, {"b": np.zeros((2, 2))}),
    "broadcast_to": (ops.broadcast_to, {"shape": (2, 2)}),
    "reshape": (ops.reshape, {"shape": (2, 2)}),
    "transpose": (ops.transpose, {"axes": (0, 0)}),
    "gather_rows": (ops.gather_rows, {"indices": [0, 1]}),
    "place_rows": (ops.place_rows, {"positions": [0, 1], "count": 2}),
    "mul": (ops.mul, {"b": np.ones((2, 2))}),
    "matmul": (ops.matmul, {"b": np.eye(2)}),
    "sum": (ops.sum, {"axis": 0}),
    "rotary": (ops.rotary, {"cosines": np.ones((2, 1)), "sines": np.zeros((2, 1))}),
}


@pytest.mark.parametrize(("operation", "arguments"), CALLS.values(), ids=CALLS)
def test_a_result_shares_no_memory_with_its_operands(
    operation: Callable[..., Any], arguments: Any
) -> None:
    rest = dict(arguments)
    others = [rest.pop("b")] if "b" in rest else []
    value, _ = operation(OPERANDS, *others, **rest)
    assert not any(np.shares_memory(value, array) for array in [OPERANDS, *others])


def test_gradients_share_no_memory_with_what_they_came_from() -> None:
    p = Parameter("p", [1.0, 2.0])
    seed = np.array([3.0, 4.0])
    p.backward(seed)
    first = p.gradient
    p.zero_gradient()
    assert (first.tolist(), p.gradient.tolist()) == ([3.0, 4.0], [0.0, 0.0])
    assert not np.shares_memory(first, seed)


@entrances
def test_a_signalling_nan_is_refused_without_a_warning(entrance: Callable[..., object]) -> None:
    signalling = np.array([0x7FA00000] * 2, np.uint32).view(np.float32)
    with np.errstate(all="raise"), pytest.raises(NumericRefusal) as caught:
        entrance(signalling)
    assert caught.value.code is Code.NON_FINITE_LEAF


def test_an_empty_shape_hides_no_overflow_of_its_other_sizes() -> None:
    shape = (0, 2**40, 2**40)
    with pytest.raises(ShapeRefusal) as caught:
        TABLE.forward([], shape)
    assert caught.value.code is Code.TOKEN_SHAPE
    with pytest.raises(Refusal) as told:
        RECORDING.apply(ops.gather_rows, MODEL.table, indices=[], shape=shape)
    assert told.value.code is Code.SIZE_OVERFLOW


@pytest.mark.parametrize("width", [2**62, 2**65])
def test_a_gain_that_no_memory_holds_is_a_lack_of_memory(width: int) -> None:
    with pytest.raises(MemoryError):
        RmsNorm.new("gain", width, 1e-6)


def test_a_parameter_count_is_compared_before_a_name_is_made() -> None:
    deep = replace(MODEL.config, layers=3_000_000)
    with calls_of(DecoderConfig, "parameter_names") as calls, pytest.raises(Refusal) as caught:
        Decoder.from_parameters(deep, [])
    assert caught.value.code is Code.PARAMETER_COUNT_MISMATCH
    assert (caught.value.expected, caught.value.actual, calls) == (9 * 3_000_000 + 2, 0, [])
