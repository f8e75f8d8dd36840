"""The laws from a decoder's own test suite: `pytest --pyargs logitproof.suite`."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from logitproof.properties.verify.command import add_arguments
from logitproof.suite.plugin import OPTIONS

MODULE = """
import time
from logitproof.properties.subjects import ScalarSubject

class Good(ScalarSubject): pass

class Ahead(ScalarSubject):
    def logits(self, ids, layout=None):
        return super().logits([[*row[:-1], 0] for row in ids], layout)

class Sleeping(ScalarSubject):
    def logits(self, ids, layout=None): time.sleep(60)

def exiting(): raise SystemExit(0)
"""
KNOWN = """
[[known]]
law = "decoder.prefix-causality"
reason = "mask is one off"
link = "https://example.org/7"
expires = 2999-01-31
"""
LAWS = "--logitproof-law=decoder.[pr][re]*"  # prefix-causality, recomputation, refused-*


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "plugin_decoder.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "known.toml").write_text(KNOWN, encoding="utf-8")
    return tmp_path


def run(own: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *arguments]
    return subprocess.run(
        [*command, "--pyargs", "logitproof.suite"],
        cwd=own, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_law_is_a_test(own: Path) -> None:
    done = run(own, "--logitproof-decoder", "plugin_decoder:Good", LAWS, "-v", "-rs")
    assert done.returncode == 0, done.stdout
    assert "test_law[decoder.prefix-causality-25] PASSED" in done.stdout
    assert "test_law[decoder.recomputation-25] SKIPPED" in done.stdout
    assert "not claimed: recomputation" in done.stdout


def test_a_profile_says_how_many_cases(own: Path) -> None:
    wanted = ("--logitproof-decoder=plugin_decoder:Good", "--logitproof-profile=ci")
    done = run(own, *wanted, "--collect-only", "-q")
    assert done.returncode == 0, done.stdout
    assert "test_law[truth.logits-60]" in done.stdout


def test_the_profile_that_varies_draws_a_seed_and_says_it(own: Path) -> None:
    wanted = ("--logitproof-decoder=plugin_decoder:Good", "--logitproof-law=published.losses")
    fixed, varied = (run(own, *wanted, f"--logitproof-profile={name}") for name in ("ci", "soak"))
    assert (fixed.returncode, varied.returncode) == (0, 0), varied.stdout
    assert "--logitproof-seed=" not in fixed.stdout
    assert "laws drawn from --logitproof-seed=" in varied.stdout


def test_a_wrong_decoder_fails_in_words(own: Path) -> None:
    done = run(own, "--logitproof-decoder=plugin_decoder:Ahead", LAWS)
    assert done.returncode == 1
    assert "decoder.prefix-causality FAILS" in done.stdout
    assert "again   logitproof replay decoder.prefix-causality.replay.json" in done.stdout
    assert (own / "decoder.prefix-causality.replay.json").exists()


def test_a_known_failure_is_expected(own: Path) -> None:
    wanted = ("--logitproof-decoder=plugin_decoder:Ahead", "--logitproof-known=known.toml", LAWS)
    done = run(own, *wanted, "-rx")
    assert done.returncode == 0
    assert "mask is one off (https://example.org/7, until 2999-01-31)" in done.stdout


def test_an_unexpected_pass_fails(own: Path) -> None:
    wanted = ("--logitproof-decoder=plugin_decoder:Good", "--logitproof-known=known.toml", LAWS)
    done = run(own, *wanted)
    assert done.returncode == 1
    assert "decoder.prefix-causality unexpected pass" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--logitproof-decoder NAME is wanted"),
        (("--logitproof-decoder=core", "--logitproof-profile=slow"), "one of quick, ci, soak"),
        (("--logitproof-decoder=unheard:make", LAWS), "No module named 'unheard'"),
        (("--logitproof-decoder=plugin_decoder:exiting", LAWS), "exiting: it asked Python to exit"),
        (("--logitproof-decoder=core", "--logitproof-seed=x", LAWS), "invalid literal"),
        (
            ("--logitproof-decoder=plugin_decoder:Sleeping", "--logitproof-time-limit=1", LAWS),
            "the adapter fails its self-test: SlowDecoder",
        ),
    ],
)
def test_what_cannot_be_judged_is_an_error(
    arguments: tuple[str, ...], words: str, own: Path
) -> None:
    done = run(own, *arguments)
    assert done.returncode != 0
    assert words in done.stdout


def test_the_plugin_costs_nothing_to_those_who_do_not_ask() -> None:
    text = (
        "import sys, logitproof.suite.plugin; heavy = {'numpy', 'mpmath', 'hypothesis', 'pytest'};"
        "print(*sorted(n for n in sys.modules if n in heavy or n.startswith('logitproof')))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["logitproof", "logitproof.suite", "logitproof.suite.plugin"]


def test_the_options_are_those_of_verify() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert [name for name in OPTIONS if f"--{name}" not in parser.format_help()] == []
