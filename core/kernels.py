"""Two sets of primitives under one set of fused operations: ordered bits, and the machine's speed.

A kernel is a value: it is chosen by an argument or by a run record, never by ambient state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from . import floats
from .floats import Array, Ids

__all__ = ["BLAS", "KERNELS", "ORDERED", "Kernel", "OutOfRange"]

Mask: TypeAlias = npt.NDArray[np.bool_]
Turns: TypeAlias = npt.NDArray[np.complex128]
Turn: TypeAlias = Callable[[Array, Array], tuple[Array, Array]]

# The magnitude from which on a fused operation leaves the decision to its steps.
MODERATE = 1e150
# Up to this magnitude exponentials of scores, and their sums, neither overflow nor vanish.
UNSHIFTED = 500.0
ONE = np.array(1.0)  # a cheaper operand than a Python number


class Rotation(NamedTuple):
    """How queries and keys [..., d_h] turn, their adjacent pairs by the angles of their cells.

    turn, turn_back: query, key -> both turned, or their adjoints turned back
    scale:           what scores of such queries and keys are to be multiplied by
    """

    turn: Turn
    turn_back: Turn
    scale: float


class OutOfRange(ArithmeticError):
    """A fused operation cannot tell without its steps whether one of them would be refused."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernel:
    """The primitives that a fused operation is written over.

    name:            as run records spell it
    claims_bits:     whether its results are the specification's bits, or only within the bounds
    product:         [..., R, K] x [..., K, C] -> [..., R, C], batch axes broadcast
    projections:     x [R, I], weights [I, O] -> x @ each weight
    weight_gradient: x [R, I], u [R, O], B rows of R / B tokens -> the gradient [I, O] of x @ weight
    weight_gradients: x, one u for each of several weights of one width O, B -> their gradients
    table_gradient:  u [R, V], x [R, D], B -> the gradient [V, D] of x @ table^T
    input_gradient:  one u [R, O] for each of the weights [I, O], the order in which their
        contributions arrive -> [R, I]
    rotation:        cosines, sines, the scores' scale -> `Rotation`
    mean_square:     [..., D] -> [..., 1]
    inverse_root:    1 / sqrt of positive values
    row_dots:        u, x [..., D] -> [..., 1], the sum of u * x
    column_dots:     u, x [..., D] -> [D], the sum of u * x over all rows
    sigmoid:         elementwise
    causal:          scores [..., T, T] (overwritten), allowed keys, the others -> probabilities
    row_losses:      rows [G, V], targets [G] -> losses [G], and k -> k times their gradients
    total:           [G] -> rank 0
    is_moderate:     every value is finite and of a magnitude below `MODERATE`; NaN is neither
    """

    name: str
    claims_bits: bool
    product: Callable[[Array, Array], Array]
    projections: Callable[[Array, Sequence[Array]], Sequence[Array]]
    weight_gradient: Callable[[Array, Array, int], Array]
    weight_gradients: Callable[[Array, Sequence[Array], int], Sequence[Array]]
    table_gradient: Callable[[Array, Array, int], Array]
    input_gradient: Callable[[Sequence[Array], Sequence[Array], Sequence[int]], Array]
    rotation: Callable[[Array, Array, float], Rotation]
    mean_square: Callable[[Array], Array]
    inverse_root: Callable[[Array], Array]
    row_dots: Callable[[Array, Array], Array]
    column_dots: Callable[[Array, Array], Array]
    sigmoid: Callable[[Array], Array]
    causal: Callable[[Array, Mask, Mask], Array]
    row_losses: Callable[[Array, Ids], tuple[Array, Callable[[Array], Array]]]
    total: Callable[[Array], Array]
    is_moderate: Callable[[Array], bool]

    def check(self, *arrays: Array) -> None:
        """Raises: OutOfRange, where a value is not moderate"""
        for array in arrays:
            if not self.is_moderate(array):
                raise OutOfRange

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or pickle is the kernel of that name itself."""
        return _named, (self.name,)


# --- ordered-f64: only the primitives of `floats`, each looked up when it is called -------------


def _ordered_product(a: Array, b: Array) -> Array:
    return floats.contract(a, b)


def _ordered_weight_gradient(x: Array, u: Array, rows: int) -> Array:
    """Tokens ascending within each row, then the rows (numerics_vjp.md section 3)."""
    if rows == 1:
        return floats.contract(x.T, u)
    I, O = x.shape[1], u.shape[1]  # noqa: E741 (sizes are single capitals)
    per_row = floats.contract(x.reshape(rows, -1, I).swapaxes(1, 2), u.reshape(rows, -1, O))
    return floats.total(per_row, axis=0)


def _ordered_projections(x: Array, weights: Sequence[Array]) -> Sequence[Array]:
    """One contraction over the columns of all."""
    joined = floats.contract(x, np.concatenate(weights, axis=1))
    return _columns(joined, weights[0].shape[1])


def _columns(joined: Array, width: int) -> Sequence[Array]:
    return [joined[:, at : at + width] for at in range(0, joined.shape[1], width)]


def _ordered_weight_gradients(x: Array, upstreams: Sequence[Array], rows: int) -> Sequence[Array]:
    joined = _ordered_weight_gradient(x, np.concatenate(upstreams, axis=1), rows)
    return _columns(joined, upstreams[0].shape[1])


def _ordered_table_gradient(u: Array, x: Array, rows: int) -> Array:
    """As that of the transposed table: its sums run along many columns."""
    return _ordered_weight_gradient(x, u, rows).T


def _ordered_input_gradient(
    upstreams: Sequence[Array], weights: Sequence[Array], order: Sequence[int]
) -> Array:
    """One contraction per projection, added in the order in which their nodes are visited."""
    arrived = (floats.contract(upstreams[i], weights[i].swapaxes(0, 1)) for i in order)
    result = next(arrived)
    for contribution in arrived:
        result += contribution
    return result


def _ordered_rotation(cosines: Array, sines: Array, scale: float) -> Rotation:
    """(l * c - r * s, l * s + r * c) per adjacent pair, every -0.0 made +0.0.

    Written over both of a pair at once: l * c + r * -s and r * c + l * s have the same bits.
    """
    scales, crosses = np.empty((2, *cosines.shape, 2))
    scales[..., 0] = scales[..., 1] = cosines
    np.negative(sines, out=crosses[..., 0])
    crosses[..., 1] = sines

    def turned(x: Array, y: Array, crosses: Array) -> tuple[Array, Array]:
        pairs = np.concatenate((x[None], y[None])).reshape(2, *x.shape[:-1], -1, 2)
        result = pairs * scales
        result += pairs[..., ::-1] * crosses
        result += floats.ZERO
        both = result.reshape(2, *x.shape)
        return both[0], both[1]

    return Rotation(lambda x, y: turned(x, y, crosses), lambda x, y: turned(x, y, -crosses), scale)


def _ordered_mean_square(x: Array) -> Array:
    return floats.mean(x * x, axis=x.ndim - 1, keep=True)


def _ordered_inverse_root(values: Array) -> Array:
    """exp(-0.5 * log(x)): the specification fixes the composed form."""
    return floats.exp(floats.log(values) * -0.5)


def _ordered_row_dots(u: Array, x: Array) -> Array:
    return floats.total(u * x, axis=x.ndim - 1, keep=True)


def _ordered_column_dots(u: Array, x: Array) -> Array:
    return floats.total((u * x).reshape(-1, x.shape[-1]), axis=0)


def _ordered_sigmoid(x: Array) -> Array:
    e = floats.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def _ordered_causal(scores: Array, allowed: Mask, hidden: Mask) -> Array:
    shape = scores.shape
    _shift_rows(scores, hidden)
    rows, groups, first = _first_greatest(scores)
    keys = np.broadcast_to(allowed, shape)
    scores[keys] = floats.exp(scores[keys])
    np.copyto(scores, 0.0, where=hidden)
    return _normalised(rows, groups, first)[0].reshape(shape)


def _ordered_row_losses(rows: Array, targets: Ids) -> tuple[Array, Callable[[Array], Array]]:
    maximum = np.maximum.reduce(rows, axis=1)
    shifted = rows - maximum[:, None]
    _, groups, first = _first_greatest(shifted)
    probabilities, tail = _normalised(floats.exp(shifted), groups, first)
    losses = maximum - rows[groups, targets]
    losses += floats.log1p(tail)

    def gradient(k: Array) -> Array:
        result = probabilities * k
        result[groups, targets] = (probabilities[groups, targets] - 1.0) * k
        result += 0.0
        return result

    return losses, gradient


def _first_greatest(shifted: Array) -> tuple[Array, Ids, Ids]:
    """The rows, their numbers, and in each the first class at the maximum."""
    rows = shifted.reshape(-1, shifted.shape[-1])
    return rows, np.arange(len(rows)), (rows == 0.0).argmax(axis=1)


def _normalised(exponentials: Array, groups: Ids, first: Ids) -> tuple[Array, Array]:
    """Rows over 1 + the sum of the others' terms, in place, and that sum: numerics.md section 7.

    The first greatest class adds no term of its own: its exponential, 1, is the first summand.
    """
    greatest = exponentials[groups, first]  # 1, or 0 in a row without keys
    exponentials[groups, first] = 0.0
    tail = floats.total(exponentials, axis=1)
    exponentials[groups, first] = greatest
    exponentials /= (1.0 + tail)[:, None]
    exponentials += 0.0
    return exponentials, tail


def _shift_rows(scores: Array, hidden: Mask) -> None:
    """Each row less its greatest allowed score, -inf where hidden."""
    np.copyto(scores, -np.inf, where=hidden)
    maximum = np.maximum.reduce(scores, axis=-1, keepdims=True)
    if hidden.ndim > 2:  # an inactive query has no keys
        maximum[maximum == -np.inf] = 0.0
    scores -= maximum


def _ordered_total(losses: Array) -> Array:
    return floats.total(losses, axis=0)


def _ordered_is_moderate(values: Array) -> bool:
    """Value by value: magnitudes add nothing, have no order and enter no BLAS."""
    return bool(np.count_nonzero(np.abs(values) < MODERATE) == values.size)


# --- blas-f64: matrix products on views, numpy's own functions and sums, in place ----------------


def _blas_product(a: Array, b: Array) -> Array:
    """By `dot` where two matrices meet: the same product at half the cost of a small call."""
    product: Array = a.dot(b) if b.ndim == 2 else a @ b
    return product


def _blas_projections(x: Array, weights: Sequence[Array]) -> Sequence[Array]:
    return [x.dot(weight) for weight in weights]


def _blas_weight_gradient(x: Array, u: Array, _: int) -> Array:
    gradient: Array = x.T.dot(u)
    return gradient


def _blas_weight_gradients(x: Array, upstreams: Sequence[Array], _: int) -> Sequence[Array]:
    columns = x.T
    return [columns.dot(u) for u in upstreams]


def _blas_input_gradient(
    upstreams: Sequence[Array], weights: Sequence[Array], order: Sequence[int]
) -> Array:
    first, *others = order
    result: Array = upstreams[first].dot(weights[first].T)
    for i in others:
        result += upstreams[i].dot(weights[i].T)
    return result


def _blas_rotation(cosines: Array, sines: Array, scale: float) -> Rotation:
    """A pair is a complex number, and its turn a product; that of a query has the scale in it."""
    turn = np.empty(cosines.shape, dtype=np.complex128)
    turn.real, turn.imag = cosines, sines
    scaled = turn * scale
    back, scaled_back = turn.conj(), scaled.conj()

    def turned(x: Array, turn: Turns) -> Array:
        result: Array = np.multiply(x.view(np.complex128), turn, order="C").view(np.float64)
        return result

    return Rotation(
        lambda query, key: (turned(query, scaled), turned(key, turn)),
        lambda query, key: (turned(query, scaled_back), turned(key, back)),
        1.0,
    )


def _blas_mean_square(x: Array) -> Array:
    mean: Array = _blas_row_dots(x, x)
    mean /= float(x.shape[-1])
    return mean


def _blas_inverse_root(values: Array) -> Array:
    root: Array = np.sqrt(values)
    np.divide(ONE, root, out=root)
    return root


def _blas_row_dots(u: Array, x: Array) -> Array:
    dots: Array = np.vecdot(u, x)[..., None]
    return dots


def _blas_column_dots(u: Array, x: Array) -> Array:
    dots: Array = np.add.reduce((u * x).reshape(-1, x.shape[-1]), axis=0)
    return dots


def _blas_sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)): an exponential that overflows gives the right 0."""
    s: Array = np.negative(x)
    np.exp(s, out=s)
    s += ONE
    np.divide(ONE, s, out=s)
    return s


def _blas_causal(scores: Array, _: Mask, hidden: Mask) -> Array:
    """A row's shift cancels in its probabilities: small scores, as a sum tells, need none."""
    if np.vdot(scores, scores) < UNSHIFTED * UNSHIFTED:
        np.copyto(scores, -np.inf, where=hidden)
    else:
        _shift_rows(scores, hidden)
    np.exp(scores, out=scores)
    normalizer = np.add.reduce(scores, axis=-1, keepdims=True)
    if hidden.ndim > 2:
        normalizer[normalizer == 0.0] = 1.0
    scores /= normalizer
    return scores


def _blas_row_losses(rows: Array, targets: Ids) -> tuple[Array, Callable[[Array], Array]]:
    at = np.arange(len(rows)), targets
    exponentials = rows - np.maximum.reduce(rows, axis=1, keepdims=True)
    chosen = exponentials[at]
    np.exp(exponentials, out=exponentials)
    normalizer = np.add.reduce(exponentials, axis=1, keepdims=True)
    losses: Array = np.log(normalizer[:, 0])
    losses -= chosen

    def gradient(k: Array) -> Array:
        result: Array = exponentials * (k / normalizer)
        result[at] -= k
        return result

    return losses, gradient


def _blas_total(losses: Array) -> Array:
    total: Array = np.asarray(np.add.reduce(losses))
    return total


def _blas_is_moderate(values: Array) -> bool:
    """A sum of squares is no less than each: one that is NaN or too large is seen in it."""
    return bool(np.vdot(values, values) < MODERATE * MODERATE)


ORDERED: Final = Kernel(
    name="ordered-f64",
    claims_bits=True,
    product=_ordered_product,
    projections=_ordered_projections,
    weight_gradient=_ordered_weight_gradient,
    weight_gradients=_ordered_weight_gradients,
    table_gradient=_ordered_table_gradient,
    input_gradient=_ordered_input_gradient,
    rotation=_ordered_rotation,
    mean_square=_ordered_mean_square,
    inverse_root=_ordered_inverse_root,
    row_dots=_ordered_row_dots,
    column_dots=_ordered_column_dots,
    sigmoid=_ordered_sigmoid,
    causal=_ordered_causal,
    row_losses=_ordered_row_losses,
    total=_ordered_total,
    is_moderate=_ordered_is_moderate,
)
BLAS: Final = Kernel(
    name="blas-f64",
    claims_bits=False,
    product=_blas_product,
    projections=_blas_projections,
    weight_gradient=_blas_weight_gradient,
    weight_gradients=_blas_weight_gradients,
    table_gradient=_blas_weight_gradient,
    input_gradient=_blas_input_gradient,
    rotation=_blas_rotation,
    mean_square=_blas_mean_square,
    inverse_root=_blas_inverse_root,
    row_dots=_blas_row_dots,
    column_dots=_blas_column_dots,
    sigmoid=_blas_sigmoid,
    causal=_blas_causal,
    row_losses=_blas_row_losses,
    total=_blas_total,
    is_moderate=_blas_is_moderate,
)
KERNELS: Final[Mapping[str, Kernel]] = MappingProxyType({k.name: k for k in (ORDERED, BLAS)})


def _named(name: str) -> Kernel:
    return KERNELS[name]
