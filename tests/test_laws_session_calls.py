"""What the laws over a session's calls count and draw, by figures of the specification."""

from collections.abc import Callable, Sequence
from functools import reduce

import pytest

from logitproof.properties.laws import REGISTRY
from logitproof.properties.laws.session_calls import FRESH, Call, Held, Script, State, held_after
from logitproof.properties.scalar import Config

CASES: list[Script] = list(REGISTRY["session.calls"].cases(25))


def config(layers: int, heads: int) -> Config:
    return Config(
        vocabulary_size=128, model_width=4, heads=heads, feed_forward_width=1, layers=layers,
        max_positions=8,
    )  # fmt: skip


def after(sizes: Config, *calls: Call) -> State:
    return reduce(lambda state, call: held_after(sizes, state, call), calls, FRESH)


def work(layers: int, heads: int, prompt: int, decoded: int) -> Sequence[int]:
    calls = [Call(session=0, name="prefill", ids=(1,) * prompt)]
    calls += [Call(session=0, name="decode", ids=(2,))] * decoded
    (held,) = after(config(layers, heads), *calls)
    assert held is not None
    return held.work


@pytest.mark.parametrize(
    ("sizes", "counted"),
    [
        ((2, 1, 2, 1), (3, 2, 1, 6, 18, 12)),
        ((2, 2, 2, 1), (3, 2, 1, 6, 18, 24)),
        ((1, 1, 2, 1), (3, 2, 1, 3, 9, 6)),
        ((2, 2, 1, 3), (4, 1, 3, 8, 24, 40)),
    ],
    ids=["one-head", "two-heads", "reference", "decoded"],
)
def test_the_model_counts_as_the_specification_does(
    sizes: tuple[int, int, int, int], counted: tuple[int, ...]
) -> None:
    assert work(*sizes) == counted


def test_forgotten_rows_stay_counted_and_a_reset_counts_anew() -> None:
    sizes, prompt = config(1, 1), Call(session=0, name="prefill", ids=(3, 4, 5))
    counted = (3, 3, 0, 3, 9, 6)
    assert after(sizes, prompt, Call(session=0, name="truncate", length=1)) == (
        Held((3,), counted),
    )
    assert after(sizes, prompt, Call(session=0, name="truncate")) == FRESH
    assert after(sizes, prompt, Call(session=0, name="reset")) == FRESH


def test_a_fork_and_a_continued_cache_count_on() -> None:
    sizes, prompt = config(1, 1), Call(session=0, name="prefill", ids=(3, 4, 5))
    held = Held((3, 4, 5), (3, 3, 0, 3, 9, 6))
    assert after(sizes, prompt, Call(session=0, name="fork")) == (held, held)
    assert after(sizes, prompt, Call(session=0, name="resume")) == (None, held)
    assert after(sizes, prompt, Call(session=0, name="fork"), Call(session=0, name="end")) == (
        None, held,
    )  # fmt: skip


def named(script: Script, name: str) -> list[Call]:
    return [call for call in script.calls if call.name == name]


def chunk_after_decode(script: Script) -> bool:
    names = [(call.session, call.name) for call in script.calls]
    return any(
        (session, "decode") in names[:at] and name == "extend" and len(script.calls[at].ids) > 1
        for at, (session, name) in enumerate(names)
    )


def fork_of_a_fork(script: Script) -> bool:
    opened = [call.name for call in script.calls if call.name in ("fork", "resume")]
    return any(opened[c.session - 1] == "fork" for c in named(script, "fork") if c.session)


@pytest.mark.parametrize(
    "feature",
    [
        chunk_after_decode,
        fork_of_a_fork,
        lambda script: any(len(call.ids) > 32 for call in named(script, "prefill")),
        lambda script: any(len(call.ids) > 32 for call in named(script, "extend")),
        lambda script: any(not call.length for call in named(script, "truncate")),
        lambda script: any(call.length for call in named(script, "truncate")),
        lambda script: named(script, "reset"),
        lambda script: named(script, "resume"),
        lambda script: named(script, "end"),
        lambda script: script.config.layers > 1 and script.config.heads > 1,
    ],
    ids=["chunk-after-decode", "fork-of-a-fork", "long-prompt", "long-chunk", "to-nothing",
         "truncate", "reset", "resume", "end", "layers-and-heads"],
)  # fmt: skip
def test_among_the_quick_scripts_is_one_with(feature: Callable[[Script], object]) -> None:
    assert any(feature(script) for script in CASES)


def test_a_script_tells_its_calls() -> None:
    assert str(CASES[0]).endswith(f"; calls {', '.join(map(str, CASES[0].calls))}")
    assert str(Call(session=1, name="truncate", length=2)) == "1.truncate(2)"
    assert str(Call(session=0, name="extend", ids=(4, 5))) == "0.extend(4, 5)"
