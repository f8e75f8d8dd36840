"""What must hold of any decoder, and the protocol by which one is judged."""

from .laws.protocol import DecoderUnderTest

__all__ = ["DecoderUnderTest"]
