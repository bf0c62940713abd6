"""What the disk tier costs: lookups and memory against the number of entries, and reading and writing against `dd`.

`python -m benchmarks.store` needs no model: chunks are random bytes, 6 × 512 tokens of the embedded model's shape. The
page cache is dropped before files are read, which is checked. Rounds interleave everything that is compared, in random
order, and medians are printed, because machines drift. `dd` is taken at its own word, without the start of its process.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cacheblend.kv import ChunkKey, ChunkKV, LayerKV
from cacheblend.kv.chunk import as_bytes
from cacheblend.kv.codecs.lossless import Lossless
from cacheblend.kv.encoded import checksum
from cacheblend.store.chunkfile import FileChunk
from cacheblend.store.disk import DiskTier

CHUNKS, TOKENS, LAYERS, KV_HEADS, HEAD_DIM = 6, 512, 30, 3, 64
ENTRIES = (100, 1_000, 10_000, 100_000)
LOOKUPS = 1000
ROOMY = 1 << 40
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; the system's temporary folder by default")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        result: dict[str, Any] = {
            "environment": {
                "python": sys.version.split()[0],
                "processors": os.cpu_count(),
                "system": os.uname().release,
            },
            "throughput": throughput(folder / "large", args.rounds),
            "lookup": lookups(folder / "small"),
        }
    print_throughput(result["throughput"])
    print_lookups(result["lookup"])
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


def random_chunk(name: int, tokens: int, layers: int, kv_heads: int = KV_HEADS, head_dim: int = HEAD_DIM) -> ChunkKV:
    """A chunk of random bits in bfloat16."""

    def bits() -> torch.Tensor:
        return torch.randint(0, 256, (tokens, kv_heads, 2 * head_dim), dtype=torch.uint8).view(torch.bfloat16)

    ids = (name,) * tokens
    return ChunkKV(ChunkKey.of("benchmark", ids), ids, tuple(LayerKV(bits(), bits()) for _ in range(layers)))


# Lookups


def lookups(folder: Path) -> list[dict[str, float]]:
    """A row for each number of entries, each in a folder of its own."""
    opened = [open_filled(folder / str(entries), entries) for entries in ENTRIES]
    times: list[dict[str, list[float]]] = [{"hit_us": [], "miss_us": [], "oldest_us": []} for _ in ENTRIES]
    choose = random.Random(0)
    for n in range(LOOKUPS):
        missing = ChunkKey.of("nobody's", (n,))
        for (tier, keys, _), taken in zip(opened, times, strict=True):
            key = choose.choice(keys)
            tier.get(key)  # so that its file is in the page cache at every size
            taken["hit_us"].append(1e6 * seconds(partial(tier.get, key)))
            taken["miss_us"].append(1e6 * seconds(partial(tier.get, missing)))
            taken["oldest_us"].append(1e6 * seconds(tier.oldest))
    return [
        {"entries": len(tier), **row, **{name: statistics.median(us) for name, us in taken.items()}}
        for (tier, _, row), taken in zip(opened, times, strict=True)
    ]


def open_filled(folder: Path, entries: int) -> tuple[DiskTier, list[ChunkKey], dict[str, float]]:
    """A tier of so many tiny files, their keys, how long it took to open and what its index takes."""
    maker, keys = DiskTier(folder, ROOMY), []
    for name in range(entries):
        chunk = maker.prepare(random_chunk(name, tokens=1, layers=1, kv_heads=1, head_dim=2))
        content = chunk.head.ljust(chunk.offsets[0], b"\0") + chunk.payloads[0]
        (folder / f"{chunk.key.digest}.kv").write_bytes(content)  # put would sync each of them
        keys.append(chunk.key)
    opening_ms = 1e3 * seconds(lambda: DiskTier(folder, ROOMY))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tier = DiskTier(folder, ROOMY)
    index_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return tier, keys, {"opening_ms": opening_ms, "index_bytes_per_entry": index_bytes / entries}


def print_lookups(rows: Sequence[dict[str, float]]) -> None:
    """Print lookups against entries."""
    print(f"{'entries':>8} {'hit µs':>8} {'miss µs':>8} {'oldest µs':>10} {'opening ms':>11} {'index bytes/entry':>18}")
    for row in rows:
        print(
            f"{row['entries']:8} {row['hit_us']:8.1f} {row['miss_us']:8.1f} {row['oldest_us']:10.1f} "
            f"{row['opening_ms']:11.1f} {row['index_bytes_per_entry']:18.0f}"
        )
    first, last = rows[0], rows[-1]
    print(
        f"a hit among {last['entries']} entries: {last['hit_us'] / first['hit_us']:.2f} × one among {first['entries']}"
    )


# Reading and writing


def throughput(folder: Path, rounds: int) -> dict[str, Any]:
    """Bytes per second of every contender, and the tier's over dd's, as medians over the rounds."""
    tier, spare = DiskTier(folder, ROOMY), DiskTier(folder.with_name("spare"), ROOMY)
    prepared = [tier.prepare(random_chunk(name, TOKENS, LAYERS)) for name in range(CHUNKS)]
    for chunk in prepared:
        tier.put(chunk)
    files = [folder / f"{chunk.key.digest}.kv" for chunk in prepared]
    buffers = [chunk.empty_layer() for chunk in prepared]
    nbytes = sum(file.stat().st_size for file in files)

    def drop() -> None:
        drop_cache(files)

    def warm() -> None:
        for file in files:
            file.read_bytes()

    def timed(work: Callable[..., None], *arguments: Any) -> Callable[[], float]:
        return lambda: seconds(lambda: work(*arguments))

    # name: what is done before, and what then takes so many seconds
    work: dict[str, tuple[Callable[[], None], Callable[[], float]]] = {
        "tier": (drop, timed(read_tier, tier, prepared, buffers)),
        "dd direct": (drop, lambda: dd(files, "of=/dev/null", "iflag=direct")),
        "dd buffered": (drop, lambda: dd(files, "of=/dev/null")),
        "WILLNEED": (drop, timed(read_ahead, files, prepared, buffers)),
        "O_DIRECT": (drop, timed(read_direct, files, prepared, buffers)),
        "tier, warm": (warm, timed(read_tier, tier, prepared, buffers)),
        "put": (spare.clear, timed(put_all, spare, prepared)),
        "dd fsync": (warm, lambda: dd(files, f"of={folder.with_name('spare.bin')}", "conv=fsync")),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for round_ in range(rounds + 1):
        for name in random.sample(list(work), len(work)):
            before, measure = work[name]
            before()
            elapsed = measure()
            if round_:  # the first round is not counted
                times[name].append(elapsed)
    return {
        "bytes": nbytes,
        "rounds": rounds,
        "bytes_per_second": {name: nbytes / statistics.median(t) for name, t in times.items()},
        "tier_over_dd_direct": ratio(times, "dd direct", "tier"),
        "tier_over_dd_buffered": ratio(times, "dd buffered", "tier"),
        "put_over_dd_fsync": ratio(times, "dd fsync", "put"),
    }


def ratio(times: dict[str, list[float]], slower: str, faster: str) -> float:
    """Median of the rounds' own ratios: both sides of each were taken moments apart."""
    return statistics.median(a / b for a, b in zip(times[slower], times[faster], strict=True))


def seconds(work: Callable[[], Any]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def read_tier(tier: DiskTier, chunks: Sequence[FileChunk], buffers: Sequence[LayerKV]) -> None:
    """Look every chunk up and read it layer by layer, as a question does: headers, checksums and all."""
    found = [tier.get(chunk.key) for chunk in chunks]
    for layer in range(LAYERS):
        for chunk, buffer in zip(found, buffers, strict=True):
            if chunk is None:
                raise SystemExit("a chunk was lost while it was measured")
            chunk.fetch(layer, buffer)


def put_all(tier: DiskTier, chunks: Sequence[FileChunk]) -> None:
    """Write every chunk; each is on the disk when the next begins."""
    for chunk in chunks:
        tier.put(chunk)


def read_ahead(files: Sequence[Path], chunks: Sequence[FileChunk], buffers: Sequence[LayerKV]) -> None:
    """The tier's way, with the kernel told to fetch the two layers behind each one read."""
    fds = [os.open(file, os.O_RDONLY) for file in files]
    for layer in range(LAYERS):
        for fd, chunk, out in zip(fds, chunks, buffers, strict=True):
            start, size = chunk.offsets[layer], chunk.header.sizes[layer]
            os.posix_fadvise(fd, start + size, 2 * size, os.POSIX_FADV_WILLNEED)
            parts = (as_bytes(out.keys).data, as_bytes(out.values).data)
            os.preadv(fd, parts, start)
            checksum(*parts)
    for fd in fds:
        os.close(fd)


def read_direct(files: Sequence[Path], chunks: Sequence[FileChunk], buffers: Sequence[LayerKV]) -> None:
    """Past the page cache, one layer at a time into an aligned buffer, and from there into place."""
    aligned = mmap.mmap(-1, max(size for chunk in chunks for size in chunk.header.sizes))
    fds = [os.open(file, os.O_RDONLY | os.O_DIRECT) for file in files]
    for layer in range(LAYERS):
        for fd, chunk, out in zip(fds, chunks, buffers, strict=True):
            size = os.preadv(fd, [aligned], chunk.offsets[layer])
            payload = memoryview(aligned)[:size]
            checksum(payload)
            Lossless().decode(payload, out)
    for fd in fds:
        os.close(fd)


def dd(files: Sequence[Path], *arguments: str) -> float:
    """Seconds that dd says it took for all the files, 1 MiB at a time."""
    total = 0.0
    for file in files:
        command = ["dd", f"if={file}", "bs=1M", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"})
        total += float(re.findall(r"([\d.e-]+) s,", done.stderr)[0])
    return total


def drop_cache(files: Sequence[Path]) -> None:
    """Put the files out of the page cache; SystemExit if they will not go."""
    for _ in range(50):
        for file in files:
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if not any(is_cached(file) for file in files):
            return
        time.sleep(0.02)  # the kernel lets go of what it has just written when it has a moment
    raise SystemExit("the files stay in the page cache; name a --folder on a real disk")


def is_cached(file: Path) -> bool:
    """Whether any page of a file is in the page cache, by mincore: a read that must not wait would fetch it ahead."""
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as mapped,
    ):
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), dtype=np.uint8)
        address = np.frombuffer(mapped, dtype=np.uint8).ctypes.data
        if LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), pages.ctypes.data_as(ctypes.c_void_p)):
            raise OSError(ctypes.get_errno(), "mincore")
        return bool((pages & 1).any())


def print_throughput(result: dict[str, Any]) -> None:
    """Print reading and writing."""
    size, rounds = f"{result['bytes'] / 1e6:.1f} MB", result["rounds"]
    print(f"{CHUNKS} chunks × {TOKENS} tokens × {LAYERS} layers, {size}, {rounds} rounds")
    for name, speed in result["bytes_per_second"].items():
        print(f"  {name:12} {speed / 1e9:6.2f} GB/s")
    print(f"the tier reads {result['tier_over_dd_direct']:.2f} × as fast as dd direct")
    print(f"the tier reads {result['tier_over_dd_buffered']:.2f} × as fast as dd buffered")
    print(f"put writes {result['put_over_dd_fsync']:.2f} × as fast as dd fsync")


if __name__ == "__main__":
    main()
