"""One decoder block: norm, attention, residual, norm, SwiGLU, residual."""

from __future__ import annotations

from . import fused
from .attention import Attention
from .config import DecoderBlockConfig
from .errors import Code, SupportRefusal, at_stage, check_equal, check_kind
from .initial import SplitMix64
from .kernels import Kernel
from .layers import Linear, RmsNorm, SwiGlu, add_residual
from .layout import SequenceLayout
from .names import check_distinct
from .rope import RotaryTable
from .tape import RECORDING, Context, Parameter, Tensor

__all__ = ["DecoderBlock"]


class DecoderBlock:
    """a = x + attention(norm(x)); out = a + ffn(norm(a)).

    Refuses: record/field-type, shape/component-width-mismatch (attention norm, feed-forward
        norm, feed-forward input, feed-forward output), record/duplicate-parameter-name
    Source:  numerics.md section 13, layers.md section 10
    """

    __slots__ = ("attention", "attention_norm", "ffn", "ffn_norm")

    def __init__(
        self, attention_norm: RmsNorm, attention: Attention, ffn_norm: RmsNorm, ffn: SwiGlu
    ) -> None:
        check_kind(attention_norm, RmsNorm, "block attention norm")
        check_kind(attention, Attention, "block attention")
        check_kind(ffn_norm, RmsNorm, "block feed-forward norm")
        check_kind(ffn, SwiGlu, "block feed-forward")
        widths = {
            "attention norm": attention_norm.width,
            "feed-forward norm": ffn_norm.width,
            "feed-forward input": ffn.gate.input_width,
            "feed-forward output": ffn.down.output_width,
        }
        for component, width in widths.items():
            check_equal(
                Code.COMPONENT_WIDTH_MISMATCH,
                component,
                attention.model_width,
                width,
                component=component,
            )
        self.attention_norm, self.attention = attention_norm, attention
        self.ffn_norm, self.ffn = ffn_norm, ffn
        check_distinct([p.name for p in self.parameters])

    @classmethod
    def new(
        cls,
        prefix: str,
        config: DecoderBlockConfig,
        rng: SplitMix64,
        *,
        rotation: RotaryTable | None = None,
    ) -> DecoderBlock:
        """A drawn block.

        Refuses: record/field-type, support/grouped-heads, support/context-window, its parts'
        """
        check_kind(config, DecoderBlockConfig, "block config")
        check_kind(rng, SplitMix64, "rng")
        check_executable(config)
        D, epsilon = config.model_width, config.rms_epsilon
        draft = rng.copy()
        attention_norm = RmsNorm.new(f"{prefix}.attention_norm.gain", D, epsilon)
        ffn_norm = RmsNorm.new(f"{prefix}.ffn_norm.gain", D, epsilon)
        attention = Attention.new(
            f"{prefix}.attention",
            D,
            config.heads,
            config.max_positions,
            config.rope_base,
            draft,
            rotation=rotation,
        )
        ffn = SwiGlu.new(f"{prefix}.ffn", D, config.feed_forward_width, D, draft)
        block = cls(attention_norm, attention, ffn_norm, ffn)
        rng.state = draft.state
        return block

    @classmethod
    def from_parameters(
        cls, config: DecoderBlockConfig, parameters: list[Parameter]
    ) -> DecoderBlock:
        """A block over nine existing parameters in block order; the same nodes.

        Refuses: record/field-type, support/grouped-heads, support/context-window,
            shape/parameter-count-mismatch, its parts' in block order
        """
        check_kind(config, DecoderBlockConfig, "block config")
        check_kind(parameters, (list, tuple), "block parameters")
        check_executable(config)
        check_equal(Code.PARAMETER_COUNT_MISMATCH, "block", 9, len(parameters))
        norm, query, key, value, output, ffn_norm, gate, up, down = parameters
        attention_norm = RmsNorm.from_gain(norm, config.rms_epsilon)
        attention = Attention.from_parameters(
            query,
            key,
            value,
            output,
            heads=config.heads,
            max_positions=config.max_positions,
            rope_base=config.rope_base,
        )
        return cls(
            attention_norm,
            attention,
            RmsNorm.from_gain(ffn_norm, config.rms_epsilon),
            SwiGlu(*[Linear.from_parameters(p) for p in (gate, up, down)]),
        )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The nine parameters in block order."""
        return (
            self.attention_norm.gain,
            *self.attention.parameters,
            self.ffn_norm.gain,
            *self.ffn.parameters,
        )

    def forward(
        self,
        x: Tensor,
        *,
        layout: SequenceLayout | None = None,
        context: Context = RECORDING,
        kernel: Kernel | None = None,
    ) -> Tensor:
        """x: [B, T, D]. Returns: [B, T, D]. Refuses: as its parts, in data-flow order

        kernel: of the fused form; None runs the steps one by one
        """
        parameters = self.parameters
        if kernel is None or layout is None or not self._fuses(x, layout, len(parameters)):
            return self.inspect(x, layout=layout, context=context)["output"]
        attention = self.attention

        def steps(x: Tensor, *_: Tensor) -> Tensor:
            return self.inspect(x, layout=layout, context=context)["output"]

        return fused.either(
            context,
            fused.block,
            x,
            *parameters,
            *fused.norm_uses(x, kernel),
            steps=steps,
            epsilons=(self.attention_norm.epsilon, self.ffn_norm.epsilon),
            heads=attention.heads,
            turns=attention.turns(layout),
            allowed=layout.allowed(),
            kernel=kernel,
        )

    def _fuses(self, x: Tensor, layout: SequenceLayout, parameters: int) -> bool:
        """Whether the fused forms cover this call: what they do not, the steps do or refuse."""
        attention = self.attention
        return (
            getattr(x, "shape", None) == (*layout.shape, attention.model_width)
            and layout.last_position < attention.rotation.capacity
            and parameters == 9  # none has a bias
        )

    def inspect(
        self, x: Tensor, *, layout: SequenceLayout | None = None, context: Context = RECORDING
    ) -> dict[str, Tensor]:
        """`forward` with what lies between: the attention's steps and both residual sums."""
        normed = self._normed(x, context)
        steps = self._attended(x, normed, layout, context)
        return {**steps, "output": self.feed_forward(steps["attention_residual"], context=context)}

    def _normed(self, x: Tensor, context: Context) -> Tensor:
        with at_stage("attention_norm"):
            return self.attention_norm.forward(x, context=context)

    def _attended(
        self, x: Tensor, normed: Tensor, layout: SequenceLayout | None, context: Context
    ) -> dict[str, Tensor]:
        with at_stage("attention"):
            steps = self.attention.inspect(normed, layout=layout, context=context)
        return {**steps, "attention_residual": self._residual(x, steps["output"], context)}

    def _residual(self, x: Tensor, attended: Tensor, context: Context) -> Tensor:
        with at_stage("attention_residual"):
            return add_residual(x, attended, context=context, what="attention residual")

    def after_attention(
        self, x: Tensor, attended: Tensor, *, context: Context, kernel: Kernel | None = None
    ) -> dict[str, Tensor]:
        """The residual sums around a finished attention: attention_residual, output."""
        residual = self._residual(x, attended, context)
        output = self.feed_forward(residual, context=context, kernel=kernel)
        return {"attention_residual": residual, "output": output}

    def feed_forward(
        self, residual: Tensor, *, context: Context, kernel: Kernel | None = None
    ) -> Tensor:
        """residual + ffn(norm(residual)). kernel: as in `forward`"""
        gain, weights = self.ffn_norm.gain, self.ffn.parameters

        def steps(residual: Tensor, *_: Tensor) -> Tensor:
            return self._feed_forward_steps(residual, context)

        if kernel is None or len(weights) != 3 or residual.shape[-1:] != gain.shape:
            return steps(residual)
        return fused.either(
            context,
            fused.feed_forward_residual,
            residual,
            *weights,
            gain,
            *fused.norm_uses(residual, kernel),
            steps=steps,
            epsilon=self.ffn_norm.epsilon,
            kernel=kernel,
        )

    def _feed_forward_steps(self, residual: Tensor, context: Context) -> Tensor:
        with at_stage("ffn_norm"):
            normed = self.ffn_norm.forward(residual, context=context)
        with at_stage("ffn"):
            branch = self.ffn.forward(normed, context=context)
        with at_stage("ffn_residual"):
            return add_residual(residual, branch, context=context, what="feed-forward residual")


def check_executable(config: DecoderBlockConfig) -> None:
    """Refuses: support/grouped-heads, support/context-window"""
    if config.kv_heads != config.heads:
        raise SupportRefusal(
            code=Code.GROUPED_HEADS,
            what="config.kv_heads",
            feature=f"{config.kv_heads} key/value heads under {config.heads} query heads",
        )
    if config.context_window is not None:
        raise SupportRefusal(
            code=Code.CONTEXT_WINDOW,
            what="config.context_window",
            feature=f"a context window of {config.context_window}",
        )
