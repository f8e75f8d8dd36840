"""Faults of single arguments: sizes, epsilons, bases, heads, shapes of operands."""

from __future__ import annotations

from logitproof.core import constant
from logitproof.core.codes import Code

from .boundary import Apart, Fault, Plant, Situation, fault
from .making import ramp

__all__ = [
    "TYPE_AND_RANGE",
    "base_faults",
    "epsilon_faults",
    "head_apart",
    "head_faults",
    "kind_fault",
    "one",
    "one_base",
    "one_epsilon",
    "rank",
    "size",
    "size_faults",
    "tensors",
]

INF = float("inf")
TYPE_AND_RANGE = (Code.FIELD_TYPE, Code.FIELD_RANGE)


def size_faults(name: str) -> tuple[Fault, ...]:
    """A size that is no integer, and a negative one."""
    return (
        fault(Code.FIELD_TYPE, f"{name} as float", lambda s: s.set(**{name: 2.0}), actual="2.0"),
        fault(Code.FIELD_RANGE, f"{name} of -1", lambda s: s.set(**{name: -1}), actual=-1),
    )


def kind_fault(name: str, given: object, **facts: object) -> Fault:
    """An argument of a kind that is not taken, given in place of the finished one."""
    kind = type(given).__name__

    def plant(s: Situation) -> object:
        return s.afterwards(lambda ready: ready.set(**{name: given}))

    return fault(Code.FIELD_TYPE, f"{kind} as {name}", plant, actual=kind, **facts)


def one(name: str, *others: str) -> Apart:
    """Only one value of an argument is given."""
    return Apart(f"one {name} is given", {f"{name} as float", f"{name} of -1", *others})


def epsilon_faults(code: Code, name: str = "epsilon") -> tuple[Fault, ...]:
    """Epsilons that are none."""
    given = {"negative": -1e-300, "infinite": INF, "text": "1e-6", "bool": True, "huge": 10**400}
    return tuple(
        fault(code, f"{kind} {name}", lambda s, value=value: s.set(**{name: value}))  # type: ignore[misc]
        for kind, value in given.items()
    )


def one_epsilon(name: str = "epsilon") -> Apart:
    """Only one epsilon is given."""
    return Apart("one epsilon", {f.name for f in epsilon_faults(Code.INVALID_EPSILON, name)})


def tensors(*names: str) -> Plant:
    """Make constants of the arrays of these names."""

    def ready(s: Situation) -> None:
        s.set(operands=[constant(ramp(*getattr(s, name))) for name in names])

    return ready


def size(name: str, axis: int, size: int) -> Plant:
    """Replace one size of a shape."""

    def plant(s: Situation) -> None:
        shape = [*getattr(s, name)]
        shape[axis] = size
        s.set(**{name: shape})

    return plant


def rank(name: str, rank: int) -> Plant:
    """Replace a shape by one of another rank."""
    return lambda s: s.set(**{name: [1] * rank})


def base_faults(code: Code, name: str = "base") -> tuple[Fault, ...]:
    """Bases that are none: 0 and below, and what is no finite number."""
    zero = fault(code, f"{name} of 0", lambda s: s.set(**{name: 0.0}), value=0.0)
    return (zero, *epsilon_faults(code, name))


def one_base(name: str = "base") -> Apart:
    """Only one base is given."""
    return Apart("one base", {f.name for f in base_faults(Code.INVALID_BASE, name)})


def head_faults(D: str, heads: str) -> tuple[Fault, ...]:
    """The four rules of model width and head count, over situations of width 4 and 2 heads."""
    return (
        fault(Code.ZERO_MODEL_WIDTH, f"{D} of 0", lambda s: s.set(**{D: 0})),
        fault(Code.ZERO_HEAD_COUNT, f"{heads} of 0", lambda s: s.set(**{heads: 0})),
        fault(
            Code.MODEL_WIDTH_NOT_DIVISIBLE,
            f"{heads} of 3",
            lambda s: s.set(**{heads: 3}),
            model_width=4,
            heads=3,
        ),
        fault(Code.ODD_HEAD_WIDTH, f"{heads} of 4", lambda s: s.set(**{heads: 4}), head_width=1),
    )


def head_apart(D: str, heads: str) -> tuple[Apart, ...]:
    """Only one width and one head count are given; width 0 is divisible."""
    return (
        one(D, f"{D} of 0"),
        one(heads, f"{heads} of 0", f"{heads} of 3", f"{heads} of 4"),
    )
