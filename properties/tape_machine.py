"""The tape as a state machine: any sequence of calls against a scalar model of itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logitproof.core import NO_GRAD, RECORDING, Parameter, Refusal, Tensor, constant, ops
from logitproof.core.codes import Code

__all__ = ["TapeMachine"]

MOST_NODES = 14
EXACT = 2**50  # integers up to here are exact, and so are sums of a few
small = st.integers(-3, 3)
usually = st.sampled_from((True, True, True, False))
which = st.integers(0, MOST_NODES - 1)
recent = st.one_of(st.integers(-3, -1), which)  # a negative index counts from the newest
Kind: TypeAlias = Literal["node", "parameter", "operation"]


@dataclass(eq=False)
class Node:
    """What the model knows of one node: integers, and edges of its own.

    read: the parents' revisions when they were read
    """

    value: int
    op: str = "leaf"
    tracked: bool = False
    is_parameter: bool = False
    parents: tuple[Node, ...] = ()
    operands: tuple[int, ...] = ()
    read: tuple[int, ...] = ()
    released: bool = False
    revision: int = 0
    gradient: int = 0
    readers: int = 0
    gradient_readers: int = 0

    def reached(self) -> list[Node]:
        """The node and everything behind it, each once."""
        found: list[Node] = []
        waiting = [self]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.append(node)
                waiting.extend(node.parents)
        return found

    def slope(self, leaf: Node, *, absolute: bool = False) -> int:
        """Forward mode: the sum over all paths of the products along them."""
        if self is leaf:
            return 1
        inner = [parent.slope(leaf, absolute=absolute) for parent in self.parents]
        if self.op == "add":
            return sum(inner)
        factors = self.operands[::-1]  # of a product, the other operand
        if absolute:
            factors = tuple(map(abs, factors))
        return sum(f * s for f, s in zip(factors, inner, strict=False))

    def is_stale(self) -> bool:
        """True where something behind was assigned after it was read."""
        return any(
            revision != parent.revision
            for node in self.reached()
            for revision, parent in zip(node.read, node.parents, strict=True)
        )


@dataclass(eq=False)
class Reader:
    """An open reader of a parameter's value, or of its gradient."""

    of: Node
    gradient: bool
    stack: ExitStack = field(default_factory=ExitStack)


class TapeMachine(RuleBasedStateMachine):
    """Leaves, operations, passes, readers and assignments; every refusal in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[tuple[Tensor, Node]] = []
        self.open: list[Reader] = []

    @initialize(first=small, second=small)
    def begin(self, first: int, second: int) -> None:
        """Two parameters."""
        for value in (first, second):
            self.parameter(value)

    def chosen(self, index: int, kind: Kind = "node") -> tuple[Tensor, Node]:
        """One of the nodes, or of the parameters or operations where there are any."""
        of_kind = {
            "node": self.nodes,
            "parameter": [pair for pair in self.nodes if pair[1].is_parameter],
            "operation": [pair for pair in self.nodes if pair[1].parents or pair[1].released],
        }
        some = of_kind[kind] or self.nodes
        return some[index % len(some)]

    def is_done(self, call: Callable[[], object], *rules: tuple[bool, Code]) -> bool:
        """True where no rule is broken; False after the refusal that comes first."""
        expected = next((code for broken, code in rules if broken), None)
        found = None
        try:
            call()
        except Refusal as refusal:
            found = refusal.code
        assert found == expected, f"{found} where {expected} was expected"
        return found is None

    @precondition(lambda self: len(self.nodes) < 3)
    @rule(value=small)
    def parameter(self, value: int) -> None:
        """A parameter."""
        leaf = Parameter(f"p{len(self.nodes)}", float(value))
        self.nodes.append((leaf, Node(value, tracked=True, is_parameter=True)))

    @precondition(lambda self: len(self.nodes) < 5)
    @rule(value=small)
    def leaf(self, value: int) -> None:
        """A constant."""
        self.nodes.append((constant(float(value)), Node(value)))

    @precondition(lambda self: len(self.nodes) < MOST_NODES)
    @rule(index=which)
    def detach(self, index: int) -> None:
        """A constant with a node's value, released or not."""
        tensor, node = self.chosen(index)
        self.nodes.append((tensor.detach(), Node(node.value)))

    @precondition(lambda self: len(self.nodes) < MOST_NODES)
    @rule(op=st.sampled_from(("add", "mul")), left=recent, right=recent, records=usually)
    def apply(self, op: str, left: int, right: int, records: bool) -> None:
        """An operation, on one node twice now and then, recording or not."""
        (a, first), (b, second) = self.chosen(left), self.chosen(right)
        value = first.value + second.value if op == "add" else first.value * second.value
        if abs(value) > 2**20:
            return
        context = RECORDING if records else NO_GRAD
        released = any(node.released for x in (first, second) for node in x.reached())
        made: list[Tensor] = []
        if not self.is_done(
            lambda: made.append(context.apply(getattr(ops, op), a, b)),
            (released, Code.RELEASED_OPERAND),
        ):
            return
        node = Node(value, op=op)  # without edges, yet no leaf: a release takes it too
        if records:
            node = Node(
                value,
                op=op,
                tracked=first.tracked or second.tracked,
                parents=(first, second),
                operands=(first.value, second.value),
                read=(first.revision, second.revision),
            )
        self.nodes.append((made[0], node))

    @precondition(lambda self: len(self.nodes) < MOST_NODES - 1)
    @rule(index=recent, other=recent, seed=small)
    def diamond(self, index: int, other: int, seed: int) -> None:
        """A pass over a node that its own user stands beside: it must wait for the longer way."""
        shared = self.nodes.index(self.chosen(index, "operation"))
        self.apply("mul", shared, other, records=True)
        self.apply("add", shared, -1, records=True)
        self.backward("node", -1, seed, retain=True)

    @rule(
        kind=st.sampled_from(("operation", "operation", "operation", "node")),
        index=recent,
        seed=small,
        retain=usually,
    )
    def backward(self, kind: Kind, index: int, seed: int, retain: bool) -> None:
        """A pass: all gradients behind the node, or the refusal that comes first and none."""
        tensor, output = self.chosen(index, kind)
        behind = output.reached()
        leaves = [node for node in behind if node.is_parameter]
        largest = max((output.slope(leaf, absolute=True) for leaf in leaves), default=0)
        if largest * 3 + max((abs(leaf.gradient) for leaf in leaves), default=0) > EXACT:
            return
        done = self.is_done(
            lambda: tensor.backward(float(seed), retain=retain),
            (output.released, Code.GRAPH_RELEASED),
            (not output.tracked, Code.UNTRACKED_OUTPUT),
            (any(node.released for node in behind), Code.GRAPH_RELEASED),
            (output.is_stale(), Code.STALE_OPERAND_VALUE),
            (any(leaf.gradient_readers for leaf in leaves), Code.GRADIENT_BORROWED),
        )
        if not done:
            return
        for leaf in leaves:
            leaf.gradient += seed * output.slope(leaf)
        for node in () if retain else behind:
            if node.op != "leaf":
                node.parents, node.operands, node.read, node.released = (), (), (), True

    @rule(index=which, value=small)
    def assign(self, index: int, value: int) -> None:
        """Another value, or the same one again; refused while it is read."""
        tensor, node = self.chosen(index, "parameter")
        assert isinstance(tensor, Parameter)
        if self.is_done(
            lambda: tensor.assign(float(value)), (node.readers > 0, Code.VALUE_BORROWED)
        ):
            node.value, node.revision = value, node.revision + 1

    @rule(index=which)
    def zero(self, index: int) -> None:
        """A gradient set to +0; only parameters have one."""
        tensor, node = self.chosen(index)
        done = self.is_done(
            tensor.zero_gradient,
            (not node.is_parameter, Code.NOT_A_PARAMETER),
            (node.gradient_readers > 0, Code.GRADIENT_BORROWED),
        )
        if done:
            node.gradient = 0

    @precondition(lambda self: len(self.open) < 3)
    @rule(index=which, gradient=st.booleans())
    def read(self, index: int, gradient: bool) -> None:
        """A reader that stays open."""
        tensor, node = self.chosen(index, "parameter")
        assert isinstance(tensor, Parameter)
        reader = Reader(node, gradient)
        if gradient:
            shown = reader.stack.enter_context(tensor.reading_gradient())
            assert float(shown) == node.gradient
            node.gradient_readers += 1
        else:
            reader.stack.enter_context(tensor.reading())
            node.readers += 1
        self.open.append(reader)

    @precondition(lambda self: self.open)
    @rule(index=which)
    def close(self, index: int) -> None:
        """The end of one of the readers."""
        reader = self.open.pop(index % len(self.open))
        reader.stack.close()
        if reader.gradient:
            reader.of.gradient_readers -= 1
        else:
            reader.of.readers -= 1

    @invariant()
    def agrees(self) -> None:
        """Values, revisions, gradients and tracking are the model's."""
        for tensor, node in self.nodes:
            assert float(tensor.value) == node.value
            assert (tensor.tracked, tensor.revision) == (node.tracked, node.revision)
            if isinstance(tensor, Parameter):
                assert float(tensor.gradient) == node.gradient

    def teardown(self) -> None:
        """No reader outlives its machine."""
        for reader in self.open:
            reader.stack.close()
