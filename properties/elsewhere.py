"""The core as on a machine whose numpy makes matrix products in another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias
from unittest.mock import patch

import numpy as np

from logitproof.core import floats
from logitproof.core.floats import Array

__all__ = ["Product", "products_by"]

Product: TypeAlias = Callable[[Array, Array], Array]


@contextmanager
def products_by(product: Product) -> Iterator[None]:
    """While open, what numpy offers for products and for sums of rows is made by `product`.

    product: [R, K] x [K, C] -> [R, C]. The core looks at it anew, and afterwards at its own again.
    """

    def lanes(left: Array, right: Array) -> Array:
        return np.stack([product(a, b) for a, b in zip(left, right, strict=True)])

    def rows(left: Array, right: Array) -> Array:
        products: Array = lanes(left[:, None], right)[:, 0]
        return products

    def sum_of_rows(values: Array) -> Array:
        product_of_ones: Array = product(np.ones((1, len(values))), values)[0]
        return product_of_ones

    forms = {
        "_einsum": product,
        "_einsum_lanes": lanes,
        "_einsum_rows": rows,
        "_sum_of_rows": sum_of_rows,
    }
    with patch.dict(vars(floats), forms):
        _look_anew()
        try:
            yield
        finally:
            _look_anew()


def _look_anew() -> None:
    floats.contraction_is_ordered.cache_clear()
    floats.reduction_is_ordered.cache_clear()
