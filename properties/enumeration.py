"""Counts by enumeration: the planner's formulas done one thing at a time, without the planner."""

from collections.abc import Iterable, Iterator
from itertools import product

Tensor = tuple[str, tuple[int, ...]]


def tensors(V: int, D: int, L: int, heads: int, kv_heads: int, F: int) -> list[Tensor]:
    """Every learned tensor by full name and shape, written out block by block."""
    K = kv_heads * (D // heads)
    held: list[Tensor] = [("token_embedding.weight", (V, D))]
    for i in range(L):
        held += [
            (f"blocks.{i}.attention_norm.gain", (D,)),
            (f"blocks.{i}.attention.query.weight", (D, D)),
            (f"blocks.{i}.attention.key.weight", (D, K)),
            (f"blocks.{i}.attention.value.weight", (D, K)),
            (f"blocks.{i}.attention.output.weight", (D, D)),
            (f"blocks.{i}.ffn_norm.gain", (D,)),
            (f"blocks.{i}.ffn.gate.weight", (D, F)),
            (f"blocks.{i}.ffn.up.weight", (D, F)),
            (f"blocks.{i}.ffn.down.weight", (F, D)),
        ]
    return [*held, ("final_norm.gain", (D,))]


def cells(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every index of an array."""
    return product(*(range(size) for size in shape))


def scalars(held: Iterable[Tensor]) -> int:
    """Learned scalars, counted one by one."""
    return sum(1 for _, shape in held for _ in cells(shape))


def kv_bytes(B: int, L: int, C: int, kv_heads: int, head_width: int, width: int) -> int:
    """Cached bytes: key and value, every row, layer, position, head and feature."""
    return sum(width for _ in cells((2, B, L, C, kv_heads, head_width)))


def macs(
    B: int, C: int, V: int, D: int, L: int, heads: int, kv_heads: int, F: int, *, causal: bool
) -> int:
    """Multiply-add pairs of one forward: every product of every matrix, head and pair of cells."""
    pairs = 0
    for _ in cells((B, L)):
        for name, shape in tensors(V, D, 1, heads, kv_heads, F):
            if name.startswith("blocks.") and len(shape) == 2:
                pairs += C * sum(1 for _ in cells(shape))
        for _head, query in cells((heads, C)):
            keys = query + 1 if causal else C
            pairs += 2 * keys * (D // heads)  # the scores, then the mixture
    return pairs + sum(1 for _ in cells((B, C, D, V)))


def shard(held: Iterable[Tensor], W: int, rank: int) -> int:
    """Scalars of one rank: columns or rows in equal consecutive parts, gains whole."""
    return sum(
        1 for name, shape in held for cell in cells(shape) if _owns(name, shape, cell, W, rank)
    )


def _owns(name: str, shape: tuple[int, ...], cell: tuple[int, ...], W: int, rank: int) -> bool:
    if len(shape) == 1:
        return True
    by_rows = name.endswith(("output.weight", "down.weight")) or name.startswith("token_embedding")
    axis = 0 if by_rows else 1
    return cell[axis] // (shape[axis] // W) == rank


def ring(values: list[list[int]]) -> tuple[list[list[int]], list[int]]:
    """A ring all-reduce done message by message.

    values:  per rank a vector whose length the ranks divide
    Returns: the vectors afterwards, and the elements that each rank has sent
    """
    W = len(values)
    held = [list(vector) for vector in values]
    size = len(held[0]) // W
    sent = [0] * W
    for adds, step in product((True, False), range(W - 1)):
        messages = []
        for rank in range(W):
            part = (rank - step + (0 if adds else 1)) % W
            messages.append((rank, part, held[rank][part * size : (part + 1) * size]))
        for rank, part, message in messages:
            sent[rank] += len(message)
            receiver = held[(rank + 1) % W]
            for k, value in enumerate(message):
                at = part * size + k
                receiver[at] = receiver[at] + value if adds else value
    return held, sent


def peak(events: Iterable[tuple[str, str, int, int]]) -> tuple[int, int]:
    """Peaks of (action, name, bytes, workspace), all live buffers summed anew at every event.

    Returns: the owned peak, and the peak with workspace
    """
    live: dict[str, int] = {}
    owned = combined = 0
    for action, name, size, workspace in events:
        if action == "allocate":
            live[name] = size
        elif action == "release":
            live.pop(name)
        owned = max(owned, sum(live.values()))
        combined = max(combined, sum(live.values()) + workspace)
    return owned, combined


def forward_elements(
    B: int, T: int, V: int, D: int, L: int, heads: int, kv_heads: int, F: int
) -> int:
    """Elements of every value that a recorded forward with its loss keeps, saved arrays included.

    Source: numerics.md sections 6 to 13, numerics_vjp.md section 4
    """
    d_h = D // heads
    K = kv_heads * d_h
    hidden, keys, pairs, gated, rows = B * T * D, B * T * K, B * heads * T * T, B * T * F, B * T
    norm = 3 * hidden + 5 * rows + 2
    query = 5 * hidden  # projected, split in two copies, rotated, flattened
    key = 6 * keys  # the same and transposed
    value = 4 * keys
    rotation = 2 * (2 * rows * (d_h // 2))  # two tables for query and for key
    attention = query + key + value + rotation + 3 * pairs + 1 + 5 * hidden
    feed_forward = 4 * gated + gated + hidden  # the sigmoid is saved
    block = 2 * norm + attention + feed_forward + 2 * hidden
    head = norm + V * D + rows * V
    return hidden + L * block + head + 1 + rows * V
