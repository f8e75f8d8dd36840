import json
from pathlib import Path

import numpy as np
import pytest

from logitproof.properties.cli import main
from logitproof.properties.demos import embeddings, handwritten
from logitproof.properties.demos.agreement import Disagreement

UPSTREAM = (
    "1.000000000000,0.000000000000,0.000000000000,2.000000000000,3.000000000000,4.000000000000"
)
PUBLISHED = [
    "table: token_embedding.weight shape=4x2",
    "ids: shape=1x3 values=2,1,2",
    "output: shape=1x3x2 values=30.000000000000,31.000000000000,20.000000000000,21.000000000000,"
    "30.000000000000,31.000000000000",
    "one-hot multiplication equals lookup: true",
    f"upstream: shape=1x3x2 values={UPSTREAM}",
    "table gradient: shape=4x2 values=0.000000000000,0.000000000000,0.000000000000,"
    "2.000000000000,4.000000000000,4.000000000000,0.000000000000,0.000000000000",
]
FURTHER = [
    "unused rows: 0,3 gradient zero=true",
    "finite differences: coordinates=8 pass=true",
    "seed 18 construction: shape=4x2 values=-0.866189502163,0.428357379573,-0.138942418772,"
    "0.406836339729,-0.757847039327,0.836224277573,0.959717355841,-0.735694677390 "
    "reproducible=true",
    "clone: same node=true",
    "empty ids: shape=0x2 values=",
    "invalid id: position=0 id=4 vocabulary=4",
]
TRACE = """\
TRACE token-embeddings-v1 BEGIN
FIXTURE name=known-table-repeated-id parameter=token_embedding.weight vocabulary=4 width=2 \
table-shape=4x2 id-shape=1x3 output-shape=1x3x2 upstream-shape=1x3x2 gradient-shape=4x2 \
accumulation=scatter-add
IDS values=2,1,2 repeated-id=2 repeated-flat-positions=0,2
TABLE row=0 uses=0 state=unused values=10.000000000000,11.000000000000
TABLE row=1 uses=1 state=selected-once values=20.000000000000,21.000000000000
TABLE row=2 uses=2 state=selected-repeated values=30.000000000000,31.000000000000
TABLE row=3 uses=0 state=unused values=40.000000000000,41.000000000000
LOOKUP flat=0 coordinate=0,0 id=2 sharing=repeated-row one-hot=0,0,1,0 selected-row=2 \
output=30.000000000000,31.000000000000 upstream=1.000000000000,0.000000000000
LOOKUP flat=1 coordinate=0,1 id=1 sharing=single-row one-hot=0,1,0,0 selected-row=1 \
output=20.000000000000,21.000000000000 upstream=0.000000000000,2.000000000000
LOOKUP flat=2 coordinate=0,2 id=2 sharing=repeated-row one-hot=0,0,1,0 selected-row=2 \
output=30.000000000000,31.000000000000 upstream=3.000000000000,4.000000000000
ROW-GRADIENT row=0 flat-positions=none contributions=none rule=unused-zero \
accumulated=0.000000000000,0.000000000000
ROW-GRADIENT row=1 flat-positions=1 contributions=0.000000000000,2.000000000000 \
rule=single-copy accumulated=0.000000000000,2.000000000000
ROW-GRADIENT row=2 flat-positions=0,2 \
contributions=1.000000000000,0.000000000000|3.000000000000,4.000000000000 \
rule=repeated-sum accumulated=4.000000000000,4.000000000000
ROW-GRADIENT row=3 flat-positions=none contributions=none rule=unused-zero \
accumulated=0.000000000000,0.000000000000
TRACE token-embeddings-v1 END
"""
SEED_18 = """\
bfebb7d30bfdaa84 3fdb6a3512112be0 bfc1c8dd7c534f98 3fda099b497d8c20 bfe840486f28f13e \
3feac2596a898500 3feeb6012c17c110 bfe78acf90675a46"""


@pytest.mark.golden
def test_report_begins_with_the_six_published_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "embeddings"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "".join(line + "\n" for line in PUBLISHED + FURTHER)
    assert printed.err == ""


@pytest.mark.golden
def test_trace_is_the_15_published_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "embeddings", "--trace"]) == 0
    printed = capsys.readouterr().out
    assert printed == TRACE
    assert printed.count("\n") == 15


@pytest.mark.golden
def test_seed_18_construction_has_the_published_bits() -> None:
    drawn = np.array(embeddings.report()["checks"]["drawn_table"]["values"])
    assert [f"{word:016x}" for word in drawn.view(np.uint64)] == SEED_18.split()


def test_no_value_prints_as_negative_zero(capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "embeddings"])
    main(["demo", "embeddings", "--trace"])
    assert "-0.000000000000" not in capsys.readouterr().out


def test_one_hot_row_of_id_2_is_the_published_one() -> None:
    product = handwritten.one_hot_product(embeddings.TABLE.tolist(), [2])
    assert product.indicators == [[0.0, 0.0, 1.0, 0.0]]
    assert product.values == [[30.0, 31.0]]


def test_json_holds_the_same_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "facts.json"
    assert main(["demo", "embeddings", "--trace", "--json", str(file)]) == 0
    facts = json.loads(file.read_text())
    assert facts == embeddings.report()
    assert embeddings.report_lines(facts) == PUBLISHED + FURTHER
    assert "\n".join(embeddings.trace_lines(facts)) + "\n" == capsys.readouterr().out


def test_a_disagreement_prints_no_line_and_exits_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(handwritten, "_dot", lambda *_: 30.0)
    assert main(["demo", "embeddings"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("ids", [(2, 1, 0), (2, 1, 1, 2)])
def test_a_fixture_without_exactly_one_repeated_id_is_a_disagreement(
    ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "IDS", ids)
    monkeypatch.setattr(embeddings, "ID_SHAPE", (1, len(ids)))
    monkeypatch.setattr(embeddings, "UPSTREAM", np.ones((1, len(ids), 2)))
    with pytest.raises(Disagreement, match="exactly one repeated id"):
        embeddings.report()


def test_every_figure_follows_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "TABLE", embeddings.TABLE + 0.5)
    monkeypatch.setattr(embeddings, "IDS", (3, 0, 3))
    monkeypatch.setattr(embeddings, "UPSTREAM", embeddings.UPSTREAM + 1.0)
    changed = embeddings.report_lines(embeddings.report())
    same = [old for old, new in zip(PUBLISHED, changed, strict=False) if old == new]
    assert same == [PUBLISHED[0], PUBLISHED[3]]
    assert changed[6] == "unused rows: 1,2 gradient zero=true"
