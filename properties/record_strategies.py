"""Records, byte strings and schedules for the laws of the planner."""

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from logitproof.core.profiles import PROFILES
from logitproof.core.records import SEED_NAMES, ModelRecord, RunRecord


@st.composite
def model_records(draw: DrawFn, *, max_size: int = 4) -> ModelRecord:
    """Small models of every valid grouping of heads."""
    kv_heads = draw(st.integers(1, max_size))
    heads = kv_heads * draw(st.integers(1, max_size))
    sizes = st.integers(1, max_size)
    return ModelRecord.scale("reference").replace(
        heads=heads,
        kv_heads=kv_heads,
        model_width=heads * 2 * draw(st.integers(1, 2)),
        vocabulary_size=draw(sizes),
        layers=draw(sizes),
        feed_forward_width=draw(sizes),
        max_positions=draw(sizes),
        vocabulary_id=draw(texts()),
        tokenizer_id=draw(texts()),
    )


@st.composite
def run_records(draw: DrawFn) -> RunRecord:
    """Runs of every profile with other rows, budgets and seeds."""
    name = draw(st.sampled_from(tuple(PROFILES)))
    seeds = st.integers(0, 2**64 - 1)
    return RunRecord.fixture(name).replace(
        rows=draw(st.integers(1, 4)),
        token_budget=draw(st.integers(1, 2**64 - 1)),
        seeds={name: draw(seeds) for name in SEED_NAMES},
    )


def texts() -> SearchStrategy[str]:
    """Non-empty text of any characters but surrogates."""
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def identity_names() -> SearchStrategy[str]:
    """Domains and keys of identities."""
    return st.from_regex(r"[a-z][a-z0-9._-]{0,63}", fullmatch=True)


def plain_values() -> SearchStrategy[object]:
    """What canonical JSON holds: texts, unsigned integers, words, arrays and objects."""
    leaves: SearchStrategy[object] = st.one_of(
        texts(), st.integers(0, 2**128 - 1), st.booleans(), st.none()
    )
    return st.recursive(leaves, _containers, max_leaves=12)


def _containers(inner: SearchStrategy[object]) -> SearchStrategy[object]:
    lists: SearchStrategy[object] = st.lists(inner, max_size=3)
    return lists | st.dictionaries(texts(), inner, max_size=3)


@st.composite
def timelines(draw: DrawFn) -> list[tuple[str, str, int, int]]:
    """Well-formed (action, name, bytes, workspace): every release is of a live buffer."""
    events: list[tuple[str, str, int, int]] = []
    live: list[str] = []
    for number in range(draw(st.integers(1, 12))):
        workspace = draw(st.integers(0, 64))
        if draw(st.booleans()) and live:
            name = live.pop(draw(st.integers(0, len(live) - 1)))
            events.append(("release", name, 0, workspace))
        else:
            live.append(f"buffer-{number}")
            events.append(("allocate", live[-1], draw(st.integers(0, 64)), workspace))
    return events
