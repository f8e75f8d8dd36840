"""Workspace of each primitive: what it holds beside its operands and its value, at most."""

from collections.abc import Mapping
from typing import Final

from . import sizes
from .schedule import Op, Shape

# A correctly rounded exponential is evaluated in steps of so many elements, each with so many
# arrays of that length.
STEP_ELEMENTS: Final = 8192
STEP_ARRAYS: Final = 11

# Kind -> arrays as large as the value, arrays as large as the first operand, exponentials or not.
FORWARD: Final[Mapping[str, tuple[int, int, bool]]] = {
    "matmul": (1, 0, False),
    "mean": (0, 1, False),
    "log": (17, 0, False),
    "exp": (0, 0, True),
    "silu": (2, 0, True),
    "rotary_pairs": (2, 0, False),
    "causal_softmax": (5, 0, True),
    "indexed_mean_nll": (0, 4, True),
    "cached_attention": (3, 0, True),
}
NOTHING: Final = (0, 0, False)


def forward(op: Op, operands: Mapping[str, Shape]) -> list[Shape]:
    """Arrays that the operation itself makes and drops."""
    of_value, of_operand, exponentials = FORWARD.get(op.kind, NOTHING)
    first = [operands[name] for name in op.operands[:1]]
    arrays = [op.shape] * of_value + first * of_operand + list(op.scratch)
    if exponentials:
        largest = max(map(elements, [op.shape, *first, *op.scratch]))
        arrays += [(STEP_ARRAYS, min(largest, STEP_ELEMENTS))]
    return arrays


def reverse(op: Op, operands: Mapping[str, Shape]) -> list[Shape]:
    """Arrays of a reverse rule: contributions, what they are reduced from, the newest sum."""
    own = [operands[name] for name in op.operands]
    newest = max(own, key=elements)
    match op.kind:
        case "matmul":
            # Transposed copies and products; a shared matrix gets one product per batch row.
            unreduced = [(*op.shape[: -len(shape)], *shape) for shape in own if len(shape) == 2]
            full = [shape for shape in own if len(shape) != 2] + unreduced
            return [*full * 3, *own, newest, op.shape]
        case "causal_softmax":
            return [op.shape] * 6
        case "indexed_mean_nll":
            return [*own * 4]
        case _:
            return [*own, *[op.shape] * len(own), newest]


def mask_bytes(shape: Shape) -> int:
    """One byte per element while a value is scanned for what is not finite."""
    return elements(shape)


def elements(shape: Shape) -> int:
    """The elements of an array.

    Refuses: capacity/plan-overflow
    """
    return sizes.product(shape, what="workspace", label="elements")
