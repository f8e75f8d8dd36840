"""Layer caches: what they are bound to, and what they hand out."""

import numpy as np
import pytest

from logitproof.core import Attention, Refusal, SequenceLayout, SplitMix64
from logitproof.core.cache import LayerCache
from logitproof.core.codes import Code


def attention(D: int = 4, base: float = 1e4, capacity: int = 3) -> Attention:
    return Attention.new("a", D, 2, capacity, base, SplitMix64(1))


def with_weights_of(source: Attention, *, base: float) -> Attention:
    return Attention.from_parameters(*source.parameters, heads=2, max_positions=3, rope_base=base)


def test_a_cache_binds_to_the_attention_it_was_made_for() -> None:
    made_for = attention()
    assert LayerCache(made_for, batch=1, capacity=3).binds(made_for) is None


def test_another_width_is_told_before_another_node() -> None:
    cache = LayerCache(attention(), batch=1, capacity=3)
    assert cache.binds(attention(D=8)) == (8, 4)


def test_equal_weights_of_other_nodes_do_not_bind() -> None:
    cache = LayerCache(attention(), batch=1, capacity=3)
    assert cache.binds(attention()) == ("the bound a.query.weight", "another node")


def test_an_assigned_weight_is_told_before_the_rotary_facts() -> None:
    made_for = attention()
    cache = LayerCache(made_for, batch=1, capacity=3)
    weight = made_for.key.weight
    weight.assign(weight.value)
    assert cache.binds(with_weights_of(made_for, base=2.0)) == ("a.key.weight at revision 0", 1)


def test_the_bits_of_the_rotary_base_are_bound() -> None:
    made_for = attention()
    cache = LayerCache(made_for, batch=1, capacity=3)
    differing = cache.binds(with_weights_of(made_for, base=np.nextafter(1e4, 2e4)))
    assert differing is not None


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_layout_of_no_rectangle_is_refused(rank: int) -> None:
    cells = np.zeros((1,) * rank, dtype=np.int64)
    with pytest.raises(Refusal) as refused:
        SequenceLayout(lengths=np.ones(1, np.int64), range_starts=cells, positions=cells)
    assert refused.value.code == Code.POSITION_COUNT_MISMATCH
