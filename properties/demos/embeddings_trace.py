"""The trace of the embeddings report: one record per line, from the computed facts."""

from typing import Any

from . import lines

Facts = dict[str, Any]


def trace_lines(facts: Facts) -> list[str]:
    """The 15 trace records, in place of the report."""
    return [
        "TRACE token-embeddings-v1 BEGIN",
        _fixture_record(facts),
        _ids_record(facts),
        *map(_table_record, facts["rows"]),
        *map(_lookup_record, facts["positions"]),
        *map(_gradient_record, facts["rows"]),
        "TRACE token-embeddings-v1 END",
    ]


def _fixture_record(facts: Facts) -> str:
    V, D = facts["table"]["shape"]
    return (
        f"FIXTURE name=known-table-repeated-id parameter={facts['table']['name']} "
        f"vocabulary={V} width={D} table-shape={lines.shape((V, D))} "
        f"id-shape={lines.shape(facts['ids']['shape'])} "
        f"output-shape={lines.shape(facts['output']['shape'])} "
        f"upstream-shape={lines.shape(facts['upstream']['shape'])} "
        f"gradient-shape={lines.shape(facts['table_gradient']['shape'])} "
        f"accumulation=scatter-add"
    )


def _ids_record(facts: Facts) -> str:
    (repeated,) = facts["repeated_ids"]
    return (
        f"IDS values={lines.integers(facts['ids']['values'])} repeated-id={repeated['id']} "
        f"repeated-flat-positions={lines.integers(repeated['flat_positions'])}"
    )


def _table_record(row: Facts) -> str:
    uses = len(row["flat_positions"])
    return (
        f"TABLE row={row['row']} uses={uses} "
        f"state={_by_uses(uses, 'unused', 'selected-once', 'selected-repeated')} "
        f"values={lines.numbers(row['values'])}"
    )


def _lookup_record(position: Facts) -> str:
    return (
        f"LOOKUP flat={position['flat']} coordinate={lines.integers(position['coordinate'])} "
        f"id={position['id']} "
        f"sharing={'repeated-row' if position['repeated'] else 'single-row'} "
        f"one-hot={lines.integers(position['one_hot'])} selected-row={position['selected_row']} "
        f"output={lines.numbers(position['output'])} "
        f"upstream={lines.numbers(position['upstream'])}"
    )


def _gradient_record(row: Facts) -> str:
    uses = len(row["flat_positions"])
    return (
        f"ROW-GRADIENT row={row['row']} flat-positions={lines.integers(row['flat_positions'])} "
        f"contributions={'|'.join(map(lines.numbers, row['contributions'])) or 'none'} "
        f"rule={_by_uses(uses, 'unused-zero', 'single-copy', 'repeated-sum')} "
        f"accumulated={lines.numbers(row['accumulated'])}"
    )


def _by_uses(uses: int, none: str, one: str, several: str) -> str:
    return (none, one, several)[min(uses, 2)]
