"""How the published reports print numbers, shapes and truth."""

from collections.abc import Iterable, Sequence


def number(value: float) -> str:
    """Fixed 12 decimals."""
    return f"{value:.12f}"


def numbers(values: Iterable[float]) -> str:
    """Fixed 12 decimals, comma-joined."""
    return ",".join(map(number, values))


def integers(values: Iterable[int]) -> str:
    """Integers, comma-joined; `none` without any."""
    return ",".join(map(str, values)) or "none"


def shape(sizes: Sequence[int]) -> str:
    """Sizes joined by x; `scalar` for rank 0."""
    return "x".join(map(str, sizes)) or "scalar"


def truth(fact: bool) -> str:
    """`true` or `false`."""
    return "true" if fact else "false"
