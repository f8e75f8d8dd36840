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
#
# ARITHMETIC. Binary64, to nearest, ties to even; one rounding per written + - * /, none fused.
# A sum S over i begins at +0 and adds one term after the other, i ascending. exp log log1p are
# correctly rounded. pz(x) is +0 where x is 0 or -0, else x. Indices count from 0; cells are
# visited row-major. u is the upstream, da and db the contributions to operands a and b.
# unb(v, a): v of the result's shape brought to the shape of a: cells that begin at +0, then v
# walked row-major, each cell added to the one that it was broadcast from; also of equal shapes.
# Broadcasting: shapes aligned at their last axes, missing ones 1; a size of 1 repeats.
#
# add           a, b broadcast. y = a + b. da = unb(u, a), db = unb(u, b).
# mul           a, b broadcast. y = a * b. da = unb(u * b, a), db = unb(u * a, b).
# broadcast_to  a to the argument shape. y = a repeated. da = unb(u, a).
# reshape       y: the cells of a in their order, of the argument shape. da: u in the shape of a.
# transpose     axes I J: y is a with the two exchanged. da: u with the same two exchanged.
# sum           axis: y = S over the axis, which is dropped, or 1 where keep is 1; an empty sum is
#               +0. da = u / 1 for every cell of the axis.
# mean          axis of n cells, keep as for sum: y = sum / n, one division. da = u / n, one
#               division per cell.
# matmul        a [..., R, K], b [..., K, C], the leading axes broadcast. y[r,c] = S over k of
#               a[r,k] * b[k,c], each product rounded. da = unb(matmul(u, b transposed), a): a sum
#               over c; db = unb(matmul(a transposed, u), b): a sum over r for each leading index,
#               and unb then adds those up.
# gather_rows   a [V, D], indices of any shape I. y [I..., D]: the rows named. da [V, D] begins at
#               +0; for each flat index in order, the row of u is added to the row named.
# place_rows    a [N, D], positions [N] all different, count: y [count, D] is +0 but for row n of a
#               at positions[n]. da: the rows of u there.
# exp           y = exp(a). da = u * y.
# log           y = log(a). da = u / a.
# silu          s = 1 / (1 + exp(-a)) where a >= 0 (also -0), else e / (1 + e) of e = exp(a).
#               y = a * s. da = u * (s * (1 + a * (1 - s))): innermost brackets first.
# A row below is the cells along the argument axis; rows in row-major order of the other axes. Of a
# row z: m is its maximum; tail = S over c of exp(z[c] - m), the first c with z[c] - m == 0 left
# out; p[c] = pz(exp(z[c] - m) / (1 + tail)), l = log1p(tail).
# log_softmax   y[c] = pz((z[c] - m) - l). R = S over c of u[c]. da[c] = u[c] - (p[c] * R).
# indexed_mean_nll  targets t, one per row, G rows, g ascending: loss = (m - z[t]) + l; total =
#               S of the losses; y = pz(total / G), of rank 0. Where a loss or the total is not
#               finite: y = pz(S over g of (q + l / G)), q = (m - z[t]) / G, or m / G - z[t] / G
#               where m - z[t] is not finite. k = u / G; da[c] = pz((p[c] - 1 at c == t, else
#               p[c]) * k).
# indexed_sum_nll   y = total, nothing divided. k = u / 1; da as above.
# causal_softmax a [..., T, T]; range_starts [..., T], else 0; lengths [...], else T. Query t may
#               read the keys j with start <= j <= t, none where t >= length. z: the cells of the
#               allowed keys; y = p there and +0 elsewhere. w = S over allowed j of u[j] * y[j].
#               da[j] = pz(y[j] * (u[j] - w)) there, +0 elsewhere.
# rotary        a [..., W]; cosines c and sines s [..., W / 2], missing leading axes repeat. Of each
#               pair l = a[2i], r = a[2i+1]: y[2i] = pz(l * c - r * s), y[2i+1] = pz(l * s + r * c).
#               da of the pairs l, r of u: pz(l * c + r * s) and pz((-l) * s + r * c).
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
