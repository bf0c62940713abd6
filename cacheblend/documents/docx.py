"""Word documents → text with python-docx, after the archive is proved harmless.

Body paragraphs and tables are read, in order; headers, footers, notes, comments and pictures are not. The body is
walked by element: python-docx's own table cells repeat a cell as often as its span claims, and a hostile file claims
billions.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

import docx
from docx.oxml.ns import qn

from cacheblend.documents.document import DocumentError, Extract
from cacheblend.documents.limits import Limits, megabytes

_BLOCK = 64 * 1024


def parse_docx(name: str, data: bytes, limits: Limits) -> Extract:
    """Return the text of the body, a blank line between blocks, table cells joined by ' | '.

    Raises DocumentError, or whatever python-docx raises on a damaged file."""
    _check_archive(name, data, limits)
    body = docx.Document(io.BytesIO(data)).element.body
    return Extract(text="\n\n".join(_limited(name, _blocks(body), limits)))


def _check_archive(name: str, data: bytes, limits: Limits) -> None:
    """Refuse an archive by its declared sizes, then by what it really inflates to, then by its XML prologs."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        if len(entries) > limits.max_zip_entries:
            raise DocumentError(f"{name} holds {len(entries):,} parts; the limit is {limits.max_zip_entries:,}.")
        _check_unzipped(name, sum(entry.file_size for entry in entries), limits)
        inflated = 0
        for entry in entries:
            inflated = _check_entry(name, archive, entry, inflated, limits)


def _check_entry(name: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, inflated: int, limits: Limits) -> int:
    """Inflate one entry a block at a time, keeping none of it but the XML prolog; return the bytes inflated so far."""
    is_xml = entry.filename.lower().endswith((".xml", ".rels"))
    prolog = _Prolog(name)
    size = 0
    with archive.open(entry) as part:
        while block := part.read(_BLOCK):
            size += len(block)
            _check_unzipped(name, inflated + size, limits)
            if is_xml:
                _check_markup(name, size, limits)
                prolog.feed(block)
    return inflated + size


def _check_unzipped(name: str, size: int, limits: Limits) -> None:
    if size > limits.max_unzipped_bytes:
        limit = megabytes(limits.max_unzipped_bytes)
        raise DocumentError(f"{name} unpacks to more than {limit}, the limit: save it without pictures or in parts.")


def _check_markup(name: str, size: int, limits: Limits) -> None:
    if size > limits.max_markup_bytes:
        limit = megabytes(limits.max_markup_bytes)
        raise DocumentError(f"{name} holds more than {limit} of XML in one part, the limit: split it into parts.")


class _Prolog:
    """Reads an XML part up to its root element and refuses a document type, where entity bombs live.

    No Word document has one. Expat knows few character sets, so a part cannot hide a document type in an odd one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_over = False
        self._parser = expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.StartElementHandler = self._end

    def feed(self, block: bytes) -> None:
        if not self._is_over:
            self._parser.Parse(block)

    def _refuse(self, *_declaration: object) -> None:
        raise DocumentError(f"{self._name} declares XML entities, which Word never does: save it as DOCX again.")

    def _end(self, *_element: object) -> None:
        self._is_over = True


def _blocks(parent: Any) -> Iterator[str]:
    """Yield the text of every paragraph and table under an element, depth first in reading order."""
    for child in parent:
        if child.tag == qn("w:p"):
            yield child.text
        elif child.tag == qn("w:tbl"):
            yield "\n".join(_rows(child))
        elif child.tag in (qn("w:sdt"), qn("w:sdtContent"), qn("w:ins"), qn("w:customXml")):
            yield from _blocks(child)


def _rows(table: Any) -> Iterator[str]:
    for row in table.iterchildren(qn("w:tr")):
        cells = (" ".join(filter(None, _blocks(cell))) for cell in row.iterchildren(qn("w:tc")))
        yield " | ".join(cells)


def _limited(name: str, blocks: Iterator[str], limits: Limits) -> Iterator[str]:
    """Pass on the blocks that hold text until they are too many characters."""
    num_characters = 0
    for block in blocks:
        num_characters += len(block)
        if num_characters > limits.max_characters:
            raise DocumentError(
                f"{name} has more than {limits.max_characters:,} characters, the limit: upload a part of it."
            )
        if block.strip():
            yield block
