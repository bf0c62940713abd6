"""What each codec does to a chunk's KV, as measured earlier, as a table in HTML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).parent.parent / "assets" / "recorded" / "codecs.json"


def load(path: Path = MEASURED) -> dict[str, Any] | None:
    """Read what `benchmarks.codecs` wrote; None if it was not shipped."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def render(measured: dict[str, Any] | None) -> str:
    """Placeholder until the benchmark's columns are known."""
    return ""
