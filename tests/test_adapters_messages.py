"""The messages of the protocol: bits go there and back, and nothing else is taken for one."""

import json
import re
from importlib import resources
from typing import Any

import numpy as np
import pytest

from logitproof.properties import taps
from logitproof.properties.adapters.arrays import ENCODINGS, Malformed, from_json, parsed, to_json
from logitproof.properties.adapters.calls import (
    CALLS,
    CARRIED,
    LIVE,
    arguments_of,
    reply_line,
    request_line,
    result_of,
)
from logitproof.properties.adapters.forms import FORMS
from logitproof.properties.adapters.hello import Hello, hello_line, read_hello
from logitproof.properties.adapters.program import Limits
from logitproof.properties.laws.cases import Case, packed_cases
from logitproof.properties.laws.levels import ASSUMED, LEVELS

PROTOCOL = (
    resources.files("logitproof.properties.adapters").joinpath("PROTOCOL.md").read_text("utf-8")
)
(CASE,) = (case for case in packed_cases(5) if case.seed == 3004)
WEIGHTS = {name: np.array(value) for name, value in CASE.weights.items()}
SPECIAL = np.array([0.0, -0.0, 5e-324, np.inf, -np.inf, np.nan, 1 / 3])


def told(marker: str) -> list[list[str]]:
    """The rows of the table that stands after the comment `<!-- marker -->`."""
    lines = PROTOCOL.split(f"<!-- {marker} -->\n")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def examples() -> list[dict[str, Any]]:
    """The messages in the fenced block."""
    return [parsed(line) for line in PROTOCOL.split("```json\n")[1].split("```")[0].splitlines()]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(7,), (1, 7, 1)])
def test_an_array_comes_back_with_its_bits(encoding: str, dtype: Any, shape: Any) -> None:
    sent = SPECIAL.astype(dtype).reshape(shape)
    back = from_json(json.loads(json.dumps(to_json(sent, encoding))), "value")
    assert (back.dtype, back.shape, back.tobytes()) == (sent.dtype, shape, sent.tobytes())


def test_an_array_of_whole_numbers_is_none() -> None:
    with pytest.raises(Malformed, match="int64"):
        to_json([1, 2], "hex")


@pytest.mark.parametrize(
    "plain",
    [
        3.0,
        {"dtype": "float64", "shape": []},
        {"dtype": "float16", "shape": [], "hex": "0000"},
        {"dtype": "float64", "shape": [1], "hex": "00"},
        {"dtype": "float64", "shape": [-1], "hex": ""},
        {"dtype": "float64", "shape": [1.0], "hex": "0000000000000000"},
        {"dtype": "float64", "shape": [], "hex": "000000000000000g"},
        {"dtype": "float64", "shape": [], "base64": "AAAAAAAAAAA"},
        {"dtype": "float64", "shape": [], "hex": "0000000000000000", "more": 1},
        {"dtype": ["float64"], "shape": [], "hex": "0000000000000000"},
    ],
    ids=str,
)
def test_what_is_no_array_is_refused(plain: Any) -> None:
    with pytest.raises(Malformed, match="value"):
        from_json(plain, "value")


@pytest.mark.parametrize("line", ["", "{", "[]", '{"a":1,"a":2}', '{"a":NaN}', b"\xff", "[" * 9**5])
def test_what_is_no_line_of_json_is_refused(line: Any) -> None:
    with pytest.raises(Malformed):
        parsed(line)


ARGUMENTS: dict[str, Any] = {
    "array": SPECIAL[:3],
    "arrays": WEIGHTS,
    "config": CASE.config,
    "ids": CASE.ids,
    "layout": CASE.layout,
    "valid": [[True, False]],
    "steps": [("prefill", [1, 2]), ("decode", [0])],
    "word": 2**64 - 1,
    "count": 3,
    "flag": True,
    "floats": [1.0, 0.1],
}


@pytest.mark.parametrize("call", CALLS)
def test_arguments_come_back(call: str) -> None:
    arguments = {name: ARGUMENTS[kind] for name, kind in CALLS[call].arguments.items()}
    name, back = arguments_of(parsed(request_line("7", call, arguments, "base64")))
    assert name == call
    assert request_line("7", call, back, "hex") == request_line("7", call, arguments, "hex")


RESULTS: dict[str, Any] = {
    "nothing": None,
    "array": SPECIAL[:3],
    "number": np.float64(0.1),
    "arrays": WEIGHTS,
    "words": [0, 2**64 - 1],
    "loss and gradients": (0.1, WEIGHTS),
    "parameters and state": (WEIGHTS, 5),
    "total, lookup and head": (SPECIAL, SPECIAL, SPECIAL),
    "bytes": {"value": b"\x00\xff"},
    "outputs": [(SPECIAL, 4)],
}


@pytest.mark.parametrize("call", CALLS)
def test_results_come_back(call: str) -> None:
    sent = RESULTS[CALLS[call].result]
    back = result_of(parsed(reply_line("7", call, sent, "base64")), call)
    assert reply_line("7", call, back, "hex") == reply_line("7", call, sent, "hex")


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"result": {}, "error": "both"},
        {"refused": 3},
        {"result": {"loss": to_json([0.1], "hex"), "gradients": {}}},
        {"result": {"loss": to_json(0.1, "hex")}},
        {"result": None},
    ],
    ids=str,
)
def test_what_is_no_reply_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        result_of({"id": "7", **message}, "loss_and_gradients")


def test_a_refusal_and_a_failure_are_told_apart() -> None:
    with pytest.raises(ValueError, match="too long"):
        result_of({"id": "7", "refused": "too long"}, "logits")
    with pytest.raises(RuntimeError, match="out of memory"):
        result_of({"id": "7", "error": "out of memory"}, "logits")


@pytest.mark.parametrize(
    "message",
    [
        {"call": "unheard"},
        {"call": "logits", "ids": [[0]]},
        {"call": "logits", "ids": 3, "layout": None},
        {"call": "logits", "ids": [[0]], "layout": {"lengths": [1]}},
        {"call": "cached", "steps": [["rewind", [1]]]},
        {"call": "load", "config": {}, "weights": {}},
        {"call": "words", "seed": "7", "count": 3},
        {"call": "words", "seed": "0" * 16, "count": 3.0},
    ],
    ids=str,
)
def test_what_is_no_request_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        arguments_of({"id": "7", **message})


@pytest.mark.parametrize(
    "facts",
    [
        {"protocol": "logitproof-decoder-v0"},
        {"capabilities": {"tape": True}},
        {"capabilities": {"loss": "yes"}},
        {"conventions": {}},
        {"conventions": {"functions": 3}},
        {"encoding": "decimal"},
        {"more": 1},
    ],
    ids=str,
)
def test_what_is_no_hello_is_refused(facts: dict[str, Any]) -> None:
    message = examples()[1]
    with pytest.raises(Malformed, match="hello"):
        read_hello({**message, "result": {**message["result"], **facts}})


def test_the_protocol_lists_the_calls() -> None:
    rows = [
        [
            f"`{name}`",
            ", ".join(f"`{argument}`: {kind}" for argument, kind in call.arguments.items()),
            call.result,
            f"`{call.capability}`" if call.capability else "always",
        ]
        for name, call in CALLS.items()
    ]
    assert told("calls") == rows


def test_the_protocol_lists_the_taps() -> None:
    named = [name for row in told("taps") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted(taps.STAGES)


def test_the_hello_of_the_protocol_is_ours() -> None:
    question, answer = examples()
    assert question == parsed(hello_line("0"))
    assert read_hello(answer) == Hello(
        capabilities={"loss": True, "gradients": False, "decode": True},
        conventions={"functions": "c-library"},
        encoding="hex",
    )


@pytest.mark.parametrize("word", [*LEVELS, *LIVE, *ASSUMED[-1:], *CASE.config.__dataclass_fields__])
def test_the_protocol_names(word: str) -> None:
    assert f"`{word}`" in PROTOCOL


def test_the_protocol_names_the_parameters_and_the_limits() -> None:
    roles = {name.removeprefix("blocks.0.") for name in Case.weights.func(CASE)}  # type: ignore[attr-defined]
    roles = {role for role in roles if not role.startswith("blocks.")}
    assert [role for role in roles if f"{role}`" not in PROTOCOL] == []
    assert f"{Limits().reply_bytes:,} bytes" in PROTOCOL
    assert f"{Limits().seconds:g} seconds" in PROTOCOL


def test_every_kind_has_a_form_and_every_claim_a_level_or_call() -> None:
    kinds = {kind for call in CALLS.values() for kind in (*call.arguments.values(), call.result)}
    assert kinds == set(FORMS)
    assert set(LEVELS) < set(CARRIED)


BATCH = {"ids": CASE.ids, "targets": CASE.targets, "layout": CASE.layout, "valid": CASE.valid}
ASKED: dict[str, dict[str, Any]] = {
    "echo": {"value": SPECIAL},
    "load": {"config": CASE.config, "weights": WEIGHTS},
    "logits": {"ids": CASE.ids, "layout": CASE.layout},
    "loss_and_gradients": BATCH,
    "cached": {"steps": [("prefill", [3, 1]), ("decode", [2])]},
    "taps": {"ids": CASE.ids, "layout": None},
}
OF_ARRAYS = ("dtype", "shape", "hex")


@pytest.mark.parametrize("call", ["hello", *ASKED])
def test_a_request_needs_no_json_reader(call: str) -> None:
    line = hello_line("0") if call == "hello" else request_line("0", call, ASKED[call], "hex")
    keys = re.findall(r'"([^"]+)":', line)
    once = [key for key in keys if key not in OF_ARRAYS]
    assert re.search(r"[\s\\]", line.removesuffix("\n")) is None
    assert len(once) == len({*once})
    assert [key for key in keys if key in OF_ARRAYS] == [*OF_ARRAYS] * line.count('"dtype"')
    assert once[:2] == ["id", "call"]


@pytest.mark.parametrize("call", ASKED)
def test_keys_stand_in_the_order_of_the_page(call: str) -> None:
    message = parsed(request_line("0", call, ASKED[call], "hex"))
    (row,) = (row for row in told("calls") if row[0] == f"`{call}`")
    assert [*message][2:] == re.findall(r"`(\w+)`", row[1])
