"""The package, the commands and the tree of the README, and what importing costs."""

import argparse
import configparser
import fnmatch
import importlib
import importlib.metadata
import importlib.resources
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings

import logitproof
from logitproof.properties import cli, profiles
from logitproof.properties.demos.command import DEMOS
from logitproof.suite.plugin import OPTIONS

# What the table of public names promises, module by module.
PUBLIC = {
    "logitproof.core": """
        floats SplitMix64 RECORDING NO_GRAD Tensor constant Parameter ops BpeTokenizer Embedding
        Linear RmsNorm SwiGlu Attention DecoderBlock DecoderBlockConfig DecoderConfig Decoder
        SequenceLayout InputEncoder TextInputEncoder PreparedDecoderInput DecoderBackbone
        TextOutputHead KvCache DecodeSession ModelRecord RunRecord census plan admit Plan
        Admission AdmissionRefusal Refusal Context Trace
    """,
    "logitproof.core.floats": "exp log log1p sin cos pow",
    "logitproof.core.ops": """
        add mul sum mean reshape transpose broadcast_to matmul gather_rows exp log silu
        log_softmax causal_softmax rotary indexed_mean_nll
    """,
    "logitproof.properties": "DecoderUnderTest",
    "logitproof.properties.laws": "REGISTRY",
    "logitproof.properties.faults": "REGISTRY",
    "logitproof.properties.oracles": "",
    "logitproof.properties.scalar": "",
    "logitproof.properties.strategies": "",
    "logitproof.properties.bounds": "",
}
ROOT = Path(__file__).parent.parent
ELSEWHERE = {"properties/suite": "logitproof.suite"}  # a name for the command line of pytest
FOLDERS = {"core": "logitproof.core", "properties": "logitproof.properties",
           "golden": "logitproof.golden"}  # fmt: skip
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
# By its place: build metadata in the checkout would answer to the name as well.
(INSTALLED,) = importlib.metadata.distributions(
    name="logitproof", path=[sysconfig.get_path("purelib")]
)
TOP = {
    "core", "properties", "golden", "tests", "pyproject.toml", "tox.ini", "README.md", "LICENSE",
    "CHANGELOG.md",
}  # fmt: skip
# What a checkout may hold beside that, never tracked: environments, caches, build results.
UNTRACKED = shutil.ignore_patterns(
    ".*cache", ".git", ".tox", ".venv", ".hypothesis", ".benchmarks", "build", "*.egg-info",
    "__pycache__",
)  # fmt: skip
# Folders of these names hold no machine's files: the text of this pattern must not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.-])/(?:work|farm|tmp|root|home|Users)/")


def package_folders() -> dict[str, str]:
    """Each package and the folder it lies in, as the folders show it."""
    found = {"logitproof": "core/_root"}
    for folder, package in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT / folder).parts
            place = "/".join((folder, *parts))
            if parts != ("_root",):
                found[ELSEWHERE.get(place, ".".join((package, *parts)))] = place
    return found


def fenced(marker: str) -> str:
    """The text of the fenced block that stands after the comment `<!-- marker -->`."""
    after = README.split(f"<!-- {marker} -->\n", maxsplit=1)[1]
    return after.split("```", maxsplit=2)[1].split("\n", maxsplit=1)[1]


def tree_entries() -> list[str]:
    """The paths that the README's tree names, patterns included."""
    folders: list[str] = []
    entries = []
    for line in fenced("tree").splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        folders[depth:] = [name]
        entries.append("".join(folders))
    return entries


def covers(entry: str, path: str, entries: list[str]) -> bool:
    """Whether an entry names the path; a folder with nothing below it stands for its contents."""
    if entry.endswith("/"):
        is_leaf = not any(other != entry and other.startswith(entry) for other in entries)
        return is_leaf and path.startswith(entry)
    return fnmatch.fnmatch(path, entry)


def python_modules() -> list[str]:
    paths = [path for folder in (*FOLDERS, "tests") for path in (ROOT / folder).rglob("*.py")]
    return sorted(path.relative_to(ROOT).as_posix() for path in paths if path.stem != "__init__")


def texts() -> Iterator[tuple[str, str]]:
    """The project's own text files."""
    for top in (*TOP, ".ci", ".gitignore"):
        for path in sorted([ROOT / top, *(ROOT / top).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


class Helpful(argparse.ArgumentParser):
    """Keeps every parser made of this class: a command's own and those of its actions."""

    made: ClassVar[list[argparse.ArgumentParser]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made.append(self)


def options_of_commands() -> set[str]:
    """The options that the commands and their actions know."""
    Helpful.made.clear()
    for name in cli.COMMANDS:
        cli.command_module(name).add_arguments(Helpful())
    return set(re.findall(r"--[a-z-]+", " ".join(parser.format_help() for parser in Helpful.made)))


def floor(requirement: str) -> str:
    return requirement.replace(">=", "==")


def test_pyproject_lists_every_package() -> None:
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == set(package_folders())


def test_no_folder_of_data_can_be_taken_for_a_module() -> None:
    """Packaging takes a folder for a package where its name could be imported."""
    packages = {ROOT / place for place in package_folders().values()}
    folders = {path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")}
    data = [folder for folder in folders - packages if folder.name != "__pycache__"]
    assert [folder.name for folder in data if folder.name.isidentifier()] == []


def test_pyproject_maps_every_package_to_its_folder() -> None:
    assert PROJECT["tool"]["setuptools"]["package-dir"] == package_folders()


@pytest.mark.parametrize("package", ["logitproof", *FOLDERS.values()])
def test_types_are_shipped(package: str) -> None:
    assert importlib.resources.files(package).joinpath("py.typed").is_file()


def test_the_distribution_installs_one_package() -> None:
    files = INSTALLED.files or []
    assert files != []
    tops = {file.parts[0] for file in files if file.parts[0] != ".."}
    ours = re.compile(r"logitproof(-.*\.dist-info)?|__editable__.*logitproof.*|__pycache__")
    assert [top for top in tops if not ours.fullmatch(top)] == []


def test_the_version_has_one_home() -> None:
    assert INSTALLED.version == logitproof.__version__
    assert f"## [{logitproof.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "version" not in PROJECT["project"]


def test_lowest_pins_the_floors() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    floors = [floor(requirement) for requirement in PROJECT["project"]["dependencies"]]
    assert tox["testenv:lowest"]["deps"].split() == floors


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a checkout knows what is tracked")
def test_the_top_level_holds_the_agreed_entries() -> None:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    tops = {line.split("/")[0] for line in listed.splitlines()}
    assert {top for top in tops if not top.startswith(".")} <= TOP


def test_no_file_names_a_path_of_one_machine() -> None:
    assert [name for name, text in texts() if MACHINE_PATH.search(text)] == []


@pytest.mark.parametrize("name", ["root", "tmp", "home"])
def test_a_planted_machine_path_is_caught(name: str) -> None:
    assert MACHINE_PATH.search(f"open('/{name}/x')")


@pytest.mark.parametrize("entry", tree_entries())
def test_the_tree_of_the_readme_exists(entry: str) -> None:
    assert list(ROOT.glob(entry.rstrip("/"))) != []


@pytest.mark.parametrize("module", python_modules())
def test_the_tree_of_the_readme_names_every_module(module: str) -> None:
    entries = tree_entries()
    assert any(covers(entry, module, entries) for entry in entries)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    shown = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run"), "--command"], capture_output=True, text=True, check=True
    ).stdout
    assert shown == fenced("command: test")
    assert shown.count("\n") == 1


def test_every_environment_of_tox_has_a_line_in_the_readme() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    names = [name.removeprefix("testenv:") for name in tox if name.startswith("testenv:")]
    assert [name for name in names if f"`{name}`" not in README] == []


# Only one environment pays for it; outside tox it always runs.
@pytest.mark.skipif(
    os.environ.get("TOX_ENV_NAME", "py311") != "py311", reason="py311 runs it for all environments"
)
def test_the_main_command_of_the_readme_holds_from_nothing(tmp_path: Path) -> None:
    copy = shutil.copytree(ROOT, tmp_path / "copy", ignore=UNTRACKED)
    done = subprocess.run(
        ["bash", "-c", fenced("command: main")],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # where pip may warn
    assert done.stdout != ""


@pytest.mark.parametrize("line", fenced("commands").splitlines())
def test_a_command_of_the_readme_holds(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(line)
    assert (program, cli.main(arguments)) == ("logitproof", 0)
    assert capsys.readouterr().out != ""


@pytest.mark.parametrize("name", [*cli.COMMANDS, *DEMOS])
def test_the_readme_names_every_command_and_demo(name: str) -> None:
    assert f"`{name}`" in README


@pytest.mark.parametrize("option", sorted(set(re.findall(r"--[a-z][a-z-]+", README))))
def test_an_option_of_the_readme_exists(option: str) -> None:
    # Of pip and pytest, of a decoder in an example, and of our plugin.
    foreign = {"--group", "--quiet", "--pyargs", "--flag"}
    foreign |= {"--hypothesis-profile", "--hypothesis-seed"}
    plugin = {f"--logitproof-{name}" for name in OPTIONS}
    assert option in foreign | plugin | options_of_commands()


def test_the_example_of_the_readme_runs() -> None:
    example = README.split("```python\n")[1].split("```")[0]
    done = python("-c", example)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_core_costs_numpy_only() -> None:
    text = "import sys, logitproof.core; print({'mpmath', 'hypothesis', 'pytest'} & {*sys.modules})"
    assert python("-c", text).stdout == "set()\n"


@pytest.mark.parametrize(("module", "names"), PUBLIC.items())
def test_every_public_name_is_there(module: str, names: str) -> None:
    public = importlib.import_module(module)
    assert [name for name in names.split() if not hasattr(public, name)] == []


def test_a_bare_import_of_core_is_refused() -> None:
    done = python("-c", "import core")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("ImportError: import logitproof.core")


@pytest.mark.parametrize(
    ("name", "examples", "varies"), [("quick", 25, "no"), ("ci", 60, "no"), ("soak", 250, "yes")]
)
def test_a_profile_is_complete_and_as_the_readme_says(
    name: str, examples: int, varies: str
) -> None:
    profile = settings.get_profile(name)
    assert f"| `{name}` | {examples} | {varies}" in README
    assert profile.max_examples == examples
    assert profile.deadline is None
    assert tuple(profile.suppress_health_check) == ()
    assert profile.derandomize == (name != "soak")
    assert (profile.database is None) == (name != "soak")


def test_the_profile_that_varies_draws_a_seed_and_says_it() -> None:
    asked = ("--hypothesis-profile=soak", "--collect-only", "-p", "no:cacheprovider")
    drawn = python("-m", "pytest", *asked, "tests/test_sizes.py").stdout
    given = python("-m", "pytest", *asked, "--hypothesis-seed=7", "tests/test_sizes.py").stdout
    assert re.search(r"^drawn from --hypothesis-seed=\d+$", drawn, re.MULTILINE)
    assert "drawn from --hypothesis-seed=7" in given


def test_the_profile_of_the_command_line_takes_precedence() -> None:
    wanted = ("--verbose", "--hypothesis-profile=ci", "--collect-only", "-p", "no:cacheprovider")
    done = python("-m", "pytest", *wanted, "tests/test_sizes.py")
    assert done.returncode == 0
    assert "hypothesis profile 'ci'" in done.stdout


@pytest.mark.parametrize(("name", "examples"), [(None, 25), ("quick", 25), ("ci", 60)])
def test_the_profile_comes_from_the_environment(
    name: str | None, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(profiles.VARIABLE, raising=False)
    environment = {**os.environ, **({} if name is None else {profiles.VARIABLE: name})}
    text = "import conftest, hypothesis; print(hypothesis.settings().max_examples)"
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=ROOT / "tests", env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{examples}\n"
