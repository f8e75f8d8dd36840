"""Golden files spoiled by hand: one case, one change."""

import copy
import json
from collections.abc import Callable
from typing import Any

__all__ = ["MUTATIONS", "spoiled"]

Object = dict[str, Any]


def _last_bit(cases: list[Object], i: int) -> None:
    """The last thing that a case expects is another by one bit, character or unit."""
    _change(cases[i], "expect" if cases[i]["expect"] else "setup")


def _change(held: Any, key: Any) -> None:
    value = held[key]
    if isinstance(value, dict | list) and value:
        _change(value, next(reversed(value)) if isinstance(value, dict) else len(value) - 1)
    elif isinstance(value, bool):
        held[key] = not value
    elif isinstance(value, int):
        held[key] = value + 1
    elif isinstance(value, str) and value:
        last = value[-1]
        held[key] = value[:-1] + (f"{int(last, 16) ^ 1:x}" if last in "0123456789abcdef" else "~")
    else:
        held[key] = 0 if value is None else "~"


def _swapped(cases: list[Object], i: int) -> None:
    """Two fields of a case have changed places."""
    case = cases[i]
    case["source"], case["why"] = case["why"], case["source"]


def _deleted(cases: list[Object], i: int) -> None:
    """A case is gone."""
    del cases[i]


MUTATIONS: dict[str, Callable[[list[Object], int], None]] = {
    "last-bit": _last_bit,
    "swapped": _swapped,
    "deleted": _deleted,
}


def spoiled(text: str, i: int, mutation: str) -> str:
    """The text of a file with its case i spoiled; `truncated` ends it inside the case."""
    if mutation == "truncated":
        places = [at for at in range(len(text)) if text.startswith('"id": ', at)]
        return text[: places[i] + 9]
    held = copy.deepcopy(json.loads(text))
    MUTATIONS[mutation](held["cases"], i)
    return json.dumps(held)
