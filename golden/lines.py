"""The cases of operations as lines of text, for a reader without JSON."""

from collections.abc import Iterable, Iterator
from typing import Any

from .load import Case

__all__ = ["text"]

HEADING = """\
# logitproof-operations-v1
#
# Words parted by single spaces; a line that begins with # says nothing. The lines of a case:
#
#   case ID                         begins it
#   op NAME                         the operation
#   strength exact|ulps|bound       exact: a result has the bits of value and contribution
#   argument NAME ARRAY             as many as there are; true and false are 1 and 0
#   operand ARRAY                   one per operand, in order
#   upstream ARRAY                  the adjoint of the result
#   value ARRAY                     the result
#   contribution ARRAY              the adjoint of each operand in order
#   true-value, true-contribution   the same before any rounding, as near as a pair comes
#   bound-value, bound-contribution strength bound: how far from the true one a result may lie
#   ulps COUNT                      strength ulps: how many ulps from it
#   end                             ends it
#
# ARRAY is KIND RANK SIZE... CELL..., row-major. KIND f64: a cell is a binary64, 16 hex digits, big
# end first. KIND i64: an integer. KIND pair: two binary64, of which the exact sum is meant.
# A contribution that is no array is the word none. The last line is `cases COUNT`: a file without
# it is cut off. What an operation must refuse, often no array at all, is in cases/*.json only.
"""
RESULTS = ("", "true", "bound")  # the parts of what is expected; the first is the whole


def text(cases: Iterable[Case]) -> str:
    """The file; a refusal, or a case of another kind than an operation, is left out."""
    chosen = [case for case in cases if case.kind == "operation" and case.refusal is None]
    lines = [line for case in chosen for line in _block(case)]
    return HEADING + "".join(f"{line}\n" for line in (*lines, f"cases {len(chosen)}"))


def _block(case: Case) -> Iterator[str]:
    yield f"case {case.id}"
    yield f"op {case.setup['op']}"
    yield f"strength {case.strength}"
    for name, argument in case.input["arguments"].items():
        yield f"argument {name} {_array(argument)}"
    for operand in case.input["operands"]:
        yield f"operand {_array(operand)}"
    if "upstream" in case.input:
        yield f"upstream {_array(case.input['upstream'])}"
    for part in RESULTS:
        held, prefix = (case.expect.get(part, {}), f"{part}-") if part else (case.expect, "")
        if "value" in held:
            yield f"{prefix}value {_array(held['value'])}"
        for contribution in held.get("contributions", ()):
            yield f"{prefix}contribution {_array(contribution)}"
    if "ulps" in case.expect:
        yield f"ulps {case.expect['ulps']}"
    yield "end"


def _array(held: Any) -> str:
    """KIND RANK SIZE... CELL..., whether an array, a number, or a list of numbers is held."""
    match held:
        case None:
            return "none"
        case {"hi": high, "lo": low, "shape": shape}:
            pairs = zip(_words(high), _words(low), strict=True)
            return _line("pair", shape, [word for pair in pairs for word in pair])
        case {"f64": rows, "shape": shape}:
            return _line("f64", shape, _words(rows))
        case {"i64": rows, "shape": shape}:
            return _line("i64", shape, _words(rows))
        case list(numbers):
            return _line("i64", [len(numbers)], [str(int(number)) for number in numbers])
        case int(number):
            return _line("i64", [], [str(int(number))])
    raise TypeError(f"no line for {held!r}")


def _words(rows: list[str]) -> list[str]:
    return [word for row in rows for word in row.split()]


def _line(kind: str, shape: list[int], cells: list[str]) -> str:
    return " ".join([kind, str(len(shape)), *map(str, shape), *cells])
