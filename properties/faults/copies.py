"""Faults of copies and pickles: what a copied node, table or decoder leaves behind."""

from __future__ import annotations

from functools import partial
from typing import Any

from logitproof.core import Decoder, Parameter, TextOutputHead, tape
from logitproof.core.rope import RotaryTable

from .fault import Fault, planted

__all__ = ["FAULTS"]

_FOUND: dict[str, Fault] = {}
mistake = partial(planted, _FOUND, kind="mistake", source="the docstrings of __reduce__")


@mistake((tape, "_restored"))
def copied_parameter_without_gradient(_: Any) -> Any:
    """A copied parameter starts from a gradient of zeros."""
    return lambda name, value, gradient: Parameter(name, value)


@mistake((Decoder, "__reduce__"))
def copied_decoder_with_one_gradient(right: Any) -> Any:
    """A copied decoder keeps the gradient of its table alone."""

    def reduce(self: Decoder) -> tuple[Any, ...]:
        make, (config, (table, *others)) = right(self)
        return make, (config, [table, *(Parameter(p.name, p.value) for p in others)])

    return reduce


@mistake((Decoder, "__reduce__"))
def copied_decoder_of_the_usual_kernel(right: Any) -> Any:
    """A copied decoder computes by the kernel that decoders have unless they are told."""
    return lambda self: (Decoder.from_parameters, right(self)[1])


@mistake((Decoder, "__reduce__"))
def copied_decoder_untied(right: Any) -> Any:
    """The head of a copied decoder has a table of its own."""

    def reduce(self: Decoder) -> tuple[Any, ...]:
        make, given = right(self)

        def untied(*parts: Any) -> Decoder:
            decoder: Decoder = make(*parts)
            own = Parameter(decoder.table.name, decoder.table.value)
            decoder.head = TextOutputHead(own, kernel=decoder.kernel)
            return decoder

        return untied, given

    return reduce


@mistake((RotaryTable, "copy"))
def copied_table_of_a_whole_base(right: Any) -> Any:
    """A copied rotary table is called by an integer, whatever its base was."""

    def copy(self: RotaryTable) -> RotaryTable:
        twin: RotaryTable = right(self)
        twin.base = float(int(twin.base))
        return twin

    return copy


FAULTS = tuple(_FOUND.values())
