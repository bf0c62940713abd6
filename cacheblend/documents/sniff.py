"""Which format a file is, from its bytes; its name only decides between formats that are all text."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import PurePath

from cacheblend.documents.document import DocumentError, DocumentKind

SUFFIXES = {
    ".pdf": DocumentKind.PDF,
    ".docx": DocumentKind.DOCX,
    ".html": DocumentKind.HTML,
    ".htm": DocumentKind.HTML,
    ".xhtml": DocumentKind.HTML,
    ".md": DocumentKind.MARKDOWN,
    ".markdown": DocumentKind.MARKDOWN,
    ".txt": DocumentKind.TEXT,
}
_TITLES = {
    DocumentKind.PDF: "a PDF",
    DocumentKind.DOCX: "a Word document",
    DocumentKind.HTML: "an HTML page",
    DocumentKind.MARKDOWN: "Markdown",
    DocumentKind.TEXT: "plain text",
}
_ADVICE = "upload a PDF, DOCX, HTML, Markdown or text file."
_SAVE_AS = "open it in its own program and save it as DOCX or PDF, without a password."
_FOREIGN = (
    (b"\x89PNG", f"is a PNG image: {_ADVICE}"),
    (b"\xff\xd8\xff", f"is a JPEG image: {_ADVICE}"),
    (b"GIF8", f"is a GIF image: {_ADVICE}"),
    (b"II*\0", f"is a TIFF image: {_ADVICE}"),
    (b"MM\0*", f"is a TIFF image: {_ADVICE}"),
    (b"\xd0\xcf\x11\xe0", f"is an old or password-protected Office file: {_SAVE_AS}"),
    (b"{\\rtf", f"is an RTF file: {_SAVE_AS}"),
    (b"\x1f\x8b", "is a gzip archive: unpack it and upload the documents inside."),
    (b"7z\xbc\xaf", "is a 7z archive: unpack it and upload the documents inside."),
    (b"Rar!", "is a RAR archive: unpack it and upload the documents inside."),
    (b"\x7fELF", f"is a program: {_ADVICE}"),
    (b"MZ\x90\0", f"is a program: {_ADVICE}"),
)
_PAGE_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE)


def sniff(name: str, data: bytes) -> DocumentKind:
    """Return the format of a file; raise DocumentError where its bytes are of a format that is not read."""
    for magic, reason in _FOREIGN:
        if data.startswith(magic):
            raise DocumentError(f"{name} {reason}")
    if is_pdf(name, data):
        return DocumentKind.PDF
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_kind(name, data)
    if _PAGE_START.match(data[:1024]):
        return DocumentKind.HTML
    named = named_kind(name)
    return named if named in (DocumentKind.HTML, DocumentKind.MARKDOWN) else DocumentKind.TEXT


def named_kind(name: str) -> DocumentKind | None:
    """Return the format that the end of a name promises."""
    return SUFFIXES.get(PurePath(name).suffix.lower())


def mislabel_warning(name: str, kind: DocumentKind) -> tuple[str, ...]:
    """Say that a file is not what its name promises, if so."""
    named = named_kind(name)
    if named in (None, kind):
        return ()
    return (f"Read as {_TITLES[kind]}, which its bytes are; its name says {_TITLES[named]}.",)


def is_pdf(name: str, data: bytes) -> bool:
    """Tell whether the bytes are a PDF's; where the name says so too, junk in front of the header is allowed for."""
    window = data[:1024]
    return b"%PDF-" in window if named_kind(name) is DocumentKind.PDF else window.lstrip().startswith(b"%PDF-")


def _zip_kind(name: str, data: bytes) -> DocumentKind:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = set(archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DocumentError(f"{name} is damaged or cut short: save it again and upload the new file.") from error
    if "[Content_Types].xml" in parts and any(part.startswith("word/") for part in parts):
        return DocumentKind.DOCX
    raise DocumentError(f"{name} is a zip archive, not a Word document: unpack it and upload the documents inside.")
