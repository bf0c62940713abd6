"""Where the page's models come from, imported only when they are needed: torch takes seconds, the page does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cacheblend.loading import StoreConfig
from cacheblend.recording import from_json
from cacheblend.trace import Comparison, Inspection

if TYPE_CHECKING:
    from cacheblend.config import BlendConfig
    from cacheblend.engine import Engine

FIRST_RUN = Path(__file__).parent.parent / "assets" / "recorded" / "first.json"


def load_engine(
    model: str, embedder: str, device: str | None, dtype: str | None, store: StoreConfig, say: Callable[[str], None]
) -> Engine:
    """Load the language model, open the store and name the embedding model for later, telling `say` what goes on."""
    engine: type[Engine] = import_module("cacheblend.engine").Engine
    return engine.load(model=model, device=device, dtype=dtype, embedder=embedder, store=store, progress=say)


def blend_config(**fields: Any) -> BlendConfig:
    """Return blend's settings; ValueError for values that make no sense."""
    made: type[BlendConfig] = import_module("cacheblend.config").BlendConfig
    return made(**fields)


def with_chosen_ratio(blend: BlendConfig) -> BlendConfig:
    """The same settings, the ratio left to the controller."""
    return replace(blend, ratio="auto")


def codec_names() -> list[str]:
    """What caches can be encoded with; needs torch, so ask once a model is loaded."""
    return list(import_module("cacheblend.kv.codecs").CODECS)


def load_recorded(path: Path = FIRST_RUN) -> Comparison | None:
    """Read the run the page opens on; None if none is shipped."""
    return from_json(path.read_text(encoding="utf-8")) if path.is_file() else None


def store_attention(inspection: Inspection, num_tokens: int) -> Inspection:
    """Return the inspection with its attention maps pooled, so that it can be written to a file."""
    stored: Inspection = import_module("cacheblend.inspection").store_attention(inspection, num_tokens)
    return stored
