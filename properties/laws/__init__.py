"""Relations that must hold over any implementation."""

from .decoder import LAWS as DECODER
from .law import Finding, Law, Outcome
from .protocol import DecoderUnderTest
from .published import LAWS as PUBLISHED
from .registry import registry

__all__ = ["REGISTRY", "DecoderUnderTest", "Finding", "Law", "Outcome"]

REGISTRY = registry(PUBLISHED, DECODER)
