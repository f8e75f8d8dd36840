"""The process that measures: one thread, BLAS as it comes, and both on record."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["PINNED", "UNSET", "facts", "is_pinned", "pinned_environment", "run_pinned"]

# One thread: two on a shared machine are slower than one, and make ratios of luck.
PINNED = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
# Settings that make a library choose other code than it would: unset for the measurement.
UNSET = (
    "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "NPY_DISABLE_CPU_FEATURES", "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS", "ATEN_CPU_CAPABILITY", "OPENBLAS_VERBOSE",
)  # fmt: skip
PACKAGES = ("numpy", "torch", "autograd", "jax", "jaxlib", "pytest-benchmark")


def pinned_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a measuring process."""
    return {**{name: text for name, text in given.items() if name not in UNSET}, **PINNED}


def is_pinned(given: Mapping[str, str] = os.environ) -> bool:
    """Whether a process of these variables measures as it is meant to."""
    return pinned_environment(given) == dict(given)


def run_pinned(module: str, arguments: Sequence[str]) -> int:
    """`python -m module arguments` in a process that measures; its exit code."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env=pinned_environment(os.environ), check=False).returncode


def facts() -> dict[str, str]:
    """What every figure of this process was measured with."""
    built: Any = np.show_config(mode="dicts")
    blas = built["Build Dependencies"]["blas"]
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": ", ".join(filter(None, map(_version, PACKAGES))),
        "numpy's BLAS": f"{blas['name']} {blas['version']}",
        "clock": "process CPU time, medians of interleaved rounds",
        **{name: os.environ.get(name, "not set") for name in (*PINNED, *UNSET)},
    }


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return ""
