"""Wrong implementations that the laws must catch, planted into the core from outside."""

from collections.abc import Mapping
from types import MappingProxyType

from .fault import Fault
from .mistakes import FAULTS as MISTAKES
from .orders import FAULTS as ORDERS
from .values import FAULTS as VALUES

__all__ = ["REGISTRY", "Fault"]

REGISTRY: Mapping[str, Fault] = MappingProxyType(
    {f.id: f for f in (*ORDERS, *MISTAKES, *VALUES)}
)
