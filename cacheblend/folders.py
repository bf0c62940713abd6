"""Where this project keeps what can be made again: converted models, chunk caches, profiles of the machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """The user's cache directory for this project (XDG)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cacheblend"
