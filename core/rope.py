"""Rotary position table: one cosine and one sine row per position."""

from __future__ import annotations

import numpy as np

from . import floats, ops
from .arrays import SIZE_LIMIT, as_real, check_reservable, first_non_finite, sealed, shown
from .errors import CapacityRefusal, Code, NumericRefusal, ShapeRefusal, check_equal, check_not_zero
from .floats import Array, Ids
from .initial import check_size
from .tape import RECORDING, Context, Tensor

__all__ = ["RotaryTable", "check_base"]


def check_base(base: object, *, code: Code, what: str) -> float:
    """A finite base above 0. Refuses: `code`"""
    value = as_real(base)
    if value is None or not 0.0 < value < float("inf"):
        raise NumericRefusal(code=code, what=what, value=shown(base))
    return value


class RotaryTable:
    """Angles p * base^(-2i / d_h) for every position p below C and pair i.

    f_i = pow(base, (-2.0 * i) / d_h); cosines[p, i] = cos(p * f_i), sines alike, no -0.0

    Refuses: shape/zero-feature-width, shape/odd-feature-width, shape/zero-position-capacity,
        numeric/invalid-base, capacity/size-overflow, numeric/non-finite-table-value
    Source:  numerics.md section 11, layers.md section 7
    """

    __slots__ = ("base", "capacity", "cosines", "frequencies", "sines", "width")

    def __init__(self, width: int, capacity: int, base: float) -> None:
        what = "rotary table"
        self.width = check_size(width, what=f"{what} width")
        self.capacity = check_size(capacity, what=f"{what} capacity")
        if self.width == 0:
            raise ShapeRefusal(code=Code.ZERO_FEATURE_WIDTH, what=what, expected=2, actual=0)
        if self.width % 2:
            raise ShapeRefusal(
                code=Code.ODD_FEATURE_WIDTH, what=what, expected="even", actual=self.width
            )
        check_not_zero(Code.ZERO_POSITION_CAPACITY, what, self.capacity)
        self.base = check_base(base, code=Code.INVALID_BASE, what=what)
        pairs = self.width // 2
        if self.capacity * pairs > SIZE_LIMIT:
            raise CapacityRefusal(
                code=Code.SIZE_OVERFLOW, what=what, required=self.capacity * pairs, limit=SIZE_LIMIT
            )
        check_reservable(self.capacity, pairs)
        self.frequencies: Array = sealed(self._frequencies(pairs))
        with np.errstate(all="ignore"):
            angles = np.arange(self.capacity, dtype=np.float64)[:, None] * self.frequencies
        self._check(angles.reshape(-1), pairs)
        self.sines: Array = sealed(floats.clean_zeros(floats.sin(angles)))
        self.cosines: Array = sealed(floats.clean_zeros(floats.cos(angles)))

    def _frequencies(self, pairs: int) -> Array:
        exponents = (-2.0 * np.arange(pairs, dtype=np.float64)) / float(self.width)
        frequencies = floats.pow(self.base, exponents)
        self._check(frequencies, pairs)
        return frequencies

    def _check(self, values: Array, pairs: int) -> None:
        bad = first_non_finite(values)
        if bad is not None:
            position, pair = divmod(bad[0], pairs)
            raise NumericRefusal(
                code=Code.NON_FINITE_TABLE_VALUE,
                what="rotary table",
                at=pair,
                value=bad[1],
                details={"position": position},
            )

    @property
    def nbytes(self) -> int:
        """Bytes of frequencies, cosines and sines."""
        return self.frequencies.nbytes + self.cosines.nbytes + self.sines.nbytes

    def copy(self) -> RotaryTable:
        """A table of copied values."""
        twin = RotaryTable.__new__(RotaryTable)
        twin.width, twin.capacity, twin.base = self.width, self.capacity, self.base
        twin.frequencies = sealed(self.frequencies.copy())
        twin.sines, twin.cosines = sealed(self.sines.copy()), sealed(self.cosines.copy())
        return twin

    def rotate(self, x: Tensor, offset: int = 0, *, context: Context = RECORDING) -> Tensor:
        """x: [..., T, width], its token t at position offset + t. Returns: the same shape.

        Refuses: shape/rotation-rank, shape/rotation-width-mismatch,
            capacity/position-offset-overflow, capacity/position-range-exceeded
        """
        if len(x.shape) < 2:
            raise ShapeRefusal(
                code=Code.ROTATION_RANK, what="rotary table", expected=2, actual=len(x.shape)
            )
        check_equal(Code.ROTATION_WIDTH_MISMATCH, "rotary table", self.width, x.shape[-1])
        end = self.check_range(offset, x.shape[-2], what="rotary table")
        return context.apply(
            ops.rotary, x, cosines=self.cosines[offset:end], sines=self.sines[offset:end]
        )

    def check_range(self, offset: int, tokens: int, *, what: str) -> int:
        """The end of the position range.

        Refuses: record/field-type, record/field-range, capacity/position-offset-overflow,
            capacity/position-range-exceeded
        """
        end = check_size(offset, what=f"{what} offset") + tokens
        if end > SIZE_LIMIT:
            raise CapacityRefusal(
                code=Code.POSITION_OFFSET_OVERFLOW, what=what, required=end, limit=SIZE_LIMIT
            )
        if end > self.capacity:
            raise CapacityRefusal(
                code=Code.POSITION_RANGE_EXCEEDED, what=what, required=end, limit=self.capacity
            )
        return end

    def rotate_at(self, x: Tensor, positions: Ids, *, context: Context) -> Tensor:
        """x: [B, H, T, width]; positions: [B, T], 0 or more, shared by all heads.

        Refuses: capacity/position-range-exceeded
        """
        self.check_range(int(positions.max()), 1, what="rotary table")
        cosines, sines = self.cosines[positions][:, None], self.sines[positions][:, None]
        return context.apply(ops.rotary, x, cosines=cosines, sines=sines)
