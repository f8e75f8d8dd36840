"""What each primitive really needs beside its value: traced peaks of one run."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from logitproof.core.tape import Context, Tensor
from logitproof.core.vjp import Vjp

# Iteration buffers of numpy and objects of the interpreter: constant, part of the envelope.
ENVELOPE_SHARE = 98_304


class Peaks:
    """Bytes beside the value, per operation in order, and beside nothing, per reverse rule."""

    def __init__(self) -> None:
        self.forward: list[int] = []
        self.reverse: list[int] = []


@contextmanager
def traced() -> Iterator[Peaks]:
    """Traces every operation and every reverse rule that runs inside."""
    peaks = Peaks()
    apply, rule = Context.apply, Vjp.__call__

    def applied(self: Context, op: Callable[..., Any], *tensors: Tensor, **named: Any) -> Tensor:
        tracemalloc.reset_peak()
        result = apply(self, op, *tensors, **named)
        now, peak = tracemalloc.get_traced_memory()
        peaks.forward.append(peak - now)
        return result

    def ruled(self: Vjp, upstream: Any) -> Any:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        contributions = rule(self, upstream)
        peaks.reverse.append(tracemalloc.get_traced_memory()[1] - before)
        return contributions

    Context.apply, Vjp.__call__ = applied, ruled  # type: ignore[method-assign]
    tracemalloc.start()
    try:
        yield peaks
    finally:
        tracemalloc.stop()
        Context.apply, Vjp.__call__ = apply, rule  # type: ignore[method-assign]


@contextmanager
def peak_bytes() -> Iterator[Callable[[], int]]:
    """Gives what says, after the end, how many bytes were held at once of those made inside."""
    peaks = list[int]()
    tracemalloc.start()
    try:
        yield lambda: peaks[0]
        peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
