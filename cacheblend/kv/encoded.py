"""A chunk's KV as bytes: a header that describes itself, and one payload a layer. What disks and networks carry.

No pickle: the header is JSON, payloads are what a codec makes. Knows nothing of files or servers.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from typing import Any

import torch
import xxhash

from cacheblend.kv import codecs
from cacheblend.kv.chunk import ChunkKey, ChunkKV, ChunkLostError, LayerKV, StoredChunk
from cacheblend.kv.codecs import Codec, decode
from cacheblend.loading import LOSSLESS, Place

FORMAT = "cacheblend-chunk/1"
SEAL = struct.Struct("<8sQQ")  # magic, bytes of the JSON behind it, xxh3 of the JSON
MAGIC = b"cbchunk1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Everything needed to read a chunk's layers. sizes: bytes of each layer's payload; checksums: xxh3 of each."""

    digest: str
    token_ids: tuple[int, ...]
    codec: str
    dtype: str
    kv_heads: int
    head_dim: int
    sizes: tuple[int, ...]
    checksums: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes | memoryview) -> Header:
        """Read what `to_bytes` wrote; ValueError for anything else."""
        try:
            raw: dict[str, Any] = json.loads(bytes(data))
            if raw.pop("format") != FORMAT:
                raise ValueError(f"not a {FORMAT} header")
            fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in raw.items()}
            header = cls(**fields)
            numbers = (*header.token_ids, *header.sizes, header.kv_heads, header.head_dim)
            names = (header.digest, header.codec, header.dtype, *header.checksums)
            is_sound = all(type(n) is int and n >= 0 for n in numbers) and all(isinstance(n, str) for n in names)
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"not a chunk's header: {error}") from error
        if not is_sound or len(header.sizes) != len(header.checksums) or not header.sizes:
            raise ValueError("not a chunk's header")
        if not isinstance(getattr(torch, header.dtype, None), torch.dtype):
            raise ValueError(f"“{header.dtype}” is no dtype")
        return header

    def sealed(self) -> bytes:
        """The JSON behind its length and checksum: how a header lies on disks and servers."""
        body = self.to_bytes()
        return SEAL.pack(MAGIC, len(body), xxhash.xxh3_64_intdigest(body)) + body

    @classmethod
    def unseal(cls, data: bytes | memoryview, key: ChunkKey) -> Header:
        """Read what `sealed` made of this chunk, whatever lies behind it.

        ValueError if it is damaged, another chunk's, nothing of ours, or encoded in a way that is not known here.
        """
        if len(data) < SEAL.size:
            raise ValueError("too short for a chunk's header")
        magic, length, expected = SEAL.unpack_from(data)
        body = bytes(data[SEAL.size : SEAL.size + length])
        if magic != MAGIC or len(body) != length or xxhash.xxh3_64_intdigest(body) != expected:
            raise ValueError("the header is damaged, or is none")
        header = cls.parse(body)
        if header.key != key:
            raise ValueError("it is another chunk's")
        codecs.codec(header.codec)
        return header

    @property
    def key(self) -> ChunkKey:
        """What the chunk is found by."""
        return ChunkKey(self.digest)

    @property
    def num_layers(self) -> int:
        """How many payloads there are."""
        return len(self.sizes)

    def empty_layer(self) -> LayerKV:
        """Fresh CPU tensors of one layer's shape, (tokens, kv_heads, head_dim) each."""
        shape, dtype = (len(self.token_ids), self.kv_heads, self.head_dim), getattr(torch, self.dtype)
        return LayerKV(torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype))

    @property
    def payload_bytes(self) -> int:
        """All payloads together."""
        return sum(self.sizes)


def checksum(*parts: bytes | memoryview) -> str:
    """What `Header.checksums` holds of one payload, whole or in parts: 64 bits against bit rot, not against malice."""
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


class Described:
    """A stored chunk as its header describes it: all of `StoredChunk` but where it is and how it is read."""

    __slots__ = ()
    header: Header

    @property
    def key(self) -> ChunkKey:
        """What it is found by."""
        return self.header.key

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The chunk's tokens."""
        return self.header.token_ids

    @property
    def num_tokens(self) -> int:
        """Length in tokens."""
        return len(self.header.token_ids)

    @property
    def nbytes(self) -> int:
        """Bytes of all payloads."""
        return self.header.payload_bytes

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return self.header.num_layers

    def empty_layer(self) -> LayerKV:
        """Fresh tensors of one layer's shape."""
        return self.header.empty_layer()

    @property
    def codec(self) -> str:
        """Name of the codec."""
        return self.header.codec


@dataclass(frozen=True, slots=True)
class EncodedChunk(Described):
    """A chunk's KV as bytes in memory: on its way to a disk or a network, or held in fewer bytes than as tensors."""

    header: Header
    payloads: tuple[bytes, ...]

    @classmethod
    def of(cls, chunk: ChunkKV, codec: Codec) -> EncodedChunk:
        """Encode every layer of a chunk."""
        num_layers = len(chunk.layers)
        payloads = tuple(
            codec.encode(LayerKV(kv.keys.cpu(), kv.values.cpu()), layer, num_layers)
            for layer, kv in enumerate(chunk.layers)
        )
        keys = chunk.layers[0].keys
        header = Header(
            digest=chunk.key.digest,
            token_ids=chunk.token_ids,
            codec=codec.name,
            dtype=str(keys.dtype).removeprefix("torch."),
            kv_heads=keys.shape[1],
            head_dim=keys.shape[2],
            sizes=tuple(len(payload) for payload in payloads),
            checksums=tuple(checksum(payload) for payload in payloads),
        )
        return cls(header, payloads)

    @property
    def place(self) -> Place:
        """Host memory."""
        return Place.MEMORY

    def fetch(self, layer: int, out: LayerKV) -> bytes | None:
        """One layer's payload; plain tensors go straight into `out`."""
        if self.codec != LOSSLESS:
            return self.payloads[layer]
        decode_into(self, layer, self.payloads[layer], out)
        return None


def encode(chunk: ChunkKV | EncodedChunk, codec: Codec) -> EncodedChunk:
    """The chunk encoded by `codec`; ChunkLostError if bytes in hand are not what was encoded.

    What went through a lossy codec stays with that one: a second would lose a second time.
    """
    if chunk.codec != LOSSLESS:
        codec = codecs.codec(chunk.codec)
    if isinstance(chunk, EncodedChunk):
        return chunk if chunk.codec == codec.name else EncodedChunk.of(materialise(chunk), codec)
    return EncodedChunk.of(chunk, codec)


def materialise(chunk: StoredChunk) -> ChunkKV:
    """Read every layer into tensors of its own; ChunkLostError if one cannot be read."""
    layers = []
    for layer in range(chunk.num_layers):
        out = chunk.empty_layer()
        payload = chunk.fetch(layer, out)
        if payload is not None:
            decode_into(chunk, layer, payload, out)
        layers.append(out)
    return ChunkKV(chunk.key, chunk.token_ids, tuple(layers), chunk.codec)


def decode_into(chunk: StoredChunk, layer: int, payload: bytes, out: LayerKV) -> None:
    """Decode what `chunk.fetch` returned; ChunkLostError if the bytes are not what was written."""
    try:
        decode(chunk.codec, payload, out)
    except ValueError as error:
        raise ChunkLostError(chunk.key, layer, str(error)) from error
