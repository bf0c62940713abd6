"""Chunk KV on a Redis or Valkey server: a value for each layer, so that layers can be fetched as they are needed.

`cacheblend:<digest>:h` holds the sealed header (kv/encoded.py), `cacheblend:<digest>:<layer>` a payload; no pickle. The
server may evict, be gone or answer nonsense at any time: all of it is a miss. Knows nothing of what is evicted when.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import redis

from cacheblend.kv import LOSSLESS, ChunkKey, ChunkLostError, LayerKV
from cacheblend.kv.codecs import Codec
from cacheblend.kv.codecs.lossless import Lossless
from cacheblend.kv.encoded import Described, EncodedChunk, Header, checksum, decode_into, encode
from cacheblend.loading import Place
from cacheblend.store.base import Entry, Movable, TierFullError
from cacheblend.store.index import LRU
from cacheblend.store.server import Server, TroubleError

logger = logging.getLogger(__name__)

PREFIX = "cacheblend:"
UNBOUNDED = sys.maxsize  # the capacity of a server that names none
SHARE = 0.75  # of a server's maxmemory: the rest is what it needs around the values, see `RemoteTier`
MAX_LISTED = 10_000  # headers read to learn what is there
BATCH = 500


class RemoteChunk(Described):
    """A chunk whose layers are fetched from a server when they are asked for."""

    place = Place.REMOTE

    def __init__(self, tier: RemoteTier, header: Header) -> None:
        self.header, self._tier = header, tier

    def fetch(self, layer: int, out: LayerKV) -> bytes | None:
        """Get one layer's payload; plain tensors are copied into `out`. ChunkLostError if it cannot be had."""
        payload = self._tier.payload(self.header, layer)
        if self.codec != LOSSLESS:
            return payload
        decode_into(self, layer, payload, out)
        return None


class RemoteTier:
    """The tier on a server, shared by all who use it.

    nbytes (of payloads), entries and their order are what this process knows: the headers it found on the server when
    it first looked, and after each outage, at most 10 000, and what it has put, read or missed since. The capacity is
    three quarters of the server's `maxmemory` unless one is given. A server that reaches its own bound evicts single
    layers, each of which costs a whole chunk, so it is better not to let it come to that.
    """

    place = Place.REMOTE

    def __init__(
        self, url: str, codec: Codec | None = None, capacity: int | None = None, *, timeout_s: float = 2.0
    ) -> None:
        """Connects when first asked. url: redis://, rediss:// or unix://, ValueError if not; timeout_s: of one read."""
        if capacity is not None and capacity <= 0:
            raise ValueError(f"capacity must be positive, got {capacity}")
        self.capacity, self.codec = capacity or UNBOUNDED, codec or Lossless()
        self.refusals = self.losses = 0
        self._is_bounded_by_server = capacity is None
        self._server = Server(url, timeout_s)
        self._lock = threading.RLock()
        self._index = LRU()
        self._learnt_after = -1  # outages seen when the index was read from the server; -1: never

    @property
    def nbytes(self) -> int:
        """Bytes of all payloads, as far as is known."""
        with self._lock:
            self._learn()
            return self._index.nbytes

    def __len__(self) -> int:
        with self._lock:
            self._learn()
            return len(self._index)

    def __contains__(self, key: ChunkKey) -> bool:
        return bool(self._try(lambda client: client.exists(head_name(key))))

    def get(self, key: ChunkKey) -> RemoteChunk | None:
        """Find an entry and mark all of its layers as used, on the server too; None if any is missing."""
        header = self._header(key)
        if header is None:
            return None
        there = self._try(lambda client: client.touch(*layer_names(header)))
        if there is None:
            self._count()
            return None
        if there != header.num_layers:
            self._lose(header, f"the server keeps {there} of its {header.num_layers} layers")
            return None
        with self._lock:
            if not self._index.touch(key):  # another process's
                self._index.add(key, header.payload_bytes)
        return RemoteChunk(self, header)

    def payload(self, header: Header, layer: int) -> bytes:
        """One layer's bytes; ChunkLostError if the server has not got them, or has got others."""
        try:
            data: Any = self._server.ask(lambda client: client.get(layer_name(header.key, layer)))
        except TroubleError as error:
            if error.is_outage:
                self._count()
            else:
                self._lose(header, str(error))
            raise ChunkLostError(header.key, layer, str(error)) from error
        if not is_payload(header, layer, data):
            why = "the server has evicted it" if data is None else "the server holds something else"
            self._lose(header, f"layer {layer}: {why}")
            raise ChunkLostError(header.key, layer, why)
        return bytes(data)

    def prepare(self, chunk: Movable) -> EncodedChunk:
        """The chunk encoded. ChunkLostError if what is in hand cannot be decoded."""
        return encode(chunk, self.codec)

    def put(self, prepared: Movable) -> None:
        """Set header and payloads in one transaction; TierFullError if the server does not take them."""
        chunk = self.prepare(prepared)

        def store(client: redis.Redis) -> None:
            with client.pipeline(transaction=True) as pipe:
                for name, payload in zip(layer_names(chunk.header), chunk.payloads, strict=True):
                    pipe.set(name, payload)
                pipe.set(head_name(chunk.key), chunk.header.sealed())
                pipe.execute()

        try:
            self._server.ask(store)
        except TroubleError as error:
            with self._lock:
                self.refusals += 1
            raise TierFullError(f"{self._server.address} takes no entry: {error}") from error
        with self._lock:
            self._index.add(chunk.key, chunk.nbytes)

    def take(self, key: ChunkKey) -> EncodedChunk | None:
        """Read an entry whole; None if it is gone or damaged."""
        header = self._header(key)
        if header is None:
            return None
        payloads: Any = self._try(lambda client: client.mget(layer_names(header)))
        if not isinstance(payloads, list):
            self._count()
            return None
        if not all(is_payload(header, layer, data) for layer, data in enumerate(payloads)):
            self._lose(header, "layers are missing or are not what was written")
            return None
        return EncodedChunk(header, tuple(payloads))

    def remove(self, key: ChunkKey) -> None:
        """Delete header and payloads."""
        num_layers = 0
        with suppress(ValueError, TypeError):  # no header, or none of ours: then its layers cannot be told
            num_layers = Header.unseal(self._try(lambda client: client.get(head_name(key))), key).num_layers
        self._drop(key, num_layers)

    def oldest(self, pinned: Container[ChunkKey] = ()) -> ChunkKey | None:
        """The entry that was used least recently as far as is known, and is not pinned."""
        with self._lock:
            self._learn()
            return self._index.oldest(pinned)

    def entries(self) -> Iterator[Entry]:
        """Every entry that is known, least recently used first."""
        with self._lock:
            self._learn()
            return self._index.entries()

    def clear(self) -> None:
        """Delete every value of ours, other processes' and remnants too."""

        def delete(client: redis.Redis) -> None:
            names = client.scan_iter(match=f"{PREFIX}*", count=BATCH)
            while batch := list(islice(names, BATCH)):
                client.unlink(*batch)

        self._try(delete)
        with self._lock:
            self._index.clear()

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    # Within

    def _try(self, work: Callable[[redis.Redis], Any]) -> Any:
        """What the server answers; None if it does not."""
        try:
            return self._server.ask(work)
        except TroubleError:
            return None

    def _header(self, key: ChunkKey) -> Header | None:
        try:
            data: Any = self._server.ask(lambda client: client.get(head_name(key)))
        except TroubleError as error:
            if not error.is_outage:  # a value of another type, under our name
                self._drop(key, 0)
            self._count()
            return None
        with self._lock:
            if data is None:
                self._index.discard(key)
                return None
        try:
            return Header.unseal(data, key)
        except (ValueError, TypeError) as error:
            logger.warning("The header of chunk %s on %s is removed: %s.", key.digest[:12], self._server.address, error)
            self._drop(key, 0)
            self._count()
            return None

    def _count(self) -> None:
        """Count an entry that may be there and cannot be had."""
        with self._lock:
            self.losses += 1

    def _lose(self, header: Header, why: str) -> None:
        """Count an entry that is not whole, and delete what is left of it."""
        logger.info("Chunk %s on %s is removed: %s.", header.digest[:12], self._server.address, why)
        self._count()
        self._drop(header.key, header.num_layers)

    def _drop(self, key: ChunkKey, num_layers: int) -> None:
        self._try(lambda client: client.unlink(head_name(key), *(layer_name(key, i) for i in range(num_layers))))
        with self._lock:
            self._index.discard(key)

    def _learn(self) -> None:
        """Read bounds, sizes and times of use from the server, once and again after each outage."""
        if self._learnt_after == self._server.outages:
            return
        outages = self._server.outages
        found = self._try(known_entries)
        if found is None:
            return
        maxmemory, entries = found
        if self._is_bounded_by_server:
            self.capacity = int(SHARE * maxmemory) or UNBOUNDED
        self._index.clear()
        for entry in sorted(entries, key=lambda entry: entry.used_at):
            self._index.add(entry.key, entry.nbytes, entry.used_at)
        self._learnt_after = outages


def head_name(key: ChunkKey) -> str:
    """Where a chunk's header is."""
    return f"{PREFIX}{key.digest}:h"


def layer_name(key: ChunkKey, layer: int) -> str:
    """Where one payload is."""
    return f"{PREFIX}{key.digest}:{layer}"


def layer_names(header: Header) -> list[str]:
    """Where all payloads of a chunk are."""
    return [layer_name(header.key, layer) for layer in range(header.num_layers)]


def is_payload(header: Header, layer: int, data: object) -> bool:
    """Whether a value is what was written."""
    return isinstance(data, bytes) and len(data) == header.sizes[layer] and checksum(data) == header.checksums[layer]


def known_entries(client: redis.Redis) -> tuple[int, list[Entry]]:
    """A server's maxmemory (0: none) and its chunks, from their headers; at most MAX_LISTED."""
    memory: Any = client.info("memory")
    names = islice(client.scan_iter(match=f"{PREFIX}*:h", count=BATCH), MAX_LISTED)
    entries, now = [], time.time()
    while batch := list(islice(names, BATCH)):
        with client.pipeline(transaction=False) as pipe:
            for name in batch:  # before they are read, which counts as a use
                pipe.object("IDLETIME", name)
            idle = pipe.execute(raise_on_error=False)
        heads: Any = client.mget(batch)
        for name, seconds, head in zip(batch, idle, heads, strict=True):
            key = ChunkKey(name.decode().removeprefix(PREFIX).removesuffix(":h"))
            used_at = now - seconds if isinstance(seconds, int) else 0.0  # not every policy of eviction tells
            with suppress(ValueError, TypeError):  # evicted meanwhile, or none of ours
                entries.append(Entry(key=key, nbytes=Header.unseal(head, key).payload_bytes, used_at=used_at))
    return int(memory["maxmemory"]), entries
