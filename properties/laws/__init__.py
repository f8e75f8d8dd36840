"""Relations that must hold over any implementation."""

from .decoder import LAWS as DECODER
from .law import Finding, Law, Outcome
from .protocol import DecoderUnderTest
from .published import LAWS as PUBLISHED
from .registry import registry
from .truth import LAWS as TRUTH
from .version import VERSION, digest_of

__all__ = ["REGISTRY", "VERSION", "DecoderUnderTest", "Finding", "Law", "Outcome", "digest"]

REGISTRY = registry(PUBLISHED, DECODER, TRUTH)


def digest() -> str:
    """SHA-256 of the ids and statements of all laws."""
    return digest_of(REGISTRY)
