"""The checked hand-over: vectors, layout and live bindings for the decoder backbone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

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
        "_backbone",
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
        self._configuration = _configuration(backbone)
        self._embedding = _Bound((embeddings,))
        parameters = backbone.parameters
        self._backbone = _Bound(parameters)
        self._producers = _Bound(tuple(producer_parameters))
        self._validate(backbone, parameters)

    @property
    def producer_parameters(self) -> tuple[Tensor, ...]:
        """The live parameters that the encoder declared."""
        return self._producers.nodes

    @contextmanager
    def reading(self, backbone: DecoderBackbone) -> Iterator[None]:
        """Everything the run reads, guarded against assignment; then all checks once more."""
        parameters = backbone.parameters
        nodes = [*parameters, *self._producers.nodes, self.embeddings]
        with reading_all(cast("list[Parameter]", [n for n in nodes if n.is_parameter])):
            self._validate(backbone, parameters)
            yield

    def validate(self, backbone: DecoderBackbone) -> None:
        """Check that the hand-over still holds for this backbone; changes nothing.

        Refuses: record/field-type, then `PREPARED_ORDER`
        """
        _check_backbone_kind(backbone)
        self._validate(backbone, backbone.parameters)

    def _validate(self, backbone: DecoderBackbone, parameters: tuple[Parameter, ...]) -> None:
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
        position = self.layout.last_position
        if position >= config.max_positions:
            raise _refusal(
                Code.PREPARED_POSITION_CAPACITY, "layout.positions", config.max_positions, position
            )
        self._check_configuration(backbone)
        if not self.provenance:
            raise _refusal(Code.PREPARED_PROVENANCE, "provenance", "a text", self.provenance)
        self._embedding.check((self.embeddings,), Code.PREPARED_EMBEDDING, lambda _: "embeddings")
        if not self.context.recording and self.embeddings.tracked:
            raise _refusal(Code.PREPARED_RECORDING, "embeddings", "untracked", "tracked")
        if len(parameters) != len(self._backbone.nodes):
            raise _refusal(
                Code.PREPARED_PARAMETER,
                "parameters",
                len(self._backbone.nodes),
                len(parameters),
            )
        self._backbone.check(parameters, Code.PREPARED_PARAMETER, _name)
        self._producers.check(self._producers.nodes, Code.PREPARED_PRODUCER, _name)

    def _check_configuration(self, backbone: DecoderBackbone) -> None:
        now = _configuration(backbone)
        if now[1:] == self._configuration[1:] and now[0] is self._configuration[0]:
            return  # one frozen configuration has one set of bits
        before, after = _by_bits(self._configuration), _by_bits(now)
        if before != after:
            raise _refusal(Code.PREPARED_CONFIGURATION, "backbone", before, after)


class _Bound:
    """Nodes and their revisions at one moment: a `Binding` of each, compared all at once."""

    __slots__ = ("nodes", "revisions")

    def __init__(self, nodes: tuple[Tensor, ...]) -> None:
        self.nodes = nodes
        self.revisions = [node._revision for node in nodes]

    def check(self, nodes: tuple[Tensor, ...], code: Code, name: Callable[[Tensor], str]) -> None:
        """Refuses: `code` of the first node that is another one or has another revision"""
        if nodes == self.nodes and [node._revision for node in nodes] == self.revisions:
            return  # nodes are equal only to themselves
        now = [(node, node._revision) for node in nodes]
        pairs = zip(self.nodes, self.revisions, strict=True)
        at = [one != other for one, other in zip(pairs, now, strict=True)].index(True)
        binding = Binding(self.nodes[at], self.revisions[at])
        raise _unbound(binding, nodes[at], code, name(nodes[at]))


def _check_types(
    context: object,
    embeddings: object,
    layout: object,
    provenance: object,
    producers: Sequence[Parameter],
) -> None:
    """Refuses: record/field-type"""
    check_kind(context, Context, "prepared input context")
    check_kind(embeddings, Tensor, "prepared input embeddings")
    check_kind(layout, SequenceLayout, "prepared input layout")
    check_kind(provenance, str, "prepared input provenance")
    check_kind(producers, (tuple, list), "prepared input producer_parameters")
    for index, parameter in enumerate(producers):
        check_kind(parameter, Parameter, f"prepared input producer_parameters[{index}]")


def _check_backbone_kind(backbone: object) -> None:
    """Told by what it is made of: the type's module imports this one.

    Refuses: record/field-type
    """
    made_of = (
        hasattr(backbone, "config"),
        hasattr(backbone, "blocks"),
        hasattr(backbone, "final_norm"),
    )
    if False in made_of:
        raise RecordRefusal(
            code=Code.FIELD_TYPE,
            what="backbone",
            expected="a DecoderBackbone",
            actual=type(backbone).__name__,
        )


def _configuration(backbone: DecoderBackbone) -> tuple[Any, ...]:
    """Block configuration, layer count and execution identity (None is absent)."""
    return (backbone.config, len(backbone.blocks), backbone.identity)


def _by_bits(configuration: tuple[Any, ...]) -> tuple[object, ...]:
    return (configuration[0].key(), *configuration[1:])


def _unbound(binding: Binding, node: Tensor, code: Code, what: str) -> BindingRefusal:
    """The refusal of a node that is not the bound one, or not at its revision."""
    if not binding.node_matches(node):
        return _refusal(code, what, "the bound node", "another node")
    return _refusal(code, what, f"revision {binding.revision}", f"revision {node.revision}")


def _name(node: Tensor) -> str:
    return node.name if isinstance(node, Parameter) else node.op


def _refusal(code: Code, what: str, expected: object, actual: object) -> BindingRefusal:
    return BindingRefusal(code=code, what=what, expected=expected, actual=actual)
