"""Chunk KV in a folder: one file a chunk (chunkfile.py), still there after a restart.

Several processes may share a folder: what a path holds is the truth, and what is kept in memory is only sizes and the
order of use. Files hold the chunks' token ids, so they are made for their owner's eyes. Knows nothing of what is
evicted when, or why.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cacheblend.kv import ChunkKey, ChunkLostError
from cacheblend.kv.codecs import Codec
from cacheblend.kv.codecs.lossless import Lossless
from cacheblend.kv.encoded import EncodedChunk, encode
from cacheblend.loading import Place
from cacheblend.store.base import Entry, Movable, TierFullError
from cacheblend.store.chunkfile import (
    DiskChunk,
    FileChunk,
    read_header,
    sweep,
    sync_folder,
    unfinished_file,
    write_synced,
)
from cacheblend.store.index import LRU

logger = logging.getLogger(__name__)

ENTRY_NAME = re.compile(r"[0-9a-f]{64}\.kv")
UNFINISHED_NAME = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{32}\.tmp")
CLOCK_TICK_S = 0.05  # file systems round times


class Health(StrEnum):
    """What `verify` finds a file to be."""

    GOOD = "good"
    DAMAGED = "damaged"  # and removed
    UNREADABLE = "unreadable"  # the medium or its permissions; left alone
    FOREIGN = "foreign"  # nothing of ours; left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One file of the folder; why: what is wrong with it, empty for a good one."""

    name: str
    health: Health
    why: str = ""


class DiskTier:
    """The tier in a folder, bounded in bytes of files; a restart continues with the same entries in the same order.

    Every process that uses the folder counts all of its entries. A time of use is the file's mtime, so that others and
    a restart see it. What another process has changed is noticed by the folder's mtime.
    """

    place = Place.DISK

    def __init__(self, folder: Path, capacity: int, codec: Codec | None = None) -> None:
        """ValueError if the folder cannot be used at all, or the capacity is not positive."""
        if capacity <= 0:
            raise ValueError(f"capacity must be positive, got {capacity}")
        self.folder, self.capacity, self.codec = folder, capacity, codec or Lossless()
        self.refusals = self.losses = 0
        self._lock = threading.RLock()
        self._index = LRU()
        self._seen_ns = 0  # the folder's mtime after our last change or look; 0: look again
        self._kinds: set[str] = set()  # of trouble already logged
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.scandir(folder).close()
        except OSError as error:
            raise ValueError(f"{folder} cannot hold caches ({error.strerror}); choose another folder.") from error
        for path in folder.iterdir():
            if UNFINISHED_NAME.fullmatch(path.name):
                sweep(path)
        self._refresh()

    @property
    def nbytes(self) -> int:
        """Bytes of the files of all entries."""
        with self._lock:
            self._refresh()
            return self._index.nbytes

    def __len__(self) -> int:
        with self._lock:
            self._refresh()
            return len(self._index)

    def __contains__(self, key: ChunkKey) -> bool:
        return os.path.exists(self._path(key))

    def get(self, key: ChunkKey) -> DiskChunk | None:
        """Open an entry and mark it as used; None if it is not there, or is damaged."""
        chunk = self._find(key)
        if chunk is None:
            return None
        now = time.time()
        with suppress(OSError):  # a folder that is read-only can be read
            os.utime(chunk.fd, (now, now))
        with self._lock:
            if not self._index.touch(key, now) and key in self:  # another process's
                self._index.add(key, os.fstat(chunk.fd).st_size, now)
        return chunk

    def prepare(self, chunk: Movable) -> FileChunk:
        """The chunk encoded; its nbytes are those of the file. ChunkLostError if what is in hand cannot be decoded."""
        if isinstance(chunk, FileChunk):
            return chunk
        encoded = encode(chunk, self.codec)
        return FileChunk(encoded.header, encoded.payloads, encoded.header.sealed())

    def put(self, prepared: Movable) -> None:
        """Write one file; TierFullError if the disk does not take it, with nothing left behind."""
        chunk = self.prepare(prepared)
        unfinished = self.folder / f".{chunk.key.digest}.{uuid.uuid4().hex}.tmp"
        try:
            self._write(chunk, unfinished)
            sync_folder(self.folder)
        except OSError as error:
            with suppress(OSError), self._changing():
                unfinished.unlink()
            with self._lock:
                self.refusals += 1
            self._log_once(error)
            raise TierFullError(f"{self.folder} does not take {chunk.nbytes / 1e6:.0f} MB: {error.strerror}") from error

    def take(self, key: ChunkKey) -> EncodedChunk | None:
        """Read an entry whole; None if it is gone or damaged."""
        chunk = self._find(key)
        if chunk is None:
            return None
        with suppress(ChunkLostError):
            return EncodedChunk(chunk.header, tuple(chunk.payload(layer) for layer in range(chunk.num_layers)))
        return None

    def remove(self, key: ChunkKey) -> None:
        """Delete the entry's file; readers that have it open go on."""
        with self._changing():
            self._index.discard(key)
            try:
                self._path(key).unlink(missing_ok=True)
            except OSError as error:
                self._log_once(error)

    def oldest(self, pinned: Container[ChunkKey] = ()) -> ChunkKey | None:
        """The entry whose file was used least recently, by any process, and is not pinned."""
        with self._lock:
            self._refresh()
            key = self._index.oldest(pinned)
            if key is not None and not self._is_current(key):  # another process has used or removed it
                self._seen_ns = 0
                self._refresh()
                key = self._index.oldest(pinned)
            return key

    def entries(self) -> Iterator[Entry]:
        """Every entry, least recently used first."""
        with self._lock:
            self._refresh()
            return self._index.entries()

    def clear(self) -> None:
        """Delete every entry's file; foreign files stay."""
        for entry in self.entries():
            self.remove(entry.key)

    def close(self) -> None:
        """Nothing to let go of: files are open only as long as somebody holds a chunk."""

    def verify(self) -> Iterator[Finding]:
        """Read every file of the folder and say what it is; damaged entries are removed, all else is left alone."""
        names: list[str] = []
        with suppress(OSError):
            names = sorted(os.listdir(self.folder))
        for name in names:
            if ENTRY_NAME.fullmatch(name):
                yield from self._verify(name)
            elif not UNFINISHED_NAME.fullmatch(name):
                yield Finding(name=name, health=Health.FOREIGN, why="not the name of a chunk's file")

    # Within

    def _path(self, key: ChunkKey) -> Path:
        return self.folder / f"{key.digest}.kv"

    def _find(self, key: ChunkKey) -> DiskChunk | None:
        """Open an entry's file; None if it is not there or cannot be used, which is counted and logged."""
        with suppress(OSError, ValueError):
            return self._open(key)
        return None

    def _open(self, key: ChunkKey) -> DiskChunk:
        """Open an entry's file and read its header; OSError or ValueError if that fails."""
        try:
            fd = os.open(self._path(key), os.O_RDONLY)
        except FileNotFoundError:
            with self._lock:
                self._index.discard(key)
            raise
        except OSError as error:
            self._lose(-1, key, error)
            raise
        try:
            header, places = read_header(fd, key)
        except (OSError, ValueError) as error:
            self._lose(fd, key, error)
            os.close(fd)
            raise
        return DiskChunk(fd, header, places, self._lose)

    def _lose(self, fd: int, key: ChunkKey, error: Exception) -> None:
        """Count and log an entry that cannot be read, and remove the file it was read from if it is damaged."""
        with self._lock:
            self.losses += 1
        if isinstance(error, OSError):  # of the medium: the file may be sound
            self._log_once(error)
            return
        logger.warning("The cached chunk %s was damaged and is removed: %s.", key.digest[:12], error)
        with suppress(OSError):
            if os.path.samestat(self._path(key).stat(), os.fstat(fd)):  # and not one that was written since
                self.remove(key)

    def _write(self, chunk: FileChunk, unfinished: Path) -> None:
        """Write a file under a name that is no entry's, then give it its own."""
        with ExitStack() as stack:
            with self._changing():
                fd = stack.enter_context(unfinished_file(unfinished))
            write_synced(chunk, fd)
            with self._changing():
                unfinished.replace(self._path(chunk.key))
                now = time.time()
                os.utime(fd, (now, now))
                self._index.add(chunk.key, chunk.nbytes, now)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the folder, and do not take the change for another process's."""
        with self._lock:
            is_current = self._mtime_ns() == self._seen_ns
            try:
                yield
            finally:
                self._seen_ns = self._mtime_ns() if is_current else 0

    def _refresh(self) -> None:
        """Read names, sizes and times again if another process changed the folder.

        A change within the same tick of the file system's clock as our own shows at the next one; until then only
        totals are off, for lookups go to the path.
        """
        seen_ns = self._mtime_ns()  # before the look: what happens during it is seen at the next
        if seen_ns == self._seen_ns:
            return
        found = []
        with suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                if ENTRY_NAME.fullmatch(file.name):
                    with suppress(OSError):  # removed meanwhile
                        stat = file.stat()
                        found.append((stat.st_mtime, file.name, stat.st_size))
        self._index.clear()
        for used_at, name, nbytes in sorted(found):
            self._index.add(ChunkKey(name.removesuffix(".kv")), nbytes, used_at)
        self._seen_ns = seen_ns

    def _mtime_ns(self) -> int:
        try:
            return self.folder.stat().st_mtime_ns
        except OSError:
            return -1  # the folder is gone: no entries

    def _is_current(self, key: ChunkKey) -> bool:
        """Whether the file is there and was not used later than the index knows."""
        with suppress(OSError):
            return self._path(key).stat().st_mtime <= (self._index.used_at(key) or 0) + CLOCK_TICK_S
        return False

    def _verify(self, name: str) -> Iterator[Finding]:
        try:
            chunk = self._open(ChunkKey(name.removesuffix(".kv")))
            for layer in range(chunk.num_layers):
                chunk.payload(layer)
        except FileNotFoundError:  # evicted meanwhile
            return
        except (OSError, ValueError, ChunkLostError) as error:
            is_medium = isinstance(error.__cause__ or error, OSError)
            yield Finding(name=name, health=Health.UNREADABLE if is_medium else Health.DAMAGED, why=str(error))
        else:
            yield Finding(name=name, health=Health.GOOD)

    def _log_once(self, error: OSError) -> None:
        """One line for each kind of trouble: a full disk would otherwise fill the log too."""
        kind = errno.errorcode.get(error.errno or 0, "trouble")
        with self._lock:
            is_new = kind not in self._kinds
            self._kinds.add(kind)
        if is_new:
            logger.warning(
                "The cache folder %s has trouble (%s: %s); caches are computed again where it shows.",
                self.folder,
                kind,
                error.strerror,
            )
