"""The cases of operations as lines of text, for a reader without JSON."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from .load import Case

__all__ = ["HEADING", "text"]

HEADING = """\
# logitproof-operations-v1
#
# Lines of words parted by single spaces; a line that begins with # says nothing. Per case:
#
#   case ID                      begins it
#   op NAME                      the operation
#   strength exact|ulps|bound    how its result is compared; exact: the same bits
#   argument NAME JSON           as many as there are; the JSON is the rest of the line
#   operand ARRAY                in order
#   upstream ARRAY               the adjoint of the result, where contributions follow
#   value ARRAY                  the result
#   contribution ARRAY|none      of each operand in order, given the upstream
#   true ARRAY                   the unrounded result, or that of the contributions, as pairs
#   bound ARRAY, ulps JSON       how far from it a result may lie where strength is not exact
#   refusal CODE                 in place of what is expected: the operation refuses
#   end                          ends it
#
# ARRAY is KIND RANK SIZE... CELL..., row-major. KIND f64: a cell is the 16 hex digits of a
# binary64. KIND i64: an integer. KIND pair: two binary64, their exact sum is meant.
# The last line is `cases COUNT`: a file without it is cut off.
"""


def text(cases: Iterable[Case]) -> str:
    """The file; cases of other kinds than operations are left out."""
    chosen = [case for case in cases if case.kind == "operation"]
    lines = [line for case in chosen for line in _block(case)]
    return HEADING + "".join(f"{line}\n" for line in (*lines, f"cases {len(chosen)}"))


def _block(case: Case) -> Iterator[str]:
    yield f"case {case.id}"
    yield f"op {case.setup['op']}"
    yield f"strength {case.strength}"
    for name, value in case.input["arguments"].items():
        yield f"argument {name} {json.dumps(value, sort_keys=True)}"
    yield from _lines("operand", case.input["operands"])
    if "upstream" in case.input:
        yield from _lines("upstream", case.input["upstream"])
    if case.refusal is not None:
        yield f"refusal {case.refusal['code']}"
    else:
        for name in ("value", "contributions", "true", "bound", "ulps"):
            if name in case.expect:
                yield from _lines(name.removesuffix("s") if name != "ulps" else name,
                                  case.expect[name])  # fmt: skip
    yield "end"


def _lines(key: str, value: Any) -> Iterator[str]:
    """A line per array in the value; none where an operand has no contribution."""
    if isinstance(value, dict) and "shape" in value:
        yield f"{key} {_array(value)}"
    elif isinstance(value, list):
        for item in value:
            yield from _lines(key, item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _lines(key, item)
    else:
        yield f"{key} {'none' if value is None else json.dumps(value)}"


def _array(array: dict[str, Any]) -> str:
    """KIND RANK SIZE... CELL..."""
    shape = array["shape"]
    columns = {key: " ".join(array[key]).split() for key in ("f64", "i64", "hi", "lo")
               if key in array}  # fmt: skip
    if "hi" in columns:
        kind = "pair"
        cells = [word for pair in zip(columns["hi"], columns["lo"], strict=True) for word in pair]
    else:
        ((kind, cells),) = columns.items()
    return " ".join([kind, str(len(shape)), *(str(n) for n in shape), *cells])
