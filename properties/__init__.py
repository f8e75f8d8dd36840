"""What must hold of any decoder, and the protocol by which one is judged."""

import importlib
from typing import Any

__all__ = ["DecoderUnderTest"]


def __getattr__(name: str) -> Any:
    """The protocol, imported when asked for: a judge's import must load nothing that it judges."""
    if name in __all__:
        return getattr(importlib.import_module("logitproof.properties.laws.protocol"), name)
    raise AttributeError(name)
