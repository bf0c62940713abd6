"""Documents → chunks of at most so many tokens, cut where the text has its borders. Knows nothing of models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from cacheblend.documents.document import Document, DocumentError, DocumentKind
from cacheblend.documents.plain import PlainTokenizer

SEPARATOR = "\n\n"  # ends every chunk, so that chunks put one after the other read as text
DEFAULT_CHUNK_TOKENS = 512  # the paper's chunk length
MAX_CHARACTERS_PER_TOKEN = 16  # ours: prose has 4 to 5; a longer piece is cut without counting its tokens
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
    check_chunk_tokens(chunk_tokens)
    plain = plain_tokenizer(tokenizer)
    texts = _pieces(document, document.text, plain, chunk_tokens, chunk_tokens)
    return [_chunk(document.name, index, text + SEPARATOR, plain) for index, text in enumerate(texts)]


def check_chunk_tokens(chunk_tokens: int) -> None:
    """Raise ValueError for a chunk length that cannot be used."""
    if chunk_tokens < MIN_CHUNK_TOKENS:
        raise ValueError(f"chunk_tokens must be at least {MIN_CHUNK_TOKENS}, got {chunk_tokens}")


@lru_cache(maxsize=2)
def plain_tokenizer(tokenizer: Any) -> PlainTokenizer:
    """Return the private copy for a tokenizer, made once: a large vocabulary takes a second to copy."""
    return PlainTokenizer(tokenizer)


def _pieces(document: Document, text: str, plain: PlainTokenizer, chunk_tokens: int, capacity: int) -> Iterator[str]:
    """Yield pieces of a text that fit with their separator, cut by a splitter of the given capacity."""

    def count(piece: str) -> int:
        # The splitter also asks for all that remains: counting it again for every chunk would take quadratic time.
        return plain.count(piece + SEPARATOR) if len(piece) <= MAX_CHARACTERS_PER_TOKEN * capacity else capacity + 1

    # A callback, as the splitter's own tokenizer support would count control tokens and leave out the separator.
    splitter = MarkdownSplitter if document.kind is DocumentKind.MARKDOWN else TextSplitter
    for piece in splitter.from_callback(count, capacity).chunks(text):
        num_tokens = count(piece)
        if num_tokens <= chunk_tokens:
            yield piece
        elif capacity > 1:  # the splitter takes a piece of fewer bytes than its capacity to fit, without looking
            yield from _pieces(document, piece, plain, chunk_tokens, capacity // 2)
        else:
            raise DocumentError(
                f"{document.name} has a character of {num_tokens} tokens: make chunks longer than that."
            )


def _chunk(document: str, index: int, text: str, plain: PlainTokenizer) -> Chunk:
    try:
        return Chunk(document, index, text, plain.encode(text))
    except ValueError as error:
        raise DocumentError(f"{document} cannot be used: {error}.") from error
