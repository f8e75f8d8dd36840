"""PyTorch's single operations in float16 and bfloat16 under test, reverse rules by autograd.

`logitproof verify --decoder logitproof.properties.adapters.torch_operations:TorchNarrow`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn import functional

from logitproof.properties.narrow_ops import NarrowSubject

__all__ = ["TorchNarrow", "TorchOperations"]

Rule: TypeAlias = Callable[[Any], tuple[Any, ...]]

OPERATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "matmul": torch.matmul,
    "sum": lambda a, *, axis: a.sum(dim=axis),
    "mean": lambda a, *, axis: a.mean(dim=axis),
    "exp": torch.exp,
    "log": torch.log,
    "silu": functional.silu,
    "softmax": lambda a, *, axis: a.softmax(dim=axis),
    "log_softmax": lambda a, *, axis: a.log_softmax(dim=axis),
}


class TorchOperations:
    """Each by its name: arrays in, value and reverse rule out, as float32 arrays."""

    def __init__(self, format: str) -> None:
        self.dtype = getattr(torch, format)

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, Rule]]:
        if name not in OPERATIONS:
            raise AttributeError(name)

        def operation(*operands: Any, **arguments: Any) -> tuple[Any, Rule]:
            tensors = [self._tensor(x).requires_grad_() for x in operands]
            value = OPERATIONS[name](*tensors, **arguments)

            def rule(upstream: Any) -> tuple[Any, ...]:
                parts = torch.autograd.grad(value, tensors, self._tensor(upstream))
                return tuple(map(_array, parts))

            return _array(value), rule

        return operation

    def rms_norm(self, a: Any, gain: Any, *, epsilon: float) -> Any:
        """The value alone."""
        x, weight = self._tensor(a), self._tensor(gain)
        return _array(functional.rms_norm(x, weight.shape, weight, epsilon))

    def _tensor(self, array: Any) -> torch.Tensor:
        return torch.tensor(np.ascontiguousarray(array), dtype=self.dtype)


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().float().numpy()


class TorchNarrow(NarrowSubject):
    """The operations under test: float32 steps, but that log-sum-exp is kept in the format."""

    conventions: Mapping[str, str] = {
        "functions": "c-library",
        "accumulation": "float32",
        "accumulation:log_softmax": "format",
    }

    def __init__(self) -> None:
        """Nothing to choose."""

    def narrow(self, format: str) -> Any:
        """PyTorch's own operations in one format."""
        return TorchOperations(format)
