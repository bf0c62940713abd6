"""One visitor's documents: what was uploaded, in chunks, searchable. Knows nothing of pages, prompts or KV caches."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from cacheblend.documents import (
    DEFAULT_LIMITS,
    Chunk,
    Document,
    DocumentError,
    DocumentKind,
    Limits,
    display_name,
    read_document,
    split,
)
from cacheblend.documents.split import DEFAULT_CHUNK_TOKENS, check_chunk_tokens
from cacheblend.retrieval import Embedder, Hit, Index, Ordering, order_hits

Progress = Callable[[int, int, str], None]  # done, total, what: in files, of the files being added
Cancel = Callable[[], bool]  # True once the visitor has asked to stop

_EMBED_BATCH = 16  # chunks between two looks at `cancel`


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentInfo:
    """One document as a list shows it. `name` is as untrusted as the upload."""

    name: str
    kind: DocumentKind
    pages: int | None
    characters: int
    tokens: int
    num_chunks: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddReport:
    """What became of the files: those that were added, and one sentence for each that was not."""

    added: tuple[DocumentInfo, ...]
    failures: tuple[str, ...]


class StoppedError(Exception):
    """The visitor asked to stop while a file was being embedded."""


class Collection:
    """Documents that are searched together. Safe to use from several threads; adding does not block searching."""

    def __init__(
        self,
        tokenizer: Any,
        embedder: Embedder,
        *,
        chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
        limits: Limits = DEFAULT_LIMITS,
        max_documents: int = 200,
    ) -> None:
        """Start empty; tokenizer: the language model's own (transformers, fast), which sizes the chunks."""
        check_chunk_tokens(chunk_tokens)
        self._tokenizer = tokenizer
        self._embedder = embedder
        self._chunk_tokens = chunk_tokens
        self._limits = limits
        self._max_documents = max_documents
        self._index = Index(embedder)
        self._documents: dict[str, DocumentInfo] = {}
        self._digests: dict[str, str] = {}  # of a document's text → its name
        self._adding = threading.Lock()  # one upload at a time, held while files are read and embedded
        self._state = threading.RLock()  # the four above, held briefly

    @property
    def documents(self) -> tuple[DocumentInfo, ...]:
        """Every document, in the order of adding."""
        with self._state:
            return tuple(self._documents.values())

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Every chunk, document by document."""
        with self._state:
            return self._index.chunks

    @property
    def vectors(self) -> tuple[list[tuple[int, ...]], np.ndarray]:
        """Token ids of every chunk, and their vectors, float32 (chunks, dim), unit length."""
        with self._state:
            return [chunk.token_ids for chunk in self._index.chunks], self._index.vectors

    def add(
        self,
        paths: Sequence[str | Path],
        *,
        names: Sequence[str] | None = None,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> AddReport:
        """Read, split and index files; a file that cannot be used is reported and the others are added all the same.

        names: what the uploader called each file, if the paths do not say. Once `cancel` returns True, the files that
        are complete stay and each of the others is a failure.
        """
        shown = [display_name(name) for name in names or [Path(path).name for path in paths]]
        if len(shown) != len(paths):
            raise ValueError(f"{len(paths)} files need as many names, got {len(shown)}")
        added: list[DocumentInfo] = []
        failures: list[str] = []
        with self._adding:
            for done, (path, name) in enumerate(zip(paths, shown, strict=True)):
                report(progress, done, len(paths), name)
                try:
                    added.append(self._add_file(path, name, cancel or never))
                except StoppedError:
                    failures.append(f"{name} was not added: stopped before it was finished.")
                except DocumentError as error:
                    failures.append(str(error))
        report(progress, len(paths), len(paths), "done")
        return AddReport(added=tuple(added), failures=tuple(failures))

    def remove(self, name: str) -> None:
        """Remove one document; raise ValueError if there is none of that name."""
        with self._state:
            if name not in self._documents:
                raise ValueError(f"there is no document named {name}: choose one of the list.")
            self._index.remove(name)
            del self._documents[name]
            self._digests = {digest: owner for digest, owner in self._digests.items() if owner != name}

    def search(
        self, question: str, top_k: int = 6, ordering: Ordering = Ordering.RELEVANCE, seed: int = 0
    ) -> list[Hit]:
        """Return the top_k chunks nearest to a question, ordered; raise ValueError if there is nothing to search."""
        if not question.strip():
            raise ValueError("The question is empty: type a question about your documents.")
        if not self.documents:
            raise ValueError("There are no documents yet: upload some, or pick a sample collection.")
        vector = self._embedder.encode([question])  # outside the lock: another visitor may be using the model
        with self._state:
            hits = self._index.search_vector(vector, top_k)
        return order_hits(hits, ordering, seed)

    def _add_file(self, path: str | Path, name: str, cancel: Cancel) -> DocumentInfo:
        """Add one file, whole or not at all."""
        stop_if(cancel)
        self._check_room(name)
        document = read_document(path, name=self._unique(name), limits=self._limits)
        digest = hashlib.sha256(document.text.encode()).hexdigest()
        self._check_new(name, digest)
        chunks = split(document, self._tokenizer, self._chunk_tokens)
        vectors = np.concatenate(list(self._embed(chunks, cancel)))
        info = describe(document, chunks)
        with self._state:
            self._index.add_vectors(chunks, vectors)
            self._documents[info.name] = info
            self._digests[digest] = info.name
        return info

    def _embed(self, chunks: list[Chunk], cancel: Cancel) -> Iterator[np.ndarray]:
        for start in range(0, len(chunks), _EMBED_BATCH):
            stop_if(cancel)
            yield self._embedder.encode([chunk.text for chunk in chunks[start : start + _EMBED_BATCH]])

    def _check_room(self, name: str) -> None:
        if len(self.documents) >= self._max_documents:
            raise DocumentError(
                f"{name} was not added: the limit is {self._max_documents} documents; remove some first."
            )

    def _check_new(self, name: str, digest: str) -> None:
        with self._state:
            owner = self._digests.get(digest)
        if owner is not None:
            raise DocumentError(f"{name} was not added: it has the same text as {owner}, which is already here.")

    def _unique(self, name: str) -> str:
        """Return the name, numbered if it is taken: 'report (2).pdf'."""
        taken = {info.name for info in self.documents}
        stem, suffix = PurePath(name).stem, PurePath(name).suffix
        numbered = (f"{stem} ({number}){suffix}" for number in range(2, len(taken) + 3))
        return next(candidate for candidate in (name, *numbered) if candidate not in taken)


def describe(document: Document, chunks: Sequence[Chunk]) -> DocumentInfo:
    """Count what a document holds."""
    return DocumentInfo(
        name=document.name,
        kind=document.kind,
        pages=document.num_pages,
        characters=len(document.text),
        tokens=sum(len(chunk.token_ids) for chunk in chunks),
        num_chunks=len(chunks),
        warnings=document.warnings,
    )


def report(progress: Progress | None, done: int, total: int, what: str) -> None:
    """Tell how far it is, if anyone listens."""
    if progress is not None:
        progress(done, total, what)


def stop_if(cancel: Cancel) -> None:
    """Raise StoppedError once the visitor has asked to stop."""
    if cancel():
        raise StoppedError


def never() -> bool:
    """Nobody can ask to stop."""
    return False
