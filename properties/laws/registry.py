"""All laws by id, in reading order."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from .law import Law

__all__ = ["registry"]


def registry(*families: Iterable[Law]) -> Mapping[str, Law]:
    """id -> law; an id stands once, and every law names a fault that it must catch."""
    laws = [law for family in families for law in family]
    found = {law.id: law for law in laws}
    assert len(found) == len(laws), "a law's id stands twice"
    assert all(law.faults for law in laws), "a law without a fault proves nothing"
    return MappingProxyType(found)
