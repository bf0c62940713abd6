"""Where the page's models come from, imported only when they are needed: torch takes seconds, the page does not."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cacheblend.recording import from_json
from cacheblend.trace import Comparison, Inspection

if TYPE_CHECKING:
    from cacheblend.config import BlendConfig
    from cacheblend.engine import Engine

RECORDED_FOLDER = Path(__file__).parent.parent / "assets" / "recorded"


def load_engine(model: str, embedder: str, device: str | None, dtype: str | None, say: Callable[[str], None]) -> Engine:
    """Load the language model, and name the embedding model for later, telling `say` what is going on."""
    engine: type[Engine] = import_module("cacheblend.engine").Engine
    return engine.load(model=model, device=device, dtype=dtype, embedder=embedder, progress=say)


def blend_config(**fields: Any) -> BlendConfig:
    """Return blend's settings; ValueError for values that make no sense."""
    made: type[BlendConfig] = import_module("cacheblend.config").BlendConfig
    return made(**fields)


def load_recorded(folder: Path = RECORDED_FOLDER) -> Comparison | None:
    """Read the run the page opens on: the first file by name; None if none is shipped."""
    first = next(iter(sorted(folder.glob("*.json"))), None)
    return from_json(first.read_text(encoding="utf-8")) if first else None


def store_attention(inspection: Inspection, num_tokens: int) -> Inspection:
    """Return the inspection with its attention maps pooled, so that it can be written to a file."""
    stored: Inspection = import_module("cacheblend.inspection").store_attention(inspection, num_tokens)
    return stored
