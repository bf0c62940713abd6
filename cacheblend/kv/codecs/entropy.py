"""Small integers to bits and back, by one of two coders. Tables are made from the data and travel with it.

Columns that spread alike share a probability table, because a table costs bytes too.

- HUFFMAN (zlib, without its search for repetitions) decodes a layer of 512 tokens of the embedded model, 196,608
  numbers, in about 0.6 ms, and lets go of Python's lock meanwhile, so that other threads compute.
- ANS (asymmetric numeral systems, the `constriction` library) is half a percent to 2 % smaller, takes 4 ms for the
  same, and holds the lock; one call decodes the columns of one table, a quarter of a millisecond. Its tables are
  integers: the same on every machine, which a formula evaluated in floating point would not promise.

Beside a thread that decodes without a pause, a prefill on one thread takes 1.2 times as long with HUFFMAN and 1.9 times
with ANS (two cores).
"""

from __future__ import annotations

import zlib
from enum import IntEnum

import constriction
import numpy as np

from cacheblend.kv.codecs.arrays import Reader

_RAW_DEFLATE = -15
_TOP = 255  # frequencies are bytes, the largest of a table is this


class Coder(IntEnum):
    """How integers become bits."""

    HUFFMAN = 0
    ANS = 1


def pack(numbers: np.ndarray, num_tables: int, coder: Coder) -> bytes:
    """Encode int8 (length, columns) with at most 255 tables; the same input gives the same bytes."""
    table_of = _assign(numbers, num_tables)
    encode = _huffman if coder is Coder.HUFFMAN else _ans
    blobs = [encode(numbers[:, table_of == table].reshape(-1)) for table in range(num_tables)]
    sizes = np.array([len(blob) for blob in blobs], "<u4")
    return b"".join((bytes((coder, num_tables)), table_of.tobytes(), sizes.tobytes(), *blobs))


def unpack(reader: Reader, length: int, columns: int) -> np.ndarray:
    """Decode what `pack` made of numbers (length, columns); ValueError if the bytes cannot be that."""
    coder, num_tables = (int(n) for n in reader.take("u1", 2))
    table_of = reader.take("u1", columns)
    sizes = reader.take("<u4", num_tables)
    if num_tables <= int(table_of.max(initial=0)) or coder not in tuple(Coder):
        raise ValueError("the entropy-coded part is damaged")
    decode = _from_huffman if coder == Coder.HUFFMAN else _from_ans
    parts = []
    for table, size in enumerate(sizes):
        members = int(np.count_nonzero(table_of == table))
        parts.append(decode(reader.take("u1", int(size)), length * members).reshape(length, members))
    place = np.argsort(np.argsort(table_of, kind="stable"), kind="stable")
    return np.concatenate(parts, axis=1)[:, place]


def _assign(numbers: np.ndarray, num_tables: int) -> np.ndarray:
    """The table of each column, uint8: columns ordered by their spread, in groups of equal size."""
    order = np.argsort(np.abs(numbers.astype(np.int32)).sum(axis=0), kind="stable")
    table_of = np.empty(len(order), np.uint8)
    table_of[order] = np.arange(len(order)) * num_tables // max(len(order), 1)
    return table_of


def _huffman(numbers: np.ndarray) -> bytes:
    coder = zlib.compressobj(9, zlib.DEFLATED, _RAW_DEFLATE, 9, zlib.Z_HUFFMAN_ONLY)
    return coder.compress(numbers.tobytes()) + coder.flush()


def _from_huffman(blob: np.ndarray, count: int) -> np.ndarray:
    coder = zlib.decompressobj(_RAW_DEFLATE)
    try:
        decoded = coder.decompress(blob.data, count + 1)  # never more than is asked for, whatever the bytes claim
    except zlib.error as error:
        raise ValueError(f"the entropy-coded part is damaged: {error}") from error
    if len(decoded) != count or not coder.eof or coder.unused_data:
        raise ValueError("the entropy-coded part is damaged")
    return np.frombuffer(decoded, np.int8)


def _ans(numbers: np.ndarray) -> bytes:
    low = int(numbers.min(initial=0))
    symbols = numbers.astype(np.int32) - low
    counts = np.bincount(symbols, minlength=2)  # the library wants two symbols to choose from
    frequencies = np.where(counts, np.maximum(1, counts * _TOP // max(counts.max(), 1)), 0).astype(np.uint8)
    coder = constriction.stream.stack.AnsCoder()
    if len(symbols):
        coder.encode_reverse(symbols, _model(frequencies))
    head = np.array([low], np.int8).tobytes() + bytes((len(frequencies) - 1,)) + frequencies.tobytes()
    return head + np.asarray(coder.get_compressed(), "<u4").tobytes()


def _from_ans(blob: np.ndarray, count: int) -> np.ndarray:
    reader = Reader(blob.data)
    low, last = int(reader.take("i1", 1)[0]), int(reader.take("u1", 1)[0])
    frequencies = reader.take("u1", last + 1)
    coder = constriction.stream.stack.AnsCoder(reader.rest("<u4").astype(np.uint32))
    symbols = coder.decode(_model(frequencies), count) if count else np.empty(0, np.int32)
    if not coder.is_empty():
        raise ValueError("the entropy-coded part is damaged")
    return np.asarray(symbols + low).astype(np.int8)


def _model(frequencies: np.ndarray) -> constriction.stream.model.Categorical:
    return constriction.stream.model.Categorical(frequencies.astype(np.float32), perfect=False)
