"""Bytes → text: character sets, and text that a tokenizer and a page can carry.

Markdown is read here as well: its markup is text that the splitter and the language model understand.
"""

from __future__ import annotations

import codecs
import re

from charset_normalizer import from_bytes

from cacheblend.documents.document import DocumentError, Extract
from cacheblend.documents.limits import Limits

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")  # tab, line feed, vertical tab, form feed and return are text
_MAX_CONTROL_SHARE = 0.001  # ours; a stray escape in a log is text, a hundredth of a file is not
_SAMPLE_BYTES = 256 * 1024  # what a character set is guessed from


def parse_text(name: str, data: bytes, limits: Limits) -> Extract:
    """Decode a plain text or Markdown file; raise DocumentError where the bytes are not text."""
    del limits  # bytes and characters are counted by the caller, for every format alike
    text, encoding = decode(name, data)
    return Extract(text=text, warnings=guess_warning(encoding))


def decode(name: str, data: bytes, declared: str | None = None) -> tuple[str, str | None]:
    """Return the text and the character set if it had to be guessed (None where it is marked, declared or UTF-8)."""
    marked = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)
    for encoding in (marked, "utf-8", declared):
        text = _decode_as(data, encoding)
        if text is not None:
            return _checked(name, text), None
    guess = from_bytes(data[:_SAMPLE_BYTES]).best()
    if guess is None:
        raise _binary(name)
    return _checked(name, data.decode(guess.encoding, errors="replace")), guess.encoding


def guess_warning(encoding: str | None) -> tuple[str, ...]:
    """Say that a character set was guessed, if it was."""
    if encoding is None:
        return ()
    return (f"The character set was guessed as {encoding}: save the file as UTF-8 if letters look wrong.",)


def clean(text: str) -> str:
    """Return text with one kind of line end, without control characters and lone surrogates, and without outer space.

    What is left is kept verbatim: markup in it is the author's text and is escaped where it is shown.
    """
    text = re.sub(r"\r\n?|[\v\f\x85\u2028\u2029]", "\n", text)
    text = _CONTROLS.sub("", text)
    return text.encode("utf-8", errors="ignore").decode("utf-8").strip()


def _decode_as(data: bytes, encoding: str | None) -> str | None:
    if encoding is None:
        return None
    try:
        return codecs.decode(data, encoding)
    except (LookupError, ValueError):  # an unknown character set, or bytes that are not in it
        return None


def _checked(name: str, text: str) -> str:
    """Return the text unless control characters say that it is something else."""
    if len(_CONTROLS.findall(text)) > _MAX_CONTROL_SHARE * len(text):
        raise _binary(name)
    return text


def _binary(name: str) -> DocumentError:
    return DocumentError(f"{name} is not text (its bytes are binary): upload a PDF, DOCX, HTML, Markdown or text file.")
