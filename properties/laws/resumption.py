"""A law over the residual stream: a forward taken up again at any of its states is the same one."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .cases import PAD, Case, mixed_cases
from .difference import Difference, doubles, first_difference, first_named_difference
from .drawn import answered, equal, first
from .law import Law
from .protocol import Capable

__all__ = ["LAWS"]

TABLE = "token_embedding.weight"
SECOND_HALF = "ffn_norm.gain"  # the first parameter that a block reads after its attention


def _behind(names: list[str], site: int) -> list[str]:
    """The parameters that a forward from a site reads, the table aside; in their order."""
    block, after_attention = divmod(site, 2)
    first_read = SECOND_HALF if after_attention else "attention_norm.gain"
    start = f"blocks.{block}.{first_read}"
    return names[names.index(start) :] if start in names else names[-1:]


def _scattered(case: Case, rows: Any) -> Any:
    """Row v: the rows of the cells that hold id v, added in the order of the cells."""
    sums = np.zeros((case.config.vocabulary_size, case.config.model_width))
    for token, row in zip(np.ravel(case.ids), rows.reshape(-1, rows.shape[-1]), strict=True):
        if token != PAD:
            sums[token] = sums[token] + row
    return sums


def _resumption(implementation: Capable, case: Case) -> Difference | None:
    implementation.load(case.config, case.weights)
    names, batch = list(case.weights), (case.targets, case.layout, case.valid)
    loss, whole = implementation.loss_and_gradients(case.ids, *batch)
    states = implementation.residual_states(case.ids, case.layout)

    def steps() -> Iterator[Difference | None]:
        yield equal("residual states", 2 * case.config.layers + 1, len(states))
        last = len(states) - 1
        hidden = implementation.resumed_at(last, states[last], *batch)[0]
        for site, state in enumerate(states):
            again, mean, gradients = implementation.resumed_at(site, state, *batch)
            yield first_difference(f"hidden states from state {site}", hidden, again)
            yield first_difference(f"mean loss from state {site}", loss, mean)
            read = _behind(names, site)
            yield first_named_difference(
                f"from state {site}, gradient",
                {n: whole[n] if n in read else 0.0 * abs(doubles(whole[n])) for n in names[1:]},
                {n: gradients[n] for n in names[1:]},
            )
            if site == 0:
                total = doubles(gradients[TABLE]) + _scattered(case, doubles(gradients["state"]))
                yield first_difference("table gradient by way of state 0", whole[TABLE], total)

    return first(steps())


LAWS = (
    Law(
        id="decoder.resumption",
        statement="A forward taken up again at any state of its residual stream has the same hidden"
        " states, mean loss and gradients of what it still reads, bit for bit.",
        source="inputs.md section 4, numerics_vjp.md section 1",
        needs=("resumption",),
        faults=(
            "resumed-without-feed-forward",
            "resumed-as-ordinary-text",
            "resumed-from-a-copy",
            "state-before-attention",
            "last-state-a-block-early",
        ),
        cases=mixed_cases,
        check=answered(_resumption),
    ),
)
