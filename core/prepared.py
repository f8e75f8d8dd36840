"""The checked hand-over: vectors, layout and live bindings for the decoder backbone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from .errors import BindingRefusal, Code, RecordRefusal, check_kind
from .layout import SequenceLayout
from .tape import Binding, Context, Parameter, Tensor, reading_all

if TYPE_CHECKING:
    from .backbone import DecoderBackbone

__all__ = ["PREPARED_ORDER", "InputEncoder", "PreparedDecoderInput"]

# The eight reasons in validation order (inputs.md section 3).
PREPARED_ORDER = (
    Code.PREPARED_SHAPE,
    Code.PREPARED_POSITION_CAPACITY,
    Code.PREPARED_CONFIGURATION,
    Code.PREPARED_PROVENANCE,
    Code.PREPARED_EMBEDDING,
    Code.PREPARED_RECORDING,
    Code.PREPARED_PARAMETER,
    Code.PREPARED_PRODUCER,
)


class InputEncoder(Protocol):
    """Turns a source of its own into vectors; what only that source can get wrong, it checks."""

    def encode(self, context: Context, backbone: DecoderBackbone) -> PreparedDecoderInput:
        """A prepared input for this backbone under this context."""


class PreparedDecoderInput:
    """Vectors [B, T, D] with their layout, bound to what they were made with and for.

    The same embedding node is kept, never a copy. A producer parameter that the encoder does
    not declare cannot be detected when it changes. A prepared input may be consumed again:
    every consumption repeats all checks.

    Refuses: record/field-type, then `PREPARED_ORDER`
    Source:  inputs.md section 3
    """

    __slots__ = (
        "_backbone_bindings",
        "_configuration",
        "_embedding",
        "_producers",
        "context",
        "embeddings",
        "layout",
        "provenance",
    )

    def __init__(
        self,
        backbone: DecoderBackbone,
        context: Context,
        embeddings: Tensor,
        layout: SequenceLayout,
        provenance: str,
        producer_parameters: Sequence[Parameter] = (),
    ) -> None:
        _check_backbone_kind(backbone)
        _check_types(context, embeddings, layout, provenance, producer_parameters)
        self.context = context
        self.embeddings = embeddings
        self.layout = layout
        self.provenance = provenance
        self._embedding = Binding.of(embeddings)
        self._configuration = _configuration(backbone)
        self._backbone_bindings = tuple(Binding.of(p) for p in backbone.parameters)
        self._producers = tuple(Binding.of(p) for p in producer_parameters)
        self.validate(backbone)

    @property
    def producer_parameters(self) -> tuple[Tensor, ...]:
        """The live parameters that the encoder declared."""
        return tuple(binding.node for binding in self._producers)

    @contextmanager
    def reading(self, backbone: DecoderBackbone) -> Iterator[None]:
        """Everything the run reads, guarded against assignment; then all checks once more."""
        nodes = [*backbone.parameters, *self.producer_parameters, self.embeddings]
        with reading_all([node for node in nodes if isinstance(node, Parameter)]):
            self.validate(backbone)
            yield

    def validate(self, backbone: DecoderBackbone) -> None:
        """Check that the hand-over still holds for this backbone; changes nothing.

        Refuses: record/field-type, then `PREPARED_ORDER`
        """
        _check_backbone_kind(backbone)
        config = backbone.config
        B, T = self.layout.shape
        expected = (B, T, config.model_width)
        rows = None if backbone.identity is None else backbone.identity.max_rows
        if self.embeddings.shape != expected:
            raise _refusal(Code.PREPARED_SHAPE, "embeddings", expected, self.embeddings.shape)
        if config.max_positions < T:
            raise _refusal(
                Code.PREPARED_SHAPE,
                "embeddings",
                f"T of {config.max_positions} or less",
                f"T = {T}",
            )
        if rows is not None and rows < B:
            raise _refusal(Code.PREPARED_SHAPE, "embeddings", f"B of {rows} or less", f"B = {B}")
        position = int(self.layout.positions.max())
        if position >= config.max_positions:
            raise _refusal(
                Code.PREPARED_POSITION_CAPACITY, "layout.positions", config.max_positions, position
            )
        now = _configuration(backbone)
        if now != self._configuration:
            raise _refusal(Code.PREPARED_CONFIGURATION, "backbone", self._configuration, now)
        if not self.provenance:
            raise _refusal(Code.PREPARED_PROVENANCE, "provenance", "a text", self.provenance)
        _check_binding(self._embedding, self.embeddings, Code.PREPARED_EMBEDDING, "embeddings")
        if not self.context.recording and self.embeddings.tracked:
            raise _refusal(Code.PREPARED_RECORDING, "embeddings", "untracked", "tracked")
        self._check_backbone(backbone)
        for binding in self._producers:
            _check_binding(binding, binding.node, Code.PREPARED_PRODUCER, _name(binding.node))

    def _check_backbone(self, backbone: DecoderBackbone) -> None:
        parameters = backbone.parameters
        if len(parameters) != len(self._backbone_bindings):
            raise _refusal(
                Code.PREPARED_PARAMETER,
                "parameters",
                len(self._backbone_bindings),
                len(parameters),
            )
        for binding, parameter in zip(self._backbone_bindings, parameters, strict=True):
            _check_binding(binding, parameter, Code.PREPARED_PARAMETER, parameter.name)


def _check_types(
    context: object,
    embeddings: object,
    layout: object,
    provenance: object,
    producers: Sequence[Parameter],
) -> None:
    """Refuses: record/field-type"""
    wanted: dict[str, tuple[object, type]] = {
        "context": (context, Context),
        "embeddings": (embeddings, Tensor),
        "layout": (layout, SequenceLayout),
        "provenance": (provenance, str),
    }
    for name, (given, kind) in wanted.items():
        check_kind(given, kind, f"prepared input {name}")
    check_kind(producers, (tuple, list), "prepared input producer_parameters")
    for index, parameter in enumerate(producers):
        check_kind(parameter, Parameter, f"prepared input producer_parameters[{index}]")


def _check_backbone_kind(backbone: object) -> None:
    """Told by what it is made of: the type's module imports this one.

    Refuses: record/field-type
    """
    if not all(hasattr(backbone, name) for name in ("config", "blocks", "final_norm")):
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what="backbone",
            expected="a DecoderBackbone",
            actual=type(backbone).__name__,
        )


def _configuration(backbone: DecoderBackbone) -> tuple[object, ...]:
    """Block configuration by bits, layer count and execution identity (None is absent)."""
    return (backbone.config.key(), len(backbone.blocks), backbone.identity)


def _check_binding(binding: Binding, node: Tensor, code: Code, what: str) -> None:
    if not binding.node_matches(node):
        raise _refusal(code, what, "the bound node", "another node")
    if not binding.revision_matches(node):
        raise _refusal(code, what, f"revision {binding.revision}", f"revision {node.revision}")


def _name(node: Tensor) -> str:
    return node.name if isinstance(node, Parameter) else node.op


def _refusal(code: Code, what: str, expected: object, actual: object) -> BindingRefusal:
    return BindingRefusal(code=code, what=what, expected=expected, actual=actual)
