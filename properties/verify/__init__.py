"""`logitproof verify`: the published figures, the digests and the laws, on the core here."""

from .command import add_arguments, run

__all__ = ["add_arguments", "run"]
