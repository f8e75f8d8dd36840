"""What a check finds."""

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong with a case or a file, by which witness."""

    by: str
    at: str
    what: str
    case: str = ""

    def __str__(self) -> str:
        return f"{self.at}: {self.what} ({self.by})"
