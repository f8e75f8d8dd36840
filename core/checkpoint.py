"""Activation checkpoint: one node per block, whose vjp runs the block again."""

from __future__ import annotations

from .block import DecoderBlock
from .errors import Code, Refusal, StateRefusal, at_stage
from .floats import Array
from .kernels import Kernel
from .layout import SequenceLayout
from .tape import NO_GRAD, RECORDING, Context, Parameter, Tensor, constant
from .unfolding import pull_back
from .vjp import Result, Vjp

__all__ = ["checkpoint"]


def checkpoint(
    block: DecoderBlock,
    boundary: Tensor,
    *,
    layout: SequenceLayout,
    context: Context,
    layer: int,
    kernel: Kernel | None = None,
) -> Tensor:
    """The block's output from its boundary, keeping nothing that lies between.

    Parents: the boundary, then the block's nine parameters. Backward runs the block once more
    from the boundary and applies the upstream there; every block parameter is used once per
    block, so the bits are those of the retained path.

    Refuses: the block's; in backward state/checkpoint-refused where the block refuses again,
        and what a reverse pass through the block refuses
    Source:  numerics_vjp.md section 6
    """

    def rule(upstream: Array) -> tuple[Array, ...]:
        x = boundary.value  # untracked stays untracked: nothing above it is walked
        leaf = Parameter("boundary", x) if boundary.tracked else constant(x)
        try:
            output = block.forward(leaf, layout=layout, context=RECORDING, kernel=kernel)
        except Refusal as cause:
            raise StateRefusal(
                code=Code.CHECKPOINT_REFUSED,
                what=f"blocks.{layer}",
                expected="the forward's values",
                actual=str(cause.code),
                details={"cause": str(cause)},
            ) from cause
        with at_stage("activation checkpoint", layer=layer):
            return pull_back(output, upstream, [leaf, *block.parameters])

    def run(x: Array, *_: Array) -> Result:
        output = block.forward(constant(x), layout=layout, context=NO_GRAD, kernel=kernel)
        return output.value.copy(), Vjp(rule, _recipe(block, layout, layer))

    run.op_name = "checkpoint"  # type: ignore[attr-defined]
    return context.apply(run, boundary, *block.parameters)


def _recipe(block: DecoderBlock, layout: SequenceLayout, layer: int) -> dict[str, object]:
    """What a run from the boundary needs beside the block's parameters: handles, no copies."""
    rotation = block.attention.rotation
    return {
        "layer": layer,
        "lengths": layout.lengths,
        "range_starts": layout.range_starts,
        "positions": layout.positions,
        "frequencies": rotation.frequencies,
        "cosines": rotation.cosines,
        "sines": rotation.sines,
    }
