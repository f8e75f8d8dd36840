"""The golden runs with other code underneath, one process each: the same bits every time.

`python -m logitproof.properties.portability` prints the table of this machine.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from logitproof.core import floats
from logitproof.core.floats import Array
from logitproof.golden.figures import Run, figures, to_bits

from .laws.difference import digest
from .laws.published import config_of
from .subjects import CoreSubject
from .verify.environment import (
    GLIBC_FMA,
    GLIBC_PLAIN,
    c_library_functions,
    numpy_cpu_features,
)

__all__ = ["MODES", "Mode", "Outcome", "outcome", "table"]

# What hides fused multiply-add from glibc, which chooses its functions when a process begins.
WITHOUT_FMA = "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2"
FUNCTIONS = ("exp", "log", "log1p", "sin", "cos")


class Unavailable(Exception):
    """A mode that this machine does not have, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What is other in a process: its environment, then what it does before it computes.

    `enter` raises Unavailable where the process did not become what the mode says.
    """

    statement: str
    environment: Callable[[], Mapping[str, str]]
    enter: Callable[[], None]
    of_c_library: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a process was and, per golden run, what had other bits; or why it has none."""

    python: str
    numpy: str
    machine: str
    c_library: str
    differing: Mapping[str, list[str]]
    unavailable: str = ""

    @property
    def holds(self) -> bool:
        """Whether every run has every bit."""
        return bool(self.differing) and not any(self.differing.values())

    def __str__(self) -> str:
        equal = sum(not wrong for wrong in self.differing.values())
        wrong = "; ".join(f"{run}: {', '.join(w)}" for run, w in self.differing.items() if w)
        if self.unavailable:
            return f"not run: {self.unavailable}"
        return f"{equal}/{len(figures().runs)} {wrong}".rstrip()


def outcome(name: str) -> Outcome:
    """What a process of its own found in a mode."""
    environment = {**os.environ, **MODES[name].environment()}
    call = [sys.executable, "-m", "logitproof.properties.portability", name]
    done = subprocess.run(call, env=environment, check=True, capture_output=True, text=True)
    return Outcome(**json.loads(done.stdout))


def table() -> bool:
    """Prints a line per mode; whether every mode that this machine has holds."""
    found = {name: outcome(name) for name in MODES}
    print("mode | Python | numpy | machine | functions of the C library | runs with equal bits")
    for name, row in found.items():
        print(f"{name} | {row.python} | {row.numpy} | {row.machine} | {row.c_library} | {row}")
    return all(row.holds or row.unavailable for row in found.values())


def _nothing() -> None:
    """Leaves the process as it is."""


def _enter_baseline() -> None:
    if numpy_cpu_features():
        raise AssertionError(f"numpy still uses {numpy_cpu_features()}")
    if "NPY_DISABLE_CPU_FEATURES" not in os.environ:
        raise Unavailable("numpy has no optional CPU feature on here")


def _without_features() -> dict[str, str]:
    features = " ".join(numpy_cpu_features())
    return {"NPY_DISABLE_CPU_FEATURES": features} if features else {}


def _enter_plain_glibc() -> None:
    if c_library_functions() != GLIBC_PLAIN:
        raise Unavailable(f"the C library here is {c_library_functions()}")


def _enter_c_library() -> None:
    if c_library_functions() != GLIBC_FMA:
        raise Unavailable(f"no digests are published for {c_library_functions()}")
    functions = {name: _per_element(getattr(math, name)) for name in FUNCTIONS}
    vars(floats).update(functions, pow=lambda base, x: _per_element(math.pow, base)(x))


def _per_element(function: Callable[..., float], *first: float) -> Callable[[Array], Array]:
    return lambda x: np.array([function(*first, v) for v in x.reshape(-1)]).reshape(x.shape)


def _enter_fallback() -> None:
    vars(floats).update(contraction_is_ordered=lambda: False, reduction_is_ordered=lambda: False)


MODES = {
    "as-it-is": Mode(
        statement="nothing is changed",
        environment=dict,
        enter=_nothing,
    ),
    "no-cpu-features": Mode(
        statement="numpy without the CPU features that it may use",
        environment=_without_features,
        enter=_enter_baseline,
    ),
    "contraction-fallback": Mode(
        statement="contractions step by step, without einsum",
        environment=dict,
        enter=_enter_fallback,
    ),
    "no-fma-in-glibc": Mode(
        statement="another exp, log, sin, cos and pow in the C library, which core does not use",
        environment=lambda: {"GLIBC_TUNABLES": WITHOUT_FMA},
        enter=_enter_plain_glibc,
    ),
    "c-library-functions": Mode(
        statement="the C library's functions in place of core's: its published digests",
        environment=dict,
        enter=_enter_c_library,
        of_c_library=True,
    ),
}


def _differing(run: Run, *, of_c_library: bool) -> list[str]:
    """The names of what the core computes with other bits than are published."""
    subject, config = CoreSubject(), config_of(figures().configs[run.config])
    drawn, state = subject.initial(config, run.seed, depth_scaled=run.depth_scaled)
    subject.load(config, drawn)
    loss, gradients = subject.loss_and_gradients(run.ids, run.targets)
    found = {
        "final_state": f"{state:016x}",
        "parameters_digest": digest(drawn.values()),
        "loss": to_bits(loss),
        "logits_digest": digest([subject.logits(run.ids)]),
        "gradients_digest": digest(gradients.values()),
    }
    prefix = "c_library_" if of_c_library else ""
    return [
        name
        for name, value in found.items()
        if value != getattr(run, f"{prefix}{name}", getattr(run, name))
    ]


def _here(mode: Mode) -> dict[str, Any]:
    """This process's outcome, as the fields of one."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "c_library": c_library_functions(),
        "differing": {},
    }
    try:
        mode.enter()
    except Unavailable as reason:
        return {**facts, "unavailable": str(reason)}
    runs = figures().runs.values()
    found = {run.id: _differing(run, of_c_library=mode.of_c_library) for run in runs}
    return {**facts, "differing": found}


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(_here(MODES[sys.argv[1]])))
    else:
        sys.exit(0 if table() else 1)
