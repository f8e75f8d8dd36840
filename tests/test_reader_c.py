"""The reader in C99 agrees with the cases bit for bit, and names what it does not agree with."""

import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from logitproof.golden import lines, load

pytestmark = pytest.mark.golden

SOURCE = resources.files("logitproof.golden").joinpath("reader-c", "check_matmul.c").read_text()
COMPILER = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
OPTIONS = ["-std=c99", "-O2", "-ffp-contract=off"]
TEXT = lines.text(load.read())
NAME = "operations/matmul-long-warm"
BLOCK = TEXT[TEXT.index(f"case {NAME}\n") :].split("end\n")[0]
LINE = {line.split()[0]: line for line in BLOCK.splitlines()}
TURNED = LINE["value"].replace("f64 2 2 3 ", "f64 2 3 2 ")
ASCENDING = "for (k = 0; k < K; k++)"
ROUNDED_TWICE = "s = s + product;"

needs_a_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")


def compiled(source: str, folder: Path) -> Path:
    text, program = folder / "check_matmul.c", folder / "check_matmul"
    text.write_text(source)
    assert COMPILER is not None
    subprocess.run([COMPILER, *OPTIONS, "-o", str(program), str(text), "-lm"], check=True)
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("reader-c"))


def verdict(program: Path, text: str, folder: Path) -> tuple[int, str]:
    path = folder / "operations.txt"
    path.write_bytes(text.encode())
    done = subprocess.run([program, path], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def flipped(line: str, word: int) -> str:
    """The line with the last bit of a cell changed, counted among the words of 16 digits."""
    cells = [part for part in line.split() if len(part) == 16]
    changed = f"{int(cells[word], 16) ^ 1:016x}"
    return line.replace(cells[word], changed, 1)


@needs_a_compiler
def test_every_product_has_the_bits_of_the_file(program: Path, tmp_path: Path) -> None:
    code, said = verdict(program, TEXT, tmp_path)
    cases = [c for c in load.read() if c.kind == "operation" and c.refusal is None]
    products = [case for case in cases if case.setup["op"] == "matmul" and "value" in case.expect]
    words = sum(len(load.cells(case.expect["value"])) for case in products)
    assert len(products) > 5
    counted = f"{len(products)} of {len(cases)} cases are products with exact values"
    assert (code, said) == (0, f"{counted}: {words} words compared, all equal\n")


@needs_a_compiler
@pytest.mark.parametrize("word", [0, 3, 5])
def test_a_changed_bit_of_a_result_is_named(program: Path, tmp_path: Path, word: int) -> None:
    changed = flipped(LINE["value"], word)
    code, said = verdict(program, TEXT.replace(LINE["value"], changed, 1), tmp_path)
    cells = [[p for p in line.split() if len(p) == 16][word] for line in (changed, LINE["value"])]
    place = f"{NAME}: value, word {word}: the file has {cells[0]}, computed {cells[1]}\n"
    assert (code, said) == (1, place)


@needs_a_compiler
@pytest.mark.parametrize(
    ("written", "other"),
    [
        (ASCENDING, "for (k = K; k-- > 0;)"),
        (ROUNDED_TWICE, "s = fma(left[k], right[k * C], s);"),
        (ROUNDED_TWICE, "s = (float)(s + product);"),
    ],
)
def test_another_order_or_rounding_is_noticed(written: str, other: str, tmp_path: Path) -> None:
    assert written in SOURCE
    source = SOURCE.replace(written, other).replace(
        "#include <float.h>", "#include <float.h>\n#include <math.h>"
    )
    code, said = verdict(compiled(source, tmp_path), TEXT, tmp_path)
    assert code == 1
    assert re.match(r"operations/matmul-[\w-]+: value, word \d+: the file has ", said)


@needs_a_compiler
@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (TEXT[: TEXT.rindex("cases ")], "the file is cut off"),
        (TEXT[: TEXT.rindex("end\n")], "the file ends inside a case"),
        (TEXT[:-1], "the last line has no end"),
        (TEXT + "\n", "the number of cases is another"),
        (TEXT.replace("\nend\n", "\n", 1), "the case before has no end"),
        (TEXT.replace(LINE["value"], LINE["value"][:-1], 1), "16 hex digits are wanted"),
        (TEXT.replace(LINE["value"], LINE["value"][:-17], 1), "16 hex digits are wanted"),
        (TEXT.replace(LINE["value"], f"{LINE['value']} {16 * '0'}", 1), "more cells"),
        (TEXT.replace(LINE["value"], TURNED, 1), "not those of a product"),
        (TEXT.replace(LINE["value"], "v" + LINE["value"], 1), "an unknown key"),
        (TEXT.replace(LINE["value"] + "\n", "", 1), "an exact product has a value"),
        (TEXT.replace("operations-v1", "operations-v2", 1), "not a file of"),
        (TEXT.replace(BLOCK + "end\n", "", 1), "the number of cases is another"),
    ],
)
def test_another_form_is_refused_with_its_line(
    program: Path, tmp_path: Path, text: str, fact: str
) -> None:
    code, said = verdict(program, text, tmp_path)
    assert (code, said.count("\n"), fact in said) == (2, 1, True)
    assert re.match(r"line \d+: ", said)
