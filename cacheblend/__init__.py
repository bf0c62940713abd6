"""CacheBlend: fuse the KV caches of retrieved chunks, and measure what that does.

Dimensions, everywhere: layers · tokens (length of a prompt or chunk) · rows (the tokens still being computed) · heads ·
kv_heads · head_dim · d_model · vocab. K and V are (tokens, kv_heads, head_dim); batch is 1 and not a dimension.
Public names are imported when they are first used, so that `import cacheblend.trace` needs no torch.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "BlendConfig": "cacheblend.config",
    "Collection": "cacheblend.collection",
    "Comparison": "cacheblend.trace",
    "Deviation": "cacheblend.trace",
    "Device": "cacheblend.loading",
    "Engine": "cacheblend.engine",
    "LoadConfig": "cacheblend.loading",
    "Mode": "cacheblend.trace",
    "PRESETS": "cacheblend.loading",
    "Selector": "cacheblend.trace",
    "StoreConfig": "cacheblend.loading",
    "Trace": "cacheblend.trace",
}
__all__ = [
    "PRESETS",
    "BlendConfig",
    "Collection",
    "Comparison",
    "Deviation",
    "Device",
    "Engine",
    "LoadConfig",
    "Mode",
    "Selector",
    "StoreConfig",
    "Trace",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
