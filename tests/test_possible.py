"""A stored case is looked at whole before anything runs: one that cannot be is bad input."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from logitproof.properties import cli, laws, profiles
from logitproof.properties.laws import Law
from logitproof.properties.laws.cases import packed_cases
from logitproof.properties.laws.regimes import Override
from logitproof.properties.verify.plain import NotPlain, bits
from logitproof.properties.verify.possible import LARGEST, MOST_CASES, check_case
from logitproof.properties.verify.replay import Replay, read, text_of
from logitproof.properties.verify.reseeding import reseeded
from logitproof.properties.verify.shrinking import smaller

Output = pytest.CaptureFixture[str]
LAWS = list(laws.REGISTRY.values())
INFINITE, NEGATIVE, ZERO = bits(float("inf")), bits(-1.0), bits(0.0)


def case_of(law: str, number: int) -> Any:
    return next(islice(laws.REGISTRY[law].cases(number + 1), number, None))


def overridden() -> Any:
    case: Any = case_of("truth.logits", 4)
    return case.with_overrides((Override(name="final_norm.gain", place=1, value=0.5),))


# A law and one of its cases, of every kind that there is.
STORED: dict[str, tuple[str, Callable[[], Any]]] = {
    "plain": ("decoder.prefix-causality", lambda: case_of("decoder.prefix-causality", 6)),
    "one row": ("session.splits", lambda: case_of("session.splits", 9)),
    "packed": ("decoder.scalar-bits", lambda: case_of("decoder.scalar-bits", 8)),
    "truth": ("truth.logits", overridden),
    "grouped": ("grouped.logits", lambda: case_of("grouped.logits", 2)),
    "steep": ("fused.refusals", lambda: case_of("fused.refusals", 6)),
    "draw": ("norm.definition", lambda: case_of("norm.definition", 3)),
    "share": ("refusals.facts", lambda: case_of("refusals.facts", 24)),
    "run": ("published.losses", lambda: case_of("published.losses", 0)),
    "words": ("records.values", lambda: case_of("records.values", 0)),
}
# The kind of case, the place in it, what stands there instead, and what is told.
IMPOSSIBLE = [
    ("plain", "seed", -1, "case.seed: a word of 64 bits is wanted"),
    ("plain", "seed", 1 << 64, "case.seed: "),
    ("plain", "scale", ZERO, "case.scale: a positive finite number is wanted"),
    ("plain", "scale", NEGATIVE, "case.scale: "),
    ("plain", "scale", INFINITE, "case.scale: "),
    ("plain", "config.vocabulary_size", 0, "vocabulary_size: 1 or more is wanted"),
    ("plain", "config.vocabulary_size", -3, "vocabulary_size: 1 or more is wanted"),
    ("plain", "config.vocabulary_size", 10**12, f"table entries, {LARGEST} at most"),
    ("plain", "config.model_width", 0, "model_width: 2 or more is wanted"),
    ("plain", "config.model_width", 7, "heads: "),
    ("plain", "config.heads", 0, "heads: 1 or more is wanted"),
    ("plain", "config.heads", 5, "heads: a divisor of the width "),
    ("plain", "config.heads", -1, "heads: 1 or more is wanted"),
    ("plain", "config.feed_forward_width", 0, "feed_forward_width: 1 or more is wanted"),
    ("plain", "config.feed_forward_width", 10**12, "table entries"),
    ("plain", "config.layers", -1, "layers: 0 or more is wanted"),
    ("plain", "config.layers", 10**9, "table entries"),
    ("plain", "config.max_positions", 0, "max_positions: 1 or more is wanted"),
    ("plain", "config.max_positions", 1, "case.ids: at most 1 cells are wanted in a row"),
    ("plain", "config.max_positions", 10**12, "table entries"),
    ("plain", "config.rope_base", ZERO, "rope_base: a positive finite number is wanted"),
    ("plain", "config.rope_base", INFINITE, "rope_base: "),
    ("plain", "config.rms_epsilon", NEGATIVE, "rms_epsilon: "),
    ("plain", "config.rms_epsilon", INFINITE, "rms_epsilon: "),
    ("plain", "config.kv_heads", 7, "kv_heads: a divisor of the "),
    ("plain", "config.kv_heads", 0, "kv_heads: "),
    ("plain", "config.kv_heads", 1, "is tried on nothing with fewer key/value heads"),
    ("plain", "config.tied", False, "is tried on nothing with a head of its own"),
    ("plain", "ids", [], "case.ids: rows of one length, 1 or more, are wanted"),
    ("plain", "ids", [[]], "case.ids: rows"),
    ("plain", "ids", [[0, 1], [0]], "case.ids: rows"),
    ("plain", "ids", [[0] * 999] * 999, "table entries"),
    ("plain", "ids.0.0", 10**6, "case.ids[0][0]: a token below "),
    ("plain", "ids.0.0", -1, "case.ids[0][0]: a token below "),
    ("plain", "targets", [[0]], "case.targets: the shape ["),
    ("plain", "targets", [], "case.targets: the shape ["),
    ("plain", "targets.0.0", 10**6, "case.targets[0][0]: a token below "),
    ("plain", "targets.0.0", -1, "case.targets[0][0]: a token below "),
    ("plain", "valid", [[True]], "case.valid: the shape ["),
    ("plain", "segments", [[5]], "case.segments: they need a layout"),
    ("one row", "ids", [[0], [0]], "case.targets: the shape [2, 1] of the ids is wanted"),
    ("packed", "valid.0", [False], "case.valid: the shape ["),
    ("packed", "valid.0", [True] * 9, "case.valid: an inactive cell is valid"),
    ("packed", "valid", [[False] * 9] * 3, "case.valid: no cell is valid"),
    ("packed", "targets.0.8", 1, "case.targets[0][8]: -1 is wanted"),
    ("packed", "ids.0.8", 1, "case.ids[0][8]: -1 is wanted"),
    ("packed", "layout.lengths.0", 0, "lengths: 3 lengths from 1 to 9 are wanted"),
    ("packed", "layout.lengths.0", 10, "lengths: 3 lengths from 1 to 9 are wanted"),
    ("packed", "layout.lengths", [4], "lengths: 3 lengths from 1 to 9 are wanted"),
    ("packed", "layout.range_starts.0.0", 1, "range_starts: 0 to its own cell is wanted"),
    ("packed", "layout.range_starts.0.0", -1, "range_starts: "),
    ("packed", "layout.range_starts.0.8", 1, "and 0 in inactive cells"),
    ("packed", "layout.range_starts.1", [0], "case.layout.range_starts: the shape [3, 9]"),
    ("packed", "layout.positions.0.0", 99, "positions: 0 to position "),
    ("packed", "layout.positions.0.0", -1, "positions: 0 to position "),
    ("packed", "layout.positions.0.8", 1, "and 0 in inactive cells"),
    ("packed", "layout.positions", [], "case.layout.positions: the shape [3, 9]"),
    ("packed", "segments", [[1]], "case.segments: sizes of 1 or more are wanted"),
    ("packed", "segments.0.0", -1, "case.segments: sizes of 1 or more are wanted"),
    ("truth", "regime.values", "unheard", "case.regime.values: one of dyadic, "),
    ("truth", "regime.layout", "", "case.regime.layout: one of full, "),
    ("truth", "overrides.0.name", "final_norm", "case.overrides[0].name: a parameter is wanted"),
    ("truth", "overrides.0.place", -1, "case.overrides[0].place: 0 or more is wanted"),
    ("truth", "overrides.0.value", INFINITE, "case.overrides[0].value: a finite number is wanted"),
    ("grouped", "config.kv_heads", 3, "kv_heads: a divisor of the "),
    ("steep", "names", ["unheard"], "case.names: parameters are wanted"),
    ("steep", "exponent", 1024, "case.exponent: -1074 to 1023 is wanted"),
    ("steep", "exponent", -10**9, "case.exponent: -1074 to 1023 is wanted"),
    ("draw", "seed", -1, "case.seed: "),
    ("draw", "size", -1, f"case.size: 0 to {MOST_CASES - 1} is wanted"),
    ("draw", "size", MOST_CASES, "case.size: "),
    ("draw", "regime", "unheard", "norm.definition is not tried on 'unheard' values"),
    ("share", "start", -1, "case.start: below step is wanted"),
    ("share", "start", 25, "case.start: below step is wanted"),
    ("share", "step", 0, "case.start: "),
    ("share", "step", MOST_CASES + 1, f"and step to {MOST_CASES}"),
    ("run", "seed", 1, "published.losses is tried on no such Run"),
    ("run", "ids.0.0", -1, "published.losses is tried on no such Run"),
]  # fmt: skip


@pytest.fixture(params=STORED)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def stored(kind: str, folder: Path) -> Path:
    law, make = STORED[kind]
    decoder = "scalar" if kind == "grouped" else "core"
    file = folder / "x.replay.json"
    file.write_text(text_of(Replay(law=law, decoder=decoder, case=make(), found="")), "utf-8")
    return file


def changed(file: Path, place: str, value: Any) -> Path:
    """The file with another value at a place in its case."""
    facts = json.loads(file.read_text("utf-8"))
    *folders, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
    reduce(lambda inner, part: inner[part], folders, facts["case"])[last] = value
    file.write_text(json.dumps(facts), encoding="utf-8")
    return file


MOST = 60  # of what a case shrinks to; beyond these a long text's tokens become 0 one by one


def of_law(law: Law) -> Iterator[Any]:
    """Cases, others of their kind, and what they shrink to."""
    for number, case in enumerate(islice(law.cases(8), 16)):
        other = reseeded(case, number)
        yield from (
            case,
            other,
            *(less for c in (case, other) for less in islice(smaller(c), MOST)),
        )


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
def test_what_a_law_is_tried_on_and_what_that_shrinks_to_is_possible(law: Law) -> None:
    cases = list(of_law(law))
    assert len(list(map(partial(check_case, law), cases))) == len(cases) > 0  # none is refused


def test_a_case_of_every_kind_is_tried_again(kind: str, tmp_path: Path, capsys: Output) -> None:
    assert cli.main(["replay", str(stored(kind, tmp_path))]) == 0
    assert capsys.readouterr().out.startswith(f"{STORED[kind][0]} holds in this case\n")


@pytest.mark.parametrize(("kind", "place", "value", "words"), IMPOSSIBLE)
def test_an_impossible_case_is_bad_input(
    kind: str, place: str, value: Any, words: str, tmp_path: Path, capsys: Output
) -> None:
    file = changed(stored(kind, tmp_path), place, value)
    assert cli.main(["replay", str(file)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert list(tmp_path.iterdir()) == [file]


def test_a_law_is_tried_on_nothing_that_it_does_not_read() -> None:
    one, packed = case_of("session.splits", 9), next(packed_cases(1))
    rows = replace(one, ids=[*one.ids] * 2, targets=[*one.targets] * 2)
    with pytest.raises(NotPlain, match=r"session.splits is tried on nothing with several rows"):
        check_case(laws.REGISTRY["session.splits"], rows)
    with pytest.raises(NotPlain, match="nothing with several rows, a layout"):
        check_case(laws.REGISTRY["session.splits"], packed)


def test_segments_begin_where_the_layout_has_it() -> None:
    case = case_of("decoder.packed-separate", 0)
    first, *others = case.segments
    assert first[0] > 1
    other = replace(case, segments=((1, sum(first) - 1), *others))
    with pytest.raises(NotPlain, match="they begin where the layout has it"):
        check_case(laws.REGISTRY["decoder.packed-separate"], other)


def test_every_kind_of_a_law_is_read(tmp_path: Path) -> None:
    """The first case of a law may be of another kind than the others."""
    law = laws.REGISTRY["fused.forward"]
    kinds = {type(case): case for case in law.cases(9)}
    assert len(kinds) == 2
    file = tmp_path / "x.json"
    texts = [text_of(Replay(law=law.id, decoder="core", case=c, found="")) for c in kinds.values()]
    read_again = [read(file) for text in texts if file.write_text(text, "utf-8")]
    assert [type(replay.case) for replay in read_again] == list(kinds)


def test_a_layout_that_the_decoder_does_not_claim_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    own = "from logitproof.properties.subjects import ScalarSubject\n"
    own += "class Plain(ScalarSubject): capabilities = {'padded': False, 'packed': False}\n"
    (tmp_path / "plain_decoder.py").write_text(own, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    file = str(stored("truth", tmp_path))
    assert cli.main(["replay", file, "--decoder", "plain_decoder:Plain"]) == 2
    assert capsys.readouterr().err == "logitproof replay: plain_decoder:Plain lacks packed\n"


@pytest.mark.parametrize(
    "name", ["offline:\0", "offline:\ud800", "exec:\0", "process:\0:x", "\0:x"]
)
def test_a_decoder_that_has_no_possible_name_is_bad_input(
    name: str, tmp_path: Path, capsys: Output
) -> None:
    file = stored("draw", tmp_path)
    facts = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps(facts | {"decoder": name}), "utf-8")
    assert cli.main(["replay", str(file)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_the_largest_profile_draws_no_more_cases_than_a_size_may_count() -> None:
    profiles.register()
    counts = [settings.get_profile(name).max_examples for name in ("quick", "ci", "soak")]
    assert max(counts) == MOST_CASES
