"""Valid inputs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

Merges = tuple[tuple[int, int], ...]

# Few bytes, so that pairs repeat and merges of merges occur.
_LETTERS = (97, 98, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of a session: `ids` of a prompt, chunk or token, the `length` to truncate to.

    After `fork` the copy goes on and the original ends.
    """

    name: str
    ids: tuple[int, ...] = ()
    length: int = 0


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


def byte_strings(*, max_bytes: int = 40) -> st.SearchStrategy[bytes]:
    """Mergeable bytes, text in UTF-8, text cut inside a character, any bytes."""
    text = st.text(max_size=max_bytes // 4).map(str.encode)
    cut = st.builds(lambda data, end: data[: len(data) - end], text, st.integers(0, 3))
    return st.one_of(mergeable_bytes(max_bytes=max_bytes), text, cut, st.binary(max_size=max_bytes))


def documents(
    *, vocabulary_size: int, max_documents: int = 6, max_ids: int = 7
) -> st.SearchStrategy[list[list[int]]]:
    """Documents of two ids or more; a few tokens come again and again."""
    token = st.one_of(
        st.integers(0, min(2, vocabulary_size - 1)), st.integers(0, vocabulary_size - 1)
    )
    document = st.lists(token, min_size=2, max_size=max_ids)
    return st.lists(document, min_size=1, max_size=max_documents)


def session_scripts(
    *, vocabulary_size: int, capacity: int, max_steps: int = 8
) -> st.SearchStrategy[tuple[Step, ...]]:
    """Calls of a session that are all allowed in their turn; the first is a prompt."""
    token = st.integers(0, vocabulary_size - 1)
    wish = st.builds(
        Step,
        name=st.sampled_from(("decode", "extend", "fork", "truncate", "reset")),
        ids=st.lists(token, min_size=1, max_size=3).map(tuple),
        length=st.integers(1, capacity),
    )
    wishes = st.lists(wish, min_size=1, max_size=max_steps)
    return wishes.map(lambda some: tuple(_allowed(some, capacity)))


def _allowed(wishes: Iterable[Step], capacity: int) -> Iterator[Step]:
    """Each wish as far as it can be granted: a prompt where none was, fewer ids, a lower length."""
    length = 0
    for wish in wishes:
        name = wish.name if length else "prefill"
        reads = name in ("prefill", "extend", "decode")
        most = capacity - length if name != "decode" else min(1, capacity - length)
        ids = wish.ids[:most] if reads else ()
        if reads and not ids:
            continue  # the cache is full
        kept = min(wish.length, length) if name == "truncate" else 0
        length = {"truncate": kept, "reset": 0}.get(name, length + len(ids))
        yield Step(name=name, ids=ids, length=kept)
