"""One chunk's KV as one file: how it is laid out, written, and read layer by layer.

A sealed header (kv/encoded.py), then one payload a layer, each at a multiple of 4096 bytes; no pickle. A file appears
under its name whole or not at all. Knows nothing of folders, capacities or what is done about damage.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cacheblend.kv import LOSSLESS, ChunkKey, ChunkLostError, LayerKV
from cacheblend.kv.chunk import as_bytes
from cacheblend.kv.encoded import SEAL, Described, EncodedChunk, Header, checksum
from cacheblend.loading import Place

ALIGNMENT = 4096  # a page: layers share none, and a reader that bypasses the page cache can read them
HEAD_BYTES = 16384  # read at once, in the hope that the header is no longer


@dataclass(frozen=True, slots=True)
class FileChunk(EncodedChunk):
    """A chunk as it goes into a file; head: its header, sealed."""

    head: bytes

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each payload begins in the file, and where the file ends."""
        return offsets(len(self.head), self.header)

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self.offsets[-1]


class DiskChunk(Described):
    """A chunk in a file that is open as long as this object lives, so that an eviction does not hurt its reader.

    offsets: of each payload; lost: told (file, key, reason) when the file is not what was written, or cannot be read.
    """

    place = Place.DISK

    def __init__(
        self, fd: int, header: Header, offsets: tuple[int, ...], lost: Callable[[int, ChunkKey, Exception], None]
    ) -> None:
        self.fd, self.header = fd, header
        self._offsets, self._report = offsets, lost
        weakref.finalize(self, os.close, fd)

    def fetch(self, layer: int, out: LayerKV) -> bytes | None:
        """Read one layer, blocking without the GIL: plain tensors straight into `out`, anything else is returned."""
        if self.codec != LOSSLESS:
            return self.payload(layer)
        if out.nbytes != self.header.sizes[layer]:
            raise ChunkLostError(self.key, layer, f"{self.header.sizes[layer]} bytes are no layer of {out.nbytes}")
        parts = (as_bytes(out.keys).data, as_bytes(out.values).data)
        # Buffered and without hints: where it was measured (benchmarks/store.py; ext4 on a device that reads 8 MiB
        # ahead), the kernel's own reading ahead was 1.5 × as fast as asking for the next layers (WILLNEED) and twice as
        # fast as O_DIRECT, which waits for each layer; and what lies in the page cache serves the next question.
        try:
            num_read = os.preadv(self.fd, parts, self._offsets[layer])
        except OSError as error:
            raise self._lost(layer, error) from error
        self._check(layer, num_read, *parts)
        return None

    def payload(self, layer: int) -> bytes:
        """One layer's bytes as stored; ChunkLostError if they are gone or damaged."""
        try:
            data = os.pread(self.fd, self.header.sizes[layer], self._offsets[layer])
        except OSError as error:
            raise self._lost(layer, error) from error
        self._check(layer, len(data), data)
        return data

    def _check(self, layer: int, num_read: int, *parts: bytes | memoryview) -> None:
        if num_read != self.header.sizes[layer] or checksum(*parts) != self.header.checksums[layer]:
            raise self._lost(layer, ValueError("the bytes on disk are not what was written"))

    def _lost(self, layer: int, why: Exception) -> ChunkLostError:
        self._report(self.fd, self.key, why)
        return ChunkLostError(self.key, layer, str(why))


def offsets(head_bytes: int, header: Header) -> tuple[int, ...]:
    """Where each payload begins behind a sealed header of so many bytes, and where the file ends."""
    starts, end = [], head_bytes
    for size in header.sizes:
        starts.append(-(-end // ALIGNMENT) * ALIGNMENT)
        end = starts[-1] + size
    return (*starts, end)


def read_header(fd: int, key: ChunkKey) -> tuple[Header, tuple[int, ...]]:
    """A file's header and its offsets; ValueError if it is not a whole file of this chunk."""
    size, head = os.fstat(fd).st_size, os.pread(fd, HEAD_BYTES, 0)
    head_bytes = SEAL.size + (SEAL.unpack_from(head)[1] if len(head) >= SEAL.size else 0)
    if len(head) < head_bytes <= size:
        head += os.pread(fd, head_bytes - len(head), len(head))
    header = Header.unseal(head, key)
    places = offsets(head_bytes, header)
    if places[-1] != size:
        raise ValueError(f"the file has {size} bytes instead of {places[-1]}")
    return header, places


@contextmanager
def unfinished_file(path: Path) -> Iterator[int]:
    """Create a file and keep it locked while the body writes: the lock says that its writer lives, see `sweep`."""
    fd = -1
    try:
        while fd < 0 or os.fstat(fd).st_nlink == 0:  # swept away between its creation and the lock
            if fd >= 0:
                os.close(fd)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        if fd >= 0:
            os.close(fd)


def write_synced(chunk: FileChunk, fd: int) -> None:
    """Write a whole file and wait until it is on the medium."""
    with open(fd, "wb", closefd=False) as file:
        file.write(chunk.head)
        for offset, payload in zip(chunk.offsets, chunk.payloads, strict=False):  # the last offset is the end
            file.seek(offset)
            file.write(payload)
    os.fsync(fd)


def sweep(unfinished: Path) -> None:
    """Remove an unfinished file if its writer is gone, whichever process or container that was."""
    with suppress(OSError), open(unfinished, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unfinished.unlink()


def sync_folder(folder: Path) -> None:
    """Make what was renamed in a folder last through a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
