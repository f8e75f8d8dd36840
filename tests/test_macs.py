import pytest
from hypothesis import given

from logitproof.core.census import census
from logitproof.core.codes import Code
from logitproof.core.macs import MIXTURE, SCORES, macs
from logitproof.core.records import ModelRecord
from logitproof.properties import enumeration, record_strategies
from logitproof.properties.refusals import refusal_of


@pytest.mark.golden
@pytest.mark.parametrize(
    ("scale", "B", "causal", "dense"),
    [
        ("reference", 16, 76544, 77312),
        ("bridge", 8, 1122304, 1183744),
        ("laptop", 1, 17718837248, 18790481920),
        ("production", 1, 2981072375644160, 3684738342584320),
        ("seed-sensitivity", 1, 1166213120, 1216348160),
    ],
)
def test_a_scale_has_the_published_macs(scale: str, B: int, causal: int, dense: int) -> None:
    record = ModelRecord.scale(scale)
    counted = macs(record, census(record), rows=B)
    assert (counted.causal, counted.dense) == (causal, dense)


@pytest.mark.property
@given(record_strategies.model_records(max_size=2))
def test_the_macs_count_every_product(record: ModelRecord) -> None:
    sizes = (record.max_positions, record.vocabulary_size, record.model_width, record.layers)
    rest = (record.heads, record.kv_heads, record.feed_forward_width)
    counted = macs(record, census(record), rows=2)
    assert counted.causal == enumeration.macs(2, *sizes, *rest, causal=True)
    assert counted.dense == enumeration.macs(2, *sizes, *rest, causal=False)


@pytest.mark.property
@given(record_strategies.model_records())
def test_the_groups_add_up_to_the_causal_macs(record: ModelRecord) -> None:
    counted = macs(record, census(record), rows=3)
    assert sum(counted.groups.values()) == counted.causal
    assert counted.groups[SCORES] == counted.groups[MIXTURE]


@pytest.mark.property
@given(record_strategies.model_records())
def test_the_dense_groups_add_up_to_the_dense_macs(record: ModelRecord) -> None:
    counted = macs(record, census(record), rows=3)
    assert sum(counted.dense_groups.values()) == counted.dense
    assert counted.dense_groups[SCORES] == counted.dense_groups[MIXTURE]
    shared = counted.groups.items() & counted.dense_groups.items()
    assert {name for name, _ in shared} >= counted.groups.keys() - {SCORES, MIXTURE}


def test_too_many_macs_are_refused() -> None:
    record = ModelRecord.scale("reference").replace(max_positions=2**62)
    fault = refusal_of(macs, record, census(record), rows=1)
    assert (fault.code, fault.reason) == (Code.PLAN_OVERFLOW, "linear MACs")
