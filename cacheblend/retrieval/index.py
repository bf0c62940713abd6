"""Chunks → the nearest to a question: an exact inner-product search in FAISS. Knows nothing of files or prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import faiss
import numpy as np

from cacheblend.documents.split import Chunk
from cacheblend.retrieval.embedder import Embedder


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found, and its cosine similarity to the question."""

    chunk: Chunk
    score: float


class Index:
    """Chunks and their vectors, row by row. Not locked: its owner is."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._faiss: faiss.IndexFlatIP | None = None  # made with the first vectors, which tell the dimension
        self._chunks: list[Chunk] = []

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Every chunk, in the order in which it was added."""
        return tuple(self._chunks)

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Embed chunks and add them."""
        if chunks:
            self.add_vectors(chunks, self._embedder.encode([chunk.text for chunk in chunks]))

    def add_vectors(self, chunks: Sequence[Chunk], vectors: np.ndarray) -> None:
        """Add chunks that are embedded already; vectors: float32 (len(chunks), dim), unit length."""
        if vectors.ndim != 2 or len(vectors) != len(chunks):
            raise ValueError(f"{len(chunks)} chunks need as many vectors, got an array of shape {vectors.shape}")
        if self._faiss is None:
            self._faiss = faiss.IndexFlatIP(vectors.shape[1])
        self._faiss.add(np.ascontiguousarray(vectors, dtype=np.float32))
        self._chunks.extend(chunks)

    @property
    def vectors(self) -> np.ndarray:
        """Of every chunk, float32 (chunks, dim), unit length."""
        if self._faiss is None:
            return np.empty((0, 0), dtype=np.float32)
        found: np.ndarray = self._faiss.reconstruct_n(0, len(self._chunks))
        return found

    def remove(self, document: str) -> None:
        """Remove every chunk of a document; raise KeyError if there is none."""
        rows = [row for row, chunk in enumerate(self._chunks) if chunk.document == document]
        if self._faiss is None or not rows:
            raise KeyError(document)
        # FAISS moves up the rows behind those it removes, as the list does.
        self._faiss.remove_ids(faiss.IDSelectorBatch(np.asarray(rows, dtype=np.int64)))
        self._chunks = [chunk for chunk in self._chunks if chunk.document != document]

    def search(self, question: str, k: int) -> list[Hit]:
        """Return the k nearest chunks, nearest first; fewer where there are fewer."""
        return self.search_vector(self._embedder.encode([question]), k)

    def search_vector(self, vector: np.ndarray, k: int) -> list[Hit]:
        """Search for a question that is embedded already; vector: float32 (1, dim), unit length."""
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if self._faiss is None or not self._chunks:
            return []
        scores, rows = self._faiss.search(vector, min(k, len(self._chunks)))
        return [Hit(self._chunks[row], float(score)) for row, score in zip(rows[0], scores[0], strict=True)]
