"""`logitproof replay`: a failing case, small, told in plain data, and tried again anywhere."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitproof.properties import cli, laws
from logitproof.properties.faults import REGISTRY as FAULTS
from logitproof.properties.laws import Law
from logitproof.properties.laws.cases import Case, full_cases, mixed_cases
from logitproof.properties.laws.difference import Difference
from logitproof.properties.laws.drawn import Draw
from logitproof.properties.laws.regimes import Override, Regime, Sizes, case_of, truth_cases
from logitproof.properties.subjects import StepsSubject
from logitproof.properties.verify.divergence import divergence
from logitproof.properties.verify.places import place_of
from logitproof.properties.verify.plain import NotPlain, from_plain, to_plain
from logitproof.properties.verify.replay import Replay, read, text_of
from logitproof.properties.verify.shrinking import failure, shrunk, smaller

Output = pytest.CaptureFixture[str]
LAWS = list(laws.REGISTRY.values())
CAUSALITY = laws.REGISTRY["decoder.prefix-causality"]
# The law, a fault, and the smallest case that shows it.
SMALLEST = [
    ("decoder.prefix-causality", "mask-off-by-one", "L=1 C=2", "ids [[0, 0]]"),
    ("decoder.packed-separate", "packed-segments-leak", "L=1 C=2", "ids [[0, 0]]"),
    ("decoder.scalar-bits", "scatter-overwrites", "L=1 C=2", "ids [[0, 0]]"),
    ("decoder.refused-pass", "commit-before-check", "L=0 C=1", "ids [["),
]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The replay of a case that a planted fault fails."""
    with FAULTS["mask-off-by-one"]:
        cli.main(
            ["verify", "--decoder", "core-steps", "--law", CAUSALITY.id, "--replays", str(tmp_path)]
        )
    return tmp_path / "decoder.prefix-causality.replay.json"


def first_failing(law: Law) -> Any:
    return next(case for case in law.cases(40) if failure(law, StepsSubject, case) is not None)


def test_a_replay_fails_with_the_fault_and_holds_without(stored: Path, capsys: Output) -> None:
    capsys.readouterr()
    assert cli.main(["replay", str(stored)]) == 0
    assert capsys.readouterr().out.startswith("decoder.prefix-causality holds in this case\n")
    with FAULTS["mask-off-by-one"]:
        assert cli.main(["replay", str(stored)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("decoder.prefix-causality FAILS in this case\n")
    assert "place   layer 0, attention probabilities, row 0, head 0, position 0, key 0\n" in out
    assert json.loads(stored.read_text("utf-8"))["found"] in out


def test_a_replay_is_tried_on_another_decoder(stored: Path) -> None:
    with FAULTS["mask-off-by-one"]:
        assert cli.main(["replay", str(stored), "--decoder", "scalar"]) == 0


def test_a_replay_holds_its_case_as_plain_data(stored: Path) -> None:
    facts = json.loads(stored.read_text("utf-8"))
    assert list(facts) == ["format", "laws", "law", "decoder", "case", "found"]
    assert (facts["laws"], facts["decoder"]) == (laws.VERSION, "core-steps")
    assert facts["case"]["scale"] == "3ff0000000000000"
    assert facts["case"]["ids"] == [[0, 0]]
    assert facts["case"]["config"]["rope_base"] == "40c3880000000000"


def changed(stored: Path, path: tuple[str, ...], value: Any) -> None:
    """Another value in the file."""
    facts = json.loads(stored.read_text("utf-8"))
    *folders, name = path
    place = facts
    place = place[folders[0]] if folders else place
    place = place[folders[1]] if len(folders) > 1 else place
    place[name] = value
    stored.write_text(json.dumps(facts), encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "logitproof-replay-v2"),
        (("laws",), laws.VERSION + 1),
        (("laws",), 0),
        (("laws",), True),
        (("law",), "decoder.unheard-of"),
        (("law",), "published.losses"),
        (("decoder",), "unheard"),
        (("found",), None),
        (("more",), 1),
        (("case",), []),
        (("case", "type"), "properties.laws.cases.Unheard"),
        (("case", "type"), "properties.scalar.shapes.Config"),
        (("case", "scale"), "3ff000000000000"),
        (("case", "scale"), "3FF0000000000000"),
        (("case", "scale"), "7ff8000000000000"),
        (("case", "scale"), 1),
        (("case", "seed"), "1"),
        (("case", "ids"), [[0, "0"]]),
        (("case", "ids"), 0),
        (("case", "more"), 1),
        (("case", "config", "layers"), None),
        (("case", "config", "type"), "properties.scalar.shapes.Layout"),
    ],
    ids=str,
)
def test_another_file_than_verify_writes_is_refused(
    path: tuple[str, ...], value: Any, stored: Path, capsys: Output
) -> None:
    capsys.readouterr()
    changed(stored, path, value)
    assert cli.main(["replay", str(stored)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b"{",
        b'{"format": "logitproof-replay-v1"}',
        b'{"format": 1, "format": 2}',
        b'{"format": 1.5}',
        b'{"format": NaN}',
        b"[" * 100_000,
    ],
    ids=["empty", "list", "bytes", "half", "missing", "twice", "float", "nan", "deep"],
)
def test_what_is_no_replay_is_refused(content: bytes, tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    assert cli.main(["replay", str(file)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert cli.main(["replay", str(tmp_path / "none.json")]) == 2


def test_a_decoder_that_lacks_what_the_law_needs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    case = next(mixed_cases(1))
    replay = Replay(law="decoder.recomputation", decoder="scalar", case=case, found="")
    file.write_text(text_of(replay), encoding="utf-8")
    assert cli.main(["replay", str(file)]) == 2


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.id)
def test_cases_come_back_from_plain_data_as_they_were(law: Law) -> None:
    cases = list(islice(law.cases(6), 20))
    again = [from_plain(json.loads(json.dumps(to_plain(case)))) for case in cases]
    assert again == cases
    assert list(map(repr, again)) == list(map(repr, cases))


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"x", Difference], ids=["object", "set", "bytes", "class"]
)
def test_what_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(NotPlain):
        to_plain(value)


@pytest.mark.parametrize(("law_id", "fault", "sizes", "ids"), SMALLEST)
def test_a_failing_case_shrinks_to_the_same_small_one(
    law_id: str, fault: str, sizes: str, ids: str
) -> None:
    law = laws.REGISTRY[law_id]
    with FAULTS[fault]:
        case = first_failing(law)
        small = shrunk(law, StepsSubject, case)
        assert small == shrunk(law, StepsSubject, case)
        before, after = (failure(law, StepsSubject, c) for c in (case, small))
    assert before is not None
    assert after is not None
    assert before.kind == after.kind
    assert (sizes in str(small), ids in str(small)) == (True, True)


def test_a_case_that_holds_stays_as_it_is() -> None:
    case = next(full_cases(1))
    assert shrunk(CAUSALITY, StepsSubject, case) is case


@pytest.mark.parametrize("case", [*islice(mixed_cases(6), 3, 6)], ids=lambda c: f"seed-{c.seed}")
def test_every_smaller_case_is_a_valid_one(case: Case) -> None:
    law = laws.REGISTRY["decoder.recomputation"]
    candidates = list(smaller(case))
    assert [c for c in candidates if failure(law, StepsSubject, c) is not None] == []
    assert len(candidates) > 10


@pytest.mark.parametrize("case", [*islice(truth_cases(9), 4, 7, 2)], ids=lambda c: f"seed-{c.seed}")
def test_every_smaller_case_of_a_regime_is_a_valid_one(case: Case) -> None:
    law = laws.REGISTRY["truth.logits"]
    candidates = list(smaller(case))
    assert [c for c in candidates[::6] if failure(law, StepsSubject, c) is not None] == []
    assert len(candidates) > 10


def test_a_case_of_a_regime_shrinks_to_what_the_fault_needs() -> None:
    law = laws.REGISTRY["truth.logits"]
    with FAULTS["packed-segments-leak"]:
        small = shrunk(law, StepsSubject, first_failing(law))
    told = "regime values=dyadic, layout=packed; dyadic weights from seed 0; V=2 D=2"
    assert str(small).startswith(told)
    assert small.segments == ((1, 1),)


def law_on(check: Callable[[Any], bool], name: str = "truth.logits") -> Law:
    """A law of these cases that fails where the check says so."""
    wrong = Difference(what="z", expected="1", actual="2", at=(0,))
    return replace(laws.REGISTRY[name], check=lambda _, case: wrong if check(case) else None)


@pytest.mark.parametrize(
    ("needed", "overrides"),
    [
        (lambda _: True, ()),
        (lambda values: len(values) > 1, (0.0, 0.0)),
        (lambda values: any(v < 0.0 for v in values), (-1.0,)),
        (lambda values: any(v > 1.0 for v in values), (2.0,)),
        (lambda values: any(v > 1e16 for v in values), (1e17,)),
    ],
    ids=["none", "two", "negative", "above-1", "large"],
)
def test_weights_set_by_hand_shrink_to_none_or_to_small_whole_numbers(
    needed: Callable[[list[float]], bool], overrides: tuple[float, ...]
) -> None:
    name, values = "final_norm.gain", (1e17, -0.3, 5e-324)
    given = tuple(Override(name=name, place=i, value=v) for i, v in enumerate(values))
    case = case_of(Sizes(B=2, T=3, V=4, L=2, heads=2), 9, Regime(norm="spiky"), overrides=given)
    law = law_on(lambda c: needed([o.value for o in c.overrides]))
    small = shrunk(law, StepsSubject, case)
    assert tuple(o.value for o in small.overrides) == overrides
    config, regime = small.config, small.regime
    sizes = (len(small.ids), len(small.ids[0]), config.layers, config.heads, config.model_width)
    assert (sizes, regime) == ((1, 1, 0, 1, 2), Regime(values="dyadic"))


def test_a_regime_that_the_failure_needs_stays() -> None:
    case = case_of(Sizes(T=3), 9, Regime(norm="spiky", attention="hot", logits="thousand"))
    small = shrunk(law_on(lambda c: c.regime.norm == "spiky"), StepsSubject, case)
    assert small.regime == Regime(norm="spiky", values="dyadic")


def test_weights_shrink_to_small_eighths() -> None:
    small = shrunk(law_on(lambda _: True, "decoder.raw-sum"), StepsSubject, next(full_cases(1)))
    flat = [x for value in small.weights.values() for x in np.ravel(value)]
    assert small.dyadic
    assert all(abs(x) <= 2.0 and (8.0 * x).is_integer() for x in flat)


def test_values_of_parts_shrink_to_the_plainest_that_the_law_is_tried_on() -> None:
    law = law_on(lambda _: True, "norm.definition")
    assert shrunk(law, StepsSubject, Draw(seed=7, size=3, regime="tiny")).regime == "uniform"
    needing = law_on(lambda draw: draw.regime == "tiny", "norm.definition")
    assert shrunk(needing, StepsSubject, Draw(seed=7, size=3, regime="tiny")).regime == "tiny"


def test_a_replay_without_what_came_later_is_read(stored: Path) -> None:
    facts = json.loads(stored.read_text("utf-8"))
    del facts["case"]["dyadic"]
    stored.write_text(json.dumps(facts), encoding="utf-8")
    assert read(stored).case.dyadic is False


def at(what: str, *index: int) -> Difference:
    return Difference(what=what, expected="1.0", actual="2.0", at=index)


@pytest.mark.parametrize(
    ("difference", "place"),
    [
        (at("logits", 1, 2, 3), "logits, row 1, position 2, token 3"),
        (at("logits of row 0 alone", 2, 3), "logits, position 2, token 3"),
        (at("gradient of blocks.1.attention.query.weight", 0, 3),
         "layer 1, attention query, head 1, input 0, output 3"),
        (at("gradient of blocks.0.attention.output.weight", 3, 0),
         "layer 0, attention output, head 1, input 3, output 0"),
        (at("gradient of blocks.0.ffn.gate.weight", 3, 0),
         "layer 0, feed-forward gate, input 3, output 0"),
        (at("gradient of blocks.0.ffn_norm.gain", 1),
         "layer 0, norm before feed-forward, feature 1"),
        (at("gradient of final_norm.gain", 1), "final norm, feature 1"),
        (at("gradient of token_embedding.weight", 4, 1),
         "token table (embedding and head), token 4, feature 1"),
        (at("mean loss"), "loss"),
        (at("words of seed 3"), None),
    ],
    ids=lambda value: getattr(value, "what", ""),
)  # fmt: skip
def test_a_place_is_told_in_the_words_of_a_decoder(
    difference: Difference, place: str | None
) -> None:
    case = next(c for c in full_cases(20) if (c.config.model_width, c.config.heads) == (4, 2))
    assert place_of(difference, case) == place


@pytest.mark.parametrize("law", ["decoder.scalar-bits", "published.logits", "truth.logits"])
def test_a_right_forward_leaves_the_scalar_decoders_nowhere(law: str) -> None:
    cases = islice(laws.REGISTRY[law].cases(8), 8)
    assert [place for case in cases if (place := divergence(StepsSubject, case))] == []


@pytest.mark.parametrize(
    ("fault", "stage"),
    [
        ("score-divided-by-root", "layer 0, attention probabilities, row 0, head 1, position 2"),
        ("frequency-by-exp-log", "layer 0, attention query, rotated, row 1, head 0, position 1"),
        ("one-branch-sigmoid", "layer 0, sum after feed-forward, row 0, position 0"),
        ("inverse-root-by-sqrt", "final norm, row 0, position 1"),
    ],
)
def test_the_first_stage_that_is_wrong_is_told(fault: str, stage: str) -> None:
    law = laws.REGISTRY["decoder.scalar-bits"]
    with FAULTS[fault]:
        place = divergence(StepsSubject, first_failing(law))
    assert str(place).startswith(stage)


def test_without_taps_or_a_batch_there_is_no_stage() -> None:
    case = next(full_cases(1))
    assert divergence(Untapped, case) is None
    assert divergence(StepsSubject, next(iter(laws.REGISTRY["gather.duplicates"].cases(1)))) is None


class Untapped(StepsSubject):
    capabilities: Mapping[str, bool] = {}


class Rough(StepsSubject):
    """Logits a little off; it promises no bits."""

    capabilities: Mapping[str, bool] = {"taps": True}
    factor = 1.0 + 2.0**-40

    def taps(self, ids: Any, layout: Any = None) -> Any:
        taps = super().taps(ids, layout)
        return taps | {"logits": taps["logits"] * self.factor}


class Wrong(Rough):
    factor = 1.01


def test_rounding_is_no_divergence_where_no_bits_are_promised() -> None:
    case = next(c for c in full_cases(6) if c.config.layers == 1)
    assert divergence(Rough, case) is None
    assert str(divergence(Wrong, case)).startswith("logits, row 0, position 0, token ")
