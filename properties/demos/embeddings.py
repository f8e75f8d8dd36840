"""The embeddings report: one lookup with a repeated id, its product form and its gradient."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from logitproof.core import (
    NO_GRAD,
    RECORDING,
    Code,
    Embedding,
    Parameter,
    SplitMix64,
    constant,
    ops,
)
from logitproof.core.gradcheck import check_gradient

from . import handwritten, lines
from .agreement import refusal_facts, require, require_close, same_bits
from .embeddings_trace import trace_lines

__all__ = ["report", "report_lines", "trace_lines"]

Facts = dict[str, Any]
Array = np.ndarray[Any, Any]

NAME = "token_embedding.weight"
TABLE = np.array([[10.0, 11.0], [20.0, 21.0], [30.0, 31.0], [40.0, 41.0]])
IDS = (2, 1, 2)
ID_SHAPE = (1, 3)
UPSTREAM = np.array([[[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]]])

SEED = 18
STEP, TOLERANCE = 1e-6, 2e-6  # of the finite differences; the tolerance is absolute


def report() -> Facts:
    """The computed facts; raises Disagreement unless every comparison of them holds."""
    lookup = _Lookup.run()
    return {
        "demo": "embeddings",
        "table": {"name": NAME, "shape": list(TABLE.shape), "values": _flat(TABLE)},
        "ids": {"shape": list(ID_SHAPE), "values": list(IDS)},
        "output": _tensor(lookup.output),
        "one_hot_equals_lookup": lookup.equals_one_hot(),
        "upstream": _tensor(UPSTREAM),
        "table_gradient": _tensor(lookup.gradient),
        "positions": lookup.positions(),
        "rows": lookup.rows(),
        "repeated_ids": _repeated_ids(),
        "checks": {
            "unused_rows": lookup.unused_rows(),
            "finite_differences": lookup.finite_differences(),
            "drawn_table": _drawn_table(),
            "same_node": _same_node(),
            "empty_ids": _empty_ids(),
            "invalid_id": _invalid_id(),
        },
    }


def report_lines(facts: Facts) -> list[str]:
    """The six published lines, then one per further check."""
    checks = facts["checks"]
    drawn, differences, refused = (
        checks["drawn_table"],
        checks["finite_differences"],
        checks["invalid_id"],
    )
    return [
        f"table: {facts['table']['name']} shape={lines.shape(facts['table']['shape'])}",
        f"ids: shape={lines.shape(facts['ids']['shape'])} "
        f"values={lines.integers(facts['ids']['values'])}",
        f"output: {_tensor_text(facts['output'])}",
        f"one-hot multiplication equals lookup: {lines.truth(facts['one_hot_equals_lookup'])}",
        f"upstream: {_tensor_text(facts['upstream'])}",
        f"table gradient: {_tensor_text(facts['table_gradient'])}",
        f"unused rows: {lines.integers(checks['unused_rows']['rows'])} "
        f"gradient zero={lines.truth(checks['unused_rows']['gradient_zero'])}",
        f"finite differences: coordinates={differences['coordinates']} "
        f"pass={lines.truth(differences['pass'])}",
        f"seed {drawn['seed']} construction: {_tensor_text(drawn)} "
        f"reproducible={lines.truth(drawn['reproducible'])}",
        f"clone: same node={lines.truth(checks['same_node'])}",
        f"empty ids: {_tensor_text(checks['empty_ids'])}",
        f"invalid id: position={refused['position']} id={refused['id']} "
        f"vocabulary={refused['vocabulary_size']}",
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lookup:
    """One recorded lookup and the gradient its backward pass left in the table."""

    output: Array
    gradient: Array
    product: handwritten.OneHotProduct

    @classmethod
    def run(cls) -> "_Lookup":
        table = Parameter(NAME, TABLE)
        output = Embedding.from_parameter(table).forward(IDS, ID_SHAPE)
        output.backward(UPSTREAM)
        return cls(
            output=output.value,
            gradient=table.gradient,
            product=handwritten.one_hot_product(TABLE.tolist(), IDS),
        )

    def equals_one_hot(self) -> bool:
        """By value, since a product turns -0.0 into +0.0; exactly."""
        equal = self.product.values == self.output.reshape(len(IDS), -1).tolist()
        require(equal, "the one-hot product equals the lookup")
        return equal

    def positions(self) -> list[Facts]:
        """What each flat position selects, gives and receives."""
        output, upstream = (array.reshape(len(IDS), -1) for array in (self.output, UPSTREAM))
        return [
            {
                "flat": flat,
                "coordinate": [int(i) for i in np.unravel_index(flat, ID_SHAPE)],
                "id": selected,
                "repeated": len(_flat_positions(selected)) > 1,
                "one_hot": [int(i) for i in self.product.indicators[flat]],
                "selected_row": self.product.indicators[flat].index(1.0),
                "output": output[flat].tolist(),
                "upstream": upstream[flat].tolist(),
            }
            for flat, selected in enumerate(IDS)
        ]

    def rows(self) -> list[Facts]:
        """Where each table row is used, and what its gradient is the sum of."""
        upstream = UPSTREAM.reshape(len(IDS), -1)
        rows = []
        for row, values in enumerate(TABLE.tolist()):
            flat_positions = _flat_positions(row)
            contributions = [upstream[p].tolist() for p in flat_positions]
            accumulated = self.gradient[row].tolist()
            summed = [sum(column) for column in zip(*contributions, strict=True)]
            require(
                accumulated == (summed or [0.0] * len(values)),
                f"the gradient of row {row} is the sum of its contributions",
            )
            rows.append(
                {
                    "row": row,
                    "values": values,
                    "flat_positions": flat_positions,
                    "contributions": contributions,
                    "accumulated": accumulated,
                }
            )
        return rows

    def unused_rows(self) -> Facts:
        """Rows without a use keep the +0.0 of a new gradient."""
        rows = [row for row in range(len(TABLE)) if not _flat_positions(row)]
        zero = same_bits(self.gradient[rows], np.zeros_like(TABLE[rows]))
        require(zero, "unused rows have the gradient zero")
        return {"rows": rows, "gradient_zero": zero}

    def finite_differences(self) -> Facts:
        """Every coordinate of the table gradient; samples of a derivative, not a proof."""
        checked = check_gradient(
            _objective, TABLE, self.gradient, step=STEP, tolerance=TOLERANCE, samples=TABLE.size
        )
        derivatives = [coordinate.stencil.derivative for coordinate in checked.coordinates]
        difference = require_close(
            derivatives, _flat(self.gradient), tolerance=TOLERANCE, what="the table gradient"
        )
        return {
            "step": STEP,
            "tolerance": TOLERANCE,
            "coordinates": len(derivatives),
            "largest_difference": difference,
            "pass": True,
        }


def _objective(table: Array) -> float:
    """The sum of upstream times output, whose table gradient the backward pass gives."""
    embedding = Embedding.from_parameter(Parameter(NAME, table))
    x = NO_GRAD.apply(
        ops.mul, embedding.forward(IDS, ID_SHAPE, context=NO_GRAD), constant(UPSTREAM)
    )
    while x.shape:
        x = NO_GRAD.apply(ops.sum, x, axis=0)
    return float(x.value)


def _drawn_table() -> Facts:
    """Two constructions from one seed."""
    V, D = TABLE.shape
    first, second = (Embedding.new(NAME, V, D, SplitMix64(SEED)).table.value for _ in range(2))
    reproducible = same_bits(first, second)
    require(reproducible, f"seed {SEED} gives one table")
    return {"seed": SEED, **_tensor(first), "reproducible": reproducible}


def _same_node() -> bool:
    """A second handle of a table is the same node; an equal table is another."""
    table = Parameter(NAME, TABLE)
    clone = Embedding.from_parameter(table).table
    same = bool(clone.is_same_node(table))
    require(same, "a clone is the same node")
    require(not table.is_same_node(Parameter(NAME, TABLE)), "an equal table is another node")
    return same


def _empty_ids() -> Facts:
    output = Embedding.from_parameter(Parameter(NAME, TABLE)).forward((), (0,), context=RECORDING)
    require(output.shape == (0, TABLE.shape[1]), "no ids give no rows")
    return _tensor(output.value)


def _invalid_id() -> Facts:
    embedding = Embedding.from_parameter(Parameter(NAME, TABLE))
    outside = len(TABLE)
    facts = refusal_facts(lambda: embedding.forward((outside,), (1,)))
    code = Code.TOKEN_ID_OUT_OF_BOUNDS
    require(facts.get("code") == code, f"id {outside} is refused as {code}")
    fields = {"position": 0, "id": outside, "vocabulary_size": len(TABLE)}
    require(fields.items() <= facts.items(), f"the refusal carries {fields}")
    return {"code": str(code), **{name: facts[name] for name in fields}}


def _flat_positions(row: int) -> list[int]:
    return [p for p, i in enumerate(IDS) if i == row]


def _repeated_ids() -> list[Facts]:
    repeated = [i for i in range(len(TABLE)) if len(_flat_positions(i)) > 1]
    require(len(repeated) == 1, "the fixture holds exactly one repeated id")
    return [{"id": i, "flat_positions": _flat_positions(i)} for i in repeated]


def _flat(array: Array) -> list[float]:
    values: list[float] = array.reshape(-1).tolist()
    return values


def _tensor(array: Array) -> Facts:
    return {"shape": list(array.shape), "values": _flat(array)}


def _tensor_text(tensor: Facts) -> str:
    return f"shape={lines.shape(tensor['shape'])} values={lines.numbers(tensor['values'])}"
