"""A decoder's sizes and the layout of a batch, as plain values that belong to nobody's decoder."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Config", "Layout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The sizes and constants of a decoder. Source: layers.md section 11

    kv_heads: None for as many as query heads, which the specification executes alone
    tied:     False for a head with a matrix of its own, which the specification has not
    """

    vocabulary_size: int
    model_width: int
    heads: int
    feed_forward_width: int
    layers: int
    max_positions: int
    rope_base: float = 10000.0
    rms_epsilon: float = 1e-6
    kv_heads: int | None = None
    tied: bool = True

    @property
    def head_width(self) -> int:
        """Features per head."""
        return self.model_width // self.heads

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of the 9 L + 2 parameters in stable order, a head of its own last.

        Source: numerics_init.md section 3
        """
        V, D, F = self.vocabulary_size, self.model_width, self.feed_forward_width
        K = self.head_width * (self.kv_heads or self.heads)
        block: dict[str, tuple[int, ...]] = {
            "attention_norm.gain": (D,),
            "attention.query.weight": (D, D),
            "attention.key.weight": (D, K),
            "attention.value.weight": (D, K),
            "attention.output.weight": (D, D),
            "ffn_norm.gain": (D,),
            "ffn.gate.weight": (D, F),
            "ffn.up.weight": (D, F),
            "ffn.down.weight": (F, D),
        }
        blocks = {
            f"blocks.{i}.{role}": shape for i in range(self.layers) for role, shape in block.items()
        }
        head: dict[str, tuple[int, ...]] = {} if self.tied else {"head.weight": (V, D)}
        return {"token_embedding.weight": (V, D), **blocks, "final_norm.gain": (D,), **head}

    def __str__(self) -> str:
        return (
            f"V={self.vocabulary_size} D={self.model_width} heads={self.heads}"
            f" F={self.feed_forward_width} L={self.layers} C={self.max_positions}"
            f" base={self.rope_base:g} eps={self.rms_epsilon:g}"
            + (f" kv_heads={self.kv_heads}" if self.kv_heads is not None else "")
            + ("" if self.tied else " untied")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Active lengths per row; first key and position per cell, 0 in the inactive ones.

    Source: inputs.md section 2
    """

    lengths: tuple[int, ...]
    range_starts: tuple[tuple[int, ...], ...]
    positions: tuple[tuple[int, ...], ...]

    @classmethod
    def full(cls, B: int, T: int) -> "Layout":
        """B rows of ordinary text."""
        return cls.packed([[T]] * B, T)

    @classmethod
    def padded(cls, lengths: Sequence[int], T: int) -> "Layout":
        """Rows of the given lengths, right-padded."""
        return cls.packed([[length] for length in lengths], T)

    @classmethod
    def packed(cls, row_segments: Sequence[Sequence[int]], T: int) -> "Layout":
        """Per row the lengths of the segments laid end to end; each starts again at 0."""
        starts, positions = [], []
        for segments in row_segments:
            ends = [sum(segments[: i + 1]) for i in range(len(segments))]
            firsts = [end - size for end, size in zip(ends, segments, strict=True)]
            cells = [
                (first, t)
                for first, size in zip(firsts, segments, strict=True)
                for t in range(size)
            ]
            cells += [(0, 0)] * (T - len(cells))
            starts.append(tuple(first for first, _ in cells))
            positions.append(tuple(position for _, position in cells))
        lengths = tuple(sum(segments) for segments in row_segments)
        return cls(lengths=lengths, range_starts=tuple(starts), positions=tuple(positions))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and cells per row."""
        return len(self.positions), len(self.positions[0])
