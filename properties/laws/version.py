"""The number of the law set: what a verdict or a replay file refers to."""

import hashlib
from collections.abc import Mapping

from .law import Law

__all__ = ["PINNED", "VERSION", "digest_of"]

VERSION = 8
"""Only grows; a law added, dropped or stated otherwise is another set."""

# Version -> SHA-256 of its ids and statements; those before the current one never change.
PINNED = {
    1: "bfd83fb1b249a01a3316c0014d48336ec66db9a70de515944d6b53b3f3fd45fc",
    2: "35ce581a63cbfc5ba0e309bfbd23b8bc2f1f9ea0c0ae414afc6809acff2d733c",
    3: "1634a841a7d2c75ffc5c1354830990fd7b8c541f927400ac415ed1adf298955b",
    4: "57462fd6f870a924561f9b162cfd453b0fb381e8fb536bc89c7e46243792f735",
    5: "97b2f1b064a89e441856b36bb720194f84114c1b26b9f6aa98b0b56521626a7d",
    6: "55c1d2aa560e2e3ee397ebad82ac534b155a06c76756d196d53ca0375f20ef6d",
    7: "39c1fc418110d81c15ae493771e34b3078bd3be859c7a3fe042428b32b0ab98e",
    8: "a0ee5989db06d9c6278abdd9e18b68d9c202ef24d927c3a00315d0dd5623c838",
}


def digest_of(laws: Mapping[str, Law]) -> str:
    """SHA-256 over `id: statement`, line by line, in order."""
    text = "\n".join(f"{law.id}: {law.statement}" for law in laws.values())
    return hashlib.sha256(text.encode()).hexdigest()
