"""Tasks of a campaign, wherever they run and whoever dies: the merged report is the serial one."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logitproof.properties import cli, laws
from logitproof.properties.cli import HarnessError
from logitproof.properties.detected import NONE
from logitproof.properties.subjects import CoreSubject
from logitproof.properties.verify.command import verify
from logitproof.properties.verify.jobs import DEATHS, processes
from logitproof.properties.verify.report import Report
from logitproof.properties.verify.running import Plan

HAS_DASK = importlib.util.find_spec("distributed") is not None
needs_dask = pytest.mark.skipif(not HAS_DASK, reason="Dask is not installed (group campaign)")
CHOSEN = {id_: laws.REGISTRY[id_] for id_ in ("decoder.prefix-causality", "decoder.raw-sum")}

# A decoder whose first process dies at its first loss, and one that is wrong.
MODULE = """
import os
from pathlib import Path
from logitproof.properties.subjects import CoreSubject

class DiesOnce(CoreSubject):
    def loss_sum(self, *batch):
        try:
            Path("died").touch(exist_ok=False)
        except FileExistsError:
            return super().loss_sum(*batch)
        os._exit(3)

class Ahead(CoreSubject):
    def logits(self, ids, layout=None):
        return super().logits([[*row[:-1], 0] for row in ids], layout) + float(len(ids[0]))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "campaign_decoder.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Cluster:
    """A scheduler and two workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        quiet = ["--no-dashboard", "--scheduler-file", str(self.file)]
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", *quiet)
        worker = ["--no-nanny", "--nthreads", "1", *quiet]
        self.workers = [self._start("worker", *worker) for _ in range(2)]
        self.address: str = self._address()

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments]
        null = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=self.file.parent, stdout=null, stderr=null)

    def _address(self) -> str:
        for _ in range(600):
            with contextlib.suppress(OSError, ValueError):
                return str(json.loads(self.file.read_text("utf-8"))["address"])
            time.sleep(0.1)
        raise TimeoutError("no scheduler")

    def kill_one(self) -> int:
        self.workers[0].kill()
        return self.workers[0].wait()

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(own: Path) -> Iterator[Cluster]:
    found = Cluster(own)
    yield found
    found.close()


def told(report: Report) -> list[dict[str, Any]]:
    """The facts of the laws without their times."""
    return [{k: v for k, v in law.items() if k != "seconds"} for law in report.facts()["laws"]]


def serial(examples: int) -> Report:
    plan = Plan(decoder="core", examples=examples, seed=7)
    return verify(CHOSEN, CoreSubject, plan, "soak", Path(), lambda _: None)


@needs_dask
@pytest.mark.skipif(os.name != "posix", reason="kills a worker by a signal")
def test_two_workers_one_killed_midway_give_the_serial_report(cluster: Cluster) -> None:
    said: list[str] = []

    def progress(text: str) -> None:
        said.append(text)
        _ = "25 cases" in text and cluster.workers[0].poll() is None and cluster.kill_one()

    plan = Plan(decoder="core", examples=100, seed=7, scheduler=cluster.address)
    report = verify(CHOSEN, CoreSubject, plan, "soak", Path(), progress)
    assert cluster.workers[0].poll() == -signal.SIGKILL
    assert "[1/2] decoder.prefix-causality: 25 cases" in said
    assert told(report) == told(serial(100))


@needs_dask
def test_workers_find_a_failure_and_it_lands_in_the_shared_folder(
    cluster: Cluster, own: Path
) -> None:
    (own / "shared").mkdir()
    arguments = ["verify", "--decoder", "campaign_decoder:Ahead", "--law", "decoder.prefix*"]
    arguments += ["--scheduler", cluster.address, "--replays", "shared", "--json", "facts.json"]
    done = subprocess.run([sys.executable, "-m", "logitproof", *arguments], check=False)
    assert done.returncode == 1
    assert [path.name for path in (own / "shared").iterdir()] == [
        "decoder.prefix-causality.replay.json"
    ]
    facts = json.loads((own / "facts.json").read_text("utf-8"))
    assert facts["conventions"]["comes_to"] == NONE


@needs_dask
def test_no_scheduler_is_bad_input(own: Path) -> None:
    arguments = ["verify", "--law", "decoder.raw*", "--scheduler", "tcp://127.0.0.1:1"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "logitproof", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert own.exists()


def test_without_dask_the_option_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    arguments = ["verify", "--law", "decoder.raw*", "--scheduler", "tcp://127.0.0.1:1"]
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "pip install 'logitproof[dask]'" in err


def test_a_dead_process_costs_nothing_but_time(own: Path) -> None:
    arguments = ["verify", "--decoder", "campaign_decoder:DiesOnce", "--law", "decoder.raw*"]
    command = [sys.executable, "-m", "logitproof", *arguments, "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (own / "died").exists()


def test_a_task_that_kills_over_and_over_ends_it() -> None:
    with (
        processes(1, [3], os._exit) as result,
        pytest.raises(HarnessError, match=f"a worker process died, {DEATHS} times"),
    ):
        result(3)
