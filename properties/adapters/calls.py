"""The calls of the protocol, and how requests and replies stand on lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from .arrays import Malformed, refuse
from .forms import FORMS

__all__ = [
    "CALLS", "CARRIED", "FORMAT", "LIVE", "OF_NO_MODEL", "Call", "arguments_of", "reply_line",
    "request_line", "result_of",
]  # fmt: skip

FORMAT = "logitproof-decoder-v1"


class Call(NamedTuple):
    """Name -> kind of each argument, the kind of the result, and the capability it belongs to."""

    arguments: Mapping[str, str]
    result: str
    capability: str | None = None


_TEXT = {"ids": "ids", "targets": "ids"}
_BATCH = {**_TEXT, "layout": "layout", "valid": "valid"}
CALLS: Mapping[str, Call] = {
    "echo": Call({"value": "array"}, "array"),
    "load": Call({"config": "config", "weights": "arrays"}, "nothing"),
    "logits": Call({"ids": "ids", "layout": "layout"}, "array", "forward"),
    "loss_and_gradients": Call(_BATCH, "loss and gradients", "loss"),
    "cached": Call({"steps": "steps"}, "outputs", "decode"),
    "taps": Call({"ids": "ids", "layout": "layout"}, "arrays", "taps"),
    "loss_sum": Call(_BATCH, "number", "raw-sum"),
    "words": Call({"seed": "word", "count": "count"}, "words", "initial-values"),
    "matrix": Call(
        {"seed": "word", "fan_in": "count", "fan_out": "count"}, "array", "initial-values"
    ),
    "initial": Call(
        {"config": "config", "seed": "word", "depth_scaled": "flag"},
        "parameters and state",
        "initial-values",
    ),
    "table_gradients": Call(_TEXT, "total, lookup and head", "gradient-parts"),
    "backward_passes": Call({**_TEXT, "seeds": "floats"}, "arrays", "repeated-backward"),
    "recomputed": Call(_BATCH, "loss and gradients", "recomputation"),
    "snapshot": Call({}, "bytes", "refusals"),
}
OF_NO_MODEL = ("echo", "load", "words", "matrix", "initial")  # asked of no weights
# What a program or a file of answers may claim: the capabilities with a call, the gradients that
# come with the loss, the layouts that a batch may have, claims about bits, and what a decoder has
# beyond the specification.
CARRIED = (
    *dict.fromkeys(call.capability for call in CALLS.values() if call.capability),
    "gradients",
    "padded",
    "packed",
    "row-bits",
    "specified-bits",
    "grouped-heads",
    "untied-head",
    "ranges",
)
# What hangs on the calls before: a file of answers, each to one request alone, cannot claim it.
LIVE = ("repeated-backward", "refusals")


def request_line(id_: str, call: str, arguments: Mapping[str, Any], encoding: str) -> str:
    """One request as one line, with its line feed."""
    kinds = CALLS[call].arguments
    plain = {name: FORMS[kind].write(arguments[name], encoding) for name, kind in kinds.items()}
    return _line({"id": id_, "call": call, **plain})


def arguments_of(message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The call and its arguments. Raises Malformed for anything that is no request."""
    call = message.get("call")
    if not isinstance(call, str) or call not in CALLS:
        refuse("call", "a known call", call)
    kinds = CALLS[call].arguments
    if set(message) != {"id", "call", *kinds}:
        refuse(call, ", ".join(("id", "call", *kinds)), sorted(message))
    return call, {name: FORMS[kind].read(message[name], name) for name, kind in kinds.items()}


def reply_line(id_: str, call: str, result: Any, encoding: str) -> str:
    """One result as one line, with its line feed."""
    return _line({"id": id_, "result": FORMS[CALLS[call].result].write(result, encoding)})


def result_of(message: Mapping[str, Any], call: str) -> Any:
    """What a reply gives.

    Raises Malformed for what is no reply, ValueError where the decoder refused and RuntimeError
    where it failed.
    """
    keys = set(message) - {"id"}
    if keys == {"result"}:
        return FORMS[CALLS[call].result].read(message["result"], "result")
    if keys not in ({"refused"}, {"error"}) or not isinstance(message[min(keys)], str):
        raise Malformed("a reply holds its id and one of result, refused, error")
    if keys == {"refused"}:
        raise ValueError(message["refused"])
    raise RuntimeError(message["error"])


def _line(message: Mapping[str, Any]) -> str:
    return json.dumps(message, separators=(",", ":"), allow_nan=False) + "\n"
