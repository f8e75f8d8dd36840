"""The page of `logitproof verify --html`: whole, escaped, and telling what the report tells."""

import json
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from logitproof.properties import cli, laws
from logitproof.properties.faults import REGISTRY as FAULTS
from logitproof.properties.laws.regimes import truth_cases
from logitproof.properties.laws.ulps import EDGES, added, ulp_counts
from logitproof.properties.subjects import StepsSubject
from logitproof.properties.verify.census import cells
from logitproof.properties.verify.command import verify
from logitproof.properties.verify.matrix import KillMatrix
from logitproof.properties.verify.page import by_family, page
from logitproof.properties.verify.report import Report
from logitproof.properties.verify.running import Plan

FEW = {i: law for i, law in laws.REGISTRY.items() if i.startswith("decoder.p")}
EVIL = '<script>alert("1")</script>&'
MATRIX = KillMatrix(
    faults=("seen", "unseen"),
    laws=("a.b", "c.d", "e.f"),
    killed=((True, False, None), (False,) * 3),
)
VOID = {"meta", "br", "link", "img"}


class Elements(HTMLParser):
    """Every element that is opened; it fails on one that is closed out of turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open += [tag] if tag not in VOID else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def elements(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    found.close()
    return found


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Report:
    replays, plan = tmp_path_factory.mktemp("replays"), Plan(decoder="core", examples=4)
    with FAULTS["mask-off-by-one"]:
        return verify(FEW, StepsSubject, plan, "quick", replays, lambda _: None)


def test_the_page_is_well_formed_without_scripts_or_fetches(broken: Report) -> None:
    found = elements(page(broken, MATRIX))
    assert found.open == []
    assert not {"script", "link", "img", "iframe"} & {*found.names}
    assert not {"src", "href", "onload", "onclick"} & found.attributes
    assert "url(" not in page(broken, MATRIX)


def test_the_page_tells_verdicts_failures_and_environment(broken: Report) -> None:
    text = page(broken, None)
    assert [v.id for v in broken.verdicts if escape(v.statement) not in text] == []
    assert text.count('class="card"') == len(broken.failed) > 0
    assert [v.id for v in broken.failed if escape(v.difference or "") not in text] == []
    assert [v.id for v in broken.failed if f"logitproof replay {v.replay}" not in text] == []
    assert escape(broken.environment.c_library) in text
    assert f"{len(broken.failed)} of {len(broken.verdicts)} laws FAIL" in text


def test_every_text_is_escaped(broken: Report) -> None:
    verdicts = tuple(
        replace(v, id=f"x.{EVIL}", statement=EVIL, source=EVIL, missing=(EVIL,), case=EVIL,
                difference=EVIL, place=EVIL, replay=EVIL, regimes={f"{EVIL}={EVIL}": 1},
                ratios=(0.5,))
        for v in broken.verdicts
    )  # fmt: skip
    environment = replace(broken.environment, platform=EVIL)
    report = replace(broken, subject=EVIL, profile=EVIL, verdicts=verdicts, environment=environment)
    matrix = KillMatrix(faults=(EVIL,), laws=(EVIL,), killed=((True,),))
    found = elements(page(report, matrix))
    assert (found.open, found.names.count("script")) == ([], 0)
    assert EVIL not in page(report, matrix)


def test_the_page_shows_ratios_as_bars_and_histograms(broken: Report) -> None:
    measured = replace(broken.verdicts[0], ratios=(0.0, 1e-9, 0.031, 0.5, 1.0, 1.5))
    text = page(replace(broken, verdicts=(measured,)), None)
    assert "How near to the bound" in text
    assert "<title>above the bound: 1</title>" in text
    assert "<title>below 1e-4: 2</title>" in text
    assert "<title>0.32 to 1: 2</title>" in text
    assert 'aria-label="1.5 of the bound"' in text


def test_the_page_shows_how_many_ulps_away_entries_lie(broken: Report) -> None:
    ulps = (5, *(0,) * 6, 2, *(0,) * (len(EDGES) - 7))
    measured = replace(broken.verdicts[0], ratios=(0.5,), ulps=ulps, verdict="holds")
    text = page(replace(broken, verdicts=(measured,)), None)
    assert "<title>\N{LESS-THAN OR EQUAL TO}0.5 ulp: 5</title>" in text
    assert "<title>\N{LESS-THAN OR EQUAL TO}64 ulp: 2</title>" in text
    assert text.count(" ulp: ") == len(ulps)


def test_a_failure_shows_how_many_ulps_away_its_entries_lie(broken: Report) -> None:
    failed = next(v for v in broken.failed if sum(v.away) > 1)
    card = page(replace(broken, verdicts=(failed,)), None).partition('class="card"')[2]
    assert 'aria-label="entries by their distance in ulps"' in card


def test_a_failure_tells_what_the_bound_covers(broken: Report) -> None:
    failed = replace(broken.failed[0], grants={"norm": f"any order {EVIL}"})
    text = page(replace(broken, verdicts=(failed,)), None)
    assert f"<dt>covers</dt><dd>norm: any order {escape(EVIL)}</dd>" in text


def test_a_family_stands_in_one_piece_with_a_square_for_each_law(broken: Report) -> None:
    apart = (replace(broken.failed[0], id="a.x"), replace(broken.failed[0], id="b.y"),
             replace(broken.failed[0], id="a.z", verdict="holds"))  # fmt: skip
    text = page(replace(broken, verdicts=apart), None)
    assert [v.id for v in by_family(apart)] == ["a.x", "a.z", "b.y"]
    assert text.count('<div class="family bad"><b>a</b>\n<span>1 of 2</span>') == 1
    assert text.count('<tr class="family">') == 2


def test_the_page_shows_what_was_tried(broken: Report) -> None:
    text = page(broken, None)
    assert "<h3>weights</h3>" in text
    assert "<td>hot</td>" in text


def test_a_regime_that_was_never_tried_is_shown_as_such(broken: Report) -> None:
    verdict = replace(broken.verdicts[0], regimes={"attention=hot": 3, "attention=warm": 2})
    text = page(replace(broken, verdicts=(verdict,)), None)
    assert '<tr class="alarm"><td>cold</td>\n<td class="n">0</td>' in text
    assert '<tr><td>hot</td>\n<td class="n">3</td>' in text


def test_a_law_that_counts_a_kind_is_not_counted_twice() -> None:
    case = next(truth_cases(1))
    counted = cells(case, case.regime.cells)
    assert [cell for cell in counted if cell.startswith("layout=")] == ["layout=full"]


def test_the_page_shows_the_kill_matrix(broken: Report) -> None:
    text = page(broken, MATRIX)
    assert "Kill matrix: 1 of 2 faults killed" in text
    assert text.count('class="killed"') == 1
    assert text.count('class="survived"') == 4
    assert text.count('class="not-run"') == 1
    assert text.count('class="alarm">unseen<') == 1
    assert text.count(' class="alarm">') == 4  # two laws that see nothing; decoder: n of m hold


def test_a_kill_that_needs_more_examples_is_paler(broken: Report) -> None:
    matrix = replace(MATRIX, killed=((True,) * 3, (False,) * 3), examples=((1, 5, 6), (25,) * 3))
    text = page(broken, matrix)
    assert [text.count(f'class="killed{kind}"') for kind in ("", " early", " late")] == [1, 1, 1]
    assert "<title>seen / e.f: killed by 6 examples</title>" in text


def test_ulps_are_counted_by_doubling_bins() -> None:
    expected = np.array([1.0, 1.0, 1.0, 0.0, 1.0])
    counts = ulp_counts(2.0**-52 * np.array([0.0, 3.0, -4.0, 2.0**-1022, np.inf]), expected)
    assert counts == (1, 1, 0, 2, *(0,) * 9, 1)
    assert added((), counts) == counts == added(counts, ())


def test_without_a_matrix_there_is_no_heat_map(broken: Report) -> None:
    assert "Kill matrix" not in page(broken, None)


def test_the_command_writes_the_page_and_nothing_else(tmp_path: Path) -> None:
    matrix, html = tmp_path / "matrix.json", tmp_path / "page.html"
    facts = {"faults": ["a"], "laws": ["b.c"], "killed": [[True]], "cost": 3}
    matrix.write_text(json.dumps(facts), encoding="utf-8")
    arguments = ["verify", "--law", "published.losses", "--html", str(html)]
    assert cli.main([*arguments, "--kill-matrix", str(matrix)]) == 0
    assert "Kill matrix: 1 of 1 faults killed" in html.read_text("utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"matrix.json", "page.html"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"faults": ["a"], "laws": ["b"], "killed": []}',
        '{"faults": ["a"], "laws": ["b"], "killed": [[]]}',
        '{"faults": ["a"], "laws": ["b"], "killed": [["yes"]]}',
        '{"faults": ["a"], "laws": [1], "killed": [[true]]}',
        '{"faults": ["a"], "laws": ["b"], "killed": [[true]], "examples": [[1.5]]}',
        '{"faults": ["a"], "laws": ["b"], "killed": [[true]], "examples": [[1, 2]]}',
        '{"faults": "a", "laws": ["b"], "killed": [[true]]}',
    ],
)
def test_another_matrix_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(text, encoding="utf-8")
    arguments = ["--html", str(tmp_path / "p.html"), "--kill-matrix", str(tmp_path / "m.json")]
    assert cli.main(["verify", "--law", "published.losses", *arguments]) == 2
    assert not (tmp_path / "p.html").exists()
