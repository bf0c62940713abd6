"""PDF → text, page by page, with pypdf. Only text is read: no image, script, form, attachment or link is touched."""

from __future__ import annotations

import io

from pypdf import PasswordType, PdfReader, apply_configuration

from cacheblend.documents.document import DocumentError, Extract
from cacheblend.documents.limits import Limits


def parse_pdf(name: str, data: bytes, limits: Limits) -> Extract:
    """Return the text of every page, pages separated by a blank line.

    Raises DocumentError, or whatever pypdf raises on a damaged file.
    """
    with apply_configuration(
        jbig2dec_binary=None,  # no other program is ever started
        zlib_maximum_output_length=limits.max_markup_bytes,
        lzw_maximum_output_length=limits.max_markup_bytes,
        run_length_maximum_output_length=limits.max_markup_bytes,
        array_based_stream_maximum_output_length=limits.max_markup_bytes,
        stream_decoding_work_maximum_length=4 * limits.max_markup_bytes,
        stream_parsing_work_maximum_count=500_000,
        xform_maximum_invocations_per_extraction=500,
    ):
        return _read(name, data, limits)


def _read(name: str, data: bytes, limits: Limits) -> Extract:
    reader = PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
        raise DocumentError(f"{name} is encrypted: remove its password and upload it again.")
    num_pages = len(reader.pages)
    if num_pages == 0:
        raise DocumentError(f"{name} has no pages that can be read: save it again and upload the new file.")
    if num_pages > limits.max_pages:
        raise DocumentError(f"{name} has {num_pages:,} pages; the limit is {limits.max_pages:,}: upload a part of it.")
    texts = _page_texts(name, reader, limits)
    if not any(texts):
        raise DocumentError(f"{name} has no text, only pictures of pages: run text recognition (OCR) on it first.")
    return Extract(text="\n\n".join(filter(None, texts)), num_pages=num_pages, warnings=_empty_pages(texts))


def _page_texts(name: str, reader: PdfReader, limits: Limits) -> list[str]:
    """Return one text a page, refusing as soon as the characters so far are too many."""
    texts: list[str] = []
    num_characters = 0
    for page in reader.pages:
        texts.append(page.extract_text().strip())
        num_characters += len(texts[-1])
        if num_characters > limits.max_characters:
            raise DocumentError(
                f"{name} has more than {limits.max_characters:,} characters, the limit: upload a part of it."
            )
    return texts


def _empty_pages(texts: list[str]) -> tuple[str, ...]:
    empty = [str(number) for number, text in enumerate(texts, start=1) if not text]
    if not empty:
        return ()
    listed = ", ".join(empty[:10]) + (" and more" if len(empty) > 10 else "")
    return (f"{len(empty)} of {len(texts)} pages have no text (page {listed}): blank, or pictures that need OCR.",)
