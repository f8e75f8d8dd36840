"""Laws over two forms of one decoder: fused operations, and the steps that define them.

Everything is compared: bits, and where a call is refused, every fact of the refusal.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from logitproof.properties.scalar import Generator

from .cases import Case, full_cases, mixed_cases
from .cases import redrawn as other_case
from .difference import Difference, doubles, first_difference
from .drawn import equal, first
from .law import Law
from .protocol import Capable
from .regimes import truth_cases

__all__ = ["LAWS", "Steep", "redrawn"]

NEEDS = ("specified-bits", "forms")
# Powers of two that a parameter is multiplied by: what it makes, its square or its product with
# itself then overflows, or comes near it.
EXPONENTS = (300, 508, 510, 511, 512, 513, 540, 700, 1000)
# Where scores of some queries and keys overflow and those of others do not, in hot attention.
QUERY_AND_KEY = tuple(f"blocks.0.attention.{role}.weight" for role in ("query", "key"))
SOME_SCORES = 509
# A few values are looked at one by one, more than these at once.
MANY_CELLS = 24
# Powers of two that a reverse pass starts from: at the last some sums overflow, others do not.
SEEDS = (500, 1000, 1020, 1022)


@dataclass(frozen=True, kw_only=True)
class Steep(Case):
    """A case in which some parameters are multiplied by a power of two."""

    names: tuple[str, ...]
    exponent: int

    @cached_property
    def weights(self) -> dict[str, Any]:
        """Those of the plain case but for some."""
        plain = dict(Case.weights.func(self))  # type: ignore[attr-defined]
        steep = {name: doubles(plain[name]) * 2.0**self.exponent for name in self.names}
        return plain | steep

    def __str__(self) -> str:
        return f"{' and '.join(self.names)} times 2**{self.exponent}; {Case.__str__(self)}"


def _steep_cases(count: int) -> Iterator[Steep]:
    for i, case in enumerate(mixed_cases(count)):
        yield _steep(case, 9000 + i, scores=i % 4 == 0, many=i % 6 == 3)


def _steep(case: Case, seed: int, *, scores: bool, many: bool) -> Steep:
    """The case with a parameter, or the scores, made steep; its rows many times where asked for."""
    generator = Generator(seed)
    shapes = case.config.parameter_shapes()
    names: tuple[str, ...] = (list(shapes)[generator.below(len(shapes))],)
    exponent = EXPONENTS[generator.below(len(EXPONENTS))]
    if scores and case.config.layers:
        names, exponent = QUERY_AND_KEY, SOME_SCORES
    facts = {name: getattr(case, name) for name in Case.__dataclass_fields__}
    if many and case.layout is None:
        times = MANY_CELLS // (len(case.ids) * len(case.ids[0])) + 1
        facts |= {"ids": [*case.ids] * times, "targets": [*case.targets] * times}
    return Steep(**facts, names=names, exponent=exponent)


def redrawn(case: Steep, seed: int) -> Steep:
    """Another steep case with as many steep parameters, many rows where it has many."""
    many = len(case.ids) * len(case.ids[0]) > MANY_CELLS
    scores = len(case.names) > 1
    return _steep(other_case(case, seed), seed, scores=scores, many=many)


def _cases(count: int) -> Iterator[Case]:
    """Tame batches of all layouts, and the regimes in which fixtures are too tame."""
    tame, wild = mixed_cases(count), truth_cases(count)
    for i in range(count):
        yield next(wild if i % 2 else tame)


def _answer(call: Callable[[], Any]) -> list[tuple[str, Any]]:
    """What a call gives, part by part, or every fact of its refusal in words."""
    try:
        given = call()
    except ValueError as refusal:
        return [("refusal", repr(refusal))]
    parts = given if isinstance(given, dict) else {"result": given}
    return [("count of parts", str(len(parts))), *parts.items()]


def _alike(
    what: str, forms: tuple[Capable, Capable], call: Callable[[Capable], Any]
) -> Difference | None:
    steps, fused = (_answer(partial(call, form)) for form in forms)
    return first(
        _part(f"{name} of {what}, fused against its steps", expected, actual)
        if name == other
        else Difference(what=f"{what}, fused against its steps", expected=name, actual=other)
        for (name, expected), (other, actual) in zip(steps, fused, strict=False)
    )


def _part(what: str, expected: Any, actual: Any) -> Difference | None:
    if isinstance(expected, str | bytes) or isinstance(actual, str | bytes):
        return equal(what, expected, actual)
    return first_difference(what, expected, actual)


def _forms(implementation: Capable, case: Case) -> tuple[Capable, Capable]:
    implementation.load(case.config, case.weights)
    return implementation.in_steps(), implementation


def _forward(implementation: Capable, case: Case) -> Difference | None:
    forms = _forms(implementation, case)
    batch = (case.ids, case.targets, case.layout, case.valid)
    return _alike("the logits", forms, lambda form: form.logits(case.ids, case.layout)) or _alike(
        "the raw sum", forms, lambda form: form.loss_sum(*batch)
    )


def _gradients(implementation: Capable, case: Case) -> Difference | None:
    forms = _forms(implementation, case)
    batch = (case.ids, case.targets, case.layout, case.valid)

    def one(form: Capable) -> dict[str, Any]:
        loss, gradients = form.loss_and_gradients(*batch)
        return {"the loss": loss, **gradients}

    return _alike("a pass", forms, one)


def _passes(implementation: Capable, case: Case) -> Difference | None:
    """Two passes over one graph, the second near or beyond the edge."""
    if case.layout is not None:
        return None
    forms = _forms(implementation, case)

    def one(seed: float) -> Iterator[Difference | None]:
        def call(form: Capable) -> Any:
            return form.backward_passes(case.ids, case.targets, [1.0, seed])

        yield _alike(f"passes of 1 and {seed:g}", forms, call)
        yield _alike("the state", forms, lambda form: dict(form.snapshot()))

    return first(d for power in SEEDS for d in one(2.0**power))


def _refusals(implementation: Capable, case: Case) -> Difference | None:
    return _forward(implementation, case) or _gradients(implementation, case)


def _traces(implementation: Capable, case: Case) -> Difference | None:
    forms = _forms(implementation, case)
    batch = (case.ids, case.targets, case.layout, case.valid)

    def one(form: Capable) -> dict[str, str]:
        return {f"line {i}": line for i, line in enumerate(form.traced(*batch))}

    return _alike("a traced pass", forms, one)


# What a batch with a layout adds: the rows of the answered cells, and their choice.
CHOICE_NODES = 2


def _taken(implementation: Capable, case: Case) -> Difference | None:
    """Against one full row of the same decoder; a block taken by its steps has dozens of nodes."""
    implementation.load(case.config, case.weights)
    row = [[0] * min(2, case.config.max_positions)]
    least = implementation.graph_nodes(row, row, None, None)
    most = least + CHOICE_NODES
    nodes = implementation.graph_nodes(case.ids, case.targets, case.layout, case.valid)
    if least <= nodes <= most:
        return None
    return Difference(what="nodes of a graph", expected=f"{least} to {most}", actual=str(nodes))


LAWS = (
    Law(
        id="fused.forward",
        statement="Fused operations give the logits and the raw sum of their steps, bit for bit.",
        source="numerics.md sections 9 to 13",
        needs=NEEDS,
        faults=(
            "fused-gain-before-root",
            "fused-range-starts-forgotten",
        ),
        cases=_cases,
        check=_forward,
    ),
    Law(
        id="fused.gradients",
        statement="Fused operations give the loss and every gradient of their steps, bit for bit: "
        "contributions arrive in the order in which the steps are visited.",
        source="numerics_vjp.md sections 2, 3 and 5",
        needs=NEEDS,
        faults=(
            "fused-norm-squares-first",
            "fused-square-doubled",
            "fused-square-dropped",
            "fused-query-key-value-order",
            "fused-gate-and-up-in-one-sum",
            "fused-residual-last",
            "fused-flat-weight-gradient",
        ),
        cases=_cases,
        check=_gradients,
    ),
    Law(
        id="fused.passes",
        statement="Several passes over one fused graph leave what they leave over its steps, "
        "where one is refused too.",
        source="numerics_vjp.md section 1, tape.md section 5",
        needs=(*NEEDS, "repeated-backward", "refusals"),
        faults=("fused-adjoint-guards-removed",),
        cases=full_cases,
        check=_passes,
    ),
    Law(
        id="fused.refusals",
        statement="What a step refuses, the fused operation refuses with the step's name, place, "
        "index, value and stage; a guard that is unsure changes nothing.",
        source="tape.md section 4",
        needs=NEEDS,
        faults=(
            "fused-mean-guard-removed",
            "fused-score-guard-removed",
            "fused-refusal-named-by-its-end",
            "guard-of-one-side-for-many",
        ),
        cases=_steep_cases,
        check=_refusals,
    ),
    Law(
        id="fused.traces",
        statement="A traced pass over fused operations shows every step with its evidence, and "
        "their results carry the names of their last steps.",
        source="tape.md section 5",
        needs=NEEDS,
        faults=("fused-trace-folded", "fused-node-named-anew"),
        cases=mixed_cases,
        check=_traces,
    ),
    Law(
        id="fused.taken",
        statement="A tame batch goes by the same operations whatever its layout: none of them is"
        " replaced by its steps, which would be slower and, by a kernel that promises no bits,"
        " another rounding.",
        source="notes/speed.md section 2",
        needs=("graph-nodes",),
        faults=("fused-attention-lost-for-layouts",),
        cases=mixed_cases,
        check=_taken,
    ),
)
