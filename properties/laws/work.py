"""Laws over work: what is right by the long way round is not right enough to be used.

Counted, never timed: the figures are the same on every machine.
"""

from collections.abc import Callable, Sequence

import numpy as np

from .cases import Case, full_cases
from .components import Components
from .difference import Difference
from .drawn import Draw, draws, equal, first
from .law import Law

__all__ = ["LAWS"]

ARGUMENTS = 100  # of each function, alone and in an array
SEVERAL = 4  # tokens: one by one they take four times the calls of one, together hardly more
SETTLED = 4  # of these at most: one in some thousands lies so near to a middle
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": lambda x: 40.0 * x - 20.0,
    "log": lambda x: 8.0 * x + 0.1,
    "log1p": lambda x: 5.0 * x,
}


def _few_digits(implementation: Components, draw: Draw) -> Difference | None:
    g, parts = draw.generator(), implementation.parts

    def one(name: str, place: Callable[[float], float]) -> Difference | None:
        call = getattr(parts.floats, name)
        values = [place(g.unit()) for _ in range(ARGUMENTS)]
        alone = implementation.counted(lambda: [call(np.array(x)) for x in values])["settled"]
        together = implementation.counted(lambda: call(np.array(values)))["settled"]
        return equal(
            f"{name} of {ARGUMENTS} ordinary numbers, settled by many digits {alone} and {together}"
            f" times: more than {SETTLED}",
            (False, False),
            (alone > SETTLED, together > SETTLED),
        )

    return first(one(*function) for function in FUNCTIONS.items())


def _fused_nodes(implementation: Components, case: Case) -> Difference | None:
    implementation.load(case.config, case.weights)
    counted = implementation.counted(lambda: implementation.loss_of(case.ids, case.targets))
    return equal("operations of a loss", case.config.layers + 4, counted["operations"])


def _plain_tokens(implementation: Components, case: Case) -> Difference | None:
    implementation.load(case.config, case.weights)
    ids = [*case.ids[0], *[0] * case.config.max_positions][: case.config.max_positions]
    with implementation.session() as session:
        prompt = implementation.counted(lambda: session.prefill(ids[:2]))
        tokens = implementation.counted(lambda: [session.decode(i) for i in ids[2:]])
    return equal("operations of a prompt and its tokens", (0, 0),
                 (prompt["operations"], tokens["operations"])) or (
        _plain_chunk(implementation, ids) if len(ids) >= SEVERAL + 2 else None
    )  # fmt: skip


def _plain_chunk(implementation: Components, ids: Sequence[int]) -> Difference | None:
    """All but the first and the last token at once take hardly more calls than the last alone."""
    with implementation.session() as session:
        session.prefill(ids[:1])
        chunk = implementation.counted(lambda: session.extend(ids[1:-1]))
        token = implementation.counted(lambda: session.decode(ids[-1]))
    return equal("operations of a chunk", 0, chunk["operations"]) or equal(
        f"{len(ids) - 2} tokens computed one by one, by {chunk['sums']} calls",
        False,
        chunk["sums"] > 2 * token["sums"],
    )


LAWS = (
    Law(
        id="work.few-digits",
        statement="Ordinary arguments of exp, log and log1p are decided without many digits, alone"
        " and in an array.",
        source="notes/speed.md section 5",
        needs=("functions", "counted-work"),
        faults=("every-rounding-undecided",),
        cases=draws("uniform", first_seed=99_000),
        check=_few_digits,
    ),
    Law(
        id="work.fused-nodes",
        statement="A loss over ordinary text takes one operation for the lookup, each block, the"
        " final norm, the head and the loss.",
        source="notes/speed.md section 2",
        needs=("counted-work",),
        faults=("fused-passes-give-up",),
        cases=full_cases,
        check=_fused_nodes,
    ),
    Law(
        id="work.plain-tokens",
        statement="A prompt of ordinary text, a chunk and a token behind it make no node, and the"
        " tokens of a chunk are computed together.",
        source="notes/speed.md section 8; cache.md section 5",
        needs=("counted-work",),
        faults=("rows-give-up", "chunks-give-up"),
        cases=full_cases,
        check=_plain_tokens,
    ),
)
