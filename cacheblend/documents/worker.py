"""The process in which one hostile file is parsed: `python -m cacheblend.documents.worker`, bytes in, JSON out.

Standard input: one line of JSON {kind, name, limits}, then the file. Standard output: {extract} or {refusal}; whatever
goes wrong otherwise ends the process, and the caller says so. Knows nothing of paths: it opens no file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from cacheblend.documents.document import DocumentError, DocumentKind, Extract
from cacheblend.documents.docx import parse_docx
from cacheblend.documents.html import parse_html
from cacheblend.documents.limits import Limits
from cacheblend.documents.pdf import parse_pdf

if sys.platform == "linux":
    import resource

_PARSERS: dict[DocumentKind, Callable[[str, bytes, Limits], Extract]] = {
    DocumentKind.PDF: parse_pdf,
    DocumentKind.DOCX: parse_docx,
    DocumentKind.HTML: parse_html,
}


def main() -> None:
    """Parse what stands on standard input and write what was found to standard output."""
    header = json.loads(sys.stdin.buffer.readline())
    limits = Limits(**header["limits"])
    bound_memory(limits.max_memory_bytes)
    reply = parse(DocumentKind(header["kind"]), header["name"], sys.stdin.buffer.read(), limits)
    sys.stdout.buffer.write(json.dumps(reply).encode())


def parse(kind: DocumentKind, name: str, data: bytes, limits: Limits) -> dict[str, Any]:
    """Return {extract} or {refusal}."""
    try:
        return {"extract": asdict(_PARSERS[kind](name, data, limits))}
    except DocumentError as error:
        return {"refusal": str(error)}


def bound_memory(num_bytes: int) -> None:
    """Let the system refuse this process more memory than that (only Linux keeps such a bound)."""
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))


if __name__ == "__main__":
    main()
