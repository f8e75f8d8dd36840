"""Every figure of the fixtures is a case that holds its numbers, or is left out for a reason."""

import json
import re
from collections import Counter
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import pytest

from logitproof.golden import figures, load
from logitproof.golden.load import Case, cells

pytestmark = pytest.mark.golden

BESIDE = load.folder().parent
INDEX = load.unique_json((BESIDE / "figure-index-v1.json").read_text("ascii"), "figure-index")
ROWS: list[dict[str, Any]] = INDEX["figures"]
HELD = [row for row in ROWS if "cases" in row]
CASES = {case.id: case for case in load.read()}
PAGE = (BESIDE / "FORMAT.md").read_text("utf-8")
REASONS = set(re.findall(r"^\| `([a-z-]+)` \|", PAGE.partition("excluded as")[2], re.MULTILINE))
# How many rows each section of the two texts has here; a section is never cut short.
SECTIONS = {
    "fixtures.md section 1": 16,
    "fixtures.md section 2": 35,
    "fixtures.md section 3": 25,
    "fixtures.md section 4": 8,
    "fixtures_derived.md section 1": 17,
    "fixtures_derived.md section 2": 5,
    "fixtures_derived.md section 3": 18,
}


def section_of(case: Case) -> Any:
    """What figures-v1.json holds of a case that points there, its model included."""
    held = getattr(figures.figures(), case.setup["section"].replace("c_library_", ""))
    if isinstance(held, dict):
        held = held[case.setup["id"]]
    if isinstance(held, list):
        (held,) = [item for item in held if getattr(item, "id", "") == case.setup["id"]]
    config = figures.figures().configs.get(getattr(held, "config", ""))
    return [asdict(held), asdict(config) if config else None]


def numbers(value: Any) -> set[Any]:
    """Texts, and every number as the real number that it stands for."""
    if isinstance(value, dict) and "hi" in value:
        pairs = zip(cells(value, "hi"), cells(value, "lo"), strict=True)
        return {Fraction(hi) + Fraction(lo) for hi, lo in pairs} | numbers(value["shape"])
    if isinstance(value, dict) and ("f64" in value or "i64" in value):
        name = "f64" if "f64" in value else "i64"
        words = set(" ".join(value[name]).split())
        finite = {Fraction(x) for x in cells(value, name) if abs(x) < float("inf")}
        return words | finite | numbers(value["shape"])
    if isinstance(value, dict):
        return {x for inner in value.values() for x in numbers(inner)}
    if isinstance(value, list):
        return {x for inner in value for x in numbers(inner)}
    return {value} if isinstance(value, str) else {Fraction(value or 0)}


def holds(found: set[Any], wanted: str) -> bool:
    """Whether a number is there: as text, as bits, as its nearest double or to 30 digits."""
    if wanted in found or any(isinstance(x, str) and wanted in x.split() for x in found):
        return True
    try:
        real = Fraction(wanted)
    except ValueError:  # a digest, bits or a name
        return False
    near = real.numerator / real.denominator
    close = any(abs(x - real) <= abs(real) / 10**30 for x in found if isinstance(x, Fraction))
    return close or Fraction(near) in found or figures.to_bits(near) in found


@pytest.mark.parametrize("row", HELD, ids=lambda row: row["figure"][:60])
def test_the_cases_of_a_figure_hold_its_numbers(row: dict[str, Any]) -> None:
    cases = [CASES[name] for name in row["cases"]]
    found = numbers([[c.setup, c.input, c.expect] for c in cases])
    found |= numbers([section_of(c) for c in cases if c.kind == "figure"])
    assert [wanted for wanted in row.get("holds", []) if not holds(found, wanted)] == []


def test_a_figure_is_held_or_left_out() -> None:
    assert [row["figure"] for row in ROWS if ("cases" in row) == ("excluded" in row)] == []


def test_every_reason_is_told_on_the_page_and_used() -> None:
    assert {row["excluded"] for row in ROWS if "excluded" in row} == REASONS


def test_every_section_has_its_rows() -> None:
    assert Counter(row["source"] for row in ROWS) == SECTIONS


def test_no_row_occurs_twice() -> None:
    seen = Counter((row["source"], row["figure"]) for row in ROWS)
    assert [row for row, times in seen.items() if times > 1] == []


def test_every_published_case_stands_in_the_index_or_has_another_source() -> None:
    listed = {name for row in HELD for name in row["cases"]}
    missing = [
        case.id
        for case in CASES.values()
        if case.origin == "published" and case.id not in listed and "fixtures" in case.source
    ]
    assert missing == []


@pytest.mark.parametrize("wanted", ["0.999152", "1188", "4016ac70bf03b621", "decoder-x-v1"])
def test_another_number_is_not_held(wanted: str) -> None:
    attention = CASES["published/attention"]
    assert not holds(numbers([attention.input, attention.expect]), wanted)


def test_the_index_is_of_its_format() -> None:
    assert INDEX["format"] == "logitproof-figure-index-v1"
    assert {key for row in ROWS for key in row} <= {
        "source",
        "figure",
        "holds",
        "cases",
        "excluded",
    }
    assert json.dumps(INDEX, ensure_ascii=True).isascii()
