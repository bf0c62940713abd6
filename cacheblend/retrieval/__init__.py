"""Which chunks a question needs, and in which order they stand: an embedding model, an index, an ordering."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cacheblend.retrieval.embedder import Embedder
from cacheblend.retrieval.index import Hit, Index
from cacheblend.retrieval.ordering import Ordering, order_hits

if TYPE_CHECKING:
    from cacheblend.retrieval.sentence import load_embedder

__all__ = ["Embedder", "Hit", "Index", "Ordering", "load_embedder", "order_hits"]


def __getattr__(name: str) -> Any:
    """Import sentence-transformers (seconds, and torch with it) only when a model is loaded."""
    if name == "load_embedder":
        return import_module("cacheblend.retrieval.sentence").load_embedder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
