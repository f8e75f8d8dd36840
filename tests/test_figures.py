"""The published figures are read strictly: nothing unknown, missing, twice or of another type."""

import json
from importlib import resources
from typing import Any

import pytest

from logitproof.golden import figures

pytestmark = pytest.mark.golden

TEXT = resources.files("logitproof.golden").joinpath(figures.FILE).read_text(encoding="ascii")


def changed(*path: Any, value: Any) -> str:
    """The file with one value replaced."""
    raw = json.loads(TEXT)
    place = raw
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(raw)


def test_the_file_is_read() -> None:
    assert figures.parse(TEXT) == figures.figures()
    assert " ".join(figures.figures().runs) == "T1 T2 R1 R2 R3 R4 B1 B2 B3 B4"


@pytest.mark.parametrize(
    "text",
    [
        changed("format", value="logitproof-figures-v2"),
        changed("colour", value="red"),
        changed("runs", 0, "colour", value="red"),
        changed("runs", 0, "seed", value="39"),
        changed("runs", 0, "depth_scaled", value=1),
        changed("runs", 0, "loss", value="4016AC70BF03B620"),
        changed("runs", 0, "logits_digest", value="41604c9d"),
        changed("table_gradient", "row", value=None),
        changed("words", "words", value=["1"]),
        changed("c_library_probes", value=[]),
        TEXT.replace('"seed": 39', '"seed": 39.0', 1),
        TEXT.replace('"seed": 39', '"seed": NaN', 1),
        TEXT.replace('"seed": 39', '"seed": 39, "seed": 39', 1),
        TEXT.replace('"seed": 39,', "", 1),
        "[]",
    ],
)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        figures.parse(text)


@pytest.mark.parametrize("value", [0.0, -0.0, 5e-324, -1.5, 1.7976931348623157e308])
def test_bits_name_the_double(value: float) -> None:
    assert figures.from_bits(figures.to_bits(value)).hex() == value.hex()
