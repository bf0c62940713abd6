"""Which chunks a question needs, and in which order they stand: an embedding model, an index, an ordering."""

from cacheblend.retrieval.embedder import Embedder, load_embedder
from cacheblend.retrieval.index import Hit, Index
from cacheblend.retrieval.ordering import Ordering, order_hits

__all__ = ["Embedder", "Hit", "Index", "Ordering", "load_embedder", "order_hits"]
