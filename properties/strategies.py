"""Valid inputs."""

from hypothesis import strategies as st

Merges = tuple[tuple[int, int], ...]

# Few bytes, so that pairs repeat and merges of merges occur.
_LETTERS = (97, 98, 32)


@st.composite
def merge_tables(draw: st.DrawFn, *, max_ranks: int = 12) -> Merges:
    """Merge pairs in rank order over three bytes and the merges before."""
    pairs: list[tuple[int, int]] = []
    for rank in range(draw(st.integers(0, max_ranks))):
        operands = (*_LETTERS, *range(256, 256 + rank))
        unused = [(a, b) for a in operands for b in operands if (a, b) not in pairs]
        pairs.append(draw(st.sampled_from(unused)))
    return tuple(pairs)


def mergeable_bytes(*, max_bytes: int = 40) -> st.SearchStrategy[bytes]:
    """Bytes that the pairs of `merge_tables` occur in."""
    return st.lists(st.sampled_from(_LETTERS), max_size=max_bytes).map(bytes)


@st.composite
def content_ids(
    draw: st.DrawFn, *, max_ranks: int = 12, max_ids: int = 20
) -> tuple[Merges, list[int]]:
    """A merge table and content ids of its vocabulary, canonical or not."""
    merges = draw(merge_tables(max_ranks=max_ranks))
    known = st.integers(2, 257 + len(merges))
    return merges, draw(st.lists(known, max_size=max_ids))
