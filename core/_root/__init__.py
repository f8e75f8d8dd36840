"""A decoder whose every bit is specified, and the harness that proves it."""

__version__ = "0.1.0"
