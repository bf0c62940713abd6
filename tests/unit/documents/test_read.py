"""Every supported format is read as what its bytes say, and what cannot be read is refused in one plain sentence."""

import codecs
import io
import random
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cacheblend.documents import Document, DocumentError, DocumentKind, Limits, display_name, read_document
from tests.unit.documents.uploads import (
    docx_bytes,
    encrypted_pdf_bytes,
    part_of,
    pdf_bytes,
    with_part,
    zip_bytes,
)

Read = Callable[..., Document]
XSS = '<script>alert("x")</script><img src=x onerror=alert(1)>'
SENTENCE = re.compile(r"^[^\n]+ (?:is|has|holds|takes|unpacks|declares|cannot)\b[^\n]*[.]$")


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_bytes(name: str, data: bytes, **limits: float) -> Document:
        path = tmp_path / "upload"
        path.write_bytes(data)
        return read_document(path, name=name, limits=Limits(**limits))

    return read_bytes


def refusal(read: Read, name: str, data: bytes, **limits: float) -> str:
    with pytest.raises(DocumentError) as caught:
        read(name, data, **limits)
    message = str(caught.value)
    assert message.startswith(display_name(name)) and SENTENCE.match(message), message
    return message


def test_pdf(read: Read) -> None:
    document = read("report.pdf", pdf_bytes("The first page.", "The second page."))
    assert (document.kind, document.num_pages, document.warnings) == (DocumentKind.PDF, 2, ())
    assert document.text == "The first page.\n\nThe second page."


def test_pdf_page_without_text_is_said(read: Read) -> None:
    document = read("report.pdf", pdf_bytes("The first page.", ""))
    assert document.warnings == ("1 of 2 pages have no text (page 2): blank, or pictures that need OCR.",)


def test_pdf_encrypted_only_against_changes_is_read(read: Read) -> None:
    assert read("report.pdf", encrypted_pdf_bytes("")).text == "secret words"


def test_docx_with_table_in_reading_order(read: Read) -> None:
    document = read("notes.docx", docx_bytes("One.", "", "Two.", rows=(("a", "b"), ("c", "d"))))
    assert document.kind is DocumentKind.DOCX and document.num_pages is None
    assert document.text == "One.\n\nTwo.\n\na | b\nc | d"


def test_docx_cell_that_claims_to_span_billions_is_read_once(read: Read) -> None:
    archive = docx_bytes("One.", rows=(("wide", "b"),))
    body = part_of(archive, "word/document.xml")
    spanned = body.replace(b"<w:tcPr>", b'<w:tcPr><w:gridSpan w:val="2000000000"/>', 1)
    assert spanned != body
    assert read("notes.docx", with_part(archive, "word/document.xml", spanned)).text == "One.\n\nwide | b"


def test_html_keeps_what_a_reader_sees(read: Read) -> None:
    page = b"""<!DOCTYPE html><html><head><title>Log  book</title><style>p {color: red}</style></head><body>
        <nav>Home</nav><h1>Day</h1><p>The sh<b>ip</b>
        passed.<!-- secret --></p><script>alert(1)</script><p hidden>gone</p><p style="display: none">gone</p>
        <ul><li>one<li>two</ul><pre>a
  b</pre><table><tr><td>x</td><td>y</td></tr></table></body></html>"""
    document = read("log.html", page)
    assert document.kind is DocumentKind.HTML
    assert document.text == "Log book\n\nDay\n\nThe ship passed.\n\none\ntwo\n\na\n  b\n\nx | y"


def test_html_in_a_declared_character_set(read: Read) -> None:
    page = '<html><meta charset="koi8-r"><p>Маяк на берегу</p></html>'.encode("koi8-r")
    document = read("log.html", page)
    assert document.text == "Маяк на берегу" and document.warnings == ()


def test_html_nested_deeper_than_the_stack(read: Read) -> None:
    assert read("log.html", b"<html>" + b"<div>" * 20_000 + b"deep").text == "deep"


@pytest.mark.parametrize(("name", "kind"), [("a.md", DocumentKind.MARKDOWN), ("a.txt", DocumentKind.TEXT)])
def test_markup_in_text_is_kept_verbatim(read: Read, name: str, kind: DocumentKind) -> None:
    document = read(name, f"# Title\n\n{XSS}\n".encode())
    assert document.kind is kind and document.text == f"# Title\n\n{XSS}"


def test_markup_in_a_file_name_is_kept_verbatim(read: Read) -> None:
    assert read("<img src=x onerror=alert(1)>.txt", b"text").name == "<img src=x onerror=alert(1)>.txt"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_marked_character_sets(read: Read, encoding: str) -> None:
    document = read("a.txt", "Ein Wärter, zwei Öfen".encode(encoding))
    assert document.text == "Ein Wärter, zwei Öfen" and document.warnings == ()


def test_guessed_character_set_is_said(read: Read) -> None:
    text = "Der Wärter zündete die Öllampe an und schloß die Tür. Später hörte er ein Geräusch. " * 5
    document = read("a.txt", text.encode("latin-1"))
    assert document.text == text.strip()
    assert "was guessed as" in document.warnings[0]


def test_lines_and_controls_are_cleaned(read: Read) -> None:
    text = "one\r\ntwo\rthree\u2028four" + "." * 1000 + "\x1b"
    assert read("a.txt", text.encode()).text == "one\ntwo\nthree\nfour" + "." * 1000


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("report.txt", pdf_bytes("The first page."), DocumentKind.PDF),
        ("report.pdf", docx_bytes("The first page."), DocumentKind.DOCX),
        ("report.pdf", b"<!doctype html><p>The first page.", DocumentKind.HTML),
        ("report.docx", b"The first page.", DocumentKind.TEXT),
        ("report.html", b"%PDF-" + pdf_bytes("The first page.")[5:], DocumentKind.PDF),
    ],
)
def test_mislabelled_is_read_as_what_it_is(read: Read, name: str, data: bytes, kind: DocumentKind) -> None:
    document = read(name, data)
    assert document.kind is kind and document.text == "The first page."
    assert re.match(r"Read as .*, which its bytes are; its name says .*\.", document.warnings[0])


def test_text_that_mentions_the_pdf_header_is_text(read: Read) -> None:
    assert read("a.md", b"A PDF begins with %PDF-1.7").kind is DocumentKind.MARKDOWN


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("a.pdf", encrypted_pdf_bytes("key"), "is encrypted: remove its password and upload it again."),
        ("a.pdf", pdf_bytes("", ""), "has no text, only pictures of pages"),
        ("a.pdf", pdf_bytes("words")[:200], "cut short|no pages that can be read|damaged"),
        ("a.pdf", b"%PDF-1.7\n" + random.Random(0).randbytes(4000), "damaged|no pages"),
        ("a.pdf", b"\x89PNG\r\n\x1a\n" + bytes(100), "is a PNG image"),
        ("a.docx", zip_bytes(readme=b"hello"), "is a zip archive, not a Word document"),
        ("a.docx", docx_bytes("words")[:3000], "is damaged or cut short"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "old or password-protected Office file"),
        ("a.docx", docx_bytes(), "has no text to read"),
        ("a.rtf", b"{\\rtf1 hello}", "is an RTF file"),
        ("a.txt", b"", "is empty"),
        ("a.txt", b" \n\t ", "is empty"),
        ("a.txt", random.Random(0).randbytes(5000), "is not text"),
        ("a.txt", b"words and\0null bytes", "is not text"),
        ("a.txt", b"MZ\x90\0" + bytes(200), "is a program"),
        ("a.html", b"<html><script>x()</script></html>", "has no text to read"),
        ("a.html", b"<html>" + bytes(500), "is not text"),
        ("a.md", codecs.BOM_UTF8, "is not text|has no text"),
    ],
)
def test_refused(read: Read, name: str, data: bytes, what: str) -> None:
    assert re.search(what, refusal(read, name, data))


@pytest.mark.parametrize(
    ("name", "data", "limits", "what"),
    [
        ("a.txt", b"x" * 3_000_000, {"max_bytes": 2 * 1024**2}, "is larger than 2 MB, the limit"),
        ("a.txt", b"x" * 2001, {"max_characters": 2000}, "has 2,001 characters; the limit is 2,000"),
        ("a.pdf", pdf_bytes("one", "two", "three"), {"max_pages": 2}, "has 3 pages; the limit is 2"),
        ("a.pdf", pdf_bytes("x" * 60, "y" * 60), {"max_characters": 50}, "more than 50 characters, the limit"),
        ("a.pdf", pdf_bytes("word"), {"max_seconds": 0.01}, "takes more than 0.01 seconds to read, the limit"),
        ("a.docx", docx_bytes("x" * 60), {"max_characters": 50}, "more than 50 characters, the limit"),
        ("a.docx", docx_bytes("x"), {"max_zip_entries": 3}, "parts; the limit is 3"),
        ("a.html", b"<html>" + b"x" * 1024**2, {"max_markup_bytes": 1024**2}, "the limit is 1 MB"),
    ],
)
def test_limits_are_said(read: Read, name: str, data: bytes, limits: dict[str, float], what: str) -> None:
    assert what in refusal(read, name, data, **limits)


def test_zip_bomb_by_its_declared_size(read: Read) -> None:
    bomb = with_part(docx_bytes("x"), "word/media/zeros.bin", bytes(120 * 1024**2))
    assert len(bomb) < 1024**2
    assert "unpacks to more than 100 MB, the limit" in refusal(read, "a.docx", bomb)


def test_zip_bomb_of_markup(read: Read) -> None:
    bomb = with_part(docx_bytes("x"), "word/document.xml", b"<w>" + b"<w/>" * 3 * 1024**2)
    assert "holds more than 10 MB of XML" in refusal(read, "a.docx", bomb)


def test_zip_bomb_that_declares_a_small_size(read: Read) -> None:
    data = bytearray(with_part(docx_bytes("x"), "word/media/zeros.bin", bytes(40 * 1024**2)))
    for offset, field in ((data.rindex(b"PK\x01\x02"), 24), (data.rindex(b"PK\x03\x04"), 22)):
        struct.pack_into("<I", data, offset + field, 10)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.infolist()[-1].file_size == 10
    assert "damaged" in refusal(read, "a.docx", bytes(data), max_unzipped_bytes=20 * 1024**2)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-7"])
def test_entity_bomb(read: Read, encoding: str) -> None:
    entities = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
    xml = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE x [<!ENTITY e0 "ha">{entities}]><x>&e9;</x>'
    message = refusal(read, "a.docx", with_part(docx_bytes("x"), "word/document.xml", xml.encode(encoding)))
    assert "declares XML entities" in message or "damaged" in message


def test_external_entity_is_not_read(read: Read, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden")
    xml = f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{tmp_path}/secret">]><x>&e;</x>'
    message = refusal(read, "a.docx", with_part(docx_bytes("x"), "word/document.xml", xml.encode()))
    assert "declares XML entities" in message


@pytest.mark.parametrize(
    ("page", "limits", "what"),
    [
        (b"<html>x" + b"<!--" * 1_000_000, {"max_seconds": 3}, "takes more than 3 seconds to read, the limit"),
        (b"<html>" + b"<b>" * 1_000_000, {"max_memory_bytes": 256 * 1024**2}, "is damaged, cut short or too complex"),
    ],
)
def test_page_that_would_hang_or_fill_the_memory(read: Read, page: bytes, limits: dict[str, float], what: str) -> None:
    assert what in refusal(read, "a.html", page, **limits)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.txt", tmp_path):
        with pytest.raises(DocumentError, match=r"cannot be opened: upload it again\."):
            read_document(path)


@pytest.mark.parametrize("original", [pdf_bytes("Words of a page. " * 20, "More"), docx_bytes("Words", rows=(("a",),))])
@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_read_or_refused(read: Read, original: bytes, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(original)
    for _ in range(rng.choice((1, 10, 100))):
        data[rng.randrange(8, len(data))] = rng.randrange(256)
    try:
        document = read("a.pdf", bytes(data[: rng.randrange(len(data) // 2, len(data))] if seed % 3 == 0 else data))
    except DocumentError as error:
        assert SENTENCE.match(str(error))
    else:
        assert document.text == document.text.strip() != ""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\report.pdf", "report.pdf"),
        ("two\nlines\x1b.txt", "two lines .txt"),
        ("", "unnamed"),
        ("x" * 300 + ".pdf", "x" * 99 + "…" + "x" * 16 + ".pdf"),
    ],
)
def test_display_name(name: str, shown: str) -> None:
    assert display_name(name) == shown


def test_limits_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="max_pages must be above 0, got 0"):
        Limits(max_pages=0)
