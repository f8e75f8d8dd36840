from typing import Any

import pytest

from logitproof.core import ledgers
from logitproof.core.census import census
from logitproof.core.codes import Code
from logitproof.core.ledgers import Allocation
from logitproof.core.records import ModelRecord
from logitproof.properties.refusals import refusal_of


@pytest.mark.golden
@pytest.mark.parametrize(
    ("scale", "total"),
    [
        ("reference", 21384),
        ("bridge", 149472),
        ("laptop", 585262080),
        ("production", 1251016851456),
        ("seed-sensitivity", 78478848),
    ],
)
def test_the_illustration_takes_eighteen_bytes_per_scalar(scale: str, total: int) -> None:
    ledger = ledgers.illustration(census(ModelRecord.scale(scale)).total)
    assert ledger.total == total
    assert [entry.element_bytes for entry in ledger.entries] == [2, 4, 4, 4, 4]


def test_each_buffer_is_rounded_up_on_its_own() -> None:
    entry = Allocation(name="a", elements=3, element_bytes=3, count=2, alignment=8)
    assert ledgers.ledger([entry], what="state").total == 2 * 16


def test_an_alias_adds_nothing() -> None:
    owner = Allocation(name="a", elements=3, element_bytes=8)
    alias = Allocation(name="b", elements=3, element_bytes=8, alias_of="a")
    again = Allocation(name="c", elements=3, element_bytes=8, alias_of="b")
    assert ledgers.ledger([owner, alias, again], what="state").total == 24


@pytest.mark.parametrize(
    ("pairs", "code"),
    [
        ([("a", ""), ("a", "")], Code.BUFFER_EXISTS),
        ([("a", "b")], Code.UNKNOWN_BUFFER),
        ([("a", "a")], Code.ALIAS_CYCLE),
        ([("a", "b"), ("b", "c"), ("c", "a")], Code.ALIAS_CYCLE),
        ([("a", ""), ("b", "c"), ("c", "b")], Code.ALIAS_CYCLE),
    ],
)
def test_names_and_aliases_lead_to_one_owner(pairs: list[tuple[str, str]], code: Code) -> None:
    entries = [
        Allocation(name=name, elements=1, element_bytes=8, alias_of=alias) for name, alias in pairs
    ]
    assert refusal_of(ledgers.ledger, entries, what="state").code is code


@pytest.mark.parametrize("name", ["elements", "element_bytes", "count", "alignment"])
@pytest.mark.parametrize("wrong", [-1, 1.5, True, None])
def test_an_allocation_has_sizes(name: str, wrong: Any) -> None:
    sizes: dict[str, Any] = {"elements": 1, "element_bytes": 8, name: wrong}
    fault = refusal_of(ledgers.ledger, [Allocation(name="a", **sizes)], what="state")
    assert (fault.code, fault.what) == (Code.FIELD_RANGE, f"state.a.{name}")


def test_nothing_is_aligned_to_nothing() -> None:
    entry = Allocation(name="a", elements=1, element_bytes=8, alignment=0)
    assert refusal_of(ledgers.ledger, [entry], what="state").what == "state.a.alignment"


@pytest.mark.parametrize(
    ("elements", "label"), [(2**62, "buffer bytes"), (2**61 - 1, "ledger total")]
)
def test_a_ledger_beyond_64_bits_is_refused(elements: int, label: str) -> None:
    entries = [Allocation(name=n, elements=elements, element_bytes=8) for n in ("a", "b")]
    fault = refusal_of(ledgers.ledger, entries, what="state")
    assert (fault.code, fault.reason) == (Code.PLAN_OVERFLOW, label)


@pytest.mark.golden
@pytest.mark.parametrize(("scale", "elements"), [("reference", 18), ("bridge", 264)])
def test_a_scale_has_the_published_rotation_tables(scale: str, elements: int) -> None:
    record = ModelRecord.scale(scale)
    head_width = record.model_width // record.heads
    tables = ledgers.rope_tables(
        record.layers, record.max_positions, head_width, dtype_policy="f64"
    )
    assert tables.total == elements * 8
    assert sum(entry.count * entry.elements for entry in tables.entries) == elements


def test_the_state_holds_values_gradients_and_tables_outside_the_census() -> None:
    counted = census(ModelRecord.scale("bridge"))
    tables = ledgers.rope_tables(2, 16, 8, dtype_policy="f64")
    state = ledgers.state(counted.groups, tables, dtype_policy="f64")
    assert state.total == 2 * 8 * 8304 + 264 * 8
    assert [entry.alias_of for entry in state.entries if entry.alias_of] == [
        "parameters.token_embedding.weight"
    ]


@pytest.mark.parametrize(("targets", "total"), [(False, 8 * (2 + 3 * 6)), (True, 8 * (2 + 4 * 6))])
def test_layout_metadata_holds_a_batch_of_integers(targets: bool, total: int) -> None:
    assert ledgers.layout_metadata(2, 3, targets=targets).total == total


@pytest.mark.parametrize(
    ("dtype", "width"), [("f64", 8), ("half-protected-32", 4), ("bf16-accounting", 4)]
)
def test_rotation_tables_are_protected_where_tensors_are_halves(dtype: str, width: int) -> None:
    tables = ledgers.rope_tables(3, 5, 8, dtype_policy=dtype)
    assert [entry.element_bytes for entry in tables.entries] == [width] * 3
    assert tables.total == 3 * (4 + 2 * 5 * 4) * width
