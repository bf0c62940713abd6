"""Untrusted text → token ids that are nothing but text.

A tokenizer normally turns the characters `<|im_end|>` into the control token that ends a message, so an upload could
close the prompt's message and open one of its own. Here such characters become ordinary tokens, whatever they spell.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer


class PlainTokenizer:
    """A private copy of a model's tokenizer in which no text spells a control token.

    The copy is never changed after it is made, so threads may share it; the model's own tokenizer keeps its settings
    (the switch for this in transformers is a flag on the shared object, which another thread may be using).
    """

    def __init__(self, tokenizer: Any) -> None:
        """Copy the backend of a transformers fast tokenizer."""
        fields = json.loads(tokenizer.backend_tokenizer.to_str())
        for token in fields["added_tokens"]:
            # Runs of white space are added tokens in some models, and they are text.
            token["special"] = bool(token["content"].replace("▁", " ").strip())
        fields["truncation"] = fields["padding"] = None
        self._tokenizer = Tokenizer.from_str(json.dumps(fields))
        self._tokenizer.encode_special_tokens = True
        self._control_ids = frozenset(token["id"] for token in fields["added_tokens"] if token["special"])

    def count(self, text: str) -> int:
        """Return the number of ids of a text."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text, nothing added; raise ValueError if the tokenizer cannot avoid a control token."""
        ids = tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
        if not self._control_ids.isdisjoint(ids):
            raise ValueError("this model's tokenizer writes control tokens for plain text: use another model")
        return ids
