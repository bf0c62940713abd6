"""How much of an upload is read before it is refused. Knows nothing of formats."""

from __future__ import annotations

from dataclasses import dataclass, fields

MIB = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds for one document; all are ours, each is said in the message when it is exceeded.

    max_markup_bytes bounds what is handed to a tree builder (an HTML page, one XML part of a .docx) and what one stream
    of a PDF inflates to; max_seconds and max_memory_bytes bound the process in which one file is parsed.
    """

    max_bytes: int = 20 * MIB
    max_pages: int = 500
    max_characters: int = 2_000_000
    max_unzipped_bytes: int = 100 * MIB
    max_markup_bytes: int = 10 * MIB
    max_zip_entries: int = 5_000
    max_seconds: float = 120.0  # wall clock: a busy machine can take many to start the process
    max_memory_bytes: int = 2048 * MIB

    def __post_init__(self) -> None:
        """Refuse limits that would refuse everything."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value <= 0:
                raise ValueError(f"{field.name} must be above 0, got {value}")


DEFAULT_LIMITS = Limits()


def megabytes(num_bytes: int) -> str:
    """Write a size for a sentence: '20 MB', '1.5 MB', '0.2 MB' (binary megabytes, as file managers count)."""
    return f"{max(num_bytes / MIB, 0.1):.1f}".removesuffix(".0") + " MB"
