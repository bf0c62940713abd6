"""Documents → chunks of at most so many tokens, cut where the text has its borders. Knows nothing of models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from cacheblend.documents.document import Document, DocumentError, DocumentKind
from cacheblend.documents.plain import PlainTokenizer

SEPARATOR = "\n\n"  # ends every chunk, so that chunks put one after the other read as text
DEFAULT_CHUNK_TOKENS = 512  # the paper's chunk length
MIN_CHUNK_TOKENS = 16  # ours: below it a chunk is mostly its separator


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of one document, tokenised alone: its ids never depend on what stands beside it in a prompt.

    index: 0-based position in the document; text: as untrusted as the upload, ending with a blank line.
    """

    document: str
    index: int
    text: str
    token_ids: tuple[int, ...]

    @property
    def label(self) -> str:
        """Name the chunk for people, counted from 1: 'report.pdf · 3'."""
        return f"{self.document} · {self.index + 1}"


def split(document: Document, tokenizer: Any, chunk_tokens: int = DEFAULT_CHUNK_TOKENS) -> list[Chunk]:
    """Cut a document into chunks, in order, of at most `chunk_tokens` tokens of a transformers fast tokenizer.

    Only white space between chunks is lost. Text that spells a control token is tokenised as text. Raises DocumentError
    naming the document where the tokenizer cannot do that.
    """
    if chunk_tokens < MIN_CHUNK_TOKENS:
        raise ValueError(f"chunk_tokens must be at least {MIN_CHUNK_TOKENS}, got {chunk_tokens}")
    plain = plain_tokenizer(tokenizer)
    texts = _splitter(document.kind, plain, chunk_tokens).chunks(document.text)
    return [_chunk(document.name, i, text + SEPARATOR, plain, chunk_tokens) for i, text in enumerate(texts)]


@lru_cache(maxsize=2)
def plain_tokenizer(tokenizer: Any) -> PlainTokenizer:
    """Return the private copy for a tokenizer, made once: a large vocabulary takes a second to copy."""
    return PlainTokenizer(tokenizer)


def _splitter(kind: DocumentKind, plain: PlainTokenizer, chunk_tokens: int) -> MarkdownSplitter | TextSplitter:
    # A callback, as the splitter's own tokenizer support would count control tokens and leave out the separator.
    splitter = MarkdownSplitter if kind is DocumentKind.MARKDOWN else TextSplitter
    return splitter.from_callback(lambda text: plain.count(text + SEPARATOR), chunk_tokens)


def _chunk(document: str, index: int, text: str, plain: PlainTokenizer, chunk_tokens: int) -> Chunk:
    try:
        ids = plain.encode(text)
    except ValueError as error:
        raise DocumentError(f"{document} cannot be used: {error}.") from error
    if len(ids) > chunk_tokens:  # the splitter cuts no finer than between characters
        raise DocumentError(f"{document} has a character of {len(ids)} tokens: make chunks longer than {chunk_tokens}.")
    return Chunk(document, index, text, ids)
