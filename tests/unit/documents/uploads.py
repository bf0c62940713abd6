"""Uploads of every kind, good and bad, made in the test process, and a tiny tokenizer to split them with."""

from __future__ import annotations

import functools
import io
import zipfile

import docx
from fpdf import FPDF
from pypdf import PdfReader, PdfWriter
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = "The keeper of the lighthouse wrote in the log that the ship had passed.\n\nShe was right: it came back. "
CONTROLS = ("<|im_start|>", "<|im_end|>")
MARKED = "<tool_call>"  # an added token that is not declared special, as in some instruct models


def pdf_bytes(*pages: str) -> bytes:
    """A PDF of one text per page; an empty text is a page with a drawing and no text."""
    pdf = FPDF()
    pdf.set_font("helvetica", size=12)
    for text in pages:
        pdf.add_page()
        if text:
            pdf.multi_cell(0, text=text)
        else:
            pdf.rect(20, 20, 50, 50)
    return bytes(pdf.output())


def encrypted_pdf_bytes(user_password: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf_bytes("secret words"))))
    writer.encrypt(user_password, owner_password="owner", algorithm="AES-256")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def docx_bytes(*paragraphs: str, rows: tuple[tuple[str, ...], ...] = ()) -> bytes:
    """A Word document of paragraphs and, after them, one table."""
    document = docx.Document()
    for text in paragraphs:
        document.add_paragraph(text)
    if rows:
        table = document.add_table(rows=len(rows), cols=len(rows[0]))
        for i, row in enumerate(rows):
            for j, text in enumerate(row):
                table.cell(i, j).text = text
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def with_part(archive: bytes, name: str, content: bytes) -> bytes:
    """The same archive with one part added or replaced, well compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            if entry.filename != name:
                new.writestr(entry, old.read(entry))
        new.writestr(name, content)
    return buffer.getvalue()


def part_of(archive: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return opened.read(name)


def zip_bytes(**parts: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@functools.cache
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of 400 tokens with two control tokens and one added token that is not special."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        [CORPUS] * 4, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=list(CONTROLS))
    )
    backend.add_tokens([AddedToken(MARKED, special=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=CONTROLS[0], eos_token=CONTROLS[1])
