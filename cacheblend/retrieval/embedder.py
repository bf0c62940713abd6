"""What retrieval needs of an embedding model. Imports no model library: those take seconds to load."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Embedder(Protocol):
    """What retrieval needs of a model; threads may share it."""

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return float32 (len(texts), dim), each row of unit length."""
        ...
