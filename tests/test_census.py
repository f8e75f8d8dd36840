from typing import Any

import pytest
from hypothesis import given

from logitproof.core.census import census
from logitproof.core.codes import Code
from logitproof.core.records import ModelRecord, RunRecord
from logitproof.properties import enumeration, record_strategies
from logitproof.properties.refusals import refusal_of


@pytest.mark.golden
@pytest.mark.parametrize(
    ("scale", "figures"),
    [
        ("reference", (1064, 64, 48, 12, 1188, 11)),
        ("bridge", (4256, 2048, 1920, 80, 8304, 20)),
        ("laptop", (8388608, 5242880, 18874368, 8704, 32514560, 74)),
        ("laptop-smoke-c128-v1", (8388608, 5242880, 18874368, 8704, 32514560, 74)),
        ("production", (1048576000, 12079595520, 56371445760, 1318912, 69500936192, 722)),
        ("seed-sensitivity", (2097152, 491520, 1769472, 1792, 4359936, 29)),
    ],
)
def test_a_scale_has_the_published_census(scale: str, figures: tuple[int, ...]) -> None:
    c = census(ModelRecord.scale(scale))
    assert (c.embedding, c.attention, c.feed_forward, c.norms, c.total, c.tensors) == figures


@pytest.mark.property
@given(record_strategies.model_records(max_size=3))
def test_the_census_counts_every_scalar_once(record: ModelRecord) -> None:
    tensors = enumeration.tensors(
        record.vocabulary_size,
        record.model_width,
        record.layers,
        record.heads,
        record.kv_heads,
        record.feed_forward_width,
    )
    counted = census(record)
    assert (counted.total, counted.tensors) == (enumeration.scalars(tensors), len(tensors))


def test_the_tied_head_owns_nothing() -> None:
    # Reported case tied-count: an untied head would add V*D.
    counted = census(ModelRecord.scale("reference"))
    assert counted.tied_head_alias == "token_embedding.weight"
    assert counted.total + 266 * 4 == 2252


def test_a_single_key_head_removes_the_published_scalars() -> None:
    laptop = ModelRecord.scale("laptop")
    grouped = census(laptop.replace(kv_heads=1))
    assert grouped.total == 31990272
    assert census(laptop).total - grouped.total == 524288


@pytest.mark.parametrize(
    ("changes", "what", "label"),
    [
        (
            {"layers": 2**61, "model_width": 2**32 - 2, "feed_forward_width": 2**33},
            "census",
            "parameter census",
        ),
        ({"layers": 2**63, "model_width": 2**40}, "attention.query.weight", "tensor repetitions"),
        (
            {"layers": 2**64 - 1, "model_width": 2**32 - 2},
            "attention.key.weight",
            "parameter group",
        ),
        ({"model_width": 2**40, "layers": 2**15}, "census.attention", "attention parameters"),
    ],
)
def test_an_overflow_names_the_product(changes: dict[str, Any], what: str, label: str) -> None:
    record = ModelRecord.scale("reference").replace(**changes)
    fault = refusal_of(census, record)
    assert fault.code is Code.PLAN_OVERFLOW
    assert (fault.what, fault.reason) == (what, label)


@pytest.mark.parametrize("wrong", [None, 1, "reference", RunRecord.fixture("reference-ci")])
def test_a_census_is_of_a_model_record(wrong: Any) -> None:
    fault = refusal_of(census, wrong)
    assert (fault.code, fault.what) == (Code.FIELD_TYPE, "model")
