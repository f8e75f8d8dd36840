"""What the results were computed with, and whether this process does IEEE 754 as it must."""

from __future__ import annotations

import importlib
import math
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import mpmath
import numpy as np

from logitproof import __version__
from logitproof.golden import figures, load
from logitproof.properties import laws
from logitproof.properties.cli import HarnessError

__all__ = [
    "Environment",
    "c_library_functions",
    "check_subnormals",
    "keeps_subnormals",
    "numpy_cpu_features",
]

GLIBC_FMA = "glibc with fused multiply-add"
GLIBC_PLAIN = "glibc without fused multiply-add"
ANOTHER = "neither of the two glibc variants known here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The facts that a result is reported with."""

    logitproof: str
    laws: str
    golden: str
    figures: str
    python: str
    platform: str
    numpy: str
    mpmath: str
    cpu_features: str
    c_library: str
    subnormals: str

    @classmethod
    def here(cls) -> Environment:
        """This process."""
        library = " ".join(part for part in platform.libc_ver() if part) or "unnamed"
        return cls(
            logitproof=__version__,
            laws=f"set {laws.VERSION}: {len(laws.REGISTRY)} laws, sha256 {laws.digest()[:12]}",
            golden=_golden_set(),
            figures=f"{figures.FORMAT}, sha256 {figures.digest()[:12]}",
            python=f"{platform.python_implementation()} {platform.python_version()}",
            platform=f"{platform.system()} {platform.machine()}",
            numpy=np.__version__,
            mpmath=mpmath.__version__,
            cpu_features=" ".join(numpy_cpu_features()) or "the baseline alone",
            c_library=f"{library}; its functions: {c_library_functions()} (the core uses none)",
            subnormals="kept" if keeps_subnormals() else "FLUSHED TO ZERO: no result counts",
        )


def _golden_set() -> str:
    """The version that the stored cases have; its digests stand for every one of them."""
    held = load.manifest()
    digests = "".join(held["cases"].values()).encode("ascii")
    digest = sha256(digests).hexdigest()[:12]
    return f"set {held['version']}: {len(held['cases'])} cases, sha256 {digest}"


def numpy_cpu_features() -> list[str]:
    """The optional CPU features that numpy has switched on, by its own names."""
    core: Any = importlib.import_module("numpy._core._multiarray_umath")
    return [name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)]


def c_library_functions() -> str:
    """Which C library's functions `math` has, by calls whose last bits tell them apart."""
    kinds = {GLIBC_FMA: True, GLIBC_PLAIN: True}
    for probe in figures.figures().probes:
        function: Callable[[float], float] = getattr(math, probe.function)
        bits = figures.to_bits(function(float(probe.argument)))
        kinds[GLIBC_FMA] &= bits == probe.glibc_fma
        kinds[GLIBC_PLAIN] &= bits == probe.glibc_plain
    return next((name for name, fits in kinds.items() if fits), ANOTHER)


def keeps_subnormals() -> bool:
    """Whether subnormal results and operands survive, in Python's and in numpy's operations."""
    tiny, smallest = sys.float_info.min, math.ulp(0.0)
    operands = np.full(9, tiny), np.full(9, smallest)
    halves, grown = operands[0] * 0.5, operands[1] * 2.0**60
    return (
        tiny * 0.5 > 0.0
        and smallest * 2.0**60 > 0.0
        and bool((halves > 0).all() & (grown > 0).all())
    )


def check_subnormals(when: str) -> None:
    """Raises HarnessError where this thread flushes subnormals: right code would give wrong bits.

    Source: cases: num-ftz
    """
    if not keeps_subnormals():
        raise HarnessError(f"subnormal numbers are flushed to zero {when}: nothing can be decided")
