"""The matrix products of a decoder alone, by BLAS into storage that is there before: the limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from . import Array, Sizes

__all__ = ["Widths", "decode_step", "forward", "forward_backward", "multiply_adds"]


class Widths(Sizes, Protocol):
    """The sizes that shapes of products are made of."""

    @property
    def vocabulary_size(self) -> int:
        """Entries of the vocabulary."""

    @property
    def feed_forward_width(self) -> int:
        """Features between gate and down."""


@dataclass(frozen=True, slots=True, eq=False)
class _Product:
    """left @ right -> out, and the two products that pull `upstream` back."""

    left: Array
    right: Array
    out: Array
    left_grad: Array
    right_grad: Array

    def forward(self) -> None:
        np.matmul(self.left, self.right, out=self.out)

    def backward(self) -> None:
        np.matmul(self.out, self.right.swapaxes(-1, -2), out=self.left_grad)
        np.matmul(self.left.swapaxes(-1, -2), self.out, out=self.right_grad)


def _shapes(widths: Widths, T: int, keys: int) -> list[tuple[tuple[int, ...], int, int]]:
    """(shape of the left operand, its inner size, columns) in execution order."""
    D, F, V, H = (
        widths.model_width, widths.feed_forward_width, widths.vocabulary_size, widths.heads,
    )  # fmt: skip
    d_h = D // H
    block = [
        *3 * [((T,), D, D)],
        ((H, T), d_h, keys),
        ((H, T), keys, d_h),
        ((T,), D, D),
        *2 * [((T,), D, F)],
        ((T,), F, D),
    ]
    return widths.layers * block + [((T,), D, V)]


def _products(widths: Widths, T: int, keys: int) -> list[_Product]:
    made = []
    for rows, inner, columns in _shapes(widths, T, keys):
        left, right = np.full((*rows, inner), 0.5), np.full((*rows[:-1], inner, columns), 0.5)
        out = np.empty((*rows, columns))
        made.append(_Product(left, right, out, np.empty_like(left), np.empty_like(right)))
    return made


def multiply_adds(widths: Widths, T: int) -> int:
    """Multiply-add pairs of one forward over T tokens, masked scores included."""
    return sum(int(np.prod(rows)) * i * c for rows, i, c in _shapes(widths, T, T))


def forward(widths: Widths, T: int) -> Callable[[], None]:
    """One forward over a row of T tokens."""
    products = _products(widths, T, T)

    def run() -> None:
        for product in products:
            product.forward()

    return run


def forward_backward(widths: Widths, T: int) -> Callable[[], None]:
    """One forward and one backward over a row of T tokens."""
    products = _products(widths, T, T)

    def run() -> None:
        for product in products:
            product.forward()
        for product in reversed(products):
            product.backward()

    return run


def decode_step(widths: Widths, prefix: int) -> Callable[[], None]:
    """One token behind `prefix` cached ones."""
    products = _products(widths, 1, prefix + 1)

    def run() -> None:
        for product in products:
            product.forward()

    return run
