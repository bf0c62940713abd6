"""Uploads → text → chunks: one parser a format, limits, and refusals that say what to do.

Uploaded bytes are hostile: nothing in them is executed, fetched or resolved, and every cost has a bound.
"""

from cacheblend.documents.document import Document, DocumentError, DocumentKind
from cacheblend.documents.limits import DEFAULT_LIMITS, Limits
from cacheblend.documents.plain import PlainTokenizer
from cacheblend.documents.read import display_name, read_document
from cacheblend.documents.sniff import SUFFIXES
from cacheblend.documents.split import SEPARATOR, Chunk, plain_tokenizer, split

__all__ = [
    "DEFAULT_LIMITS",
    "SEPARATOR",
    "SUFFIXES",
    "Chunk",
    "Document",
    "DocumentError",
    "DocumentKind",
    "Limits",
    "PlainTokenizer",
    "display_name",
    "plain_tokenizer",
    "read_document",
    "split",
]
