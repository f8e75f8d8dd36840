from itertools import islice

import pytest

from logitproof.core import shapes
from logitproof.core.codes import Code
from logitproof.properties import enumeration
from logitproof.properties.refusals import refusal_of


@pytest.mark.parametrize("L", [0, 1, 3])
def test_the_named_tensors_are_those_written_out(L: int) -> None:
    groups = shapes.parameter_shapes(7, 8, L, 2, 1, 5)
    assert list(shapes.named_tensors(groups)) == enumeration.tensors(7, 8, L, 2, 1, 5)


def test_the_names_of_a_huge_depth_are_made_one_by_one() -> None:
    groups = shapes.parameter_shapes(7, 8, 2**64 - 1, 2, 1, 5)
    assert len(list(islice(shapes.named_tensors(groups), 20))) == 20


def test_the_groups_stand_in_the_order_of_the_table() -> None:
    groups = shapes.parameter_shapes(266, 16, 2, 2, 2, 20)
    assert [(g.name, g.category, g.shape, g.repetitions, g.partition_axis) for g in groups] == [
        ("token_embedding.weight", "embedding", (266, 16), 1, "rows"),
        ("attention_norm.gain", "norms", (16,), 2, "replicated"),
        ("attention.query.weight", "attention", (16, 16), 2, "columns"),
        ("attention.key.weight", "attention", (16, 16), 2, "columns"),
        ("attention.value.weight", "attention", (16, 16), 2, "columns"),
        ("attention.output.weight", "attention", (16, 16), 2, "rows"),
        ("ffn_norm.gain", "norms", (16,), 2, "replicated"),
        ("ffn.gate.weight", "feed_forward", (16, 20), 2, "columns"),
        ("ffn.up.weight", "feed_forward", (16, 20), 2, "columns"),
        ("ffn.down.weight", "feed_forward", (20, 16), 2, "rows"),
        ("final_norm.gain", "norms", (16,), 1, "replicated"),
    ]


@pytest.mark.parametrize(
    ("sizes", "what"),
    [
        ((0, 3, 1, 2, 3, 0), "V"),
        ((7, 0, 1, 2, 1, 5), "D"),
        ((7, 8, 1, 0, 1, 5), "heads"),
        ((7, 8, 1, 2, 0, 5), "kv_heads"),
        ((7, 8, 1, 2, 1, 0), "F"),
        ((7, 9, 1, 2, 4, 5), "kv_heads"),
        ((7, 10, 1, 4, 3, 5), "D"),
        ((7, 12, 1, 3, 2, 5), "heads"),
    ],
)
def test_a_grouping_of_which_no_decoder_is_made_is_refused(
    sizes: tuple[int, int, int, int, int, int], what: str
) -> None:
    # Reported case cfg-head-dim: 10/4, 10/0, and 12 with 3 heads over 2.
    fault = refusal_of(shapes.parameter_shapes, *sizes)
    assert (fault.code, fault.what) == (Code.HEAD_GROUPING, what)
    assert fault.reason == "head grouping or dimensions"


def test_the_grouping_is_told_before_an_odd_head_width() -> None:
    fault = refusal_of(shapes.parameter_shapes, 7, 9, 1, 3, 2, 5)
    assert fault.code is Code.HEAD_GROUPING


def test_an_odd_head_width_is_refused() -> None:
    fault = refusal_of(shapes.parameter_shapes, 7, 9, 1, 3, 1, 5)
    assert (fault.code, fault.actual) == (Code.EVEN_ROPE_HEAD_WIDTH, 3)
    assert fault.reason == "even RoPE head width"


@pytest.mark.parametrize(
    ("sizes", "what", "label"),
    [
        ((1, 2**65, 1, 1, 1, 1), "shape", "KV width"),
        ((2**64, 2**64 - 2, 2**64, 1, 1, 1), "token_embedding.weight", "rows"),
        ((1, 2, 2**64, 1, 1, 1), "attention_norm.gain", "repetitions"),
        ((1, 2, 1, 1, 1, 2**64), "ffn.gate.weight", "columns"),
    ],
)
def test_a_size_beyond_64_bits_is_refused_by_its_label(
    sizes: tuple[int, int, int, int, int, int], what: str, label: str
) -> None:
    fault = refusal_of(shapes.parameter_shapes, *sizes)
    assert (fault.code, fault.what, fault.reason) == (Code.PLAN_OVERFLOW, what, label)
